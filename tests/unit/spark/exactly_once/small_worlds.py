"""Every schedule of small worlds: one or two batches of two tasks, one row for each task, and a few faults.

`SmallWorld` is `World` with another source of chance. Wherever `World` draws, each value is a branch, and the budget has the
faults that a schedule may still have. `explore` goes through all branches, depth first. Generators cannot be copied: a branch
is kept as its path, the list of the values that were chosen, and the world is run again along it.

A state that is known is not run on. Its key has all that tells two states apart:

- what the brokers have, the checkpoints, what the verdict reads, and the budget;
- each actor, as the stack of its generators: where each is suspended, and its local variables. What can be changed has the
  number of its first place in the key, so two actors with one list have another key than two actors with equal lists.

The iterator of a loop is no local variable. So each `for` with a `yield` in it needs a loop variable that tells its position:
it goes through rows or attempts, which are distinct, or is left after one step (`SmallWorld.delay`).
`test_protocol_small_worlds.py` runs worlds without keys, and finds the same states.

Some steps are made at once, as others cannot tell when: the start of a generator, what a task tells behind its marker, and the
look of a driver at what its tasks have told. A driver whose tasks have told nothing new makes no step. Where a task that failed
may go on, it always does, and so does a driver that crashed: that it is never chosen again is one of the schedules.

Each schedule must end: there is no circle of states, and no state without a move before the last driver has ended
(Wrong.ENDLESS). Behind that end, tasks and older drivers go on, and each further state is judged as well.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations
from random import Random
from types import CodeType, FunctionType, GeneratorType
from typing import Any, NamedTuple

from protocol_world import (
    Brokers,
    Checkpoint,
    Crashed,
    Faults,
    FencedError,
    Finding,
    Id,
    Row,
    Rules,
    Steps,
    World,
    Wrong,
)

from aiokprod.spark.exactly_once.procedures import FenceAll
from aiokprod.spark.exactly_once.protocol import BatchName, Fate, Opening, Refusal

TASKS = ROWS = 2
RULES = Rules()
COSTS, FREE, ONCE = 0.5, 0.75, 0.25
"""Instead of probabilities: a fault of the budget; a branch that costs nothing; one that is taken once, and costs nothing."""
RUNNING, CRASH, TIMEOUT = 64, 65, 66
"""Moves beside the numbers of actors: the driver's step, its crash, and from 66 on the timeout of an open transaction."""
DEEPEST = 240
"""Choices in a schedule; one with more does not end."""
NO_NUMBER = 1000
"""More than any number of an id."""
ALL = "all"
"""All transactional ids."""
DRIVER = ("task", 99)
"""Drivers are behind all tasks, in their own order."""
_JOB = World._job.__code__


class SmallBrokers(Brokers):
    """Brokers whose producer ids and listings do not depend on the order in which ids were made."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.has_prepared = False
        """whether the last write was a marker: the next thing that its task does is to tell it"""
        self.touched: set[Any] = set()
        """Ids that the step has asked or changed; ALL: each of them."""
        self.weeks = 0

    def forget_ids(self) -> None:
        super().forget_ids()
        self.weeks += 1  # an id that comes back has another producer id

    def init(self, name: Any, after: tuple[int, int] | None = None) -> tuple[int, int]:
        self.touched.add(name)
        if name not in self.ids:
            self.ids[name] = Id(_number_of(name) + NO_NUMBER * self.weeks)
        return super().init(name, after)

    def has(self, name: Any, identity: tuple[int, int]) -> bool:
        self.touched.add(name)
        return super().has(name, identity)

    def write(self, name: Any, identity: tuple[int, int], **what: Any) -> None:
        self.touched.add(name)
        super().write(name, identity, **what)
        self.has_prepared = "marker" in what

    def commit(self, name: Any, identity: tuple[int, int]) -> Fate:
        self.touched.add(name)
        return super().commit(name, identity)

    def open_ids(self) -> list[Any]:
        self.touched.add(ALL)
        return self.open_in_order()

    def has_pending_marker(self) -> bool:
        self.touched.add(ALL)
        return super().has_pending_marker()

    def open_in_order(self) -> list[Any]:
        return sorted(super().open_ids(), key=_number_of)


@cache
def _number_of(name: Any) -> int:
    if name == "control":
        return 0
    _, generation, partition, attempt = name
    return 1 + (generation * TASKS + partition) * 16 + attempt  # type: ignore[no-any-return]


class Chooser:
    """A stand-in for `random.Random`: each value is a branch.

    Args:
        path: values to choose again; behind them the first one is chosen, and the others are left to `branches`.
    """

    def __init__(self, path: bytes, branches: list[tuple[bytes, int]]) -> None:
        self.path = bytearray(path)
        self.at = 0
        self.branches = branches
        self.state = 0  # number of the state before the move

    @property
    def is_new(self) -> bool:
        return self.at == len(self.path)

    def pick(self, values: Sequence[int]) -> int:
        if self.at == len(self.path):
            done = bytes(self.path)
            self.branches += [(done + bytes((each,)), self.state) for each in values[:0:-1]]
            self.path.append(values[0])
        self.at += 1
        return self.path[self.at - 1]

    def choice(self, values: Sequence[Any]) -> Any:
        return values[self.pick(range(len(values)))]

    def randrange(self, end: int) -> int:
        return self.pick(range(end))

    def randint(self, first: int, last: int) -> int:
        return self.pick(range(first, last + 1))

    def random(self) -> float:
        return (0.0, 0.99)[self.pick((0, 1))]

    def shuffle(self, values: list[Any]) -> None:
        values[:] = self.choice(list(permutations(values)))


class Small(NamedTuple):
    """A kind of small world.

    Args:
        faults: instead of probabilities, 0 is never and 1 always; between them are `COSTS`, `FREE` and `ONCE`.
        batches: of a checkpoint.
        budget: the most faults of a schedule.
        floor: more states than this are to be found.
        layouts: of the rows in a replay, if rows move: 2 is as before, or each row in the other task; 5 is all there are.
    """

    faults: Faults
    batches: int
    budget: int
    floor: int = 0
    layouts: int = 5


class End(NamedTuple):
    """The end of a schedule."""

    findings: tuple[Finding, ...]
    refusals: tuple[Refusal, ...]
    finished: int
    restarts: int


class SmallWorld(World):
    """A world whose schedule is a path of choices.

    Args:
        small: its kind.
        reduces: without the moves whose order does not matter (`_moves`).
        path: values to choose first.
        branches: paths that are still to be tried; the world adds some.
    """

    random: Chooser  # type: ignore[assignment]

    def __init__(
        self,
        small: Small,
        rules: Rules = RULES,
        *,
        version: int,
        reduces: bool = True,
        path: bytes = b"",
        branches: list[tuple[bytes, int]] | None = None,
    ) -> None:
        super().__init__(0, small.faults, rules, version=version, batches=small.batches, tasks=TASKS, rows=ROWS)
        self.random = Chooser(path, [] if branches is None else branches)
        self.brokers = SmallBrokers(version)
        self.budget = small.budget
        self.is_used = False  # the branch that is taken once
        self.planned: set[BatchName] = set()
        self.layouts = small.layouts
        self.reduces = reduces
        self.names: dict[Steps, Any] = {}  # the transactional ids of tasks
        self.told: dict[Steps, list[Any]] = {}  # by tasks; not heard yet
        self.last = CRASH
        """The last move; RUNNING: a step of any driver; CRASH: also what has the same effect on the moves to try."""
        self.last_name: Any = None
        """The transactional id of the task that made the last move, or whose transaction timed out."""
        self.texts: list[str] | None = None

    # ------------------------------------------------------------------ the schedule
    def happens(self, probability: float) -> bool:
        if probability in (0, 1):
            return probability == 1
        if probability == FREE:
            return bool(self.random.pick((0, 1)))
        if probability == ONCE:
            happens = not self.is_used and bool(self.random.pick((0, 1)))
            self.is_used |= happens
            return happens
        if not self.budget:
            return False
        found = self.random.pick((0, 1))
        self.budget -= found
        return bool(found)

    def delay(self, steps: Sequence[int]) -> int:
        return 1  # how long it is, is a matter of the other actors' steps

    def begin(self) -> None:
        self._start_driver()

    def step(self) -> bool:
        """Make a move; return False if there is none."""
        moves: list[int] = []
        if self.random.is_new:
            moves = self._moves()
            if not moves:
                return False
        move = self.random.pick(moves)
        if self.texts is not None:
            self.texts.append(self._text(move))
        self.last = move
        if move == CRASH:
            self.budget -= 1
            self._crash()
        elif move >= TIMEOUT:
            self.budget -= 1
            self.last_name = self.brokers.open_in_order()[move - TIMEOUT]
            self.brokers.time_out(self.last_name)
        else:
            actor = self.running if move == RUNNING else self.actors[move]
            assert actor is not None
            self.last_name = self.names.get(actor)
            if self.last_name is None:
                self.last = RUNNING
                self.brokers.touched.clear()
            self._advance(actor)
            if self.last_name is not None:
                if self.brokers.has_prepared:
                    self.brokers.has_prepared = False
                    self._advance(actor)
                self._look(actor)
        if self.running is None and not self.is_over:
            self._start_driver()
        return True

    def all_moves(self) -> list[int]:
        moves = [number for number, actor in enumerate(self.actors) if not _waits(actor)]
        return moves if self.running is None or _waits(self.running) else [*moves, RUNNING]

    def _moves(self) -> list[int]:
        """Return the moves that are to be tried: all, but for those that `reduces` leaves out.

        Two moves are independent if no actor can tell in which order they were made. Moves have ranks: timeouts, the crash,
        steps of tasks by their ids, steps of drivers. Of two independent moves, the one of lower rank is made first, and
        is left out behind the other one: the other order leads to the same state. There the last move may be left out for
        the same reason, but its rank is higher. So one order is tried in the end, and no state is missed.

        While the driver has to wait for a task, whatever others do, only this task makes steps. This is so if all tasks of
        the batch have begun, so that none of them is refused any more, and there is no other driver.
        """
        last, name = self.last, self.last_name
        is_all = not self.reduces or last == CRASH
        touched = {ALL} if is_all else self.brokers.touched if last == RUNNING else {name}
        needed = self._needed() if self.reduces else None
        moves: list[int] = []
        for move in self.all_moves() if needed is None else [needed]:
            mover = None if move == RUNNING else self.names.get(self.actors[move])
            is_dependent = mover is None or ALL in touched or mover in touched
            if is_dependent or last >= TIMEOUT or (last < RUNNING and mover > name):
                moves.append(move)
        if not self.budget:
            return moves
        if self.faults.crash and self.running is not None and (is_all or last == RUNNING or last >= TIMEOUT):
            moves.append(CRASH)
        if self.faults.timeout:
            for move, each in enumerate(self.brokers.open_in_order(), TIMEOUT):
                if ALL in touched or each in touched or (last >= TIMEOUT and _number_of(each) > _number_of(name)):
                    moves.append(move)
        return moves

    def _needed(self) -> int | None:
        """Return a task of which nothing but its own steps lets the driver go on; None: there may be none."""
        if not isinstance(self.running, GeneratorType) or not _waits(self.running):
            return None
        if any(actor not in self.names for actor in self.actors):
            return None
        known = self.running.gi_yieldfrom.gi_frame.f_locals
        attempts = known["attempts"]
        if any(self.owners.get(self.names[task]) != known["opened"].token for task in attempts):
            return None
        partitions = [partition for partition, _ in attempts.values()]
        for task, (partition, _) in attempts.items():
            if known["reports"][partition] is None and partitions.count(partition) == 1:
                return self.actors.index(task)
        return None

    def _look(self, task: Steps) -> None:
        """Let each driver that waits look at what a task has told."""
        if not self.told[task]:
            return
        self.told[task] = []  # it is heard once
        for actor in [*self.actors, self.running]:
            if actor is not None and _waits(actor):
                before = len(self.actors)
                self._advance(actor)
                if not _waits(actor) or len(self.actors) != before:
                    self.last = CRASH  # all moves are to be tried

    def _start_driver(self) -> None:
        super()._start_driver()
        assert self.running is not None
        self._advance(self.running)
        self.last = CRASH

    def _task(self, *how: Any) -> Steps:
        task = super()._task(*how)
        next(task)
        opened, _, partition, attempt, _, told, _ = how
        self.names[task] = name = ("task", opened.token.generation, partition, attempt)
        self.brokers.touched.add(name)
        self.told[task] = told
        return task

    def _layout(self, batch: BatchName, run: int) -> list[list[Row]]:
        """Return one row for each task, or in a replay any of the other layouts, if rows move."""
        rows: list[Row] = [(*batch, number) for number in range(self.rows)]
        layouts = [[[rows[0]], [rows[1]]]]
        if batch in self.planned and self.faults.moves:
            layouts += [[[rows[1]], [rows[0]]], [rows[:]], [[], rows[:]], [rows[:], []]][: self.layouts - 1]
        self.planned.add(batch)
        layout: list[list[Row]] = self.random.choice(layouts)
        if batch in self.grown:
            layout[-1].append((*batch, self.rows))
        return layout

    def _carry_out(self, request: Any) -> Generator[None, Any, Any]:
        if isinstance(request, FenceAll):
            attempts = list(request.attempts)
            self.random.shuffle(attempts)
            request = FenceAll(tuple(attempts))
        return super()._carry_out(request)

    def _text(self, move: int) -> str:
        """Return a move in words."""
        if move == CRASH:
            return "the driver crashes"
        if move >= TIMEOUT:
            return f"the transaction of {self.brokers.open_in_order()[move - TIMEOUT]} times out"
        actor = self.running if move == RUNNING else self.actors[move]
        assert isinstance(actor, GeneratorType)
        known = actor.gi_frame.f_locals
        if "partition" in known:
            opened = known["opened"]
            return (
                f"task {known['partition']}.{known['attempt']} of {tuple(opened.token)}: line {actor.gi_frame.f_lineno}"
            )
        what, below = f"line {actor.gi_frame.f_lineno}", actor
        while isinstance(below, GeneratorType):
            if "request" in below.gi_frame.f_locals:
                what = f"{below.gi_frame.f_locals['request']}, line {below.gi_frame.f_lineno}"
            below = below.gi_yieldfrom
        return f"driver {known.get('run', 'that commits')}: {what}"

    # ------------------------------------------------------------------ the state
    def key(self) -> int:
        """Return the hash of all that tells this state from others."""
        brokers = self.brokers
        counts_decisions = self.faults.markers_expire > 0
        ids = frozenset(
            [
                (
                    name, each.epoch, each.last_epoch, each.state, tuple(each.rows), each.marker, each.decision,
                    counts_decisions and each.written_behind, self.owners.get(name) if each.state == "open" else None,
                )
                for name, each in brokers.ids.items()
            ]
        )  # fmt: skip
        mark = Marking()
        return hash(
            (
                self.budget,
                self.is_used,
                ids,
                frozenset(brokers.visible.items()),
                frozenset(brokers.markers.items()),
                counts_decisions and (brokers.decisions, frozenset(brokers.behind.items())),
                brokers.decision,
                brokers.done,
                brokers.timeouts > 0,
                self.late > 0,
                self.is_over,
                self.expired,
                self.is_forgotten,
                brokers.weeks,
                self.now_s,
                self.real_committed,
                tuple(self.refusals),
                frozenset(self.finished.items()),
                frozenset(self.planned) if self.faults.moves else None,
                frozenset(self.grown),
                frozenset(self.skipped),
                frozenset(self.duplicated),
                self.queries,
                mark(self.checkpoint),
                tuple([mark(each) for each in self.others]),
                None if self.running is None else mark(self.running),
                tuple([mark(each) for each in sorted(self.actors, key=lambda each: self.names.get(each, DRIVER))]),
            )
        )

    def end(self) -> End:
        return End(tuple(self.verdict()), tuple(self.refusals), len(self.finished), self.restarts)


def _waits(actor: Any) -> bool:
    """Return whether a driver waits for its tasks."""
    below = actor.gi_yieldfrom
    return below is not None and below.gi_code is _JOB


# ---------------------------------------------------------------------- the key of a state
_CONSTANT = frozenset({"self", "rules", "protocol", "run"})
"""Local variables that are the same in all states, or that nothing reads; `run` is read by layouts of the random form."""


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    return tuple(each for each in (*code.co_varnames, *code.co_cellvars) if each not in _CONSTANT)


class Marking:
    """The values in the key of one state: hashable, and equal if nothing tells them apart."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}

    def __call__(self, value: Any) -> Any:
        by_kind = _KINDS.get(type(value))
        return value if by_kind is None else by_kind(self, value)

    def _once(self, value: Any, parts: Any) -> Any:
        """Return a number, and at the first time the parts, of what can be changed."""
        number = self.numbers.get(id(value))
        if number is not None:
            return ("known", number)
        self.numbers[id(value)] = number = len(self.numbers)
        return (number, *parts(value))

    def sequence(self, value: list[Any]) -> Any:
        return self._once(value, lambda each: map(self, each))

    def mapping(self, value: dict[Any, Any]) -> Any:
        return self._once(value, lambda each: [(self(key), self(found)) for key, found in each.items()])

    def opening(self, value: Opening) -> Any:
        return (
            value.token, value.last, value.is_finished, frozenset(value.markers.items()), value.earlier, value.stream,
            value.rows, frozenset(value.unmarked), frozenset(value.unknown),
        )  # fmt: skip

    def checkpoint(self, value: Checkpoint) -> Any:
        return self._once(value, lambda each: (each.query, each.committed, self(each.owner)))

    def thing(self, value: object) -> Any:
        return self._once(value, lambda each: ())

    def error(self, value: BaseException) -> Any:
        return type(value)

    def generator(self, value: Any) -> Any:
        return self._once(value, self._stack)

    def _stack(self, value: Any) -> Iterator[Any]:
        while value is not None:
            frame = value.gi_frame
            if frame is None:
                return
            known = frame.f_locals
            yield frame.f_code.co_name
            yield frame.f_lasti
            for name in _names(frame.f_code):
                yield self(known.get(name, Marking))
            value = value.gi_yieldfrom

    def constant(self, value: Any) -> Any:
        return None


_KINDS: dict[type, Any] = {
    list: Marking.sequence,
    dict: Marking.mapping,
    Opening: Marking.opening,
    Checkpoint: Marking.checkpoint,
    object: Marking.thing,
    GeneratorType: Marking.generator,
    FunctionType: Marking.constant,
    RuntimeError: Marking.error,
    FencedError: Marking.error,
    Crashed: Marking.error,
    Brokers: Marking.constant,
    SmallBrokers: Marking.constant,
}


# ---------------------------------------------------------------------- the worlds
_CRASH = Faults(crash=COSTS)
_TIMEOUT = Faults(timeout=COSTS)
SMALL_WORLDS = {
    "tasks fail, copies, zombies": Small(
        Faults(task_fails=COSTS, zombie=1, copies=COSTS, lost_answer=COSTS), 1, 2, 3000
    ),
    "drivers crash": Small(replace(_CRASH, lost_answer=COSTS), 1, 1, 1200),
    "drivers crash, rows move": Small(replace(_CRASH, moves=True), 1, 1, 5000),
    "commits are stopped, rows move": Small(Faults(stops=COSTS, moves=True), 1, 1, 1600),
    "transactions time out": Small(_TIMEOUT, 1, 2, 800),
    "transactions time out, rows move": Small(replace(_TIMEOUT, moves=True), 1, 2, 3500),
    "checkpoints are deleted": Small(replace(_CRASH, deleted=FREE), 1, 1, 2400),
    "jobs are skipped": Small(replace(_TIMEOUT, skips=COSTS), 2, 2, 3200),
    "markers expire": Small(replace(_TIMEOUT, markers_expire=FREE), 1, 2, 900),
    "rows move, duplicates are allowed": Small(replace(_TIMEOUT, moves=True, duplicates=FREE), 1, 2, 12000),
    "facts expire": Small(replace(_CRASH, expired=FREE), 2, 1, 5500),
}
LARGER_WORLDS = {
    "drivers crash twice": Small(_CRASH, 1, 2),
    "drivers crash twice, rows move": Small(replace(_CRASH, moves=True), 1, 2, layouts=2),
    "drivers crash, two batches": Small(replace(_CRASH, lost_answer=COSTS), 2, 1),
    "two drivers": Small(replace(_CRASH, second_driver=1), 1, 1),
    "two drivers, rows move": Small(replace(_CRASH, second_driver=1, moves=True), 1, 1, layouts=2),
    "transactions time out, drivers crash": Small(replace(_CRASH, timeout=COSTS), 1, 2),
    "transactions time out, drivers crash, rows move": Small(
        replace(_CRASH, timeout=COSTS, moves=True), 1, 2, layouts=2
    ),
    "transactions time out, three faults, rows move": Small(replace(_TIMEOUT, moves=True), 1, 3),
    "queries take turns": Small(replace(_CRASH, deleted=FREE, returns=FREE), 1, 2),
    "queries stay away for a week": Small(replace(_CRASH, away=FREE), 1, 1),
    "old checkpoints come back": Small(replace(_CRASH, rewound=ONCE), 3, 1),
    "old checkpoints come back, rows are added": Small(replace(_CRASH, rewound=ONCE, grows=True), 3, 1),
    "markers expire, three faults": Small(replace(_TIMEOUT, markers_expire=FREE), 1, 3),
}


# ---------------------------------------------------------------------- all schedules
@dataclass
class Explored:
    """The states of a small world, and the harm that was found."""

    keys: dict[int, int] = field(default_factory=dict)
    """The states, numbered."""
    ends: dict[int, End] = field(default_factory=dict)
    """Those behind the end of the last driver."""
    found: dict[Wrong, bytes] = field(default_factory=dict)
    """A path to each kind of harm; it is empty, if the harm is a circle of states."""


def explore(
    small: Small,
    rules: Rules = RULES,
    *,
    version: int,
    prunes: bool = True,
    reduces: bool = True,
    until: frozenset[Wrong] | None = None,
) -> Explored:
    """Go through all schedules, or until this harm is found."""
    explored = Explored()
    keys, found = explored.keys, explored.found
    branches = [(b"", -1)]
    edges = array("q")
    random = Random(0)
    while branches and (until is None or not until <= found.keys()):
        if until is not None:  # harm is rarely near the first path, and behind many others
            number = random.randrange(len(branches))
            branches[number], branches[-1] = branches[-1], branches[number]
        path, state = branches.pop()
        world = SmallWorld(small, rules, version=version, reduces=reduces, path=path, branches=branches)
        chooser = world.random
        chooser.state = state
        world.begin()
        while True:
            if chooser.is_new:
                key = world.key()
                is_known = key in keys
                number = keys.setdefault(key, len(keys))
                edges.extend((chooser.state, number))
                chooser.state = number
                if is_known and prunes:
                    break
            if world.is_over:
                end = explored.ends[key] = world.end()
                for each in end.findings:
                    found.setdefault(each.wrong, bytes(chooser.path))
            moved = world.step()
            if (not moved and not world.all_moves() and not world.is_over) or len(chooser.path) > DEEPEST:
                found.setdefault(Wrong.ENDLESS, bytes(chooser.path))
            if not moved or len(chooser.path) > DEEPEST:
                break
    if until is None and prunes and has_circle(edges):
        found.setdefault(Wrong.ENDLESS, b"")
    return explored


def has_circle(edges: array[int]) -> bool:
    """Return whether states, each with the one behind it, come back to themselves."""
    behind: dict[int, list[int]] = {}
    before: Counter[int] = Counter()
    for one, other in zip(edges[::2], edges[1::2], strict=True):
        behind.setdefault(one, []).append(other)
        before[other] += 1
    free = [state for state in behind if not before[state]]
    while free:
        for state in behind.pop(free.pop(), ()):
            before[state] -= 1
            if not before[state]:
                free.append(state)
    return bool(behind)


def story(small: Small, path: bytes, rules: Rules = RULES, *, version: int) -> list[str]:
    """Return the moves of a path in words."""
    world = SmallWorld(small, rules, version=version, path=path)
    world.texts = []
    world.begin()
    while not world.random.is_new and world.step():
        pass
    return world.texts
