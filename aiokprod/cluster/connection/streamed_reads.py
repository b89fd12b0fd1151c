"""`StreamedReads`: the protocol of a connection whose bytes are handed over, and not read into its buffer."""

from __future__ import annotations

import asyncio

from aiokprod.cluster.connection.connection import BrokerConnection


class StreamedReads(asyncio.Protocol):
    """Passes on what the loop tells a connection. Over TLS, and to the dialers of users, which may know streams only.

    The TLS layers of asyncio and uvloop fill the buffer of a protocol once, and take the rest on a later turn of the loop: what
    is left when the stream ends is lost, answers that the broker sent before it hung up.

    Args:
        connection: is told.
    """

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._connection.data_received(data)

    def eof_received(self) -> None:
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
