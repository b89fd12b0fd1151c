"""`SaslGate`: the state of one connection's authentication, and which requests it lets through before it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiokprod.testing.mock.scram_server import AuthenticationFailedError, ServerMechanism, start
from aiokprod.wire.messages.api_versions import ApiVersionsRequest
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest

BEFORE_AUTHENTICATION: Final = frozenset(
    {ApiVersionsRequest.API_KEY, SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY}
)


class SaslGate:
    """One connection's authentication. `user` is None until it is over; `is_open` says whether requests are served."""

    __slots__ = ("_exchange", "_expires_at", "_is_raw", "mechanisms", "session_lifetime_s", "user", "users")

    def __init__(self, mechanisms: Sequence[str], users: Mapping[str, str], session_lifetime_s: float) -> None:
        self.mechanisms = mechanisms
        self.users = users
        self.session_lifetime_s = session_lifetime_s
        self.user: str | None = None
        self._exchange: ServerMechanism | None = None
        self._is_raw = False
        self._expires_at: float | None = None

    def lets(self, api_key: int, now_s: float) -> bool:
        """Return whether this request may be served now."""
        if not self.mechanisms or api_key in BEFORE_AUTHENTICATION:
            return True
        return self.user is not None and (self._expires_at is None or now_s < self._expires_at)

    @property
    def wants_raw_token(self) -> bool:
        """After a handshake v0 the tokens come without a header."""
        return self._is_raw

    def begin(self, mechanism: str, *, raw: bool) -> None:
        """Start an exchange; the mechanism was checked."""
        self._exchange = start(mechanism, self.users)
        self._is_raw = raw

    def step(self, token: bytes, now_s: float) -> bytes:
        """Take a token of the client. Raises AuthenticationFailedError."""
        if self._exchange is None:
            raise AuthenticationFailedError("SaslAuthenticate request without a SaslHandshake before it")
        try:
            answer = self._exchange.step(token)
        except AuthenticationFailedError:
            self.user, self._exchange, self._is_raw = None, None, False
            raise
        if self._exchange.user is not None:
            self.user, self._exchange, self._is_raw = self._exchange.user, None, False
            self._expires_at = now_s + self.session_lifetime_s if self.session_lifetime_s else None
        return answer
