"""All known addresses fall silent and the brokers are elsewhere: how soon a whole producer finds them, in virtual time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random

import pytest

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

BROKERS = (1, 2, 3)


class Pods:
    """Brokers behind names; a broker that is scheduled elsewhere leaves addresses that drop everything."""

    def __init__(self, network: VirtualNetwork, cluster: MockCluster) -> None:
        self._network = network
        self._cluster = cluster
        self._old: list[asyncio.Transport] = []
        self._is_over = False
        self.ports = {node: cluster.broker(node).port for node in BROKERS}
        for node in BROKERS:
            cluster.advertise(node, f"old-{node}", self.ports[node])

    async def dial(
        self, host: str, port: int, context: ssl.SSLContext | None, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Transport:
        if self._is_over and host.startswith("old"):
            await asyncio.get_running_loop().create_future()  # its packets reach nothing
        transport = await self._network.dial(host, port, context, factory)
        if not self._is_over:
            self._old.append(transport)
        return transport

    def move(self) -> None:
        self._is_over = True
        for transport in self._old:
            transport.pause_reading()
        for node in BROKERS:
            self._cluster.advertise(node, f"new-{node}", self.ports[node])


def recovery_s(seed: int, *, idle_s: float = 0.0, **options: float) -> float:
    """Return the seconds from the move to the acknowledgement of every record sent in the first second after it."""

    async def scenario(network: VirtualNetwork, random: Random) -> float:
        loop = asyncio.get_running_loop()
        async with MockCluster(brokers=len(BROKERS), network=network) as cluster:
            cluster.create_topic("t", partitions=6, replication_factor=3)
            pods = Pods(network, cluster)
            boot = [f"{'old-1' if node == 1 else 'boot'}:{pods.ports[node]}" for node in BROKERS]  # one has moved too
            async with Producer(boot, dialer=pods.dial, **options) as producer:  # type: ignore[arg-type]
                await asyncio.gather(*(producer.send("t", b"x", partition=partition) for partition in range(6)))
                await asyncio.sleep(idle_s)
                pods.move()
                began = loop.time()
                sent = []
                for number in range(20):
                    sent.append(producer.send("t", b"y", partition=number % 6))
                    await asyncio.sleep(0.05)
                await asyncio.gather(*sent)
                return loop.time() - began

    return run_virtual(scenario, seed=seed)


@pytest.mark.parametrize("idle_s", [0.0, 700.0], ids=["connected", "idle"])
@pytest.mark.parametrize(
    ("request_s", "delivery_s"), [(30, 120), (5, 60), (30, 60), (5, 10), (2, 120)], ids=lambda value: str(value)
)
def test_old_addresses_that_fall_silent_do_not_cost_the_records(
    request_s: float, delivery_s: float, idle_s: float
) -> None:  # faults: T21
    limit_s = min(max(2 * request_s, 15), delivery_s / 2)
    took = [
        recovery_s(seed, idle_s=idle_s, request_timeout_ms=request_s * 1000, delivery_timeout_ms=delivery_s * 1000)
        for seed in range(10)
    ]
    assert max(took) <= limit_s, took
