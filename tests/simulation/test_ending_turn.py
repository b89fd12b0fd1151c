"""The turn of the loop in which a transport is closing and its protocol has not been told: what is learnt in it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random

import pytest

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

TURNS = 8
"""From the bytes of a metadata answer until every stage has learnt of it, with room to spare."""


class Relay(asyncio.Protocol):
    """A protocol that passes everything on to another, and reports bytes after that one has had them."""

    def __init__(self, behind: asyncio.Protocol, told: Callable[[bytes], None]) -> None:
        self._behind = behind
        self._told = told
        self.pause_writing = behind.pause_writing
        self.resume_writing = behind.resume_writing
        self.eof_received = behind.eof_received
        self.connection_lost = behind.connection_lost

    def data_received(self, data: bytes) -> None:
        self._behind.data_received(data)
        self._told(data)


@pytest.mark.parametrize("turns", range(TURNS))
def test_a_leader_learnt_while_the_old_connection_is_closing_and_untold(turns: int) -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        loop = asyncio.get_running_loop()
        cluster = MockCluster(brokers=2, network=network, seed=1)
        is_moved: list[bool] = []
        seen: list[bool] = []

        def later(left: int) -> None:
            if left:
                loop.call_soon(later, left - 1)
            else:
                network.reset(cluster.broker(1).port)

        def told(data: bytes) -> None:
            if is_moved and not seen:
                seen.append(True)
                later(turns)

        async def dial(
            host: str, port: int, context: ssl.SSLContext | None, factory: Callable[[], asyncio.Protocol]
        ) -> asyncio.Transport:
            transport = await network.dial(host, port, context, factory)
            protocol = transport.get_protocol()
            assert isinstance(protocol, asyncio.Protocol)
            if port == cluster.broker(2).port:
                transport.set_protocol(Relay(protocol, told))
            return transport

        async with cluster:
            for topic, leader in (("t", 1), ("other", 2)):
                cluster.create_topic(topic, partitions=1)
                cluster.move_leader(topic, 0, leader)
            bootstrap = f"{cluster.broker(2).host}:{cluster.broker(2).port}"
            async with Producer(bootstrap, dialer=dial, metadata_max_age_ms=300) as producer:
                await producer.send("t", b"0")
                held = cluster.hold("Produce", broker=1)
                flying = [producer.send("t", b"%d" % number) for number in range(1, 4)]
                while not held.hits:
                    await asyncio.sleep(0.001)
                cluster.move_leader("t", 0, 2)
                is_moved.append(True)
                while not seen:
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.01)  # the connection is gone, and the leader known
                cluster.release(held)
                metadata = await asyncio.gather(*flying, producer.send("other", b"elsewhere"))
                assert [delivered.offset for delivered in metadata] == [1, 2, 3, 0]
                assert producer.health().live
        assert [record.value for record in cluster.records("t")] == [b"0", b"1", b"2", b"3"]

    for seed in range(20):
        run_virtual(scenario, seed=seed, shuffled=bool(seed % 2))
