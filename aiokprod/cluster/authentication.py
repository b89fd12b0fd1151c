"""`authenticate`: SASL on a connection, from the handshake to the last token. Stateless; called once per connection.

The mechanism decides (`cluster.sasl`); this file carries tokens and runs hashes in a worker thread. A broker that
refuses says so before it hangs up; one that just hangs up may be restarting and is worth another try.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.sasl.mechanism import Finished, HashWork, HiddenBytes, Mechanism, Outcome, Reply
from aiokprod.errors import AiokprodError, AuthenticationError, ConnectionLostError, ProtocolError
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aiokprod.wire.versions import ApiVersions

MAX_SESSION_LIFETIME_S: Final = 30 * 24 * 3600.0
"""A lifetime of 2**63 ms is no lifetime (`# faults: S16`)."""

TEXT_LIMIT: Final = 300


async def authenticate(
    connection: BrokerConnection, mechanism: Mechanism, versions: ApiVersions, *, timeout_s: float
) -> None:
    """Prove who we are and see proof of who they are; note on the connection how long it lasts (KIP-368).

    Cancelling stops waiting; a hash that has begun goes on in its thread and is thrown away.

    Args:
        connection: on which nothing else is sent meanwhile.
        mechanism: a fresh one.
        versions: of the broker.
        timeout_s: for each answer.

    Raises:
        AuthenticationError: refused, by either side.
        ConnectionLostError: the broker hung up without a word.
        ProtocolError: its answer cannot be read.
        UnsupportedVersionError: it knows no SASL, or only that of before Kafka 1.0.
    """
    from anyio import CapacityLimiter  # imported by those who authenticate: it takes a while
    from anyio.to_thread import run_sync

    await _agree_on(connection, mechanism, versions, timeout_s)
    version = versions.pick(SaslAuthenticateRequest.API_KEY, 0, SaslAuthenticateRequest.MAX_VERSION)
    asked_at = asyncio.get_running_loop().time()
    lifetime_s: float | None = None
    outcome: Outcome = Reply(mechanism.start())
    while not isinstance(outcome, Finished):
        if isinstance(outcome, HashWork):
            # Its own limiter: never behind the threads of the application, which may all be busy.
            hashed = await run_sync(outcome.run, abandon_on_cancel=True, limiter=CapacityLimiter(1))
            outcome = mechanism.hashed(hashed)
            continue
        answer = await _carry(connection, outcome, mechanism, version, timeout_s=timeout_s)
        lifetime_s = session_lifetime_s(answer.session_lifetime_ms)
        outcome = _step(connection, mechanism, answer.auth_bytes)
    connection.session_lifetime_s = lifetime_s
    connection.expires_at = None if lifetime_s is None else asked_at + lifetime_s


async def _agree_on(
    connection: BrokerConnection, mechanism: Mechanism, versions: ApiVersions, timeout_s: float
) -> None:
    # Version 1 wraps the tokens in SaslAuthenticate (KIP-152); version 0 sends them bare and hides the errors.
    version = versions.pick(SaslHandshakeRequest.API_KEY, 1, 1)
    request = SaslHandshakeRequest(mechanism=mechanism.name)
    try:
        body = await connection.call(SaslHandshakeRequest, version, request.encode(version), timeout_s=timeout_s)
    except ConnectionLostError as lost:
        raise _hung_up(connection, f"when asked for SASL {mechanism.name}") from lost
    answer = SaslHandshakeResponse.decode(body, version)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(mechanism.told(name, 50) for name in answer.mechanisms[:20]) or "nothing"
        del answer, body  # as in `_carry`
        raise _refused(connection, f"SASL {mechanism.name} is not offered, see sasl_mechanism; offered is: {offered}")
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise _refused(connection, "this listener does not want SASL: check that this is the port of a SASL listener")
    if answer.error_code:
        raise _refused(connection, f"SASL {mechanism.name} failed: {name_of(answer.error_code)}", answer.error_code)


async def _carry(
    connection: BrokerConnection, reply: Reply, mechanism: Mechanism, version: int, *, timeout_s: float
) -> SaslAuthenticateResponse:
    """One token over, one back. Tokens are hidden from tracebacks that show locals (`# faults: S18`)."""
    body = HiddenBytes(SaslAuthenticateRequest(auth_bytes=reply.token).encode(version))
    try:
        answer_body = await connection.call(SaslAuthenticateRequest, version, body, timeout_s=timeout_s)
    except ConnectionLostError as lost:
        raise _hung_up(connection, f"during SASL {mechanism.name}") from lost
    answer = SaslAuthenticateResponse.decode(answer_body, version)
    code = answer.error_code
    if code:
        reason = mechanism.told(answer.error_message, TEXT_LIMIT) if answer.error_message else name_of(code)
        del answer, answer_body  # as it came, it may show what was sent
        raise _refused(connection, f"SASL {mechanism.name}: {reason}", code)
    answer.auth_bytes = HiddenBytes(answer.auth_bytes)
    return answer


def _step(connection: BrokerConnection, mechanism: Mechanism, challenge: bytes) -> Outcome:
    try:
        return mechanism.step(challenge)
    except AuthenticationError as error:
        raise _refused(connection, error.message) from None


def _hung_up(connection: BrokerConnection, when: str) -> AiokprodError:
    where = f"{connection.host}:{connection.port}"
    cause = connection.cause
    if isinstance(cause, ProtocolError):
        return ProtocolError(f"{where}: {cause.message}")
    return ConnectionLostError(f"{where}: the broker hung up {when}", host=connection.host, port=connection.port)


def _refused(connection: BrokerConnection, text: str, code: int | None = None) -> AuthenticationError:
    return AuthenticationError(f"{connection.host}:{connection.port}: {text}", code=code)


def session_lifetime_s(session_lifetime_ms: int) -> float | None:
    """As the broker says it, in seconds; 0 means for ever, and so does nonsense below it (`# faults: S16`)."""
    if session_lifetime_ms <= 0:
        return None
    return min(session_lifetime_ms / 1000, MAX_SESSION_LIFETIME_S)
