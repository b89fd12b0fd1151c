"""Members of a `FakeGroup` with producers on a `MockCluster`, all in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from fake_group import AiokafkaMember, FakeGroup

from aiokprod import Producer, exactly_once
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

QUICK: dict[str, Any] = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 100}


class Rig:
    """A cluster with the topics "in" and "out", and the group "g"."""

    def __init__(
        self, cluster: MockCluster, network: VirtualNetwork, random: Random, each: int, partitions: int
    ) -> None:
        self.cluster = cluster
        self.network = network
        self.random = random
        self.group = FakeGroup(cluster, partitions, each)

    def producer(self, name: str = "tx", **options: Any) -> Producer:
        every = {"transactional_id": name, "dialer": self.network.dial} | QUICK | options
        return Producer(self.cluster.bootstrap_servers, **every)

    def member(self, name: str = "a") -> AiokafkaMember:
        member = AiokafkaMember(self.group, name)
        self.group.join(member)
        return member

    async def output(self) -> list[bytes | None]:
        """Return what readers of committed records see, sorted."""
        await asyncio.sleep(4)  # virtual: until the markers are written
        return sorted(record.value or b"" for record in self.cluster.records("out", committed=True))

    async def offsets(self) -> dict[tuple[str, int], int]:
        await asyncio.sleep(0.2)  # virtual
        return {where: place.offset for where, place in self.cluster.committed_offsets("g").items()}


Scenario = Callable[[Rig], Awaitable[None]]


def run(
    scenario: Scenario, *, each: int = 10, partitions: int = 2, seed: int = 1, brokers: int = 3, **options: Any
) -> None:
    """Run the scenario on a cluster of its own."""

    async def whole(network: VirtualNetwork, random: Random) -> None:
        every = {"seed": 1, "auto_create_topics": False, "now_ms": wall_ms, "transaction_completion_ms": 5} | options
        async with MockCluster(brokers, network=network, **every) as cluster:
            cluster.create_topic("in", partitions=partitions)
            cluster.create_topic("out", partitions=3)
            rig = Rig(cluster, network, random, each, partitions)
            async with asyncio.timeout(3000):  # virtual: a hang fails the test
                with rig.group.coordinating():
                    await scenario(rig)
            assert cluster.counters.crashes == []

    run_virtual(whole, seed=seed)


async def copy(rig: Rig, consumer: Any, producer: Producer, *, until: int, max_records: int = 3) -> int:
    """Copy the input to the output until so many records were handed over; return the number of batches."""
    batches_seen = records_seen = 0
    async with exactly_once(consumer, producer, max_records=max_records, timeout=0.1) as batches:
        async for records in batches:
            batches_seen += 1
            for record in records:
                producer.send("out", value_of(record))
            records_seen += len(records)
            if records_seen >= until:
                batches.stop()
    return batches_seen


def value_of(record: Any) -> bytes:
    return record.value() if callable(record.value) else record.value
