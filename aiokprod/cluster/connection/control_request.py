"""Requests of the cluster layer itself: metadata, versions, credentials, transactions. One task waits for each answer.

They are sent in the same queue as Produce requests, with tokens that the listener is never given.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, ClassVar, Protocol

from aiokprod.cluster.connection.answer_limits import answer_elements, check_counts
from aiokprod.wire.reader import Budget, Reader


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
