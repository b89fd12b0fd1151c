"""The broker's side of PLAIN, SCRAM-SHA-256/512 (RFC 5802) and OAUTHBEARER (RFC 7628), as pure step machines.

One object per authentication. `step` takes what the client sent and returns what to answer; `user` is set once the
client has proved itself. A failure is `AuthenticationFailedError`, whose text never holds a password.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final

SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = ("PLAIN", *SCRAM_HASHES, "OAUTHBEARER")
ITERATIONS: Final = 4096
"""Kafka's least, and its default for created users."""


class AuthenticationFailedError(Exception):
    """An authentication that failed: the credentials are wrong, or a message is malformed."""


class ServerMechanism(ABC):
    """One authentication in progress."""

    user: str | None = None

    @abstractmethod
    def step(self, message: bytes) -> bytes:
        """Answer one message of the client. Raises AuthenticationFailedError."""


def start(mechanism: str, users: Mapping[str, str], *, iterations: int = ITERATIONS) -> ServerMechanism:
    """Return a new exchange of this mechanism; KeyError if the mock does not know it."""
    if mechanism == "PLAIN":
        return PlainServer(users)
    if mechanism == "OAUTHBEARER":
        return OAuthBearerServer(users)
    return ScramServer(SCRAM_HASHES[mechanism], users, iterations)


class PlainServer(ServerMechanism):
    """The server's half of PLAIN: one message with authorization id, user and password between zero bytes."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def step(self, message: bytes) -> bytes:
        """Accept or refuse."""
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationFailedError("Invalid SASL/PLAIN response: expected 3 tokens")
        user = parts[1].decode(errors="replace")
        expected = self._users.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), parts[2]):
            raise AuthenticationFailedError("Authentication failed: Invalid username or password")
        self.user = user
        return b""


class OAuthBearerServer(ServerMechanism):
    """The server's half of OAUTHBEARER: one message with the token; a refused one gets JSON, and fails at the next byte.

    A user's password is its token. `extensions` are those of the client's message.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._refusal = ""
        self.extensions: dict[str, str] = {}

    def step(self, message: bytes) -> bytes:
        """Accept or refuse the token; after a refusal, end the exchange."""
        if self._refusal:
            raise AuthenticationFailedError(
                self._refusal if message == b"\x01" else "Invalid SASL/OAUTHBEARER response: expected a single byte"
            )
        match = _BEARER.fullmatch(message)
        if match is None:
            raise AuthenticationFailedError("Invalid OAUTHBEARER client first message")
        token = match[1]
        self.extensions = {
            name.decode(): value.decode() for name, value in re.findall(rb"([A-Za-z]+)=([^\x01]+)\x01", match[2])
        }
        for user, expected in self._users.items():
            if hmac.compare_digest(expected.encode(), token):
                self.user = user
                return b""
        self._refusal = '{"status":"invalid_token"}'
        return self._refusal.encode()


class ScramServer(ServerMechanism):
    """The server's half of SCRAM: two messages, nonce and salt, then proof and signature."""

    def __init__(self, hash_name: str, users: Mapping[str, str], iterations: int) -> None:
        self._hash = hash_name
        self._users = users
        self._iterations = iterations
        self._salt = os.urandom(16)
        self._first = b""
        self._nonce = b""
        self._claimed = ""

    def step(self, message: bytes) -> bytes:
        """Answer the first or the final message."""
        return self._answer_final(message) if self._first else self._answer_first(message)

    def _answer_first(self, message: bytes) -> bytes:
        parts = message.split(b",", 2)
        if len(parts) != 3 or parts[0] not in (b"n", b"y"):
            raise AuthenticationFailedError("Invalid SCRAM client first message")
        fields = _fields(parts[2])
        if b"n" not in fields or not fields.get(b"r"):
            raise AuthenticationFailedError("Invalid SCRAM client first message")
        name = fields[b"n"].decode(errors="replace")
        self._claimed = name.replace("=2C", ",").replace("=3D", "=")
        if self._claimed not in self._users:
            raise AuthenticationFailedError("Authentication failed during authentication due to invalid credentials")
        self._nonce = fields[b"r"] + b64encode(os.urandom(18))
        answer = b"r=%b,s=%b,i=%d" % (self._nonce, b64encode(self._salt), self._iterations)
        self._first = parts[2] + b"," + answer
        return answer

    def _answer_final(self, message: bytes) -> bytes:
        without_proof, _, proof_text = message.rpartition(b",p=")
        fields = _fields(without_proof)
        try:
            proof = b64decode(proof_text, validate=True)
        except ValueError:
            raise AuthenticationFailedError("Invalid SCRAM client final message") from None
        salted = hashlib.pbkdf2_hmac(self._hash, self._users[self._claimed].encode(), self._salt, self._iterations)
        everything = self._first + b"," + without_proof
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, everything)
        expected = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        if fields.get(b"r") != self._nonce or not hmac.compare_digest(expected, proof):
            raise AuthenticationFailedError("Authentication failed during authentication due to invalid credentials")
        self.user = self._claimed
        return b"v=" + b64encode(self._hmac(self._hmac(salted, b"Server Key"), everything))

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self._hash).digest()


# As Kafka reads it: the header of RFC 7628 without channel binding, the token, extensions of KIP-342.
_BEARER: Final = re.compile(
    rb"n,(?:a=[^,\x01]*)?,\x01auth=Bearer +([-_.+/~a-zA-Z0-9]+=*)\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)


def _fields(text: bytes) -> dict[bytes, bytes]:
    return {name: value for name, _, value in (part.partition(b"=") for part in text.split(b","))}
