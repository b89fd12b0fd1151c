"""Spark's calls of the sink for exactly-once writes, made by hand in this process on a `MockCluster`."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from aiokprod import Reader
from aiokprod.spark.engine import _Current, end_engine
from aiokprod.spark.exactly_once import requests
from aiokprod.spark.messages import TaskIdentity, TaskMessage
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan
from aiokprod.spark.source import AiokprodSource
from aiokprod.spark.writer import BatchWriter, StreamWriter
from aiokprod.testing.kafka_cluster import KafkaCluster
from aiokprod.testing.mock import MockCluster
from aiokprod.transactions.admin import TransactionAdmin

TOPIC = "t"
ROWS = [f"row-{number}" for number in range(12)]


@dataclass(frozen=True)
class Column:
    name: str

    @property
    def dataType(self) -> Column:
        return Column("string")

    def simpleString(self) -> str:
        return self.name


@dataclass(frozen=True)
class Schema:
    fields: Sequence[Column]


class DiedError(Exception):
    """The process has ended at a step."""


@dataclass
class Spark:
    """The driver and the executors of one query, one call after the other.

    Args:
        cluster: where it writes.
        options: of the sink, beside those that it needs.
        query: id; None for batch jobs.
        stream: id of the stream in whose `foreachBatch` batch jobs run.
        topics: of the rows, by a column; none: `TOPIC`, by the option.
    """

    cluster: MockCluster | KafkaCluster
    options: dict[str, str] = field(default_factory=dict)
    query: str | None = "query"
    stream: str | None = None
    topics: Sequence[str] = ()

    def source(self) -> AiokprodSource:
        given = {"kafka.bootstrap.servers": self.cluster.bootstrap_servers}
        given |= {"markerTopic": self.topics[0]} if self.topics else {"topic": TOPIC}
        given |= {"delivery": "exactly_once", "kafka.retry.backoff.ms": "5", "kafka.linger.ms": "0"}
        given |= {"sinkId": "sink"} if self.query is not None else {}
        return AiokprodSource(given | self.options)

    def writer(self) -> StreamWriter | BatchWriter:
        """Make a writer, as Spark's driver does before a batch: this opens it."""
        schema: Any = Schema([Column("value"), *([Column("topic")] if self.topics else [])])
        source = self.source()
        made = source.writer(schema, False) if self.query is None else source.streamWriter(schema, False)
        return pickle.loads(pickle.dumps(made))

    def task(
        self,
        writer: Any,
        batch: int,
        partition: int,
        rows: Sequence[str],
        attempt: int = 0,
        *,
        fails: bool = False,
        before_rows: Callable[[], None] | None = None,
        behind_rows: Callable[[], None] | None = None,
    ) -> TaskMessage:
        """Run one task attempt; with `fails` it ends in a ValueError behind the rows. `behind_rows` is called there."""
        identity = TaskIdentity(
            partition_id=partition,
            attempt=attempt,
            query_id=self.query or self.stream,
            batch_id=None if self.query is None else batch,
        )

        def frames() -> Iterator[pa.RecordBatch]:
            if before_rows is not None:
                before_rows()
            if rows:
                topics = [self.topics[crc32(row.encode()) % len(self.topics)] for row in rows] if self.topics else []
                columns = {"value": rows} | ({"topic": topics} if topics else {})
                yield pa.record_batch([pa.array(each) for each in columns.values()], list(columns))
            if behind_rows is not None:
                behind_rows()
            if fails:
                raise ValueError("the rows of this attempt end here")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TaskIdentity, "current", lambda batch_id=None: identity)
            message = writer.write(frames())
        assert isinstance(message, TaskMessage)
        return pickle.loads(pickle.dumps(message))

    def committer(self) -> StreamWriter:
        """Make the writer of the commit of a stream, as Spark's commit process does."""
        options = SinkOptions.read(dict(self.source().options), is_stream=True)
        return StreamWriter(options, ColumnPlan(value=0))

    def commit(self, writer: Any, messages: Sequence[TaskMessage], batch: int) -> None:
        if self.query is None:
            pickle.loads(pickle.dumps(writer)).commit(messages)
        else:
            self.committer().commit(messages, batch)

    def abort(self, writer: Any, messages: Sequence[TaskMessage | None], batch: int) -> None:
        if self.query is None:
            pickle.loads(pickle.dumps(writer)).abort(messages)
        else:
            self.committer().abort(messages, batch)

    def batch(self, number: int, layout: Sequence[Sequence[str]]) -> list[TaskMessage]:
        """Run a whole batch: opening, a task for each list of rows, commit."""
        writer = self.writer()
        messages = [self.task(writer, number, partition, rows) for partition, rows in enumerate(layout)]
        self.commit(writer, messages, number)
        return messages


def dealt(rows: Sequence[str], tasks: int) -> list[list[str]]:
    """Deal rows to tasks."""
    return [list(rows[number::tasks]) for number in range(tasks)]


def rows_of(batch: int) -> list[str]:
    return [f"{batch}-{row}" for row in ROWS]


def visible(cluster: MockCluster | KafkaCluster, topic: str = TOPIC) -> Counter[str]:
    """Return what readers of committed records see, once the markers are written."""
    return asyncio.run(_visible(cluster.bootstrap_servers, topic))


async def _visible(servers: str, topic: str) -> Counter[str]:
    found: Counter[str] = Counter()
    async with Reader(servers) as reader:
        for partition in await reader.partitions(topic):
            async for record in reader.read(topic, partition, read_committed=True):
                found[(record.value or b"").decode()] += 1
    return found


def die_at(patch: pytest.MonkeyPatch, step: str, times: int = 1) -> list[str]:
    """Raise where the process would be killed; return the steps that were reached, a list that grows."""
    steps: list[str] = []

    def reached(name: str, _: str) -> None:
        steps.append(name)
        if name == step and steps.count(step) == times:
            raise DiedError(step)

    patch.setattr(requests, "reached", reached)
    return steps


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread does; fail after ten seconds."""
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.001)


def forget_processes() -> None:
    """End the engine: the next call is made by another process."""
    end_engine()


def in_another_process(call: Callable[[], None]) -> None:
    """Make a call with an engine of its own, though the engine of this process is at work, and wait for its end."""
    ours, _Current.engine = _Current.engine, None
    try:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        end_engine()
    finally:
        _Current.engine = ours


def abort_by_id(cluster: MockCluster, transactional_id: str) -> None:
    """Abort the open transaction of an id, as its timeout does."""

    async def abort() -> None:
        async with TransactionAdmin(cluster.bootstrap_servers) as admin:
            await admin.abort(transactional_id)

    thread = threading.Thread(target=lambda: asyncio.run(abort()))
    thread.start()
    thread.join()
