"""`FailingBatches`: which partitions fail, when that is told, and when it is over. Without a loop: the test is the clock."""

from __future__ import annotations

import pytest
from ledger_desk import Desk

from aiokprod.logs import StateLog
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


def test_topics_beyond_a_bound_are_not_kept(failing: Failing, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(MOST + 50):
        desk = Desk()
        for at in (0.0, 1.0):
            failing.fail(f"t{number}", 0, desk, at)
    failing.tell(1.0)
    assert len(caplog.records) == 4
    assert f"batches of {MOST - 3} more topics fail and are sent again" in texts(caplog)[3]


def test_each_hint_is_of_a_code_with_which_a_batch_is_sent_again_or_refused() -> None:
    refused = (Kind.REFUSED, Kind.TOO_LARGE)
    assert all(is_sent_again(code) or judge(code).kind in refused for code in HINTS)
    assert judge(NO_ANSWER).kind is Kind.RETRY and not is_sent_again(0) and not is_sent_again(10)
