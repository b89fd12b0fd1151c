"""Helpers of the tests of the pipeline: a producer on a MockCluster, both on the test's own loop.

`run` gives them sockets and the real clock: nothing may depend on how long anything takes, so a test waits for what it needs
(`until`). A test about time, or one that shows that nothing happens, is run by `run_in_virtual_time`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from random import Random
from typing import Any

from aiokprod import Producer
from aiokprod.pipeline.broker_backend import BrokerBackend
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

LIMIT_S = 300.0  # a hang, not a slow machine
NETWORK: ContextVar[VirtualNetwork | None] = ContextVar("network", default=None)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario to its end; one that hangs fails."""
    asyncio.run(asyncio.wait_for(scenario, LIMIT_S))


def run_in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario in virtual time, with asyncio's order of callbacks; tasks and connections it leaves behind fail it."""

    async def whole(network: VirtualNetwork, random: Random) -> None:
        NETWORK.set(network)
        await scenario

    run_virtual(whole, seed=1, shuffled=False)


def mock_cluster(**options: Any) -> MockCluster:
    """Return a cluster on the network of the scenario."""
    network = NETWORK.get()
    return MockCluster(**options) if network is None else MockCluster(network=network, seed=1, **options)


def producer_of(cluster: MockCluster, **options: Any) -> Producer:
    """Return a producer of this cluster on the network of the scenario."""
    network = NETWORK.get()
    if network is not None:
        options = {"dialer": network.dial} | options
    return Producer(cluster.bootstrap_servers, **options)


def backend_of(producer: Producer) -> BrokerBackend:
    """Return the stages of a started producer."""
    assert producer._pipeline is not None
    backend = producer._pipeline.backend
    assert isinstance(backend, BrokerBackend)
    return backend


@asynccontextmanager
async def started(*topics: str, partitions: int = 1, **options: Any) -> AsyncIterator[tuple[MockCluster, Producer]]:
    """Yield a cluster of three brokers with these topics, and a producer that retries fast."""
    async with mock_cluster(auto_create_topics=False) as cluster:
        for topic in topics:
            cluster.create_topic(topic, partitions=partitions)
        quick: dict[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5}
        quick |= {"request_timeout_ms": 2_000} | options
        async with producer_of(cluster, **quick) as producer:
            yield cluster, producer
        assert not cluster.counters.crashes


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition is true."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        await asyncio.sleep(0.002)


async def turns(number: int = 20) -> None:
    """Give the loop some turns: what is due now is done then."""
    for _ in range(number):
        await asyncio.sleep(0)


def values(cluster: MockCluster, topic: str, partition: int | None = None) -> list[bytes | None]:
    """Return the values in the log."""
    return [record.value for record in cluster.records(topic, partition)]
