"""A hostile world for the ledger: a broker with the measured rules, a network that loses, delays and repeats, a checker.

Time is a count of steps; a "second" and the broker's memory of a producer are scaled with it. A schedule is drawn from a
seed and replayed by it. `check` says what a caller was told that is not true, and what the ledger must never do.
"""

from __future__ import annotations

import math
import pickle
import random
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ledger_states import OUTCOMES, complaints

from aiokprod.pipeline.partition.ledger import (
    NO_LIMIT,
    Abort,
    Action,
    Chase,
    Entry,
    Ledger,
    NeedIdentity,
    Outcome,
    Reason,
    Settle,
)
from aiokprod.pipeline.partition.size_limit import SizeLimit

SEQUENCES = 2**31
IDLE = 30
AGE = 500
EXPIRATION = 1000  # the broker forgets a producer whose last batch is older
OK, CORRUPT, NOT_LEADER, TIMED_OUT, TOO_LARGE, FEW, FEW_AFTER, BAD_TIME = 0, 2, 6, 7, 10, 19, 20, 32
OUT_OF_ORDER, OLD_EPOCH, INVALID, NO_TOPIC_ID, UNKNOWN, NO_ANSWER = 45, 47, 87, 100, -1, -2
OPEN_CODES = frozenset({TIMED_OUT, FEW_AFTER, UNKNOWN, NO_ANSWER})
FAULTS = ("few", "corrupt", "timed out", "few after", "moved", "unknown, refused", "unknown, appended", "omitted")


class FakeBatch:
    """The parts of a ProducerBatch that a ledger uses, with numbers for records."""

    def __init__(self, deadline: float, timeout: float = math.inf) -> None:
        self.delivery_timeout_s = timeout  # all have the same
        self.opened_at = deadline if math.isinf(timeout) else deadline - timeout
        self.entry: object = None
        self.records: list[int] = []
        self.sizes: list[int] = []
        self.deadlines: list[float] = []
        self.settled: set[int] = set()
        self.max_timestamp_ms = 0
        self.closed = False

    def live_ranges(self, end: int | None = None) -> list[tuple[int, int]]:
        ranges: list[tuple[int, int]] = []
        for index in range(len(self.records) if end is None else end):
            if index in self.settled:
                continue
            if ranges and ranges[-1][1] == index:
                ranges[-1] = (ranges[-1][0], index + 1)
            else:
                ranges.append((index, index + 1))
        return ranges

    def sealed_view(self) -> tuple[list[tuple[int, int]], int]:
        self.closed = True
        return self.live_ranges(), self.max_timestamp_ms

    @property
    def unsettled_count(self) -> int:
        return len(self.records) - len(self.settled)

    def first_unsettled(self) -> int:
        ranges = self.live_ranges()
        return ranges[0][0] if ranges else len(self.records)

    def deadline_of(self, index: int) -> float:
        return self.deadlines[index]

    def bytes_of(self, ranges: list[tuple[int, int]]) -> int:
        return sum(sum(self.sizes[first:last]) for first, last in ranges)

    def fitting(self, ranges: list[tuple[int, int]], limit_bytes: int) -> int:
        sizes = [size for first, last in ranges for size in self.sizes[first:last]]
        return next((n for n in range(len(sizes)) if sum(sizes[: n + 1]) > limit_bytes), len(sizes))

    def due(self, first: int, now: float) -> int:
        return self.end_of_due(first, now) - first

    def end_of_due(self, first: int, now: float) -> int:
        index = first
        while index < len(self.records) and self.deadlines[index] <= now:
            index += 1
        return index


class Sent(NamedTuple):
    """One attempt as the broker sees it."""

    records: tuple[int, ...]
    identity: tuple[int, int] | None
    first: int
    newest: int
    topic: bytes | None  # None: by name

    def numbers(self) -> dict[int, tuple[tuple[int, int] | None, int]]:
        return {record: (self.identity, self.first + i) for i, record in enumerate(self.records)}


@dataclass(slots=True)
class ProducerMemory:
    epoch: int
    last: int
    newest: int
    recent: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Log:
    """One incarnation of the partition; what was not confirmed may be cut when the leader moves."""

    batches: list[tuple[Sent, int]] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    confirmed: int = 0
    floor: int = 0  # batches before it are forgotten
    memory: dict[int, ProducerMemory] = field(default_factory=dict)

    def append(self, sent: Sent, zero_first: bool) -> tuple[int, int]:
        base = len(self.records)
        if sent.identity is not None:
            producer_id, epoch = sent.identity
            last = (sent.first + len(sent.records) - 1) % SEQUENCES
            known = self.memory.get(producer_id)
            if known is None:
                if zero_first and sent.first:
                    return OUT_OF_ORDER, -1
                known = self.memory[producer_id] = ProducerMemory(epoch, -1, 0)
            elif epoch < known.epoch:
                return OLD_EPOCH, -1
            elif epoch > known.epoch:
                if sent.first:
                    return OUT_OF_ORDER, -1
                known = self.memory[producer_id] = ProducerMemory(epoch, -1, 0)
            else:
                for first, end, at in known.recent:
                    if (first, end) == (sent.first, last):
                        return OK, at
                if sent.first != (known.last + 1) % SEQUENCES:
                    return OUT_OF_ORDER, -1
            known.last, known.newest = last, sent.newest
            known.recent = [*known.recent[-4:], (sent.first, last, base)]
        self.batches.append((sent, base))
        self.records.extend(sent.records)
        return OK, base

    def cut(self, keep: int) -> None:
        if keep >= len(self.batches):
            return
        old = self.batches[:keep]
        self.records, self.batches, self.memory = [], old[: self.floor], {}
        for sent, _ in self.batches:
            self.records.extend(sent.records)
        for sent, _ in old[self.floor :]:
            self.append(sent, False)
        self.floor, self.confirmed = min(self.floor, keep), min(self.confirmed, keep)

    def restart(self) -> None:
        """Forget all but one batch of each producer, as a restarted broker does. (broker: 2.6)"""
        for known in self.memory.values():
            known.recent = known.recent[-1:]

    def forget(self, now: int, expiration: int) -> None:
        for producer_id in [p for p, known in self.memory.items() if now - known.newest >= expiration]:
            del self.memory[producer_id]
            self.floor = len(self.batches)


@dataclass(slots=True)
class Request:
    entry: Entry
    attempt: int
    sent: Sent
    written: bool = True
    result: tuple[int, int, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """The freedom of a family of worlds."""

    name: str
    idempotent: bool = True
    transactional: bool = False
    restart: bool = False
    content: bool = False
    recreate: bool = False
    lossy: bool = False
    ages: bool = False
    backdated: bool = False


KINDS = (
    Kind("acks=all"),
    Kind("acks=all, restarts", restart=True),
    Kind("bad records", content=True, restart=True),
    Kind("topic recreated", recreate=True, restart=True),
    Kind("unclean elections", lossy=True, restart=True),
    Kind("broker forgets", ages=True, restart=True),
    Kind("old timestamps", ages=True, backdated=True, restart=True),
    Kind("not idempotent", idempotent=False, restart=True, content=True),
    Kind("transactional", transactional=True, restart=True, content=True),
)


def two_steps(attempt: int) -> float:
    """Return the backoff of these worlds."""
    return 2


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


class World:
    """One partition, two brokers, one client."""

    def __init__(
        self, kind: Kind, ledger: type[Ledger], *, records: int, window: int = 5, by_name: bool = False, first: int = 0
    ) -> None:
        self.kind = kind
        self.records = records
        self.by_name = by_name
        self.now = 0
        self.expiration = EXPIRATION
        self.patience = math.inf
        self.ledger = ledger(
            node=0, leader_epoch=0, topic_id=topic_id(0), identity=(7, 0) if kind.idempotent else None,
            idempotent=kind.idempotent, transactional=kind.transactional, window=window, retry_delay=two_steps,
            next_sequence=0 if kind.transactional else first, idle_s=IDLE, age_ms=AGE,
        )  # fmt: skip
        self.open: FakeBatch | None = None
        self.connections: list[deque[Request | None]] = [deque(), deque()]  # None: the chaser
        self.ghosts: list[tuple[int, int, deque[Request]]] = []  # requests of dead connections, still on their way
        self.leader, self.leader_epoch, self.topic = 0, 0, 0
        self.log = Log()
        self.old_logs: list[Log] = []
        self.starved = self.hiccup = False
        self.limit = 99  # of the bytes of a batch
        self.refused: set[int] = set()
        self.per_batch = 1  # records that `append_some` puts into one
        self.odd_sizes = 0  # of the sizes of records; 0: all are of one byte
        self.sent = 0
        self.epoch = 0
        self.outcome: dict[int, tuple[Outcome, int | None]] = {}
        self.doubts: dict[int, tuple[tuple[int, int] | None, int]] = {}
        self.ever: set[tuple[int, int]] = set()
        self.haunted: set[int] = set()
        self.bad: set[str] = set()
        self.cost: Counter[str] = Counter()

    # ------------------------------------------------------------------ the client's side
    def act(self, actions: list[Action]) -> None:
        self.look()
        for action in actions:
            if isinstance(action, Settle):
                self._settle(action)
            elif isinstance(action, Chase):
                if any(x is not None for x in self.connections[action.node]) if action.node >= 0 else False:
                    self.connections[action.node].append(None)
                else:
                    self.act(self.ledger.returned(self.now, self.now))
            elif isinstance(action, NeedIdentity):
                self.cost["bumps"] += 1
                if self.kind.transactional:
                    self.bad.add("bump in a transaction")
                self._grant()
            elif isinstance(action, Abort):
                self._grant()

    def look(self) -> None:
        """Check that the states of all batches are legal; a ledger with a rule switched off is judged by its outcomes only."""
        if type(self.ledger) is Ledger:
            self.bad.update(complaints(self.ledger))

    def _grant(self) -> None:
        self.epoch += 1
        self.act(self.ledger.granted((7, self.epoch), self.now))

    def _settle(self, action: Settle) -> None:
        batch = action.batch
        offset = action.base_offset
        if type(self.ledger) is Ledger and action.outcome not in OUTCOMES[action.why]:
            self.bad.add(f"{action.why.value} with the outcome {action.outcome.name}")
        for first, last in action.ranges:
            for index in range(first, last):
                record = batch.records[index]
                batch.settled.add(index)
                if record in self.outcome:
                    self.bad.add("settled twice")
                if offset is not None and (offset, record) not in self.ever:
                    self.bad.add("wrong offset")
                self.outcome[record] = (action.outcome, offset)
                offset = None if offset is None else offset + 1
                if action.why is Reason.OVERTAKEN and not self.kind.lossy and not (self.by_name and self.old_logs):
                    self.bad.add("given up")

    def append(self, deadline: float, timestamp: int) -> None:
        if self.open is None or self.open.closed or not self.open.unsettled_count:
            self.open = FakeBatch(deadline, self.patience)
            self.open.max_timestamp_ms = timestamp
            self.ledger.open(self.open)
        self.open.records.append(self.sent)
        self.open.sizes.append(self.size_of(self.sent))
        self.open.deadlines.append(deadline)
        self.open.max_timestamp_ms = max(self.open.max_timestamp_ms, timestamp)
        self.sent += 1

    def size_of(self, record: int) -> int:
        """Return the bytes of a record."""
        return 1 + record * self.odd_sizes % 4

    def append_some(self) -> None:
        for _ in range(self.per_batch):
            self.append(math.inf, 0)
        self.seal()

    def expire_one(self, which: int = 0) -> None:
        """Expire one batch without an outcome. One behind others has waited before it came to this queue."""
        open_ended = [entry for entry in self.ledger.entries if entry.is_open_ended]
        if which < len(open_ended):
            batch = open_ended[which].batch
            batch.deadlines = [-1.0] * len(batch.deadlines)
            self.ledger._falls_due_in_order = which == 0
            self.act(self.ledger.tick(self.now, self.now))

    def seal(self) -> None:
        if self.ledger.entries and self.open is not None and not self.open.closed:
            self.ledger.seal()

    def send(self, written: bool = True) -> bool:
        # As a partition's queue does: an open batch of two ages is sealed, and goes in parts (R8.6).
        found = self.ledger.next(self.now, self.now)
        if isinstance(found, Entry) and self.ledger.is_aged(found, self.now):
            found.seal()
            parts = len(self.ledger.entries)
            self.ledger.first_part(found, self.now)
            self.cost["parts by age"] += len(self.ledger.entries) - parts
        expected = self.ledger.candidate(self.now, self.now)
        entry = self.ledger.take(self.now, self.now)
        if entry is not expected:
            self.bad.add("take differs from candidate")
        if entry is None:
            return False
        records = tuple(entry.batch.records[i] for first, last in entry.ranges for i in range(first, last))
        identity = entry.identity if entry.is_stamped else None
        for i, record in enumerate(records):
            if self.doubts.get(record, me := (identity, entry.first_sequence + i)) != me:
                self.bad.add("two identities")
            if record in self.outcome:
                self.bad.add("sent after its end")
        if sum(e.is_flying for e in self.ledger.entries) > (5 if self.kind.idempotent else 1):
            self.bad.add("span")
        self.cost["resends"] += entry.attempt > 1
        sent = Sent(
            records, identity, entry.first_sequence, entry.newest_ms, None if self.by_name else self.ledger.topic_id
        )
        self.connections[self.ledger.node].append(Request(entry, entry.attempt, sent, written))
        return True

    def deliver(self, node: int) -> None:
        connection = self.connections[node]
        if not connection:
            return
        request = connection[0]
        if request is None:
            connection.popleft()
            self.act(self.ledger.returned(self.now, self.now))
            return
        if request.result is None:
            return
        connection.popleft()
        code, offset, named = request.result
        if code in OPEN_CODES or (code == NOT_LEADER and offset >= 0):
            self.doubts.update(request.sent.numbers())
        self.act(self.ledger.answer(request.entry, request.attempt, code, offset, named, self.now, self.now))

    def die(self, node: int, ghosts: int) -> None:
        connection, self.connections[node] = self.connections[node], deque()
        requests = [x for x in connection if x is not None]
        left = [x for x in requests if x.written and x.result is None][:ghosts]
        if left:
            self.ghosts.append((node, self.now, deque(left)))
        for request in requests:
            if request.written:
                self.doubts.update(request.sent.numbers())
        if requests:
            self.act(self.ledger.lost([(x.entry, x.attempt, x.written) for x in requests], self.now))
        if None in connection:
            self.act(self.ledger.returned(self.now, self.now))

    def learn(self) -> None:
        self.act(self.ledger.leader(self.leader, self.leader_epoch, topic_id(self.topic), self.now, self.now))

    # ------------------------------------------------------------------ the brokers' side
    def process(self, node: int, fault: str = "", keep: int = 99) -> None:
        for request in self.connections[node]:
            if request is not None and request.result is None:
                if request.written:
                    request.result = self.handle(node, request, fault, keep)
                return

    def handle(self, node: int, request: Request, fault: str, keep: int) -> tuple[int, int, tuple[int, ...]]:
        sent = request.sent
        if self.leader != node:
            return NOT_LEADER, -1, ()
        if sent.topic not in (None, topic_id(self.topic)):
            return NO_TOPIC_ID, -1, ()
        if fault in ("corrupt", "few", "unknown, refused", "invalid") or self.starved or self.hiccup:
            self.hiccup = False
            return {"corrupt": CORRUPT, "unknown, refused": UNKNOWN, "invalid": BAD_TIME}.get(fault, FEW), -1, ()
        if sum(map(self.size_of, sent.records)) > self.limit:
            return TOO_LARGE, -1, ()
        if named := tuple(i for i, record in enumerate(sent.records) if record in self.refused):
            return (INVALID, -1, named) if named[0] % 3 else (BAD_TIME, -1, ())
        code, base = self.log.append(sent, self.kind.transactional)
        if code != OK:
            return code, -1, ()
        self.ever.update((base + i, record) for i, record in enumerate(sent.records))
        if fault == "timed out":
            return TIMED_OUT, base, ()
        if fault == "few after":
            return FEW_AFTER, -1, ()
        if fault == "moved":
            self.move(1 - node, keep)
            return NOT_LEADER, base, ()
        if not self.kind.lossy or keep:
            self.log.confirmed = len(self.log.batches)
        return {"unknown, appended": (UNKNOWN, -1, ()), "omitted": (NO_ANSWER, -1, ())}.get(fault, (OK, base, ()))

    def move(self, node: int, keep: int) -> None:
        self.leader, self.leader_epoch = node, self.leader_epoch + 1
        self.log.cut((0 if self.kind.lossy and keep < 3 else self.log.confirmed) + keep)
        self.log.confirmed = len(self.log.batches)

    def restart(self, node: int, elsewhere: bool, keep: int) -> None:
        self.log.restart()
        self.log.forget(self.now, self.expiration)
        if self.leader == node:
            self.move(1 - node if elsewhere else node, keep)
        self.die(node, 0)

    def haunt(self, which: int) -> None:
        """Deliver a request of a dead connection after all."""
        node, _, queue = self.ghosts[which]
        request = queue.popleft()
        if not queue:
            del self.ghosts[which]
        before = len(self.log.records)
        self.handle(node, request, "", 99)
        if len(self.log.records) > before:
            self.haunted.update(request.sent.records)

    def recreate(self) -> None:
        self.old_logs.append(self.log)
        self.log, self.topic, self.leader_epoch = Log(), self.topic + 1, 0

    def sleep(self, by: int) -> None:
        for node in (0, 1):
            self.die(node, 4)
        self.now += by
        self.ghosts = [ghost for ghost in self.ghosts if self.now - ghost[1] < self.expiration / 4]
        self.log.forget(self.now, self.expiration)
        self.act(self.ledger.tick(self.now, self.now))


def check(world: World) -> set[str]:
    """Compare what the caller was told with what the logs hold."""
    bad = set(world.bad)
    logs = [*world.old_logs, world.log]
    present = Counter(record for log in logs for record in log.records)
    ever = {record for _, record in world.ever}
    told = {record: outcome for record, (outcome, _) in world.outcome.items()}
    if len(told) < world.sent:
        bad.add("unresolved")
    for record, outcome in told.items():
        if outcome == Outcome.DELIVERED and not present[record] and not (world.kind.lossy and record in ever):
            known_offset = world.outcome[record][1]
            if known_offset is None and (world.kind.lossy or (world.old_logs and world.by_name)):
                world.cost["false proof"] += 1  # all state of the producer vanished between two pipelined requests
            else:
                bad.add("lost")
        if outcome == Outcome.NOT and present[record]:
            bad.add("ghost")
        world.cost[outcome.name] += 1
    for log in logs:
        firsts = [record for record in dict.fromkeys(log.records) if told.get(record) == Outcome.DELIVERED]
        if firsts != sorted(firsts):
            bad.add("reordered")
        twice = {r for r, n in Counter(log.records).items() if n > 1} if world.kind.idempotent else set()
        if twice and not (world.kind.backdated and twice <= world.haunted):
            bad.add("duplicate")
    return bad


# ---------------------------------------------------------------------- every schedule of a small world
def moves(world: World, budget: int) -> Iterator[tuple[bool, str, tuple[object, ...]]]:
    """Yield (costs a fault, method, arguments) of all that can happen next; time stands still."""
    if world.sent < world.records:
        yield False, "append_some", ()
    yield False, "send", ()
    for node in (0, 1):
        connection = world.connections[node]
        if connection and (connection[0] is None or connection[0].result):
            yield False, "deliver", (node,)
        if any(x is not None and x.result is None for x in connection):
            yield False, "process", (node,)
            if budget:
                for fault in ("few", "timed out", "unknown, refused", "omitted", "invalid"):
                    yield True, "process", (node, fault)
                for keep in (0, 9):
                    yield True, "process", (node, "moved", keep)
        if budget and connection:
            yield True, "die", (node, 9)
    for which in range(len(world.ghosts)):
        yield False, "haunt", (which,)
    if (world.leader, world.leader_epoch) != (world.ledger.node, world.ledger.leader_epoch):
        yield False, "learn", ()
    if budget:
        for keep in (0, 9):
            yield True, "move", (1 - world.leader, keep)
            yield True, "restart", (world.leader, False, keep)
        for which in range(sum(entry.is_open_ended for entry in world.ledger.entries)):
            yield True, "expire_one", (which,)


def state(world: World, budget: int) -> int:
    """Hash the state of a world: two worlds with the same state have the same future."""
    ledger = world.ledger
    return hash(
        (
            budget, world.sent, world.leader, world.leader_epoch, tuple(sorted(world.outcome.items())),
            tuple(sorted(world.doubts.items())),
            tuple(
                (e.batch.records[e.ranges[0][0]] if e.ranges else -1, e.count, e.identity, e.first_sequence, e.state,
                 e.is_ambiguous, e.proves_nothing, e.code)
                for e in ledger.entries
            ),
            ledger.node, ledger.leader_epoch, ledger.leadership._pending, ledger._offered, ledger.identity,
            ledger.next_sequence,
            ledger.flowing, ledger.guard.is_proven, ledger._refused,
            ledger.size_limit.batch_bytes, ledger.size_limit._ceiling_bytes, ledger.size_limit.accepted_bytes,
            ledger.size_limit._judged_bytes,
            tuple(world.log.records), world.log.confirmed,
            tuple((p, m.epoch, m.last, tuple(m.recent)) for p, m in world.log.memory.items()),
            tuple(
                tuple(x if x is None else (x.sent, x.result, x.attempt == x.entry.attempt) for x in c)
                for c in world.connections
            ),
            tuple((node, tuple(x.sent for x in queue)) for node, _, queue in world.ghosts),
        )
    )  # fmt: skip


def exhaust(
    records: int, faults: int, kind: Kind, ledger: type[Ledger] = Ledger, *, per_batch: int = 1, limit: int = 99
) -> tuple[int, Counter[str], list[str]]:
    """Explore, depth first, all schedules with at most so many faults; return (states, what was bad, a bad schedule)."""
    first = World(kind, ledger, records=records)
    first.per_batch, first.limit = per_batch, limit
    first.ledger.size_limit = SizeLimit(share=2, memory_s=math.inf)
    stack: list[tuple[bytes, int, tuple[str, ...]]] = [(pickle.dumps(first, 5), faults, ())]
    seen = {state(first, faults)}
    bad: Counter[str] = Counter()
    example: list[str] = []
    while stack and not example:
        blob, budget, path = stack.pop()
        alive = False
        here = pickle.loads(blob)
        for costs, method, arguments in list(moves(here, budget)):
            world = pickle.loads(blob)
            getattr(world, method)(*arguments)
            world.look()
            world.ledger.not_before = 0.0
            left = budget - costs
            mark = state(world, left)
            alive |= not costs and not (method == "send" and mark == state(here, left))
            if mark in seen:
                continue
            seen.add(mark)
            step = (*path, f"{method}{arguments}")
            if len(world.outcome) == records and not any(world.connections):
                wrong = check(world)
                bad.update(wrong or {"ends": 1})
                if wrong:
                    example = [*step, str(wrong)]
            stack.append((pickle.dumps(world, 5), left, step))
        if not alive and len(here.outcome) < records:
            bad["stuck"] += 1
            example = example or [*path, "stuck"]
    return len(seen), bad, example


# ---------------------------------------------------------------------- random schedules
def run(seed: int, kind: Kind, ledger: type[Ledger] = Ledger) -> World:
    """Run an active time with faults, then calm until everything is settled."""
    rng = random.Random(seed)
    draw, pick = rng.random, rng.choice
    world = World(
        kind, ledger, records=rng.randrange(6, 22), window=pick((5, 5, 5, 3, 2)), by_name=draw() < 0.4,
        first=SEQUENCES - 6 if kind.idempotent and draw() < 0.1 else 0,
    )  # fmt: skip
    chaos = pick((0.02, 0.05, 0.1, 0.2))
    patience = pick((300, 150)) if kind.ages else pick((math.inf, math.inf, 300, 150))
    if kind.ages and not kind.backdated and draw() < 0.5:
        world.expiration, patience = 200, 60
    world.patience = patience
    sizes = random.Random(f"limits {seed}")
    world.odd_sizes = sizes.choice((0, 1, 3, 7))
    world.ledger.size_limit = SizeLimit(sizes.choice((2, 3, 32)), sizes.choice((20, 200, math.inf)))
    has_large_batches = sizes.random() < 0.3
    if has_large_batches:
        world.limit = sizes.choice((4, 6, 9))
    # In some worlds records waited before they came here, so their time is over before that of those in front.
    waits = random.Random(f"waits {seed}")
    slices = random.Random(f"slices {seed}")
    most = slices.choice((1, 2)) if slices.random() < 0.3 else NO_LIMIT  # batches that expire at once
    waited = (0, 0, 40, 120) if waits.random() < 0.3 else (0,)
    unknowns, wide, active = draw() < 0.2, draw() < 0.5, rng.randrange(80, 400)
    faults = FAULTS if unknowns else tuple(fault for fault in FAULTS if not fault.startswith("unknown"))
    purge_at = active + 60 if draw() < 0.05 else -1
    for step in range(1, active + 3000):
        world.now += 1
        calm = step > active
        if calm and step % 8 == 0:
            world.starved, world.limit = False, max(world.limit, 1)
            world.learn()
        deadline = world.ledger.next_deadline()
        if (deadline is not None and deadline <= world.now) or world.ledger._is_overdue:
            world.act(world.ledger.tick(world.now, world.now, most))
        if step == purge_at:
            world.records = min(world.records, world.sent)
            world.act(world.ledger.purge(world.now, world.now, most))
        elif world.ledger._purges_to:
            world.act(world.ledger.purge_on(world.now, world.now, most))
        world.look()
        dice = draw()
        if dice < 0.16:
            if world.sent < world.records:
                back = kind.backdated and draw() < 0.4
                world.append(
                    world.now + patience - waits.choice(waited), world.now - 2 * EXPIRATION if back else world.now
                )
                if draw() < 0.6 and not (has_large_batches and sizes.random() < 0.6):
                    world.seal()
        elif dice < 0.40:
            world.send(calm or draw() < 0.9)
            while wide and draw() < 0.7 and world.send():
                pass
        elif dice < 0.62:
            node = rng.randrange(2)
            for request in world.connections[node]:
                if request is not None:
                    request.written = True
            world.process(node, pick(faults) if not calm and draw() < chaos else "", rng.randrange(3) * 2)
        elif dice < 0.86:
            world.deliver(rng.randrange(2))
        elif dice < 0.90:
            if world.ghosts:
                world.haunt(rng.randrange(len(world.ghosts)))
        elif dice < 0.93:
            world.learn()
        elif not calm and draw() < chaos * 4:
            _misfortune(world, rng)
        if calm and len(world.outcome) == world.sent >= world.records and not any(world.connections):
            break
    while world.ghosts and draw() < 0.8:
        world.haunt(rng.randrange(len(world.ghosts)))
    return world


def _misfortune(world: World, rng: random.Random) -> None:
    kind, dice = world.kind, rng.random()
    if dice < 0.35:
        world.die(rng.randrange(2), rng.randrange(4))
    elif dice < 0.50:
        world.move(rng.choice((world.leader, 1 - world.leader)), rng.randrange(4))
    elif dice < 0.55:
        world.starved = not world.starved
    elif dice < 0.70 and kind.restart:
        world.restart(rng.randrange(2), rng.random() < 0.6, rng.randrange(4))
    elif dice < 0.85 and kind.content:
        if rng.random() < 0.5:
            world.limit = rng.choice((1, 2, 99)) * (1 + 2 * (world.odd_sizes > 0))
        else:
            world.refused.add(rng.randrange(world.records))
    elif dice < 0.85 and kind.recreate:
        if rng.random() < 0.5:
            world.recreate()
    elif dice < 0.95 and kind.ages:
        if rng.random() < 0.5:
            world.log.forget(world.now, world.expiration)
            return
        world.starved, world.hiccup = rng.random() < 0.3, rng.random() < 0.5
        for _ in range(rng.choice((1, 3, 6, 12))):
            world.sleep(100)
            if world.sent < world.records and rng.random() < 0.3:
                world.append(world.now + world.patience, world.now)
    else:
        world.starved = False


def survey(
    seeds: range, ledger: type[Ledger] = Ledger, kinds: tuple[Kind, ...] = KINDS
) -> Iterator[tuple[int, str, set[str]]]:
    """Return (seed, kind, what is bad) of each bad schedule."""
    for seed in seeds:
        kind = kinds[seed % len(kinds)]
        wrong = check(run(seed, kind, ledger))
        if wrong:
            yield seed, kind.name, wrong
