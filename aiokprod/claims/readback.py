"""Reading topics back into Parquet, with the columns of Spark's Kafka source: the other side of an audit, without a jar.

One task per partition, one file per `ROWS_PER_FILE` records. For topics that one machine can read; for larger ones use
Spark's own Kafka source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokprod.config import ProducerConfig
from aiokprod.model import TimestampType
from aiokprod.reader import Reader

if TYPE_CHECKING:
    import pyarrow

    from aiokprod.records.decoder import DecodedRecord

ROWS_PER_FILE: Final = 100_000
# `Reader` does not say which clock set a timestamp: an audit of a dump measures no append times.
CREATE_TIME: Final = TimestampType.CREATE_TIME.value
AT_ONCE: Final = 4  # partitions read concurrently


async def read_back(servers: str | Sequence[str] | ProducerConfig, topics: Sequence[str], folder: str | Path) -> int:
    """Write the current records of the topics into the folder, without those of aborted transactions; return their number.

    Raises:
        UnknownTopicError, BrokerAnswerError, ClusterError: a topic cannot be read.
        FileExistsError: there are files in the folder, which would be taken for records of these topics.
        OSError: the folder cannot be written to.
    """
    await asyncio.to_thread(_make_empty, Path(folder))
    reader = Reader(servers)
    try:
        await reader.start()
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(topic: str, partition: int) -> int:
            async with turn:
                return await _read_partition(reader, topic, partition, Path(folder))

        partitions = [(topic, partition) for topic in topics for partition in await reader.partitions(topic)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(topic, partition)) for topic, partition in partitions]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # one is enough: the others come from the same cluster or disk
    finally:
        await reader.close()
    return sum(task.result() for task in tasks)


def _make_empty(folder: Path) -> None:
    """Check that the folder has no files that Spark would read; create it if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    there = sorted(path.name for path in folder.iterdir() if not path.name.startswith((".", "_")))
    if there:
        raise FileExistsError(
            f"{folder} is not empty ({there[0]}{', ...' if len(there) > 1 else ''}), and its files would count as read back:"
            " name another folder"
        )


async def _read_partition(reader: Reader, topic: str, partition: int, folder: Path) -> int:
    import pyarrow.parquet as pq

    count = 0
    records: list[DecodedRecord] = []
    numbers = iter(range(2**31))

    async def flush() -> None:
        # The prefix matters: Spark skips files whose names begin with a _ or a dot, as a topic's name may.
        path = folder / f"log-{topic}-{partition}-{next(numbers):06d}.parquet"
        await asyncio.to_thread(pq.write_table, log_table(topic, partition, records), path)
        records.clear()

    async for record in reader.read(topic, partition, read_committed=True):
        records.append(record)
        count += 1
        if len(records) == ROWS_PER_FILE:
            await flush()
    if records or not count:
        await flush()  # an empty file too: it gives the folder its columns
    return count


def log_table(topic: str, partition: int, records: Sequence[DecodedRecord]) -> pyarrow.Table:
    """Make a table of records of one partition, with the columns of Spark's Kafka source."""
    import pyarrow as pa

    def repeated(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), len(records))

    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": repeated(topic, pa.string()),
            "partition": repeated(partition, pa.int32()),
            "offset": pa.array([record.offset for record in records], pa.int64()),
            "timestamp": pa.array([_us(record.timestamp_ms) for record in records], pa.timestamp("us", "UTC")),
            "timestampType": repeated(CREATE_TIME, pa.int32()),
            "headers": pa.array(
                [[{"key": name, "value": value} for name, value in record.headers] for record in records], headers
            ),
        }
    )


def _us(timestamp_ms: int) -> int:
    """Return microseconds, clamped to 64 bits: producers can send any number."""
    return min(max(1000 * timestamp_ms, -(2**63)), 2**63 - 1)
