"""SASL OAUTHBEARER (RFC 7628; Kafka: KIP-255, with the extensions of KIP-342): a token in one message, in clear text.

    client   n,,<1>auth=Bearer TOKEN<1>name=value<1>...<1>       <1> is the byte 0x01
    broker   empty: accepted                                    or {"status": "invalid_token", ...}: refused
    client                                                      <1>
    broker                                                      the error, as an error code

A broker that refuses says why in JSON, and must hear one more byte before it fails the exchange (RFC 7628 3.2.3). That
the parts of the first message cannot break out of their places is seen to by `OAuthToken` (`# faults: S14`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Final, cast

from aiokprod.cluster.dialing.sasl.mechanism import Finished, HiddenBytes, Mechanism, Outcome, Reply
from aiokprod.config import OAuthToken, Secret
from aiokprod.errors import AuthenticationError
from aiokprod.wire.codes import ErrorCode

NAME: Final = "OAUTHBEARER"

SEPARATOR: Final = b"\x01"

MAX_REFUSAL_BYTES: Final = 16 * 1024
"""The longest refusal that is read; Kafka's have less than 200 bytes."""

LONGEST_SHOWN: Final = 200

LEAST_PART: Final = 16
"""Characters. Shorter parts of a token, between its dots, give nothing away, and may be words of a broker's text."""

TOLD: Final = (("scope", "wanted scope"), ("openid-configuration", "see"))
"""What a refusal has beside its status (RFC 7628 3.2.2), and how it is shown."""


class OAuthBearer(Mechanism):
    """One authentication by OAUTHBEARER.

    Args:
        token: the token; it may be used for any number of authentications.
    """

    __slots__ = ("_refusal", "_token")

    name: ClassVar[str] = NAME

    def __init__(self, token: OAuthToken) -> None:
        self._token = token
        self._refusal: str | None = None

    def start(self) -> bytes:
        extensions = b"".join(f"{name}={value}".encode() + SEPARATOR for name, value in self._token.extensions.items())
        # Without the name of a user: the broker takes it out of the token, and refuses one that differs.
        return HiddenBytes(b"n,,\x01auth=Bearer %b\x01%b\x01" % (self._token.token.reveal().encode(), extensions))

    def step(self, challenge: bytes) -> Outcome:
        if self._refusal is not None:  # a broker that lets us in after it has refused is none to trust
            raise AuthenticationError(self._refusal, code=int(ErrorCode.SASL_AUTHENTICATION_FAILED))
        if not challenge:
            return Finished()
        told = self._told(challenge)
        if told is None:
            raise AuthenticationError(
                f"SASL {NAME}: the broker sent {len(challenge)} bytes that are no refusal in JSON"
            )
        self._refusal = f"the broker refused the token: {told}"
        return Reply(SEPARATOR)

    def reason(self, text: str) -> str:
        # Kafka repeats its JSON as the text of the error; other brokers have a text of their own, or none.
        return self._refusal if self._refusal is not None else text

    def secrets(self) -> Iterable[Secret]:
        token = self._token.token
        # The parts of a JWT too: a broker may repeat its claims or its signature.
        return (token, *(Secret(part) for part in token.reveal().split(".") if len(part) >= LEAST_PART))

    def _told(self, challenge: bytes) -> str | None:
        """Return what a refusal says, for display; None if it is not one."""
        if len(challenge) > MAX_REFUSAL_BYTES:
            return None
        fields = _fields(challenge)
        if fields is None or not isinstance(fields.get("status"), str):
            return None
        parts = [cast("str", fields["status"])]
        parts += [f"{shown}: {fields[name]}" for name, shown in TOLD if isinstance(fields.get(name), str)]
        return self.told("; ".join(parts), LONGEST_SHOWN)


def _fields(challenge: bytes) -> dict[str, Any] | None:
    try:
        fields: object = json.loads(bytes(challenge))
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or brackets in thousands of brackets
        return None
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else None
