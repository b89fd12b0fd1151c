"""Frames: length-prefixed messages out of chunks of bytes, and the headers of requests and responses. Pure.

The length is checked before any byte of its frame is kept, so a hostile peer cannot make us buffer a frame that we would
refuse.
"""

from __future__ import annotations

from struct import Struct

from aiokprod.errors import ProtocolError
from aiokprod.wire.reader import Reader

_INT32 = Struct(">i")
_REQUEST_HEADER = Struct(">hhi")
API_VERSIONS = 18
HTTP_STARTS = (b"HTTP", b"GET ", b"POST", b"<htm", b"<!DO")  # read as a length these are above 1 GB
SMALLEST_FRAME = 4  # the correlation id


class FrameReader:
    """A reader that cuts a stream into frames (without their length field)."""

    __slots__ = ("_at", "_buffer", "failure", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self.failure: ProtocolError | None = None
        """Why the stream cannot be read further: a length that no frame can have."""
        self._buffer = bytearray()
        self._at = 0  # bytes before this position have been handed out

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Return the frames that are complete now; frames before a bad length are returned before `failure` is raised.

        Raises:
            ProtocolError: `failure`, if no frame precedes it, and at every later call.
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
        """Append bytes of the stream; `next_frame` returns the frames they complete."""
        if self.failure is None:
            self._buffer += data

    def whole(self, data: bytes | bytearray | memoryview, max_bytes: int) -> bytes | None:
        """Return the frame if these bytes are exactly one and nothing is buffered, as in nearly every call; None otherwise.

        After None the bytes must be given to `take`, which checks them. `max_bytes` is as for `next_frame`.
        """
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
        """Return the next frame, if it is complete. A length is checked as soon as it is there.

        Args:
            max_bytes: the largest size of this frame; `max_frame_bytes` applies too.

        Raises:
            ProtocolError: `failure`, now and at every later call.
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
            del buffer[:at]  # only here: after each frame it would move the remaining bytes again (quadratic)
            self._at = 0
            return None
        with memoryview(buffer) as view:  # one copy; a slice of the bytearray would be a second one
            frame = bytes(view[at + 4 : at + 4 + length])
        self._at = at + 4 + length
        return frame

    @property
    def buffered_bytes(self) -> int:
        """The size of the incomplete frame."""
        return len(self._buffer) - self._at

    def _refuse(self, start: bytes, length: int, most: int) -> ProtocolError:
        if start.startswith(HTTP_STARTS):
            return ProtocolError("the peer speaks HTTP, not Kafka: this is the port of another program")
        if start[:1] == b"\x15" and start[1:2] == b"\x03":  # a TLS record of type alert, version 3.x
            return ProtocolError(
                "the peer answered with a TLS alert: this is a TLS port; set security_protocol to SSL or SASL_SSL"
            )
        if start.startswith(
            b"E\0\0\0"
        ):  # an ErrorResponse, of a server that took our first bytes for a startup message
            return ProtocolError(
                "the peer answers as PostgreSQL does, not as Kafka: this is the port of another program"
            )
        if start.isascii() and start.decode().strip().isprintable() and len(start) == 8:
            return ProtocolError(
                f"the peer answered with a text ({start!r}...), not as Kafka: this is the port of another program"
            )
        return ProtocolError(f"a frame of {length} bytes; between {SMALLEST_FRAME} and {most} are accepted")


# ---------------------------------------------------------------------- the client's side
def encode_request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, flexible: bool
) -> bytes:
    """Encode header version 1, or 2 for flexible messages; without the length."""
    client = b"" if client_id is None else client_id.encode()
    length = (-1 if client_id is None else len(client)).to_bytes(2, "big", signed=True)
    return _REQUEST_HEADER.pack(api_key, version, correlation_id) + length + client + (b"\0" if flexible else b"")


def response_header_flexible(api_key: int, version: int, flexible_from: int) -> bool:
    """Return True if the response has a tagged header. That of ApiVersions never has one (KIP-511)."""
    return api_key != API_VERSIONS and version >= flexible_from


def read_response_header(frame: bytes | memoryview, flexible: bool) -> tuple[int, memoryview]:
    """Return correlation id and body of a response."""
    start = 5 if flexible else 4
    if len(frame) >= start and not (flexible and frame[4]):  # no tags, the usual case
        return _INT32.unpack_from(frame)[0], memoryview(frame)[start:]
    reader = Reader(frame)
    correlation_id = reader.int32()
    if flexible:
        reader.skip_tags()
    return correlation_id, memoryview(frame)[len(frame) - reader.left :]
