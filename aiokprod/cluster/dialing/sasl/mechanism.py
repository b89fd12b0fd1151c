"""A SASL mechanism: the client's half of one authentication, as a state machine.

One object per authentication, never reused. It does no I/O: it takes the broker's messages and returns what to do next;
`dialing.authentication` sends the tokens and runs the costly hash in a worker thread.

Invariants: an authentication has succeeded only when `step` returned `Finished`; a message that the mechanism's RFC does
not allow raises `AuthenticationError`, and the object cannot be used afterwards. No object here shows a secret in its
`repr`.
"""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Final, TypeAlias
from urllib.parse import quote, quote_plus

from aiokprod.config import Secret
from aiokprod.errors import ConfigError
from aiokprod.logs import printable

WITHHELD: Final = "***"
"""Replaces a secret in a broker's text."""

SHORTEST_FOUND: Final = 4
"""Characters. Shorter secrets occur in too many texts, and the gaps would reveal them: the whole text is withheld."""


class HiddenBytes(bytes):
    """Bytes with a `repr` that hides them: tracebacks that show locals, and dataclasses, print it."""

    def __repr__(self) -> str:
        return "<hidden bytes>"

    __str__ = __repr__


@dataclass(frozen=True, slots=True)
class Reply:
    """The instruction to send this token and to pass the broker's answer to `step`."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Finished:
    """Both sides are content."""


def utf8(text: Secret, option: str) -> bytes:
    """Encode a user name or password; no frame that raises has the text among its locals (`# faults: S18`).

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


def without_secrets(text: str, secrets: Iterable[Secret]) -> str:
    """Return a broker's text without our secrets: a broker may repeat what it was sent (`# faults: S18`).

    A secret is found as it is, percent-encoded, in hexadecimal digits, escaped as in Python and JSON, and in base64, also
    as a part of a longer text; upper and lower case are not distinguished.
    """
    for secret in secrets:
        longest_first = sorted(_disguises(secret.reveal()) - {""}, key=len, reverse=True)
        shown = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)
        if len(secret.reveal()) >= SHORTEST_FOUND:
            text = shown.sub(WITHHELD, text)
        elif shown.search(text):
            return WITHHELD
    return text


def _disguises(secret: str) -> set[str]:
    raw = secret.encode()
    shown = {secret, raw.hex(), quote(secret), quote(secret, safe=""), quote_plus(secret)}
    shown |= {repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    # In base64 the digits depend on how many bytes come before (modulo 3). Digits that hold a bit of a neighbouring byte
    # cannot be known and are left out of the pattern.
    for before in range(3):
        digits = base64.b64encode(bytes(before) + raw).decode()
        known = digits[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        shown |= {known, known.replace("+", "-").replace("/", "_")}
    return shown


class HashWork(ABC):
    """A deliberately slow hash: call `run` in a thread and pass its result to `Mechanism.hashed`."""

    __slots__ = ()

    @abstractmethod
    def run(self) -> bytes:
        """Compute the hash; uses no shared state."""


Outcome: TypeAlias = Reply | HashWork | Finished


class Mechanism(ABC):
    """The client's half of one authentication."""

    __slots__ = ()

    name: ClassVar[str]
    """The name in the broker's list of mechanisms, such as `SCRAM-SHA-256`."""

    @abstractmethod
    def start(self) -> bytes:
        """Return the first token."""

    @abstractmethod
    def step(self, challenge: bytes) -> Outcome:
        """Check the broker's answer to the last token, and return what to do next.

        Raises:
            AuthenticationError: the broker's message is wrong, hostile, or a refusal.
        """

    def hashed(self, result: bytes) -> Outcome:
        """Continue with the result of the `HashWork` that `step` returned."""
        raise AssertionError(f"{self.name} asked for no hash")

    def secrets(self) -> Iterable[Secret]:
        """Return what no text may show: the password, and the proof of it that was sent."""
        return ()

    def reason(self, text: str) -> str:
        """Return the reason of a refusal: the text of the broker's error, or what it said before in its own messages.

        Args:
            text: the broker's text, for display.
        """
        return text

    def told(self, text: str, limit: int) -> str:
        """Return the broker's text for display: without our secrets, safe in a log line, at most `limit` characters."""
        return printable(without_secrets(text, self.secrets()), limit)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
