"""A producer on a `MockCluster`, both in virtual time: what the tests of states that take seconds to come about share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from aiokprod import Delivery, Producer
from aiokprod.errors import AiokprodError
from aiokprod.explanation import WaitsFor
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

Scenario = Callable[[VirtualNetwork], Coroutine[Any, Any, None]]


def run(scenario: Scenario, seed: int = 1) -> None:
    """Run the scenario in virtual time; tasks and connections it leaves behind fail it."""

    async def whole(network: VirtualNetwork, random: Random) -> None:
        await scenario(network)

    run_virtual(whole, seed=seed)


@asynccontextmanager
async def started(
    network: VirtualNetwork, *, partitions: int = 1, brokers: int = 1, **options: Any
) -> AsyncIterator[tuple[MockCluster, Producer]]:
    """Yield a cluster with the topic "t", and a producer that knows it. Nothing may have crashed at the end."""
    async with MockCluster(brokers=brokers, network=network, seed=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=partitions)
        options = {"dialer": network.dial} | options
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            await producer.partitions_for("t")
            yield cluster, producer
        assert not cluster.counters.crashes


def room(size: int, **options: Any) -> dict[str, Any]:
    """Return options for a buffer of so many bytes, with batches and requests as large."""
    return {"buffer_memory": size, "max_request_size": size, "batch_size": size} | options


class Told:
    """The calls of `on_delivery_error`."""

    def __init__(self) -> None:
        self.errors: list[AiokprodError] = []

    def __call__(self, error: AiokprodError) -> None:
        self.errors.append(error)

    @property
    def kinds(self) -> list[str]:
        return [type(error).__name__ for error in self.errors]

    def given(self) -> list[bytes | None]:
        """Return the values of the records that it was given (`keep_failed_records`), each with an error that says so."""
        assert all(error.reported for error in self.errors)
        return [error.record.value for error in self.errors if error.record is not None]


def lost(caplog: pytest.LogCaptureFixture) -> int:
    """Return how many failures the log says that no caller awaited."""
    lines = [record.getMessage() for record in caplog.records if "no caller awaited" in record.msg]
    return sum(int(re.findall(r"(\d+) records? failed", line)[0]) for line in lines)


async def outcomes(deliveries: Sequence[Awaitable[object]], within_s: float = 600.0) -> list[object]:
    """Return the metadata or the error of each. A Delivery that never settles fails the test."""
    async with asyncio.timeout(within_s):
        return await asyncio.gather(*deliveries, return_exceptions=True)


def kinds(results: Sequence[object]) -> list[str]:
    return [type(result).__name__ for result in results]


def log(cluster: MockCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)]


def waits_for(delivery: Delivery) -> WaitsFor | None:
    """Return what the record waits for."""
    return delivery.explain().waits_for
