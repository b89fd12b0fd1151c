"""Frames as a broker reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass

from aiokprod.wire.reader import Reader
from aiokprod.wire.writer import Writer


@dataclass(frozen=True, slots=True)
class RequestHeader:
    """The part of a request that a broker reads before it decodes the body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: memoryview


def decode_request_header(frame: bytes | memoryview, flexible_from: dict[int, int]) -> RequestHeader:
    """Read a request's header; `flexible_from` has the first flexible version of each API."""
    reader = Reader(frame)
    api_key, version, correlation_id = reader.int16(), reader.int16(), reader.int32()
    client_id = reader.nullable_string(False)
    if version >= flexible_from.get(api_key, 32767):
        reader.skip_tags()
    return RequestHeader(api_key, version, correlation_id, client_id, memoryview(frame)[len(frame) - reader.left :])


def encode_response(correlation_id: int, flexible: bool, body: bytes) -> bytes:
    """Encode a whole response frame, length included."""
    writer = Writer()
    writer.int32(4 + (1 if flexible else 0) + len(body))
    writer.int32(correlation_id)
    if flexible:
        writer.out.append(0)
    writer.out += body
    return bytes(writer.out)
