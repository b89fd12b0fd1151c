"""Rows of the fault catalogue that only a proxy before the brokers can make: late, cut and dripping bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rig import run, until, values

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.testing.proxy import FaultProxy

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5, "request_timeout_ms": 2_000,
    "linger_ms": 0,
}  # fmt: skip


@asynccontextmanager
async def proxied(**options: Any) -> AsyncIterator[tuple[MockCluster, FaultProxy, Producer]]:
    """Yield a cluster that clients reach through the proxy alone, a topic `t` of three partitions, and a producer."""
    async with MockCluster() as cluster:
        cluster.create_topic("t", partitions=3)
        own = [address.rsplit(":", 1) for address in cluster.bootstrap_servers.split(",")]
        upstreams = {node: (host, int(port)) for node, (host, port) in zip(cluster.broker_ids, own, strict=True)}
        with FaultProxy(upstreams) as proxy:
            for node in cluster.broker_ids:
                cluster.advertise(node, *proxy.address(node))
            async with Producer(proxy.bootstrap_servers, **(QUICK | options)) as producer:
                yield cluster, proxy, producer
        assert not cluster.counters.crashes


async def numbered(producer: Producer, numbers: range) -> list[int | None]:
    """Send them to partition 0, one batch each; their offsets."""
    deliveries = [producer.send("t", b"%d" % number, partition=0) for number in numbers]
    return [metadata.offset for metadata in await asyncio.gather(*deliveries)]


def texts(numbers: range) -> list[bytes | None]:
    return [b"%d" % number for number in numbers]


def test_a_request_that_arrives_after_its_retry_makes_no_second_copy() -> None:
    """faults: N9"""

    async def scenario() -> None:
        async with proxied(request_timeout_ms=300, batch_size=0) as (cluster, proxy, producer):
            assert await numbered(producer, range(2)) == [0, 1]
            held = proxy.hold("Produce", before_serving=True)
            sending = asyncio.create_task(numbered(producer, range(2, 7)))
            await until(lambda: held.hits >= 1 and producer.metrics()["connections_lost"] >= 1)
            held.disarm()  # later ones pass; what is held stays held
            assert await sending == [2, 3, 4, 5, 6]
            before = cluster.counters.duplicates + sum(cluster.counters.refusals.values())
            proxy.release(held)
            await until(lambda: cluster.counters.duplicates + sum(cluster.counters.refusals.values()) > before)
            assert await numbered(producer, range(7, 9)) == [7, 8]
            assert values(cluster, "t", 0) == texts(range(9))

    run(scenario())


@pytest.mark.parametrize("size", [0, 3, 4, 20])
def test_an_answer_cut_in_the_middle_is_a_lost_answer(size: int) -> None:
    """faults: N12, S7"""

    async def scenario() -> None:
        async with proxied() as (cluster, proxy, producer):
            assert await numbered(producer, range(1)) == [0]
            cut = proxy.truncate_next("Produce", size)
            assert await numbered(producer, range(1, 5)) == [1, 2, 3, 4]
            assert cut.hits == 1
            assert values(cluster, "t", 0) == texts(range(5))

    run(scenario())


@pytest.mark.parametrize("size", [3, 10, 60])
def test_a_request_cut_in_the_middle_is_written_once(size: int) -> None:
    """faults: N1, N10"""

    async def scenario() -> None:
        async with proxied() as (cluster, proxy, producer):
            assert await numbered(producer, range(1)) == [0]
            cut = proxy.truncate_next("Produce", size, before_serving=True)
            assert await numbered(producer, range(1, 5)) == [1, 2, 3, 4]
            assert cut.hits == 1
            assert values(cluster, "t", 0) == texts(range(5))

    run(scenario())


def test_an_answer_that_drips_is_left_at_the_request_timeout() -> None:
    """faults: N6"""

    async def scenario() -> None:
        async with proxied(request_timeout_ms=300) as (cluster, proxy, producer):
            assert await numbered(producer, range(1)) == [0]
            proxy.drip_next("Produce", bytes_per_s=1)
            async with asyncio.timeout(30):
                assert await numbered(producer, range(1, 3)) == [1, 2]
            assert values(cluster, "t", 0) == texts(range(3))
            assert producer.metrics()["connections_lost"] >= 1

    run(scenario())


def test_answers_byte_by_byte_are_answers() -> None:
    """faults: N11"""

    async def scenario() -> None:
        async with proxied() as (cluster, proxy, producer):
            proxy.rechunk_next(None, times=None)
            assert await numbered(producer, range(5)) == [0, 1, 2, 3, 4]
            assert values(cluster, "t", 0) == texts(range(5))

    run(scenario())


def test_an_answer_to_another_request_costs_its_connection_and_resolves_no_request() -> None:
    """faults: H8"""

    async def scenario() -> None:
        async with proxied(request_timeout_ms=300) as (cluster, proxy, producer):
            assert await numbered(producer, range(1)) == [0]
            proxy.wrong_correlation_next("Produce")
            assert await numbered(producer, range(1, 3)) == [1, 2]
            assert values(cluster, "t", 0) == texts(range(3))
            assert producer.metrics()["connections_lost"] >= 1

    run(scenario())


def test_a_request_swallowed_with_its_connection_open_is_sent_again() -> None:
    """faults: N7"""

    async def scenario() -> None:
        async with proxied(request_timeout_ms=300) as (cluster, proxy, producer):
            assert await numbered(producer, range(1)) == [0]
            proxy.blackhole_next("Produce", before_serving=True)
            assert await numbered(producer, range(1, 4)) == [1, 2, 3]
            assert values(cluster, "t", 0) == texts(range(4))

    run(scenario())
