"""`ColumnsSend`: one call of `send_columns`, from its columns to its report. No object for each row.

    check all -> my turn -> chunk: partitions -> cut into batches -> wait for room -> encode -> append   (until the end)
                                                                            outcomes of batches -> report

Everything is checked before anything is taken. A chunk is charged before it is made, with what it can need at most; what
it did not need is given back at once. Between the grant and the last append of a chunk nothing is awaited, so a chunk is
in its partitions as a whole, in the order of its rows. Calls of one topic take their rows one call after the other, in the
order in which they were made; none waits for the outcomes of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from aiokprod.errors import AiokprodError, InvalidTimestampError, PartitionOutOfRangeError
from aiokprod.model import ColumnsPartition, ColumnsPlacement, ColumnsReport, Persistence
from aiokprod.pipeline.batch import BATCH_OVERHEAD_BYTES, Segment
from aiokprod.pipeline.column_batch import COLUMN_BATCH_BYTES, ROW_NUMBER_BYTES, BatchListener, ColumnBatch
from aiokprod.pipeline.column_encoder import best_encoder
from aiokprod.pipeline.column_partitions import choose_partitions
from aiokprod.pipeline.dispatcher import TopicDispatcher
from aiokprod.pipeline.entrance import Entrance
from aiokprod.pipeline.intake import LAST_TIMESTAMP_MS, Intake
from aiokprod.pipeline.ports import House
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.records.column_rows import ANY_PARTITION, MOST_ROWS, ColumnTable, Cut, Encoder, PlainEncoder, Rows

MOST_CHUNK_BYTES: Final = 4_194_304
CHUNKS_IN_BUFFER: Final = 4
"""at least so many chunks have room in buffer_memory"""


class ColumnsSend(BatchListener):
    """What became of each row so far."""

    def __init__(
        self,
        house: House,
        entrance: Entrance,
        intake: Intake,
        topic: str,
        table: ColumnTable,
        partitions_for: Callable[[str, float | None], Coroutine[Any, Any, list[int]]],
        closed_error: Callable[[str | None], AiokprodError],
        keeps_placements: bool,
    ) -> None:
        self.is_listening = True
        self.report = ColumnsReport()
        self._house = house
        self._entrance = entrance
        self._intake = intake
        self._topic = topic
        self._table = table
        self._encoder: Encoder = PlainEncoder()  # until `run` knows a better one
        self._partitions_for = partitions_for
        self._closed_error = closed_error
        self._keeps_placements = keeps_placements
        self._taken = 0
        self._unsettled = 0
        self._all_settled: asyncio.Future[None] | None = None
        batch_bytes = house.settings.batch_bytes
        self._batch_bytes = max(1, min(batch_bytes - BATCH_OVERHEAD_BYTES, intake.largest_record_bytes))

    async def run(self) -> ColumnsReport:
        """Send all rows, wait for all outcomes.

        Raises:
            RecordTooLargeError, PartitionOutOfRangeError, ...: nothing was taken.

        Cancellation: stops taking; what was taken goes on, and what fails of it is nobody's.
        """
        turn = self._entrance.column_turns.join(self._topic)  # before anything is awaited
        try:
            try:
                self._encoder = await best_encoder()
                await self._check()
                await turn.come()
                await self._take()
            except AiokprodError as refused:
                if not self._taken:
                    raise
                self.report.untaken = self._table.count - self._taken
                self.report.untaken_error = refused
            finally:
                turn.end()
            if self._unsettled:
                self._all_settled = asyncio.get_running_loop().create_future()
                await self._all_settled
        except asyncio.CancelledError:
            self.is_listening = False
            for partition in self.report.partitions.values():
                if partition.first_error is not None:
                    self._house.effects.begin()
                    self._house.failed(partition.first_error, partition.failed)
                    self._house.effects.end()
            raise
        return self.report

    # ------------------------------------------------------------------ checks
    async def _check(self) -> None:
        """Nothing is taken of a table with a row that cannot be sent."""
        table, encoder = self._table, self._encoder
        count = len(await self._partitions_for(self._topic, None))
        for first in range(0, table.count, MOST_ROWS):
            last = min(table.count, first + MOST_ROWS)
            larger = encoder.first_larger(table, first, last, self._intake.largest_record_bytes)
            if larger is not None:
                row, size_bytes = larger
                raise self._of_row(self._intake.too_large(size_bytes, self._topic), row)
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
    async def _take(self) -> None:
        """All rows, chunk by chunk, as fast as there is room."""
        while self._taken < self._table.count:
            await self._take_chunk()
            await asyncio.sleep(0)

    async def _take_chunk(self) -> None:
        """The next chunk."""
        entrance, table = self._entrance, self._table
        gate = entrance.gate
        chunk_bytes = 0
        while True:
            dispatcher = await self._known_dispatcher()
            partition_count = dispatcher.count
            if not chunk_bytes:
                wanted = max(self._encoder.chunk_bytes, self._batch_bytes * partition_count)
                chunk_bytes = max(1, min(wanted, MOST_CHUNK_BYTES, gate.limit_bytes // CHUNKS_IN_BUFFER))
            rows = self._encoder.rows(table, self._taken, chunk_bytes)
            self._check_partitions(rows, partition_count)
            partitions = choose_partitions(dispatcher.partitioner, table, rows, self._batch_bytes)
            cuts = rows.cut(partitions, self._batch_bytes)
            charges = [self._charge(cut, cut.bound_bytes, partitions is not None) for cut in cuts]
            charged = sum(charges)
            if charged > gate.limit_bytes and rows.count > 1:
                chunk_bytes = max(1, chunk_bytes // 2)  # a small buffer and many partitions
                continue
            await entrance.room(charged)
            if dispatcher.is_known and dispatcher.count == partition_count and entrance.is_open:
                break
            entrance.not_taken(charged)
        self._append(dispatcher, rows, cuts, charges, partitions is not None)

    async def _known_dispatcher(self) -> TopicDispatcher:
        """The topic's, while its partitions are known."""
        if not self._entrance.is_open:
            raise self._closed_error(self._topic)
        dispatcher = self._entrance.dispatcher(self._topic)
        if not dispatcher.is_known:
            await self._partitions_for(self._topic, None)
            dispatcher = self._entrance.dispatcher(self._topic)  # the other one may have been forgotten meanwhile
            if not dispatcher.is_known:
                raise self._entrance.unknown_topic(self._topic, 0.0)
        return dispatcher

    def _check_partitions(self, rows: Rows, partition_count: int) -> None:
        """The topic may have lost partitions since all was checked."""
        column = self._table.partitions
        if column is not None:
            row = self._encoder.first_outside(column, rows.first, rows.first + rows.count, 0, partition_count - 1)
            if row is not None:
                raise self._no_partition(column.numbers[row], partition_count, row)

    def _charge(self, cut: Cut, section_bytes: int, has_numbers: bool) -> int:
        """What a batch holds; never more than there can be."""
        held_bytes = section_bytes + COLUMN_BATCH_BYTES
        if has_numbers:
            held_bytes += ROW_NUMBER_BYTES * (cut.last - cut.first)
        return min(held_bytes, self._entrance.gate.limit_bytes)

    def _append(
        self, dispatcher: TopicDispatcher, rows: Rows, cuts: list[Cut], charges: list[int], has_numbers: bool
    ) -> None:
        """Encode the chunk, for which there is room, and give it to its partitions."""
        partitioner = dispatcher.partitioner
        unused = sum(charges)
        try:
            sections = rows.encode(wall_ms())
            for number, (cut, section) in enumerate(zip(cuts, sections, strict=True)):
                partition = cut.partition
                if partition == ANY_PARTITION:
                    is_last = number == len(cuts) - 1
                    size_bytes = cut.bound_bytes if is_last else self._batch_bytes
                    partition = partitioner.choose(None, size_bytes + BATCH_OVERHEAD_BYTES)
                charge_bytes = min(charges[number], self._charge(cut, len(section.records), has_numbers))
                unused -= charge_bytes
                count = cut.last - cut.first
                self._taken += count
                self._unsettled += count
                dispatcher.queue_of(partition).append_columns(section, rows.numbers(cut), charge_bytes, self)
        finally:
            if unused:
                self._entrance.not_taken(unused)

    # ------------------------------------------------------------------ outcomes
    def settled(self, batch: ColumnBatch, segment: Segment, size_bytes: int) -> None:
        """Part of a batch has its outcome."""
        count = segment.last - segment.first
        key = (batch.owner.topic, batch.owner.partition)
        partition = self.report.partitions.get(key)
        if partition is None:
            partition = self.report.partitions[key] = ColumnsPartition()
        if segment.error is None:
            self.report.delivered += count
            partition.count += count
            partition.bytes += size_bytes
            if self._keeps_placements:
                self._keep_placement(batch, segment)
            if segment.base_offset >= 0:
                first, last = segment.base_offset, segment.base_offset + count - 1
                known_first, known_last = partition.first_offset, partition.last_offset
                partition.first_offset = first if known_first is None else min(first, known_first)
                partition.last_offset = last if known_last is None else max(last, known_last)
        else:
            self.report.failed += count
            partition.failed += count
            row = int(batch.rows[segment.first])  # they ascend
            if partition.first_failed_row is None or row < partition.first_failed_row:
                partition.first_failed_row = row
                partition.first_error = self._of_row(segment.error.clone(), row)
        self._unsettled -= count
        if not self._unsettled and self._all_settled is not None and not self._all_settled.done():
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
