"""The checker on histories made by hand, and on honest ones that are spoilt in one place."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod import Persistence
from aiokprod.errors import BrokerRejectedError, DeliveryTimeoutError
from aiokprod.testing import MemoryProducer
from aiokprod.testing.checker import (
    Footprint,
    Kind,
    LogRecord,
    Outcome,
    Promise,
    SendBook,
    Sent,
    StallMeter,
    check_delivery,
    check_rate,
    log_of,
)


def sent(identity: int, outcome: Outcome | None = Outcome.DELIVERED, offset: int | None = None, **more: Any) -> Sent:
    more = {"partition": 0, "settled": int(outcome is not None)} | more
    return Sent(identity, "t", outcome=outcome, offset=offset, **more)


def log(*identities: int, partition: int = 0, first: int = 0) -> list[LogRecord]:
    return [LogRecord("t", partition, first + index, identity) for index, identity in enumerate(identities)]


def kinds(sends: list[Sent], records: list[LogRecord], **how: Any) -> list[tuple[Kind, object]]:
    return [(finding.kind, finding.identity) for finding in check_delivery(sends, records, **how)]


NOT, POSSIBLY = Outcome.NOT_PERSISTED, Outcome.POSSIBLY_PERSISTED


@pytest.mark.parametrize(
    ("sends", "records", "found"),
    [
        ([], [], []),
        ([sent(1, offset=0), sent(2, offset=1)], log(1, 2), []),
        ([sent(1)], [], [(Kind.LOST, 1)]),
        ([sent(1, NOT)], [], []),
        ([sent(1, NOT)], log(1), [(Kind.WRONG_PERSISTENCE, 1)]),
        ([sent(1, POSSIBLY), sent(2, POSSIBLY)], log(2), []),
        ([sent(1, offset=0)], log(1, 1), [(Kind.DUPLICATE, 1)]),
        ([sent(1, POSSIBLY)], log(1, 1), [(Kind.DUPLICATE, 1)]),
        ([sent(1, offset=1)], log(1), [(Kind.WRONG_OFFSET, 1)]),
        ([sent(1, offset=0, partition=1)], log(1), [(Kind.WRONG_OFFSET, 1)]),
        ([sent(1, offset=None)], log(1, first=7), []),  # delivered, and no broker said where
        ([sent(1, partition=None)], log(1, partition=3), []),
        ([sent(1), sent(2), sent(3)], log(1, 3, 2), [(Kind.REORDERED, 2)]),
        ([sent(1), sent(2), sent(3)], log(3, 1, 2), [(Kind.REORDERED, 1), (Kind.REORDERED, 2)]),
        ([sent(1), sent(2, partition=1)], log(1) + log(2, partition=1), []),
        ([sent(1, POSSIBLY), sent(2)], log(2, 1), []),  # the late copy of what was not told delivered
        ([sent(1, session="a"), sent(2, session="b")], log(2, 1), []),  # two producers side by side
        ([sent(1), sent(2)], log(1, 2, 1), [(Kind.DUPLICATE, 1)]),  # the first place is what counts for the order
        ([], log(9), [(Kind.GHOST, 9)]),
        ([sent(1, None)], [], [(Kind.UNRESOLVED, 1)]),
        ([sent(1, None)], log(1), [(Kind.UNRESOLVED, 1)]),
        ([sent(1, settled=2)], log(1), [(Kind.SETTLED_TWICE, 1)]),
        ([sent(1, due_at=5.0, settled_at=5.1)], log(1), [(Kind.LATE, 1)]),
        ([sent(1, due_at=5.0, settled_at=5.0)], log(1), []),
    ],
)
def test_what_is_wrong_is_found_and_nothing_else(
    sends: list[Sent], records: list[LogRecord], found: list[tuple[Kind, object]]
) -> None:
    assert kinds(sends, records) == found


def test_a_promise_that_was_not_made_cannot_be_broken() -> None:
    twice = [sent(1)], log(1, 1)
    assert kinds(*twice, promise=Promise.AT_LEAST_ONCE) == []
    assert kinds(*twice, promise=Promise.AT_MOST_ONCE) == [(Kind.DUPLICATE, 1)]
    assert kinds([sent(1)], [], promise=Promise.AT_MOST_ONCE) == []
    assert kinds([sent(1)], [], promise=Promise.AT_LEAST_ONCE) == [(Kind.LOST, 1)]
    assert kinds([], log(9), others_write=True) == []
    assert kinds([sent(1, due_at=5.0, settled_at=5.5)], log(1), lenience_s=0.5) == []


def test_where_nothing_comes_late_all_keep_their_order() -> None:
    late = [sent(1, POSSIBLY), sent(2)], log(2, 1)
    assert kinds(*late, undelivered_keep_order=True) == [(Kind.REORDERED, 1)]


def test_two_sends_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two sends are called 1"):
        check_delivery([sent(1), sent(1)], log(1))


def test_a_finding_tells_what_happened() -> None:
    (lost,) = check_delivery([sent(7, offset=3)], [])
    assert str(lost) == "lost: record 7 to t-0, delivered at offset 3 is not in the log"
    (moved,) = check_delivery([sent(7, offset=3)], log(7))
    assert str(moved) == "wrong offset: record 7 to t-0, delivered at offset 3 is in the log at t-0@0"
    (failed,) = check_delivery([sent(7, NOT, error="RecordTooLargeError: no")], log(7))
    assert "(RecordTooLargeError: no) is in the log at t-0@0" in failed.text


# ---------------------------------------------------------------------- honest histories, spoilt


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Sent], list[LogRecord]]:
    """Draw what an honest producer with a few partitions could have told."""
    sends: list[Sent] = []
    records: list[LogRecord] = []
    ends: dict[int, int] = {}
    for number in range(draw(st.integers(0, 12))):
        partition = draw(st.integers(0, 2))
        outcome = draw(st.sampled_from(Outcome))
        is_there = outcome is Outcome.DELIVERED or (outcome is POSSIBLY and draw(st.booleans()))
        offset = None
        if is_there:
            offset = ends[partition] = ends.get(partition, -1) + 1 + draw(st.integers(0, 1))  # a marker between
            records.append(LogRecord("t", partition, offset, number))
        told = offset if outcome is Outcome.DELIVERED and draw(st.booleans()) else None
        sends.append(sent(number, outcome, told, partition=partition))
    return sends, records


@given(histories())
def test_an_honest_history_is_clean(history: tuple[list[Sent], list[LogRecord]]) -> None:
    assert check_delivery(*history) == []


@given(histories(), st.data())
def test_each_spoilt_record_is_found_and_no_other(
    history: tuple[list[Sent], list[LogRecord]], data: st.DataObject
) -> None:
    sends, records = history
    delivered = [record for record in records if sends[record.identity].outcome is Outcome.DELIVERED]  # type: ignore[call-overload]
    if not delivered:
        return
    victim = data.draw(st.sampled_from(delivered))
    spoil = data.draw(st.sampled_from(["lose", "repeat", "deny", "forget"]))
    told = sends[victim.identity]  # type: ignore[call-overload]
    if spoil == "lose":
        records.remove(victim)
        expected = Kind.LOST
    elif spoil == "repeat":
        records.append(LogRecord("t", victim.partition, 1_000, victim.identity))
        expected = Kind.DUPLICATE
    elif spoil == "deny":
        told.outcome = NOT
        expected = Kind.WRONG_PERSISTENCE
    else:
        told.outcome, told.settled = None, 0
        expected = Kind.UNRESOLVED
    assert kinds(sends, records) == [(expected, victim.identity)]


@given(histories(), st.data())
def test_two_that_changed_places_are_found(history: tuple[list[Sent], list[LogRecord]], data: st.DataObject) -> None:
    sends, records = history
    pairs = [
        (first, second)
        for first in range(len(records))
        for second in range(first + 1, len(records))
        if records[first].partition == records[second].partition
        and sends[records[first].identity].outcome is sends[records[second].identity].outcome is Outcome.DELIVERED  # type: ignore[call-overload]
    ]
    if not pairs:
        return
    first, second = data.draw(st.sampled_from(pairs))
    ours, theirs = records[first], records[second]
    records[first] = LogRecord("t", ours.partition, ours.offset, theirs.identity)
    records[second] = LogRecord("t", theirs.partition, theirs.offset, ours.identity)
    found = {kind for kind, _ in kinds(sends, records)}
    assert Kind.REORDERED in found
    assert found <= {Kind.REORDERED, Kind.WRONG_OFFSET}


# ---------------------------------------------------------------------- the book


def test_the_book_keeps_what_a_producer_tells() -> None:
    async def scenario() -> None:
        book = SendBook(asyncio.get_running_loop().time)
        async with MemoryProducer(topics={"t": 2}) as producer:
            producer.fail_next(BrokerRejectedError("no"), topic="t")
            producer.fail_next(DeliveryTimeoutError("?", persistence=Persistence.POSSIBLY_PERSISTED), topic="t")
            for number in range(5):
                book.watch(producer.send("t", b"%d x" % number, partition=1), b"%d" % number, "t", within_s=9)
            book.refused(b"9", "t", ValueError("not ours"))
            assert [one.settled for one in book.sends] == [0, 0, 0, 0, 0, 1]
            await producer.flush()
            assert [one.outcome for one in book.sends] == [NOT, POSSIBLY, *[Outcome.DELIVERED] * 3, POSSIBLY]
            assert [one.offset for one in book.sends] == [None, None, 0, 1, 2, None]
            assert [one.partition for one in book.sends] == [None, None, 1, 1, 1, None]
            assert book.check(log_of(producer.records)) == []
            assert [finding.kind for finding in book.check([])] == [Kind.LOST] * 3
            assert "BrokerRejectedError" in str(book.sends[0])

    asyncio.run(scenario())


# ---------------------------------------------------------------------- manners


def test_a_storm_is_more_than_is_decent_within_a_window() -> None:
    assert check_rate("dials", [], most=1) == []
    assert check_rate("dials", [0.0, 0.5, 1.0, 1.5], most=2) == []
    (storm,) = check_rate("dials", [0.0, 0.9, 1.0, 1.1, 1.8], most=3)
    assert storm.kind is Kind.STORM
    assert storm.text == "4 dials within 1 s; at most 3 are decent"
    assert check_rate("dials", [0.0, 0.9, 1.0, 1.1], most=3, within_s=0.2) == []


def test_what_is_left_is_found() -> None:
    async def scenario() -> None:
        before = Footprint.take()
        assert Footprint.take().leaks_since(before) == []
        task = asyncio.create_task(asyncio.Event().wait(), name="forgotten")
        left, right = socket.socketpair()
        over = threading.Event()
        thread = threading.Thread(target=over.wait, name="idler")
        thread.start()
        found = Footprint.take().leaks_since(before)
        assert [finding.kind for finding in found] == [Kind.LEAKED_TASKS, Kind.LEAKED_THREADS, Kind.LEAKED_SOCKETS]
        assert "forgotten" in found[0].text
        assert "idler" in found[1].text
        task.cancel()
        over.set()
        thread.join()
        left.close()
        right.close()
        await asyncio.gather(task, return_exceptions=True)
        assert Footprint.take().leaks_since(before) == []

    asyncio.run(scenario())


def test_outside_of_a_loop_there_are_no_tasks() -> None:
    assert Footprint.take().tasks == frozenset()


def test_a_loop_that_stands_still_is_measured() -> None:
    async def scenario() -> StallMeter:
        async with StallMeter(every_s=0.001) as meter:
            await asyncio.sleep(0.02)
            time.sleep(0.2)
        return meter

    meter = asyncio.run(scenario())
    assert meter.turns > 0
    assert meter.worst_s > 0.15
    assert [finding.kind for finding in meter.check(0.1)] == [Kind.STALL]
    assert meter.check(60.0) == []
