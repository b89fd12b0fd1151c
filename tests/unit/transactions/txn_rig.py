"""A transactional producer on a `MockCluster`, both in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

from aiokprod import Producer
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

Scenario = Callable[[MockCluster, Producer], Awaitable[None]]
ID: Final = "tx"

CLUSTERS: Final[dict[str, dict[str, Any]]] = {
    "TV2": {"transaction_version": 2, "transaction_completion_ms": 5},
    "TV1": {"transaction_version": 1, "transaction_completion_ms": 5},
    "TV0": {"transaction_version": 0, "transaction_completion_ms": 5},
}
"""The three levels of the feature transaction.version (broker: 10)."""

QUICK: Final[dict[str, Any]] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 100}


@asynccontextmanager
async def started(
    network: VirtualNetwork, cluster_options: dict[str, Any], **options: Any
) -> AsyncIterator[tuple[MockCluster, Producer]]:
    """Yield a cluster of three brokers with the topic "t" of three partitions, and a started producer."""
    options_of_cluster = {"seed": 1, "auto_create_topics": False, "now_ms": wall_ms} | cluster_options
    async with MockCluster(3, network=network, **options_of_cluster) as cluster:
        cluster.create_topic("t", partitions=3)
        async with producer_of(cluster, network, **options) as producer:
            yield cluster, producer
        assert cluster.counters.crashes == []


def producer_of(cluster: MockCluster, network: VirtualNetwork, **options: Any) -> Producer:
    """Return a producer of the cluster, not started."""
    every = {"transactional_id": ID, "dialer": network.dial} | QUICK | options
    return Producer(cluster.bootstrap_servers, **every)


def run(scenario: Scenario, cluster_options: dict[str, Any] | None = None, **options: Any) -> None:
    """Run the scenario with a started producer."""

    async def whole(network: VirtualNetwork, random: Random) -> None:
        async with started(network, cluster_options or CLUSTERS["TV2"], **options) as (cluster, producer):
            async with asyncio.timeout(1000):  # virtual: a hang fails the test
                await scenario(cluster, producer)

    run_virtual(whole, seed=1)


async def committed(cluster: MockCluster) -> list[bytes | None]:
    """Return the values that readers of committed records see, partition by partition, once the markers are written."""
    await asyncio.sleep(0.1)  # virtual
    return [record.value for record in cluster.records("t", committed=True)]


def written(cluster: MockCluster) -> list[bytes | None]:
    """Return all values, partition by partition."""
    return [record.value for record in cluster.records("t")]
