"""`ledger_wait`: the words for what a ledger waits for, which `Ledger.next` decides."""

from __future__ import annotations

from ledger_desk import NOW_MS, Desk

from aiokprod.explanation import WaitsFor
from aiokprod.pipeline.partition.waits import Wait, batches_ahead, ledger_wait

CHASED, LED, ASKED = 1.0, 2.0, 3.0
NOT_ENOUGH_REPLICAS = 19


def waited(desk: Desk, last: str = "") -> Wait | None:
    held = desk.ledger.next(desk.now, NOW_MS)
    return ledger_wait(held, desk.ledger, CHASED, LED, ASKED, last) if isinstance(held, WaitsFor) else None


def told(desk: Desk, last: str = "") -> tuple[WaitsFor, float, str]:
    wait = waited(desk, last)
    assert wait is not None
    return wait.waits_for, wait.since, wait.why


def test_a_ledger_with_a_leader_and_an_identity_waits_for_nothing() -> None:
    desk = Desk()
    desk.send(1)
    assert waited(desk) is None
    assert desk.ledger.candidate(desk.now, NOW_MS) is not None


def test_a_round_that_has_failed_waits_for_its_chaser() -> None:
    desk = Desk()
    desk.send(1)
    (entry,) = desk.fly()
    desk.answer(entry, NOT_ENOUGH_REPLICAS)
    assert told(desk, "broken") == (WaitsFor.CHASER, CHASED, "an attempt has failed; last: broken")
    desk.returned()
    wait = waited(desk, "broken")
    assert wait is not None
    assert (wait.waits_for, wait.since, wait.why, wait.broker) == (WaitsFor.BACKOFF, CHASED, "broken", 1)
    left_s = wait.left_s(desk.now)
    assert left_s is not None and left_s > 0
    assert wait.left_s(desk.now + 10) == 0.0


def test_a_partition_without_a_leader_waits_for_one() -> None:
    desk = Desk()
    desk.send(1)
    desk.leader(-1, 4)
    assert told(desk) == (WaitsFor.LEADER, LED, "the partition has no leader")


def test_a_partition_without_an_identity_waits_for_one() -> None:
    desk = Desk(identity=None)
    desk.send(1)
    assert told(desk) == (WaitsFor.PRODUCER_ID, ASKED, "the partition has no producer id")
    desk.grant((8, 0))
    assert waited(desk) is None
    assert waited(Desk(identity=None, idempotent=False)) is None


def test_a_wait_without_an_end_says_so() -> None:
    assert Wait(WaitsFor.ANSWER, "", 1.0).left_s(5.0) is None


def test_batches_ahead_are_those_without_an_outcome() -> None:
    desk = Desk()
    for _ in range(3):
        desk.send(1)
    entries = list(desk.ledger.entries)
    assert [batches_ahead(entries, entry) for entry in entries] == [0, 1, 2]
    (first,) = desk.fly()
    desk.answer(first, 0, 5)
    entries = list(desk.ledger.entries)
    assert [batches_ahead(entries, entry) for entry in entries] == [0, 1]
