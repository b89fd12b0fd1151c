"""`authenticate`: SASL on a connection, from the handshake to the last token. Stateless; called once per connection.

The mechanism decides (`dialing.sasl`); this file sends its tokens and runs its hashes in a worker thread. A broker that
refuses answers with an error before it closes the connection; one that only closes it may be restarting, so the dial is
tried again.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Final, TypeVar

from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.dialing.sasl.mechanism import Finished, HashWork, HiddenBytes, Mechanism, Outcome, Reply
from aiokprod.cluster.hosts import address_of
from aiokprod.errors import AiokprodError, AuthenticationError, ConnectionLostError, ProtocolError
from aiokprod.program import has_ended
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from aiokprod.wire.versions import ApiVersions

MAX_SESSION_LIFETIME_S: Final = 30 * 24 * 3600.0
"""The longest lifetime believed: a broker may send 2**63 ms (`# faults: S16`)."""

TEXT_LIMIT: Final = 300

Answer = TypeVar("Answer", SaslHandshakeResponse, SaslAuthenticateResponse)


async def authenticate(
    connection: BrokerConnection, mechanism: Mechanism, versions: ApiVersions, threads: Executor, *, timeout_s: float
) -> None:
    """Authenticate both sides of a connection, and note on it how long the session lasts (KIP-368).

    Cancellation: a hash that has begun runs on in its thread, and its result is discarded.

    Args:
        connection: the connection; nothing else may be sent on it meanwhile.
        mechanism: a mechanism that has not been used yet.
        versions: the versions of the broker.
        threads: do the hashing, which takes up to seconds.
        timeout_s: the timeout of each answer.

    Raises:
        AuthenticationError: either side refused the other.
        ConnectionLostError: the broker closed the connection without an error.
        ProtocolError: the broker's answer cannot be read.
        UnsupportedVersionError: the broker knows no SASL, or only the form used before Kafka 1.0.
    """
    await _agree_on(connection, mechanism, versions, timeout_s)
    version = versions.pick(SaslAuthenticateRequest.API_KEY, 0, SaslAuthenticateRequest.MAX_VERSION)
    # Taken before the exchange: the broker counts from a moment later, so the session never ends earlier than assumed.
    asked_at = asyncio.get_running_loop().time()
    lifetime_s: float | None = None
    outcome: Outcome = Reply(mechanism.start())
    while not isinstance(outcome, Finished):
        if isinstance(outcome, HashWork):
            # Not in the loop's own threads: the application may keep all of these busy for long. A dial that is given up
            # leaves its hash, if that has begun, to its end: so many dials at a time cost no more threads than there are.
            run = outcome.run
            hashed = run() if has_ended() else await asyncio.get_running_loop().run_in_executor(threads, run)
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
    answer = _decoded(SaslHandshakeResponse, body, version)
    del body  # as in `_carry`
    if answer is None:
        raise _unreadable(connection, mechanism)
    code = answer.error_code
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(mechanism.told(name, 50) for name in answer.mechanisms[:20]) or "nothing"
        del answer
        raise _refused(connection, f"SASL {mechanism.name} is not offered, see sasl_mechanism; offered is: {offered}")
    del answer
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        raise _refused(
            connection,
            "this listener does not speak SASL: use the port of a SASL listener, or leave the SASL options out",
        )
    if code:
        raise _refused(connection, f"SASL {mechanism.name} failed: {name_of(code)}", code)


async def _carry(
    connection: BrokerConnection, reply: Reply, mechanism: Mechanism, version: int, *, timeout_s: float
) -> SaslAuthenticateResponse:
    """Send a token and return the answer. Tokens are hidden from tracebacks that show locals (`# faults: S18`)."""
    body = HiddenBytes(SaslAuthenticateRequest(auth_bytes=reply.token).encode(version))
    try:
        answer_body = await connection.call(SaslAuthenticateRequest, version, body, timeout_s=timeout_s)
    except ConnectionLostError as lost:
        raise _hung_up(connection, f"during SASL {mechanism.name}") from lost
    answer = _decoded(SaslAuthenticateResponse, answer_body, version)
    del answer_body  # not into the traceback: a broker may repeat the token, and so the password
    if answer is None:
        raise _unreadable(connection, mechanism)
    code = answer.error_code
    if code:
        reason = mechanism.told(answer.error_message, TEXT_LIMIT) if answer.error_message else name_of(code)
        del answer
        raise _refused(connection, f"SASL {mechanism.name}: {mechanism.reason(reason)}", code)
    answer.auth_bytes = HiddenBytes(answer.auth_bytes)
    answer.error_message = None  # the caller keeps the answer, and needs no text of a broker that does not refuse
    return answer


def _decoded(kind: type[Answer], body: memoryview, version: int) -> Answer | None:
    """Return the answer; None if it cannot be read. The decoder's own error has the bytes in its frames and its context."""
    try:
        return kind.decode(body, version)
    except ProtocolError:
        return None


def _unreadable(connection: BrokerConnection, mechanism: Mechanism) -> ProtocolError:
    # Without what is wrong with it: a length that is none may be four bytes of a password.
    return ProtocolError(
        f"{address_of(connection.host, connection.port)}: SASL {mechanism.name}: the answer cannot be read"
    )


def _step(connection: BrokerConnection, mechanism: Mechanism, challenge: bytes) -> Outcome:
    try:
        return mechanism.step(challenge)
    except AuthenticationError as error:
        refusal = _refused(connection, error.message, error.code)
    raise refusal  # outside of the `except`: the first error, with parts of the message in its frames, would be its context


def _hung_up(connection: BrokerConnection, when: str) -> AiokprodError:
    where = address_of(connection.host, connection.port)
    cause = connection.cause
    if isinstance(cause, ProtocolError):
        return ProtocolError(f"{where}: {cause.message}")
    return ConnectionLostError(f"{where}: the broker hung up {when}", host=connection.host, port=connection.port)


def _refused(connection: BrokerConnection, text: str, code: int | None = None) -> AuthenticationError:
    return AuthenticationError(f"{address_of(connection.host, connection.port)}: {text}", code=code)


def session_lifetime_s(session_lifetime_ms: int) -> float | None:
    """Return the broker's session lifetime in seconds; None for 0 (no limit) and for negative values (`# faults: S16`)."""
    if session_lifetime_ms <= 0:
        return None
    return min(session_lifetime_ms / 1000, MAX_SESSION_LIFETIME_S)
