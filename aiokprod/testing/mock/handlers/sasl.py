"""SaslHandshake and SaslAuthenticate. The state of an exchange lives in the connection's `SaslGate`.

A broker without mechanisms asks for no login, and says so to a client that tries one; one with mechanisms serves nothing but
ApiVersions and these two until the exchange is over. After a failed one the answer is written and the connection closed.
"""

from __future__ import annotations

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call, HangUpError
from aiokprod.testing.mock.scram_server import AuthenticationFailedError
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


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
    """Serve one step of the exchange."""
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
    """Take a token without a header (after handshake v0); a failure closes the connection without an answer."""
    try:
        return call.connection.gate.step(token, call.broker.monotonic())
    except AuthenticationFailedError as failed:
        raise HangUpError(str(failed)) from failed
