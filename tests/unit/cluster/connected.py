"""One connection to a scripted broker, and what its listener was told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from scripted_broker import Peer, Script, ScriptedBroker, api_versions

from aiokprod.cluster.connection.connection import BrokerConnection, ConnectionListener
from aiokprod.errors import ConnectionLostError
from aiokprod.logs import StateLog
from aiokprod.wire.versions import ApiVersions

PRODUCE = 0
VERSIONS = ApiVersions.from_response(api_versions())


class Recorder(ConnectionListener):
    """A listener that notes its calls, and may act on each answer."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []
        self.on_answer: list[object] = []

    def answered(self, connection: BrokerConnection, token: object, body: memoryview, version: int) -> None:
        self.events.append(("answered", token, bytes(body)))

    def chaser_returned(self, connection: BrokerConnection, token: object) -> None:
        self.events.append(("chaser", token))

    def lost(self, connection: BrokerConnection, tokens: list[tuple[object, bool]], cause: Exception) -> None:
        assert not connection.is_open
        self.events.append(("lost", tokens, cause))

    def writable(self, connection: BrokerConnection) -> None:
        assert connection.is_writable
        self.events.append(("writable",))

    @property
    def answers(self) -> list[object]:
        return [event[1] for event in self.events if event[0] in ("answered", "chaser")]

    @property
    def losses(self) -> list[tuple[object, ...]]:
        return [event for event in self.events if event[0] == "lost"]


@contextlib.asynccontextmanager
async def connected(
    *scripts: Script, listener: ConnectionListener | None = None, max_mute_s: float = 30.0
) -> AsyncIterator[BrokerConnection]:
    loop = asyncio.get_running_loop()
    async with ScriptedBroker(*scripts) as broker:
        connection = BrokerConnection(
            node_id=3,
            host="127.0.0.1",
            port=broker.port,
            client_id="tests",
            max_frame_bytes=1000,
            max_mute_s=max_mute_s,
            loop=loop,
            log=StateLog("connection to a script"),
        )
        connection.listener = listener
        await loop.create_connection(lambda: connection, "127.0.0.1", broker.port)
        connection.established(VERSIONS, 100_000_000)
        try:
            yield connection
        finally:
            connection.close(ConnectionLostError("the test is over"))
            await connection.wait_closed()


def send(connection: BrokerConnection, token: object, body: bytes = b"body", timeout_s: float = 30.0) -> None:
    connection.send(PRODUCE, 9, (body[:2], memoryview(body)[2:]), token, timeout_s=timeout_s)


async def echo(peer: Peer) -> None:
    """Answer each request with its body."""
    while True:
        request = await peer.request()
        peer.answer(request, bytes(request.body))
