"""A SASL mechanism: the client's half of one authentication, as a machine of steps.

One object per authentication, never reused. It is pure: it is handed what the broker said and returns what to do;
`cluster.handshake` carries the tokens and runs the costly hash in a worker thread.

Invariants: an authentication has succeeded only when `step` returned `Finished`; whatever a broker says that the
mechanism's RFC does not allow raises `AuthenticationError`, and the object is of no use afterwards. No object here
shows a secret in its `repr`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from aiokprod.config import Secret
from aiokprod.errors import ConfigError


class HiddenBytes(bytes):
    """Bytes that must not be seen: tracebacks that show locals, and dataclasses, print their `repr`."""

    def __repr__(self) -> str:
        return "<hidden bytes>"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Reply:
    """Send this token and come back with the broker's answer."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Finished:
    """Both sides are content."""


def utf8(text: Secret, option: str) -> bytes:
    """A user name or password as it is sent; no frame that raises has it among its locals (`# faults: S18`).

    Raises:
        ConfigError: it has lone surrogates. Python's own error would show the whole text in its `repr`.
    """
    encoded = _encoded(text)
    if encoded is None:
        raise ConfigError(f"{option} cannot be encoded in UTF-8")
    return HiddenBytes(encoded)


def _encoded(text: Secret) -> bytes | None:
    try:
        return text.reveal().encode()
    except UnicodeEncodeError:
        return None


class HashWork(ABC):
    """A hash that takes long on purpose: call `run` off the loop and give its result to `Mechanism.hashed`."""

    __slots__ = ()

    @abstractmethod
    def run(self) -> bytes:
        """Compute; touches no shared state."""


Outcome: TypeAlias = Reply | HashWork | Finished


class Mechanism(ABC):
    """The client's half of one authentication."""

    __slots__ = ()

    name: ClassVar[str]
    """As the broker lists it, e.g. `SCRAM-SHA-256`."""

    @abstractmethod
    def start(self) -> bytes:
        """The first token."""

    @abstractmethod
    def step(self, challenge: bytes) -> Outcome:
        """Judge the broker's answer to the last token.

        Raises:
            AuthenticationError: the broker's message is wrong, hostile, or a refusal.
        """

    def hashed(self, result: bytes) -> Outcome:
        """Go on with the result of the `HashWork` that `step` asked for."""
        raise AssertionError(f"{self.name} asked for no hash")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
