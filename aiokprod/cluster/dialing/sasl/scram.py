"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding.

The broker proves that it knows the password too: without its signature the authentication fails (`# faults: S10`).
Everything the broker chooses (nonce, salt, iterations) is checked before any hashing is done (`# faults: S11, S12`).

Apache Kafka hashes user names and passwords as UTF-8 without SASLprep, both when `kafka-configs` stores a credential and
in its own clients (`ScramFormatter.normalize`). This client does the same: SASLprep would lock out exactly those users
whose password it changes (seen on 4.3.1: passwords with a ligature or a no-break space are accepted as typed and refused
as prepared). User names beyond ASCII are refused by the broker itself, with any client.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, Final

from aiokprod.cluster.dialing.sasl.mechanism import Finished, HashWork, Mechanism, Outcome, Reply, utf8
from aiokprod.config import Secret
from aiokprod.errors import AuthenticationError, ConfigError

MIN_ITERATIONS: Final = 4096
"""The minimum of RFC 7677; Kafka refuses to store less. With fewer a recorded exchange is cheap to guess."""

MAX_ITERATIONS: Final = 1_000_000
"""About a second of hashing; 2**31 - 1 would be half an hour of a core (kafka-python GHSA-2jcm-hq8r-84wx)."""

MAX_MESSAGE_BYTES: Final = 16 * 1024
"""The largest message with nonce, salt and count; Kafka's have about 100 bytes."""

GS2_HEADER: Final = "n,,"
"""The header that says: no channel binding, no other identity to act as."""

NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
"""RFC 5802 `printable`: visible ASCII without the comma."""

ATTRIBUTE: Final = re.compile(r"[A-Za-z]=.+", re.DOTALL)

ERROR_TEXT_LIMIT: Final = 200


class Turn(Enum):
    """The next step of an exchange."""

    FIRST = "the broker's first message"
    HASH = "the result of our hash"
    SIGNATURE = "the broker's signature"
    END = "nothing: it succeeded or failed"


class SaltedPassword(HashWork):
    """PBKDF2 of the password: up to a second of a core, without the interpreter lock."""

    __slots__ = ("_hash_name", "_password", "_salt", "iterations")

    def __init__(self, hash_name: str, password: Secret, salt: bytes, iterations: int) -> None:
        self._hash_name = hash_name
        self._password = password
        self._salt = salt
        self.iterations = iterations

    def run(self) -> bytes:
        return hashlib.pbkdf2_hmac(self._hash_name, utf8(self._password, "sasl_password"), self._salt, self.iterations)

    def __repr__(self) -> str:
        return f"<SaltedPassword {self._hash_name} iterations={self.iterations}>"


class Scram(Mechanism):
    """One authentication by SCRAM.

    Args:
        username: the user name; not empty; `,` and `=` are escaped on the wire.
        password: the password; not empty.
        nonce: only for tests with known answers; random if not given.

    Raises:
        ConfigError: user name or password is empty, or cannot be encoded in UTF-8.
    """

    __slots__ = (
        "_auth_message",
        "_client_nonce",
        "_final_bare",
        "_first_bare",
        "_password",
        "_proof",
        "_server_signature",
        "_turn",
    )

    hash_name: ClassVar[str]

    def __init__(self, username: str, password: Secret, *, nonce: str | None = None) -> None:
        if not username or not password.reveal():
            raise ConfigError(f"SASL {self.name} needs sasl_username and sasl_password, both not empty")
        utf8(Secret(username), "sasl_username")
        utf8(password, "sasl_password")
        self._password = password
        self._client_nonce = nonce if nonce is not None else secrets.token_urlsafe(24)
        self._first_bare = f"n={saslname(username)},r={self._client_nonce}"
        self._final_bare = b""
        self._auth_message = b""
        self._proof: Secret | None = None
        self._server_signature = b""
        self._turn = Turn.FIRST

    def start(self) -> bytes:
        return (GS2_HEADER + self._first_bare).encode()

    def step(self, challenge: bytes) -> Outcome:
        if self._turn is Turn.FIRST:
            return self._judge_first(challenge)
        if self._turn is Turn.SIGNATURE:
            return self._judge_signature(challenge)
        raise self._refusal("a message too many")

    def _judge_first(self, challenge: bytes) -> Outcome:
        attributes = self._attributes(challenge)
        nonce, salt_text, count = self._first_three(attributes)
        if not NONCE.fullmatch(nonce):
            raise self._refusal("a nonce with characters that are not allowed")
        if not nonce.startswith(self._client_nonce):
            raise self._refusal("a nonce that does not begin with ours: an answer to another client")
        if nonce == self._client_nonce:
            raise self._refusal("our own nonce with nothing added: an exchange that could be replayed")
        salt = self._decoded(salt_text, "salt")
        iterations = self._iterations(count)
        self._final_bare = f"c={base64.b64encode(GS2_HEADER.encode()).decode()},r={nonce}".encode()
        # The signatures cover the message as it was received, extensions included.
        self._auth_message = b",".join((self._first_bare.encode(), challenge, self._final_bare))
        self._turn = Turn.HASH
        return SaltedPassword(self.hash_name, self._password, salt, iterations)

    def hashed(self, result: bytes) -> Outcome:
        assert self._turn is Turn.HASH
        client_key = hmac.digest(result, b"Client Key", self.hash_name)
        stored_key = hashlib.new(self.hash_name, client_key).digest()
        client_signature = hmac.digest(stored_key, self._auth_message, self.hash_name)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        server_key = hmac.digest(result, b"Server Key", self.hash_name)
        self._server_signature = hmac.digest(server_key, self._auth_message, self.hash_name)
        self._turn = Turn.SIGNATURE
        self._proof = Secret(base64.b64encode(proof).decode())
        return Reply(self._final_bare + b",p=" + self._proof.reveal().encode())

    def secrets(self) -> Iterable[Secret]:
        return (self._password,) if self._proof is None else (self._password, self._proof)

    def _judge_signature(self, challenge: bytes) -> Outcome:
        attributes = self._attributes(challenge)
        key, value = attributes[0]
        if key != "v":
            raise self._refusal("a final message without its signature")
        if not hmac.compare_digest(self._decoded(value, "signature"), self._server_signature):
            raise self._refusal("a wrong signature: it does not know the password, and may be an impostor")
        self._turn = Turn.END
        return Finished()

    def _first_three(self, attributes: list[tuple[str, str]]) -> tuple[str, str, str]:
        if attributes[0][0] == "m":
            raise self._refusal("an extension that must be understood (m=), and none is known")
        if [key for key, _ in attributes[:3]] != ["r", "s", "i"]:
            raise self._refusal("a first message without nonce, salt and iterations in this order")
        if any(key == "m" for key, _ in attributes):
            raise self._refusal("an extension that must be understood (m=) out of place")
        return attributes[0][1], attributes[1][1], attributes[2][1]

    def _attributes(self, challenge: bytes) -> list[tuple[str, str]]:
        if len(challenge) > MAX_MESSAGE_BYTES:
            raise self._refusal(f"a message of {len(challenge)} bytes")
        try:
            parts = challenge.decode().split(",")
        except UnicodeDecodeError:
            raise self._refusal("a message that is not UTF-8") from None
        if not all(ATTRIBUTE.fullmatch(part) for part in parts):
            parts.clear()  # so that tracebacks that show locals do not show them (`challenge` hides itself)
            raise self._refusal("a message that is not a list of attributes")
        attributes = [(part[0], part[2:]) for part in parts]
        if len({key for key, _ in attributes}) != len(attributes):
            raise self._refusal("an attribute twice")
        if attributes[0][0] == "e":
            reason = self.told(attributes[0][1], ERROR_TEXT_LIMIT)
            parts.clear()
            attributes.clear()
            self._turn = Turn.END
            raise AuthenticationError(f"the broker refused SASL {self.name}: {reason}")
        return attributes

    def _decoded(self, text: str, what: str) -> bytes:
        try:
            decoded = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            decoded = b""
        if not decoded:
            raise self._refusal(f"a {what} that is not base64")
        return decoded

    def _iterations(self, count: str) -> int:
        # Digits only, and few: int() takes signs, blanks and underscores, and its cost grows with the length.
        if not (count.isascii() and count.isdigit()) or len(count) > len(str(2**31)):
            raise self._refusal("an iteration count that is no count")
        iterations = int(count)
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise self._refusal(f"{iterations} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted")
        return iterations

    def _refusal(self, what: str) -> AuthenticationError:
        self._turn = Turn.END
        return AuthenticationError(f"SASL {self.name}: the broker sent {what}")


class ScramSha256(Scram):
    """SCRAM-SHA-256 (RFC 7677)."""

    __slots__ = ()

    name: ClassVar[str] = "SCRAM-SHA-256"
    hash_name: ClassVar[str] = "sha256"


class ScramSha512(Scram):
    """SCRAM-SHA-512: the same exchange with the longer hash, as Kafka defines it."""

    __slots__ = ()

    name: ClassVar[str] = "SCRAM-SHA-512"
    hash_name: ClassVar[str] = "sha512"


def saslname(username: str) -> str:
    """Escape the characters that separate attributes (RFC 5802 5.1)."""
    return username.replace("=", "=3D").replace(",", "=2C")
