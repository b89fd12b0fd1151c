"""Bodies of requests and answers as messages, for faults that look into them. Pure.

A body the codecs do not know (another API, a version too old or too new) is None: faults that need no body still work.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import ClassVar, Protocol, Self, cast

from aiokprod.errors import ProtocolError
from aiokprod.testing.faults.apis import FLEXIBLE_FROM, api_name_of
from aiokprod.testing.proxy.frames import ProxyFrame, has_flexible_answer
from aiokprod.wire.broker_frames import decode_request_header
from aiokprod.wire.frames import encode_request_header, read_response_header
from aiokprod.wire.reader import Reader


class Message(Protocol):
    """A generated message."""

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]

    def encode(self, version: int) -> bytes:
        """Return the body in this version."""
        ...

    @classmethod
    def read(cls, reader: Reader, version: int) -> Self:
        """Read the message at the reader's position; ProtocolError if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Codec:
    """The messages of one API."""

    request: type[Message]
    response: type[Message]

    def knows(self, version: int) -> bool:
        """Return whether a body of this version can be read and written."""
        return self.request.MIN_VERSION <= version <= self.request.MAX_VERSION


@cache
def codec_of(key: int) -> Codec | None:
    """Return the messages of an API; None if there are none."""
    name = api_name_of(key)
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    try:
        module = import_module(f"aiokprod.wire.messages.{snake}")
    except ModuleNotFoundError:
        return None
    # The door to the generated modules: each has the two classes, named after the API.
    request, response = getattr(module, f"{name}Request"), getattr(module, f"{name}Response")
    return Codec(cast("type[Message]", request), cast("type[Message]", response))


def read_request(frame: ProxyFrame, payload: bytes) -> Message | None:
    """Return the request in this frame."""
    codec = codec_of(frame.api_key)
    if codec is None or not codec.knows(frame.version):
        return None
    try:
        # Bytes behind the body are taken, as a broker takes them (broker: 13.6b).
        return codec.request.read(Reader(decode_request_header(payload, FLEXIBLE_FROM).body), frame.version)
    except ProtocolError:
        return None


def request_payload(frame: ProxyFrame, payload: bytes, request: Message) -> bytes:
    """Return the frame with another body, without its length."""
    version = frame.version
    flexible = version >= FLEXIBLE_FROM[frame.api_key]
    client_id = decode_request_header(payload, FLEXIBLE_FROM).client_id
    return encode_request_header(frame.api_key, version, frame.correlation_id, client_id, flexible) + request.encode(
        version
    )


def read_answer(frame: ProxyFrame, payload: bytes) -> Message | None:
    """Return the answer in this payload, to the request `frame`."""
    codec = codec_of(frame.api_key)
    if codec is None or not codec.knows(frame.version):
        return None
    try:
        _, body = read_response_header(payload, has_flexible_answer(frame.api_key, frame.version))
        return codec.response.read(Reader(body), frame.version)
    except ProtocolError:
        return None
