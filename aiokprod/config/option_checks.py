"""Checks of single options: type and range. One class per kind of option, used in the fields of `ProducerConfig`.

`describe()` gives the text for errors and for the documentation's table; a check never looks at a second option.
"""

from __future__ import annotations

import inspect
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from aiokprod.config.oauth_token import function_of
from aiokprod.config.secret import Secret
from aiokprod.errors import ConfigError

MAX_INT: Final = 2**31 - 1  # Kafka's int, its type for milliseconds and sizes
MAX_LONG: Final = 2**63 - 1
SHOWN_LIMIT: Final = 80
PEM_BEGINS: Final = "-----BEGIN"
CALLS: Final = {
    "configure": "config",
    "on_start": "producer",
    "on_send": "record",
    "on_acknowledgement": "metadata, error",
    "on_outcome": "record, metadata, error",
    "on_record_settled": "record, outcome",
    "skip": "",
    "skip_batches": "",
    "on_batch_sealed": "batch",
    "on_batch_sent": "batch",
    "on_batch_answered": "batch",
    "on_batch_settled": "batch",
    "on_transaction_end": "outcome",
    "on_data_loss": "loss",
    "close": "",
}
"""Methods of `ProducerInterceptor`, each with what it is given."""
HOOKS: Final = tuple(name for name in CALLS if name.startswith("on_"))
"""Methods of `ProducerInterceptor` whose names begin with `on_`: any other such name is a misspelt one."""
FULL_PARTITIONER: Final = 5
"""arguments of a partitioner that sees whole records"""
CLIENT_ID_LIMIT: Final = 2**15 - 1  # bytes; its length on the wire is an int16


class Check(ABC):
    """A check that refuses wrong values of one option. None is refused too, unless the option's default is None."""

    @abstractmethod
    def describe(self) -> str:
        """Describe what the option must be: "a number from 0 to 5"."""

    @abstractmethod
    def allows(self, value: object) -> bool:
        """Return True if the value is right."""

    def refuse(self, name: str, value: object) -> None:
        """Raise `ConfigError` unless the value is allowed."""
        if not self.allows(value):
            raise ConfigError(
                f"{name} is {shown(value)} ({type(value).__name__}): it must be {self.describe()}{self.misfit(value)}"
            )

    def misfit(self, value: object) -> str:
        """Return what else to say of a wrong value; of a function that takes other arguments, which it takes."""
        return ""


class Number(Check):
    """A number within limits, or one special number outside of them; never a bool, inf or nan."""

    def __init__(
        self, low: int, high: int, *, whole: bool = False, special: int | None = None, meaning: str = ""
    ) -> None:
        self.low, self.high, self.whole, self.special, self.meaning = low, high, whole, special, meaning

    def describe(self) -> str:
        text = f"a {'whole ' if self.whole else ''}number from {self.low} to {self.high}"
        return text if self.special is None else f"{text}, or {self.special} ({self.meaning})"

    def allows(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return value == self.special or self.low <= value <= self.high  # also False for NaN, infinity and 10**400


def milliseconds(low: int, special: int | None = None, meaning: str = "") -> Number:
    """Make a check of a duration in milliseconds."""
    return Number(low, MAX_INT, special=special, meaning=meaning)


def size(low: int, high: int = MAX_INT) -> Number:
    """Make a check of a number of bytes."""
    return Number(low, high, whole=True)


class Flag(Check):
    """True or False, not a number or a text."""

    def describe(self) -> str:
        return "True or False"

    def allows(self, value: object) -> bool:
        return isinstance(value, bool)


TLS_NAMES: Final = {"TLS": "SSL", "SASL_TLS": "SASL_SSL"}
"""what Kafka still calls SSL"""


def _nearest(value: object, choices: Sequence[str]) -> str | None:
    if not isinstance(value, str):
        return None
    known = {each.upper(): each for each in choices}
    from difflib import get_close_matches  # only for an error

    other = TLS_NAMES.get(value.upper(), "")
    return known.get(other) or known.get(next(iter(get_close_matches(value.upper(), known, 1, 0.7)), ""))


class Choice(Check):
    """One of a list of texts."""

    def __init__(self, choices: tuple[str, ...]) -> None:
        self.choices = choices

    def refuse(self, name: str, value: object) -> None:
        """Raise `ConfigError` unless the value is allowed; the error has the choice that was perhaps meant."""
        try:
            super().refuse(name, value)
        except ConfigError as error:
            near = _nearest(value, self.choices)
            if near is None:
                raise
            raise ConfigError(f"{error.message} (did you mean {near!r}?)") from None

    def describe(self) -> str:
        return "one of " + ", ".join(repr(choice) for choice in self.choices)

    def allows(self, value: object) -> bool:
        return isinstance(value, str) and value in self.choices


class Acks(Check):
    """The number of replicas that must have a record."""

    def describe(self) -> str:
        return "'all', -1, 0 or 1"

    def allows(self, value: object) -> bool:
        if isinstance(value, str):
            return value in ("all", "-1", "0", "1")
        return isinstance(value, int) and not isinstance(value, bool) and value in (-1, 0, 1)


class Text(Check):
    """A text that is not empty."""

    def describe(self) -> str:
        return "a str that is not empty"

    def allows(self, value: object) -> bool:
        return isinstance(value, str) and bool(value)


def can_be_encoded(text: str) -> bool:
    """Return True if the text has a UTF-8 form. A lone surrogate has none."""
    try:
        text.encode()
    except UnicodeEncodeError:  # not raised on: the repr of this error shows the whole text
        return False
    return True


def _refuse_what_is_not_utf8(name: str, text: str) -> None:
    if not can_be_encoded(text):  # the text is not shown: it may hold a key
        raise ConfigError(f"{name} cannot be encoded in UTF-8: it must be a text without lone surrogates")


class EncodedText(Text):
    """A text that is sent or loaded as UTF-8. `os.environ` gives surrogates where bytes were not UTF-8."""

    def refuse(self, name: str, value: object) -> None:
        super().refuse(name, value)
        _refuse_what_is_not_utf8(name, str(value))


class ClientId(Check):
    """A name that fits into a request header; empty counts as none."""

    def describe(self) -> str:
        return f"a str of at most {CLIENT_ID_LIMIT} bytes in UTF-8"

    def allows(self, value: object) -> bool:
        if not isinstance(value, str):
            return False
        return can_be_encoded(value) and len(value.encode()) <= CLIENT_ID_LIMIT


class TransactionalId(ClientId):
    """A name that fits into a request, and is not empty."""

    def describe(self) -> str:
        return f"a str of 1 to {CLIENT_ID_LIMIT} bytes in UTF-8"

    def allows(self, value: object) -> bool:
        return bool(value) and super().allows(value)


class SecretText(Check):
    """A text that is never shown, not even in an error."""

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


class FilePath(Check):
    """The path of a file; reading it later shows whether it exists."""

    def __init__(self, text_option: str) -> None:
        self.text_option = text_option

    def describe(self) -> str:
        return f"the path of a file, as a str or a Path; what is in such a file is given as {self.text_option}"

    def allows(self, value: object) -> bool:
        path: object = os.fspath(cast("os.PathLike[str]", value)) if isinstance(value, os.PathLike) else value
        return isinstance(path, str) and bool(path) and PEM_BEGINS not in path


class Servers(Check):
    """Server addresses; `config.servers` parses them."""

    def describe(self) -> str:
        return "'host:port,host:port' or a list of 'host:port'"

    def refuse(self, name: str, value: object) -> None:
        if isinstance(value, Mapping):
            raise ConfigError(
                f"{name} is a mapping: pass the whole mapping to ProducerConfig.from_mapping, or to Producer"
            )
        super().refuse(name, value)

    def allows(self, value: object) -> bool:
        if isinstance(value, str):
            return True
        return (
            isinstance(value, Sequence)
            and not isinstance(value, bytes | bytearray | memoryview)
            and all(isinstance(item, str) for item in cast("Sequence[object]", value))
        )


class PlainFunction(Check):
    """A function that is called from the loop and not awaited."""

    def __init__(self, takes: str) -> None:
        self.takes = takes

    def describe(self) -> str:
        return f"a plain function ({self.takes}), not a coroutine function"

    def allows(self, value: object) -> bool:
        return _is_callable_object(value) and not _is_coroutine_function(value) and takes(value, _count(self.takes))

    def misfit(self, value: object) -> str:
        return _own_arguments(value, _count(self.takes))


class Partitioner(Check):
    """The name of a partitioner, or a function."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def describe(self) -> str:
        names = ", ".join(repr(name) for name in self.names)
        return (
            f"one of {names}, or a plain function (key, all_partitions, available_partitions) -> int, or (topic, key, value,"
            " all_partitions, available_partitions) -> int"
        )

    def allows(self, value: object) -> bool:
        if isinstance(value, str):
            return value in self.names
        return (
            _is_callable_object(value)
            and not _is_coroutine_function(value)
            and (takes(value, 3) or takes(value, FULL_PARTITIONER))
        )

    def misfit(self, value: object) -> str:
        return _own_arguments(value, 3, FULL_PARTITIONER)


class Serializer(Check):
    """A function, or an object that can be called like one; passing the class of such an object is a mistake."""

    def describe(self) -> str:
        return (
            "a function (data) or (topic, headers, data), or an object that is called so: not its class, not its name"
        )

    def allows(self, value: object) -> bool:
        return _is_callable_object(value) and (takes(value, 1) or takes(value, 3))

    def misfit(self, value: object) -> str:
        return _own_arguments(value, 1, 3)


class Interceptors(Check):
    """A list of objects with the methods of `ProducerInterceptor`, all of them plain except `close`."""

    def describe(self) -> str:
        return (
            "a list of objects (not classes) that derive from aiokprod.ProducerInterceptor, with plain functions as methods:"
            " only close may be async"
        )

    def allows(self, value: object) -> bool:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
            return False
        return all(not isinstance(item, type) and _has_hooks(item) for item in cast("Sequence[object]", value))

    def refuse(self, name: str, value: object) -> None:
        super().refuse(name, value)  # returns if it is a list of interceptors
        for item in cast("Sequence[object]", value):
            for method in dir(type(item)):
                if method.startswith("on_") and method not in HOOKS and callable(getattr(type(item), method)):
                    from difflib import get_close_matches  # only for an error

                    begun = [hook for hook in HOOKS if hook.startswith(method)]
                    near = next(iter(begun or get_close_matches(method, HOOKS, 1, 0.5)), None)
                    raise ConfigError(
                        f"{name}: {type(item).__name__}.{method} is no hook, and would never be called:"
                        f" {f'did you mean {near}? ' if near else ''}Hooks are {', '.join(HOOKS)}; give another method a name"
                        " without on_"
                    )
            for method, given in CALLS.items():
                own = getattr(type(item), method, None)  # of a mock, an instance has every name
                if callable(own) and not takes(getattr(item, method), _count(given)):
                    raise ConfigError(
                        f"{name}: {type(item).__name__}.{method} is called as {method}({given}), and takes"
                        f" ({_parameters(getattr(item, method))})"
                    )


class Context(Check):
    """An `ssl.SSLContext` for clients."""

    def describe(self) -> str:
        return "an ssl.SSLContext for clients, such as ssl.create_default_context() makes"

    def allows(self, value: object) -> bool:
        return isinstance(value, ssl.SSLContext) and value.protocol is not ssl.PROTOCOL_TLS_SERVER


class DialFunction(Check):
    """A function that opens connections."""

    def describe(self) -> str:
        return "an async function (host, port, ssl_context, protocol_factory)"

    def allows(self, value: object) -> bool:
        return _is_callable_object(value) and takes(value, 4)

    def misfit(self, value: object) -> str:
        return _own_arguments(value, 4)


class TokenFunction(Check):
    """A function that returns tokens, or an object with a method `token`; not shown in an error, as it may be a token."""

    def describe(self) -> str:
        return (
            "a function without arguments that returns a token, plain or async, or an object with such a method token"
        )

    def allows(self, value: object) -> bool:
        if isinstance(value, type):
            return False
        function = function_of(value)
        return _is_callable_object(function) and takes(function, 0)

    def misfit(self, value: object) -> str:
        return "" if isinstance(value, type) else _own_arguments(function_of(value), 0)

    def refuse(self, name: str, value: object) -> None:
        if not self.allows(value):
            text = f"{name} is of type {type(value).__name__}: it must be {self.describe()}"
            raise ConfigError(text + self.misfit(value))


def shown(value: object) -> str:
    """Return the value as an error shows it: shortened, and without anything that may hold a secret."""
    if isinstance(value, Mapping):
        return "a mapping"  # a whole configuration may be given by mistake, with its passwords
    try:
        text = repr(value)
    except Exception as broken:  # an object of the user's, or an int of more digits than Python prints
        return f"a value whose repr raises {type(broken).__name__}"
    if PEM_BEGINS in text:
        return "a PEM text"
    return text if len(text) <= SHOWN_LIMIT else f"{text[:SHOWN_LIMIT]}..."


def _is_callable_object(value: object) -> bool:
    # Calling a class makes an object. A class whose objects can be called is therefore a mistake: its object was meant.
    if value is str:  # a str is not bytes: each record would fail
        return False
    if isinstance(value, type):
        return not any("__call__" in base.__dict__ for base in value.__mro__)
    return callable(value)


def takes(value: Any, count: int) -> bool:
    """Return True if it can be called with so many arguments, or if it has no signature, as some builtins.

    Args:
        value: function, or another object that can be called.
        count: how many arguments it is given, without names.
    """
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _count(given: str) -> int:
    """Return how many arguments such a call has: "metadata, error" are two."""
    return len(given.split(", ")) if given else 0


def _own_arguments(value: object, *counts: int) -> str:
    """Return what a function takes, for its error, unless it can be called with one of these numbers of arguments."""
    if not callable(value) or isinstance(value, type) or any(takes(value, count) for count in counts):
        return ""
    return f"; this one takes ({_parameters(value)})"


def _parameters(function: Any) -> str:
    """Return the names of what a function takes, without types, and without defaults, which may be secret."""
    found = inspect.signature(function).parameters.values()
    bare = [
        each.replace(annotation=each.empty, default=each.empty if each.default is each.empty else ...) for each in found
    ]
    return str(inspect.Signature(bare))[1:-1].replace("=Ellipsis", "=...")


def _is_coroutine_function(value: object) -> bool:
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None))  # noqa: B004


def _has_hooks(item: object) -> bool:
    hooks = ("configure", "on_send", "on_acknowledgement", "close")
    if not all(callable(getattr(item, hook, None)) for hook in hooks):
        return False
    # The results of these are used at once, or not at all: a coroutine would never run.
    return not any(
        _is_coroutine_function(getattr(item, hook, None)) for hook in ("configure", "skip", "skip_batches", *HOOKS)
    )
