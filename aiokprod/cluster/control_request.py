"""Requests of the cluster layer itself: metadata, versions, credentials, transactions. One waits, one is answered.

They travel in the same queue as Produce requests, as tokens the listener never sees.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from aiokprod.cluster.answer_limits import answer_bytes, answer_elements, check_counts
from aiokprod.errors import ConfigError, ProtocolError
from aiokprod.wire.exchange import NO_BODY
from aiokprod.wire.reader import Budget, Reader

LONGEST_S: Final = 1e9
"""More than thirty years; above it event loops no longer agree on what they can count."""

if TYPE_CHECKING:
    from aiokprod.cluster.connection import BrokerConnection


def checked_seconds(timeout_s: object) -> float:
    """A timeout as the clocks of the loop and of a connection can count it.

    Asked before anything is sent or changed: noticed later, by a clock, it would end the whole producer.

    Raises:
        TypeError: no number.
        ConfigError: not finite.
    """
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"a timeout is a number of seconds, not {type(timeout_s).__name__}")
    if not -LONGEST_S < timeout_s < LONGEST_S:  # nan is not either
        raise ConfigError(f"a timeout of {timeout_s} s: it must be below {LONGEST_S:g} s")
    return float(timeout_s)


class RequestMessage(Protocol):
    """A generated request."""

    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    def encode(self, version: int) -> bytes: ...


class ControlCall:
    """The token of one of them: `answer` gets the body, or the loss of the connection."""

    __slots__ = ("answer",)

    def __init__(self, answer: asyncio.Future[memoryview]) -> None:
        self.answer = answer


async def ask(
    connection: BrokerConnection, message: RequestMessage, *, timeout_s: float, version: int | None = None
) -> Any:
    """Send a generated request and return its decoded answer, of the type that belongs to it.

    Annotate the result: `answer: MetadataResponse = await connection.request(MetadataRequest(...), ...)`. A throttle in
    the answer is obeyed. Cancelling forgets the answer; the request stays in its place and its clock runs on.

    Args:
        connection: to send on.
        message: an `XRequest`; its `XResponse` stands in the same module.
        timeout_s: from the moment the request is the oldest unanswered one; then the connection is closed.
        version: to use; the highest that both sides speak if not given.

    Raises:
        ConnectionLostError: the connection was or came to be closed (`RequestTimeoutError`: by a timeout).
        ProtocolError: the answer cannot be read; the connection is closed.
        UnsupportedVersionError: no common version; nothing was sent.
        TypeError, ConfigError: the timeout is none; nothing was sent.
    """
    kind = type(message)
    if version is None:
        version = connection.versions.pick(kind.API_KEY, kind.MIN_VERSION, kind.MAX_VERSION)
    body = await connection.call(
        kind, version, message.encode(version), timeout_s=timeout_s, max_answer_bytes=answer_bytes(message)
    )
    broken: ProtocolError | None = None
    try:
        check_counts(message, body, version)
        budget = Budget(answer_elements(message))
        reader = Reader(body, budget=budget, tags=budget)
        answer = answer_type(kind).read(reader, version)
        reader.finish()
    except ProtocolError as error:
        broken = error.clone()
    if broken is not None:
        # Without the traceback of the decoder, and without the answer here: errors are kept, and would keep its bytes.
        body, reader = NO_BODY, Reader(b"")
        connection.close(broken)
        raise broken
    connection.mute(getattr(answer, "throttle_time_ms", 0) / 1000)
    return answer


def answer_type(kind: type[RequestMessage]) -> Any:
    """`MetadataResponse` for `MetadataRequest`."""
    return getattr(sys.modules[kind.__module__], kind.__name__.removesuffix("Request") + "Response")
