"""A hostile world for the exactly-once protocol: brokers, drivers, tasks and zombies, one step at a time.

Every call to a broker is one step, and a seeded choice decides which actor makes the next one. Faults: tasks fail or go on as
zombies, copies run beside them, drivers crash at any step or go on beside their successor, open transactions time out, answers
to EndTxn are lost, rows move between tasks and their number changes in a replay, checkpoints are deleted, come back, or are
restored from an old copy, behind which Spark may plan a batch afresh with more rows, facts expire, a query stays away until the
brokers have forgotten all but its last decision. Or the batches are jobs, and behind a crash a scheduler goes on with the next
one. The rules of the brokers are those that were measured (docs/broker_rules.md, rows 9 to 11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from random import Random
from typing import Any, NamedTuple

from aiokprod.spark.exactly_once import procedures
from aiokprod.spark.exactly_once.procedures import Facts, State
from aiokprod.spark.exactly_once.protocol import (
    PROTOCOL,
    Attempt,
    BatchName,
    Decision,
    Fate,
    Marker,
    Opening,
    Order,
    Protocol,
    Refusal,
    Report,
    Token,
)

ROWS = 4
DAY_S = 24 * 3600
WEEK_S = 7 * DAY_S
Row = tuple[str, int, int]
"""Query, batch, number."""
Steps = Generator[None, Any, Any]


@dataclass(frozen=True)
class Rules:
    """The conduct of drivers; variants replace a part."""

    protocol: Protocol = PROTOCOL
    opening: Any = procedures.opening
    commit: Any = procedures.commit
    abort: Any = procedures.abort
    checks_token: bool = True


@dataclass(frozen=True)
class Faults:
    """Probabilities of faults, for each step of the world unless another time is named."""

    crash: float = 0.0
    second_driver: float = 0.0
    """that a crashed driver goes on beside the next one"""
    timeout: float = 0.0
    task_fails: float = 0.0
    """for each step of a task"""
    zombie: float = 0.0
    """that a task that failed goes on all the same"""
    copies: float = 0.0
    """for each task"""
    in_vain: float = 0.0
    """for each task without rows: it takes its id over all the same, at any time behind its report"""
    lost_answer: float = 0.0
    """for each EndTxn"""
    stops: float = 0.0
    """for each commit: Spark calls abort while it goes on in another process"""
    moves: bool = False
    """rows move in a replay, and the number of tasks changes"""
    deleted: float = 0.0
    """that the checkpoint is gone at a restart"""
    returns: float = 0.0
    """that the query of a deleted one runs again at a restart: two queries share a sink id, one after the other"""
    rewound: float = 0.0
    """that it is an old copy at a restart"""
    grows: bool = False
    """the first batch behind an old copy is planned afresh, with one row more"""
    expired: float = 0.0
    """that the facts are gone at a restart"""
    markers_expire: float = 0.0
    """that markers which are older than the last decision but one are gone at a restart: each expires on its own"""
    away: float = 0.0
    """that a restart is a week late: transactional ids are gone, and markers and the last finished batch are or are not"""
    days: float = 0.0
    """that a restart is some days late, at most 5 in all: open transactions time out, and nothing has expired"""
    duplicates: float = 0.0
    """for each batch of a driver: onReplayMismatch=duplicate"""
    skips: float = 0.0
    """that the next batch is run at a restart: batches are jobs"""


class Wrong(Enum):
    """One kind of harm at the end of a schedule, as a user sees it."""

    DUPLICATE = "a row is there twice"
    LOST = "a row of a finished batch is lost"
    IN_PART = "a batch stays there in part"
    REFUSED = "a batch is refused without a reason"
    ENDLESS = "the drivers come to no end"


class Finding(NamedTuple):
    """One thing that is wrong, and where."""

    wrong: Wrong
    where: str


class EndlessError(Exception):
    """The schedule does not end, though no fault has happened for long."""


class FencedError(Exception):
    """A request with an old epoch."""


@dataclass
class Id:
    """A transactional id at its coordinator."""

    producer_id: int
    epoch: int = -1
    last_epoch: int = -1
    """of the transaction that ended; version 2"""
    state: str = "empty"
    rows: list[Row] = field(default_factory=list)
    marker: tuple[int, Marker] | None = None
    written_behind: int = 0
    decision: Decision | None = None


class Brokers:
    """The coordinators, the logs as read_committed readers see them, and the committed facts."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.ids: dict[Any, Id] = {}
        self.producer_ids = 0
        self.visible: Counter[Row] = Counter()
        self.markers: dict[int, Marker] = {}
        self.behind: dict[int, int] = {}
        """Behind how many decisions each marker was written."""
        self.decisions = 0
        self.decision: Decision | None = None
        self.done: BatchName | None = None
        self.timeouts = 0

    def init(self, name: Any, after: tuple[int, int] | None = None) -> tuple[int, int]:
        if name not in self.ids:
            self.ids[name] = Id(self.producer_ids)
            self.producer_ids += 1
        known = self.ids[name]
        if after is not None:
            if known.state == "open":
                self._fence(known)  # whatever the epoch of `after` is (9.9a)
            if after == (known.producer_id, known.last_epoch) and self.version == 2:
                return known.producer_id, known.epoch
            if after != (known.producer_id, known.epoch):
                raise FencedError
        self._end(known, commits=False)
        known.epoch += 1
        known.last_epoch = -1
        known.state = "empty"
        return known.producer_id, known.epoch

    def has(self, name: Any, identity: tuple[int, int]) -> bool:
        """Return whether an id still has this identity; an end may have raised its epoch."""
        known = self.ids.get(name)
        if known is None:
            return True
        raised = known.epoch - identity[1]
        return known.producer_id == identity[0] and 0 <= raised <= (known.state != "open")

    def write(self, name: Any, identity: tuple[int, int], **what: Any) -> None:
        known = self.ids.get(name)
        if known is None or identity != (known.producer_id, known.epoch):
            raise FencedError
        known.state = "open"
        known.rows += what.get("rows", [])
        known.marker = what.get("marker", known.marker)
        known.written_behind = self.decisions
        known.decision = what.get("decision", known.decision)

    def commit(self, name: Any, identity: tuple[int, int]) -> Fate:
        """Commit a transaction, or tell how it has ended (10.4, 11.1 to 11.4)."""
        known = self.ids.get(name)
        if known is None or identity[0] != known.producer_id:
            return Fate.GONE
        if identity == (known.producer_id, known.epoch) and known.state == "open":
            self._end(known, commits=True)
            if self.version == 2:
                known.last_epoch, known.epoch = known.epoch, known.epoch + 1
            return Fate.COMMITTED
        if identity[1] in (known.epoch, known.last_epoch) and known.state != "open":
            return Fate.COMMITTED if known.state == "committed" else Fate.ABORTED
        return Fate.GONE

    def time_out(self, name: Any) -> None:
        """Abort an open transaction, as its coordinator does (10.7)."""
        self.timeouts += 1
        self._fence(self.ids[name])

    def _fence(self, known: Id) -> None:
        """Abort an open transaction in the coordinator's own name."""
        self._end(known, commits=False)
        known.last_epoch = known.epoch if self.version == 2 else -1
        known.epoch += 1

    def _end(self, known: Id, *, commits: bool) -> None:
        if known.state != "open":
            return
        if commits:
            self.visible.update(known.rows)
            if known.marker is not None:
                self.markers[known.marker[0]] = known.marker[1]
                self.behind[known.marker[0]] = known.written_behind
            if known.decision is not None:
                self.decision = known.decision
                self.decisions += 1
        known.rows, known.marker, known.decision = [], None, None
        known.state = "committed" if commits else "aborted"

    def expire_markers(self) -> bool:
        """Forget the markers that are older than the last decision but one; return whether there were any."""
        old = [number for number, count in self.behind.items() if count < self.decisions - 1 and number in self.markers]
        for number in old:
            del self.markers[number]
        return bool(old)

    def forget_ids(self) -> None:
        """Forget all transactional ids, whose transactions have timed out before."""
        for name in self.open_ids():
            self.time_out(name)
        self.ids.clear()

    def open_ids(self) -> list[Any]:
        return [name for name, known in self.ids.items() if known.state == "open"]

    def is_open(self, name: Any) -> bool:
        return name in self.ids and self.ids[name].state == "open"

    def has_pending_marker(self) -> bool:
        return any(known.state == "open" and known.marker is not None for known in self.ids.values())


class Checkpoint:
    """Spark's offset log and commit log."""

    def __init__(self, number: int) -> None:
        self.query = f"q{number}"
        self.committed = 0  # batches
        self.owner: object = None


class Crashed(Exception):
    """The driver has ended; `refusal` says why, if it was refused."""

    def __init__(self, refusal: Refusal | None = None) -> None:
        super().__init__(refusal)
        self.refusal = refusal


def name_of(attempt: Attempt) -> Any:
    return ("task", *attempt[:3])


@cache
def print_of(row: Row) -> int:
    """Return the part of a fingerprint that a row makes."""
    return Random(repr(row)).getrandbits(64)


class World:
    """One schedule, from its seed."""

    def __init__(
        self,
        seed: int,
        faults: Faults,
        rules: Rules = Rules(),
        *,
        version: int = 2,
        batches: int = 3,
        tasks: int = 3,
        rows: int = ROWS,
        most: int = 6000,
    ) -> None:
        self.random = Random(seed)
        self.faults = faults
        self.rules = rules
        self.brokers = Brokers(version)
        self.batches = batches
        self.tasks = tasks  # of a batch; one less in some replays, if rows move
        self.rows = rows  # of a batch
        self.checkpoint = Checkpoint(0)
        self.others: list[Checkpoint] = []
        self.skipped: set[tuple[str, int]] = set()
        self.queries = 1
        self.actors: list[Steps] = []
        self.running: Steps | None = None
        self.restarts = 0
        self.most = most
        self.refusals: list[Refusal] = []
        self.finished: dict[tuple[str, int], int] = {}  # number of rows, as Spark has planned them
        self.grown: set[tuple[str, int]] = set()
        self.is_over = False
        self.expired = False
        self.is_forgotten = False
        self.days = 0
        """that restarts were late"""
        self.now_s = float(WEEK_S)
        self.duplicated: set[BatchName] = set()
        self.is_calm = False
        self.owners: dict[Any, Token] = {}  # of the transactional ids of tasks
        self.late = 0
        """Tasks and aborts of an old driver that have ended what a newer one has written: GENERATIONS openings lie between."""
        self.real_committed = 0  # while an old copy is in place
        self.steps_of_driver = 0
        self.crash_at: list[int] = []  # steps of the driver, for the exhaustive part

    # ------------------------------------------------------------------ the schedule
    def run(self) -> None:
        """Run to the end: all batches are committed, or one is refused for good."""
        self._start_driver()
        for step in range(self.most):
            if self.is_over:
                return
            self.is_calm = step > self.most // 2  # from here on no fault, so that each schedule ends
            self._draw_faults()
            if self.running is None:
                self._start_driver()
            actors = [*self.actors, self.running] if self.running is not None else self.actors
            self._advance(self.random.choice(actors))
        raise EndlessError

    def happens(self, probability: float) -> bool:
        return not self.is_calm and probability > 0 and self.random.random() < probability

    def delay(self, steps: Sequence[int]) -> int:
        """Return for how many steps an actor waits."""
        return self.random.choice(steps)

    def _draw_faults(self) -> None:
        if self.running is not None and self.happens(self.faults.crash):
            self._crash()
        if self.happens(self.faults.timeout):
            open_ids = self.brokers.open_ids()
            if open_ids:
                self.brokers.time_out(self.random.choice(open_ids))

    def _crash(self) -> None:
        driver, self.running = self.running, None
        assert driver is not None
        if self.happens(self.faults.second_driver):
            self.actors.append(driver)

    def _start_driver(self) -> None:
        self.restarts += 1
        if self.restarts > 1:
            if self.others and self.happens(self.faults.returns):
                self.others.append(self.checkpoint)
                self.checkpoint = self.others.pop(self.random.randrange(len(self.others)))
            elif self.happens(self.faults.deleted):
                self.others.append(self.checkpoint)
                self.checkpoint = Checkpoint(self.queries)
                self.queries += 1
            if self.checkpoint.committed > 1 and self.happens(self.faults.rewound):
                self.real_committed = self.checkpoint.committed
                self.checkpoint.committed -= self.random.randint(1, self.checkpoint.committed)
                if self.faults.grows:
                    self.grown = {(self.checkpoint.query, self.checkpoint.committed)}
            if self.checkpoint.committed < self.batches - 1 and self.happens(self.faults.skips):
                self.skipped.add((self.checkpoint.query, self.checkpoint.committed))
                self.checkpoint.committed += 1
            if self.checkpoint.committed and self.happens(self.faults.expired):
                self.brokers.decision, self.brokers.done, self.expired = None, None, True
                self.brokers.markers.clear()
            if self.happens(self.faults.days):
                self._be_late()
            if self.happens(self.faults.away):
                self._stay_away()
            if self.happens(self.faults.markers_expire) and self.brokers.expire_markers():
                self.expired = True
        self.running = self._driver(self.restarts, self.checkpoint)

    def _be_late(self) -> None:
        late = self.random.randint(0, 5 - self.days)
        self.days += late
        self.now_s += late * DAY_S
        for name in self.brokers.open_ids() if late else ():
            self.brokers.time_out(name)

    def _stay_away(self) -> None:
        """Let a week pass. Each group is looked at on its own, so what is older than the decision may have expired or not."""
        self.now_s += WEEK_S
        self.brokers.forget_ids()
        self.expired = self.is_forgotten = True
        if self.random.random() < 0.5:
            self.brokers.done = None
        for number in list(self.brokers.markers):
            if self.random.random() < 0.5:
                del self.brokers.markers[number]

    def _advance(self, actor: Steps) -> None:
        is_driver = actor is self.running
        if is_driver:
            self.steps_of_driver += 1
            if self.steps_of_driver in self.crash_at:
                self._crash()
                return
        try:
            next(actor)
        except StopIteration:
            self._remove(actor)
            if is_driver:
                self.is_over = True
        except Crashed as crashed:
            self._remove(actor)
            if crashed.refusal is not None and is_driver:
                self._refused(crashed.refusal)

    def _remove(self, actor: Steps) -> None:
        if actor is self.running:
            self.running = None
        elif actor in self.actors:
            self.actors.remove(actor)

    def _refused(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)
        if refusal in (Refusal.REWOUND, Refusal.OTHER_COUNT) and self.real_committed:
            self.checkpoint.committed, self.real_committed = self.real_committed, 0  # the operator puts it right
            self.grown.clear()
        elif refusal is Refusal.UNFINISHED and self.faults.skips and self.brokers.decision is not None:
            self.checkpoint.committed = self.brokers.decision.batch.number  # and runs that job again
        else:
            self.is_over = True

    # ------------------------------------------------------------------ a driver
    def _driver(self, run: int, checkpoint: Checkpoint) -> Steps:
        rules = self.rules
        checkpoint.owner = me = object()
        while checkpoint.committed < self.batches:
            number = checkpoint.committed
            batch = BatchName(checkpoint.query, number)
            layout = self._layout(batch, run)
            opened: Opening | None = yield from self._perform(rules.opening(lambda: self.now_s, rules.protocol))
            if opened is None:
                raise Crashed
            how: dict[str, bool] = {}
            if self.happens(self.faults.duplicates):
                how = {"may_duplicate": True}
                self.duplicated.add(batch)
            reports, refusal = yield from self._job(opened, batch, layout, bool(how))
            prepared = [report.attempt for report in reports if report is not None and report.attempt is not None]
            version = self.brokers.version
            if refusal is not None or None in reports:
                yield from self._perform(rules.abort(opened.token, prepared, rules.protocol))
                raise Crashed(refusal)
            committing = self._perform(rules.commit(opened, batch, version, reports, self.now_s, rules.protocol, **how))
            if self.happens(self.faults.stops):
                self.actors.append(committing)
                for _ in range(self.delay(range(12))):
                    yield
                yield from self._perform(rules.abort(opened.token, prepared, rules.protocol))
                raise Crashed
            outcome = yield from committing
            if outcome.refusal is not None or outcome.missing or not outcome.is_newest:
                yield from self._perform(rules.abort(opened.token, prepared, rules.protocol))
                raise Crashed(outcome.refusal)
            if outcome.leftovers:
                yield from self._perform(procedures.sweep(opened.token, outcome.leftovers))
            yield
            if checkpoint.owner is not me and checkpoint.committed != number:
                raise Crashed  # CONCURRENT_STREAM_LOG_UPDATE
            checkpoint.committed = number + 1
            self.finished[batch] = sum(len(rows) for rows in layout)

    def _layout(self, batch: BatchName, run: int) -> list[list[Row]]:
        """Return the rows of each task; the same in a replay, unless rows move."""
        random = Random(f"{batch} {run if self.faults.moves else 0}")
        layout: list[list[Row]] = [
            [] for _ in range(random.randint(self.tasks - 1, self.tasks) if self.faults.moves else self.tasks)
        ]
        for number in range(self.rows + (batch in self.grown)):
            random.choice(layout).append((*batch, number))
        return layout

    def _job(
        self, opened: Opening, batch: BatchName, layout: list[list[Row]], may_duplicate: bool
    ) -> Generator[None, Any, tuple[list[Report | None], Refusal | None]]:
        """Run the tasks of a batch until each has reported, or one has failed four times or is refused."""
        reports: list[Report | None] = [None] * len(layout)
        attempts: dict[Steps, tuple[int, int]] = {}
        outcomes: dict[Steps, list[Any]] = {}

        def launch(partition: int, attempt: int) -> None:
            told: list[Any] = []
            task = self._task(opened, batch, partition, attempt, layout[partition], told, may_duplicate)
            attempts[task], outcomes[task] = (partition, attempt), told
            self.actors.append(task)

        latest = [0] * len(layout)
        for partition in range(len(layout)):
            launch(partition, 0)
            if self.happens(self.faults.copies):
                latest[partition] += 1
                launch(partition, latest[partition])
        while None in reports:
            yield
            for task in list(attempts):
                told = outcomes[task]
                if not told:
                    continue
                partition, _ = attempts.pop(task)
                if isinstance(told[0], Report):
                    reports[partition] = reports[partition] or told[0]
                elif isinstance(told[0], Refusal):
                    return reports, told[0]
                elif reports[partition] is None and partition not in [p for p, _ in attempts.values()]:
                    latest[partition] += 1
                    if latest[partition] >= 4:
                        return reports, None
                    launch(partition, latest[partition])
        return reports, None

    def _task(
        self,
        opened: Opening,
        batch: BatchName,
        partition: int,
        attempt: int,
        rows: list[Row],
        told: list[Any],
        may_duplicate: bool,
    ) -> Steps:
        protocol = self.rules.protocol
        yield
        order = protocol.order(opened, batch, partition, is_stream=not self.faults.skips)
        if isinstance(order, Refusal):
            told.append(order)
            return
        fingerprint = sum(print_of(row) for row in rows) % 2**64
        if order is Order.COMPARE:
            is_same = protocol.is_same(opened.markers[partition], len(rows), fingerprint)
            if is_same or not may_duplicate:
                told.append(Report(order, None, len(rows)) if is_same else Refusal.OTHER_ROWS)
                return
        generation = opened.token.generation
        name = ("task", generation, partition, attempt)
        if order is Order.SKIP or not rows:
            told.append(Report(order, None, len(rows)))
            if order is not Order.SKIP and self.happens(self.faults.in_vain):
                for _ in range(self.delay((0, 0, 20, 200))):
                    yield
                self._take(name, opened)
            return
        try:
            identity = self._take(name, opened)
            for row in rows:
                yield
                if self.happens(self.faults.task_fails) and not told:
                    told.append(RuntimeError())
                    if not self.happens(self.faults.zombie):
                        return
                self.brokers.write(name, identity, rows=[row])
            yield
            marker = Marker(batch, len(rows), fingerprint)
            self.brokers.write(name, identity, marker=(partition, marker))
        except FencedError as fenced:
            told.append(fenced)
            return
        yield
        told.append(Report(order, Attempt(generation, partition, attempt, *identity), len(rows)))

    def _take(self, name: tuple[Any, ...], opened: Opening) -> Any:
        """Take the id of a task over, which aborts what is open under it; return its identity."""
        self.late += self.brokers.is_open(name) and self.owners[name].epoch > opened.token.epoch
        self.owners[name] = opened.token
        return self.brokers.init(name)

    # ------------------------------------------------------------------ requests
    def _perform(self, procedure: Generator[Any, Any, Any]) -> Generator[None, Any, Any]:
        answer: Any = None
        while True:
            try:
                request = procedure.send(answer)
            except StopIteration as done:
                return done.value
            yield
            answer = yield from self._carry_out(request)

    def _carry_out(self, request: Any) -> Generator[None, Any, Any]:
        brokers = self.brokers
        match request:
            case procedures.TakeToken(after):
                taken = yield from self._init("control", after)
                return None if taken is None else Token(*taken)
            case procedures.ReadFacts():
                return Facts(brokers.decision, brokers.done)
            case procedures.ReadState():
                leftovers = self._leftovers()
                yield
                facts = Facts(brokers.decision, brokers.done)
                yield
                return State(facts, self._leftovers() if self.random.random() < 0.5 else leftovers)
            case procedures.CommitAll(attempts, _):
                return (yield from self._commit_all(list(attempts)))
            case procedures.ListLeftovers():
                return self._leftovers()
            case procedures.FenceAll(attempts):
                for each in attempts:
                    yield
                    yield from self._init(name_of(each), (each.producer_id, each.epoch))
            case procedures.ReadMarkers(tasks):
                if brokers.has_pending_marker():  # of a zombie that has begun meanwhile
                    return None
                return {number: marker for number, marker in brokers.markers.items() if number < tasks}
            case procedures.WriteDecision(token, decision):
                if not self.rules.checks_token:
                    brokers.decision = decision
                    return True
                try:
                    brokers.write("control", token, decision=decision)
                    yield
                    # Fenced, or its coordinator has aborted it: nothing is decided.
                    return brokers.commit("control", token) is Fate.COMMITTED
                except FencedError:
                    return False
            case procedures.WriteDone(batch, lists):
                is_listed_first = lists and self.random.random() < 0.5
                found = self._leftovers() if is_listed_first else ()
                brokers.done = batch
                yield
                return self._leftovers() if lists and not is_listed_first else found
            case _:
                raise AssertionError(request)
        return None

    def _init(self, name: Any, after: tuple[int, int] | None) -> Generator[None, Any, tuple[int, int] | None]:
        """Take an id over behind a look at it; None: it has another identity than `after`."""
        if after is not None:
            if not self.brokers.has(name, after):
                return None
            yield
            known = self.brokers.ids.get(name)
            if name != "control" and known is not None and known.state == "open" and known.epoch != after[1]:
                self.late += 1  # behind the look GENERATIONS openings have passed, and a newer task has this id
        try:
            return self.brokers.init(name, after)
        except FencedError:
            return None

    def _leftovers(self) -> tuple[Attempt, ...]:
        ids = self.brokers.ids
        names = [name for name in self.brokers.open_ids() if name != "control"]
        return tuple(Attempt(*name[1:], ids[name].producer_id, ids[name].epoch) for name in names)

    def _commit_all(self, attempts: list[Attempt]) -> Generator[None, Any, dict[Attempt, Fate]]:
        fates: dict[Attempt, Fate] = {}
        self.random.shuffle(attempts)
        for each in attempts:
            is_told = False
            while not is_told:
                yield
                fates[each] = self.brokers.commit(name_of(each), (each.producer_id, each.epoch))
                is_told = not self.happens(self.faults.lost_answer)
        return fates

    # ------------------------------------------------------------------ the verdict
    def verdict(self) -> list[Finding]:
        """Return what is wrong; nothing, if the guarantee holds."""
        there = self.brokers.visible
        wrong = [
            Finding(Wrong.DUPLICATE, f"{row}, {count} times")
            for row, count in there.items()
            if count > 1 and row[:2] not in self.duplicated
        ]
        for (query, number), count in self.finished.items():
            rows = [(query, number, each) for each in range(count)]
            wrong += [Finding(Wrong.LOST, str(row)) for row in rows if not there[row]]
        for query, number in self._whole_or_not_at_all():
            if sum(there[query, number, each] > 0 for each in range(self.rows)) not in (0, self.rows):
                wrong.append(Finding(Wrong.IN_PART, f"{query}, {number}"))
        for refusal in self.refusals:
            if not self._may_refuse(refusal):
                wrong.append(Finding(Wrong.REFUSED, refusal.name))
        return wrong

    def _whole_or_not_at_all(self) -> set[tuple[str, int]]:
        """Return the batches of which readers see all or nothing when the last driver has ended.

        These are all of them, unless a timeout or a very late task or driver has aborted what was decided, or the decision has
        expired: then a query may have to stop behind half a batch. Finished batches are judged row by row.
        """
        if self.brokers.timeouts or self.late or self.expired:
            return self.skipped
        return {(query, number) for query, number, _ in self.brokers.visible} - set(self.finished)

    def _may_refuse(self, refusal: Refusal) -> bool:
        match refusal:
            case Refusal.OTHER_ROWS:
                return self.faults.moves and (self.brokers.timeouts > 0 or self.late > 0 or self.is_forgotten)
            case Refusal.NO_FACTS:
                return self.expired or self.faults.deleted > 0
            case Refusal.REWOUND:
                return self.faults.rewound > 0
            case Refusal.OTHER_COUNT:
                return self.faults.grows
            case Refusal.UNFINISHED:
                return self.faults.skips > 0 and self.brokers.timeouts > 0  # a stream runs its last batch again
        raise AssertionError(refusal)


def schedule(seed: int, faults: Faults, rules: Rules = Rules(), *, version: int = 2) -> World:
    """Run one schedule."""
    world = World(seed, faults, rules, version=version)
    world.run()
    return world


def findings(seed: int, faults: Faults, rules: Rules) -> list[Finding]:
    """Run one schedule to its end, and judge it; its version is that of its seed."""
    world = World(seed, faults, rules, version=1 + seed % 2)
    try:
        world.run()
    except EndlessError:
        return [Finding(Wrong.ENDLESS, f"behind {world.most} steps")]
    return world.verdict()


ALL = Faults(
    crash=0.02, second_driver=0.3, timeout=0.004, task_fails=0.05, zombie=0.5, copies=0.1, lost_answer=0.2, in_vain=0.5
)
KINDS = {
    "tasks fail, copies, zombies": replace(ALL, crash=0, second_driver=0, timeout=0),
    "drivers crash": replace(ALL, second_driver=0, timeout=0),
    "drivers crash, rows move": replace(ALL, second_driver=0, timeout=0, moves=True),
    "commits are stopped, rows move": replace(ALL, second_driver=0, timeout=0, stops=0.3, moves=True),
    "two drivers": replace(ALL, timeout=0),
    "two drivers, rows move": replace(ALL, timeout=0, moves=True),
    "old drivers always go on, rows move": replace(
        ALL, timeout=0, moves=True, crash=0.03, second_driver=1, lost_answer=0.5
    ),
    "transactions time out": ALL,
    "transactions time out, rows move": replace(ALL, moves=True),
    "checkpoints are deleted": replace(ALL, deleted=0.3),
    "queries take turns": replace(ALL, second_driver=0, timeout=0, deleted=0.3, returns=0.5),
    "old checkpoints come back": replace(ALL, second_driver=0, rewound=0.3),
    "old checkpoints come back, rows are added": replace(ALL, second_driver=0, rewound=0.3, grows=True),
    "jobs are skipped": replace(ALL, skips=0.3),
    "markers expire": replace(ALL, second_driver=0, timeout=0.02, markers_expire=0.5),
    "queries stay away for a week": replace(ALL, second_driver=0, timeout=0.02, away=0.3),
    "queries stay away for a week, rows move": replace(ALL, timeout=0.01, away=0.1, moves=True),
    "restarts come days late": replace(ALL, timeout=0.02, days=0.5),
    "rows move, duplicates are allowed": replace(ALL, second_driver=0, timeout=0.02, moves=True, duplicates=0.5),
    "facts expire": replace(ALL, second_driver=0, timeout=0, expired=0.2),
}
