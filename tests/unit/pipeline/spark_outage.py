"""A task of the Spark sink whose brokers are away: the sink's own writer, engine and producer, in virtual time.

In a worker the task has a thread and the engine's loop another one. Here both are one: where the task waits for the loop, the
loop turns until it has what is waited for. So all is decided by the seed, and two minutes of waiting take a moment.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar
from unittest.mock import patch

import pyarrow as pa

from aiokprod.errors import AiokprodError
from aiokprod.producer import Producer
from aiokprod.spark import engine as engines
from aiokprod.spark.engine import Engine
from aiokprod.spark.messages import TaskMessage
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualRun

Result = TypeVar("Result")
ROWS: Final = 1_000
"""In each of the batches that Spark gives to the task."""
BATCHES: Final = 3
ATTEMPTS: Final = 4
"""`spark.task.maxFailures`, as Spark has it."""
LASTS_S: Final = 600.0


class Driven(Future[Result]):
    """The result of a coroutine; waiting for it lets the loop turn."""

    def __init__(self, run: VirtualRun, work: Coroutine[Any, Any, Result]) -> None:
        super().__init__()
        self._run = run
        self._task = run.loop.create_task(work)

    def done(self) -> bool:
        return self._task.done()

    def cancel(self) -> bool:
        return self._task.cancel()

    def result(self, timeout: float | None = None) -> Result:
        assert timeout is None
        return self._run.wait_for(_awaited(self._task))


async def _awaited(task: asyncio.Task[Result]) -> Result:
    return await task


class EngineOfOneThread(Engine):
    """The engine of a worker process, on a loop in virtual time."""

    def __init__(self, run: VirtualRun) -> None:
        with patch.object(asyncio, "new_event_loop", lambda: run.loop), patch.object(threading.Thread, "start"):
            super().__init__()
        self._run_of_it = run

    @property
    def is_usable(self) -> bool:
        return True

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        return Driven(self._run_of_it, work)

    def only_producer(self) -> Producer:
        (shared,) = self._producers.values()
        return shared.producer

    def end(self) -> None:
        self._run_of_it.wait_for(self._close_all())


@dataclass
class Attempt:
    """One attempt of the task, as Spark shows it."""

    seconds: float
    """since it began, or since the brokers went away"""
    error: AiokprodError | None
    rows: int


@dataclass
class Story:
    """The attempts of the job, and its records."""

    attempts: list[Attempt]
    """those of a job that fails"""
    elsewhere: Attempt
    """one in a worker that begins while the brokers are away"""
    after: Attempt
    """one when they are back"""
    written: int
    """records in the topic at the end"""


class Watcher(Protocol):
    """Looks at the producer of the task, which only the engine knows."""

    def before(self, producer: Producer) -> None:
        """Look while the brokers are there."""

    def during(self, producer: Producer) -> None:
        """Look while they are away."""


class Worker:
    """A stand-in for Spark in an executor: it gives rows to the sink's writer, and again after a failure.

    Args:
        run: the clock and the network.
        watcher: looks before the brokers go away, and some seconds later.
        look_after_s: so many.
    """

    def __init__(self, run: VirtualRun, watcher: Watcher, look_after_s: float) -> None:
        self.run = run
        self.cluster = MockCluster(3, network=run.network, seed=1, auto_create_topics=False)
        self.away_since: float | None = None
        self._watcher = watcher
        self._look_after_s = look_after_s
        self.begin()

    def begin(self) -> None:
        """Begin as a process without an engine."""
        self._engine = EngineOfOneThread(self.run)
        engines._Current.engine = self._engine

    def end(self) -> None:
        self._engine.end()
        engines._Current.engine = None

    def rows(self) -> Iterator[pa.RecordBatch]:
        for number in range(BATCHES):
            if number == 1:  # what came before is written
                self.run.wait_for(asyncio.sleep(1))
                self.lose_brokers()
            yield pa.record_batch({"value": pa.array([b"an order"] * ROWS)})

    def lose_brokers(self) -> None:
        """Let all brokers die, once; and look at the producer some seconds later."""
        if self.away_since is not None:
            return
        producer = self._engine.only_producer()
        self._watcher.before(producer)
        for node in self.cluster.broker_ids:
            self.cluster.kill_broker(node, elect=False)
        self.away_since = self.run.loop.time()
        self.run.loop.call_later(self._look_after_s, self._watcher.during, producer)

    def attempt(self) -> Attempt:
        """Run the task once."""
        from aiokprod.spark.writer import BatchWriter  # pyspark is imported

        given = {
            "kafka.bootstrap.servers": self.cluster.bootstrap_servers,
            "topic": "orders",
            "kafka.client.id": "shop",
        }
        writer = BatchWriter(SinkOptions.read(given), ColumnPlan(value=0), "a job")
        began = self.run.loop.time()
        error, rows = None, 0
        try:
            message = writer.write(self.rows())
            assert isinstance(message, TaskMessage)
            rows = message.rows
        except AiokprodError as failed:
            error = failed
        assert self.away_since is not None
        return Attempt(self.run.loop.time() - max(began, self.away_since), error, rows)

    def wait_until(self, seconds: float) -> None:
        """Let time pass until so many seconds after the brokers went away."""
        assert self.away_since is not None
        self.run.wait_for(asyncio.sleep(self.away_since + seconds - self.run.loop.time()))


def story_of_spark(watcher: Watcher, look_after_s: float) -> Story:
    """Run a job of one task while all brokers are away for ten minutes, and again when they are back."""
    before = engines._Current.engine
    try:
        with VirtualRun(1) as run:
            worker = Worker(run, watcher, look_after_s)
            run.wait_for(worker.cluster.__aenter__())
            worker.cluster.create_topic("orders", partitions=1, replication_factor=3)
            attempts = [worker.attempt() for _ in range(ATTEMPTS)]
            worker.end()
            worker.begin()
            elsewhere = worker.attempt()
            worker.wait_until(LASTS_S)
            for node in worker.cluster.broker_ids:
                worker.cluster.start_broker(node)
            story = Story(attempts, elsewhere, worker.attempt(), len(worker.cluster.records("orders", 0)))
            worker.end()
            run.wait_for(worker.cluster.__aexit__(None, None, None))
            run.check()
    finally:
        engines._Current.engine = before
    return story
