"""A broker that does what a test's script says, on a real socket of this machine, one script per connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from listener import Listener

from aiokprod.wire.broker_frames import RequestHeader, decode_request_header, encode_response
from aiokprod.wire.frames import response_header_flexible
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.metadata import MetadataRequest
from aiokprod.wire.messages.produce import ProduceRequest
from aiokprod.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

KNOWN = (ApiVersionsRequest, MetadataRequest, ProduceRequest, SaslHandshakeRequest, SaslAuthenticateRequest)
FLEXIBLE_FROM = {kind.API_KEY: kind.FLEXIBLE_FROM for kind in KNOWN}


class Peer:
    """The broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._asked: RequestHeader | None = None

    async def request(self) -> RequestHeader:
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        return decode_request_header(await self.reader.readexactly(size), FLEXIBLE_FROM)

    def frame(self, request: RequestHeader, body: bytes) -> bytes:
        flexible = response_header_flexible(request.api_key, request.version, FLEXIBLE_FROM[request.api_key])
        return encode_response(request.correlation_id, flexible, body)

    def answer(self, request: RequestHeader, body: bytes) -> None:
        self.writer.write(self.frame(request, body))

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def negotiate(self) -> None:
        """Answer ApiVersions as a current broker does."""
        request = await self.request()
        assert request.api_key == ApiVersionsRequest.API_KEY
        self.answer(request, api_versions().encode(request.version))

    async def agree_on_sasl(self) -> str:
        """Agree to whatever mechanism is asked for; return it."""
        request = await self.request()
        assert request.api_key == SaslHandshakeRequest.API_KEY
        self.answer(request, SaslHandshakeResponse(mechanisms=["ANY"]).encode(request.version))
        return SaslHandshakeRequest.decode(request.body, request.version).mechanism

    async def sasl_token(self) -> tuple[bytes, RequestHeader]:
        """Return the client's next token and its request, for an `answer` of any bytes."""
        token = await self.sasl_token_only()
        assert self._asked is not None
        return token, self._asked

    async def sasl_token_only(self) -> bytes:
        """Return the client's next token; answer it with `answer_sasl`."""
        self._asked = await self.request()
        assert self._asked.api_key == SaslAuthenticateRequest.API_KEY
        return SaslAuthenticateRequest.decode(self._asked.body, self._asked.version).auth_bytes

    def answer_sasl(self, challenge: SaslAuthenticateResponse) -> None:
        assert self._asked is not None
        self.answer(self._asked, challenge.encode(self._asked.version))

    def answer_sasl_bytes(self, body: bytes) -> None:
        assert self._asked is not None
        self.answer(self._asked, body)

    async def hung_up(self) -> bool:
        """Wait until the client ends the connection; True if it sent nothing more."""
        try:
            return not await self.reader.read(1 << 20)
        except ConnectionError:
            return True

    def reset(self) -> None:
        """End it with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def api_versions() -> ApiVersionsResponse:
    """Return every API we know, in every version."""
    return ApiVersionsResponse(
        api_keys=[ApiVersion(kind.API_KEY, kind.MIN_VERSION, kind.MAX_VERSION) for kind in KNOWN]
    )


Script = Callable[[Peer], Awaitable[None]]


class ScriptedBroker:
    """A broker (`async with ScriptedBroker(script)`) that runs the script on every connection; its errors fail the test."""

    def __init__(self, *scripts: Script, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._scripts = scripts
        self._tls = tls
        self._host = host
        self._listener = Listener(self._serve)
        self.port = 0
        self.connections = 0
        self.failures: list[BaseException] = []

    async def __aenter__(self) -> Self:
        self.port = await self._listener.start(0, self._host, self._tls)
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = self._scripts[min(self.connections, len(self._scripts) - 1)]
        self.connections += 1
        try:
            await script(Peer(reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            raise
        except BaseException as failure:
            self.failures.append(failure)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.stop()
        if self.failures and error is None:
            raise self.failures[0]


async def idle(peer: Peer) -> None:
    """Read and say nothing."""
    while await peer.reader.read(1 << 16):
        pass


async def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> None:  # a hang, not a slow machine
    """Give the loop turns until something is so."""
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.001)


async def turns(number: int = 20) -> None:
    """Give the loop some turns: what is due now is done then."""
    for _ in range(number):
        await asyncio.sleep(0)
