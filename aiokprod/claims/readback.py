"""Reading topics back into Parquet, with the columns of Spark's Kafka source: an audit's other side, without a jar.

One task for each partition, a file for each some thousand records. For topics that one machine can read; beyond that
Spark's own Kafka source is the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokprod.config import ProducerConfig
from aiokprod.reader import Reader

if TYPE_CHECKING:
    import pyarrow

    from aiokprod.records.decoder import DecodedRecord

ROWS_PER_FILE: Final = 100_000
CREATE_TIME: Final = 0  # our reader does not tell whose clock it was: an audit of the dump measures no append times
AT_ONCE: Final = 4  # partitions that are read beside each other


async def read_back(servers: str | Sequence[str] | ProducerConfig, topics: Sequence[str], folder: str | Path) -> int:
    """Write what the topics have now into the folder; how many records that was. Transactions that failed are left out.

    Raises:
        UnknownTopicError, BrokerAnswerError, ClusterError: it cannot be read.
        FileExistsError: there are files in the folder: they would be taken for records of these topics.
        OSError: it cannot be written.
    """
    await asyncio.to_thread(_make_empty, Path(folder))
    reader = Reader(servers)
    try:
        await reader.start(reader.config.start_timeout)
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(topic: str, partition: int) -> int:
            async with turn:
                return await _read_partition(reader, topic, partition, Path(folder))

        partitions = [(topic, partition) for topic in topics for partition in await reader.partitions(topic)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(topic, partition)) for topic, partition in partitions]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # one says what is wrong; the others are of the same cluster or disk
    finally:
        await reader.close()
    return sum(task.result() for task in tasks)


def _make_empty(folder: Path) -> None:
    """A folder without files that Spark would read; made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    there = sorted(path.name for path in folder.iterdir() if not path.name.startswith((".", "_")))
    if there:
        raise FileExistsError(
            f"{folder} is not empty ({there[0]}{', ...' if len(there) > 1 else ''}), and all in it would count as read back:"
            " name another folder"
        )


async def _read_partition(reader: Reader, topic: str, partition: int, folder: Path) -> int:
    import pyarrow.parquet as pq

    count = 0
    records: list[DecodedRecord] = []
    numbers = iter(range(2**31))

    async def flush() -> None:
        # Spark passes over names that begin with a _ or a dot, as a topic's may.
        path = folder / f"log-{topic}-{partition}-{next(numbers):06d}.parquet"
        await asyncio.to_thread(pq.write_table, log_table(topic, partition, records), path)
        records.clear()

    async for record in reader.read(topic, partition, read_committed=True):
        records.append(record)
        count += 1
        if len(records) == ROWS_PER_FILE:
            await flush()
    if records or not count:
        await flush()  # an empty one too: the folder then has its columns
    return count


def log_table(topic: str, partition: int, records: Sequence[DecodedRecord]) -> pyarrow.Table:
    """Records of one partition with the columns of Spark's Kafka source."""
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
    """Microseconds as far as 64 bits go: producers can send any number."""
    return min(max(1000 * timestamp_ms, -(2**63)), 2**63 - 1)
