"""The ladder of a record: what decides whether a partition, its queue, its broker or a connection may go on says why not.

There is one: `Ledger.next`, `PartitionQueue.next`, `BrokerFlusher.waits_for`, `BrokerConnection.waits_for`. The sender, the
watch, `explain()` and its obstacles ask these four. Here each of their rungs is taken out, and each reason exchanged, and a
state below must show it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from ledger_desk import DELIVERY_TIMEOUT_S, NOW_MS, Desk

from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.explanation import WaitsFor
from aiokprod.pipeline.broker.flusher import BrokerFlusher
from aiokprod.pipeline.explaining import OF_PARTITIONS as OBSTACLES
from aiokprod.pipeline.partition.explained_queue import OF_PARTITIONS
from aiokprod.pipeline.partition.ledger import AGE_MS, Ledger
from aiokprod.pipeline.partition.partition_queue import PartitionQueue

pytestmark = pytest.mark.pure("it replaces methods")

FEW, TIMED_OUT, OUT_OF_ORDER, TOO_LARGE = 19, 7, 45, 10
EARLIER = WaitsFor.EARLIER_BATCHES
LONG_AGO = NOW_MS - AGE_MS


# ---------------------------------------------------------------------- states of a ledger
def nothing() -> Desk:
    return Desk()


def nothing_without_leader() -> Desk:
    desk = Desk()
    desk.leader(-1, 4)
    return desk


def goes() -> Desk:
    desk = Desk()
    desk.send()
    return desk


def draining() -> Desk:
    desk = goes()
    desk.answer(desk.fly()[0], FEW)
    return desk


def without_leader() -> Desk:
    desk = goes()
    desk.leader(-1, 4)
    return desk


def backing_off() -> Desk:
    desk = draining()
    desk.returned()
    return desk


def expiring_in_turns() -> Desk:
    desk = Desk()
    desk.warm()
    for _ in range(2):
        desk.send()
    desk.now += DELIVERY_TIMEOUT_S + 1
    desk._keep(desk.ledger.tick(desk.now, desk.now_ms, 1))
    return desk


def without_identity() -> Desk:
    desk = Desk(identity=None)
    desk.send()
    return desk


def behind_the_first_batch() -> Desk:
    desk = goes()
    desk.fly()
    desk.send()
    return desk


def behind_free_numbers() -> Desk:
    """Let the last batch expire while the one in front of it is sent again: its numbers are free."""
    desk = Desk()
    desk.warm()
    first, second, third = desk.send(), desk.send(), desk.send(waited_s=DELIVERY_TIMEOUT_S - 2.5)
    assert desk.fly() == [first, second, third]
    desk.answer(first, FEW)
    desk.answer(second, FEW)
    desk.answer(third, FEW)
    desk.returned()
    desk.backoff()
    assert desk.take() is first
    desk.answer(first, 0, 1)
    assert desk.take() is second
    desk.sleep(2.5 - desk.now)
    assert third.is_dead and not third.is_ambiguous and second.is_flying
    desk.send()
    return desk


def behind_an_old_batch() -> Desk:
    desk = Desk()
    desk.warm()
    desk.send(timestamp_ms=LONG_AGO)
    desk.take()
    desk.send()
    return desk


def old_behind_a_new_batch() -> Desk:
    desk = Desk()
    desk.warm()
    desk.send()
    desk.take()
    desk.send(timestamp_ms=LONG_AGO)
    return desk


def behind_a_trial() -> Desk:
    desk = Desk()
    desk.warm()
    desk.ledger.size_limit.batch_bytes = 1_000_000
    desk.send(2)
    desk.take()
    desk.send()
    return desk


def behind_a_doubt() -> Desk:
    """Let the broker answer 45 to a batch that it may have: nothing with fresh numbers goes behind it."""
    desk = Desk()
    desk.warm()
    doubtful = desk.send()
    desk.fly()
    desk.answer(doubtful, TIMED_OUT)
    desk.returned()
    desk.backoff()
    second = desk.send()
    desk.ledger.guard.showed_state(desk.now, NOW_MS)
    flown = desk.fly()
    assert flown[0] is doubtful
    desk.answer(doubtful, OUT_OF_ORDER)
    if second.is_flying:
        desk.send()
    return desk


LEDGERS: dict[str, tuple[Callable[[], Desk], WaitsFor | None]] = {
    "no batch": (nothing, None),
    "no batch, no leader": (nothing_without_leader, None),
    "an attempt has failed": (draining, WaitsFor.CHASER),
    "no leader": (without_leader, WaitsFor.LEADER),
    "backoff": (backing_off, WaitsFor.BACKOFF),
    "an expiry in several turns": (expiring_in_turns, WaitsFor.OUTCOMES),
    "no producer id": (without_identity, WaitsFor.PRODUCER_ID),
    "no place": (behind_the_first_batch, EARLIER),
    "free numbers in front": (behind_free_numbers, EARLIER),
    "an old batch in front": (behind_an_old_batch, EARLIER),
    "an old batch behind others": (old_behind_a_new_batch, EARLIER),
    "a trial of a size in front": (behind_a_trial, EARLIER),
    "a doubt in front": (behind_a_doubt, EARLIER),
}


@pytest.mark.parametrize("name", LEDGERS)
def test_a_ledger_that_gives_out_no_batch_says_what_it_waits_for(name: str) -> None:
    make, reason = LEDGERS[name]
    desk = make()
    assert desk.ledger.next(desk.now, desk.now_ms) is reason
    assert desk.take() is None


def test_a_ledger_that_gives_out_a_batch_waits_for_nothing() -> None:
    desk = goes()
    assert desk.ledger.next(desk.now, desk.now_ms) is desk.ledger.entries[0]


# ---------------------------------------------------------------------- states of a queue, a broker, a connection
@dataclass
class Queue:
    """The parts of a partition that `PartitionQueue.next` looks at."""

    found: Any = None
    is_let_in: bool = True
    open_batch: Any = None
    compressing: Any = None
    lingers: bool = False
    ledger: Any = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = SimpleNamespace(entries=[self.found] if self.found else [], next=lambda _now, _now_ms: self.found)
        self._scope = SimpleNamespace(number=1)
        self._entered = 1 if self.is_let_in else 0

    def _lingers(self, batch: object, now: float, urgent: bool) -> bool:
        return self.lingers


ENTRY = goes().ledger.entries[0]
OPEN = SimpleNamespace(entry=ENTRY)
QUEUES: dict[str, tuple[Queue, object]] = {
    "goes": (Queue(ENTRY), ENTRY),
    "not in the transaction": (Queue(ENTRY, is_let_in=False), WaitsFor.TRANSACTION),
    "has nothing": (Queue(None), None),
    "has nothing for the transaction": (Queue(None, is_let_in=False), None),
    "its ledger": (Queue(WaitsFor.CHASER), WaitsFor.CHASER),
    "compression": (Queue(ENTRY, compressing=ENTRY), WaitsFor.COMPRESSION),
    "lingers": (Queue(ENTRY, open_batch=OPEN, lingers=True), WaitsFor.LINGER),
    "has lingered": (Queue(ENTRY, open_batch=OPEN), ENTRY),
    "full": (Queue(ENTRY, open_batch=SimpleNamespace(entry=None), lingers=True), ENTRY),
}


def broker(in_flight: int = 0, held: WaitsFor | None = None) -> SimpleNamespace:
    connection = SimpleNamespace(waits_for=held, in_flight=in_flight)
    return SimpleNamespace(connection=connection, _settings=SimpleNamespace(requests_in_flight=5))


BROKERS: dict[str, tuple[SimpleNamespace, WaitsFor | None]] = {
    "free": (broker(), None),
    "almost": (broker(4), None),
    "not connected": (SimpleNamespace(connection=None, _settings=None), WaitsFor.CONNECTION),
    "throttled": (broker(held=WaitsFor.THROTTLE), WaitsFor.THROTTLE),
    "throttled, full": (broker(5, held=WaitsFor.THROTTLE), WaitsFor.THROTTLE),
    "full": (broker(5), WaitsFor.WINDOW),
}


def connection(
    *, is_open: bool = True, retired: bool = False, throttled: bool = False, paused: bool = False
) -> SimpleNamespace:
    throttle = SimpleNamespace(is_on=throttled)
    return SimpleNamespace(is_open=is_open, _is_retired=retired, _throttle=throttle, _is_paused=paused)


CONNECTIONS: dict[str, tuple[SimpleNamespace, WaitsFor | None]] = {
    "open": (connection(), None),
    "closed": (connection(is_open=False), WaitsFor.CONNECTION),
    "retired": (connection(retired=True), WaitsFor.CONNECTION),
    "throttled": (connection(throttled=True), WaitsFor.THROTTLE),
    "paused": (connection(paused=True), WaitsFor.SOCKET),
}


@dataclass(frozen=True)
class Ladder:
    """One function that decides, and whether the states above are as it should be."""

    function: Callable[..., object]
    is_right: Callable[[Callable[..., Any]], bool]


def _right_ledgers(function: Callable[..., Any]) -> bool:
    for make, reason in LEDGERS.values():
        desk = make()
        if function(desk.ledger, desk.now, desk.now_ms) is not reason:
            return False
    desk = goes()
    return function(desk.ledger, desk.now, desk.now_ms) is desk.ledger.entries[0]


def _right_in(states: dict[str, Any], *arguments: object) -> Callable[[Callable[..., Any]], bool]:
    return lambda function: all(function(state, *arguments) is reason for state, reason in states.values())


def ladders() -> dict[str, Ladder]:
    """Return the four ladders. Not at import: in the compiled form a property is none of Python's."""
    of_connection = vars(BrokerConnection)["waits_for"].fget
    return {
        "Ledger.next": Ladder(Ledger.next, _right_ledgers),
        "PartitionQueue.next": Ladder(PartitionQueue.next, _right_in(QUEUES, 0.0, NOW_MS, True)),
        "BrokerFlusher.waits_for": Ladder(BrokerFlusher.waits_for, _right_in(BROKERS)),
        "BrokerConnection.waits_for": Ladder(of_connection, _right_in(CONNECTIONS)),
    }


NAMES = ("Ledger.next", "PartitionQueue.next", "BrokerFlusher.waits_for", "BrokerConnection.waits_for")


class _Without(ast.NodeTransformer):
    """Takes out the rung of that number, or exchanges its reason. A rung is an `if`, or a choice in a `return`."""

    def __init__(self, number: int, *, exchange: bool) -> None:
        self.left = number
        self.exchange = exchange

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if any(isinstance(step, ast.Return) for step in node.body):
            if not self.left:
                if self.exchange:
                    node.body = [ast.Return(ast.Constant("another reason"))]
                else:
                    node.test = ast.Constant(False)
            self.left -= 1
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        choice = node.value
        if isinstance(choice, ast.IfExp):
            if not self.left:
                if self.exchange:
                    choice.body = ast.Constant("another reason")
                else:
                    choice.test = ast.Constant(False)
            self.left -= 1
        return node


def mutants(ladder: Ladder) -> Iterator[tuple[str, Callable[..., Any]]]:
    source = textwrap.dedent(inspect.getsource(ladder.function)).replace("@property\n", "")
    names = ladder.function.__globals__  # type: ignore[attr-defined]
    for exchange in (False, True):
        number = 0
        while True:
            tree = ast.parse(source)
            without = _Without(number, exchange=exchange)
            changed = ast.fix_missing_locations(without.visit(tree))
            if without.left >= 0:
                break
            space: dict[str, Any] = {}
            exec(compile(changed, "<mutant>", "exec"), dict(names), space)
            (function,) = space.values()
            yield f"rung {number} {'exchanged' if exchange else 'taken out'}", function
            number += 1


@pytest.mark.parametrize("name", NAMES)
def test_a_rung_that_is_taken_out_or_says_something_else_is_found(name: str) -> None:
    ladder = ladders()[name]
    assert ladder.is_right(ladder.function)
    made = list(mutants(ladder))
    assert len(made) >= 4
    assert [what for what, mutant in made if _is_right(ladder, mutant)] == []


def _is_right(ladder: Ladder, mutant: Callable[..., Any]) -> bool:
    try:
        return ladder.is_right(mutant)
    except AttributeError:  # it goes on to what is not there
        return False


def test_explanations_and_obstacles_know_every_reason_of_a_ledger() -> None:
    """`EARLIER_BATCHES` is told of a record with the number of batches, and TRANSACTION once for the whole id."""
    reasons = {reason for _, reason in LEDGERS.values() if reason is not None} - {EARLIER}
    assert reasons == OF_PARTITIONS - {WaitsFor.TRANSACTION}
    assert reasons - {WaitsFor.OUTCOMES} == set(OBSTACLES)  # which last for some turns of the loop
