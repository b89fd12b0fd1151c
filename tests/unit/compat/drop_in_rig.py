"""The parts that tests of the drop-in share: a cluster in the process, a producer of it, and a limit for a hang."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokprod.compat.aiokafka import AIOKafkaProducer
from aiokprod.testing import MockCluster

LIMIT_S: Final = 60.0


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test on a loop of its own."""
    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[tuple[MockCluster, AIOKafkaProducer]]:
    """Yield a cluster with the topic t of three partitions, and a producer with these options."""
    async with MockCluster(auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=3)
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
            yield cluster, producer
