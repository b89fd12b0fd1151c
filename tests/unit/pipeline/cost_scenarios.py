"""Scenarios of the producer while its work is counted: `cost_scenarios.py NAME SIZE...` prints a JSON list.

A process of its own, so that the sources can be rewritten (`work_counter.py`). Time is virtual, the cluster is a
MockCluster. Each scenario gives what its test asks: units of work, the most in one callback, and what is kept.
"""

from __future__ import annotations

import json
import sys

from work_counter import count_work

from aiokprod.explanation import Place, WaitsFor

WORK = count_work()

import asyncio  # noqa: E402 - what is imported from here on is counted
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence  # noqa: E402
from contextlib import asynccontextmanager  # noqa: E402
from random import Random  # noqa: E402
from typing import Any  # noqa: E402

from aiokprod import Delivery, Producer  # noqa: E402
from aiokprod.errors import SendTimeoutError, UnknownTopicError  # noqa: E402
from aiokprod.pipeline.partition.batch import ProducerBatch  # noqa: E402
from aiokprod.pipeline.partition.batch_fill import BatchFill  # noqa: E402
from aiokprod.pipeline.sending.parking import Parking  # noqa: E402
from aiokprod.pipeline.sending.partitioners import make_partitioner  # noqa: E402
from aiokprod.testing import MockCluster  # noqa: E402
from aiokprod.testing.virtual import VirtualNetwork, run_virtual  # noqa: E402

Counts = dict[str, int]
Scenario = Callable[[VirtualNetwork, int], Awaitable[Counts]]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    SCENARIOS[play.__name__] = play
    return play


@asynccontextmanager
async def unreachable(
    network: VirtualNetwork, *, partitions: int = 1, **options: Any
) -> AsyncIterator[tuple[MockCluster, Producer]]:
    """Yield a producer that knows topic "t", whose leader refuses connections: nothing is ever stamped."""
    async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=partitions)
        settings: dict[str, Any] = {"buffer_memory": 1_000_000_000, "delivery_timeout_ms": 3_600_000} | options
        producer = Producer(cluster.bootstrap_servers, dialer=network.dial, **settings)
        await producer.start()
        await producer.partitions_for("t")
        cluster.refuse_connections(1)
        try:
            yield cluster, producer
        finally:
            await producer.close(timeout=0)


class Counted:
    """The work that is done in a block."""

    def __enter__(self) -> Counted:
        self._began = WORK.done
        WORK.most_in_one_callback = 0
        return self

    def __exit__(self, *_: object) -> None:
        self.work = WORK.done - self._began
        self.most = WORK.most_in_one_callback


def watched_in(deliveries: Sequence[Delivery]) -> int:
    """Return how many handles the batches keep because of tasks that wait."""
    batches = {holder for delivery in deliveries if isinstance(holder := delivery._position()[0], ProducerBatch)}
    return sum(len(batch.watched) + sum(map(len, (batch._watched_at or {}).values())) for batch in batches)


# ---------------------------------------------------------------------- records that leave one by one
async def times_out(network: VirtualNetwork, size: int, *, awaited: bool, **options: Any) -> Counts:
    async with unreachable(network, **options) as (_, producer):
        deliveries = [producer.send("t", b"x" * 10, timeout=1.0) for _ in range(size)]
        done: list[Delivery] = []
        for delivery in deliveries if awaited else ():
            delivery.add_done_callback(done.append)
        await asyncio.sleep(0.9)
        with Counted() as counted:
            await asyncio.sleep(1.0)
        assert done == (deliveries if awaited else [])
        assert all(isinstance(delivery.exception(), SendTimeoutError) for delivery in deliveries)
        return {"work": counted.work, "most": counted.most}


@scenario
async def timeouts_awaited(network: VirtualNetwork, size: int) -> Counts:
    return await times_out(network, size, awaited=True, batch_size=1_000_000)


@scenario
async def timeouts_not_awaited(network: VirtualNetwork, size: int) -> Counts:
    return await times_out(network, size, awaited=False)


@scenario
async def timeouts_of_batches_of_one(network: VirtualNetwork, size: int) -> Counts:
    return await times_out(network, size, awaited=True, batch_size=0)


async def recalls(network: VirtualNetwork, size: int, order: str, **options: Any) -> Counts:
    async with unreachable(network, **options) as (_, producer):
        deliveries = [producer.send("t", b"x" * 10) for _ in range(size)]
        everything = asyncio.gather(*deliveries, return_exceptions=True)
        await asyncio.sleep(1.0)
        if order == "newest first":
            deliveries.reverse()
        elif order == "random":
            Random(1).shuffle(deliveries)
        with Counted() as counted:
            assert all(delivery.recall() for delivery in deliveries)
            await everything
        return {"work": counted.work}


@scenario
async def recalls_oldest_first(network: VirtualNetwork, size: int) -> Counts:
    return await recalls(network, size, "oldest first")


@scenario
async def recalls_newest_first(network: VirtualNetwork, size: int) -> Counts:
    return await recalls(network, size, "newest first")


@scenario
async def recalls_at_random(network: VirtualNetwork, size: int) -> Counts:
    return await recalls(network, size, "random")


@scenario
async def recalls_at_random_from_one_batch(network: VirtualNetwork, size: int) -> Counts:
    return await recalls(network, size, "random", batch_size=100_000_000, max_request_size=100_000_000)


@scenario
async def recalls_newest_first_from_batches_of_one(network: VirtualNetwork, size: int) -> Counts:
    return await recalls(network, size, "newest first", batch_size=0)


@scenario
async def recalls_at_random_from_batches_of_one(network: VirtualNetwork, size: int) -> Counts:
    return await recalls(network, size, "random", batch_size=0)


@scenario
async def every_other_one_recalled_and_the_rest_delivered(network: VirtualNetwork, size: int) -> Counts:
    async with unreachable(network, batch_size=1_000_000) as (cluster, producer):
        deliveries = [producer.send("t", b"x" * 10) for _ in range(size)]
        everything = asyncio.gather(*deliveries, return_exceptions=True)
        await asyncio.sleep(1.0)
        with Counted() as counted:
            for delivery in deliveries[::2]:
                assert delivery.recall()
            cluster.allow_connections(1)
            await everything
            assert [record.value for record in cluster.records("t")] == [b"x" * 10] * (size // 2)
        return {"work": counted.work}


@scenario
async def records_of_a_batch_in_parts(network: VirtualNetwork, size: int) -> Counts:
    async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=1, max_message_bytes=700)
        options = {"linger_ms": 1_000, "batch_size": 2_000_000, "max_request_size": 2_000_000}
        async with Producer(cluster.bootstrap_servers, dialer=network.dial, **options) as producer:
            await producer.partitions_for("t")
            deliveries = [producer.send("t", b"x" * 100) for _ in range(size)]
            with Counted() as counted:
                await producer.flush()
            assert all(delivery.exception() is None for delivery in deliveries)
        return {"work": counted.work}


async def deadlines(network: VirtualNetwork, size: int, **options: Any) -> Counts:
    """Let five records expire at a time, one of which has been recalled."""
    patient = {"linger_ms": 600_000, "request_timeout_ms": 1_000, "delivery_timeout_ms": 700_000}
    async with unreachable(network, **(patient | options)) as (_, producer):
        deliveries = []
        for _ in range(size // 5):
            deliveries += [producer.send("t", b"x" * 10) for _ in range(5)]
            await asyncio.sleep(0.02)
        everything = asyncio.gather(*deliveries, return_exceptions=True)
        with Counted() as counted:
            for delivery in deliveries[2::5]:
                assert delivery.recall()
            await everything
        return {"work": counted.work}


@scenario
async def deadlines_in_one_batch(network: VirtualNetwork, size: int) -> Counts:
    return await deadlines(network, size, batch_size=1_000_000)


@scenario
async def deadlines_of_batches_of_one(network: VirtualNetwork, size: int) -> Counts:
    return await deadlines(network, size, batch_size=0)


async def end_together(network: VirtualNetwork, size: int, partitions: int, *, closes: bool) -> Counts:
    """Let batches of one record expire, or be given up by `close`, all at once."""
    budget = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 5_000}
    async with unreachable(network, partitions=partitions, batch_size=0, **budget) as (_, producer):
        deliveries = [producer.send("t", b"x" * 10, partition=number % partitions) for number in range(size)]
        await asyncio.sleep(4.0)
        with Counted() as counted:
            if closes:
                report = await producer.close(timeout=0.1)
                assert report.count == size
            else:
                await asyncio.sleep(3.0)
        assert all(delivery.done() for delivery in deliveries)
        return {"work": counted.work, "most": counted.most}


@scenario
async def expiry_of_batches_of_one(network: VirtualNetwork, size: int) -> Counts:
    return await end_together(network, size, 1, closes=False)


@scenario
async def expiry_of_batches_of_one_in_many_partitions(network: VirtualNetwork, size: int) -> Counts:
    return await end_together(network, size, 4, closes=False)


@scenario
async def close_with_batches_of_one(network: VirtualNetwork, size: int) -> Counts:
    return await end_together(network, size, 4, closes=True)


# ---------------------------------------------------------------------- callers that ask again and again
@scenario
async def polls_of_one_handle(network: VirtualNetwork, size: int) -> Counts:
    """Call `asyncio.wait` and `wait_for` with a timeout, `size` times."""
    async with unreachable(network) as (_, producer):
        deliveries = [producer.send("t", b"x") for _ in range(10)]
        with Counted() as counted:
            for _ in range(size):
                await asyncio.wait(deliveries, timeout=0.001)
                for delivery in deliveries[:3]:
                    waiting = asyncio.ensure_future(delivery.wait())
                    await asyncio.sleep(0)
                    waiting.cancel()
                    await asyncio.wait([waiting])
        return {"work": counted.work, "kept": watched_in(deliveries)}


@scenario
async def tasks_that_give_up(network: VirtualNetwork, size: int) -> Counts:
    """Let so many tasks await one handle, and cancel them one after the other, the last one first."""
    async with unreachable(network) as (_, producer):
        delivery = producer.send("t", b"x")
        tasks = [asyncio.ensure_future(delivery.wait()) for _ in range(size)]
        await asyncio.sleep(0)
        with Counted() as counted:
            for task in reversed(tasks):
                task.cancel()
            await asyncio.wait(tasks)
        return {"work": counted.work, "kept": watched_in([delivery])}


# ---------------------------------------------------------------------- what is kept for alarms
@scenario
async def timeouts_that_are_all_different(network: VirtualNetwork, size: int) -> Counts:
    """Send five records at a time, each with its own timeout long after its outcome."""
    async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=1)
        async with Producer(cluster.bootstrap_servers, dialer=network.dial) as producer:
            await producer.partitions_for("t")
            timeouts = parking_of(producer)._timeouts
            most = 0
            with Counted() as counted:
                for number in range(size):
                    await asyncio.gather(*(producer.send("t", b"x", timeout=60 + number + n / 7) for n in range(5)))
                    most = max(most, len(timeouts))
            return {"work": counted.work, "kept": most}


def parking_of(producer: Producer) -> Parking:
    assert producer._pipeline is not None
    return producer._pipeline.parking


# ---------------------------------------------------------------------- records that have no partition yet
@scenario
async def recalls_while_the_topic_is_unknown(network: VirtualNetwork, size: int) -> Counts:
    async with unreachable(network, max_block_ms=3_600_000) as (_, producer):
        return await recalled(newest_first(producer, "not-there", size))


@scenario
async def recalls_while_a_partition_is_missing(network: VirtualNetwork, size: int) -> Counts:
    async with unreachable(network, max_block_ms=3_600_000) as (_, producer):
        deliveries = [producer.send("t", b"x" * 10, partition=7) for _ in range(size)]
        return await recalled(deliveries[::-1])


@scenario
async def recalls_while_there_is_no_room(network: VirtualNetwork, size: int) -> Counts:
    options = {
        "buffer_memory": 20_000,
        "batch_size": 10_000,
        "max_request_size": 10_000,
        "max_waiting_bytes": 1_000_000_000,
    }
    async with unreachable(network, max_block_ms=3_600_000, **options) as (_, producer):
        while producer.send("t", b"x" * 1_000).explain().waits_for is not WaitsFor.ROOM:
            pass
        return await recalled(newest_first(producer, "t", size))


@scenario
async def timeouts_while_the_topic_is_unknown(network: VirtualNetwork, size: int) -> Counts:
    async with unreachable(network, max_block_ms=3_600_000) as (_, producer):
        # Those that are due first were sent last: the worst order for a line.
        deliveries = [producer.send("not-there", b"x", timeout=5.0 - number / size) for number in range(size)]
        await asyncio.sleep(3.9)
        with Counted() as counted:
            await asyncio.sleep(1.2)
        assert all(isinstance(delivery.exception(), SendTimeoutError) for delivery in deliveries)
        return {"work": counted.work}


def newest_first(producer: Producer, topic: str, size: int) -> list[Delivery]:
    return [producer.send(topic, b"x" * 10) for _ in range(size)][::-1]


async def recalled(deliveries: list[Delivery]) -> Counts:
    assert {delivery.explain().place for delivery in deliveries} == {Place.PARKED}
    with Counted() as counted:
        assert all(delivery.recall() for delivery in deliveries)
        await asyncio.gather(*deliveries, return_exceptions=True)
    return {"work": counted.work}


# ---------------------------------------------------------------------- names that do not exist
@scenario
async def topics_that_do_not_exist(network: VirtualNetwork, size: int) -> Counts:
    """Send records for `size` names, five at a time, while one topic is in use."""
    async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=1)
        async with Producer(cluster.bootstrap_servers, dialer=network.dial, max_block_ms=500) as producer:
            await producer.send("t", b"x")
            topics = parking_of(producer).topics
            most = 0
            with Counted() as counted:
                for first in range(0, size, 5):
                    lost = [producer.send(f"tenant-{number}", b"x") for number in range(first, first + 5)]
                    await asyncio.gather(producer.send("t", b"x"), *lost, return_exceptions=True)
                    assert all(isinstance(delivery.exception(), UnknownTopicError) for delivery in lost)
                    most = max(most, len(topics))
                await asyncio.sleep(5.0)
            assert parking_of(producer).gate.used_bytes == 0
            return {"work": counted.work, "kept": most, "kept later": len(topics)}


# ---------------------------------------------------------------------- partitions that do not drain
@scenario
async def half_of_the_partitions_stuck(network: VirtualNetwork, size: int) -> Counts:
    partitioner = make_partitioner(
        "uniform_sticky", ignore_keys=False, adaptive=True, fill=BatchFill(65_536, 65_536), random=Random(1)
    )
    partitioner.update(size, list(range(size)), 0.0)
    waiting = [0 if partition % 2 else 100_000 for partition in range(size)]
    with Counted() as counted:
        partitioner.update_load(waiting, list(range(0, size, 2)))
        assert partitioner.choose(None, 10) % 2
    return {"work": counted.work}


@scenario
async def sticky_batches(network: VirtualNetwork, size: int) -> Counts:
    """Draw a new sticky partition for each new batch, out of `size` partitions."""
    partitioner = make_partitioner(
        "sticky", ignore_keys=False, adaptive=True, fill=BatchFill(65_536, 65_536), random=Random(1)
    )
    partitioner.update(size, list(range(size)), 0.0)
    with Counted() as counted:
        for _ in range(size):
            partitioner.on_new_batch(partitioner.choose(None, 10))
    return {"work": counted.work}


def play(name: str, size: int) -> Counts:
    async def one(network: VirtualNetwork, random: Random) -> Counts:
        return await SCENARIOS[name](network, size)

    return run_virtual(one, seed=1, shuffled=False)


if __name__ == "__main__":
    print(json.dumps([play(sys.argv[1], int(size)) for size in sys.argv[2:]]))
