"""What one option may be: its type and its range. One check per kind of option, named in `ProducerConfig`'s fields.

`describe()` is what errors and the documentation's table say; nothing here knows a second option.
"""

from __future__ import annotations

import inspect
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokprod.config.secret import Secret
from aiokprod.errors import ConfigError

MAX_INT: Final = 2**31 - 1  # Kafka's int: what it takes for milliseconds and sizes
MAX_LONG: Final = 2**63 - 1
SHOWN_LIMIT: Final = 80
PEM_BEGINS: Final = "-----BEGIN"
CLIENT_ID_LIMIT: Final = 2**15 - 1  # bytes; the wire has an int16 for it


class Check(ABC):
    """Refuses what one option cannot be. None is refused too, unless the option's default is None."""

    @abstractmethod
    def describe(self) -> str:
        """What the option must be: "a number from 0 to 5"."""

    @abstractmethod
    def allows(self, value: object) -> bool:
        """Is it that?"""

    def refuse(self, name: str, value: object) -> None:
        """`ConfigError` unless the value is allowed."""
        if not self.allows(value):
            raise ConfigError(f"{name} is {shown(value)} ({type(value).__name__}): it must be {self.describe()}")


@dataclass(frozen=True, slots=True)
class Number(Check):
    """A number within limits, or one special number outside of them; never a bool, inf or nan."""

    low: int
    high: int
    whole: bool = False
    special: int | None = None
    meaning: str = ""

    def describe(self) -> str:
        text = f"a {'whole ' if self.whole else ''}number from {self.low} to {self.high}"
        return text if self.special is None else f"{text}, or {self.special} ({self.meaning})"

    def allows(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return value == self.special or self.low <= value <= self.high  # false for NaN, infinity and 10**400 too


def milliseconds(low: int, special: int | None = None, meaning: str = "") -> Number:
    """A duration."""
    return Number(low, MAX_INT, special=special, meaning=meaning)


def size(low: int, high: int = MAX_INT) -> Number:
    """Bytes."""
    return Number(low, high, whole=True)


@dataclass(frozen=True, slots=True)
class Flag(Check):
    """True or False: no number, no text."""

    def describe(self) -> str:
        return "True or False"

    def allows(self, value: object) -> bool:
        return isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Choice(Check):
    """One of some texts."""

    choices: tuple[str, ...]

    def describe(self) -> str:
        return "one of " + ", ".join(repr(choice) for choice in self.choices)

    def allows(self, value: object) -> bool:
        return isinstance(value, str) and value in self.choices


@dataclass(frozen=True, slots=True)
class Acks(Check):
    """How many replicas must have a record."""

    def describe(self) -> str:
        return "'all', -1, 0 or 1"

    def allows(self, value: object) -> bool:
        if isinstance(value, str):
            return value in ("all", "-1", "0", "1")
        return isinstance(value, int) and not isinstance(value, bool) and value in (-1, 0, 1)


@dataclass(frozen=True, slots=True)
class Text(Check):
    """A text that says something."""

    def describe(self) -> str:
        return "a str that is not empty"

    def allows(self, value: object) -> bool:
        return isinstance(value, str) and bool(value)


def can_be_encoded(text: str) -> bool:
    """Has it UTF-8? A lone surrogate has none, and the error of trying shows the whole text in its repr."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse_what_is_not_utf8(name: str, text: str) -> None:
    if not can_be_encoded(text):  # never shown: a key may stand in it
        raise ConfigError(f"{name} cannot be encoded in UTF-8: it must be a text without lone surrogates")


@dataclass(frozen=True, slots=True)
class EncodedText(Text):
    """A text that is sent or loaded as UTF-8. Out of `os.environ` come surrogates where bytes were not UTF-8."""

    def refuse(self, name: str, value: object) -> None:
        Text.refuse(self, name, value)
        _refuse_what_is_not_utf8(name, str(value))


@dataclass(frozen=True, slots=True)
class ClientId(Check):
    """A name the wire can carry; empty is as good as none."""

    def describe(self) -> str:
        return f"a str of at most {CLIENT_ID_LIMIT} bytes in UTF-8"

    def allows(self, value: object) -> bool:
        if not isinstance(value, str):
            return False
        return can_be_encoded(value) and len(value.encode()) <= CLIENT_ID_LIMIT


@dataclass(frozen=True, slots=True)
class SecretText(Check):
    """A text that is shown nowhere, not in an error either."""

    def describe(self) -> str:
        return "a str or a Secret, not empty"

    def allows(self, value: object) -> bool:
        return isinstance(value, str | Secret) and bool(value)

    def refuse(self, name: str, value: object) -> None:
        if not self.allows(value):
            empty = isinstance(value, str | Secret)
            raise ConfigError(
                f"{name} is {'empty' if empty else f'of type {type(value).__name__}'}: it must be {self.describe()}"
            )
        if value is not None:
            _refuse_what_is_not_utf8(name, value.reveal() if isinstance(value, Secret) else str(value))


@dataclass(frozen=True, slots=True)
class FilePath(Check):
    """The path of a file; whether it is there is seen when it is read."""

    text_option: str

    def describe(self) -> str:
        return f"the path of a file, as a str or a Path; what is in such a file is given as {self.text_option}"

    def allows(self, value: object) -> bool:
        path: object = os.fspath(value) if isinstance(value, os.PathLike) else value
        return isinstance(path, str) and bool(path) and PEM_BEGINS not in path


@dataclass(frozen=True, slots=True)
class Servers(Check):
    """Addresses; `config.servers` reads them."""

    def describe(self) -> str:
        return "'host:port,host:port' or a list of 'host:port'"

    def refuse(self, name: str, value: object) -> None:
        if isinstance(value, Mapping):
            raise ConfigError(
                f"{name} is a mapping: give the whole of it to ProducerConfig.from_mapping, or to Producer"
            )
        # A call by its own name: with slots, the class of a dataclass is made twice, and `super()` knows the first.
        Check.refuse(self, name, value)

    def allows(self, value: object) -> bool:
        if isinstance(value, str):
            return True
        return (
            isinstance(value, Sequence)
            and not isinstance(value, bytes | bytearray | memoryview)
            and all(isinstance(item, str) for item in value)
        )


@dataclass(frozen=True, slots=True)
class PlainFunction(Check):
    """A function that is called from the loop and cannot be awaited."""

    takes: str

    def describe(self) -> str:
        return f"a plain function ({self.takes}), not a coroutine function"

    def allows(self, value: object) -> bool:
        return callable(value) and not _is_coroutine_function(value)


@dataclass(frozen=True, slots=True)
class Partitioner(Check):
    """A name, or a function."""

    names: tuple[str, ...]

    def describe(self) -> str:
        names = ", ".join(repr(name) for name in self.names)
        return f"one of {names}, or a plain function (key, all_partitions, available_partitions) -> int"

    def allows(self, value: object) -> bool:
        if isinstance(value, str):
            return value in self.names
        return _is_callable_object(value) and not _is_coroutine_function(value) and _takes(value, 3)


@dataclass(frozen=True, slots=True)
class Serializer(Check):
    """A function or an object that can be called like one; the class of such objects is a slip."""

    def describe(self) -> str:
        return (
            "a function (data) or (topic, headers, data), or an object that is called so: not its class, not its name"
        )

    def allows(self, value: object) -> bool:
        return _is_callable_object(value) and (_takes(value, 1) or _takes(value, 3))


@dataclass(frozen=True, slots=True)
class Interceptors(Check):
    """A list of objects with the four methods of `ProducerInterceptor`, plain ones except `close`."""

    def describe(self) -> str:
        return (
            "a list of objects (not classes) that derive from aiokprod.ProducerInterceptor, with plain functions as methods:"
            " only close may be async"
        )

    def allows(self, value: object) -> bool:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
            return False
        return all(not isinstance(item, type) and _has_hooks(item) for item in value)


@dataclass(frozen=True, slots=True)
class Context(Check):
    """An `ssl.SSLContext` of a client."""

    def describe(self) -> str:
        return "an ssl.SSLContext for clients, such as ssl.create_default_context() makes"

    def allows(self, value: object) -> bool:
        return isinstance(value, ssl.SSLContext) and value.protocol is not ssl.PROTOCOL_TLS_SERVER


@dataclass(frozen=True, slots=True)
class DialFunction(Check):
    """What connects instead of us."""

    def describe(self) -> str:
        return "an async function (host, port, ssl_context, protocol_factory)"

    def allows(self, value: object) -> bool:
        return _is_callable_object(value)


def shown(value: object) -> str:
    """The value as an error shows it: not too long, and nothing that may hold a secret."""
    if isinstance(value, Mapping):
        return "a mapping"  # whole configurations are given by mistake, with their passwords
    try:
        text = repr(value)
    except Exception as broken:  # an object of the user's, or an int of more digits than Python prints
        return f"a value whose repr raises {type(broken).__name__}"
    if PEM_BEGINS in text:
        return "a PEM text"
    return text if len(text) <= SHOWN_LIMIT else f"{text[:SHOWN_LIMIT]}..."


def _is_callable_object(value: object) -> bool:
    # Every class can be called, to make an object: only one whose objects can be called is certainly meant otherwise.
    if value is str:  # never bytes: each record would fail
        return False
    if isinstance(value, type):
        return not any("__call__" in base.__dict__ for base in value.__mro__)
    return callable(value)


def _takes(value: Any, count: int) -> bool:
    """Can it be called with so many arguments? True if it does not say: some builtins have no signature."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _is_coroutine_function(value: object) -> bool:
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None))  # noqa: B004


def _has_hooks(item: object) -> bool:
    hooks = ("configure", "on_send", "on_acknowledgement", "close")
    if not all(callable(getattr(item, hook, None)) for hook in hooks):
        return False
    # The result of the others is used at once, or not at all: a coroutine would never run.
    plain = ("configure", "on_send", "on_acknowledgement", "on_outcome")
    return not any(_is_coroutine_function(getattr(item, hook, None)) for hook in plain)
