"""`send_columns` of a `MemoryProducer`: a `send` for each row, so that scripts reach every one of them."""

from __future__ import annotations

from aiokprod.delivery_type import Delivery
from aiokprod.errors import AiokprodError
from aiokprod.model import ColumnsPartition, ColumnsPlacement, ColumnsReport
from aiokprod.producer import Producer
from aiokprod.records.column_rows import ColumnTable
from aiokprod.records.decoder import decode_headers


async def send_each(producer: Producer, topic: str, table: ColumnTable, keeps_placements: bool) -> ColumnsReport:
    """Send all rows, wait for all of them.

    `bytes` of the report are bounds: nothing is encoded here.

    Cancellation: stops taking; what was taken goes on.
    """
    count = table.count
    values = table.values.slices(0, count)
    keys = [None] * count if table.keys is None else table.keys.slices(0, count)
    headers = [None] * count if table.headers is None else table.headers.encoded(0, count)
    partitions = [None] * count if table.partitions is None else table.partitions.rows(0, count)
    times = [None] * count if table.timestamps is None else table.timestamps.rows(0, count)
    deliveries: list[tuple[int, Delivery]] = []
    report = ColumnsReport()
    for row in range(count):
        encoded = headers[row]
        pairs = () if encoded is None else decode_headers(encoded)
        await producer.ready()
        try:
            delivery = producer.send(
                topic, values[row], keys[row], partition=partitions[row], headers=pairs, timestamp_ms=times[row]
            )
        except AiokprodError as refused:
            _failed(report, topic, partitions[row], refused, row)
        else:
            delivery.add_done_callback(_heard)
            deliveries.append((row, delivery))
    for row, delivery in deliveries:
        try:
            done = await delivery
        except AiokprodError as error:
            _failed(report, topic, error.partition, error, row)
            continue
        partition = report.partitions.setdefault((topic, done.partition), ColumnsPartition())
        report.delivered += 1
        partition.count += 1
        partition.bytes += delivery.size_bytes
        if done.offset is not None:
            partition.first_offset = done.offset if partition.first_offset is None else partition.first_offset
            partition.last_offset = done.offset
        if keeps_placements:
            report.placements.append(
                ColumnsPlacement(topic=topic, partition=done.partition, base_offset=done.offset, rows=(row,))
            )
    return report


def _heard(delivery: Delivery) -> None:
    """Somebody waits for it: its failure is the caller's, and no other's."""


def _failed(report: ColumnsReport, topic: str, number: int | None, error: AiokprodError, row: int) -> None:
    partition = report.partitions.setdefault((topic, -1 if number is None else number), ColumnsPartition())
    report.failed += 1
    partition.failed += 1
    if partition.first_failed_row is None or row < partition.first_failed_row:
        error.row = row
        partition.first_error, partition.first_failed_row = error, row
