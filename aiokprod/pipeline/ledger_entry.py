"""`Entry`: what the broker sees as one record batch; `Entries`, the line of them; and the actions a ledger asks for.

Values of the ledger, no rules. Cost: a record that leaves an entry, and an entry that leaves the line, cost the same
wherever they stand and however many there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from enum import IntEnum

from aiokprod.pipeline.batch import ProducerBatch, Range

NO_PRODUCER = -1


class Outcome(IntEnum):
    """What the caller is told."""

    DELIVERED = 0
    NOT = 1
    """Certainly not persisted."""
    POSSIBLY = 2


class Entry:
    """Records of one batch (all of them, unless some left), with the numbers they were stamped with."""

    __slots__ = (
        "_gone", "_ranges", "acked", "alone", "asked", "attempt", "batch", "before", "behind", "code", "count", "dead",
        "doubt", "encoded", "first_sequence", "flying", "is_sealed", "line", "named", "newest_ms", "ordinal",
        "producer_epoch", "producer_id",
    )  # fmt: skip

    def __init__(self, ordinal: int, batch: ProducerBatch) -> None:
        self.ordinal = ordinal
        self.batch = batch
        self._ranges: list[Range] = []  # known once sealed; those in `_gone` included
        self._gone: set[int] | None = None  # records that left since `_ranges` was made; None: none did
        self.count = 0  # records; known once sealed
        self.newest_ms = -1  # newest record timestamp: what the broker ages the producer by
        self.is_sealed = False
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self.first_sequence = -1
        self.flying = False
        self.attempt = 0
        self.alone = False  # ACKED in a round where one before it was refused: proves nothing (R3.1)
        self.doubt = False  # some attempt ended without a certain answer; sticky
        self.acked = False
        self.dead = False  # settled for its callers; if it was sent it keeps its place until the round is over
        self.asked = False  # no verdict yet, those behind will tell (R7)
        self.code: int | None = None  # last error of this round
        self.named: tuple[int, ...] = ()
        self.encoded: object = None  # the partition queue's; None again whenever records leave
        self.line: Entries | None = None  # the linked line it is in, if it is in one
        self.before: Entry | None = None  # its neighbours there
        self.behind: Entry | None = None

    @property
    def is_stamped(self) -> bool:
        return self.producer_id != NO_PRODUCER

    @property
    def is_sent(self) -> bool:
        """Has it ever been handed to the transport? Then it settles as one."""
        return self.attempt > 0

    @property
    def is_open_ended(self) -> bool:
        """Neither ACKED nor dead."""
        return not self.acked and not self.dead

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def unstamp(self) -> None:
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self.first_sequence = -1

    @property
    def ranges(self) -> list[Range]:
        """The indices of its records in the batch; known once sealed. Not to be changed in place."""
        gone = self._gone
        if gone is not None:
            self._gone = None
            self._ranges = _cut_out(self._ranges, sorted(gone))
        return self._ranges

    @ranges.setter
    def ranges(self, ranges: list[Range]) -> None:
        self._ranges = ranges
        self._gone = None

    def seal(self) -> None:
        """No more records."""
        if not self.is_sealed:
            self.is_sealed = True
            self._ranges, self.newest_ms = self.batch.sealed_view()
            count = 0
            for first, last in self._ranges:
                count += last - first
            self.count = count

    def deadline(self) -> float:
        """Of its oldest record."""
        if not self._ranges:
            return self.batch.deadline_of(self.batch.first_unsettled())
        first = self._ranges[0][0]
        if self._gone is not None and first in self._gone and self.ranges:
            first = self._ranges[0][0]
        return self.batch.deadline_of(first)

    def positions(self, named: tuple[int, ...]) -> list[int]:
        """Indices in the batch of records named by their position in the entry."""
        wanted = set(named)
        indices = [index for first, last in self.ranges for index in range(first, last)]
        return [index for position, index in enumerate(indices) if position in wanted]

    def has(self, index: int) -> bool:
        """Is this record of the batch in the sealed entry?"""
        at = bisect_right(self._ranges, (index + 1, -1)) - 1  # the last one that begins there or before
        if at < 0 or index >= self._ranges[at][1]:
            return False
        return self._gone is None or index not in self._gone

    def without(self, indices: Iterable[int]) -> None:
        """These records leave the sealed entry, which has them. The ranges are made when they are asked for next."""
        gone = self._gone
        if gone is None:
            gone = self._gone = set()
        left = len(gone)
        gone.update(indices)
        self.count -= len(gone) - left
        self.encoded = None

    def without_first(self, end: int) -> list[Range]:
        """The records before this index of the batch leave the sealed entry; their ranges."""
        ranges = self.ranges
        at = bisect_right(ranges, (end, -1))  # the ranges before it begin before `end`
        leaving = ranges[:at]
        staying = ranges[at:]
        if leaving and leaving[-1][1] > end:
            first, last = leaving[-1]
            leaving[-1] = (first, end)
            staying.insert(0, (end, last))
        self.ranges = staying
        self.count -= sum(last - first for first, last in leaving)
        self.encoded = None
        return leaving

    def halves(self) -> tuple[list[Range], list[Range]]:
        """Its ranges cut in the middle."""
        cut = self.count // 2
        front: list[Range] = []
        back: list[Range] = []
        for first, last in self.ranges:
            take = min(cut, last - first)
            if take:
                front.append((first, first + take))
            if take < last - first:
                back.append((first + take, last))
            cut -= take
        return front, back

    def __repr__(self) -> str:
        flags = "".join(
            letter
            for letter, on in zip("FDAXQ", (self.flying, self.doubt, self.acked, self.dead, self.asked), strict=True)
            if on
        )
        return f"<Entry {self.ordinal}: {self.count} records at {self.first_sequence} of {self.identity} {flags}>"


def _cut_out(ranges: list[Range], gone: list[int]) -> list[Range]:
    """The ranges without these indices, which ascend and lie in them."""
    kept: list[Range] = []
    position = 0
    for first, last in ranges:
        at = first
        while position < len(gone) and gone[position] < last:
            index = gone[position]
            if index > at:
                kept.append((at, index))
            at = index + 1
            position += 1
        if at < last:
            kept.append((at, last))
    return kept


class Entries:
    """The entries of a ledger, linked: what a `deque` has for it, and an entry leaves from anywhere at the same cost.

    With `batch_size=0` each record is an entry, and tens of thousands leave one by one when they are recalled. A ledger
    begins with a deque, which is walked faster, and links its entries when one leaves from the middle.

    Invariant: an entry is in one line at most, and an entry that has left refers to no other.
    """

    __slots__ = ("_count", "_first", "_last")

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._first: Entry | None = None
        self._last: Entry | None = None
        self._count = 0
        for entry in entries:
            self.append(entry)

    def append(self, entry: Entry) -> None:
        last = self._last
        entry.line = self
        entry.before = last
        if last is None:
            self._first = entry
        else:
            last.behind = entry
        self._last = entry
        self._count += 1

    def insert(self, position: int, entry: Entry) -> None:
        """Put it before what is at the position now. Walks there."""
        behind = self._first
        for _ in range(position):
            if behind is not None:
                behind = behind.behind
        if behind is None:
            self.append(entry)
            return
        before = behind.before
        entry.line, entry.before, entry.behind = self, before, behind
        behind.before = entry
        if before is None:
            self._first = entry
        else:
            before.behind = entry
        self._count += 1

    def remove(self, entry: Entry) -> None:
        """Take it out. While the line is walked only the entry that is looked at may leave."""
        if entry.line is not self:
            raise ValueError("the entry is not in this line")
        before, behind = entry.before, entry.behind
        if before is None:
            self._first = behind
        else:
            before.behind = behind
        if behind is None:
            self._last = before
        else:
            behind.before = before
        entry.line = entry.before = entry.behind = None
        self._count -= 1

    def popleft(self) -> Entry:
        entry = self[0]
        self.remove(entry)
        return entry

    def clear(self) -> None:
        while self._first is not None:
            self.remove(self._first)

    def index(self, entry: Entry) -> int:
        """Its position. Walks there."""
        for position, other in enumerate(self):
            if other is entry:
                return position
        raise ValueError("the entry is not in this line")

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, Entry) and entry.line is self

    def __getitem__(self, position: int) -> Entry:
        """The first (0) or the last (-1)."""
        entry = self._last if position else self._first
        if entry is None:
            raise IndexError("no entries")
        return entry

    def __iter__(self) -> Iterator[Entry]:
        entry = self._first
        while entry is not None:
            behind = entry.behind  # before it is looked at: it may leave
            yield entry
            entry = behind

    def __len__(self) -> int:
        return self._count


class Action:
    """What a ledger asks for."""

    __slots__ = ()


class Settle(Action):
    """These records have their outcome."""

    __slots__ = ("attempts", "base_offset", "batch", "code", "outcome", "ranges", "why")

    def __init__(
        self,
        batch: ProducerBatch,
        ranges: list[Range],
        outcome: Outcome,
        base_offset: int | None,
        why: str,
        code: int | None,
        attempts: int,
    ) -> None:
        self.batch = batch
        self.ranges = ranges
        self.outcome = outcome
        self.base_offset = base_offset
        self.why = why
        self.code = code
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"<Settle {self.ranges} {self.outcome.name} offset {self.base_offset} {self.why}>"


class Chase(Action):
    """Put a chaser behind everything in flight to the old leader; answer with `returned`."""

    __slots__ = ("node",)

    def __init__(self, node: int) -> None:
        self.node = node


class NeedIdentity(Action):
    """Answer with `granted`: the epoch after `used`, or a fresh producer id."""

    __slots__ = ("fresh", "used")

    def __init__(self, used: tuple[int, int] | None, fresh: bool) -> None:
        self.used = used
        self.fresh = fresh


class Abort(Action):
    """Transactional: everything has failed; `granted` follows when the coordinator has ended the transaction."""

    __slots__ = ()


class WantMetadata(Action):
    """The answer says that our picture of the cluster is out of date."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code
