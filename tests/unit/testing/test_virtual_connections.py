"""What is connected by asyncio's own means in virtual time goes to the network in memory."""

from __future__ import annotations

import asyncio
import socket
from random import Random

import pytest

from aiokprod import Producer
from aiokprod.errors import BootstrapError
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualLoop, VirtualNetwork, run_virtual


def cluster_on(network: VirtualNetwork) -> MockCluster:
    return MockCluster(3, network=network, seed=1)


def test_a_producer_that_knows_nothing_of_it_reaches_the_cluster() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> int:
        async with cluster_on(network) as cluster:
            cluster.create_topic("t", partitions=3)
            servers = cluster.bootstrap_servers.replace("127.0.0.1", "localhost")
            async with Producer(servers) as producer:
                await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(30)))
            return len(cluster.records("t"))

    for seed in range(5):
        assert run_virtual(scenario, seed=seed) == 30


def test_nothing_of_it_leaves_this_process() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        with socket.create_server(("127.0.0.1", 0)) as real:
            port = real.getsockname()[1]
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            with pytest.raises(BootstrapError, match="Connection refused"):
                await Producer(f"127.0.0.1:{port}", max_block_ms=1_000).start()

    run_virtual(scenario, seed=1)


def test_streams_meet_in_memory_and_the_address_may_be_left_out() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> bytes:
        class Echo(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                self.transport.write(data)

        network.listen(7, Echo).is_open = True
        reader, writer = await asyncio.open_connection(None, 7)
        writer.write(b"hello")
        answer = await reader.readexactly(5)
        writer.close()
        await writer.wait_closed()
        return answer

    assert run_virtual(scenario, seed=1) == b"hello"


def test_there_are_no_names_and_no_tls() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        loop = asyncio.get_running_loop()
        for name in ("kafka.example", "::1"):
            with pytest.raises(socket.gaierror, match="no names"):
                await loop.getaddrinfo(name, 9092)
        assert await loop.getaddrinfo(b"localhost", 9092) == await loop.getaddrinfo("127.0.0.1", 9092)
        with pytest.raises(NotImplementedError, match="no TLS"):
            await asyncio.open_connection("127.0.0.1", 9092, ssl=True)

    run_virtual(scenario, seed=1)


def test_who_stops_listening_under_way_refuses() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        listener = network.listen(7, asyncio.Protocol)
        listener.is_open = True
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        await loop.sock_connect(sock, ("127.0.0.1", 7))
        listener.is_open = False
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(asyncio.Protocol, sock=sock)
        assert sock.fileno() == -1  # closed: it was the connection's

    run_virtual(scenario, seed=1)


def test_a_loop_alone_has_no_network() -> None:
    loop = VirtualLoop()
    try:
        with pytest.raises(NotImplementedError, match="no network"):
            loop.run_until_complete(asyncio.open_connection("127.0.0.1", 9092))
    finally:
        loop.close()
