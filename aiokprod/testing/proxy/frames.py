"""The parts of Kafka frames that the proxy reads without decoding their bodies. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum

from aiokprod.errors import ProtocolError
from aiokprod.testing.faults.apis import FLEXIBLE_FROM, NEVER, PRODUCE
from aiokprod.wire.broker_frames import decode_request_header, encode_response
from aiokprod.wire.frames import response_header_flexible
from aiokprod.wire.reader import Reader


class Direction(StrEnum):
    """The direction of a frame."""

    REQUEST = "request"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyFrame:
    """A frame as the proxy knows it. With TLS there are chunks of bytes instead, without an api."""

    broker: int
    connection: int
    direction: Direction
    api: str | None
    api_key: int
    version: int
    correlation_id: int
    size: int  # bytes, without the length prefix
    at_s: float  # time.monotonic()


def has_flexible_answer(key: int, version: int) -> bool:
    """Return whether answers to this request have a tagged header."""
    return response_header_flexible(key, version, FLEXIBLE_FROM.get(key, NEVER))


def answer_payload(frame: ProxyFrame, body: bytes) -> bytes:
    """Return a whole answer to this request, without its length."""
    return encode_response(frame.correlation_id, has_flexible_answer(frame.api_key, frame.version), body)[4:]


def request_header(payload: bytes) -> tuple[int, int, int]:
    """Return api key, version and correlation id; (-1, -1, -1) if the frame is too short."""
    if len(payload) < 8:
        return -1, -1, -1
    key, version, correlation_id = struct.unpack_from(">hhi", payload)
    return key, version, correlation_id


def expects_answer(key: int, version: int, payload: bytes) -> bool:
    """Return whether the broker answers the request: not a Produce request with acks=0."""
    if key != PRODUCE:
        return True
    try:
        reader = Reader(decode_request_header(payload, FLEXIBLE_FROM).body)
        if version >= 3:
            reader.nullable_string(version >= 9)  # the transactional id
        return reader.int16() != 0
    except ProtocolError:
        return True


def with_length(payload: bytes) -> bytes:
    """Return the frame as it goes over the wire."""
    return struct.pack(">i", len(payload)) + payload
