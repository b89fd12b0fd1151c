"""Batches with a codec: full by what they will weigh, within their bounds when the estimate is wrong. In virtual time."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from column_rig import column
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_rig import run, started

from aiokprod import Producer, Record
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.pipeline.sending.parking import Parking
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

PACKING = ["gzip", "snappy", "lz4", "zstd"]
BATCH = 8_192
SMALL: dict[str, Any] = {"batch_size": BATCH, "max_request_size": 200_000, "linger_ms": 1_000}
"""Small batches, with room for larger ones: less work for a test, and most of it is not done by a thread."""
TOO_LARGE = 10


def alike(number: int, size: int = 200) -> bytes:
    """Return a value that packs to a tenth or less among others."""
    return (b"%08d the same text in each value " % number).ljust(size, b".")


def parking_of(producer: Producer) -> Parking:
    assert producer._pipeline is not None
    return producer._pipeline.parking


def fill_of(producer: Producer) -> BatchFill:
    return parking_of(producer).topics["t"].fill


async def send_all(producer: Producer, values: list[bytes], **arguments: Any) -> None:
    """Send a few values in each millisecond, and wait until all are in the log."""
    deliveries = []
    for number, value in enumerate(values):
        if number % 20 == 0:
            await asyncio.sleep(0.001)
        deliveries.append(producer.send("t", value, **arguments))
    await producer.flush()
    assert all(delivery.exception() is None for delivery in deliveries)


def batches_of(cluster: MockCluster) -> int:
    return cluster.counters.batches_appended


# ---------------------------------------------------------------------- ways in
@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("partitioner", ["uniform_sticky", "sticky", "round_robin"])
def test_batches_fill_up_whichever_partitioner_chooses(codec: str, partitions: int, partitioner: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options = SMALL | {"compression_type": codec, "partitioner": partitioner}
        async with started(network, partitions=partitions, **options) as (cluster, producer):
            await send_all(producer, [alike(number) for number in range(8_000)])
            # 8,000 x 220 bytes are 215 batches of batch_size. Those of the beginning and of the end are not full.
            assert batches_of(cluster) < 70
            metrics = producer.metrics()
            assert fill_of(producer).limit_bytes > 4 * BATCH
            assert metrics["batch_compressed_bytes"] < 1.05 * BATCH * batches_of(cluster)  # type: ignore[operator]
            assert metrics["batches_sent"] == batches_of(cluster)
            assert metrics["batch_uncompressed_bytes"] > 8_000 * 205  # type: ignore[operator]

    run(scenario)


def test_batches_of_keyed_records_fill_up() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=3, compression_type="gzip", **SMALL) as (cluster, producer):
            for number in range(8_000):
                if number % 20 == 0:
                    await asyncio.sleep(0.001)
                producer.send("t", alike(number), key=b"%d" % (number % 50))
            await producer.flush()
            assert batches_of(cluster) < 70

    run(scenario)


def test_batches_of_send_many_fill_up() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, compression_type="gzip", **SMALL) as (cluster, producer):
            for first in range(0, 8_000, 1_000):
                await producer.send_many("t", [alike(number) for number in range(first, first + 1_000)])
            early = batches_of(cluster)
            await producer.send_many("t", [alike(number) for number in range(8_000)])
            assert batches_of(cluster) - early <= 8_000 * 222 / fill_of(producer).limit_bytes + 3
            assert fill_of(producer).limit_bytes > 8 * BATCH

    run(scenario)


@pytest.mark.parametrize("partitions", [1, 4])
def test_batches_of_columns_fill_up(partitions: int) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=partitions, compression_type="gzip", **SMALL) as (cluster, producer):
            values = column([alike(number) for number in range(8_000)])
            await producer.send_columns("t", values)
            early = batches_of(cluster)
            report = await producer.send_columns("t", values)
            assert report.delivered == 8_000
            assert batches_of(cluster) - early < 40
            assert len(cluster.records("t")) == 16_000

    run(scenario)


# ---------------------------------------------------------------------- a wrong estimate
@pytest.mark.parametrize("codec", PACKING)
def test_records_that_suddenly_do_not_pack_make_no_request_larger_than_it_may_be(codec: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        random = Random(1)
        options = SMALL | {"compression_type": codec, "max_request_size": 100_000}
        async with started(network, partitions=5, **options) as (cluster, producer):
            for _ in range(3):
                await send_all(producer, [alike(number) for number in range(6_000)])
                assert fill_of(producer).limit_bytes > 5 * BATCH
                await send_all(producer, [random.randbytes(300) for _ in range(4_000)])
                assert fill_of(producer).limit_bytes == BATCH
            assert (
                max(request.size_bytes for request in cluster.requests("Produce")) <= 100_000 + 500
            )  # its header, names
            assert cluster.counters.records_appended == 30_000

    run(scenario)


@pytest.mark.parametrize("codec", PACKING)
def test_batches_that_a_topic_refuses_teach_the_next_ones(codec: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, compression_type=codec, retry_backoff_ms=1, **SMALL) as (cluster, producer):
            cluster.alter_topic("t", max_message_bytes=6_000)
            await send_all(producer, [alike(number) for number in range(6_000)])
            refusals = cluster.counters.refusals[TOO_LARGE]
            await send_all(producer, [alike(number) for number in range(20_000)])
            assert cluster.counters.refusals[TOO_LARGE] == refusals, "what was refused once is not tried again"
            assert cluster.counters.records_appended == 26_000
            assert fill_of(producer).limit_bytes * fill_of(producer).ratio > 2_500

    run(scenario)


def test_a_batch_that_weighs_more_than_expected_and_is_refused_is_split_and_delivered() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        random = Random(1)
        async with started(network, compression_type="zstd", retry_backoff_ms=1, **SMALL) as (cluster, producer):
            cluster.alter_topic("t", max_message_bytes=12_000)
            await send_all(producer, [alike(number) for number in range(6_000)])
            assert not cluster.counters.refusals[TOO_LARGE]
            limit = fill_of(producer).limit_bytes
            assert limit > 5 * BATCH
            hard = [random.randbytes(300) for _ in range(2_000)]
            await send_all(producer, hard)
            assert 0 < cluster.counters.refusals[TOO_LARGE] < 100
            assert [record.value for record in cluster.records("t")][6_000:] == hard
            before = cluster.counters.refusals[TOO_LARGE]
            await send_all(producer, [random.randbytes(300) for _ in range(2_000)])
            assert cluster.counters.refusals[TOO_LARGE] == before

    run(scenario)


KINDS = st.sampled_from(["alike", "random", "mixed"])


@given(
    st.sampled_from(PACKING), st.lists(st.tuples(KINDS, st.integers(1, 600)), min_size=1, max_size=5), st.integers(0, 2**20)
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_drawn_records_are_in_the_log_once_and_in_their_order(
    codec: str, phases: list[tuple[str, int]], seed: int
) -> None:
    """With a limit of the topic, a request size and a buffer that are all small."""

    async def scenario(network: VirtualNetwork) -> None:
        random = Random(seed)
        options = {"batch_size": 2_000, "max_request_size": 30_000, "buffer_memory": random.choice([70_000, 1_000_000])}
        options |= {"linger_ms": random.choice([0, 5]), "retry_backoff_ms": 1, "compression_type": codec}
        sent: list[bytes] = []
        async with started(network, **options) as (cluster, producer):
            cluster.alter_topic("t", max_message_bytes=random.choice([1_500, 5_000, 50_000]))
            for kind, count in phases:
                values = [
                    random.randbytes(random.randrange(300))
                    if kind == "random" or (kind == "mixed" and random.randrange(2))
                    else alike(number, random.randrange(50, 400))
                    for number in range(count)
                ]
                for value in values:
                    await producer.ready()
                    producer.send("t", value)
                    if not random.randrange(50):
                        await asyncio.sleep(random.choice([0, 0.001, 0.02]))
                sent += values
            await producer.flush()
            assert [record.value for record in cluster.records("t")] == sent
            assert max(request.size_bytes for request in cluster.requests("Produce")) <= 30_000 + 500
            assert producer.metrics()["buffer_used_bytes"] == 0
            assert producer.metrics()["epoch_bumps"] == 0

    run(scenario, seed)


# ---------------------------------------------------------------------- memory and time
def test_one_partition_never_takes_more_than_its_share_of_the_buffer() -> None:
    """Empty records are charged most for their size."""

    async def scenario(network: VirtualNetwork) -> None:
        options: dict[str, Any] = {"compression_type": "zstd", "buffer_memory": 2_000_000, "batch_size": 2_000}
        async with started(network, linger_ms=10_000, **options) as (_, producer):
            await send_all(producer, [alike(number) for number in range(6_000)])
            fill = fill_of(producer)
            for _ in range(100):
                fill.packed(fill.limit_bytes, 1, 0.0)
            assert fill.limit_bytes == 2_000_000 // 32
            most = 0
            queue = parking_of(producer).topics["t"].queues[0]
            assert isinstance(queue, PartitionQueue)
            for _ in range(6_000):
                producer.send("t", b"")
                assert queue.open_batch is not None
                most = max(most, queue.open_batch.charged_bytes)
            assert 0.19 * 2_000_000 < most <= 0.21 * 2_000_000

    run(scenario)


def test_a_full_buffer_does_not_wait_for_batches_that_linger() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options: dict[str, Any] = {"compression_type": "gzip", "buffer_memory": 600_000, "max_request_size": 100_000}
        async with started(network, partitions=40, linger_ms=60_000, batch_size=2_000, **options) as (
            cluster,
            producer,
        ):
            loop = asyncio.get_running_loop()
            for number in range(2_000):
                await producer.ready()
                producer.send("t", alike(number), partition=number % 40)
            began = loop.time()
            for number in range(8_000):
                await producer.ready()
                producer.send("t", alike(number), partition=number % 40)
            assert loop.time() - began < 10, "not a linger"
            await producer.flush()
            assert cluster.counters.records_appended == 10_000

    run(scenario)


def test_a_record_that_is_awaited_is_as_fast_as_without_a_codec() -> None:
    def time_of(codec: str) -> float:
        found: list[float] = []

        async def scenario(network: VirtualNetwork) -> None:
            async with started(network, compression_type=codec, **SMALL) as (_, producer):
                loop = asyncio.get_running_loop()
                await send_all(producer, [alike(number) for number in range(4_000)])
                before = fill_of(producer).limit_bytes
                began = loop.time()
                for _ in range(20):
                    await producer.send("t", b"a value that is hardly smaller when it is packed alone")
                found.append(loop.time() - began)
                assert fill_of(producer).limit_bytes == before, "a small batch tells nothing"

        run(scenario)
        return found[0]

    assert time_of("gzip") <= 1.2 * time_of("none")


def test_a_record_that_is_larger_than_batch_size_travels_with_others_if_it_packs() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, compression_type="zstd", **SMALL) as (cluster, producer):
            await send_all(producer, [alike(number) for number in range(6_000)])
            early = batches_of(cluster)
            await producer.send_many("t", [Record(value=alike(number, 2 * BATCH)) for number in range(100)])
            assert batches_of(cluster) - early < 40

    run(scenario)
