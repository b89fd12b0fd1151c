"""Connections by asyncio's own means in virtual time go to the network in memory."""

from __future__ import annotations

import asyncio
import socket
from random import Random

import pytest

from aiokprod import Producer
from aiokprod.errors import BootstrapError
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualLimitError, VirtualLoop, VirtualNetwork, run_virtual


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
        network.listen(7, Echo).is_open = True
        reader, writer = await asyncio.open_connection(None, 7)
        writer.write(b"hello")
        answer = await reader.readexactly(5)
        writer.close()
        return answer

    assert run_virtual(scenario, seed=1) == b"hello"


class Echo(asyncio.Protocol):
    """A protocol that sends back what it receives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


async def say(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("localhost", port)
    try:
        writer.write(b"hello")
        return await reader.readexactly(5)
    finally:
        writer.close()
        await writer.wait_closed()


def test_servers_listen_in_memory_on_a_port_of_their_own_a_given_one_or_that_of_a_socket() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        loop = asyncio.get_running_loop()
        given = socket.create_server(("127.0.0.1", 0))
        theirs = given.getsockname()[1]
        for arguments, port in (({}, None), ({"host": "0.0.0.0", "port": 7}, 7), ({"sock": given}, theirs)):
            server = await loop.create_server(Echo, **arguments)
            assert server.is_serving() and server.get_loop() is loop
            found = server.sockets[0].getsockname()[1]
            assert port in (None, found)
            assert await say(found) == b"hello"
            server.close()
            server.close()
            await server.wait_closed()
            assert not server.is_serving() and server.sockets == ()
            with pytest.raises(ConnectionRefusedError):
                await say(found)
        assert given.fileno() == -1

    run_virtual(scenario, seed=1)


def test_a_server_may_begin_later_and_serve_until_it_is_cancelled() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), port=7, start_serving=False)
        with pytest.raises(ConnectionRefusedError):
            await say(7)
        serving = asyncio.create_task(server.serve_forever())
        await asyncio.sleep(0.1)
        with pytest.raises(asyncio.IncompleteReadError):
            await say(7)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert not server.is_serving()
        await server.start_serving()  # a closed one stays closed
        assert not server.is_serving()
        with pytest.raises(VirtualLimitError, match="no TLS"):
            await asyncio.start_server(lambda reader, writer: None, port=8, ssl=object())  # type: ignore[arg-type]

    run_virtual(scenario, seed=1)


def test_there_are_no_names_and_no_tls() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        loop = asyncio.get_running_loop()
        for name in ("kafka.example", "::1"):
            with pytest.raises(socket.gaierror, match="no names"):
                await loop.getaddrinfo(name, 9092)
        assert await loop.getaddrinfo(b"localhost", 9092) == await loop.getaddrinfo("127.0.0.1", 9092)
        with pytest.raises(VirtualLimitError, match="no TLS"):
            await asyncio.open_connection("127.0.0.1", 9092, ssl=True)

    run_virtual(scenario, seed=1)


def test_a_server_that_stops_listening_under_way_refuses() -> None:
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
        with pytest.raises(VirtualLimitError, match="no network"):
            loop.run_until_complete(asyncio.open_connection("127.0.0.1", 9092))
    finally:
        loop.close()
