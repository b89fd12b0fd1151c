"""Targets that a script of faults runs against, and what a test asks of each.

All have the same MockCluster, on the loop of the test; clients of `PROXY` reach it through a FaultProxy, and those of
`VIRTUAL` in memory, in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mock_client import RawClient
from mock_requests import mock

from aiokprod.testing import FaultProxy, MockCluster
from aiokprod.testing.faults import FaultVerbs
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MOCK, PROXY, VIRTUAL = "mock", "proxy", "virtual"
EVERYWHERE = [MOCK, PROXY, VIRTUAL]


@dataclass(slots=True)
class Target:
    """The target of a scenario: `script` takes the faults, `cluster` keeps what was carried out."""

    script: FaultVerbs
    cluster: MockCluster

    def client(self, node: int = 1) -> RawClient:
        """Yield a connection to this broker, through the proxy if there is one."""
        return RawClient(self, node)  # type: ignore[arg-type]  # it asks only where the broker is

    def broker(self, node: int) -> Any:
        if isinstance(self.script, FaultProxy):
            host, port = self.script.address(node)
            return SimpleNamespace(host=host, port=port)
        return self.cluster.broker(node)


@asynccontextmanager
async def target(kind: str, brokers: int = 1, **options: Any) -> AsyncIterator[Target]:
    """Yield a cluster with a topic `t` of two partitions, led by broker 1."""
    async with mock(brokers, **options) as cluster:
        cluster.create_topic("t", partitions=2)
        for partition in range(2):
            cluster.move_leader("t", partition, 1)
        if kind != PROXY:
            yield Target(cluster, cluster)
        else:
            upstreams = {node: (cluster.broker(node).host, cluster.broker(node).port) for node in cluster.broker_ids}
            async with FaultProxy(upstreams) as proxy:
                yield Target(proxy, cluster)
        assert not cluster.counters.crashes


Scenario = Callable[[Target, RawClient], Awaitable[None]]


def play(kind: str, scenario: Scenario, **options: Any) -> None:
    """Run a scenario of one client, which has asked for the metadata of `t` (a proxy learns names from that)."""

    async def run(**network: Any) -> None:
        async with target(kind, **options, **network) as made, made.client() as client:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            await client.ask(asked, MetadataResponse, 12)
            async with asyncio.timeout(60):
                await scenario(made, client)

    if kind == VIRTUAL:
        run_virtual(lambda network, random: run(network=alike(network)), seed=1)
    else:
        asyncio.run(run())


def alike(network: VirtualNetwork) -> VirtualNetwork:
    """Let everything take equally long, as on loopback: else a reset may come before an EOF that was sent before it."""
    network._latency_s = (0.001, 0.001)
    return network


async def end_of(client: RawClient) -> str:
    """Return how the connection ends: "closed", "reset", or "bytes" if something comes first."""
    try:
        return "closed" if await asyncio.wait_for(client.reader.read(1), 60) == b"" else "bytes"
    except ConnectionResetError:
        return "reset"


async def eventually(condition: Callable[[], bool]) -> None:
    """Let the loop turn until it is so."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)
