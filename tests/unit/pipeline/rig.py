"""What the tests of the pipeline share: a producer on a MockCluster, both on the test's own loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from aiokprod import Producer
from aiokprod.testing import MockCluster

LIMIT_S = 60.0  # a hang, not a slow machine


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """Run a scenario to its end; one that hangs fails."""
    asyncio.run(asyncio.wait_for(scenario, LIMIT_S))


@asynccontextmanager
async def started(*topics: str, partitions: int = 1, **options: Any) -> AsyncIterator[tuple[MockCluster, Producer]]:
    """A cluster of three brokers with these topics, and a producer that retries fast."""
    async with MockCluster(auto_create_topics=False) as cluster:
        for topic in topics:
            cluster.create_topic(topic, partitions=partitions)
        quick: dict[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5}
        quick |= {"request_timeout_ms": 2_000} | options
        async with Producer(cluster.bootstrap_servers, **quick) as producer:
            yield cluster, producer
        assert not cluster.counters.crashes


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition is true."""
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        await asyncio.sleep(0.002)


def values(cluster: MockCluster, topic: str, partition: int | None = None) -> list[bytes | None]:
    """What is in the log."""
    return [record.value for record in cluster.records(topic, partition)]
