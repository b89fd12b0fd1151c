"""A settled Delivery is freed when its last holder lets go, without the garbage collector; so is its batch.

Compiled, the collector does not look at deliveries: a cycle through one would stay for ever.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from rig import run, run_in_virtual_time, started

from aiokprod import Delivery, Producer
from aiokprod.errors import AiokprodError
from aiokprod.pipeline.partition.batch import Encoded, ProducerBatch
from aiokprod.pipeline.partition.ledger import Entry
from aiokprod.testing import MockCluster

NOBODY_ELSE = 2  # references: the list's, and that of the call that counts
Kept = list[Delivery]


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def batches() -> list[object]:
    """Return all batches and the objects that belong to them."""
    return [thing for thing in gc.get_objects() if isinstance(thing, (ProducerBatch, Entry, Encoded))]


@contextmanager
def frozen(cluster: MockCluster) -> Iterator[None]:
    """Freeze all brokers inside the block."""
    for node in (1, 2, 3):
        cluster.freeze_broker(node)
    try:
        yield
    finally:
        for node in (1, 2, 3):
            cluster.thaw_broker(node)


async def awaited(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    for _ in range(3):
        delivery = producer.send("t", b"v")
        kept.append(delivery)
        await delivery
        assert delivery.result() is not None


async def forgotten(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    kept.append(producer.send("t", b"v"))
    await producer.flush()


async def refused_by_the_broker(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    cluster.fail_next("Produce", "POLICY_VIOLATION")
    delivery = producer.send("t", b"v")
    kept.append(delivery)
    with suppress(AiokprodError):
        await delivery
    error = delivery.exception()
    assert error is not None and error is delivery.exception()
    del error  # raised below, it would hold this frame, and this frame it
    with suppress(AiokprodError):
        delivery.result()


async def never_taken(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    delivery = producer.send("no-such-topic", b"v")
    kept.append(delivery)
    with suppress(AiokprodError):
        await delivery
    with suppress(AiokprodError):
        delivery.result()


async def recalled(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    delivery = producer.send("t", b"v")
    kept.append(delivery)
    assert delivery.recall()
    with suppress(AiokprodError):
        await delivery


async def out_of_its_own_time(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    with frozen(cluster):
        delivery = producer.send("t", b"v", timeout=0.05)
        kept.append(delivery)
        for _ in range(2):
            with suppress(AiokprodError):
                await delivery
        assert delivery.exception() is not None
    await producer.flush()


async def called_back(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    class Holder:
        def __init__(self) -> None:
            self.delivery = producer.send("t", b"v")
            self.delivery.add_done_callback(self.told)

        def told(self, delivery: Delivery) -> None:
            assert delivery is self.delivery

    kept.append(Holder().delivery)
    await producer.flush()


async def cancelled(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    delivery = producer.send("t", b"v")
    kept.append(delivery)
    delivery.add_done_callback(lambda done: delivery.cancelled())
    delivery.cancel("no more")
    with suppress(asyncio.CancelledError):
        await delivery
    task = asyncio.ensure_future(producer.send("t", b"w").wait())
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await producer.flush()


async def gathered(cluster: MockCluster, producer: Producer, kept: Kept) -> None:
    cluster.fail_next("Produce", "POLICY_VIOLATION")
    deliveries = [producer.send("t", b"v") for _ in range(5)]
    kept.extend(deliveries)
    await asyncio.gather(*deliveries, return_exceptions=True)
    await asyncio.wait(deliveries)


WAYS: list[Callable[[MockCluster, Producer, Kept], Awaitable[None]]] = [
    awaited, forgotten, refused_by_the_broker, never_taken, recalled, out_of_its_own_time, called_back, cancelled, gathered,
]  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_it_goes_with_its_last_holder(way: Callable[[MockCluster, Producer, Kept], Awaitable[None]]) -> None:
    async def scenario() -> None:
        kept: Kept = []
        before = batches()  # of tests that kept theirs
        async with started("t", linger_ms=0, max_block_ms=200) as (cluster, producer):
            await producer.send("t", b"first")
            await way(cluster, producer, kept)
            for _ in range(5):  # waiters and callbacks are done
                await asyncio.sleep(0)
            assert [sys.getrefcount(kept[number]) for number in range(len(kept))] == [NOBODY_ELSE] * len(kept)
            kept.clear()
            assert [thing for thing in batches() if all(thing is not each for each in before)] == []

    run_in_virtual_time(scenario())


class Keeper:
    """A program that keeps the Deliveries of its producer, which calls it back."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer(servers, on_delivery_error=self.failed, linger_ms=0, max_block_ms=2_000)
        self.kept: Kept = []

    def failed(self, error: AiokprodError) -> None:
        assert self.kept

    async def use(self) -> None:
        async with self.producer as producer:
            self.kept += [producer.send("t", b"v") for _ in range(3)]
            self.kept.append(producer.send("no-such-topic", b"v"))
            await asyncio.sleep(0)
            self.kept.append(producer.send("t", b"w"))
            await producer.send("t", b"last")
            await producer.flush()
        assert all(delivery.done() for delivery in self.kept)


def test_a_keeper_of_deliveries_that_their_producer_calls_back_is_freed() -> None:
    """A Delivery that leads back to its producer would close a circle that no collector sees."""

    async def scenario() -> None:
        async with MockCluster(auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            keeper = Keeper(cluster.bootstrap_servers)
            await keeper.use()
            freed = weakref.ref(keeper)
            del keeper
            for _ in range(5):
                await asyncio.sleep(0)
            gc.collect()
            assert freed() is None

    run(scenario())
