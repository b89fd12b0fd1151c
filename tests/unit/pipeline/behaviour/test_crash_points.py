"""A fault at each line of the steps that judge answers and end records: the producer tells the truth, and everything ends.

For each point: a record that is in the log is not said to be NOT_PERSISTED, one that is said to be delivered is there, and
once; every Delivery, `flush`, `ready` and `close` ends; no byte stays charged. The producer has failed, or it works.
(faults: L15)

`AIOKPROD_TEST_FULL=1` tries all points, which takes minutes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from column_rig import column
from fault_points import FaultError, FaultPoints
from rig import mock_cluster, producer_of, run_in_virtual_time

from aiokprod import Delivery, Producer
from aiokprod.errors import AiokprodError, BufferFullError
from aiokprod.model import Persistence, ProducerState
from aiokprod.pipeline.broker.flusher import BrokerFlusher
from aiokprod.pipeline.partition.ledger import Ledger
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.pipeline.pipeline import Pipeline
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualLoop

TRACED = pytest.mark.pure("a fault is raised before a line of the sources")
ENDS_WITHIN_S = 30.0
EACH = (
    1 if os.environ.get("AIOKPROD_TEST_FULL") else 4
)  # of so many points one is tried, from one step to the next another


@dataclass
class Life:
    """A producer whose records, and whose waiting tasks, a step gives their outcomes."""

    cluster: MockCluster
    producer: Producer
    points: FaultPoints
    sent: list[tuple[bytes, Delivery]] = field(default_factory=list)
    tasks: dict[str, asyncio.Task[Any]] = field(default_factory=dict)

    def send(self, count: int, *, partitions: int = 2) -> None:
        """Send records, so many for each partition, and wait for some of them in each way there is."""
        for number in range(count * partitions):
            value = b"%d-" % len(self.sent) + b"x" * 300
            delivery = self.producer.send("t", value, partition=number % partitions)
            self.sent.append((value, delivery))
            if number % 3 == 0:
                self.wait(f"await {value[:3]!r}", delivery.wait())
            elif number % 3 == 1:
                called: asyncio.Future[object] = asyncio.get_running_loop().create_future()
                delivery.add_done_callback(called.set_result)
                self.wait(f"callback {value[:3]!r}", _until(called))

    def wait(self, name: str, work: Any) -> None:
        self.tasks[name] = asyncio.get_running_loop().create_task(work, name=name)

    def fill_up(self) -> None:
        """Take all the room there is, and let a task wait for more."""
        try:
            while True:
                self.sent.append((b"full", self.producer.send("not-there", b"full" * 60)))
        except BufferFullError:
            self.wait("ready", self.producer.ready())

    def other_waits(self) -> None:
        """Let tasks wait for a flush, for a report of many records, and for room."""
        self.wait("send_many", self.producer.send_many("t", [b"many-%d" % number for number in range(3)]))
        rows = [b"row-%d" % number for number in range(4)]
        self.wait("send_columns", self.producer.send_columns("t", column(rows), partitions=array("i", [0, 1, 0, 1])))
        self.wait("flush", self.producer.flush())


async def _until(future: asyncio.Future[Any]) -> None:
    await future


async def confirmed(life: Life, prepare: Callable[[], None] = lambda: None) -> None:
    """Let the broker confirm batches of two partitions."""
    prepare()
    life.send(3)
    life.other_waits()
    life.fill_up()
    life.points.watch()
    await asyncio.sleep(5)


async def refused(life: Life) -> None:
    """Let batches be refused, and sent again."""
    life.cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
    await confirmed(life)


async def refused_for_good(life: Life) -> None:
    life.cluster.fail_next("Produce", "INVALID_REQUIRED_ACKS", times=1)
    await confirmed(life)


async def in_parts(life: Life) -> None:
    life.cluster.fail_next("Produce", "MESSAGE_TOO_LARGE", times=1)
    await confirmed(life)


async def chased(life: Life) -> None:
    """Let the first of several batches in flight be refused; a chaser returns behind the others."""
    life.cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=1)
    for _ in range(3):
        life.send(1, partitions=1)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    life.points.watch()
    life.other_waits()
    await asyncio.sleep(5)


async def lost(life: Life) -> None:
    """Let a connection end with batches in flight and others behind them."""
    life.cluster.freeze_broker(1)
    life.send(2)
    await asyncio.sleep(0.01)
    life.send(1)
    life.other_waits()
    life.fill_up()
    life.points.watch()
    life.cluster.close_connections()
    await asyncio.sleep(1)
    life.cluster.thaw_broker(1)
    await asyncio.sleep(4)


async def overdue(life: Life) -> None:
    """Let records expire, in flight and unsent."""
    life.cluster.freeze_broker(1)
    life.send(2)
    await asyncio.sleep(0.5)
    life.send(2)
    life.other_waits()
    life.fill_up()
    life.points.watch()
    await asyncio.sleep(12)
    life.cluster.thaw_broker(1)


async def closed(life: Life) -> None:
    """Close the producer before its records are delivered."""
    life.cluster.freeze_broker(1)
    life.send(2)
    await asyncio.sleep(0.5)
    life.send(2)
    life.other_waits()
    life.fill_up()
    life.points.watch()
    await asyncio.wait_for(life.producer.close(timeout=0.5), ENDS_WITHIN_S)
    life.cluster.thaw_broker(1)


async def crashed(life: Life) -> None:
    """Let a bug strike while an answer is judged; the fault is in what ends everything then."""
    judge_answer = Ledger.answer

    def struck(ledger: Ledger, *arguments: Any) -> Any:
        judge_answer(ledger, *arguments)
        raise RuntimeError("a bug")

    try:
        await confirmed(life, lambda: setattr(Ledger, "answer", struck))
    finally:
        Ledger.answer = judge_answer  # type: ignore[method-assign]


async def forbidden(life: Life) -> None:
    """Let a broker refuse the producer for good; the fault is in what ends everything then."""
    life.cluster.fail_next("Produce", "CLUSTER_AUTHORIZATION_FAILED", times=1)
    await confirmed(life)


STEPS: dict[str, tuple[Callable[[Life], Awaitable[None]], Any, int]] = {
    "an answer": (confirmed, BrokerFlusher.answered, 0),
    "a refusal": (refused, BrokerFlusher.answered, 0),
    "a refusal for good": (refused_for_good, BrokerFlusher.answered, 0),
    "a refusal for size": (in_parts, BrokerFlusher.answered, 0),
    "an answer behind a refusal": (chased, BrokerFlusher.answered, 1),
    "a chaser": (chased, BrokerFlusher.chaser_returned, 0),
    "a loss": (lost, BrokerFlusher.lost, 0),
    "a deadline": (overdue, PartitionQueue.look, 0),
    "a close": (closed, Pipeline.end, 0),
    "a crash": (crashed, Pipeline.crashed, 0),
    "a refusal of the producer": (forbidden, Pipeline.crashed, 0),
}


async def live(points: FaultPoints, scene: Callable[[Life], Awaitable[None]]) -> list[str]:
    """Live one life with one fault; return what is wrong."""
    found: list[str] = []
    options: dict[str, Any] = {
        "delivery_timeout_ms": 8_000,
        "request_timeout_ms": 4_000,
        "linger_ms": 0,
        "max_block_ms": 3_000,
    }
    sizes = {"buffer_memory": 16_000, "max_request_size": 8_000, "batch_size": 1_000, "max_waiting_bytes": 0}
    async with mock_cluster(brokers=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=2)
        producer = producer_of(cluster, reconnect_backoff_ms=5, retry_backoff_ms=5, **options, **sizes)
        await producer.start()
        await producer.partitions_for("t")
        for partition in range(2):
            await producer.send("t", b"first", partition=partition)
        life = Life(cluster, producer, points)
        try:
            await scene(life)
        finally:
            sys.settrace(None)
        assert points.is_over, "the step was not made"
        state = producer.health().state
        if state in (ProducerState.READY, ProducerState.DEGRADED):
            value, delivery = b"last", producer.send("t", b"last", partition=0)
            life.sent.append((value, delivery))
            life.wait("the last one", delivery.wait())
            await asyncio.wait([life.tasks["the last one"]], timeout=ENDS_WITHIN_S)
        elif state is ProducerState.FAILED and producer.health().buffered_bytes:
            found.append(f"{producer.health().buffered_bytes} bytes stay charged")
        closing = asyncio.get_running_loop().create_task(producer.close(timeout=1))
        await asyncio.wait([closing], timeout=ENDS_WITHIN_S)
        if not closing.done():
            found.append("close() does not end")
            closing.cancel()
        await asyncio.sleep(5)
        found += await judge(life)
        # Before anything is done of the step its caller has the exception: that is the connection, which closes, or the loop.
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.faults[:] = [told for told in loop.faults if not isinstance(told.get("exception"), FaultError)]
    return found


async def judge(life: Life) -> list[str]:
    """Compare what was said of each record with the log."""
    found: list[str] = []
    log = [record.value for record in life.cluster.records("t")]
    for value, delivery in life.sent:
        name = value[:3].decode()
        if not delivery.done():
            found.append(f"{name} has no outcome")
            continue
        error = delivery.exception()
        if error is None and log.count(value) != 1:
            found.append(f"{name} was delivered and is there {log.count(value)} times")
        elif error is not None and error.persistence is Persistence.NOT_PERSISTED and value in log:
            found.append(f"{name} is said not to be there ({type(error).__name__}), and is")
    for name, task in life.tasks.items():
        if not task.done():
            found.append(f"{name} does not end")
            task.cancel()
        elif not isinstance(task.exception(), AiokprodError | None):
            found.append(f"{name} raised {task.exception()!r}")
    ordered = [value for value in log if value not in (b"first",)]
    if len(set(ordered)) != len(ordered):
        found.append("a record is in the log twice")
    return found


def life_of(points: FaultPoints, scene: Callable[[Life], Awaitable[None]]) -> list[str]:
    found: list[str] = []

    async def scenario() -> None:
        found.extend(await live(points, scene))

    try:
        run_in_virtual_time(scenario())
    except AssertionError as left:
        found.append(str(left))
    finally:
        sys.settrace(None)
    return found


@pytest.mark.slow_after(3)
@TRACED
@pytest.mark.usefixtures("defects")  # a fault in what only observes is one
@pytest.mark.parametrize("step", STEPS)
def test_a_fault_at_any_line_of_a_step_ends_everything_and_lies_about_nothing(step: str) -> None:
    scene, target, calls = STEPS[step]
    counted = FaultPoints(target, None, calls)
    assert life_of(counted, scene) == []
    wrong: dict[str, list[str]] = {}
    for point in counted.first_points()[list(STEPS).index(step) % EACH :: EACH]:
        found = life_of(FaultPoints(target, point, calls), scene)
        if found:
            name, line = counted.lines[point]
            wrong[f"{name}:{line}"] = found
    assert not wrong, "\n".join([f"{place}: {'; '.join(found[:4])}" for place, found in wrong.items()])
