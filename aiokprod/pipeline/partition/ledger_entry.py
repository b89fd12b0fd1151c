"""`Entry`: what the broker sees as one record batch, with its `State`; and `Entries`, the line of them.

Values of the ledger, no rules. Cost: a record that leaves an entry, and an entry that leaves the line, cost the same
wherever they stand and however many there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from aiokprod.pipeline.partition.batch import ProducerBatch, Range
from aiokprod.pipeline.partition.verdicts import Refusal

NO_PRODUCER = -1


class State(Enum):
    """Where a batch is. docs/ledger.md lists these states under these names; a test compares.

    Beside its state a batch is clean or ambiguous, which lasts; `tests/unit/pipeline/ledger_states.py` says which facts
    go with which state.
    """

    OPEN = "open"
    """Takes records; the last batch of its ledger."""
    QUEUED = "queued"
    """Sealed, without numbers: never sent, or a bump or a closed gap took its numbers away."""
    FLYING = "flying"
    """Handed to the transport; neither its answer nor the end of the connection has come."""
    WAITING = "waiting"
    """Sent, and to be sent again under the same numbers."""
    ASKED = "asked"
    """Answered while the partition is in doubt; the answers behind it, or the rewind, decide (R7)."""
    ACKED = "ACKED"
    """In the log for certain."""
    DEAD_FLYING = "dead, flying"
    """Settled for its callers while it was flying."""
    DEAD = "dead"
    """Settled for its callers, without a place in the log. Never sent again."""


# Looking a member up in its class runs Python code in CPython 3.11; these names cost what any other costs.
OPEN: Final = State.OPEN
QUEUED: Final = State.QUEUED
FLYING: Final = State.FLYING
WAITING: Final = State.WAITING
ASKED: Final = State.ASKED
ACKED: Final = State.ACKED
DEAD_FLYING: Final = State.DEAD_FLYING
DEAD: Final = State.DEAD


class Entry:
    """Records of one batch (all of them, unless some left), with the numbers they were stamped with."""

    __slots__ = (
        "_gone", "_ranges", "_size_bytes", "attempt", "batch", "before", "behind", "code", "count", "encoded", "failures",
        "first_sequence", "is_ambiguous", "line", "named", "newest_ms", "ordinal", "producer_epoch", "producer_id",
        "proves_nothing", "refusal", "sent_at", "sent_to", "state",
    )  # fmt: skip

    def __init__(self, ordinal: int, batch: ProducerBatch) -> None:
        self.ordinal = ordinal  # age in the ledger, for reading logs; the parts of a split batch share it
        self.batch = batch  # the parts of a split batch share it too, so records are named by their index in the batch
        # Written by the ledger alone, in the methods below: `seal` when a record does not fit or the batch is taken,
        # `fly` in `Ledger.take`, `land` by an answer or the end of the connection, `die` by a deadline, purge or bump.
        self.state = OPEN
        # Written by an answer that leaves the outcome open (broker: 6.1, 6.4) and by a connection that ended after the
        # hand-off. Sticky: a later clean refusal says nothing about the earlier attempt. Faults I3 and I12: the first
        # attempt is in the log, its answer is lost, and the resend is refused.
        self.is_ambiguous = False
        # Written when it becomes ACKED in a round that had refused a batch before: between the refusal and this OK the
        # log may have been replaced, so the OK says nothing about the batches in front (R3.1).
        self.proves_nothing = False
        # The stamp. Written by `Ledger.take`, erased by a bump and by closing a gap, and only from clean batches: a broker
        # compares numbers, not bytes (broker: 2.4), so an ambiguous batch under other numbers is written twice (2.5).
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self.first_sequence = -1
        # Counts `fly`. An answer and a loss name the attempt they belong to: one that belongs to an earlier attempt must
        # not land a batch that is in flight again (faults: I24).
        self.attempt = 0
        # Attempts that ended with a retriable error, or with their connection: what `retries` bounds (R8.4). Written by the
        # ledger. A refusal for size is none, else a large batch would use them up on its way to the right size.
        self.failures = 0
        # The error that answered the last attempt of this round, and the records it names by position. Written by
        # `Ledger.answer`; read by the rewind, which forgets the codes of all batches, not only the head's (R1.3).
        self.code: int | None = None
        self.named: tuple[int, ...] = ()
        # The broker's words about the last attempt that it refused. Written by the flusher before `Ledger.answer`. It
        # outlives the round, so the errors of the partition compare its code with that of the verdict.
        self.refusal: Refusal | None = None
        # When the last attempt was written (loop time), and to which broker. Written by the flusher, read by explanations only.
        self.sent_at = 0.0
        self.sent_to = -1
        # Sealed view of the batch. Written once by `seal`: a batch that is encoded outside the loop must not gain records.
        self.count = 0
        self.newest_ms = -1  # newest record timestamp: what the broker ages the producer by (broker: 1.12)
        self._ranges: list[Range] = []  # those in `_gone` included
        self._gone: set[int] | None = None  # records that left since `_ranges` was made; None: none did
        self._size_bytes = 0  # of its records; 0: not asked for since records left
        # Written by the partition queue when the section is encoded; None again whenever records leave, as the section
        # still holds them.
        self.encoded: object = None
        self.line: Entries | None = None  # the linked line it is in; None in a deque, and after it left
        self.before: Entry | None = None  # its neighbours there
        self.behind: Entry | None = None

    @property
    def is_sealed(self) -> bool:
        return self.state is not OPEN

    @property
    def is_stamped(self) -> bool:
        return self.producer_id != NO_PRODUCER

    @property
    def is_sent(self) -> bool:
        """True once it was handed to the transport: then it settles as one."""
        return self.attempt > 0

    @property
    def is_flying(self) -> bool:
        """True while an answer is due. Of a dead batch too: a rewind before it could reuse numbers that are on the way."""
        return self.state is FLYING or self.state is DEAD_FLYING

    @property
    def is_dead(self) -> bool:
        return self.state is DEAD or self.state is DEAD_FLYING

    @property
    def is_open_ended(self) -> bool:
        """Neither ACKED nor dead: its callers have no outcome yet."""
        state = self.state
        return state is not ACKED and state is not DEAD and state is not DEAD_FLYING

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    # ------------------------------------------------------------------ changes of state
    def seal(self) -> None:
        """Take no more records."""
        if self.state is OPEN:
            ranges, newest_ms = self.batch.sealed_view()
            count = 0
            for first, last in ranges:
                count += last - first
            self._ranges, self.newest_ms, self.count, self.state = ranges, newest_ms, count, QUEUED

    def fly(self) -> None:
        """Begin an attempt; the caller hands the entry to the transport in the same synchronous step."""
        self.state = FLYING
        self.code = None
        self.attempt += 1

    def land(self, attempt: int) -> None:
        """End an attempt: no answer to it is due any more."""
        if attempt != self.attempt:
            return  # a later attempt is in flight, and its answer is still to come (faults: I24)
        if self.state is FLYING:
            self.state = WAITING
        elif self.state is DEAD_FLYING:
            self.state = DEAD

    def die(self) -> None:
        """Note that its callers have their outcome. In flight it stays so: its numbers are used until the answer is in."""
        self.state = DEAD_FLYING if self.is_flying else DEAD

    def unstamp(self) -> None:
        """Take its numbers away, as it goes again under others: only for clean batches."""
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self.first_sequence = -1
        if self.state is WAITING or self.state is ASKED:
            self.state = QUEUED

    def forget_round(self) -> None:
        """Forget the round's answer, which says nothing about the next round (R1.3)."""
        self.code = None
        if self.state is ASKED:
            self.state = WAITING

    def cut(self, count: int) -> tuple[Entry, Entry]:
        """Return two entries: of its first records and of the others, both with its stamp. It must be clean, and not fly."""
        front, back = self._cut_ranges(count)
        first = self._part(front, count)
        rest = self._part(back, self.count - count)
        # Of the rest by subtraction: counted for each part that is cut off, a large batch would cost the square of its parts.
        rest._size_bytes = self.size_bytes() - first.size_bytes()
        if self.batch.entry is self:
            self.batch.entry = rest
        return first, rest

    def _part(self, ranges: list[Range], count: int) -> Entry:
        part = Entry(self.ordinal, self.batch)
        part.state = self.state
        part.ranges = ranges
        part.count = count
        part.newest_ms = self.newest_ms
        part.producer_id, part.producer_epoch = self.identity
        part.first_sequence = self.first_sequence
        part.attempt = self.attempt  # sent as part of the whole, if at all: then it expires as one (R8.2)
        part.failures = self.failures
        part.sent_at, part.sent_to = self.sent_at, self.sent_to
        return part

    # ------------------------------------------------------------------ records
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

    def deadline(self) -> float:
        """Return the deadline of the oldest record."""
        if not self._ranges:  # open: its batch counts its own records until it is sealed
            return self.batch.deadline_of(self.batch.first_unsettled())
        # Records of a batch are in the order of their sending, so the first one that is left is due first. Only when that
        # one is gone are the ranges made: this is looked up after every event, and records may leave one by one.
        first = self._ranges[0][0]
        if self._gone is not None and first in self._gone and self.ranges:
            first = self._ranges[0][0]
        return self.batch.deadline_of(first)

    def positions(self, named: tuple[int, ...]) -> list[tuple[int, int]]:
        """Return, for records named by their position in the entry, that position and the index in the batch."""
        # The broker counts the records of the attempt, and they are the ones here: none leaves while a batch is in flight.
        wanted = set(named)
        indices = [index for first, last in self.ranges for index in range(first, last)]
        return [(position, index) for position, index in enumerate(indices) if position in wanted]

    def has(self, index: int) -> bool:
        """Return whether this record of the batch is in the sealed entry."""
        at = bisect_right(self._ranges, (index + 1, -1)) - 1  # the last one that begins there or before
        if at < 0 or index >= self._ranges[at][1]:
            return False
        return self._gone is None or index not in self._gone

    def without(self, indices: Iterable[int]) -> None:
        """Take these records, which it must have, out of the sealed entry. The ranges are made when they are next used."""
        gone = self._gone
        if gone is None:
            gone = self._gone = set()
        left = len(gone)
        gone.update(indices)  # counted by the set: a record that is named twice leaves once
        self.count -= len(gone) - left
        self._size_bytes = 0
        self.encoded = None

    def without_first(self, end: int) -> list[Range]:
        """Take the records before this index of the batch out of the sealed entry; return their ranges."""
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
        self._size_bytes = 0
        self.encoded = None
        return leaving

    def size_bytes(self) -> int:
        """Return the bytes of its records before compression, an upper bound. It must be sealed."""
        if not self._size_bytes:
            self._size_bytes = self.batch.bytes_of(self.ranges)
        return self._size_bytes

    def before_index(self, end: int) -> int:
        """Return how many of its records stand before this index of the batch."""
        return sum(min(last, end) - first for first, last in self.ranges if first < end)

    def fitting(self, limit_bytes: int) -> int:
        """Return how many records, from the first on, fit into `limit_bytes`: at least one, and never all."""
        return max(1, min(self.count - 1, self.batch.fitting(self.ranges, limit_bytes)))

    def _cut_ranges(self, count: int) -> tuple[list[Range], list[Range]]:
        """Return its ranges, cut behind the first `count` records."""
        # Of the others a copy in one go for each part: there is one range, unless many records were recalled.
        ranges = self.ranges
        front: list[Range] = []
        left = count
        for at, (first, last) in enumerate(ranges):
            if last - first > left:
                if left:
                    front.append((first, first + left))
                return front, [(first + left, last), *ranges[at + 1 :]]
            front.append((first, last))
            left -= last - first
        return front, []

    def __repr__(self) -> str:
        doubt = "ambiguous" if self.is_ambiguous else "clean"
        state = f"{self.state.value}, {doubt}"
        return f"<Entry {self.ordinal}: {self.count} records at {self.first_sequence} of {self.identity}; {state}>"


def _cut_out(ranges: list[Range], gone: list[int]) -> list[Range]:
    """Return the ranges without these indices, which ascend and lie in them."""
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
        # On one line: an exception that comes between two would leave an entry that is found from one end only.
        if last is None:
            self._first, self._last, self._count = entry, entry, self._count + 1
        else:
            last.behind, self._last, self._count = entry, entry, self._count + 1

    def insert(self, position: int, entry: Entry) -> None:
        """Put it before what is at the position now. Walks there."""
        # For the parts of a batch that is about to be sent: a walk of the window, at most.
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
        # A Delivery that a caller keeps holds its batch, and that its entry: with links it would hold every batch that came
        # after it. And with links it would bring its former neighbours along into the next line.
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
        """Return its position; walks there."""
        for position, other in enumerate(self):
            if other is entry:
                return position
        raise ValueError("the entry is not in this line")

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, Entry) and entry.line is self

    def __getitem__(self, position: int) -> Entry:
        """Return the first (0) or the last (-1) entry."""
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
