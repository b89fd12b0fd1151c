"""`open_connection`: opens a usable connection to an endpoint, or raises a typed error that says what to do.

Stateless; the pool calls it once per dial. The steps are always resolve, connect, TLS, ApiVersions, SASL, under one time
limit. A token for SASL OAUTHBEARER is taken before the connection: no broker waits for a provider of tokens.

Invariants: no plaintext if TLS is required, and no credentials before TLS has verified the broker (`# faults: H17`);
before SASL is done only small answers are accepted (`# faults: H21`); after a failure or a cancellation no socket is left
open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from aiokprod.cluster.connection.answer_limits import SMALL_BYTES
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.cluster.connection.streamed_reads import StreamedReads
from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.dialing.dial import dial, dial_by
from aiokprod.cluster.dialing.dns import LOCAL, Address
from aiokprod.cluster.hosts import address_of, is_ip
from aiokprod.config import OAuthToken
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    ConnectionLostError,
    ConnectionSetupTimeoutError,
    ProtocolError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.logs import printable
from aiokprod.version import __version__
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.metadata import MetadataRequest
from aiokprod.wire.messages.produce import ProduceRequest
from aiokprod.wire.versions import LOWEST_METADATA, ApiVersions

if TYPE_CHECKING:  # imported for brokers that want SASL
    from aiokprod.cluster.dialing.sasl.mechanism import Mechanism

AUTHENTICATION: Final = "SASL authentication"

SASL_AUTHENTICATION_FAILED: Final = int(ErrorCode.SASL_AUTHENTICATION_FAILED)

BROKER_REGISTRATION: Final = 62
"""An API that only the listeners of KRaft controllers have."""

CONTROLLER: Final = (
    "this is a listener of a KRaft controller, which takes no records: name the listener of a broker (controllers often listen"
    " on 9093, brokers on 9092)"
)
"""The message where this listener is dialed; `aiokprod doctor` knows it by its end."""

SOFTWARE_NAME: Final = "aiokprod"


class Endpoint(NamedTuple):
    """The address of a broker; `node_id` is negative for a bootstrap server whose broker id is unknown."""

    host: str
    port: int
    node_id: int = -1

    def __str__(self) -> str:
        return address_of(self.host, self.port)


async def open_connection(
    endpoint: Endpoint, settings: ConnectionSettings, *, timeout_s: float | None = None
) -> BrokerConnection:
    """Dial a broker, agree on versions, and authenticate.

    Every address of the name is tried in turn. Each gets its share of the time that is left, so that an address that drops
    packets does not use up the time of the others (`# faults: N17, B16`).

    Cancellation: everything that was opened is closed.

    Args:
        endpoint: the broker; its name is resolved at each call.
        settings: the parameters of the dial.
        timeout_s: the limit for all steps and addresses; `settings.setup_timeout_s` if not given.

    Raises:
        ConnectionLostError: the name has no address at present, or nothing answers there.
        ConnectionSetupTimeoutError: the time is over.
        TlsError: the other side does not do TLS, or not in a way that this client accepts.
        AuthenticationError: the broker refuses the credentials, or does not know them itself, or there is no token for
            it. Raised at once, without trying other addresses: repeated wrong passwords lock accounts.
        UnsupportedVersionError: the broker is too old or too new, or the other side is not a broker.
        ProtocolError: the other side answers, but not in Kafka's protocol.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + (settings.setup_timeout_s if timeout_s is None else timeout_s)
    addresses = await _addresses(endpoint, settings, ends_at)
    token = await _token(endpoint, settings, ends_at)
    new_mechanism = settings.new_mechanism if token is None else _bearer(token)
    failures: list[AiokprodError] = []
    for index, address in enumerate(addresses):
        share_s = max(0.0, ends_at - loop.time()) / (len(addresses) - index)
        attempt = _Attempt(endpoint, address, settings, new_mechanism)
        try:
            async with asyncio.timeout(share_s):
                return await attempt.run()
        except AuthenticationError as error:
            if token is not None and settings.tokens is not None and error.code == SASL_AUTHENTICATION_FAILED:
                settings.tokens.refused(token)
            raise
        except AiokprodError as error:
            failures.append(error)
        except TimeoutError:
            failures.append(attempt.timed_out(share_s))
    raise _one_of(failures)


async def _addresses(endpoint: Endpoint, settings: ConnectionSettings, ends_at: float) -> list[Address] | list[None]:
    """Return the addresses to try; [None] with a dialer of the user's, which resolves names itself."""
    if settings.dialer is not None:
        return [None]
    try:
        async with asyncio.timeout_at(ends_at):
            look_up = partial(settings.resolver, endpoint.host, endpoint.port)
            # Bootstrap servers are the user's own and few: their names never wait for those of a Metadata answer.
            if settings.lookups is None or endpoint.node_id < 0 or is_ip(endpoint.host):
                return list(await look_up())
            return list(await settings.lookups.run(look_up, f"lookup-{endpoint.node_id}"))
    except TimeoutError:
        raise ConnectionSetupTimeoutError(
            f"{endpoint}: the name was not resolved in time", host=endpoint.host, port=endpoint.port
        ) from None
    except LOCAL as error:
        raise ConnectionLostError(
            f"{endpoint}: the name cannot be resolved: {printable(error)}", host=endpoint.host, port=endpoint.port
        ) from error


def _bearer(token: OAuthToken) -> Callable[[], Mechanism]:
    from aiokprod.cluster.dialing.sasl.oauthbearer import OAuthBearer

    return partial(OAuthBearer, token)


async def _token(endpoint: Endpoint, settings: ConnectionSettings, ends_at: float) -> OAuthToken | None:
    """Return a token for SASL OAUTHBEARER; None with another mechanism, or without one."""
    if settings.tokens is None:
        return None
    try:
        async with asyncio.timeout_at(ends_at):
            return await settings.tokens.take()
    except TimeoutError:
        from aiokprod.cluster.dialing.tokens import OPTION

        raise ConnectionSetupTimeoutError(
            f"{endpoint}: {OPTION} has not returned in time; its call goes on, and the next attempt takes its token",
            host=endpoint.host,
            port=endpoint.port,
        ) from None


def _one_of(failures: list[AiokprodError]) -> AiokprodError:
    """Return the last failure, with the texts of the others as a note: mostly all are the same."""
    last = failures[-1]
    if len(failures) == 1:
        return last
    last.add_note("other addresses of the name: " + "; ".join(str(failure) for failure in failures[:-1]))
    return last


class _Attempt:
    """An attempt at one address, from the dial to the end of the handshake."""

    def __init__(
        self,
        endpoint: Endpoint,
        address: Address | None,
        settings: ConnectionSettings,
        new_mechanism: Callable[[], Mechanism] | None,
    ) -> None:
        self._endpoint = endpoint
        self._address = address
        self._settings = settings
        self._new_mechanism = new_mechanism
        self.step = "connecting"
        self._connection = BrokerConnection(
            node_id=endpoint.node_id,
            host=endpoint.host,
            port=endpoint.port,
            client_id=settings.client_id,
            # Until `established`: before the other side has proved anything it may not make this process hold 100 MB.
            max_frame_bytes=min(SMALL_BYTES, settings.max_frame_bytes),
            max_mute_s=settings.request_timeout_s,
            loop=asyncio.get_running_loop(),
            log=settings.log_of(str(endpoint)),
        )

    async def run(self) -> BrokerConnection:
        connection = self._connection
        failed: str | None = None
        try:
            await self._dial()
            self.step = "ApiVersions"
            versions = await self._negotiate()
            if self._new_mechanism is not None:
                from aiokprod.cluster.dialing.authentication import authenticate

                self.step = AUTHENTICATION
                mechanism = self._new_mechanism()
                threads, timeout_s = self._settings.threads, self._settings.setup_timeout_s
                await authenticate(connection, mechanism, versions, threads, timeout_s=timeout_s)
            connection.established(
                versions,
                self._settings.max_frame_bytes,
                is_authenticated=self._new_mechanism is not None,
            )
            self._settings.answered.add(str(self._endpoint))
        except AiokprodError as error:
            if str(self._endpoint) not in error.message:
                error.broker = str(self._endpoint)
            connection.close(error)
            # The pool never gets this connection, so `BrokerPool.close` cannot wait for its socket; and the loop may be
            # closed right after a failed start. (faults: L19)
            await connection.wait_closed()
            raise
        except LOCAL as error:
            failed = type(error).__name__
        except Exception as error:
            if self.step != AUTHENTICATION:
                connection.close(self._lost(f"given up during {self.step}"))
                raise
            failed = type(error).__name__
        except BaseException:  # cancelled: no wait here, or the cancelled task would not end at once
            connection.close(self._lost(f"given up during {self.step}"))
            raise
        if failed is not None:
            # For example no thread was left for a hash. Raised outside the `except`, so that the first error does not
            # become the context of this one: its text and locals may show the password. (faults: S18)
            lost = self._lost(f"{self.step} failed on this machine: {failed}")
            connection.close(lost)
            await connection.wait_closed()
            raise lost
        return connection

    def timed_out(self, after_s: float) -> ConnectionSetupTimeoutError:
        """Return the error of an attempt whose time was over."""
        text = f"{self._endpoint}: {self.step} did not end within {after_s:.1f} s"
        if self._address is not None:
            text += f" (at {self._address})"
        return ConnectionSetupTimeoutError(text, host=self._endpoint.host, port=self._endpoint.port)

    def _lost(self, text: str) -> ConnectionLostError:
        return ConnectionLostError(f"{self._endpoint}: {text}", host=self._endpoint.host, port=self._endpoint.port)

    # ------------------------------------------------------------------ connecting

    async def _dial(self) -> None:
        host, port, settings = self._endpoint.host, self._endpoint.port, self._settings
        if settings.dialer is not None:
            await dial_by(settings.dialer, host, port, settings.ssl_context, lambda: StreamedReads(self._connection))
            return
        assert self._address is not None
        await dial(
            host,
            port,
            self._address,
            settings.ssl_context,
            (lambda: self._connection) if settings.ssl_context is None else lambda: StreamedReads(self._connection),
            send_buffer_bytes=settings.send_buffer_bytes,
            receive_buffer_bytes=settings.receive_buffer_bytes,
            keepalive_s=settings.keepalive_s,
        )

    async def _call(self, kind: type[RequestMessage], version: int, body: bytes) -> memoryview:
        # The timeout of the whole attempt ends it first; the per-request timeout is only a backstop.
        return await self._connection.call(kind, version, body, timeout_s=self._settings.setup_timeout_s)

    # ------------------------------------------------------------------ versions

    async def _negotiate(self) -> ApiVersions:
        """Ask for the broker's versions: in our newest version, then once more in one that it names, or the oldest.

        A broker that does not know the version asked for answers UNSUPPORTED_VERSION (35) in the layout of version 0
        (KIP-511), and some in other layouts: only the code, which comes first in all of them, is used (`# faults: H15`).
        """
        newest = ApiVersionsRequest.MAX_VERSION
        try:
            answer = await self._ask_versions(newest)
        except ConnectionLostError as lost:
            raise self._no_kafka(lost) from lost
        older = 0
        if int.from_bytes(answer[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
            older = _named_version(answer)
        else:
            try:
                return _usable(ApiVersionsResponse.decode(answer, newest))
            except (ProtocolError, UnsupportedVersionError):
                # Some brokers answer a version that they do not know with an empty or mangled list and code 0: version 0
                # is known to all.
                older = 0
        answer = await self._ask_versions(older)
        try:
            return _usable(ApiVersionsResponse.decode(answer, older))
        except ProtocolError as error:
            raise UnsupportedVersionError(f"{self._endpoint}: no version of ApiVersions is understood") from error
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{self._endpoint}: {error.message}") from None

    async def _ask_versions(self, version: int) -> memoryview:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=software_version())
        return await self._call(ApiVersionsRequest, version, request.encode(version))

    def _no_kafka(self, lost: ConnectionLostError) -> AiokprodError:
        """Return an error that says what the end of the connection before the first answer means."""
        cause = self._connection.cause
        if isinstance(cause, ProtocolError):
            if "TLS" in cause.message:
                return TlsError(f"{self._endpoint}: {cause.message}")
            return ProtocolError(f"{self._endpoint}: {cause.message}")
        broke = lost.__cause__
        uses_tls = self._settings.ssl_context is not None
        if uses_tls and broke is not None:
            from aiokprod.cluster.dialing import tls

            if tls.is_tls_failure(broke):
                return tls.diagnose(broke, self._endpoint.host, self._endpoint.port)
        if str(self._endpoint) in self._settings.answered:
            hint = "it has answered before: the broker may be down, or starting"
        elif uses_tls:
            hint = "it may refuse our client certificate, or want one (ssl_certfile)"
        else:
            hint = "it may be a TLS listener: set security_protocol to SSL or SASL_SSL"
        return self._lost(f"hung up on the first request ({hint})")


@cache
def software_version() -> str:
    """Return this library's version as ApiVersions accepts it (KIP-511: letters, digits, dots and dashes)."""
    return "".join(each if each.isalnum() or each in ".-" else "-" for each in __version__)


def _named_version(answer: memoryview) -> int:
    """Return the version of ApiVersions that a refusal names; 0 if it names none that can be used."""
    try:
        refusal = ApiVersionsResponse.decode(answer, 0)
    except ProtocolError:
        return 0
    for named in refusal.api_keys:
        if named.api_key == ApiVersionsRequest.API_KEY and 0 <= named.max_version < ApiVersionsRequest.MAX_VERSION:
            return named.max_version
    return 0


def _usable(answer: ApiVersionsResponse) -> ApiVersions:
    """Return the broker's versions, if they are enough for a producer.

    Raises:
        UnsupportedVersionError: the answer is an error, or Metadata or Produce has no common version.
    """
    if answer.error_code:
        raise UnsupportedVersionError(f"ApiVersions was answered with {name_of(answer.error_code)}")
    versions = ApiVersions.from_response(answer)
    if MetadataRequest.API_KEY not in versions.ranges and BROKER_REGISTRATION in versions.ranges:
        raise UnsupportedVersionError(CONTROLLER)
    versions.pick(MetadataRequest.API_KEY, LOWEST_METADATA, MetadataRequest.MAX_VERSION)
    versions.pick(ProduceRequest.API_KEY, ProduceRequest.MIN_VERSION, ProduceRequest.MAX_VERSION)
    return versions
