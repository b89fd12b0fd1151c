"""A SASL mechanism: the client's half of one authentication, as a machine of steps.

One object per authentication, never reused. It is pure: it is handed what the broker said and returns what to do;
`cluster.handshake` carries the tokens and runs the costly hash in a worker thread.

Invariants: an authentication has succeeded only when `step` returned `Finished`; whatever a broker says that the
mechanism's RFC does not allow raises `AuthenticationError`, and the object is of no use afterwards. No object here
shows a secret in its `repr`.
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
"""Stands where a broker's text had one of our secrets."""

SHORTEST_FOUND: Final = 4
"""Characters. Shorter secrets are in too many texts: to take them out would spell them, so the whole text goes."""


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


def without_secrets(text: str, secrets: Iterable[Secret]) -> str:
    """What a broker said, with our secrets taken out: a broker may repeat what it was sent (`# faults: S18`).

    Found are a secret as it is, in percent encoding, in hexadecimal digits, escaped as Python and JSON do it, and in
    base64, also as part of something longer; all whatever the case of the letters.
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
    for before in range(3):  # bytes in front of it; only digits that hold no bit of a neighbour are known
        digits = base64.b64encode(bytes(before) + raw).decode()
        known = digits[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        shown |= {known, known.replace("+", "-").replace("/", "_")}
    return shown


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

    def secrets(self) -> Iterable[Secret]:
        """What no text may show: the password, and what was sent to prove that we have it."""
        return ()

    def told(self, text: str, limit: int) -> str:
        """What the broker said, to be shown: without our secrets, safe in a log line, at most `limit` characters."""
        return printable(without_secrets(text, self.secrets()), limit)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
