"""`BatchOutcomes`: which records of a batch have their outcome, and which are awaited. The base of `ProducerBatch`.

Most batches settle as a whole: one `Segment`, one walk over the awaited handles. Others lose records one by one (recalled,
timed out, refused by name), in any order, and tens of thousands of one batch. Two dicts by index, made when the first
record leaves alone, keep the cost of each the same, however many there are (`tests/unit/pipeline/behaviour/test_costs.py`).

Invariants: a record is settled once; a handle is woken once, when its record settles.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from aiokprod.errors import AiokprodError
from aiokprod.pipeline.delivery.delivery import Delivery, RecordHolder, fire_all, watched_of
from aiokprod.pipeline.delivery.unasked import Unasked
from aiokprod.pipeline.delivery.waiter import SharedCallback, Wakeable, wake

Range = tuple[int, int]


class Segment:
    """Records `first` to `last` (exclusive) of a batch with one outcome."""

    __slots__ = (
        "attempts", "base_offset", "error", "first", "is_duplicate", "last", "settled_at", "timestamp_ms", "unasked",
    )  # fmt: skip

    def __init__(
        self,
        first: int,
        last: int,
        base_offset: int,
        timestamp_ms: int,
        error: AiokprodError | None,
        attempts: int,
        settled_at: float,
        is_duplicate: bool = False,
    ) -> None:
        self.first = first
        self.last = last
        self.base_offset = base_offset  # of the first record; -1: unknown
        self.timestamp_ms = timestamp_ms  # the broker's append time; -1: the records keep their own
        self.error = error  # None: delivered; else the pattern of which each delivery gets a copy
        self.attempts = attempts
        self.settled_at = settled_at
        self.is_duplicate = is_duplicate  # it was in the log already when it was sent again
        self.unasked: Unasked | None = None  # of the records that failed while nothing waited for them

    def error_of(self, index: int) -> AiokprodError | None:
        """Return a fresh exception for this record; None if it was delivered."""
        return None if self.error is None else self.error.clone()

    def errors_of(self, indices: Sequence[int]) -> Iterator[AiokprodError] | None:
        """Return the errors of these records, made one by one; None if all are like `error`."""
        return None


class Claim:
    """Records `first` to `last` (exclusive) that are awaited without a Delivery of their own (send_many)."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last


class BatchOutcomes(RecordHolder):
    """The settled and the awaited records of one batch."""

    __slots__ = (
        "_disowned", "_settled_before", "_singles", "_told", "_watched_at", "_woken", "claims", "count", "segments",
        "settled_count", "shared", "watched", "whole",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0  # records, recalled ones included
        self.settled_count = 0
        self.segments: list[Segment] = []  # of several records, or of all there are; ascending
        self.whole: Segment | None = None  # the only one, if all records were delivered together: mostly
        self._singles: dict[int, Segment] | None = None  # of one record each, by index; None: there are none
        self._settled_before = 0  # every record before it has its outcome; moved on when it is asked for
        self.watched: list[Delivery] = []  # awaited handles; those added since `_watched_at` was looked at
        self._watched_at: dict[int, list[Delivery]] | None = (
            None  # the others, by index; None: no record has left alone
        )
        self.shared: SharedCallback | None = None  # of the records that were given done callbacks
        self.claims: list[Claim] = []  # ascending
        self._disowned: list[Claim] | None = None  # those of calls that have ended early; None: there are none
        self._woken: list[Wakeable] | None = None  # taken from their Deliveries, and not given to the loop yet
        self._told: set[int] | None = None  # failures that were told already: per-send timeouts of stamped records

    # ------------------------------------------------------------------ outcomes
    def _keep(self, segment: Segment) -> None:
        """Note the outcome of these records.

        A single one goes into the dict: in the list it would have to be inserted, and newest first is the worst order.
        """
        segments = self.segments
        if segment.last - segment.first == 1 < self.count:
            if self._singles is None:
                self._singles = {}
            self._singles[segment.first] = segment
        elif not segments or segments[-1].last <= segment.first:
            segments.append(segment)
            if segment.last - segment.first == self.count and segment.error is None:
                self.whole = segment
        else:
            segments.insert(bisect_right(segments, segment.first, key=_first_of), segment)
        self.settled_count += segment.last - segment.first

    def segment_of(self, index: int) -> Segment | None:
        """Return the outcome of this record; None: not known yet."""
        segments = self.segments
        if len(segments) == 1:
            only = segments[0]
            if only.first <= index < only.last:
                return only
        elif segments:
            at = bisect_right(segments, index, key=_first_of) - 1
            if at >= 0 and index < segments[at].last:
                return segments[at]
        singles = self._singles
        return None if singles is None else singles.get(index)

    def is_settled(self, index: int) -> bool:
        return self.segment_of(index) is not None

    def ask(self, index: int) -> bool:
        segment = self.segment_of(index)
        return segment is not None and segment.unasked is not None and segment.unasked.ask(index)

    def live_ranges(self, end: int | None = None) -> list[Range]:
        """Return ranges of records without an outcome (a recalled one has one): of all, or of those before `end`."""
        stop = self.count if end is None else end
        if not self.settled_count:
            return [(0, stop)] if stop else []
        ranges: list[Range] = []
        at = self.first_unsettled()
        segments = self.segments
        position = bisect_right(segments, at, key=_first_of) if segments else 0
        while at < stop:
            segment = segments[position] if position < len(segments) else None
            last = stop if segment is None else min(segment.first, stop)
            if at < last:
                self._add_live(ranges, at, last)
            if segment is None:
                break
            at = segment.last
            position += 1
        return ranges

    def _add_live(self, ranges: list[Range], first: int, last: int) -> None:
        """Add what the records that settled one by one leave of this range."""
        singles = self._singles
        if singles is None:
            ranges.append((first, last))
            return
        at = first
        for index in range(first, last):
            if index in singles:
                if at < index:
                    ranges.append((at, index))
                at = index + 1
        if at < last:
            ranges.append((at, last))

    def counted_again(self) -> list[Range]:
        """Return what `live_ranges` does, by the outcomes alone: after a crash the counts beside them may be wrong."""
        ranges: list[Range] = []
        at = settled = 0
        while at < self.count:
            segment = self.segment_of(at)
            last = at + 1 if segment is None else segment.last
            if segment is not None:
                settled += last - at
            elif ranges and ranges[-1][1] == at:
                ranges[-1] = (ranges[-1][0], last)
            else:
                ranges.append((at, last))
            at = last
        self.settled_count = settled
        self._settled_before = 0
        return ranges

    def has_delivered(self) -> bool:
        """Return whether a record was delivered. Looks at each outcome."""
        if any(segment.error is None for segment in self.segments):
            return True
        singles = self._singles
        return singles is not None and any(segment.error is None for segment in singles.values())

    @property
    def unsettled_count(self) -> int:
        """Records without an outcome."""
        return self.count - self.settled_count

    def first_unsettled(self) -> int:
        """Return the oldest record without an outcome."""
        at = self._settled_before
        while at < self.count:
            segment = self.segment_of(at)
            if segment is None:
                break
            at = segment.last
        self._settled_before = at
        return at

    @property
    def is_finished(self) -> bool:
        """Return whether every record has an outcome."""
        return self.settled_count == self.count

    # ------------------------------------------------------------------ waiters
    def claim(self, index: int) -> Claim:
        """Note that this record and some after it are awaited, without a Delivery for each."""
        claim = Claim(index, index + 1)
        self.claims.append(claim)
        return claim

    def disclaim(self, claim: Claim) -> None:
        """Drop a claim: its `send_many` has ended early, and nothing waits for these records any more."""
        if claim in self.claims:  # not of a record behind which an exception came at once
            self.claims.remove(claim)
        if self._disowned is None:
            self._disowned = []
        self._disowned.append(claim)

    def disown(self, index: int) -> None:
        if self._disowned is None:
            self._disowned = []
        self._disowned.append(Claim(index, index + 1))

    def disowned(self, segment: Segment) -> set[int]:
        """Return the indices of the segment whose failures no code can ask for."""
        found: set[int] = set()
        if self._disowned is not None:
            for claim in self._disowned:
                found.update(range(max(claim.first, segment.first), min(claim.last, segment.last)))
        return found

    def is_heard(self, index: int) -> bool:
        """Return whether a `send_many` waits for this record."""
        at = bisect_right(self.claims, index, key=_first_of_claim) - 1
        return at >= 0 and index < self.claims[at].last

    def note_told(self, index: int) -> None:
        """Note that the failure of this record has been told before its outcome is known: it is not told twice."""
        if self._told is None:
            self._told = set()
        self._told.add(index)

    def _wake(self, segment: Segment) -> None:
        """Wake what waits for these records: one callback of the loop for all."""
        watched = self.watched
        watched_at = self._watched_at
        if not watched and watched_at is None:
            return
        # What is taken from a Delivery is in one list or another until the loop has it: `_wake_all` finds it there.
        woken: list[Wakeable] = []
        self._woken = woken
        if watched_at is None and segment.last - segment.first == self.count:
            fire_all(watched, woken)
            self.watched = []
        else:
            watched_at = self._watched_by_index()
            for index in _indices(segment, watched_at):
                fire_all(watched_at[index], woken)
                del watched_at[index]
        if woken:
            self.event_loop().call_soon(wake, woken)
        self._woken = None

    def _wake_all(self) -> None:
        """Wake what still waits for any record, after a crash: they all have their outcomes."""
        woken = self._woken
        if woken is None:
            woken = self._woken = []
        watched_at = self._watched_at
        if watched_at is not None:
            for deliveries in watched_at.values():
                fire_all(deliveries, woken)
        fire_all(self.watched, woken)
        self.watched, self._watched_at = [], None
        if woken:
            self.event_loop().call_soon(wake, woken)
        self._woken = None

    def unwatched(self, segment: Segment) -> list[int]:
        """Return the indices of the segment that are not awaited. Ask before `settle`."""
        claims = self.claims
        if len(claims) == 1 and claims[0].first <= segment.first and segment.last <= claims[0].last:
            return []
        waited: set[int] = set()
        if self._watched_at is None and segment.last - segment.first == self.count:
            waited.update(watched_of(self.watched))
        elif self.watched or self._watched_at is not None:
            watched_at = self._watched_by_index()
            for index in _indices(segment, watched_at):
                if watched_of(watched_at[index]):
                    waited.add(index)
        at = max(0, bisect_right(claims, segment.first, key=_first_of_claim) - 1)
        while at < len(claims) and claims[at].first < segment.last:
            waited.update(range(max(claims[at].first, segment.first), min(claims[at].last, segment.last)))
            at += 1
        if self._told is not None:
            waited |= self._told
        return [index for index in range(segment.first, segment.last) if index not in waited]

    def _watched_by_index(self) -> dict[int, list[Delivery]]:
        """Return the awaited handles by index, those added since the last call too."""
        watched_at = self._watched_at
        if watched_at is None:
            watched_at = self._watched_at = {}
        for delivery in self.watched:
            index = delivery._index  # pyright: ignore[reportPrivateUsage] - users are not shown it
            there = watched_at.get(index)
            if there is None:
                watched_at[index] = [delivery]
            else:
                there.append(delivery)
        self.watched = []
        return watched_at


# No lambdas: compiled, a method that has one makes an object for it whenever it is called.
def _first_of(segment: Segment) -> int:
    return segment.first


def _first_of_claim(claim: Claim) -> int:
    return claim.first


def _indices(segment: Segment, watched_at: dict[int, list[Delivery]]) -> list[int]:
    """Return the records of the segment that are watched. Looks at the shorter of the two."""
    if segment.last - segment.first < len(watched_at):
        return [index for index in range(segment.first, segment.last) if index in watched_at]
    return [index for index in watched_at if segment.first <= index < segment.last]
