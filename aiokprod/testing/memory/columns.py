"""`send_columns` of a `MemoryProducer`: a `send` for each row, so that scripts reach every one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from aiokprod.errors import AiokprodError, ColumnsPlacement
from aiokprod.pipeline.columns.send_columns import ColumnsSend
from aiokprod.pipeline.columns.tickets import Tickets
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.context import PipelineContext
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.records.column_rows import ColumnTable
from aiokprod.records.decoder import decode_headers

ROWS_OF_A_TURN: Final = 100  # between two turns of the loop


class MemoryColumnsSend(ColumnsSend):
    """One call of `send_columns`, which takes row by row. `bytes` of its report are bounds: nothing is encoded here."""

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
        send: Callable[..., Any],
    ) -> None:
        """Make the call; `send` is that of the producer."""
        super().__init__(context, parking, checks, tickets, topic, table, closed_error, keeps_placements)
        self._send = send

    async def take(self) -> None:
        """Take all rows, one by one, as fast as there is room."""
        table = self._table
        count = table.count
        values = table.values.slices(0, count)
        keys = [None] * count if table.keys is None else table.keys.slices(0, count)
        headers = [None] * count if table.headers is None else table.headers.encoded(0, count)
        partitions = [None] * count if table.partitions is None else table.partitions.rows(0, count)
        times = [None] * count if table.timestamps is None else table.timestamps.rows(0, count)
        for row in range(count):
            if row % ROWS_OF_A_TURN == 0:
                await asyncio.sleep(0)
            await self._parking.ready()
            self._parking.check_same(self._opening)
            encoded = headers[row]
            pairs = () if encoded is None else decode_headers(encoded)
            delivery: Delivery = self._send(
                self._topic, values[row], keys[row], partition=partitions[row], headers=pairs, timestamp_ms=times[row]
            )
            self.taken += 1
            self.unsettled += 1
            delivery.add_done_callback(
                partial(self._heard, row)
            )  # the Delivery is a watched one: its failure comes here

    def _heard(self, row: int, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self.failed(-1 if error.partition is None else error.partition, 1, row, error)
            if not self.is_listening:  # cancelled: the caller does not see the report
                self._reports.failed_outside(error, 1)
            return
        done = delivery.result()
        if self._keeps_placements:
            self.report.placements.append(
                ColumnsPlacement(topic=done.topic, partition=done.partition, base_offset=done.offset, rows=(row,))
            )
        self.delivered(done.partition, 1, delivery.size_bytes, -1 if done.offset is None else done.offset)
