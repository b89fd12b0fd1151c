"""SaslHandshake and SaslAuthenticate: who is let in. The state of an exchange lives in the connection's `SaslGate`.

A broker without mechanisms asks for no login, and says so to a client that tries one; one with mechanisms serves nothing but
ApiVersions and these two until the exchange is over. After a failed one the answer is written and the connection closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.api_versions import ApiVersionsRequest
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from ..cluster_state import RefusalError
from ..scram_server import AuthenticationFailedError, ServerMechanism, start
from .api import Call, HangUpError

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
        """Whether this request may be served now."""
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


def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin with a mechanism, or name those there are."""
    gate = call.connection.gate
    response = SaslHandshakeResponse(mechanisms=list(gate.mechanisms))
    try:
        call.refuse_by_script()
        if not gate.mechanisms:  # broker: 18.6
            response.error_code = int(ErrorCode.ILLEGAL_SASL_STATE)
            return response
        if request.mechanism not in gate.mechanisms:
            raise RefusalError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        gate.begin(request.mechanism, raw=call.version == 0)
    except RefusalError as refusal:
        response.error_code = int(refusal.code)
        call.connection.close_after_answer()
    return response


def sasl_authenticate(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """One step of the exchange."""
    gate = call.connection.gate
    response = SaslAuthenticateResponse(error_message=None)
    try:
        call.refuse_by_script()
        if not gate.mechanisms:  # broker: 18.6
            response.error_code = int(ErrorCode.ILLEGAL_SASL_STATE)
            response.error_message = "SaslAuthenticate request received after successful authentication"
            return response
        response.auth_bytes = gate.step(request.auth_bytes, call.broker.monotonic())
        if gate.user is not None:
            response.session_lifetime_ms = round(gate.session_lifetime_s * 1000) if call.version >= 1 else 0
    except RefusalError as refusal:
        response.error_code, response.error_message = int(refusal.code), refusal.message
        call.connection.close_after_answer()
    except AuthenticationFailedError as failed:
        response.error_code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
        response.error_message = str(failed)
        call.connection.close_after_answer()
    return response


def raw_token(call: Call, token: bytes) -> bytes:
    """A token without a header (after handshake v0); a failure closes the connection without a word."""
    try:
        return call.connection.gate.step(token, call.broker.monotonic())
    except AuthenticationFailedError as failed:
        raise HangUpError(str(failed)) from failed
