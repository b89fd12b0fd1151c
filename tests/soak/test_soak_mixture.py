"""The mixed workload: on an in-process cluster its book is right, and each planted defect is told by the judge."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from book import Book
from evidence import Evidence, Life
from figures import figures_of
from mixture import Mixture
from profiles import DROPPED, OPERATIONS, PROFILES, TOPICS
from sender import Pen
from test_soak_verdict import CLEAN, book_of, checks_of, evidence_of, sent
from values import identity_of
from verdict import complaints_of

from aiokprod import Delivery
from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster
from aiokprod.testing.checker import LogRecord

(PROFILE,) = (each for each in PROFILES if each.mixes)
TURNS = 60


class Notes(Pen):
    """A pen that keeps the lines."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.kept: list[bytes] = []

    def flush(self) -> None:
        self.kept += self._lines
        self._lines.clear()


def played(kind: type[Mixture], cluster: MockCluster, turns: int = TURNS, **options: Any) -> Evidence:
    """Run so many ticks of the workload with this producer."""
    for topic, partitions in TOPICS.items():
        if topic not in cluster.topics:
            cluster.create_topic(topic, partitions)

    async def scenario() -> Book:
        notes = Notes(asyncio.get_running_loop())
        job = {"life": "mixed-0", "servers": cluster.bootstrap_servers, "security": {}, "seed": 5, "turn": 0}
        profile = PROFILE.__class__(
            name="mixed", in_flight=5, delivery_timeout_s=15.0, topics=PROFILE.topics, mixes=True, options=options
        )

        class Counted(kind):  # type: ignore[valid-type, misc]
            """A workload that drains after so many ticks."""

            ticks = 0

            async def _tick(self, producer: Any) -> None:
                await super()._tick(producer)
                self.ticks += 1
                if self.ticks >= turns:
                    self.draining.set()

        workload: Mixture = Counted(job | {"rate": 600.0, "session_s": 30.0}, profile, notes)
        await workload.run()
        notes.flush()
        return Book.of("mixed-0", iter(notes.kept))

    book = asyncio.run(scenario())
    log = [
        LogRecord(topic, record.partition, record.offset, identity_of(record.value, topic, record.key))
        for topic in TOPICS
        for record in cluster.records(topic)
    ]
    return Evidence(
        began=0.0, ended=1.0, lives=[Life(name="mixed-0", client="mixed", book=book, log="")], injections=[], log=log
    )


# ---------------------------------------------------------------------- the workload
def test_each_operation_is_done_and_told_in_the_book_as_it_is_in_the_log() -> None:
    with MockCluster(3) as cluster:
        evidence = played(Mixture, cluster)
    of_promises = [each for each in complaints_of(evidence) if each.check not in ("late", "stall")]  # no speed here
    assert not of_promises
    (life,) = evidence.lives
    delivered = {
        operation
        for number, operation in life.book.operations.items()
        if str(life.book.sends[number].outcome) == "delivered"
    }
    assert delivered == OPERATIONS - {"cancelled"}
    assert set(life.book.operations.values()) == OPERATIONS
    assert len(evidence.log) > 100
    assert str(figures_of(evidence)["records columns"]).split()[1] == "delivered"
    dues = {sent.due_at - sent.sent_at for sent in life.book.sends if sent.due_at is not None}
    assert len(dues) > 50, "timeouts are unlike"


class Deaf(Mixture):
    """A producer that keeps failures of unwatched records to itself."""

    def _drop_failed(self, error: AiokprodError) -> None:
        pass


@pytest.mark.slow
def test_a_failure_that_is_not_told_is_found() -> None:
    for kind, check in ((Mixture, set()), (Deaf, {"lost", "dropped"})):
        with MockCluster(3) as cluster:
            cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=DROPPED, times=3)
            evidence = played(kind, cluster)
        assert {each.check for each in complaints_of(evidence)} == check


def test_an_answer_before_the_broker_has_the_record_is_found() -> None:
    with MockCluster(3) as cluster:
        cluster.swallow_next("Produce", before_serving=True, times=5)
        evidence = played(Mixture, cluster, acks=0, enable_idempotence=False)
    assert "lost" in {each.check for each in complaints_of(evidence)}


class Forgetful(Mixture):
    """A Delivery of every seventh record is never told of."""

    def _settled(self, number: int, delivery: Delivery) -> None:
        if number % 7:
            super()._settled(number, delivery)


@pytest.mark.slow
def test_a_record_that_never_settles_is_found() -> None:
    with MockCluster(3) as cluster:
        evidence = played(Forgetful, cluster)
    assert {each.check for each in complaints_of(evidence)} == {"unresolved"}


# ---------------------------------------------------------------------- the judge
def mixed(
    number: int, told: str, *, at: float = 1.0, within: str = "-", operation: str = "watched", line: str = "-"
) -> list[str]:
    letter, _, facts = told.partition(" ")
    return [
        f"i {number} {at} t 0 - 100 {within} {operation} {line}",
        f"{letter} {number} {at + 0.5} {facts}".rstrip(),
    ]


def test_a_timeout_of_a_record_alone_is_its_due_time() -> None:
    def checks(within: str) -> list[str]:
        lines = [f"i 0 1.0 t 0 - 100 {within} watched -", "p 0 4.0 SendTimeoutError"]
        return checks_of(evidence_of(book_of(*lines)))

    assert checks("0.5") == ["late"]
    assert checks("2.5") == []
    assert checks("inf") == []
    assert checks("-") == []


def test_a_loop_that_others_kept_from_turning_excuses_a_late_answer() -> None:
    lines = ["i 0 1.0 t 0 - 100 0.5 watched -", "p 0 4.0 SendTimeoutError"]
    assert checks_of(evidence_of(book_of(*lines, "l 3.9 2.4 0.01"))) == []
    assert checks_of(evidence_of(book_of(*lines, "l 3.9 2.4 0.2", "l 9.0 2.4 0.01"))) == []
    assert checks_of(evidence_of(book_of(*lines, "l 3.9 1.0 0.01"))) == ["late"]


def test_a_call_with_an_order_of_its_own_is_judged_by_itself() -> None:
    def checks(line: str) -> list[str]:
        book = book_of(*mixed(0, "o 0 1", line="-"), *mixed(1, "o 0 0", line=line))
        return checks_of(evidence_of(book, (0, 0, 1), (0, 1, 0)))

    assert checks("-") == ["reordered"]
    assert checks("columns-1") == []


def test_a_record_of_which_no_failure_was_told_must_be_there() -> None:
    book = book_of(*mixed(0, "q", operation="dropped"))
    assert checks_of(evidence_of(book, (0, 0, 0))) == []
    assert checks_of(evidence_of(book_of(*mixed(0, "q", operation="dropped")))) == ["lost"]


@pytest.mark.parametrize(
    ("there", "certain", "unsure", "checks"),
    [
        (3, 1, 0, []),
        (2, 1, 1, []),
        (3, 1, 1, []),
        (4, 1, 0, ["dropped"]),
        (2, 1, 0, ["dropped"]),
        (1, 1, 1, ["dropped"]),
    ],
)
def test_as_many_dropped_records_may_be_missing_as_failures_were_told(
    there: int, certain: int, unsure: int, checks: list[str]
) -> None:
    lines = [line for number in range(4) for line in mixed(number, "d", operation="dropped")]
    told = {"dropped": {"numbers": [0, 1, 2, 3], "not persisted": certain, "possibly persisted": unsure}}
    evidence = evidence_of(book_of(*lines, report=told), *((0, number, number) for number in range(there)))
    assert checks_of(evidence) == checks


def test_more_bytes_than_a_buffer_holds_are_told() -> None:
    def checks(used: int) -> list[str]:
        settings = {"delivery_timeout_ms": 10_000, "buffer_memory": 1_000}
        lines = [f"S 0.0 five-0/0 {json.dumps(settings)}", f'm 1.0 {{"buffer_used_bytes": {used}}}']
        lines += [f"C 2.0 five-0/0 {json.dumps(CLEAN)}", "E 2.1"]
        return checks_of(evidence_of(Book.of("five-0", (line.encode() for line in lines))))

    assert checks(1_000) == []
    assert checks(1_001) == ["memory"]


def test_a_long_soak_that_did_not_do_everything_has_shown_nothing() -> None:
    evidence = evidence_of(book_of(*mixed(0, "o 0 0"), *sent(1, "n ConnectionLostError")), (0, 0, 0))
    assert checks_of(evidence) == []
    evidence.ended = 200.0
    missing = [each for each in complaints_of(evidence) if each.check == "bug of the soak"]
    assert len(missing) == len(OPERATIONS - {"watched"}) + 1, "and no buffer was full"
