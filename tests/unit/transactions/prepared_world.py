"""The transaction world with `prepare`: transactions that other processes end, and a producer whose process dies.

A process that ends a prepared transaction is a `Stranger`: it sends EndTxn until the answer tells how the transaction ended, or
reads that from the log, with the tables of `end_transaction` (`ending_codes`). What it was told must be true as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from transaction_brokers import PARTITIONS, Status
from transaction_world import NONE, Flight, Kind, Produce, World, check, mark, moves

from aiokprod.transactions.ending_codes import Answer, LoggedBatch, LogSays, answer_of, log_says, outcome_of
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import (
    Action,
    Ended,
    Mode,
    Outcome,
    Prepared,
    Refusal,
    SendEndTxn,
    SendInitProducerId,
    State,
    Verdict,
)

PREPARED_KINDS = (
    Kind("prepared, version 2", 2),
    Kind("prepared, version 1", 1),
    Kind("prepared, version 2, timeouts", 2, timeouts=True),
    Kind("prepared, version 0, timeouts", 0, timeouts=True),
    Kind("prepared, version 2, two instances", 2, second=True),
    Kind("prepared, version 1, two instances", 1, second=True, timeouts=True),
    Kind("prepared, end of the epochs", 2, short_epochs=True, timeouts=True),
    Kind("prepared, upgrade", 0, upgrade=True),
)
MOST_STRANGERS = 2  # for a transaction


@dataclass(frozen=True, slots=True)
class PreparedValue:
    """A prepared transaction as its process has handed it out."""

    transaction: int
    who: tuple[int, int]
    mode: Mode
    is_begun: bool
    places: tuple[tuple[int, int, int], ...]  # partition, and the places of its first and last record


@dataclass(frozen=True, slots=True)
class StrangersEnd:
    """An EndTxn of another process."""

    stranger: int
    verdict: Verdict
    prepared: PreparedValue


@dataclass(slots=True)
class Stranger:
    """Another process that ends a prepared transaction."""

    verdict: Verdict
    prepared: PreparedValue
    reads_the_log: bool = False
    waits: bool = False  # for the answer to its EndTxn
    outcome: Outcome | None = None
    is_done: bool = False  # also without an outcome, where neither coordinator nor log can tell


@dataclass(slots=True)
class Fate:
    """The reasons for which a prepared transaction may end."""

    value: PreparedValue
    commits_asked: int = 0
    aborts_asked: int = 0
    is_the_users: bool = False  # its producer was asked to end it


class StrangersJudgement:
    """The meaning of what a stranger hears; tests replace it by wrong ones."""

    def of_answer(self, code: int, mode: Mode, verdict: Verdict) -> tuple[Answer, Outcome | None]:
        answer = answer_of(code)
        return answer, outcome_of(answer, mode, verdict)

    def of_log(self, says: LogSays) -> Outcome | None:
        return {LogSays.COMMITTED: Outcome.COMMITTED, LogSays.ABORTED: Outcome.ABORTED}.get(says)


class PreparedWorld(World):
    """A world in which transactions are prepared, ended by strangers, and left by processes that die."""

    judgement = StrangersJudgement()

    def __init__(
        self,
        kind: Kind,
        machine: type[TransactionMachine],
        *,
        plan: list[tuple[int, int, bool]],
        patience: float = 60.0,
    ) -> None:
        super().__init__(kind, machine, plan=plan, patience=patience)
        self.strangers: list[Stranger] = []
        self.fates: dict[int, Fate] = {}
        self.is_preparing = False
        self.deaths = 0
        self.excused: set[int] = set()  # transactions at hand when the id was taken over, or the time was up

    # ------------------------------------------------------------------ actions of the machine
    def _carry_out(self, action: Action) -> None:
        number = self.machine.transaction
        fate = None if number in self.told and self.told[number].is_left else self.fates.get(number)
        match action:
            case Prepared(transaction):
                self._prepared(transaction)
            # The epoch may still be renewed behind the transaction before an empty one: that ends nothing.
            case SendEndTxn() | SendInitProducerId() if (
                fate is not None and fate.value.is_begun and not fate.is_the_users
            ):
                self.bad.add("ended what was prepared")
            case Ended():
                self.is_preparing = False
        super()._carry_out(action)

    def _prepared(self, number: int) -> None:
        told = self.told[number]
        told.asked -= 1
        self.is_preparing = False
        if told.has_failed or told.acked < set(told.records) or told.taken != told.offsets:
            self.bad.add("prepared, and is not whole")
        identity = self.machine.identity or NONE
        places: list[tuple[int, int, int]] = []
        for partition in PARTITIONS:
            mine = [i for i, entry in enumerate(self.brokers.logs[partition].written) if entry.label == number]
            if mine:
                places.append((partition, mine[0], mine[-1]))
        value = PreparedValue(number, identity, self.machine.mode, self.machine.is_touched, tuple(places))
        self.fates[number] = Fate(value)

    # ------------------------------------------------------------------ the user
    def prepare(self) -> None:
        machine = self.machine
        if not self.is_preparing:
            self.told[machine.transaction].asked += 1
        self.is_preparing = True
        self.call(machine.prepare(self.now, self.now + self.patience))

    def finish(self, commits: bool) -> None:
        fate = self.fates.get(self.machine.transaction)
        if fate is not None:
            fate.is_the_users = True
            fate.commits_asked += commits
            fate.aborts_asked += not commits
        super().finish(commits)

    def close(self) -> None:
        """Close; whether a transaction is kept of which the user was not told yet is drawn by the time."""
        fate = self.fates.get(self.machine.transaction)
        keeps = fate is not None or int(self.now) % 2 == 0
        self.closes = True
        if fate is None and not keeps:
            self.is_preparing = False
        self.act(self.machine.close(self.now, self.now + self.patience, keeps_prepared=keeps))

    def user(self, rng: random.Random | None) -> None:
        machine, state = self.machine, self.machine.state
        if rng is None or self.closes or machine.transaction not in self.told:
            super().user(rng)
        elif state is State.OPEN and self._has_sent_all() and rng.random() < 0.7:
            self.prepare()
        elif state is State.COMMITTING and self.is_preparing:
            if rng.random() < 0.3:
                self.prepare()
            else:
                self.expect(machine.commit(self.now, self.now + self.patience), Refusal.PREPARING)
        elif state is State.PREPARED:
            self._go_on_behind_prepare(rng)
        else:
            super().user(rng)

    def _has_sent_all(self) -> bool:
        number = self.machine.transaction
        told, (records, offsets, _) = self.told[number], self.plan[number - 1]
        return len(told.records) >= records and len(told.offsets) >= offsets

    def _go_on_behind_prepare(self, rng: random.Random) -> None:
        machine, dice = self.machine, rng.random()
        if dice < 0.2:
            self.send(rng.randrange(2))
            self.expect(machine.send_offsets("g", self.now), Refusal.PREPARED)
        elif dice < 0.3 and machine.transaction < len(self.plan):
            self.begin(expected=Refusal.PREPARED)
        elif dice < 0.7:
            self.finish(rng.random() < 0.6)

    def expect(self, out: object, refusal: Refusal) -> None:
        if out is not refusal:
            self.bad.add(f"not refused: {refusal.value}")

    def expire(self) -> None:
        self.is_preparing = False
        super().expire()

    # ------------------------------------------------------------------ strangers
    def call_stranger(self, number: int, commits: bool) -> None:
        """Let another process end what was prepared."""
        fate = self.fates[number]
        stranger = Stranger(Verdict.COMMIT if commits else Verdict.ABORT, fate.value)
        fate.commits_asked += commits
        fate.aborts_asked += not commits
        self.strangers.append(stranger)
        if fate.value.is_begun:
            self._ask(len(self.strangers) - 1)
        else:
            stranger.is_done = True

    def _ask(self, index: int) -> None:
        stranger = self.strangers[index]
        stranger.waits = True
        self.flights.append(Flight(StrangersEnd(index, stranger.verdict, stranger.prepared)))  # type: ignore[arg-type]

    def answered_another(self, request: object, code: int) -> None:
        assert isinstance(request, StrangersEnd)
        stranger = self.strangers[request.stranger]
        stranger.waits = False
        answer, stranger.outcome = self.judgement.of_answer(code, stranger.prepared.mode, stranger.verdict)
        stranger.is_done = stranger.outcome is not None
        stranger.reads_the_log = not stranger.is_done and answer in (Answer.TAKEN, Answer.REFUSED)
        if not stranger.is_done and not stranger.reads_the_log:
            self._ask(request.stranger)

    def lost_by_another(self, request: object) -> None:
        assert isinstance(request, StrangersEnd)
        self._ask(request.stranger)

    def look(self, index: int) -> None:
        """Let a stranger read the log, as the coordinator cannot tell any more."""
        stranger = self.strangers[index]
        says = [self._log_says(stranger.prepared, *place) for place in stranger.prepared.places]
        outcomes = [outcome for each in says if (outcome := self.judgement.of_log(each)) is not None]
        if outcomes:
            stranger.outcome = outcomes[0]
        stranger.is_done = bool(outcomes) or LogSays.OPEN not in says

    def _log_says(self, prepared: PreparedValue, partition: int, first: int, last: int) -> LogSays:
        written = self.brokers.logs[partition].written
        stable = next((i for i, entry in enumerate(written) if entry.instance < 0), len(written))
        spans: dict[int, list[int]] = {}
        for i, entry in enumerate(written):
            if entry.instance >= 0 and not entry.is_committed:
                spans.setdefault(entry.instance, []).append(i)
        aborted = [(written[span[0]].producer_id, span[0]) for span in spans.values() if span[-1] >= first]
        entry = written[first]
        batch = LoggedBatch(entry.producer_id, entry.epoch, first, first, 1, True, False)
        return log_says(prepared.who, first, last, batch, stable, aborted)

    def execute(self, request: Action | Produce) -> tuple[object, ...]:
        if isinstance(request, StrangersEnd):
            self.brokers.now = self.now
            return self.brokers.end(request.prepared.mode.value + 3, request.verdict, request.prepared.who)
        return super().execute(request)

    # ------------------------------------------------------------------ the end of a process
    def die(self, late: bool) -> None:
        """Let the process end at once, and another one start with the id; `late`: what it has written may still arrive."""
        self.deaths += 1
        mine = [flight for flight in self.flights if not isinstance(flight.request, StrangersEnd)]
        self.flights = [flight for flight in self.flights if flight not in mine]
        if late:
            self.ghosts += [flight.request for flight in mine if flight.answer is None]
        for told in self.told.values():
            told.is_left = True
            told.asked = 0
        self.excused.add(self.machine.transaction)  # its successor takes the id over
        for queue in self.queues.values():
            queue.clear()
        self.stamped.clear()
        self.allowed.clear()
        self.orphans.clear()
        self.turn = self.is_preparing = False
        self.flushing = 0
        self.draining = []
        self.wake = None
        self.identity = NONE
        former = self.machine
        self.machine = type(former)(
            retry_delay=former._retry_delay,
            concurrent_delay=former._concurrent_delay,
            transaction_timeout_s=former._near_s,
        )
        # Only names for the checker: no number of a transaction or of offsets is used twice.
        self.machine.transaction, self.machine._numbers = former.transaction, former._numbers

    def let_others_act(self, rng: random.Random, calm: bool) -> None:
        dice = rng.random()
        looking = [i for i, each in enumerate(self.strangers) if each.reads_the_log and not each.is_done]
        if dice < 0.1 and looking:
            self.look(rng.choice(looking))
        elif dice < 0.2 and self.fates:
            number = rng.choice(list(self.fates)[-2:])
            if self._has_room_for_strangers(number) and not (calm and self.is_over()):
                self.call_stranger(number, rng.random() < 0.6)
        elif dice > 0.995 and not calm and not self.closes and self.deaths < 2:
            self.die(rng.random() < 0.5)

    def _has_room_for_strangers(self, number: int) -> bool:
        return sum(each.prepared.transaction == number for each in self.strangers) < MOST_STRANGERS

    def may_be_aborted(self, transaction: int) -> bool:
        fate = self.fates.get(transaction)
        return super().may_be_aborted(transaction) or (fate is not None and fate.aborts_asked > 0)

    def time_out(self) -> None:
        self.excused.add(self.machine.transaction)
        super().time_out()

    def take(self) -> None:
        self.excused.add(self.machine.transaction)
        super().take()

    def haunt(self, index: int) -> None:
        late = self.ghosts[index % len(self.ghosts)] if self.ghosts else None
        before = self.brokers.who
        super().haunt(index)
        if isinstance(late, SendInitProducerId) and self.brokers.who != before:
            self.excused.add(self.machine.transaction)  # perhaps not the first time in this world

    # ------------------------------------------------------------------ what must be true
    def is_over(self) -> bool:
        return super().is_over() and all(stranger.is_done for stranger in self.strangers)

    def check(self) -> set[str]:
        brokers = self.brokers
        if not brokers.is_wedged:
            brokers.time_out()
            while brokers.status is Status.PREPARE:
                brokers.write_marker()
        bad = check(self)
        committed = {e.label for log in brokers.logs.values() for e in log.written if e.is_committed}
        known: dict[int, set[Outcome]] = {}
        for index, stranger in enumerate(self.strangers):
            number = stranger.prepared.transaction
            if stranger.reads_the_log and not stranger.is_done:
                self.look(index)
            if not stranger.is_done and not brokers.is_wedged:
                bad.add("another process was never told")
            if stranger.outcome is not None:
                known.setdefault(number, set()).add(stranger.outcome)
                told = self.told[number]
                if told.records or told.offsets:
                    if (stranger.outcome is Outcome.COMMITTED) != (number in committed):
                        bad.add("another process was told what is not")
        for number, fate in self.fates.items():
            outcomes = known.get(number, set()) | {o for o in self.told[number].outcomes if o is not Outcome.UNKNOWN}
            if len(outcomes) > 1:
                bad.add("two processes were told different things")
            if not fate.value.is_begun or number in self.excused:
                continue
            if number in committed and not fate.commits_asked:
                bad.add("committed, and no process has asked for it")
            if fate.commits_asked and outcomes and not fate.aborts_asked and number not in committed:
                bad.add("aborted without a cause")
        return bad

    # ------------------------------------------------------------------ every schedule of a small world
    def moves(self, budget: int) -> Iterator[tuple[int, str, tuple[object, ...]]]:
        yield from moves(self, budget)
        state, number = self.machine.state, self.machine.transaction
        if state is State.OPEN and self._has_sent_all():
            yield 0, "prepare", ()
        elif state is State.PREPARED:
            yield 0, "finish", (True,)
            yield 0, "finish", (False,)
        if number in self.fates and len(self.strangers) < MOST_STRANGERS:
            yield 0, "call_stranger", (number, True)
            yield 0, "call_stranger", (number, False)
        for index, stranger in enumerate(self.strangers):
            if stranger.reads_the_log and not stranger.is_done:
                yield 0, "look", (index,)
        if budget and not self.deaths and number:
            yield 1, "die", (True,)
            yield 1, "die", (False,)

    def mark(self, budget: int) -> str:
        return repr((mark(self, budget), self.strangers, self.fates, self.is_preparing, self.deaths, self.excused))
