"""A hostile world for the transaction machine: brokers with the measured rules, a network that loses and delays, a checker.

Around the machine stand a plain pipeline (one batch of one record in flight in each partition) and a user that begins, sends,
commits, aborts and asks again. A schedule is drawn from a seed and replayed by it. `check` says what a caller was told that
is not true, and what must never happen.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar, cast

from transaction_brokers import BUSY, GROUP, MOVED, NOT_ADDED, OK, PARTITIONS, Brokers, Status

from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import (
    Action,
    AskMarkers,
    Closed,
    CommitRefused,
    Ended,
    Entrance,
    FailPartition,
    FailQueued,
    Flush,
    ForgetCoordinator,
    FoundOut,
    Hold,
    Initialised,
    InitialiseFailed,
    LostId,
    Mode,
    OffsetsDone,
    Outcome,
    Reason,
    Refusal,
    Release,
    SendAddOffsets,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendTxnOffsetCommit,
    State,
    TakeIdentity,
    TimeoutNear,
    Verdict,
    WakeAt,
)

TOPIC = "t"
TIMEOUT = 120.0  # of transactions, in steps
MARKERS = 40.0  # after an end, in steps: the next transaction asks whether its markers are written
NONE = (-1, -1)
FOREIGN = -1  # the label of what the second instance of the id writes
SENDS = (SendInitProducerId, SendAddPartitions, SendAddOffsets, SendTxnOffsetCommit, SendEndTxn, AskMarkers)
FAULTS = ("refused", "done, 15", "done, -1", "done, 7", "busy", "not done, -1")


@dataclass(slots=True)
class Produce:
    """One attempt of a batch of one record."""

    partition: int
    transaction: int
    record: int
    version: int
    who: tuple[int, int]
    sequence: int


@dataclass(slots=True)
class Flight:
    """A request on its way; `answer` once a broker has served it."""

    request: Action | Produce
    answer: tuple[object, ...] | None = None


@dataclass(slots=True)
class Told:
    """The part of the user in a transaction, and the news that the user was told."""

    mode: Mode
    records: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)  # offsets that were reported as taken
    acked: set[int] = field(default_factory=set)
    settled: set[int] = field(default_factory=set)
    outcomes: list[Outcome] = field(default_factory=list)
    is_refused: bool = False  # the commit was: certainly not committed
    asked: int = 0
    has_failed: bool = False
    is_left: bool = False  # its process is gone


@dataclass(frozen=True, slots=True)
class Kind:
    """The freedom of a family of worlds."""

    name: str
    version: int
    upgrade: bool = False
    second: bool = False
    timeouts: bool = False
    short_epochs: bool = False
    forgets: bool = False


KINDS = (
    Kind("version 2", 2),
    Kind("version 1", 1),
    Kind("version 0", 0),
    Kind("version 2, timeouts", 2, timeouts=True),
    Kind("version 1, timeouts", 1, timeouts=True),
    Kind("version 2, two instances", 2, second=True),
    Kind("version 0, two instances", 0, second=True, timeouts=True),
    Kind("upgrade", 0, upgrade=True),
    Kind("end of the epochs", 2, short_epochs=True, timeouts=True),
    Kind("end of the epochs, version 1", 1, short_epochs=True),
)


IDS_LOST = (
    Kind("version 2, the id is forgotten", 2, forgets=True),
    Kind("version 1, the id is forgotten", 1, forgets=True),
    Kind("version 2, forgotten or taken", 2, forgets=True, second=True),
    Kind("version 0, forgotten or taken", 0, forgets=True, second=True),
    Kind("end of the epochs, two instances", 2, short_epochs=True, second=True),
    Kind("end of the epochs, version 1, two instances", 1, short_epochs=True, second=True),
)
"""Worlds in which the coordinator has another producer id for the id, or none."""


def two_steps(failures: int) -> float:
    return 2.0


def one_step(failures: int) -> float:
    return 1.0


def at_once(failures: int) -> float:
    return 0.0


class World:
    """One user, one pipeline, one machine, and the brokers."""

    def __init__(
        self,
        kind: Kind,
        machine: type[TransactionMachine],
        *,
        plan: list[tuple[int, int, bool]],
        patience: float = 60.0,
    ) -> None:
        self.kind = kind
        self.plan = plan  # of each transaction: records, offsets, whether it is to be committed
        self.patience = patience
        self.now = 0.0
        self.brokers = Brokers(kind.version, last_epoch=3 if kind.short_epochs else 32766)
        self.machine = machine(
            retry_delay=two_steps, concurrent_delay=one_step, transaction_timeout_s=TIMEOUT, markers_s=MARKERS
        )
        self.flights: list[Flight] = []
        self.ghosts: list[Action | Produce] = []
        self.identity = NONE
        self.is_held = False  # by the machine: nothing is stamped
        self.next_sequence = dict.fromkeys(PARTITIONS, 0)
        self.queues: dict[int, list[tuple[int, int]]] = {
            p: [] for p in PARTITIONS
        }  # (transaction, record), not settled
        self.stamped: dict[int, Produce] = {}  # the head of the queue, if it has numbers
        self.allowed: set[int] = set()
        self.turn = False
        self.flushing = 0
        self.draining: list[int] = []  # transactions: the next may be aborted before the last one is drained
        self.orphans: list[Produce] = []  # in flight, but settled
        self.told: dict[int, Told] = {}
        self.sent = 0
        self.excuses: set[str] = set()
        self.bad: set[str] = set()
        self.cost: Counter[str] = Counter()
        self.wake: float | None = None
        self.closes = self.is_closed = False
        self.others = 0

    # ------------------------------------------------------------------ actions of the machine
    def act(self, actions: list[Action]) -> None:
        for action in actions:
            self._carry_out(action)
        self._settle_waits()

    def _carry_out(self, action: Action) -> None:
        match action:
            case (
                SendInitProducerId()
                | SendAddPartitions()
                | SendAddOffsets()
                | SendTxnOffsetCommit()
                | SendEndTxn()
                | AskMarkers()
            ):
                self.cost[type(action).__name__] += 1
                self.flights.append(Flight(action))
            case Flush(transaction):
                self.flushing = transaction
            case FailQueued(transaction, _):
                self._fail_queued(transaction)
                self.draining.append(transaction)
            case FailPartition():
                pass
            case Release(partitions):
                self.allowed.update(number for _, number in partitions)
            case Hold():
                self.is_held = True
            case TakeIdentity(producer_id, epoch):
                self.is_held = False
                if self.stamped or self.orphans:
                    self.bad.add("identity changed under stamped batches")
                self.identity = (producer_id, epoch)
                self.next_sequence = dict.fromkeys(PARTITIONS, 0)
            case OffsetsDone(number, cause):
                if cause is None:
                    for told in self.told.values():
                        if number in told.offsets:
                            told.taken.append(number)
            case CommitRefused(transaction, cause):
                told = self.told[transaction]
                # A renewal of the epoch that comes late aborts like a timeout, on brokers that are upgraded meanwhile.
                if cause.reason is Reason.TIMED_OUT and not self.may_be_aborted(transaction):
                    self.bad.add("refused without a cause")
                told.is_refused = True
                told.asked -= 1
            case Ended(transaction, outcome, cause):
                told = self.told[transaction]
                told.outcomes.append(outcome)
                told.asked -= 1
                if (
                    outcome is not Outcome.UNKNOWN
                    and self.machine.state is State.READY
                    and self.machine.outcome is not outcome
                ):
                    self.bad.add("outcome told is not the machine's")
            case FoundOut(transaction, outcome, cause):
                told = self.told[transaction]
                if told.outcomes[-1:] != [Outcome.UNKNOWN]:
                    self.bad.add("found out what was not unknown")
                told.outcomes.append(outcome)
            case LostId(cause):
                if cause.reason is Reason.FENCED and self.kind.version == 2:
                    if "taken" not in self.excuses:
                        self.bad.add("fenced on version 2 without a second instance")
            case WakeAt(at):
                self.wake = at
            case Closed():
                self.is_closed = True
            case InitialiseFailed() | Initialised() | ForgetCoordinator() | TimeoutNear():
                pass

    def _fail_queued(self, transaction: int) -> None:
        for partition, queue in self.queues.items():
            self.told[transaction].settled.update(record for number, record in queue if number == transaction)
            produce = self.stamped.get(partition)
            if produce is not None and produce.transaction == transaction:
                del self.stamped[partition]
                if any(flight.request is produce for flight in self.flights):
                    self.orphans.append(produce)
            queue[:] = [each for each in queue if each[0] != transaction]

    def _settle_waits(self) -> None:
        """Answer Flush and FailQueued once that is true."""
        machine = self.machine
        for number in self.draining[:]:
            if number in self.draining and not any(p.transaction == number for p in self.orphans):
                self.draining.remove(number)
                self.act(machine.drained(number, self.now))
        if self.flushing:
            told = self.told[self.flushing]
            if told.settled >= set(told.records):
                number, self.flushing = self.flushing, 0
                self.act(machine.flushed(number, self.now))

    # ------------------------------------------------------------------ the user
    def user(self, rng: random.Random | None) -> None:
        """Take the next step of the plan."""
        if self.closes:
            return
        machine, state, deadline = self.machine, self.machine.state, self.now + self.patience
        number = machine.transaction
        if state is State.UNINITIALISED:
            self.call(machine.initialise(self.now, deadline))
        elif state is State.READY:
            if number < len(self.plan):
                self.begin()
        elif rng is None:
            raise AssertionError("the other steps are chosen by dice")
        elif state is State.OPEN:
            told = self.told[number]
            records, offsets, commits = self.plan[number - 1]
            if len(told.records) < records:
                self.send(rng.randrange(2))
            elif len(told.offsets) < offsets:
                self.send_offsets()
            else:
                self.finish(commits)
        elif state is State.COMMITTING:
            if rng.random() < 0.5:
                self.send(rng.randrange(2))
        elif state is State.ABORTABLE:
            self.finish(commits=False)
        elif state is State.UNKNOWN:
            if machine.ends_by_itself and rng.random() < 0.5:
                pass
            elif rng.random() < 0.2 and number < len(self.plan):
                self.begin(expected=Refusal.UNKNOWN)
            else:
                self.finish(rng.random() < 0.5)

    def call(self, out: list[Action] | Refusal) -> None:
        if isinstance(out, Refusal):
            self.bad.add(f"refused: {out.value}")
        else:
            self.act(out)

    def begin(self, expected: Refusal | None = None) -> None:
        machine = self.machine
        last = self.told.get(machine.transaction)
        mode = Mode.VERSION_2 if self.brokers.version == 2 else Mode.VERSION_1
        out = machine.begin(mode, self.now)
        if isinstance(out, Refusal):
            if out is not expected:
                self.bad.add(f"begin refused: {out.value}")
            return
        if last is not None and not last.is_left and (not last.outcomes or last.outcomes[-1] is Outcome.UNKNOWN):
            self.bad.add("begun before the last outcome was known")
        self.told[machine.transaction] = Told(mode)
        self.allowed.clear()
        self.act(out)

    def send(self, partition: int) -> None:
        """Send a record, if the machine lets it in."""
        if self.machine.may_send() is not None:
            return
        number = self.machine.transaction
        self.told[number].records.append(self.sent)
        self.queues[partition].append((number, self.sent))
        self.sent += 1

    def send_offsets(self) -> None:
        out = self.machine.send_offsets("g", self.now)
        if isinstance(out, Refusal):
            self.bad.add(f"offsets refused: {out.value}")
            return
        self.told[self.machine.transaction].offsets.append(out[0])
        self.act(out[1])

    def finish(self, commits: bool) -> None:
        machine, deadline = self.machine, self.now + self.patience
        self.told[machine.transaction].asked += 1
        self.call(machine.commit(self.now, deadline) if commits else machine.abort(self.now, deadline))

    def close(self) -> None:
        self.closes = True
        self.act(self.machine.close(self.now, self.now + self.patience))

    # ------------------------------------------------------------------ the pipeline
    def pump(self) -> bool:
        """Stamp and send one batch; return whether anything happened."""
        machine = self.machine
        for partition, queue in self.queues.items():
            if not queue or any(
                isinstance(f.request, Produce) and f.request.partition == partition for f in self.flights
            ):
                continue
            number, record = queue[0]
            produce = self.stamped.get(partition)
            if produce is None:
                if partition not in self.allowed:
                    answer = machine.send_partition((TOPIC, partition), self.now)
                    if answer is Entrance.WAIT:
                        if not self.turn:
                            self.turn = True
                            return True
                        continue
                    if isinstance(answer, Refusal):
                        continue
                    self.allowed.add(partition)
                if self.is_held:
                    self.bad.add("stamped while it is held")
                version = 2 if machine.mode is Mode.VERSION_2 else 1
                produce = Produce(partition, number, record, version, self.identity, self.next_sequence[partition])
                self.next_sequence[partition] += 1
                self.stamped[partition] = produce
            self.flights.append(Flight(produce))
            return True
        if self.turn:
            self.turn = False
            self.act(machine.turn_ended(self.now))
            return True
        return False

    def _produce_answered(self, produce: Produce, code: int) -> None:
        if produce in self.orphans:
            self.orphans.remove(produce)
            self.act([])
            return
        if code in (BUSY, MOVED):
            return  # it stays the head, and is sent again
        if code == NOT_ADDED and not self.excuses:
            self.bad.add("sent before its partition was added")
        told = self.told[produce.transaction]
        del self.stamped[produce.partition]
        self.queues[produce.partition].pop(0)
        told.settled.add(produce.record)
        if code == OK:
            told.acked.add(produce.record)
            self.act([])
        else:
            self._record_failed(produce.transaction, code)

    def _record_failed(self, transaction: int, code: int | None) -> None:
        self.told[transaction].has_failed = True
        self.act(self.machine.record_failed(transaction, code, self.now))

    def give_up(self, partition: int) -> None:
        """Let the head of a queue run into its own deadline."""
        produce = self.stamped.get(partition)
        if not self.queues[partition]:
            return
        number, record = self.queues[partition].pop(0)
        self.told[number].settled.add(record)
        if produce is not None:
            del self.stamped[partition]
            if any(flight.request is produce for flight in self.flights):
                self.orphans.append(produce)
        self._record_failed(number, None)

    # ------------------------------------------------------------------ the network
    def serve(self, index: int, fault: str = "") -> None:
        """Let a broker serve a request; its answer is on its way then."""
        waiting = [flight for flight in self.flights if flight.answer is None]
        if not waiting:
            return
        flight = waiting[index % len(waiting)]
        if fault in ("refused", "busy", "not done, -1"):
            code = {"refused": MOVED, "busy": BUSY}.get(fault, -1)
            if isinstance(flight.request, Produce) and code == -1:
                code = MOVED
            flight.answer = (code, NONE)
            return
        answer = self.execute(flight.request)
        if fault and not isinstance(flight.request, Produce):
            answer = ({"done, 15": 15, "done, 7": 7}.get(fault, -1), NONE)
        flight.answer = answer

    def execute(self, request: Action | Produce) -> tuple[object, ...]:
        brokers = self.brokers
        brokers.now = self.now
        match request:
            case SendInitProducerId(_, producer_id, epoch):
                if producer_id >= 0 and brokers.who == NONE:
                    self.excuses.add(
                        "taken"
                    )  # if the answer is lost, the next attempt cannot be told from another instance
                return brokers.initialise((producer_id, epoch))
            case SendAddPartitions(_, producer_id, epoch, partitions):
                numbers = {number for _, number in partitions}
                unknown = numbers & brokers.unknown
                if unknown:
                    return ({p: 3 if p[1] in unknown else 55 for p in partitions}, NONE)
                return (brokers.add((producer_id, epoch), numbers), NONE)
            case SendAddOffsets(_, producer_id, epoch, _):
                return (brokers.add((producer_id, epoch), {GROUP}), NONE)
            case SendTxnOffsetCommit(_, mode, producer_id, epoch, _, number):
                label = next((n for n, told in self.told.items() if number in told.offsets), 0)
                return (brokers.write(mode.value, GROUP, label, number, (producer_id, epoch), 0), NONE)
            case SendEndTxn(_, mode, producer_id, epoch, verdict):
                return brokers.end(5 if mode is Mode.VERSION_2 else 4, verdict, (producer_id, epoch))
            case AskMarkers(_, producer_id, epoch, verdict):
                return brokers.end(5, verdict, (producer_id, epoch))
            case Produce(partition, transaction, record, version, who, sequence):
                return (brokers.write(version, partition, transaction, record, who, sequence), NONE)
            case _:
                raise AssertionError(request)

    def answer(self, index: int) -> None:
        """Deliver an answer."""
        served = [flight for flight in self.flights if flight.answer is not None]
        if not served:
            return
        flight = served[index % len(served)]
        self.flights.remove(flight)
        assert flight.answer is not None
        code = flight.answer[0]
        machine, request, now = self.machine, flight.request, self.now
        who = cast("tuple[int, int]", flight.answer[1])
        match request:
            case Produce():
                self._produce_answered(request, cast(int, code))
            case SendInitProducerId():
                self.act(machine.init_answered(request.ticket, cast(int, code), *who, now))
            case SendAddPartitions():
                codes = code if isinstance(code, dict) else dict.fromkeys(request.partitions, cast(int, code))
                self.act(machine.partitions_added(request.ticket, codes, now))
            case SendAddOffsets():
                self.act(machine.offsets_added(request.ticket, cast(int, code), now))
            case SendTxnOffsetCommit():
                self.act(machine.offsets_committed(request.ticket, {("in", 0): cast(int, code)}, now))
            case SendEndTxn():
                self.act(machine.end_answered(request.ticket, cast(int, code), *who, now))
            case AskMarkers():
                self.act(machine.markers_answered(request.ticket, cast(int, code), now))
            case _:
                self.answered_another(request, cast(int, code))

    def lose(self, index: int, written: bool, late: bool) -> None:
        """Lose a request or its answer; `late`: the request is still on its way to a broker."""
        if not self.flights:
            return
        flight = self.flights.pop(index % len(self.flights))
        written |= flight.answer is not None
        if late and written and flight.answer is None:
            self.ghosts.append(flight.request)
        request = flight.request
        if isinstance(request, Produce):
            if written:
                self.machine.produce_lost(request.transaction)
            if request in self.orphans:
                self.orphans.remove(request)
            self.act([])
        elif isinstance(request, SENDS):
            self.act(self.machine.lost(request.ticket, written, self.now))
        else:
            self.lost_by_another(request)

    def haunt(self, index: int) -> None:
        """Let a late request arrive."""
        if not self.ghosts:
            return
        request = self.ghosts.pop(index % len(self.ghosts))
        before = self.brokers.who, self.brokers.status
        self.execute(request)
        after = self.brokers.who, self.brokers.status
        # A late request of the client's own can take the id from it: the machine cannot tell, and nothing is lost.
        if isinstance(request, SendInitProducerId) and before != after:
            self.excuses.add("taken")
        elif isinstance(request, SendAddPartitions | SendAddOffsets) and before[1] is not after[1]:
            self.excuses.add("opened late")

    def write_marker(self) -> None:
        self.brokers.write_marker()

    def may_be_aborted(self, transaction: int) -> bool:
        """Return whether anything but the client may have aborted the transaction."""
        return bool(self.excuses & {"timed out", "taken"})

    # ------------------------------------------------------------------ for worlds with other processes
    def answered_another(self, request: object, code: int) -> None:
        raise AssertionError(request)

    def lost_by_another(self, request: object) -> None:
        raise AssertionError(request)

    def let_others_act(self, rng: random.Random, calm: bool) -> None:
        pass

    def check(self) -> set[str]:
        return check(self)

    def moves(self, budget: int) -> Iterator[tuple[int, str, tuple[object, ...]]]:
        return moves(self, budget)

    def mark(self, budget: int) -> str:
        return mark(self, budget)

    def is_over(self) -> bool:
        machine = self.machine
        if self.closes:
            return self.is_closed
        if machine.state in (State.FENCED, State.FAILED):
            return True
        return machine.state is State.READY and machine.transaction >= len(self.plan) and machine._may_stamp()

    # ------------------------------------------------------------------ misfortunes
    def expire(self) -> None:
        """Let the caller's time be over."""
        self.act(self.machine.tick(self.machine._deadline))

    def time_out(self) -> None:
        """Let the coordinator abort by its timeout."""
        if self.brokers.status is Status.ONGOING:
            self.brokers.time_out()
            self.excuses.add("timed out")

    def forget(self) -> None:
        """Let the coordinator forget the id, if nothing is open: it was idle for days."""
        if self.machine.state is State.READY and not self.ghosts and not self.flights:
            self.brokers.expire()

    def take(self) -> None:
        """Let a second instance take the id, write and go."""
        brokers = self.brokers
        code, who = brokers.initialise(NONE)
        self.excuses.add("taken")
        if code == OK and self.others < 2:
            self.others += 1
            brokers.now = self.now
            brokers.add(who, {0})
            brokers.logs[0].append(FOREIGN, -self.others, who, 0, False)
            brokers.end(4, (Verdict.COMMIT, Verdict.ABORT)[self.others % 2], who)


W = TypeVar("W", bound=World)


# ---------------------------------------------------------------------- what must be true
def check(world: World) -> set[str]:
    """Return what is wrong, now that nothing is on its way any more."""
    bad = set(world.bad)
    brokers, machine = world.brokers, world.machine
    if brokers.is_wedged:
        return bad | {"wedged"}
    brokers.time_out()
    while brokers.status is Status.PREPARE:
        brokers.write_marker()
    state = machine.state
    if state is State.FENCED:
        if not world.excuses:
            bad.add("fenced without a cause")
        elif world.kind.version == 2 and "taken" not in world.excuses:
            bad.add("fenced on version 2 without a second instance")
    elif world.closes:
        if not world.is_closed:
            bad.add(f"not closed: {state.value}")
    elif state is not State.READY or machine.transaction < len(world.plan):
        bad.add(f"stuck: {state.value}")
    committed: dict[int, list[int]] = {}
    offsets: dict[int, list[int]] = {}
    labels: dict[int, set[int]] = {}
    for partition, log in brokers.logs.items():
        last: dict[int, int] = {}
        for entry in log.written:
            if not entry.is_committed:
                continue
            labels.setdefault(entry.instance, set()).add(entry.label)
            (offsets if partition == GROUP else committed).setdefault(entry.label, []).append(entry.record)
            if entry.record <= last.get(entry.label, -1) and partition != GROUP and entry.label != FOREIGN:
                bad.add("order")
            last[entry.label] = entry.record
        group = [entry.label for entry in log.written if entry.is_committed]
        if partition == GROUP and group != sorted(group):
            bad.add("offsets went back")
    if any(len(found) > 1 for found in labels.values()):
        bad.add("one transaction in another")
    for number, told in world.told.items():
        mine = committed.get(number, [])
        if len(mine) != len(set(mine)):
            bad.add("committed twice")
        if told.asked > 0 or (told.asked < 0 and not world.closes):
            bad.add("a call was answered never, or twice")
        known = [outcome for outcome in told.outcomes if outcome is not Outcome.UNKNOWN]
        if len(known) > 1:
            bad.add("two outcomes")
        has = bool(mine or number in offsets)
        if told.is_refused and has:
            bad.add("committed after a refusal")
        if Outcome.ABORTED in known and has:
            bad.add("told aborted, and is committed")
        whole = sorted(mine) == sorted(told.records) and set(offsets.get(number, [])) == set(told.offsets)
        if Outcome.COMMITTED in known and not whole:
            bad.add("told committed, and is not")
        if has and not whole:
            bad.add("torn")
        if has and told.has_failed:
            bad.add("committed although a record failed")
    final = machine.outcome
    last_told = world.told.get(machine.transaction)
    if final is Outcome.ABORTED and last_told is not None and machine.transaction in committed:
        bad.add("outcome aborted, and is committed")
    return bad


# ---------------------------------------------------------------------- random schedules
def run(
    seed: int, kind: Kind, machine: type[TransactionMachine] = TransactionMachine, world_type: type[W] = World
) -> W:
    """Run an active time with faults, then calm until everything is settled."""
    rng = random.Random(seed)
    draw = rng.random
    plan = [
        (rng.choice((0, 1, 1, 2, 3)), rng.choice((0, 0, 1, 2)), draw() < 0.75) for _ in range(rng.choice((2, 3, 4, 6)))
    ]
    world = world_type(kind, machine, plan=plan, patience=rng.choice((8.0, 20.0, 60.0)))
    chaos = rng.choice((0.02, 0.1, 0.25))
    lossy = rng.choice((0.02, 0.1, 0.3))
    active = rng.randrange(60, 260)
    upgrade_at = rng.randrange(10, active) if kind.upgrade else -1
    impatient = draw() < 0.2
    close_at = rng.randrange(10, active) if draw() < 0.15 else -1
    for step in range(1, active + 1500):
        world.now = float(step)
        calm = step > active
        if step == close_at:
            world.close()
        if step == upgrade_at:
            world.brokers.version = 2
        if calm and step % 4 == 0:
            world.brokers.unknown.clear()
            world.patience = 200.0
        if world.wake is not None and world.now >= world.wake:
            world.wake = None
            world.act(world.machine.tick(world.now))
        world.let_others_act(rng, calm)
        if (
            kind.timeouts
            and not calm
            and world.brokers.status is Status.ONGOING
            and world.now > world.brokers.started + 40
        ):
            world.time_out()
        dice = draw()
        if dice < 0.15:
            world.user(rng)
        elif dice < 0.30:
            world.pump()
        elif dice < 0.52:
            world.serve(rng.randrange(4), rng.choice(FAULTS) if not calm and draw() < chaos else "")
        elif dice < 0.78:
            world.answer(rng.randrange(4))
        elif dice < 0.88:
            world.brokers.write_marker(rng.randrange(3))
        elif dice < 0.92:
            if world.ghosts:
                world.haunt(rng.randrange(8))
        elif not calm:
            if draw() < lossy * 3:
                world.lose(rng.randrange(4), draw() < 0.8, draw() < 0.6)
            elif draw() < chaos:
                _misfortune(world, rng, impatient)
        if calm and not world.flights and not world.ghosts and world.is_over():
            break
    while world.ghosts:
        world.haunt(rng.randrange(8))
    return world


def _misfortune(world: World, rng: random.Random, impatient: bool) -> None:
    dice = rng.random()
    if dice < 0.3:
        world.give_up(rng.randrange(2))
    elif dice < 0.45:
        if impatient and world.machine.state in (State.COMMITTING, State.ABORTING):
            world.expire()
    elif dice < 0.6:
        world.brokers.unknown = {rng.randrange(2)} if rng.random() < 0.5 else set()
    elif dice < 0.8 and world.kind.second:
        if rng.random() < 0.3:
            world.take()
    elif dice < 0.9 and world.kind.timeouts:
        world.time_out()
    elif world.kind.forgets:
        world.forget()


def survey(
    seeds: range, machine: type[TransactionMachine] = TransactionMachine, kinds: tuple[Kind, ...] = KINDS
) -> Iterator[tuple[int, str, set[str]]]:
    """Return (seed, kind, what is bad) of each bad schedule."""
    for seed in seeds:
        kind = kinds[seed % len(kinds)]
        wrong = check(run(seed, kind, machine))
        if wrong:
            yield seed, kind.name, wrong


# ---------------------------------------------------------------------- every schedule of a small world
def exhaust(
    kind: Kind,
    plan: list[tuple[int, int, bool]],
    faults: int,
    machine: type[TransactionMachine] = TransactionMachine,
    most: int = 10**9,
    world_type: type[World] = World,
) -> tuple[int, Counter[str], list[str]]:
    """Explore, depth first, all schedules with at most so many faults; return (states, what was bad, a bad schedule).

    Whether a transaction is committed or aborted is not the plan's: both are tried. Time stands still: every delay is over at
    once, and a deadline is a fault.
    """
    first = world_type(kind, machine, plan=plan, patience=1.0)
    first.machine._retry_delay = first.machine._concurrent_delay = at_once
    stack: list[tuple[bytes, int, tuple[str, ...]]] = [(pickle.dumps(first, 5), faults, ())]
    seen = {first.mark(faults)}
    bad: Counter[str] = Counter()
    while stack and len(seen) < most:
        blob, budget, path = stack.pop()
        here = pickle.loads(blob)
        is_alive = False
        for costs, method, arguments in here.moves(budget):
            world = pickle.loads(blob)
            getattr(world, method)(*arguments)
            is_alive |= not costs
            key = world.mark(budget - costs)
            if key in seen:
                continue
            seen.add(key)
            step = (*path, f"{method}{arguments}")
            if world.bad:
                return len(seen), Counter(world.bad), [*step, str(world.bad)]
            stack.append((pickle.dumps(world, 5), budget - costs, step))
        if not is_alive:
            wrong = here.check()
            bad.update(wrong or {"ends": 1})
            if wrong:
                return len(seen), bad, [*path, str(wrong)]
    return len(seen), bad, []


def moves(world: World, budget: int) -> Iterator[tuple[int, str, tuple[object, ...]]]:
    """Return each possible move: what it costs, its method, its arguments."""
    machine, state = world.machine, world.machine.state
    number = machine.transaction
    if state is State.UNINITIALISED or (state is State.READY and number < len(world.plan)):
        yield 0, "user", (None,)
    elif state is State.OPEN:
        told, (records, offsets, _) = world.told[number], world.plan[number - 1]
        if len(told.records) < records:
            yield 0, "send", (0,)
        elif len(told.offsets) < offsets:
            yield 0, "send_offsets", ()
        else:
            yield 0, "finish", (True,)
            yield 0, "finish", (False,)
    elif state is State.ABORTABLE:
        yield 0, "finish", (False,)
    elif state is State.UNKNOWN:
        yield 0, "finish", (True,)
        yield 0, "finish", (False,)
        if number < len(world.plan):
            yield 1, "begin", (Refusal.UNKNOWN,)
    elif state is State.COMMITTING and machine.may_send() is None:
        yield 1, "send", (0,)
    if any(world.queues.values()) and state in (State.OPEN, State.COMMITTING):
        if not any(isinstance(flight.request, Produce) for flight in world.flights) and not _waits_only(world):
            yield 0, "pump", ()
    for index, flight in enumerate(flight for flight in world.flights if flight.answer is None):
        yield 0, "serve", (index,)
        if budget and not isinstance(flight.request, Produce):
            yield 1, "serve", (index, "done, 15")
            yield 1, "serve", (index, "done, -1")
            yield 1, "serve", (index, "refused")
    for index in range(sum(flight.answer is not None for flight in world.flights)):
        yield 0, "answer", (index,)
    for index in range(len(world.ghosts)):
        yield 0, "haunt", (index,)
    if world.brokers.to_mark or world.brokers.status is Status.PREPARE:
        yield 0, "write_marker", ()
    if not budget:
        return
    for index in range(len(world.flights)):
        yield 1, "lose", (index, True, True)
        yield 1, "lose", (index, True, False)
        yield 1, "lose", (index, False, False)
    if state in (State.COMMITTING, State.ABORTING):
        yield 1, "expire", ()
    if any(world.queues.values()):
        yield 1, "give_up", (0,)
    if world.kind.timeouts and world.brokers.status is Status.ONGOING:
        yield 1, "time_out", ()
    if world.kind.second and world.brokers.who != NONE:
        yield 1, "take", ()
    if world.kind.forgets and state is State.READY:
        yield 1, "forget", ()


def _waits_only(world: World) -> bool:
    """Return whether the pipeline has done what it can: the queue waits for the machine."""
    held = {number for _, number in (*world.machine._work.adds.waiting, *world.machine._work.adds.gathering)}
    return not world.turn and bool(held) and not world.allowed and bool(world.told[world.machine.transaction].records)


def mark(world: World, budget: int) -> str:
    """Return what tells one state of the world from another: no times, no counts, no numbers of tickets."""
    machine, brokers = world.machine, world.brokers
    work, adds = machine._work, machine._work.adds
    waited = machine._asked
    jobs = [(job.number, job.is_adding, job.ticket is None) for job in work.offsets]
    end, init, markers = work.end, machine._init, machine._markers
    flights = []
    for flight in world.flights:
        request = flight.request
        is_waited = request.ticket in waited if isinstance(request, SENDS) else request in world.orphans
        flights.append((_plain(request), is_waited, flight.answer))
    return repr(
        (
            budget, machine.state, machine.identity, machine.mode, machine.transaction, machine.cause, machine.outcome,
            work.goes_on, work.commit_was_refused,
            sorted(adds.added), list(adds.waiting), list(adds.gathering), adds.ticket is None, sorted(work.groups), jobs,
            end and (end.verdict, end.ticket is None), init and (init.current, init.ticket is None), machine._next,
            machine._is_used_below_2, markers and (markers.verdict, markers.former, markers.ticket is None), world.is_held,
            machine._undrained, work.flushed, work.is_touched,
            work.is_gone, work.is_stamped, work.is_haunted, work.commit_may_be_done,
            flights, [_plain(request) for request in world.ghosts], world.identity, world.next_sequence, world.queues,
            world.stamped, world.allowed, world.turn, world.flushing, world.draining, world.orphans, world.told,
            world.excuses, world.others, brokers.version, brokers.who, brokers.before, brokers.status, brokers.verdict,
            brokers.added, brokers.to_mark, brokers.marker, brokers.instance,
            brokers.next_producer_id, brokers.is_wedged, brokers.logs,
        )
    )  # fmt: skip


def _plain(request: Action | Produce) -> object:
    return request._replace(ticket=0) if isinstance(request, SENDS) else request
