"""`BlockingConnection`: one plain socket to one broker, one request at a time, for admin work in tests.

Not for producing and not for the event loop: a test's set-up asks a few things of a broker and waits for each answer.
One per broker of an `Admin`, opened when first needed, thrown away at the first error.
"""

from __future__ import annotations

import socket
import struct
from typing import ClassVar, Protocol, Self, TypeVar

from aiokprod.wire.frames import encode_request_header, read_response_header, response_header_flexible
from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.versions import ApiVersions

CLIENT_ID = "aiokprod-testing"
MAX_ANSWER_BYTES = 64 * 1024 * 1024


class Request(Protocol):
    """The attributes of every generated request."""

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    def encode(self, version: int) -> bytes: ...


class Answer(Protocol):
    """The methods of every generated response."""

    @classmethod
    def decode(cls, data: bytes | memoryview, version: int) -> Self: ...


AnyAnswer = TypeVar("AnyAnswer", bound=Answer)


class BlockingConnection:
    """Requests and answers over one socket; asks for the broker's API versions first."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        """Connect.

        Raises:
            OSError: nothing listens there, or no answer came within the timeout (which each step has in full).
        """
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0
        try:
            # Version 0 is the one every broker of every age reads.
            self._versions = ApiVersions.from_response(self._exchange(ApiVersionsRequest(), ApiVersionsResponse, 0))
        except BaseException:
            self._socket.close()
            raise

    def request(self, request: Request, answer: type[AnyAnswer]) -> AnyAnswer:
        """Send and wait for the answer, in the newest version both sides know.

        Raises:
            OSError: the connection ended, or the timeout passed. The connection is then of no more use.
            UnsupportedVersionError: no common version.
        """
        version = self._versions.pick(request.API_KEY, request.MIN_VERSION, request.MAX_VERSION)
        return self._exchange(request, answer, version)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _exchange(self, request: Request, answer: type[AnyAnswer], version: int) -> AnyAnswer:
        self._correlation_id += 1
        flexible = version >= request.FLEXIBLE_FROM
        header = encode_request_header(request.API_KEY, version, self._correlation_id, CLIENT_ID, flexible)
        frame = header + request.encode(version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", self._receive(4))
        if not 4 <= length <= MAX_ANSWER_BYTES:
            raise ConnectionError(f"a broker answered with a frame of {length} bytes")
        received = self._receive(length)
        flexible = response_header_flexible(request.API_KEY, version, request.FLEXIBLE_FROM)
        correlation_id, body = read_response_header(received, flexible)
        if correlation_id != self._correlation_id:
            raise ConnectionError(f"answer to request {correlation_id}, expected {self._correlation_id}")
        return answer.decode(body, version)

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            part = self._socket.recv(count - len(received))
            if not part:
                raise ConnectionError("the broker closed the connection")
            received += part
        return bytes(received)
