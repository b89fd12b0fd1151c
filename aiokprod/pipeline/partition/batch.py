"""`ProducerBatch`: the records of one partition that travel together, from the first append to the last settlement.

Made by the PartitionQueue, one open per partition. It keeps its identity for its Deliveries: whatever happens to its
records (recalled, expired, split, refused by name) becomes a `Segment`, and a Delivery looks up its own (`outcomes`).
What the broker sees is another matter, kept by the ledger's entries, which refer to ranges of a batch.

Columns, not objects: a record is one cell in each list. Lists that no record uses do not exist, nor do those whose cells are
all alike: timestamps while they are in one millisecond, sizes while they are equal.

    append ... append -> seal -> encode -> release_columns (stamped) -> settle, settle, ...

A record is taken in two steps. `write` makes its cells, which may fail anywhere; `count` then takes it in, on one line with
all other books of the record, where nothing can fail or come between (`PartitionQueue`). Cells behind `count` are of a record
that was not taken: `trim` takes them out.

Invariants: cells are appended and never moved; a record is settled once; charged bytes are released exactly once;
columns are dropped only when the encoded section that holds the same records is kept.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from aiokprod.errors import AiokprodError
from aiokprod.model import TimestampType
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.delivery.waiter import DoneCallback, SharedCallback
from aiokprod.pipeline.partition.kept_records import KeptRecords
from aiokprod.pipeline.partition.outcomes import BatchOutcomes, Claim, Range, Segment
from aiokprod.pipeline.partition.timeline import Happening, Timeline, Waited, merged
from aiokprod.record_metadata import RecordMetadata
from aiokprod.records.batch import SMALL_FIXED_BOUND, SMALL_VALUE_BYTES, encode_records, value_size_of
from aiokprod.records.compression import decompress
from aiokprod.records.decoder import split_records
from aiokprod.records.headers import encode_headers
from aiokprod.waiting import EventKind

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod.explanation import Explanation
    from aiokprod.hooks import Server

BATCH_OVERHEAD_BYTES: Final = 61  # header of a v2 batch
LOG_APPEND_TIME: Final = TimestampType.LOG_APPEND_TIME  # looked up once: it is named for each awaited record
CREATE_TIME: Final = TimestampType.CREATE_TIME
MARK_EVERY_S: Final = 0.01  # records appended within this time share one deadline: the earliest of theirs

__all__ = [
    "BATCH_OVERHEAD_BYTES",
    "MARK_EVERY_S",
    "BatchOwner",
    "Claim",
    "Encoded",
    "ProducerBatch",
    "Range",
    "Segment",
    "SettledOwner",
]


class BatchOwner:
    """The owner of a batch, as the batch sees it: the queue of its partition; once the batch is finished, a `SettledOwner`."""

    __slots__ = ()

    topic: str
    partition: int
    loop: asyncio.AbstractEventLoop

    def urge(self, batch: ProducerBatch) -> None:
        """Let the batch go as soon as the connection allows: a waiter came."""
        raise AssertionError("abstract")

    def recall(self, batch: ProducerBatch, index: int) -> bool:
        """Take one record back."""
        raise AssertionError("abstract")

    def withdraw(self, batch: ProducerBatch, index: int, error: AiokprodError) -> bool:
        """Take an unstamped record out and fail it; False if it has been stamped."""
        raise AssertionError("abstract")

    def explain(self, batch: ProducerBatch, index: int) -> Explanation:
        """Return where a record without an outcome is, and why."""
        raise AssertionError("abstract")

    def tell_story(self, batch: ProducerBatch, ranges: list[Range], error: AiokprodError, now: float) -> None:
        """Add to the error what happened to these records until now, as a note."""
        raise AssertionError("abstract")

    def settled_owner(self) -> BatchOwner:
        """Return the owner for a finished batch, one that keeps no reference into the pipeline."""
        return self


class SettledOwner(BatchOwner):
    """A partition without its queue: the owner of its finished batches. One per partition.

    A settled Delivery that is kept keeps its batch, and would keep the queue, the pipeline and the user's hooks with it. If
    one of these keeps the Delivery, that is a cycle, and the collector does not see it (see `delivery.delivery`).
    """

    __slots__ = ("loop", "partition", "topic")

    def __init__(self, topic: str, partition: int, loop: asyncio.AbstractEventLoop) -> None:
        self.topic = topic
        self.partition = partition
        self.loop = loop

    def urge(self, batch: ProducerBatch) -> None:
        """Ignore the waiter: the batch is finished."""

    def recall(self, batch: ProducerBatch, index: int) -> bool:
        return False

    def withdraw(self, batch: ProducerBatch, index: int, error: AiokprodError) -> bool:
        return False

    def explain(self, batch: ProducerBatch, index: int) -> Explanation:
        # Asked by another thread while the loop settled the batch, which has the outcome by now.
        if batch.segment_of(index) is None:
            raise AssertionError(f"record {index} of a finished batch of {self.topic}-{self.partition} has no outcome")
        return batch.explain(index)

    def tell_story(self, batch: ProducerBatch, ranges: list[Range], error: AiokprodError, now: float) -> None:
        """Add nothing: each record has its outcome."""


class Encoded:
    """The record section of one batch, encoded once. Immutable: the transport may hold it for as long as it likes.

    The header is made when the batch is stamped.
    """

    __slots__ = ("codec", "section")

    def __init__(self, section: bytes | bytearray, codec: str) -> None:
        self.section = section
        self.codec = codec

    @property
    def size_bytes(self) -> int:
        """The size on the wire, header included."""
        return BATCH_OVERHEAD_BYTES + len(self.section)

    def __repr__(self) -> str:
        return f"<Encoded {self.size_bytes} bytes {self.codec}>"


def _first_cell(cell: bytes, index: int) -> list[bytes | None]:
    """Return a column that begins with this record: those before it have none."""
    column = list[bytes | None]([None] * index)
    column.append(cell)
    return column


class ProducerBatch(BatchOutcomes):
    """Columns of records, their Deliveries' outcomes, and the bytes charged for them."""

    __slots__ = (
        "_resting",
        "_retained",
        "_retained_codec",
        "_retained_ranges",
        "_sized_by",
        "_was_restored",
        "base_timestamp_ms",
        "delivery_timeout_s",
        "entry",
        "first_sent_at",
        "freed_bytes",
        "generation",
        "headers",
        "is_urgent",
        "is_written",
        "keys",
        "last_sent_at",
        "marked_at",
        "marks",
        "max_timestamp_ms",
        "number",
        "opened_at",
        "owner",
        "record_overhead_bytes",
        "sealed_at",
        "server",
        "size_bytes",
        "size_of_each",
        "sizes",
        "timeline",
        "timestamp_deltas",
        "values",
        "waited",
    )

    def __init__(
        self,
        owner: BatchOwner,
        opened_at: float,
        delivery_timeout_s: float,
        generation: int,
        record_overhead_bytes: int,
        base_timestamp_ms: int,
    ) -> None:
        super().__init__()
        self.owner = owner
        self.opened_at = opened_at  # monotonic seconds: when its first record was sent
        # The segments of its delivery time (monotonic seconds), written by the queue and the flusher, for the metrics.
        self.sealed_at = opened_at
        self.first_sent_at = 0.0  # 0: not written yet
        self.last_sent_at = 0.0  # of a batch that goes in parts: of any of them
        # Records of it may have been handed to a transport. Written by the flusher before the bytes are: after a crash the
        # entries of the ledger may be wrong, and this says what is certain.
        self.is_written = False
        self.server: Server | None = None  # of the last attempt, as `last_sent_at`; for interceptors
        self.number = 0  # given by `BatchHooks`, if there are any; below 0: no interceptor follows it
        self.delivery_timeout_s = delivery_timeout_s
        # Which flush() calls must wait for it. Lowered by `append_parked`, for a record that was sent before such a call.
        self.generation = generation
        self.record_overhead_bytes = record_overhead_bytes  # charged beside a record's bytes
        self.base_timestamp_ms = base_timestamp_ms
        self.max_timestamp_ms = base_timestamp_ms
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[bytes | None] | None = None  # encoded
        self.timestamp_deltas: list[int] | None = None  # to `base_timestamp_ms`; None: all are 0
        # Upper bound of each record's encoded size. Kept to the end, unlike the other columns: a record that settles alone
        # frees what was charged for it, long after its cells are gone.
        self.sizes: list[int] | None = None  # None: all are `size_of_each`
        self.size_of_each = 0
        self.size_bytes = BATCH_OVERHEAD_BYTES
        self.freed_bytes = 0  # of what was charged; written by `settle` only, so that each byte is given back once
        self.marks: list[tuple[int, float]] = [(0, opened_at)]  # (first index, time of its send)
        self.marked_at = opened_at
        # The ledger's; of a batch that is sent in parts the last one, whose records can still be recalled.
        self.entry: object | None = None
        # A task waits for one of its records. Set once and never cleared, though the task may be cancelled: its linger is
        # cut for nothing then, and no waiters have to be counted.
        self.is_urgent = False
        self._resting: tuple[tuple[Any, ...] | None, ...] | None = None  # the columns and `watched`, while it rests
        self._retained: bytes | bytearray | None = None  # the encoded section, once the columns are gone
        self._retained_codec = "none"
        self._retained_ranges: list[Range] = []
        # The keys and headers that are gone from the columns; None: there were none. With them `sizes` tells that of a value.
        # The columns themselves, which nothing changes any more: sizes, or a copy, would cost each record.
        self._sized_by: tuple[Sequence[bytes | None] | None, Sequence[bytes | None] | None] | None = None
        self.waited: Waited | None = None  # of its first record, if that was parked
        self.timeline: Timeline | None = None  # what happened to it besides the usual; None: nothing did
        self._was_restored = False  # taken apart: several sections are made of it, none of which holds all

    # ------------------------------------------------------------------ filling
    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> int:
        """Add one record that no gate is charged for; its index."""
        self.write(value, key, headers, timestamp_ms, size_bytes, now)
        self.count, self.size_bytes = self.count + 1, self.size_bytes + size_bytes
        return self.count - 1

    def write(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: bytes | None,
        timestamp_ms: int,
        size_bytes: int,
        now: float,
    ) -> None:
        """Write the cells of the next record, which the caller takes in. The hot path: no allocation but the cells."""
        index = self.count
        self.values.append(value)
        keys = self.keys
        if keys is not None:
            keys.append(key)
        elif key is not None:
            self.keys = _first_cell(key, index)
        pairs = self.headers
        if pairs is not None:
            pairs.append(headers)
        elif headers is not None:
            self.headers = _first_cell(headers, index)
        deltas = self.timestamp_deltas
        if deltas is not None or timestamp_ms != self.base_timestamp_ms:
            if deltas is None:
                deltas = self.timestamp_deltas = [0] * index
            deltas.append(timestamp_ms - self.base_timestamp_ms)
            if timestamp_ms > self.max_timestamp_ms:  # noqa: PLR1730 - `max` parses its arguments for keywords, each time
                self.max_timestamp_ms = timestamp_ms
        sizes = self.sizes
        if sizes is not None:
            sizes.append(size_bytes)
        elif size_bytes != self.size_of_each:
            self._add_other_size(index, size_bytes)
        # One time for all records of some milliseconds: a time for each would be one more column.
        if now - self.marked_at >= MARK_EVERY_S:
            self.marks.append((index, now))
            self.marked_at = now

    def extend(
        self, values: list[bytes | None], sizes: list[int], total_bytes: int, timestamp_ms: int, now: float
    ) -> int:
        """Add records without keys and headers, with one timestamp, that no gate is charged for; the index of the first."""
        self.write_many(values, sizes, timestamp_ms, now)
        self.count, self.size_bytes = self.count + len(values), self.size_bytes + total_bytes
        return self.count - len(values)

    def write_many(self, values: list[bytes | None], sizes: list[int], timestamp_ms: int, now: float) -> None:
        """Write the cells of records without keys and headers, with one timestamp; the caller takes them in."""
        index, count = self.count, len(values)
        self.values += values
        if self.keys is not None:
            self.keys += [None] * count
        if self.headers is not None:
            self.headers += [None] * count
        if self.timestamp_deltas is not None or timestamp_ms != self.base_timestamp_ms:
            if self.timestamp_deltas is None:
                self.timestamp_deltas = [0] * index
            self.timestamp_deltas += [timestamp_ms - self.base_timestamp_ms] * count
            self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        if not index:
            self.size_of_each = sizes[0]
        if self.sizes is not None or sizes.count(self.size_of_each) != count:
            if self.sizes is None:
                self.sizes = [self.size_of_each] * index
            self.sizes += sizes
        if now - self.marked_at >= MARK_EVERY_S:
            self.marks.append((index, now))
            self.marked_at = now

    def trim(self) -> None:
        """Take out the cells of a record that was not taken, after an exception.

        Without a call: where the stack has come to its end, a call would fail as well.
        """
        count = self.count
        del self.values[count:]
        if self.keys is not None:
            del self.keys[count:]
        if self.headers is not None:
            del self.headers[count:]
        if self.sizes is not None:
            del self.sizes[count:]
        newest_ms = self.base_timestamp_ms
        if self.timestamp_deltas is not None:
            del self.timestamp_deltas[count:]
            for delta in self.timestamp_deltas:
                if delta > newest_ms - self.base_timestamp_ms:
                    newest_ms = self.base_timestamp_ms + delta
        self.max_timestamp_ms = newest_ms
        if self.marks[-1][0] >= count and self.marks[-1] is not self.marks[0]:
            del self.marks[-1]
        self.marked_at = self.marks[-1][1]

    def check(self) -> None:
        """Check that each column has a cell for each record: what is encoded otherwise would be other records.

        Raises:
            AssertionError: a defect of ours. Nothing of the batch was sent.
        """
        count = self.count
        columns = (self.keys, self.headers, self.timestamp_deltas, self.sizes)
        lengths = [len(self.values), *[len(column) for column in columns if column is not None]]
        if lengths.count(count) != len(lengths):
            raise AssertionError(f"a batch of {count} records has columns of {lengths} cells: nothing of it is sent")

    def _add_other_size(self, index: int, size_bytes: int) -> None:
        """Note the size of the first record, or of one that has another size than all before it."""
        if index == 0:
            self.size_of_each = size_bytes
        else:
            sizes = [self.size_of_each] * index
            sizes.append(size_bytes)
            self.sizes = sizes

    @property
    def charged_bytes(self) -> int:
        """Bytes that the gate has charged for the batch and has not got back."""
        return self.size_bytes - BATCH_OVERHEAD_BYTES + self.count * self.record_overhead_bytes - self.freed_bytes

    # ------------------------------------------------------------------ waiting behind others
    def rest(self) -> None:
        """Keep the columns as tuples until they are needed: the batch takes no more records, and others go before it.

        The garbage collector looks at every cell of a list in each full collection. A tuple of objects that it does not track
        (bytes, numbers, compiled Deliveries) it leaves alone after the first look: without this, a million records that wait
        cost a collection a tenth of a second.
        """
        columns = (self.values, self.keys, self.headers, self.timestamp_deltas, self.sizes, self.watched)
        resting = tuple([None if column is None else tuple(column) for column in columns])
        no_values: list[bytes | None] = []
        self._resting, self.values, self.keys, self.headers = resting, no_values, None, None
        self.timestamp_deltas = self.sizes = None
        self.watched = []

    def _end_rest(self) -> None:
        """Make lists of the columns again."""
        resting = self._resting
        if resting is None:
            return
        values, keys, headers, deltas, sizes, watched = resting
        assert values is not None and watched is not None
        # Until the last line it rests, whatever fails: made again, the lists are the same.
        self.values = list(values)
        self.keys = None if keys is None else list(keys)
        self.headers = None if headers is None else list(headers)
        self.timestamp_deltas = None if deltas is None else list(deltas)
        self.sizes = None if sizes is None else list(sizes)
        awaited = [*watched, *self.watched]  # those that came meanwhile are behind
        self.watched, self._resting = awaited, None

    # ------------------------------------------------------------------ what the ledger asks
    def sealed_view(self) -> tuple[list[Range], int]:
        """Return the ranges of records that are still in the batch, and the newest record timestamp (ms)."""
        return self.live_ranges(), self.max_timestamp_ms

    def deadline_of(self, index: int) -> float:
        """Return when the delivery timeout of this record ends (monotonic seconds)."""
        return self.sent_at(index) + self.delivery_timeout_s

    def sent_at(self, index: int) -> float:
        """Return when `send` took the record, or up to `MARK_EVERY_S` earlier (monotonic seconds)."""
        at = bisect_right(self.marks, index, key=_first_of_mark) - 1
        return self.marks[at][1]

    def due(self, first_index: int, now: float) -> int:
        """Count the records, from `first_index` on without a gap, that are past their deadline."""
        return self.end_of_due(first_index, now) - first_index

    def end_of_due(self, first_index: int, now: float) -> int:
        """Return the index behind the records, from `first_index` on without a gap, that are past their deadline."""
        index = first_index
        while index < self.count and self.deadline_of(index) <= now:
            at = bisect_right(self.marks, index, key=_first_of_mark)
            index = self.marks[at][0] if at < len(self.marks) else self.count
        return index

    def bytes_of(self, ranges: list[Range]) -> int:
        """Return the bytes of these records before compression, an upper bound."""
        return sum([self.bytes_between(first, last) for first, last in ranges])

    def bytes_between(self, first: int, last: int) -> int:
        """Return the bytes of the records `first` to `last` (exclusive) before compression, an upper bound."""
        self._end_rest()
        sizes = self.sizes
        return (last - first) * self.size_of_each if sizes is None else sum(sizes[first:last])

    def fitting(self, ranges: list[Range], limit_bytes: int) -> int:
        """Return how many of these records, from the first on, fit into `limit_bytes`."""
        left = limit_bytes
        count = 0
        for first, last in ranges:
            for index in range(first, last):
                left -= self.size_of(index)
                if left < 0:
                    return count
                count += 1
        return count

    # ------------------------------------------------------------------ encoding
    def encode(self, ranges: list[Range]) -> bytes | bytearray:
        """Encode the record section (uncompressed) of these records, offsets from 0."""
        self._end_rest()
        if self._retained is not None:
            # It was sent before (or is one of columns) and goes as another batch now: a part of it (MESSAGE_TOO_LARGE), or
            # without the records that were refused by name (INVALID_RECORD, broker: 4.10).
            self._restore()
        self.check()
        values, keys, headers, deltas = self.values, self.keys, self.headers, self.timestamp_deltas
        if ranges == [(0, self.count)]:
            return encode_records(values, keys, headers, deltas)
        return encode_records(
            [value for first, last in ranges for value in values[first:last]],
            None if keys is None else [key for first, last in ranges for key in keys[first:last]],
            None if headers is None else [item for first, last in ranges for item in headers[first:last]],
            None if deltas is None else [delta for first, last in ranges for delta in deltas[first:last]],
        )

    def release_columns(self, section: bytes | bytearray, codec: str, ranges: list[Range]) -> None:
        """Keep the section, compressed by `codec`, instead of values, keys and headers: of all records that are left."""
        # Not after a split: the section of one part does not hold the records of the others, which are not encoded yet.
        if self._retained is None and not self._was_restored:
            self._retained = section
            self._retained_codec = codec
            self._retained_ranges = list(ranges)
            self._keep_sizes()
            self.values = []
            self.keys = None
            self.headers = None

    def _keep_sizes(self) -> None:
        """Keep what tells the sizes of keys and values, as keys and headers are about to leave the columns."""
        keys, headers = self.keys, self.headers
        if keys is not None or headers is not None:
            self._sized_by = keys, headers

    def _restore(self) -> None:
        """Fill the columns again from the retained section, after a split or a refusal by name (both rare)."""
        section, ranges = self._retained, self._retained_ranges
        assert section is not None
        count = sum(last - first for first, last in ranges)
        plain = decompress(self._retained_codec, bytes(section), self.size_bytes)
        # A section has only the records that were left when it was encoded; the others have settled and need no cells.
        values, keys, pairs, _ = split_records(plain, count)
        headers = None if pairs is None else [None if each is None else encode_headers(each) for each in pairs]
        self.values = [None] * self.count
        self.keys = None if keys is None else list[bytes | None]([None] * self.count)
        self.headers = None if headers is None else list[bytes | None]([None] * self.count)
        at = 0
        for first, last in ranges:
            size = last - first
            self.values[first:last] = values[at : at + size]
            if keys is not None and self.keys is not None:
                self.keys[first:last] = keys[at : at + size]
            if headers is not None and self.headers is not None:
                self.headers[first:last] = headers[at : at + size]
            at += size
        self._retained = None
        self._was_restored = True

    def keep(self, indices: Sequence[int], segment: Segment) -> KeptRecords:
        """Return these records, which are about to fail. Call it before `settle`, which lets go of them.

        A batch that fails as a whole is decoded when its records are looked at. One that fails bit by bit is decoded now, once,
        and has its cells from then on, as if it had been split: each bit would decode all of it again.
        """
        self._end_rest()
        kept = KeptRecords(self.owner.topic, self.owner.partition, self.base_timestamp_ms, indices)
        section = self._retained
        if section is not None and segment.last - segment.first < self.count:
            self._restore()
            section = None
        if section is None:
            kept.hold_cells(self.values, self.keys, self.headers, self.timestamp_deltas)
        else:
            kept.hold_section(section, self._retained_codec, self.count, self.size_bytes)
        return kept

    # ------------------------------------------------------------------ settling
    def settle(self, segment: Segment) -> int:
        """Give these records their outcome and wake the tasks that wait for them; return the bytes that are free now.

        The caller gives the bytes back to the gate and reports failures that nothing waited for.
        """
        self._end_rest()
        self._keep(segment)
        if self.is_finished:
            # All that is left, not the sum of this segment: it is exact by itself, whatever was freed before.
            freed = self.charged_bytes
            self._let_go()
        else:
            freed = self.bytes_between(segment.first, segment.last)
            freed += self.record_overhead_bytes * (segment.last - segment.first)
        # Last: the books are closed when a waiter is told. `_wake` only schedules; no code of the user runs within.
        self.freed_bytes += freed
        self._wake(segment)
        return freed

    def _let_go(self) -> None:
        """Drop what a batch needs until all its records have their outcome."""
        if self.whole is None and not self.has_delivered():
            self._sized_by = None
        elif self._sized_by is None:
            self._keep_sizes()
        self.values = []
        self.keys = None
        self.headers = None
        self._retained = None
        self.shared = None  # a Delivery that is kept would keep the function, and what that refers to
        self.owner = self.owner.settled_owner()
        self.entry = None  # it has the section, and refers to this batch: both would stay until the collector comes

    def end(self) -> None:
        """Wake all that waits, wherever `settle` has ended: after a crash, when each record has its outcome."""
        self._end_rest()
        self._let_go()
        self._wake_all()

    def unwatched(self, segment: Segment) -> list[int]:
        self._end_rest()
        return super().unwatched(segment)

    def has_deliveries(self) -> bool:
        """Return whether a caller may ask for the outcome of a record later."""
        return True

    # ------------------------------------------------------------------ what a Delivery asks
    def is_delivered(self, index: int) -> bool:
        return self.whole is not None

    def metadata(self, index: int) -> RecordMetadata | None:
        segment = self.whole
        if segment is None:
            segment = self.segment_of(index)
            if segment is None or segment.error is not None:
                return None
        offset = segment.base_offset + index - segment.first if segment.base_offset >= 0 else None
        if segment.timestamp_ms >= 0:
            timestamp, kind = segment.timestamp_ms, LOG_APPEND_TIME
        else:
            deltas = self.timestamp_deltas
            timestamp = self.base_timestamp_ms if deltas is None else self.base_timestamp_ms + deltas[index]
            kind = CREATE_TIME
        owner, sizes = self.owner, self.sizes
        value_size = (self.size_of_each if sizes is None else sizes[index]) - SMALL_FIXED_BOUND
        key_size = -1
        if self._sized_by is not None or value_size >= SMALL_VALUE_BYTES or self.whole is None:
            key_size, value_size = self._data_sizes(index)
        return RecordMetadata(
            owner.topic, owner.partition, offset, timestamp, kind, key_size, value_size, segment.is_duplicate
        )

    def _data_sizes(self, index: int) -> tuple[int, int]:
        """Return the sizes of key and value of a record; -1 for null."""
        keys: Sequence[bytes | None] | None = self.keys
        pairs: Sequence[bytes | None] | None = self.headers
        if self._sized_by is not None:
            keys, pairs = self._sized_by
        key = None if keys is None else keys[index]
        headers = None if pairs is None else pairs[index]
        key_size = -1 if key is None else len(key)
        return key_size, value_size_of(self.size_of(index), key_size, 0 if headers is None else len(headers))

    def error(self, index: int) -> AiokprodError | None:
        segment = self.segment_of(index)
        if segment is None:
            return None
        error = segment.error_of(index)
        if error is not None and error.elapsed_s is not None:
            error.elapsed_s = segment.settled_at - self.sent_at(index)  # they have one error, and each its own send
        return error

    def attempts(self, index: int) -> int:
        segment = self.segment_of(index)
        return segment.attempts if segment is not None else 0

    def batch_number(self) -> int:
        return max(0, self.number)

    def written_to(self) -> Server | None:
        return self.server

    def size_of(self, index: int) -> int:
        self._end_rest()
        sizes = self.sizes
        return self.size_of_each if sizes is None else sizes[index]

    def latency_s(self, index: int) -> float:
        segment = self.segment_of(index)
        return segment.settled_at - self.sent_at(index) if segment is not None else 0.0

    def watch(self, delivery: Delivery) -> None:
        self.urge()
        self.watched.append(delivery)

    def listen(self, delivery: Delivery, function: Callable[[Any], object]) -> DoneCallback | None:
        # For each record with a done callback: no call that can be spared.
        if self.settled_count and self.segment_of(delivery._index) is not None:  # pyright: ignore[reportPrivateUsage]
            return None
        if not self.is_urgent:
            self.urge()
        shared = self.shared
        if shared is None:
            shared = self.shared = SharedCallback()
        callback = shared.of(function, self.owner.loop)
        self.watched.append(delivery)  # the last that may fail: without a listener it is watched for nothing
        return callback

    def urge(self) -> None:
        """Note that a task waits: one flag, no counting."""
        if not self.is_urgent:
            self.owner.urge(self)
            self.is_urgent = True  # behind the call, which may fail: the next one that waits calls it again

    def recall(self, index: int) -> bool:
        return self.owner.recall(self, index)

    def withdraw(self, index: int, error: AiokprodError) -> bool:
        error.topic, error.partition = self.owner.topic, self.owner.partition
        return self.owner.withdraw(self, index, error)

    def happened(self, happening: Happening) -> None:
        """Note something for explanations. Only where something goes wrong, or takes long: never per record."""
        if self.timeline is None:
            self.timeline = Timeline()
        self.timeline.add(happening)

    def explain(self, index: int) -> Explanation:
        from aiokprod.explanation import Event, Explanation, Place

        segment = self.segment_of(index)
        if segment is None:
            return self.owner.explain(self, index)
        sent_at = self.sent_at(index)
        latency_s = max(0.0, segment.settled_at - sent_at)
        error = segment.error_of(index)
        if error is None:
            place, kind = Place.DELIVERED, EventKind.DELIVERED
            why = (
                f"offset {segment.base_offset + index - segment.first}"
                if segment.base_offset >= 0
                else "offset unknown"
            )
        else:
            place, kind = Place.FAILED, EventKind.FAILED
            why = f"{type(error).__name__}: {error.message}"
        told = merged(self.timeline, None, index, index + 1, sent_at, self.opened_at, self.waited)
        # Without what happened to others of the batch later.
        told = [each for each in told if each.at <= segment.settled_at]
        return Explanation(
            topic=self.owner.topic,
            partition=self.owner.partition,
            place=place,
            waits_for=None,
            why=why,
            age_s=latency_s,
            since_s=0.0,
            attempts=segment.attempts,
            events=(
                Event(at_s=0.0, kind=EventKind.ACCEPTED, text="accepted"),
                *[each.event(sent_at) for each in told],
                Event(at_s=latency_s, kind=kind, text=place.value),
            ),
        )

    def event_loop(self) -> asyncio.AbstractEventLoop:
        return self.owner.loop

    def __repr__(self) -> str:
        return (
            f"<ProducerBatch {self.owner.topic}-{self.owner.partition} {self.count} records {self.size_bytes} bytes "
            f"{self.settled_count} settled>"
        )


# No lambdas: compiled, a method that has one makes an object for it whenever it is called.
def _first_of_mark(mark: tuple[int, float]) -> int:
    return mark[0]
