"""SASL PLAIN (RFC 4616): user name and password in one message, in clear text.

Only TLS keeps it secret; `dialing.connection_settings` warns if there is none (`# faults: S19`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from aiokprod.cluster.dialing.sasl.mechanism import Finished, Mechanism, Outcome, utf8
from aiokprod.config import Secret
from aiokprod.errors import AuthenticationError, ConfigError

NAME: Final = "PLAIN"


class Plain(Mechanism):
    """One authentication by PLAIN.

    Args:
        username: the user name; not empty, without NUL.
        password: the password; not empty, without NUL; any other character is sent as UTF-8.

    Raises:
        ConfigError: either is empty, cannot be encoded in UTF-8, or holds a NUL, which separates the fields.
    """

    __slots__ = ("_password", "_username")

    name: ClassVar[str] = NAME

    def __init__(self, username: str, password: Secret) -> None:
        if not username or not password.reveal():
            raise ConfigError("SASL PLAIN needs sasl_username and sasl_password, both not empty")
        if "\0" in username or "\0" in password.reveal():
            raise ConfigError("SASL PLAIN cannot carry a NUL character in the user name or the password")
        utf8(Secret(username), "sasl_username")
        utf8(password, "sasl_password")
        self._username = username
        self._password = password

    def start(self) -> bytes:
        return b"\0%b\0%b" % (utf8(Secret(self._username), "sasl_username"), utf8(self._password, "sasl_password"))

    def step(self, challenge: bytes) -> Outcome:
        # A broker accepts with an empty message; its refusal is an error code, which `authenticate` handles.
        if challenge:
            raise AuthenticationError(f"SASL PLAIN has no second round, but the broker sent {len(challenge)} bytes")
        return Finished()

    def secrets(self) -> Iterable[Secret]:
        return (self._password,)
