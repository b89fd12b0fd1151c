"""`FailingBatches`: which partitions fail, when that is told, and when it is over. Without a loop: the test is the clock."""

from __future__ import annotations

import pytest
from ledger_desk import Desk

from aiokprod.logs import StateLog
from aiokprod.metrics import TopicCounters
from aiokprod.pipeline.partition.failing import HINTS, MOST, FailingBatches
from aiokprod.pipeline.partition.verdicts import NO_ANSWER, Kind, is_sent_again, judge

REPLICAS = 19


class Failing:
    """Failing batches, with the ledgers of partitions whose attempts fail."""

    def __init__(self) -> None:
        self.book = FailingBatches()
        self.log = StateLog("producer", client_id="shop")
        self.failures: dict[tuple[str, int], int] = {}

    def fail(self, topic: str, partition: int, desk: Desk, now: float, code: int = REPLICAS) -> None:
        """Let an attempt of the only batch of this partition fail."""
        entries = [entry for entry in desk.ledger.entries if entry.is_open_ended] or [desk.send()]
        desk.now = max(now, desk.ledger.not_before)
        desk.fly()
        key = (topic, partition)
        self.failures[key] = self.failures.get(key, 0) + 1
        text = "was answered NOT_ENOUGH_REPLICAS"
        self.book.note(topic, partition, desk.ledger, 1, code, text, self.failures[key], now)
        desk.answer(entries[0], code)
        desk.returned()

    def succeed(self, desk: Desk) -> None:
        desk.now = desk.ledger.not_before
        [entry] = desk.fly()
        desk.answer(entry, 0, 5)

    def tell(self, now: float) -> None:
        self.book.tell(self.log, now)


@pytest.fixture
def failing() -> Failing:
    return Failing()


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().removeprefix("producer [shop]: ") for record in caplog.records]


def test_the_second_failure_is_told_and_the_first_acknowledgement_ends_it(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    failing.fail("t", 3, desk, 0.0)
    failing.tell(0.5)
    assert not caplog.records
    trouble = failing.book.newest()
    assert trouble is not None and trouble.name == "NOT_ENOUGH_REPLICAS"
    failing.fail("t", 3, desk, 1.0)
    failing.tell(1.0)
    assert texts(caplog)[0].startswith(
        "t-3: a batch has failed 2 times and is sent again; the last attempt, to broker 1, was"
    )
    failing.tell(3.0)
    failing.tell(6.0)
    assert len(caplog.records) == 2 and texts(caplog)[1].endswith("(2 failed attempts so far)")
    failing.succeed(desk)
    assert failing.book.newest() is None
    failing.tell(8.0)
    failing.tell(9.0)
    assert texts(caplog)[2:] == [
        "topic t: batches do not fail with NOT_ENOUGH_REPLICAS any more, after 8.0 s and 2 failed attempts"
    ]


def test_partitions_of_a_topic_share_a_line_and_the_trouble_is_over_with_the_last_of_them(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    desks = [Desk() for _ in range(3)]
    for at in (0.0, 1.0):
        for partition, desk in enumerate(desks):
            failing.fail("t", partition, desk, at)
    failing.tell(1.0)
    assert len(caplog.records) == 1 and "t-2 (and 2 more partitions of the topic)" in caplog.text
    failing.succeed(desks[0])
    failing.succeed(desks[2])
    failing.tell(2.0)
    assert len(caplog.records) == 1
    failing.succeed(desks[1])
    failing.tell(3.0)
    assert len(caplog.records) == 2


def test_a_trouble_that_comes_and_goes_is_not_told_each_time(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    for at in range(0, 400, 2):
        failing.failures.clear()
        failing.fail("t", 0, desk, float(at))
        failing.fail("t", 0, desk, float(at))
        failing.tell(at + 0.5)
        failing.succeed(desk)
        failing.tell(at + 1.0)
    assert 20 < len(caplog.records) < 90  # about one pair of lines in ten seconds


def crowd(failing: Failing, count: int = MOST) -> list[Desk]:
    """Let batches of so many topics fail twice."""
    desks = [Desk() for _ in range(count)]
    for number, desk in enumerate(desks):
        for at in (0.0, 1.0):
            failing.fail(f"t{number}", 0, desk, at)
    return desks


def test_topics_beyond_a_bound_share_a_trouble(failing: Failing, caplog: pytest.LogCaptureFixture) -> None:
    crowd(failing, MOST + 50)
    failing.tell(1.0)
    assert len(caplog.records) == 4
    told = f"batches of {MOST - 2} more topics fail and are sent again, as those of 't{MOST + 49}'"
    assert told in texts(caplog)[3]


def test_a_new_trouble_beyond_the_bound_is_told_and_its_end(failing: Failing, caplog: pytest.LogCaptureFixture) -> None:
    late = 30.0
    crowd(failing)
    failing.tell(1.0)
    first, second = Desk(), Desk()
    for desk, name, at in ((first, "late", late), (second, "later", late + 12)):
        caplog.clear()
        for _ in range(2):
            failing.fail(name, 7, desk, at)
        for _ in range(20):
            at += 0.5
            failing.tell(at)
        (told,) = [text for text in texts(caplog) if text.startswith(f"{name}-7")]
        assert ("and 1 more partition of other topics" in told) is (desk is second)
        assert "a batch has failed 2 times" in told
    caplog.clear()
    failing.succeed(first)
    failing.tell(late + 23)
    assert not any("other topics: batches do not fail" in text for text in texts(caplog))
    failing.succeed(second)
    failing.tell(late + 24)
    end = "other topics: batches do not fail with NOT_ENOUGH_REPLICAS any more, after 24.0 s and 4 failed attempts"
    assert end in texts(caplog)


def test_a_new_trouble_gets_the_place_of_one_that_is_over(failing: Failing, caplog: pytest.LogCaptureFixture) -> None:
    desks = crowd(failing)
    failing.tell(1.0)
    late = Desk()
    failing.fail("late", 0, late, 2.0)
    failing.succeed(desks[0])
    failing.tell(2.5)
    caplog.clear()
    failing.fail("late", 0, late, 4.0)
    failing.tell(4.0)
    assert [text.partition(":")[0] for text in texts(caplog)] == ["late-0"]
    assert len(failing.book._troubles) == MOST
    assert not failing.book._shared[REPLICAS].ledgers
    failing.succeed(late)
    failing.tell(5.0)
    assert texts(caplog)[1:] == [
        "topic late: batches do not fail with NOT_ENOUGH_REPLICAS any more, after 1.0 s and 1 failed attempts"
    ]


def test_the_memory_of_troubles_is_bounded(failing: Failing) -> None:
    crowd(failing, 3 * MOST)
    for number in range(3 * MOST):
        failing.book.note_refused(f"t{number}", 29, TopicCounters(), 1.0)
    assert len(failing.book._troubles) == MOST and len(failing.book._shared) == 1
    assert len(failing.book._refused) == MOST + 1


def refuse(failing: Failing, topic: str, now: float, counters: TopicCounters | None = None) -> None:
    for _ in range(2):
        failing.book.note_refused(topic, 29, counters or TopicCounters(), now)


def test_many_topics_that_are_refused_share_a_line(failing: Failing, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(30):
        refuse(failing, f"t{number}", 1.0)
    failing.tell(1.0)
    failing.tell(1.5)
    assert len(caplog.records) == 4
    assert "brokers refuse records of 27 more topics, as those of 't29': TOPIC_AUTHORIZATION_FAILED" in caplog.text


def test_a_topic_that_is_refused_beyond_the_bound_is_told(failing: Failing, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MOST):
        refuse(failing, f"t{number}", 1.0)
    failing.tell(1.0)
    for name, at in (("late", 30.0), ("later", 42.0)):
        for number in range(MOST):
            refuse(failing, f"t{number}", at)
        caplog.clear()
        refuse(failing, name, at)
        for step in range(21):
            failing.tell(at + 0.5 * step)
        (told,) = [text for text in texts(caplog) if "more topics, the last of them" in text]
        assert f"the last of them {name!r}: TOPIC_AUTHORIZATION_FAILED" in told and "grant it WRITE" in told
    assert any(each.is_shared for each in failing.book.refusals(52.0))
    failing.tell(200.0)
    assert not failing.book.refusals(200.0)


def test_each_hint_is_of_a_code_with_which_a_batch_is_sent_again_or_refused() -> None:
    refused = (Kind.REFUSED, Kind.TOO_LARGE)
    assert all(is_sent_again(code) or judge(code).kind in refused for code in HINTS)
    assert judge(NO_ANSWER).kind is Kind.RETRY and not is_sent_again(0) and not is_sent_again(10)
