"""Requests of the cluster layer itself: metadata, versions, credentials, transactions. One task waits for each answer.

They are sent in the same queue as Produce requests, with tokens that the listener is never given.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, ClassVar, Final, Protocol

from aiokprod.cluster.connection.answer_limits import answer_elements, check_counts
from aiokprod.errors import ConfigError
from aiokprod.wire.reader import Budget, Reader

LONGEST_S: Final = 1e9
"""More than thirty years; above it event loops differ in what their timers accept."""


def checked_seconds(timeout_s: object) -> float:
    """Return a timeout as a float that the loop's timers accept.

    Called before anything is sent or changed: found later, inside a timer, a bad timeout would end the whole producer.

    Raises:
        TypeError: the timeout is not a number.
        ConfigError: the timeout is not finite, or too large.
    """
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"a timeout is a number of seconds, not {type(timeout_s).__name__}")
    if not -LONGEST_S < timeout_s < LONGEST_S:  # nan fails this too (faults: M17)
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
    """The token of a control request: `answer` gets the body of the answer, or the error of a lost connection."""

    __slots__ = ("answer",)

    def __init__(self, answer: asyncio.Future[memoryview]) -> None:
        self.answer = answer


def decoded(message: RequestMessage, body: memoryview, version: int) -> Any:
    """Decode the answer to a request.

    Raises:
        ProtocolError: it cannot be read, or has more elements than the request can cause.
    """
    check_counts(message, body, version)
    budget = Budget(answer_elements(message))
    reader = Reader(body, budget=budget, tags=budget)
    answer = answer_type(type(message)).read(reader, version)
    reader.finish()
    return answer


def answer_type(kind: type[RequestMessage]) -> Any:
    """Return the class of the answer, such as `MetadataResponse` for `MetadataRequest`."""
    return getattr(sys.modules[kind.__module__], kind.__name__.removesuffix("Request") + "Response")
