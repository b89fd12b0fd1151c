"""Serializers: from what a user sends to bytes.

A serializer is a callable `(topic, headers, data) -> bytes | None`, or of one argument `(data)`; it may return an
awaitable of that, and it may add to `headers`, a list of (str, bytes) pairs. One with `configure(config, is_key)` is told
the `ProducerConfig` at each start, one with `close()`, sync or async, is closed with the producer.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiokprod.errors import ConfigError, SerializationError

HeaderList = list[tuple[str, bytes | None]]
Serialized = bytes | None


class Serializer(Protocol):
    """The full form of a serializer."""

    def __call__(self, topic: str, headers: HeaderList, data: Any) -> Serialized | Awaitable[Serialized]: ...


class StringSerializer:
    """str to bytes; None stays None."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def __call__(self, topic: str, headers: HeaderList, data: str | None) -> Serialized:
        return None if data is None else data.encode(self._encoding)


class JsonSerializer:
    """Anything `json.dumps` takes, compact UTF-8; None stays None (a tombstone).

    Args:
        default: as `json.dumps` has it: called with what JSON does not know (a datetime, a Decimal), it returns what to
            write instead, or raises TypeError. `default=str` is the simplest.
    """

    def __init__(self, *, default: Callable[[Any], Any] | None = None) -> None:
        self._default = default

    def __call__(self, topic: str, headers: HeaderList, data: Any) -> Serialized:
        """Raises SerializationError: the data is no JSON; the cause says why."""
        if data is None:
            return None
        try:
            text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, default=self._default)
        except (TypeError, ValueError) as error:
            if self._default is not None:
                raise  # its text may hold what is in the record
            how = "; JsonSerializer(default=...) says how to write it" if isinstance(error, TypeError) else ""
            raise SerializationError(f"JsonSerializer: {error}{how}", topic=topic) from error
        return text.encode()


def three_arguments(serializer: Any, option: str) -> Callable[[str, HeaderList, Any], Any] | None:
    """The serializer in its full form; None for none.

    Raises:
        ConfigError: it is not callable.
    """
    if serializer is None:
        return None
    if not callable(serializer):
        raise ConfigError(f"{option} must be callable, not {type(serializer).__name__}")
    try:
        takes = [
            p for p in inspect.signature(serializer).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        ]  # fmt: skip
        is_full = len(takes) >= 3
    except (TypeError, ValueError):
        is_full = False  # a built-in such as str.encode
    if is_full:
        full: Callable[[str, HeaderList, Any], Any] = serializer
        return full
    return lambda topic, headers, data: serializer(data)


def checked(result: object, what: str, topic: str) -> Serialized:
    """The result of a serializer as bytes or None.

    Raises:
        SerializationError: it is neither.
    """
    if result is None or type(result) is bytes:
        return result
    if isinstance(result, bytes | bytearray | memoryview):
        try:
            return bytes(result)
        except ValueError as released:
            raise SerializationError(f"{what}_serializer returned {released}", topic=topic) from None
    raise SerializationError(f"{what}_serializer returned {type(result).__name__}, not bytes or None", topic=topic)
