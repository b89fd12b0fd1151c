"""Errors of `start` when nothing, or something else, is at the bootstrap addresses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from aiokprod import Producer
from aiokprod.errors import AiokprodError, BootstrapError, ConnectionLostError, ProtocolError
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster

HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]  # nothing listens there


async def refused(*servers: str, timeout: float = 1.0) -> AiokprodError:
    producer = Producer(list(servers), reconnect_backoff_ms=5, reconnect_backoff_max_ms=20)
    with pytest.raises(AiokprodError) as raised:
        await producer.start(timeout)
    assert producer.health().state is ProducerState.NEW
    return raised.value


def test_each_address_is_named_with_what_is_wrong_there(closed_port: int) -> None:  # faults: T15, N17
    dead, unknown = f"127.0.0.1:{closed_port}", "no-such-host.invalid:9092"
    error = asyncio.run(refused(dead, unknown, timeout=3.0))
    assert isinstance(error, BootstrapError)
    assert [(host, port) for host, port, _ in error.tried] == [
        ("127.0.0.1", closed_port),
        ("no-such-host.invalid", 9092),
    ]
    assert all(isinstance(cause, ConnectionLostError) for *_, cause in error.tried)
    assert f"{dead}: " in str(error) and "refused" in str(error)
    assert "no-such-host.invalid:9092: the name" in str(error)


def test_the_log_calls_a_bootstrap_server_so_and_not_by_a_broker_id(
    closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(refused(f"127.0.0.1:{closed_port}", timeout=0.5))
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("cluster [aiokprod-")
    assert f"]: metadata could not be refreshed: no broker can be reached; tried 127.0.0.1:{closed_port}: " in told[0]
    assert not [text for text in told if "broker -" in text]


def test_an_http_server_is_named_as_one() -> None:  # faults: S5
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(HTTP_ANSWER)
        writer.close()
        with suppress(ConnectionError):  # the client hangs up too
            await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()

    async def scenario() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            error = await refused(f"127.0.0.1:{port}", timeout=3.0)
            cause = error.tried[0][2] if isinstance(error, BootstrapError) else error
            assert isinstance(cause, ProtocolError)
            assert f"127.0.0.1:{port}" in str(error)
            assert "HTTP" in str(error)
            await ended.wait()

    asyncio.run(scenario())


def test_a_server_that_says_nothing_is_given_up_at_the_timeout_of_start() -> None:  # faults: B16
    async def scenario() -> None:
        connected, given_up, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def silence(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set()
            await given_up.wait()
            writer.close()
            await writer.wait_closed()
            ended.set()

        server = await asyncio.start_server(silence, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            error = await refused(f"127.0.0.1:{port}", timeout=0.5)
            assert connected.is_set()
            assert isinstance(error, BootstrapError)
            assert f"127.0.0.1:{port}" in str(error)
            given_up.set()
            await ended.wait()

    asyncio.run(scenario())


def test_one_good_address_is_enough(closed_port: int) -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            servers = [f"127.0.0.1:{closed_port}", "no-such-host.invalid:9092", *cluster.bootstrap_servers.split(",")]
            async with Producer(servers) as producer:
                assert (await producer.send("t", b"v")).offset == 0

    asyncio.run(scenario())
