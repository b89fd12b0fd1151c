"""Each part of the verdict on liveness can fail: a defect that only it can see is planted, and it says so."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from swarm.narrow import Narrow
from swarm.play import play
from swarm.world_values import World
from transactional_world import explore_transactions
from world import explore

from aiokprod import Producer
from aiokprod.errors import UsageError
from aiokprod.model import ProducerState
from aiokprod.pipeline.broker.flusher import BrokerFlusher
from aiokprod.pipeline.watch import Watch
from aiokprod.transactions import transactor
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import Action, Mode, Refusal

pytestmark = [
    pytest.mark.pure("a defect replaces a part of the producer"),
    pytest.mark.usefixtures("heals", "defects"),  # where a defect leaves something standing, and the watch is at work
]
BREAKS_AT_S = 2.0
SENDS_AGAIN_S = 2.2
Plant = Callable[[pytest.MonkeyPatch], None]


def a_world(*, is_pending: bool, is_alive: bool = True, **options: Any) -> World:
    """Make a world without a fault: some records, a pause in which a defect comes, and perhaps a further record."""
    world = World(1)
    narrow = Narrow(Random(1), world)
    narrow.topic()
    narrow.options(delivery_timeout_ms=120_000, **options)
    narrow.start()
    if options:
        narrow.do("begin", producer=0)
    narrow.send(count=3)
    narrow.wait(SENDS_AGAIN_S)
    narrow.do("recall", count=0)
    if is_pending:
        narrow.send()
    world.end |= {"settle_s": 0.0, "flush": False, "alive": is_alive}
    return world


def never_wakes(patch: pytest.MonkeyPatch, until_s: float = 1e9) -> None:
    """Let no flusher look for work any more, as after the RecursionError that left its mark behind."""
    wake = BrokerFlusher.wake

    def lost(self: BrokerFlusher, somebody_waits: bool) -> None:
        if not BREAKS_AT_S < self._loop.time() < until_s:
            wake(self, somebody_waits)

    patch.setattr(BrokerFlusher, "wake", lost)


def never_wakes_unwatched(patch: pytest.MonkeyPatch) -> None:
    """Let nothing wake it, and no watch heal it."""
    never_wakes(patch)
    patch.setattr(Watch, "look", lambda self, busy: None)


def loses_one_wake(patch: pytest.MonkeyPatch) -> None:
    """Let the wakes of a moment be lost; the watch heals it."""
    never_wakes(patch, until_s=SENDS_AGAIN_S + 0.6)


def seems_degraded(patch: pytest.MonkeyPatch) -> None:
    """Let the producer say that it is not well."""
    health = Producer.health
    patch.setattr(Producer, "health", lambda self: dataclasses.replace(health(self), state=ProducerState.DEGRADED))


def starts_once(patch: pytest.MonkeyPatch) -> None:
    """Refuse each start but the first."""
    start, started = Producer.start, list[Producer]()

    async def once(self: Producer, *arguments: Any, **options: Any) -> Producer:
        if self in started:
            raise UsageError("started once")
        started.append(self)
        return await start(self, *arguments, **options)

    patch.setattr(Producer, "start", once)


class BeginsThree(TransactionMachine):
    """A machine that begins three transactions, and no more."""

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        return Refusal.UNKNOWN if self.transaction >= 3 else super().begin(mode, now)


def begins_three(patch: pytest.MonkeyPatch) -> None:
    """Refuse the fourth transaction, for ever."""
    patch.setattr(transactor, "TransactionMachine", BeginsThree)


IN_TRANSACTIONS = {"transactional_id": "tx", "transaction_timeout_ms": 900_000}
FOUND: dict[str, tuple[Plant, dict[str, Any], str]] = {
    "a record that is pending": (never_wakes_unwatched, {"is_pending": True}, "pending for ever"),
    "a fresh record": (never_wakes_unwatched, {"is_pending": False}, "delivers nothing"),
    "a stall that was healed": (loses_one_wake, {"is_pending": True}, "stood still and was healed"),
    "health": (seems_degraded, {"is_pending": False}, "not ready though all is well"),
    "a second start": (starts_once, {"is_pending": False, "is_alive": False}, "does not start again"),
    "health in transactions": (
        seems_degraded,
        {"is_pending": False, **IN_TRANSACTIONS},
        "not ready though all is well",
    ),
}


@pytest.mark.parametrize("what", FOUND)
def test_the_swarm_looks_at(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, kind_of_world, expected = FOUND[what]
    assert play(a_world(**kind_of_world)).kinds == set()
    plant(monkeypatch)
    assert expected in play(a_world(**kind_of_world)).kinds


def test_the_swarm_looks_at_a_fresh_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    world = a_world(is_pending=False, **IN_TRANSACTIONS)
    for _ in range(3):
        for kind in ("commit", "begin"):
            world.operations.append(
                dataclasses.replace(world.operations[-1], kind=kind, at=world.length_s + 0.1, args={})
            )
    assert play(world).kinds == set()
    begins_three(monkeypatch)
    assert "stuck" in play(world).kinds


def wrongs_of(explored: Callable[[int], Any], seed: int) -> list[str]:
    try:
        return [str(wrong) for wrong in explored(seed).wrongs]
    except Exception as crash:
        return [f"{type(crash).__name__}: {crash}"]


IN_WORLDS: dict[str, tuple[Plant, Callable[[int], Any], str]] = {
    "what is pending": (never_wakes_unwatched, explore, "pending for ever"),
    "a fresh record": (never_wakes_unwatched, explore, "delivers nothing though all is well"),
    "health": (seems_degraded, explore, "not ready though all is well"),
    "what was healed": (never_wakes, explore, "stood still and was healed"),
    "a fresh transaction": (begins_three, explore_transactions, "stuck"),
    "health in transactions": (seems_degraded, explore_transactions, "not ready"),
    "what was healed in transactions": (never_wakes, explore_transactions, "stood still and was healed"),
}


@pytest.mark.parametrize("what", IN_WORLDS)
def test_the_worlds_look_at(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, explored, expected = IN_WORLDS[what]
    plant(monkeypatch)
    found: set[str] = set()
    for seed in range(40):
        found.update(wrong.partition(": ")[0] for wrong in wrongs_of(explored, seed))
        if expected in found:
            return
    pytest.fail(f"only {found}")
