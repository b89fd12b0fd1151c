"""The transition table of the machine: each situation, each event, each code, as the machine decides it.

A situation is a state with what matters inside it. `cells` walks the whole product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import (
    NO_ANSWER,
    NO_SUCH_PARTITION,
    Action,
    AskMarkers,
    Mode,
    Refusal,
    SendAddOffsets,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendTxnOffsetCommit,
    State,
)
from aiokprod.transactions.machine_codes import Request, judge
from aiokprod.transactions.machine_jobs import MARKERS_S
from aiokprod.wire.codes import ErrorCode

DEADLINE = 100.0
WHO = (7, 3)
NEXT = (7, 4)
HERE = ("t", 0)
THERE = ("t", 1)
CODES: Final = (*(int(code) for code in ErrorCode), NO_ANSWER, NO_SUCH_PARTITION, 9999)
REQUEST_OF: Final = {
    SendInitProducerId: Request.INIT_PRODUCER_ID,
    SendAddPartitions: Request.ADD_PARTITIONS,
    SendAddOffsets: Request.ADD_OFFSETS,
    SendTxnOffsetCommit: Request.OFFSET_COMMIT,
    SendEndTxn: Request.END,
    AskMarkers: Request.MARKERS,
}
Out = list[Action]


def one(failures: int) -> float:
    return 1.0


class Desk:
    """A machine, with the requests that it waits for."""

    def __init__(self, mode: Mode, machine: type[TransactionMachine] = TransactionMachine) -> None:
        self.mode = mode
        self.machine = machine(retry_delay=one, concurrent_delay=one, transaction_timeout_s=60.0)
        self.now = 0.0
        self.sent: dict[Request, Action] = {}

    def did(self, out: Out | Refusal | tuple[int, Out]) -> Out:
        """Note what was asked for; return the actions."""
        assert not isinstance(out, Refusal), out
        actions = out[1] if isinstance(out, tuple) else out
        for action in actions:
            request = REQUEST_OF.get(type(action))  # type: ignore[call-overload]
            if request is not None:
                self.sent[request] = action
        return actions

    def ticket(self, request: Request) -> int:
        """Return the ticket of the last request of this kind; 0 if there was none."""
        return getattr(self.sent.get(request), "ticket", 0)

    def answer(self, request: Request, code: int, who: tuple[int, int] | None = None) -> Out:
        """Answer the request that is waited for with a code; identities come with success."""
        machine, ticket, now = self.machine, self.ticket(request), self.now
        given = (-1, -1) if code else NEXT
        if request is Request.END and self.mode is Mode.VERSION_1:
            given = (-1, -1)
        given = given if who is None else who
        if request is Request.INIT_PRODUCER_ID:
            return self.did(machine.init_answered(ticket, code, *given, now))
        if request is Request.ADD_PARTITIONS:
            asked = self.sent.get(request)
            partitions = asked.partitions if isinstance(asked, SendAddPartitions) else ()
            return self.did(machine.partitions_added(ticket, dict.fromkeys(partitions, code), now))
        if request is Request.ADD_OFFSETS:
            return self.did(machine.offsets_added(ticket, code, now))
        if request is Request.OFFSET_COMMIT:
            return self.did(machine.offsets_committed(ticket, {HERE: code}, now))
        if request is Request.MARKERS:
            return self.did(machine.markers_answered(ticket, code, now))
        return self.did(machine.end_answered(ticket, code, *given, now))

    def lose(self, request: Request, written: bool = True) -> Out:
        return self.did(self.machine.lost(self.ticket(request), written, self.now))

    def wait(self, seconds: float = 2.0) -> Out:
        self.now += seconds
        return self.did(self.machine.tick(self.now))

    # ------------------------------------------------------------------ ways to a situation
    def initialise(self) -> None:
        self.did(self.machine.initialise(self.now, DEADLINE))

    def ready(self) -> None:
        self.initialise()
        self.answer(Request.INIT_PRODUCER_ID, 0, WHO)

    def begin(self) -> None:
        self.ready()
        self.did(self.machine.begin(self.mode, self.now))

    def add(self, partition: tuple[str, int] = HERE) -> None:
        """Ask for a partition."""
        self.machine.send_partition(partition, self.now)
        self.did(self.machine.turn_ended(self.now))

    def stamp(self) -> None:
        """Bring a partition into the transaction."""
        self.begin()
        self.add()
        if self.mode is Mode.VERSION_1:
            self.answer(Request.ADD_PARTITIONS, 0)

    def add_offsets(self) -> None:
        self.begin()
        self.did(self.machine.send_offsets("g", self.now))

    def commit_offsets(self) -> None:
        self.add_offsets()
        if self.mode is Mode.VERSION_1:
            self.answer(Request.ADD_OFFSETS, 0)

    def commit(self) -> None:
        self.did(self.machine.commit(self.now, DEADLINE))

    def prepare(self) -> None:
        self.did(self.machine.prepare(self.now, DEADLINE))

    def flush(self) -> Out:
        return self.did(self.machine.flushed(self.machine.transaction, self.now))

    def drain(self) -> Out:
        return self.did(self.machine.drained(self.machine.transaction, self.now))

    def abort(self) -> None:
        self.did(self.machine.abort(self.now, DEADLINE))

    def fail(self, code: int | None = None) -> Out:
        return self.did(self.machine.record_failed(self.machine.transaction, code, self.now))

    def end_commit(self) -> None:
        self.stamp()
        self.commit()
        self.flush()

    def end_abort(self) -> None:
        self.stamp()
        self.abort()
        self.drain()

    def expire(self) -> Out:
        self.now = DEADLINE
        out = self.did(self.machine.tick(self.now))
        self.now = 0.0  # what follows is asked for at once
        return out


@dataclass(frozen=True, slots=True)
class Situation:
    """A state with what matters inside it."""

    state: State
    name: str
    lead: Callable[[Desk], None]
    modes: tuple[Mode, ...] = (Mode.VERSION_1, Mode.VERSION_2)

    def desk(self, mode: Mode, machine: type[TransactionMachine] = TransactionMachine) -> Desk:
        desk = Desk(mode, machine)
        self.lead(desk)
        assert desk.machine.state is self.state, (self, desk.machine.state)
        return desk


V1, V2 = (Mode.VERSION_1,), (Mode.VERSION_2,)


def _steps(*names: str) -> Callable[[Desk], None]:
    def lead(desk: Desk) -> None:
        for name in names:
            getattr(desk, name)()

    return lead


def _lose_end(desk: Desk) -> None:
    desk.end_commit()
    desk.lose(Request.END)
    desk.wait()
    desk.now = 0.0


def _prepare_behind_a_lost_request(desk: Desk) -> None:
    for name in ("begin", "add"):
        getattr(desk, name)()
    desk.lose(Request.ADD_PARTITIONS)
    desk.wait()
    desk.answer(Request.ADD_PARTITIONS, 0)
    desk.prepare()
    desk.now = 0.0


def _renew(desk: Desk) -> None:
    desk.end_abort()
    desk.answer(Request.END, 0)


def _open_while_renewing(desk: Desk) -> None:
    _renew(desk)
    desk.did(desk.machine.begin(desk.mode, desk.now))
    desk.add()


def _open_while_draining(desk: Desk) -> None:
    desk.stamp()
    desk.abort()
    desk.answer(Request.END, 0)
    desk.wait(MARKERS_S)
    desk.did(desk.machine.begin(desk.mode, desk.now))
    desk.now = 0.0
    desk.add()


def _end(desk: Desk) -> None:
    desk.end_commit()
    desk.answer(Request.END, 0)


def _open_before_the_markers(desk: Desk) -> None:
    _end(desk)
    desk.did(desk.machine.begin(desk.mode, desk.now))
    desk.add()


def _behind_version_1(desk: Desk) -> None:
    """Commit in version 1; the feature is raised."""
    desk.mode = Mode.VERSION_1
    _end(desk)
    desk.mode = Mode.VERSION_2


def _open_behind_version_1(desk: Desk) -> None:
    _behind_version_1(desk)
    desk.did(desk.machine.begin(desk.mode, desk.now))
    desk.add()


def _prepare_offsets(desk: Desk) -> None:
    desk.commit_offsets()
    desk.prepare()
    desk.flush()
    desk.answer(Request.OFFSET_COMMIT, 0)


def _abort_forgotten(desk: Desk) -> None:
    desk.end_abort()
    desk.answer(Request.END, 49)


def _abort_forgotten_behind_a_commit(desk: Desk) -> None:
    for name in ("end_commit", "expire", "abort"):
        getattr(desk, name)()
    desk.answer(Request.END, 49)


def _lose_unknown_abort(desk: Desk) -> None:
    desk.end_abort()
    desk.expire()
    desk.lose(Request.END)


def _fenced(desk: Desk) -> None:
    desk.end_commit()
    desk.answer(Request.END, 90)


def _failed(desk: Desk) -> None:
    desk.end_commit()
    desk.answer(Request.END, 53)


SITUATIONS: Final = (
    Situation(State.UNINITIALISED, "", _steps()),
    Situation(State.UNINITIALISED, "an earlier attempt is out", _steps("initialise", "expire")),
    Situation(State.INITIALISING, "", _steps("initialise")),
    Situation(State.READY, "", _steps("ready")),
    Situation(State.READY, "the epoch is renewed", _renew, V1),
    Situation(State.READY, "just behind an end", _end, V2),
    Situation(State.READY, "behind one of version 1", _behind_version_1, V2),
    Situation(State.OPEN, "nothing asked for", _steps("begin")),
    Situation(State.OPEN, "the epoch is renewed", _open_while_renewing, V1),
    Situation(State.OPEN, "the last one drains", _open_while_draining, V2),
    Situation(State.OPEN, "the last one has no markers yet", _open_before_the_markers, V2),
    Situation(State.OPEN, "the last one was of version 1", _open_behind_version_1, V2),
    Situation(State.OPEN, "a partition is added", _steps("begin", "add"), V1),
    Situation(State.OPEN, "records", _steps("stamp")),
    Situation(State.OPEN, "a group is added", _steps("add_offsets"), V1),
    Situation(State.OPEN, "offsets are sent", _steps("commit_offsets")),
    Situation(State.ABORTABLE, "in flight", _steps("stamp", "fail")),
    Situation(State.ABORTABLE, "drained", _steps("stamp", "fail", "drain")),
    Situation(State.COMMITTING, "nothing asked for", _steps("begin", "commit")),
    Situation(State.COMMITTING, "flushing", _steps("stamp", "commit")),
    Situation(State.COMMITTING, "offsets are sent", _steps("commit_offsets", "commit", "flush")),
    Situation(State.COMMITTING, "ending", _steps("end_commit")),
    Situation(State.COMMITTING, "ending, an EndTxn was lost", _lose_end),
    Situation(State.COMMITTING, "preparing", _steps("stamp", "prepare")),
    Situation(State.COMMITTING, "preparing, a request was lost", _prepare_behind_a_lost_request, V1),
    Situation(State.PREPARED, "nothing asked for", _steps("begin", "prepare", "flush")),
    Situation(State.PREPARED, "records", _steps("stamp", "prepare", "flush")),
    Situation(State.PREPARED, "offsets", _prepare_offsets),
    Situation(State.ABORTING, "in flight", _steps("stamp", "abort")),
    Situation(State.ABORTING, "ending", _steps("end_abort")),
    Situation(State.COMMITTING, "ending what was prepared", _steps("stamp", "prepare", "flush", "commit")),
    Situation(State.ABORTING, "ending what was prepared", _steps("stamp", "prepare", "flush", "abort")),
    Situation(State.ABORTING, "ending, behind a commit", _steps("end_commit", "expire", "abort"), V2),
    Situation(State.ABORTING, "the id is gone", _abort_forgotten),
    Situation(State.ABORTING, "the id is gone, behind a commit", _abort_forgotten_behind_a_commit, V2),
    Situation(State.UNKNOWN, "behind a commit", _steps("end_commit", "expire")),
    Situation(State.UNKNOWN, "behind an abort", _steps("end_abort", "expire")),
    Situation(State.UNKNOWN, "behind an abort, an EndTxn was lost", _lose_unknown_abort),
    Situation(State.UNKNOWN, "behind a commit and an abort", _steps("end_commit", "expire", "abort", "expire"), V2),
    Situation(State.FENCED, "", _fenced),
    Situation(State.FAILED, "", _failed),
)


# ---------------------------------------------------------------------- events
Event = Callable[[Desk], "Out | Refusal | tuple[int, Out]"]
CALLS: Final[dict[str, Event]] = {
    "initialise": lambda desk: desk.machine.initialise(desk.now, DEADLINE),
    "begin": lambda desk: desk.machine.begin(desk.mode, desk.now),
    "send_offsets": lambda desk: desk.machine.send_offsets("g", desk.now),
    "commit": lambda desk: desk.machine.commit(desk.now, DEADLINE),
    "abort": lambda desk: desk.machine.abort(desk.now, DEADLINE),
    "prepare": lambda desk: desk.machine.prepare(desk.now, DEADLINE),
    "close": lambda desk: desk.machine.close(desk.now, DEADLINE),
    "close, not kept": lambda desk: desk.machine.close(desk.now, DEADLINE, keeps_prepared=False),
}
NEWS: Final[dict[str, Event]] = {
    "turn_ended": lambda desk: desk.machine.turn_ended(desk.now),
    "record_failed": lambda desk: desk.machine.record_failed(desk.machine.transaction, 29, desk.now),
    "record_failed with 47": lambda desk: desk.machine.record_failed(desk.machine.transaction, 47, desk.now),
    "flushed": lambda desk: desk.machine.flushed(desk.machine.transaction, desk.now),
    "drained": lambda desk: desk.machine.drained(desk.machine._undrained or desk.machine.transaction, desk.now),
    "deadline": lambda desk: desk.machine.tick(DEADLINE),
}


def code_event(request: Request, code: int) -> Event:
    return lambda desk: desk.answer(request, code)


def lost_event(request: Request, written: bool) -> Event:
    return lambda desk: desk.machine.lost(desk.ticket(request), written, desk.now)


def one_of_each_kind(request: Request) -> list[int]:
    """Return a code for each kind and reason; test_machine_page.py shows that codes of one kind are treated alike."""
    return list({judge(request, code): code for code in reversed(CODES)}.values())


def events(every_code: bool = True) -> Iterator[tuple[str, Event]]:
    """Return every event with its name."""
    yield from CALLS.items()
    yield from NEWS.items()
    for request in Request:
        yield f"{request.value} lost", lost_event(request, written=True)
        yield f"{request.value} not written", lost_event(request, written=False)
        for code in CODES if every_code else one_of_each_kind(request):
            yield f"{request.value} {code}", code_event(request, code)


@dataclass(slots=True)
class Cell:
    """The decision of the machine in a situation, about an event."""

    state: State
    actions: Out
    refusal: Refusal | None
    desk: Desk

    def names(self) -> list[str]:
        """Return the actions as the page writes them; times, and which ticket, do not matter."""
        names = []
        for action in self.actions:
            name = type(action).__name__
            if name == "WakeAt":
                continue
            detail = getattr(action, "verdict", None) or getattr(action, "outcome", None)
            if isinstance(action, SendInitProducerId):
                names.append(f"{name}({'new' if action.epoch < 0 else 'next'})")
            else:
                names.append(f"{name}({detail.value})" if detail is not None else name)
        return names


def cell(situation: Situation, mode: Mode, event: Event) -> Cell:
    """Return what the machine decides."""
    desk = situation.desk(mode)
    out = event(desk)
    if isinstance(out, Refusal):
        return Cell(desk.machine.state, [], out, desk)
    return Cell(desk.machine.state, out[1] if isinstance(out, tuple) else out, None, desk)


def cells(mode: Mode, every_code: bool = False) -> Iterator[tuple[Situation, str, Cell]]:
    """Walk the product for a protocol version."""
    for situation in SITUATIONS:
        if mode in situation.modes:
            for name, event in events(every_code):
                yield situation, name, cell(situation, mode, event)
