"""Frames: length-prefixed messages out of chunks of bytes, and the headers of requests and responses. Pure.

A length is judged before a byte of its frame is kept, so a hostile peer cannot make us buffer what we would refuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from aiokprod.errors import ProtocolError
from aiokprod.wire.reader import Reader
from aiokprod.wire.writer import Writer

_INT32 = Struct(">i")
_REQUEST_HEADER = Struct(">hhi")
API_VERSIONS = 18
HTTP_STARTS = (b"HTTP", b"GET ", b"POST", b"<htm", b"<!DO")
SMALLEST_FRAME = 4  # a correlation id


class FrameReader:
    """Cuts a stream into frames (without their length)."""

    __slots__ = ("_at", "_buffer", "failure", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.failure: ProtocolError | None = None
        """Why the stream is useless from here on: a length no frame can have."""
        self._buffer = bytearray()
        self._at = 0  # what is before it has been handed out

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The frames that are complete now. Those before a bad length are returned; then `failure` tells of it.

        Raises:
            ProtocolError: `failure`, when there is no frame before it, and at every call from then on.
        """
        self.take(data)
        frames: list[bytes] = []
        try:
            while (frame := self.next_frame(self.max_frame_bytes)) is not None:
                frames.append(frame)
        except ProtocolError:
            if not frames:
                raise
        return frames

    def take(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes of the stream; ask `next_frame` what they complete."""
        if self.failure is None:
            self._buffer += data

    def whole(self, data: bytes | bytearray | memoryview, max_bytes: int) -> bytes | None:
        """The frame, if these bytes are one and nothing is held: nearly always so, and then nothing has to be. None: give
        them to `take`, which judges them. `max_bytes` as for `next_frame`."""
        size = len(data) - 4
        if (
            size < SMALLEST_FRAME
            or size > max_bytes
            or size > self.max_frame_bytes
            or self._buffer
            or self.failure is not None
            or type(data) is not bytes
            or _INT32.unpack_from(data)[0] != size
        ):
            return None
        return data[4:]

    def next_frame(self, max_bytes: int) -> bytes | None:
        """The next frame, if it is complete. A length is judged as soon as it is there.

        Args:
            max_bytes: how long this one may be; `max_frame_bytes` counts too.

        Raises:
            ProtocolError: `failure`, now and at every call from then on.
        """
        if self.failure is not None:
            raise self.failure
        buffer, at = self._buffer, self._at
        size = len(buffer) - at
        length: int = _INT32.unpack_from(buffer, at)[0] if size >= 4 else 0
        if size >= 4 and not SMALLEST_FRAME <= length <= min(max_bytes, self.max_frame_bytes):
            self.failure = self._refuse(bytes(buffer[at : at + 8]), length, min(max_bytes, self.max_frame_bytes))
            buffer.clear()
            self._at = 0
            raise self.failure
        if size < 4 or size - 4 < length:
            del buffer[:at]
            self._at = 0
            return None
        with memoryview(buffer) as view:  # one copy, not two
            frame = bytes(view[at + 4 : at + 4 + length])
        self._at = at + 4 + length
        return frame

    @property
    def buffered_bytes(self) -> int:
        """Of an incomplete frame."""
        return len(self._buffer) - self._at

    def _refuse(self, start: bytes, length: int, most: int) -> ProtocolError:
        if start.startswith(HTTP_STARTS):
            return ProtocolError("the peer speaks HTTP, not Kafka: is this the right port?")
        if start[:1] == b"\x15" and start[1:2] == b"\x03":
            return ProtocolError(
                "the peer answered a TLS alert: it is a TLS port; set security_protocol to SSL or SASL_SSL"
            )
        return ProtocolError(f"a frame of {length} bytes; between {SMALLEST_FRAME} and {most} are taken")


# ---------------------------------------------------------------------- the client's side
def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool
) -> bytes:
    """Header version 1, or 2 for flexible messages; without the length."""
    client = b"" if client_id is None else client_id.encode()
    length = (-1 if client_id is None else len(client)).to_bytes(2, "big", signed=True)
    return _REQUEST_HEADER.pack(api_key, version, correlation_id) + length + client + (b"\0" if flexible else b"")


def response_header_flexible(api_key: int, version: int, flexible_from: int) -> bool:
    """Has the response a tagged header? That of ApiVersions never has, so that anybody can read it (KIP-511)."""
    return api_key != API_VERSIONS and version >= flexible_from


def read_response_header(frame: bytes | memoryview, flexible: bool) -> tuple[int, memoryview]:
    """Correlation id and body."""
    start = 5 if flexible else 4
    if len(frame) >= start and not (flexible and frame[4]):  # no tags, as ever
        return _INT32.unpack_from(frame)[0], memoryview(frame)[start:]
    reader = Reader(frame)
    correlation_id = reader.int32()
    if flexible:
        reader.skip_tags()
    return correlation_id, memoryview(frame)[len(frame) - reader.left :]


# ---------------------------------------------------------------------- the broker's side
@dataclass(frozen=True, slots=True)
class RequestHeader:
    """What a broker learns of a request before it decodes the body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def decode_request_header(frame: bytes | memoryview, flexible_from: dict[int, int]) -> RequestHeader:
    """Read a request's header; `flexible_from` tells per API the first flexible version."""
    reader = Reader(frame)
    api_key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    client_id = reader.nullable_string(False)
    if version >= flexible_from.get(api_key, 32767):
        reader.skip_tags()
    return RequestHeader(api_key, version, correlation_id, client_id, memoryview(frame)[len(frame) - reader.left :])


def encode_response(correlation_id: int, flexible: bool, body: bytes) -> bytes:
    """A whole response frame, length included."""
    writer = Writer()
    writer.int32(4 + (1 if flexible else 0) + len(body))
    writer.int32(correlation_id)
    if flexible:
        writer.out.append(0)
    writer.out += body
    return bytes(writer.out)
