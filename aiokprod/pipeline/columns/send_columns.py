"""`ColumnsSend`: one call of `send_columns`, from its columns to its report. No object for each row.

    check all -> its turn -> chunk: partitions -> cut into batches -> wait for room -> encode -> append   (until the end)
                                                                            outcomes of batches -> report

Everything is checked before anything is taken. A chunk is charged before it is made, with what it can need at most; what
it did not need is given back at once. Between the grant and the last append of a chunk nothing is awaited, so a chunk is
in its partitions as a whole, in the order of its rows. Calls of one topic take their rows one call after the other, in the
order in which they were made; none waits for the outcomes of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiokprod.errors import (
    AiokprodError,
    ColumnsPartition,
    ColumnsPlacement,
    ColumnsReport,
    InvalidTimestampError,
    PartitionOutOfRangeError,
)
from aiokprod.model import Persistence
from aiokprod.pipeline.columns.column_encoder import best_encoder
from aiokprod.pipeline.columns.column_partitions import choose_partitions
from aiokprod.pipeline.columns.tickets import Tickets
from aiokprod.pipeline.partition.batch import BATCH_OVERHEAD_BYTES, Segment
from aiokprod.pipeline.partition.column_batch import COLUMN_BATCH_BYTES, ROW_NUMBER_BYTES, BatchListener, ColumnBatch
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.sending.dispatcher import TopicDispatcher
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.pipeline.sending.record_checks import LAST_TIMESTAMP_MS, RecordChecks
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.records.column_rows import ANY_PARTITION, MOST_ROWS, ColumnTable, Cut, Encoder, PlainEncoder, Rows

MOST_CHUNK_BYTES: Final = 4_194_304
CHUNKS_IN_BUFFER: Final = 4
"""buffer_memory holds at least this many chunks."""


class ColumnsSend(BatchListener):
    """One call of `send_columns`: the outcome of each row so far."""

    def __init__(
        self,
        context: PipelineContext,
        parking: Parking,
        checks: RecordChecks,
        tickets: Tickets,
        topic: str,
        table: ColumnTable,
        closed_error: Callable[[str | None], AiokprodError],
        keeps_placements: bool,
    ) -> None:
        self.is_listening = True
        self.report = ColumnsReport()
        self._reports = context.reports
        self._parking = parking
        self._opening = parking.opening
        self._checks = checks
        self._tickets = tickets
        self._topic = topic
        self._table = table
        self._encoder: Encoder = PlainEncoder()  # until `run` knows a better one
        self._closed_error = closed_error
        self._keeps_placements = keeps_placements
        self.unused_bytes = 0
        self.taken = 0
        self.unsettled = 0
        self._all_settled: asyncio.Future[None] | None = None
        # Failures of one kind together, with an error that stands for them: those that may be in the log and those that are
        # certainly not are told apart, also in one partition.
        self._failures: dict[tuple[str, int, type[AiokprodError], Persistence | None], tuple[AiokprodError, int]] = {}
        self._batch_bytes = 1  # of records in a batch, of the chunk that is being taken

    async def run(self) -> ColumnsReport:
        """Send all rows, wait for all outcomes.

        Raises:
            RecordTooLargeError, PartitionOutOfRangeError, ...: nothing was taken.

        Cancellation: stops taking; rows already taken go on, and their failures are reported to `on_delivery_error`.
        """
        ticket = self._tickets.join(self._topic)  # before anything is awaited
        try:
            try:
                self._encoder = await best_encoder()
                await self._check()
                await ticket.wait()
                await self.take()
            except AiokprodError as refused:
                if not self.taken:
                    raise
                self.report.untaken = self._table.count - self.taken
                self.report.untaken_error = refused
            finally:
                ticket.end()
            if self.unsettled:
                self._all_settled = asyncio.get_running_loop().create_future()
                await self._all_settled
        except BaseException:  # cancelled; or nothing was taken; or an exception that came between two lines
            self.is_listening = False
            for error, count in self._failures.values():
                self._reports.failed_outside(error, count)
            raise
        return self.report

    # ------------------------------------------------------------------ checks
    async def _check(self) -> None:
        """Check all rows: nothing is taken of a table with a row that cannot be sent."""
        table, encoder = self._table, self._encoder
        count = len(await self._parking.partitions_for(self._topic, None))
        if table.timestamps is not None and table.count:
            (time,) = table.timestamps.rows(0, 1)  # one row is enough: all have the same unit
            self._checks.look_at_unit(time or 0, self._topic)
        for first in range(0, table.count, MOST_ROWS):
            last = min(table.count, first + MOST_ROWS)
            larger = encoder.first_larger(table, first, last, self._checks.largest_record_bytes)
            if larger is not None:
                row, size_bytes = larger
                raise self._of_row(self._checks.too_large(size_bytes, self._topic), row)
            if table.partitions is not None:
                outside = encoder.first_outside(table.partitions, first, last, 0, count - 1)
                if outside is not None:
                    raise self._no_partition(table.partitions.numbers[outside], count, outside)
            if table.timestamps is not None:
                outside = encoder.first_outside(table.timestamps, first, last, 0, LAST_TIMESTAMP_MS)
                if outside is not None:
                    text = f"timestamp_ms {table.timestamps.numbers[outside]} is not between 0 and 2**63 - 1"
                    raise self._of_row(InvalidTimestampError(text, topic=self._topic), outside)
            await asyncio.sleep(0)

    def _no_partition(self, partition: int, count: int, row: int) -> AiokprodError:
        text = f"partition {partition} does not exist: topic {self._topic!r} has partitions 0 to {count - 1}"
        error = PartitionOutOfRangeError(
            text, topic=self._topic, partition=partition, persistence=Persistence.NOT_PERSISTED
        )
        return self._of_row(error, row)

    @staticmethod
    def _of_row(error: AiokprodError, row: int) -> AiokprodError:
        error.row = row
        return error

    # ------------------------------------------------------------------ taking
    async def take(self) -> None:
        """Take all rows, chunk by chunk, as fast as there is room."""
        while self.taken < self._table.count:
            await self._take_chunk()
            await asyncio.sleep(0)

    async def _take_chunk(self) -> None:
        """Take the next chunk."""
        parking, table = self._parking, self._table
        gate = parking.gate
        chunk_bytes = 0
        while True:
            dispatcher = await self._known_dispatcher()
            partition_count = dispatcher.count
            batch_bytes = dispatcher.fill.limit_bytes - BATCH_OVERHEAD_BYTES
            self._batch_bytes = max(1, min(batch_bytes, self._checks.largest_record_bytes))
            if not chunk_bytes:
                wanted = max(self._encoder.chunk_bytes, self._batch_bytes * partition_count)
                chunk_bytes = max(1, min(wanted, MOST_CHUNK_BYTES, gate.limit_bytes // CHUNKS_IN_BUFFER))
            rows = self._encoder.rows(table, self.taken, chunk_bytes)
            self._check_partitions(rows, partition_count)
            partitions = choose_partitions(dispatcher.partitioner, table, rows, self._batch_bytes)
            cuts = rows.cut(partitions, self._batch_bytes)
            charges = [self._charge(cut, cut.bound_bytes, partitions is not None) for cut in cuts]
            charged = sum(charges)
            if charged > gate.limit_bytes and rows.count > 1:
                chunk_bytes = max(1, chunk_bytes // 2)  # a small buffer and many partitions
                continue
            await parking.room(charged)
            try:
                self.unused_bytes = charged
                is_open = parking.is_open and parking.opening == self._opening
                if dispatcher.is_known and dispatcher.count == partition_count and is_open:
                    self._append(dispatcher, rows, cuts, charges, partitions is not None)
                    return
            finally:
                unused, self.unused_bytes = self.unused_bytes, 0
                if unused:
                    parking.not_taken(unused)

    async def _known_dispatcher(self) -> TopicDispatcher:
        """Return the topic's dispatcher, while its partitions are known."""
        if not self._parking.is_open:
            raise self._closed_error(self._topic)  # with the topic, which the refusal of the parking does not know
        self._parking.check_same(self._opening)
        dispatcher = self._parking.dispatcher(self._topic)
        if not dispatcher.is_known:
            await self._parking.partitions_for(self._topic, None)
            dispatcher = self._parking.dispatcher(self._topic)  # the other one may have been forgotten meanwhile
            if not dispatcher.is_known:
                raise self._parking.unknown_topic(self._topic, 0.0)
        return dispatcher

    def _check_partitions(self, rows: Rows, partition_count: int) -> None:
        """Check the partitions again: the topic may have lost some since all was checked."""
        column = self._table.partitions
        if column is not None:
            row = self._encoder.first_outside(column, rows.first, rows.first + rows.count, 0, partition_count - 1)
            if row is not None:
                raise self._no_partition(column.numbers[row], partition_count, row)

    def _charge(self, cut: Cut, section_bytes: int, has_numbers: bool) -> int:
        """Return the bytes to charge for a batch; never more than the gate can give."""
        held_bytes = section_bytes + COLUMN_BATCH_BYTES
        if has_numbers:
            held_bytes += ROW_NUMBER_BYTES * (cut.last - cut.first)
        return min(held_bytes, self._parking.gate.limit_bytes)

    def _append(
        self, dispatcher: TopicDispatcher, rows: Rows, cuts: list[Cut], charges: list[int], has_numbers: bool
    ) -> None:
        """Encode the chunk, for which there is room, and give it to its partitions."""
        partitioner = dispatcher.partitioner
        sections = rows.encode(wall_ms())
        for number, (cut, section) in enumerate(zip(cuts, sections, strict=True)):
            partition = cut.partition
            if partition == ANY_PARTITION:
                is_last = number == len(cuts) - 1
                size_bytes = cut.bound_bytes if is_last else self._batch_bytes
                partition = partitioner.choose(None, size_bytes + BATCH_OVERHEAD_BYTES)
            charge_bytes = min(charges[number], self._charge(cut, len(section.records), has_numbers))
            dispatcher.queue_of(partition).append_columns(section, rows.numbers(cut), charge_bytes, self)

    # ------------------------------------------------------------------ outcomes
    def settled(self, batch: ColumnBatch, segment: Segment, size_bytes: int) -> None:
        """Note the outcome of a part of a batch."""
        count = segment.last - segment.first
        partition = batch.owner.partition
        if segment.error is None:
            if self._keeps_placements:
                self._keep_placement(batch, segment)
            self.delivered(partition, count, size_bytes, segment.base_offset)
        else:
            error = segment.error_of(segment.first)
            assert error is not None
            self.failed(partition, count, int(batch.rows[segment.first]), error)  # rows ascend

    def delivered(self, number: int, count: int, size_bytes: int, base_offset: int) -> None:
        """Count rows that are in the log of this partition, one behind the other; `base_offset` -1: not known."""
        self.report.delivered += count
        partition = self._partition(number)
        partition.count += count
        partition.bytes += size_bytes
        if base_offset >= 0:
            first, last = base_offset, base_offset + count - 1
            known_first, known_last = partition.first_offset, partition.last_offset
            partition.first_offset = first if known_first is None else min(first, known_first)
            partition.last_offset = last if known_last is None else max(last, known_last)
        self._count_out(count)

    def failed(self, number: int, count: int, row: int, error: AiokprodError) -> None:
        """Count rows of this partition that failed; `row` is the first of them, and `error` its error."""
        self.report.failed += count
        partition = self._partition(number)
        partition.failed += count
        if error.persistence is Persistence.POSSIBLY_PERSISTED:
            self.report.possibly_persisted += count
            partition.possibly_persisted += count
        if partition.first_failed_row is None or row < partition.first_failed_row:
            partition.first_failed_row = row
            partition.first_error = self._of_row(error, row)
        kind = (self._topic, number, type(error), error.persistence)
        known = self._failures.get(kind)
        self._failures[kind] = (error, count) if known is None else (known[0], known[1] + count)
        self._count_out(count)

    def _partition(self, number: int) -> ColumnsPartition:
        key = (self._topic, number)
        partition = self.report.partitions.get(key)
        if partition is None:
            partition = self.report.partitions[key] = ColumnsPartition()
        return partition

    def _count_out(self, count: int) -> None:
        self.unsettled -= count
        if not self.unsettled and self._all_settled is not None and not self._all_settled.done():
            self._all_settled.set_result(None)

    def _keep_placement(self, batch: ColumnBatch, segment: Segment) -> None:
        self.report.placements.append(
            ColumnsPlacement(
                topic=batch.owner.topic,
                partition=batch.owner.partition,
                base_offset=segment.base_offset if segment.base_offset >= 0 else None,
                rows=batch.rows[segment.first : segment.last],
            )
        )
