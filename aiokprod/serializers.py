"""Serializers: callables that turn a user's keys and values into bytes.

A serializer is a callable `(topic, headers, data) -> bytes | None`, or of one argument `(data)`. It may return an awaitable
of that result, and it may add to `headers`, a list of (str, bytes) pairs. A method `configure(config, is_key)` is called
with the `ProducerConfig` at each start; a method `close()`, sync or async, is called when the producer closes.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiokprod.errors import ConfigError, SerializationError

HeaderList = list[tuple[str, bytes | None]]
Serialized = bytes | None


class Serializer(Protocol):
    """The full form of a serializer, with three arguments."""

    def __call__(self, topic: str, headers: HeaderList, data: Any) -> Serialized | Awaitable[Serialized]:
        """Serialize a key or a value. An exception fails the record with SerializationError.

        Args:
            topic: name of the record's topic.
            headers: (name, value) pairs of the record; more may be added.
            data: the key or value as the program sent it.

        Returns:
            The bytes to write, or None for null; or an awaitable of that.
        """
        ...


class StringSerializer:
    """A serializer from str to bytes; None stays None.

    Args:
        encoding: name of the encoding, as `str.encode` takes it.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def __call__(self, topic: str, headers: HeaderList, data: str | None) -> Serialized:
        return None if data is None else data.encode(self._encoding)


class JsonSerializer:
    """A serializer from anything `json.dumps` takes to compact UTF-8; None stays None (a tombstone).

    Args:
        default: passed to `json.dumps`: called with a value that JSON cannot express (a datetime, a Decimal), it returns
            the value to write instead, or raises TypeError. `default=str` is the simplest.
    """

    def __init__(self, *, default: Callable[[Any], Any] | None = None) -> None:
        import json  # not for a producer of bytes

        self._default = default
        self._dumps = json.dumps

    def __call__(self, topic: str, headers: HeaderList, data: Any) -> Serialized:
        """Serialize `data`.

        Raises:
            SerializationError: JSON cannot express the data; the cause says why.
        """
        if data is None:
            return None
        try:
            text = self._dumps(data, separators=(",", ":"), ensure_ascii=False, default=self._default)
        except (TypeError, ValueError) as error:
            if self._default is not None:
                raise  # the text of an exception from the user's function may hold the record's content
            how = "; JsonSerializer(default=...) can convert it" if isinstance(error, TypeError) else ""
            raise SerializationError(f"JsonSerializer: {error}{how}", topic=topic) from error
        return text.encode()


def three_arguments(serializer: Any, option: str) -> Callable[[str, HeaderList, Any], Any] | None:
    """Return the serializer in its full form; None for None.

    Raises:
        ConfigError: the serializer is not callable.
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
    """Return the result of a serializer as bytes or None.

    Raises:
        SerializationError: the result is neither.
    """
    if result is None or type(result) is bytes:
        return result
    if isinstance(result, bytes | bytearray | memoryview):
        try:
            return bytes(cast(bytes, result))
        except ValueError as released:
            raise SerializationError(f"{what}_serializer returned {released}", topic=topic) from None
    raise SerializationError(f"{what}_serializer returned {type(result).__name__}, not bytes or None", topic=topic)


if not TYPE_CHECKING:  # else type checkers would find any name here

    def __getattr__(name: str) -> Any:
        """Say what to write instead of a name that is misspelt, in another module, or of another client."""
        if name.startswith("_"):  # each import of a name asks for `__path__` first
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from aiokprod.elsewhere import refusal

        raise refusal(__name__, name)
