"""Rows of the fault catalogue about many of something: partitions, failures, retries, lives."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections import Counter

import pytest
from rig import run, run_in_virtual_time, started, turns, until, values

from aiokprod import Delivery, Producer
from aiokprod.errors import AiokprodError, BrokerRejectedError, DeliveryTimeoutError
from aiokprod.testing import MockCluster
from aiokprod.testing.checker import Footprint


def test_more_partitions_than_batches_fit_into_the_buffer_make_progress_within_it() -> None:  # faults: M8
    async def scenario() -> None:
        limit = 1_200_000
        options = {"buffer_memory": limit, "batch_size": 16_384, "max_waiting_bytes": 2 * limit, "linger_ms": 50}
        async with started("t", partitions=2_000, **options) as (cluster, producer):
            most = 0
            deliveries: list[Delivery] = []
            for number in range(6_000):
                deliveries.append(producer.send("t", b"x" * 300, partition=number % 2_000))
                most = max(most, producer.health().buffered_bytes if number % 100 == 0 else 0)
                if number % 500 == 499:
                    await producer.ready()
            await asyncio.gather(*deliveries)
            assert 0 < most <= limit
            assert producer.health().buffered_bytes == 0
            counts = Counter(record.partition for record in cluster.records("t"))
            assert len(counts) == 2_000
            assert set(counts.values()) == {3}

    run(scenario())


def test_failed_records_share_no_exception_and_leave_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    # faults: M13, L24
    async def scenario() -> None:
        async with started("t", on_delivery_error=seen.append) as (cluster, producer):
            rule = cluster.fail_next("Produce", "POLICY_VIOLATION", times=None)
            for _ in range(20):
                for _ in range(500):
                    producer.send("t", b"x")
                await producer.flush()
            assert producer.metrics()["records_failed"] == 10_000
            first, second = producer.send("t", b"x"), producer.send("t", b"x")
            outcomes = await asyncio.gather(first, second, return_exceptions=True)
            assert outcomes[0] is not outcomes[1]
            await producer.close()
            assert len(seen) == 10_000
            assert len({id(error) for error in seen}) == 10_000
            assert {type(error) for error in seen} == {BrokerRejectedError}
            del rule

    seen: list[AiokprodError] = []
    with caplog.at_level(logging.ERROR, logger="aiokprod"):
        run(scenario())
    gc.collect()
    assert 0 < len(caplog.records) < 20, "told in moderation, with counts"
    assert not any("never retrieved" in record.getMessage() for record in caplog.records)


def test_retries_that_fail_at_once_neither_recurse_nor_spin() -> None:  # faults: M14, T13
    async def scenario() -> None:
        async with started(
            "t", retry_backoff_ms=1, retry_backoff_max_ms=1, request_timeout_ms=500, delivery_timeout_ms=1_500
        ) as (
            cluster,
            p,
        ):
            await p.send("t", b"0")
            cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=None)
            before = sys.getrecursionlimit()
            sys.setrecursionlimit(250)
            try:
                deliveries = [p.send("t", b"%d" % number) for number in range(100)]
                outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            finally:
                sys.setrecursionlimit(before)
            assert {type(outcome) for outcome in outcomes} == {DeliveryTimeoutError}
            attempts = deliveries[0].attempts
            assert attempts is not None and 10 < attempts <= 1_600, "one for each backoff at most"
            assert values(cluster, "t") == [b"0"]
            assert p.health().buffered_bytes == 0

    run_in_virtual_time(scenario())


def test_failures_that_come_faster_than_they_are_read_are_held_back_at_the_gate() -> None:  # faults: M15
    async def scenario() -> None:
        async with started("t", buffer_memory=400_000, max_waiting_bytes=400_000, max_request_size=100_000) as (
            cluster, producer,
        ):  # fmt: skip
            cluster.fail_next("Produce", "POLICY_VIOLATION", times=None)
            failed = 0
            for _ in range(50):
                batch: list[Delivery] = []
                for _ in range(100):
                    await producer.ready()
                    batch.append(producer.send("t", b"x" * 1_000))
                    assert producer.health().buffered_bytes <= 400_000
                outcomes = await asyncio.gather(*batch, return_exceptions=True)
                failed += sum(isinstance(outcome, BrokerRejectedError) for outcome in outcomes)
            assert failed == 5_000
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_many_partitions_that_lose_their_leader_at_once_ask_once_and_again_slowly() -> None:  # faults: T14
    async def scenario() -> None:
        async with started("t", partitions=300, retry_backoff_ms=50, retry_backoff_max_ms=100) as (cluster, producer):
            await asyncio.gather(*(producer.send("t", b"0", partition=number) for number in range(300)))
            for number in range(300):
                cluster.move_leader("t", number, None)
            before = cluster.requests_seen("Metadata")
            began = asyncio.get_running_loop().time()
            deliveries = [producer.send("t", b"1", partition=number) for number in range(300)]
            await until(lambda: cluster.requests_seen("Metadata") > before)
            await asyncio.sleep(1.0)
            elapsed_s = asyncio.get_running_loop().time() - began
            asked = cluster.requests_seen("Metadata") - before
            assert asked <= 5 + 20 * elapsed_s, "one request at a time, backoff between"
            for number in range(300):
                cluster.move_leader("t", number, 1 + number % 3)
            assert {metadata.offset for metadata in await asyncio.gather(*deliveries)} == {1}

    run_in_virtual_time(scenario())


def open_descriptors() -> int:
    """Return the files and sockets of this process; 0 if the system does not say, so that only tasks are compared."""
    return Footprint.take().descriptors or 0


def test_many_lives_leave_neither_descriptors_nor_tasks() -> None:  # faults: L27
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")

            async def live() -> None:
                async with Producer(cluster.bootstrap_servers) as producer:
                    await producer.send("t", b"v")

            for _ in range(5):
                await live()
            await turns()
            gc.collect()
            descriptors, tasks = open_descriptors(), len(asyncio.all_tasks())
            for _ in range(int(os.environ.get("AIOKPROD_TEST_LIVES", "100"))):
                await live()
            await turns()
            gc.collect()
            assert open_descriptors() <= descriptors + 3
            assert len(asyncio.all_tasks()) <= tasks + 3

    run(scenario())
