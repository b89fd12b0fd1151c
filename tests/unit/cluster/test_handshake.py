"""From an endpoint to an open connection, against brokers, liars and others on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
import struct
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import pytest
import trustme
from both_loops import Run, both_loops
from scram_server import serve_scram
from scripted_broker import Peer, Script, ScriptedBroker, api_versions, eventually, idle

from aiokprod.cluster.authentication import MAX_SESSION_LIFETIME_S
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.connection_settings import ConnectionSettings
from aiokprod.cluster.dns import Address
from aiokprod.cluster.handshake import Endpoint, open_connection
from aiokprod.cluster.sasl.mechanism import Mechanism
from aiokprod.cluster.sasl.plain import Plain
from aiokprod.cluster.sasl.scram import ScramSha256, ScramSha512
from aiokprod.cluster.tls import TlsFiles, build_context
from aiokprod.config import Secret
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    ConnectionLostError,
    ConnectionSetupTimeoutError,
    ProtocolError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.sasl_authenticate import SaslAuthenticateResponse
from aiokprod.wire.messages.sasl_handshake import SaslHandshakeResponse

CANARY = "canary-s3cret"


@contextlib.asynccontextmanager
async def opened(
    broker: ScriptedBroker,
    settings: ConnectionSettings | None = None,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = 5.0,
) -> AsyncIterator[BrokerConnection]:
    connection = await open_connection(
        Endpoint(host=host, port=broker.port, node_id=7), settings or ConnectionSettings(), timeout_s=timeout_s
    )
    try:
        yield connection
    finally:
        connection.close(ConnectionLostError("the test is over"))
        await connection.wait_closed()


async def refused(
    broker: ScriptedBroker,
    settings: ConnectionSettings | None = None,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = 5.0,
) -> AiokprodError:
    """The error of an attempt that must fail."""
    with pytest.raises(AiokprodError) as raised:
        async with opened(broker, settings, host=host, timeout_s=timeout_s):
            pass
    assert f":{broker.port}" in str(raised.value) or isinstance(raised.value.__cause__, AiokprodError)
    return raised.value


async def modern(peer: Peer) -> None:
    await peer.negotiate()
    await idle(peer)


def at(*addresses: tuple[str, int]) -> Callable[[str, int], Any]:
    """A resolver that knows these."""

    async def resolver(host: str, port: int) -> Sequence[Address]:
        return [Address(socket.AF_INET, address) for address in addresses]

    return resolver


# -- connecting ---------------------------------------------------------------------------------------------------


@both_loops
def test_a_broker_of_today_is_connected_to(run: Run) -> None:
    async def today(peer: Peer) -> None:
        request = await peer.request()
        assert request.client_id == "me"
        assert request.version == ApiVersionsRequest.MAX_VERSION
        asked = ApiVersionsRequest.decode(request.body, request.version)
        assert asked.client_software_name == "aiokprod"
        answer = api_versions()
        answer.finalized_features = [FinalizedFeatureKey("transaction.version", 2, 2)]
        peer.answer(request, answer.encode(request.version))
        request = await peer.request()
        peer.answer(request, MetadataResponse(cluster_id="x").encode(request.version))
        await idle(peer)

    async def scenario() -> None:
        async with ScriptedBroker(today) as broker, opened(broker, ConnectionSettings(client_id="me")) as connection:
            assert connection.is_open
            assert connection.is_writable
            assert connection.node_id == 7
            assert connection.versions.finalized_features == {"transaction.version": 2}
            assert connection.session_lifetime_s is None
            assert connection.expires_at is None
            answer: MetadataResponse = await connection.request(MetadataRequest(), timeout_s=5.0)
            assert answer.cluster_id == "x"

    run(scenario())


@both_loops
def test_socket_options_are_set(run: Run) -> None:
    async def scenario() -> None:
        settings = ConnectionSettings(send_buffer_bytes=50_000, receive_buffer_bytes=60_000)
        async with ScriptedBroker(modern) as broker, opened(broker, settings) as connection:
            sock = cast(asyncio.Transport, connection._transport).get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000  # Linux doubles it
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000

    run(scenario())


@both_loops
def test_nobody_there_is_a_typed_error_with_host_port_and_cause(run: Run) -> None:  # faults: N16
    async def scenario() -> None:
        async with ScriptedBroker(idle) as broker:
            port = broker.port
        with pytest.raises(ConnectionLostError) as raised:
            await open_connection(Endpoint(host="127.0.0.1", port=port), ConnectionSettings())
        assert (raised.value.host, raised.value.port) == ("127.0.0.1", port)
        assert "refused" in str(raised.value).lower()
        assert isinstance(raised.value.__cause__, ConnectionRefusedError)

    run(scenario())


@both_loops
def test_every_address_of_a_name_is_tried(run: Run) -> None:  # faults: N17
    async def scenario() -> None:
        async with ScriptedBroker(idle) as dead, ScriptedBroker(modern) as alive:
            gone = dead.port
            await dead.__aexit__(None, None, None)
            settings = ConnectionSettings(resolver=at(("127.0.0.1", gone), ("127.0.0.1", alive.port)))
            async with opened(alive, settings, host="two.example") as connection:
                assert connection.host == "two.example"

    run(scenario())


@both_loops
def test_an_address_that_swallows_everything_does_not_use_up_the_time_of_the_others(run: Run) -> None:  # faults: B16
    async def scenario() -> None:
        async with ScriptedBroker(idle) as silent, ScriptedBroker(modern) as alive:
            settings = ConnectionSettings(resolver=at(("127.0.0.1", silent.port), ("127.0.0.1", alive.port)))
            async with opened(alive, settings, host="two.example", timeout_s=0.6):
                pass

    run(scenario())


@both_loops
def test_when_all_addresses_fail_each_failure_is_told(run: Run) -> None:  # faults: N17
    async def scenario() -> None:
        async with ScriptedBroker(idle) as one, ScriptedBroker(idle) as two:
            settings = ConnectionSettings(resolver=at(("127.0.0.1", one.port), ("127.0.0.1", two.port)))
            error = await refused(two, settings, host="two.example", timeout_s=0.2)
            assert isinstance(error, ConnectionSetupTimeoutError)
            assert f"127.0.0.1:{two.port}" in str(error)
            assert any(f"127.0.0.1:{one.port}" in note for note in error.__notes__)

    run(scenario())


@both_loops
def test_the_name_is_resolved_anew_on_each_dial(run: Run) -> None:  # faults: N17
    async def scenario() -> None:
        async with ScriptedBroker(modern) as one, ScriptedBroker(modern) as two:
            now = [one.port]

            async def resolver(host: str, port: int) -> Sequence[Address]:
                return [Address(socket.AF_INET, ("127.0.0.1", now[0]))]

            settings = ConnectionSettings(resolver=resolver)
            async with opened(one, settings, host="moves.example"):
                now[0] = two.port
                async with opened(one, settings, host="moves.example"):
                    assert (one.connections, two.connections) == (1, 1)

    run(scenario())


@both_loops
def test_a_resolver_that_hangs_is_given_up(run: Run) -> None:  # faults: N17
    async def scenario() -> None:
        async def resolver(host: str, port: int) -> Sequence[Address]:
            await asyncio.sleep(60)
            raise AssertionError

        with pytest.raises(ConnectionSetupTimeoutError, match=r"slow\.example:1: the name was not resolved"):
            await open_connection(
                Endpoint(host="slow.example", port=1), ConnectionSettings(resolver=resolver), timeout_s=0.05
            )

    run(scenario())


@both_loops
def test_a_broker_that_never_answers_is_given_up_with_the_step_it_stuck_at(run: Run) -> None:  # faults: B16
    async def scenario() -> None:
        async with ScriptedBroker(idle) as broker:
            error = await refused(broker, timeout_s=0.1)
            assert isinstance(error, ConnectionSetupTimeoutError)
            assert isinstance(error, TimeoutError)
            assert "ApiVersions did not end within 0.1 s" in str(error)

    run(scenario())


@both_loops
def test_cancelling_leaves_no_socket_behind(run: Run) -> None:  # faults: L19
    ended = asyncio.Event()

    async def watch(peer: Peer) -> None:
        await peer.request()
        assert await peer.hung_up()
        ended.set()

    async def scenario() -> None:
        async with ScriptedBroker(watch) as broker:
            dialling = asyncio.ensure_future(
                open_connection(Endpoint(host="127.0.0.1", port=broker.port), ConnectionSettings())
            )
            await eventually(lambda: broker.connections == 1)
            await asyncio.sleep(0.01)
            dialling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dialling
            await asyncio.wait_for(ended.wait(), 5)

    run(scenario())


# -- versions -----------------------------------------------------------------------------------------------------


def older_broker(layout: Callable[[Peer, Any], bytes], highest: int) -> Script:
    """Refuses ApiVersions above `highest` in a layout of its own, then answers."""

    async def script(peer: Peer) -> None:
        request = await peer.request()
        assert request.version > highest
        peer.answer(request, layout(peer, request))
        request = await peer.request()
        assert request.version <= highest
        peer.answer(request, api_versions().encode(request.version))
        await idle(peer)

    return script


REFUSAL_WITH_RANGE = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 2)]).encode(0)


@pytest.mark.parametrize(
    "refusal",
    [
        REFUSAL_WITH_RANGE,
        ApiVersionsResponse(error_code=35).encode(0),
        ApiVersionsResponse(error_code=35).encode(3),
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 2)]).encode(3),
        b"\x00\x23",
        b"\x00\x23 mangled beyond recognition",
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 99)]).encode(0),
        ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, -5, -1)]).encode(0),
        # no refusal, but nothing to work with either:
        ApiVersionsResponse().encode(4),
        ApiVersionsResponse(api_keys=[ApiVersion(0, 9, 3), ApiVersion(3, 5, 1)]).encode(4),
        ApiVersionsResponse(api_keys=[ApiVersion(3, 0, 12)]).encode(4),
        b"\x00\x00 mangled",
    ],
)
@both_loops
def test_an_older_or_odd_broker_is_asked_once_more_in_its_own_words(run: Run, refusal: bytes) -> None:  # faults: H15
    async def scenario() -> None:
        async with ScriptedBroker(older_broker(lambda *_: refusal, 2)) as broker, opened(broker) as connection:
            assert connection.versions.ranges[MetadataRequest.API_KEY] == (
                MetadataRequest.MIN_VERSION,
                MetadataRequest.MAX_VERSION,
            )

    run(scenario())


@pytest.mark.parametrize("answer", [b"\x00\x23", REFUSAL_WITH_RANGE, b"", ApiVersionsResponse().encode(0)])
@both_loops
def test_a_broker_that_never_makes_sense_is_unsupported(run: Run, answer: bytes) -> None:  # faults: H15
    async def senseless(peer: Peer) -> None:
        while True:
            peer.answer(await peer.request(), answer)

    async def scenario() -> None:
        async with ScriptedBroker(senseless) as broker:
            assert isinstance(await refused(broker), UnsupportedVersionError)

    run(scenario())


@both_loops
def test_a_broker_without_produce_is_unsupported(run: Run) -> None:  # faults: H15
    async def controller(peer: Peer) -> None:
        while True:
            request = await peer.request()
            answer = ApiVersionsResponse(api_keys=[ApiVersion(3, 0, 12), ApiVersion(18, 0, 4)])
            peer.answer(request, answer.encode(request.version))

    async def scenario() -> None:
        async with ScriptedBroker(controller) as broker:
            error = await refused(broker)
            assert isinstance(error, UnsupportedVersionError)
            assert "API 0" in str(error)

    run(scenario())


# -- the wrong kind of peer ---------------------------------------------------------------------------------------


@both_loops
def test_an_http_server_is_recognised(run: Run) -> None:  # faults: S5
    async def http(peer: Peer) -> None:
        await peer.reader.read(100)
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await idle(peer)

    async def scenario() -> None:
        async with ScriptedBroker(http) as broker:
            error = await refused(broker)
            assert isinstance(error, ProtocolError)
            assert "HTTP" in str(error)

    run(scenario())


@pytest.mark.parametrize("length", [2**31 - 1, 600_000, -1, 0])
@both_loops
def test_before_authentication_only_small_answers_are_taken(run: Run, length: int) -> None:  # faults: H21, H2
    async def endless(peer: Peer) -> None:
        await peer.request()
        peer.send(struct.pack(">i", length))
        with contextlib.suppress(ConnectionError):
            while True:
                peer.send(bytes(65536))
                await peer.writer.drain()

    async def scenario() -> None:
        async with ScriptedBroker(endless) as broker:
            assert isinstance(await refused(broker), ProtocolError)

    run(scenario())


@both_loops
def test_a_plaintext_client_at_a_tls_port_is_told_so(run: Run) -> None:  # faults: S5
    async def scenario() -> None:
        async with ScriptedBroker(modern, tls=server_context()) as broker:
            error = await refused(broker)
            assert isinstance(error, TlsError | ConnectionLostError)
            assert "security_protocol to SSL" in str(error)

    run(scenario())


@both_loops
def test_a_tls_alert_is_recognised(run: Run) -> None:  # faults: S5
    async def alert(peer: Peer) -> None:
        await peer.reader.read(100)
        peer.send(b"\x15\x03\x03\x00\x02\x02\x46")
        await idle(peer)

    async def scenario() -> None:
        async with ScriptedBroker(alert) as broker:
            error = await refused(broker)
            assert isinstance(error, TlsError)
            assert "security_protocol" in str(error)

    run(scenario())


async def hang_up_at_once(peer: Peer) -> None:
    await peer.reader.read(100)


async def reset_at_once(peer: Peer) -> None:
    await peer.reader.read(100)
    peer.reset()


async def answer_http(peer: Peer) -> None:
    await peer.reader.read(100)
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await idle(peer)


@pytest.mark.parametrize("plaintext", [hang_up_at_once, reset_at_once, answer_http])
@both_loops
def test_a_tls_client_at_a_plaintext_port_is_told_so(run: Run, plaintext: Script) -> None:  # faults: S5
    async def scenario() -> None:
        async with ScriptedBroker(plaintext) as broker:
            error = await refused(broker, tls_settings())
            assert isinstance(error, TlsError)
            assert "PLAINTEXT" in str(error)

    run(scenario())


# -- TLS ----------------------------------------------------------------------------------------------------------

CA = trustme.CA()
OTHER_CA = trustme.CA()
CLIENT = CA.issue_cert("client@example.org")


def server_context(certificate: trustme.LeafCert | None = None, *, wants_client: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    (certificate or CA.issue_cert("localhost", "127.0.0.1", "*.wild.example")).configure_cert(context)
    if wants_client:
        context.verify_mode = ssl.CERT_REQUIRED
        CA.configure_trust(context)
    return context


def tls_settings(ca: trustme.CA = CA, **options: Any) -> ConnectionSettings:
    files = TlsFiles(ca_pem=ca.cert_pem.bytes().decode(), **options)
    return ConnectionSettings(ssl_context=build_context(files))


def named(settings: ConnectionSettings, broker: ScriptedBroker) -> ConnectionSettings:
    """Any name leads to the broker."""
    return ConnectionSettings(ssl_context=settings.ssl_context, resolver=at(("127.0.0.1", broker.port)))


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.0.0.1", "b1.wild.example", "b1.wild.example."])
@both_loops
def test_names_and_addresses_of_the_certificate_are_accepted(run: Run, host: str) -> None:  # faults: S2
    async def scenario() -> None:
        async with (
            ScriptedBroker(modern, tls=server_context()) as broker,
            opened(broker, named(tls_settings(), broker), host=host) as connection,
        ):
            assert connection.is_open

    run(scenario())


@pytest.mark.parametrize("host", ["other.example", "wild.example", "a.b.wild.example", "127.0.0.2", "localhost.evil"])
@both_loops
def test_a_wrong_host_name_is_refused_by_default(run: Run, host: str) -> None:  # faults: S2
    async def scenario() -> None:
        async with ScriptedBroker(modern, tls=server_context()) as broker:
            error = await refused(broker, named(tls_settings(), broker), host=host)
            assert isinstance(error, TlsError)
            assert f"not for {host}" in str(error)
            assert "ssl_check_hostname" in str(error)

    run(scenario())


@both_loops
def test_the_check_of_host_names_can_be_turned_off(run: Run) -> None:  # faults: S3
    async def scenario() -> None:
        settings = tls_settings(check_host_name=False)
        async with (
            ScriptedBroker(modern, tls=server_context()) as broker,
            opened(broker, named(settings, broker), host="other.example"),
        ):
            pass

    run(scenario())


@both_loops
def test_an_unknown_authority_is_refused_before_a_byte_of_ours_is_sent(run: Run) -> None:  # faults: S1
    seen: list[bytes] = []

    async def eavesdrop(peer: Peer) -> None:
        seen.append(await peer.reader.read(1000))

    async def scenario() -> None:
        async with ScriptedBroker(eavesdrop, tls=server_context()) as broker:
            error = await refused(broker, tls_settings(OTHER_CA))
            assert isinstance(error, TlsError)
            assert "ssl_cafile" in str(error)
            assert isinstance(error.__cause__, ssl.SSLCertVerificationError)
        assert seen in ([], [b""])

    run(scenario())


@pytest.mark.parametrize(
    ("before", "after", "words"), [(-400, -2, "expired"), (2, 400, "not valid yet")], ids=["expired", "early"]
)
@both_loops
def test_a_certificate_out_of_its_time_is_refused(run: Run, before: int, after: int, words: str) -> None:  # faults: S1
    async def scenario() -> None:
        async with ScriptedBroker(modern, tls=server_context(timed_certificate(before, after))) as broker:
            error = await refused(broker, tls_settings())
            assert isinstance(error, TlsError)
            assert words in str(error)

    run(scenario())


def timed_certificate(before_days: int, after_days: int) -> trustme.LeafCert:
    import datetime

    now = datetime.datetime.now(datetime.UTC)
    return CA.issue_cert(
        "127.0.0.1",
        not_before=now + datetime.timedelta(days=before_days),
        not_after=now + datetime.timedelta(days=after_days),
    )


@both_loops
def test_a_missing_client_certificate_is_told(run: Run) -> None:  # faults: S4
    async def scenario() -> None:
        async with ScriptedBroker(modern, tls=server_context(wants_client=True)) as broker:
            error = await refused(broker, tls_settings())
            assert "ssl_certfile" in str(error)

    run(scenario())


@both_loops
def test_a_client_certificate_is_shown(run: Run) -> None:  # faults: S4
    async def scenario() -> None:
        settings = tls_settings(
            certificate_pem="".join(pem.bytes().decode() for pem in CLIENT.cert_chain_pems),
            key_pem=Secret(CLIENT.private_key_pem.bytes().decode()),
        )
        async with ScriptedBroker(modern, tls=server_context(wants_client=True)) as broker, opened(broker, settings):
            pass

    run(scenario())


@both_loops
def test_a_tls_stream_cut_without_goodbye_is_a_loss(run: Run) -> None:  # faults: S7
    async def truncate(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        peer.send(peer.frame(request, bytes(100_000))[:-1])  # several TLS records
        await peer.writer.drain()
        peer.writer.get_extra_info("socket")
        peer.writer.transport.abort()

    async def scenario() -> None:
        async with (
            ScriptedBroker(truncate, tls=server_context()) as broker,
            opened(broker, tls_settings()) as connection,
        ):
            with pytest.raises(ConnectionLostError):
                await connection.request(MetadataRequest(), timeout_s=5.0)

    run(scenario())


@both_loops
def test_a_refused_connection_is_gone_when_its_error_is_told(run: Run) -> None:
    """A goodbye of TLS waits for the peer's; the loop may end with what failed, and the socket would be left."""
    sockets: list[Any] = []

    async def without_produce(peer: Peer) -> None:
        while True:
            request = await peer.request()
            answer = ApiVersionsResponse(api_keys=[ApiVersion(3, 0, 12), ApiVersion(18, 0, 4)])
            peer.answer(request, answer.encode(request.version))

    async def dialer(
        host: str, port: int, context: ssl.SSLContext | None, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Transport:
        connecting = asyncio.get_running_loop().create_connection
        transport, _ = await connecting(factory, host, port, ssl=context, server_hostname=host)
        sockets.append(transport.get_extra_info("socket"))
        return transport

    async def scenario() -> None:
        async with ScriptedBroker(without_produce, tls=server_context()) as broker:
            settings = ConnectionSettings(ssl_context=tls_settings().ssl_context, dialer=dialer)
            assert isinstance(await refused(broker, settings), UnsupportedVersionError)
            assert [each.fileno() for each in sockets] == [-1]

    run(scenario())


# -- a dialer of the user's ---------------------------------------------------------------------------------------


@both_loops
def test_a_dialer_connects_in_our_place(run: Run) -> None:
    async def scenario() -> None:
        async with ScriptedBroker(modern) as broker:
            dialled: list[tuple[str, int]] = []

            async def dialer(
                host: str, port: int, context: ssl.SSLContext | None, factory: Callable[[], asyncio.Protocol]
            ) -> asyncio.Transport:
                dialled.append((host, port))
                transport, _ = await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", broker.port)
                return transport

            async with opened(broker, ConnectionSettings(dialer=dialer), host="only.the.proxy.knows"):
                assert dialled == [("only.the.proxy.knows", broker.port)]

    run(scenario())


@both_loops
def test_a_dialer_cannot_downgrade_to_plaintext(run: Run) -> None:  # faults: H17
    received: list[bytes] = []

    async def eavesdrop(peer: Peer) -> None:
        received.append(await peer.reader.read(1000))

    async def scenario() -> None:
        async with ScriptedBroker(eavesdrop) as broker:

            async def dialer(
                host: str, port: int, context: ssl.SSLContext | None, factory: Callable[[], asyncio.Protocol]
            ) -> asyncio.Transport:
                transport, _ = await asyncio.get_running_loop().create_connection(factory, "127.0.0.1", broker.port)
                return transport

            settings = ConnectionSettings(ssl_context=tls_settings().ssl_context, dialer=dialer)
            error = await refused(broker, settings)
            assert isinstance(error, TlsError)
            assert "without TLS" in str(error)
            await eventually(lambda: bool(received))
            assert received == [b""]

    run(scenario())


@pytest.mark.parametrize("failure", [OSError("no route"), ssl.SSLError(1, "broken")])
@both_loops
def test_a_dialer_that_fails_is_a_typed_error(run: Run, failure: OSError) -> None:
    async def scenario() -> None:
        async def dialer(*_: object) -> asyncio.Transport:
            raise failure

        async with ScriptedBroker(modern) as broker:
            error = await refused(broker, ConnectionSettings(dialer=dialer))
            assert error.__cause__ is failure

    run(scenario())


# -- SASL ---------------------------------------------------------------------------------------------------------


def sasl_settings(
    kind: Callable[[str, Secret], Mechanism] = ScramSha256, password: str = CANARY, **options: Any
) -> ConnectionSettings:
    return ConnectionSettings(new_mechanism=lambda: kind("user", Secret(password)), **options)


def scram_broker(password: str, **options: Any) -> Script:
    async def script(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        if await serve_scram(peer, password, **options):
            await idle(peer)

    return script


@pytest.mark.parametrize(("kind", "hash_name"), [(ScramSha256, "sha256"), (ScramSha512, "sha512")])
@both_loops
def test_scram_authenticates_both_sides(run: Run, kind: type[ScramSha256], hash_name: str) -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker(scram_broker(CANARY, hash_name=hash_name)) as broker,
            opened(broker, sasl_settings(kind)) as connection,
        ):
            assert connection.session_lifetime_s == 60.0
            assert connection.expires_at is not None
            left_s = connection.expires_at - asyncio.get_running_loop().time()
            assert 55.0 < left_s < 60.0

    run(scenario())


def plain_broker(answer: SaslAuthenticateResponse, tokens: list[bytes] | None = None) -> Script:
    async def script(peer: Peer) -> None:
        await peer.negotiate()
        assert await peer.agree_on_sasl() == "PLAIN"
        token = await peer.sasl_token_only()
        if tokens is not None:
            tokens.append(token)
        peer.answer_sasl(answer)
        await idle(peer)

    return script


@both_loops
def test_plain_sends_its_token_once(run: Run) -> None:
    async def scenario() -> None:
        tokens: list[bytes] = []
        async with (
            ScriptedBroker(plain_broker(SaslAuthenticateResponse(), tokens)) as broker,
            opened(broker, sasl_settings(Plain)),
        ):
            assert tokens == [b"\0user\0" + CANARY.encode()]

    run(scenario())


@both_loops
def test_credentials_are_asked_for_on_each_dial(run: Run) -> None:  # faults: S17
    async def scenario() -> None:
        passwords = ["old", "new"]
        tokens: list[bytes] = []
        settings = ConnectionSettings(new_mechanism=lambda: Plain("user", Secret(passwords.pop(0))))
        async with ScriptedBroker(plain_broker(SaslAuthenticateResponse(), tokens)) as broker:
            for _ in range(2):
                async with opened(broker, settings):
                    pass
            assert tokens == [b"\0user\0old", b"\0user\0new"]

    run(scenario())


@pytest.mark.parametrize(
    ("lifetime_ms", "lifetime_s"), [(0, None), (-5, None), (1, 0.001), (3000, 3.0), (2**63 - 1, MAX_SESSION_LIFETIME_S)]
)
@both_loops
def test_session_lifetimes_are_clamped(run: Run, lifetime_ms: int, lifetime_s: float | None) -> None:  # faults: S16
    async def scenario() -> None:
        answer = SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)
        async with (
            ScriptedBroker(plain_broker(answer)) as broker,
            opened(broker, sasl_settings(Plain)) as connection,
        ):
            assert connection.session_lifetime_s == lifetime_s
            assert (connection.expires_at is None) == (lifetime_s is None)

    run(scenario())


@pytest.mark.parametrize("kind", [Plain, ScramSha256])
@both_loops
def test_a_wrong_password_is_an_authentication_error_and_tries_no_other_address(
    run: Run, kind: Callable[[str, Secret], Mechanism]
) -> None:  # faults: S8
    async def plain_refusal(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        await peer.sasl_token_only()
        peer.answer_sasl(SaslAuthenticateResponse(error_code=58, error_message="invalid credentials\x1b[0m"))

    async def scenario() -> None:
        script = scram_broker("another") if kind is ScramSha256 else plain_refusal
        async with ScriptedBroker(script) as broker:
            resolver = at(("127.0.0.1", broker.port), ("127.0.0.1", broker.port))
            error = await refused(broker, sasl_settings(kind, resolver=resolver), host="two.example")
            assert isinstance(error, AuthenticationError)
            assert error.code == 58
            assert "invalid credentials" in str(error)
            assert "\x1b" not in str(error)
            assert broker.connections == 1

    run(scenario())


@both_loops
def test_a_mechanism_that_is_off_names_those_that_are_offered(run: Run) -> None:  # faults: S9
    async def others(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        answer = SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "SCRAM-SHA-512\n"])
        peer.answer(request, answer.encode(request.version))

    async def scenario() -> None:
        async with ScriptedBroker(others) as broker:
            error = await refused(broker, sasl_settings())
            assert isinstance(error, AuthenticationError)
            assert "GSSAPI, SCRAM-SHA-512" in str(error)
            assert "\n" not in str(error)

    run(scenario())


@pytest.mark.parametrize(("code", "words"), [(34, "does not want SASL"), (999, "UNKNOWN_CODE_999")])
@both_loops
def test_other_refusals_of_the_sasl_handshake_are_told(run: Run, code: int, words: str) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.negotiate()
        request = await peer.request()
        peer.answer(request, SaslHandshakeResponse(error_code=code).encode(request.version))

    async def scenario() -> None:
        async with ScriptedBroker(refuse) as broker:
            error = await refused(broker, sasl_settings())
            assert isinstance(error, AuthenticationError)
            assert words in str(error)

    run(scenario())


@pytest.mark.parametrize(
    "final",
    [b"", b"v=", b"v=AAAA", b"e=other-error", b"x=1", b"\xff\xfe", b"v=AAAA,v=AAAA"],
)
@both_loops
def test_a_broker_that_does_not_know_the_password_is_refused(run: Run, final: bytes) -> None:  # faults: S10
    async def impostor(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        first = (await peer.sasl_token_only()).decode()
        nonce = first.partition(",r=")[2]
        peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=f"r={nonce}x,s=c2FsdA==,i=4096".encode()))
        await peer.sasl_token_only()
        peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=final))
        assert await peer.hung_up()

    async def scenario() -> None:
        async with ScriptedBroker(impostor) as broker:
            assert isinstance(await refused(broker, sasl_settings()), AuthenticationError)

    run(scenario())


@both_loops
def test_a_broker_with_another_password_is_refused(run: Run) -> None:  # faults: S10
    async def scenario() -> None:
        async with ScriptedBroker(scram_broker("another", lies=True)) as broker:
            error = await refused(broker, sasl_settings())
            assert isinstance(error, AuthenticationError)
            assert "wrong signature" in str(error)

    run(scenario())


@both_loops
def test_absurd_iterations_are_refused_at_once(run: Run) -> None:  # faults: S12
    async def scenario() -> None:
        async def greedy(peer: Peer) -> None:
            await peer.negotiate()
            await peer.agree_on_sasl()
            nonce = (await peer.sasl_token_only()).decode().partition(",r=")[2]
            peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=f"r={nonce}x,s=c2FsdA==,i=2147483647".encode()))
            assert await peer.hung_up()

        async with ScriptedBroker(greedy) as broker:
            error = await refused(broker, sasl_settings(), timeout_s=2.0)
            assert isinstance(error, AuthenticationError)
            assert "2147483647 iterations" in str(error)

    run(scenario())


@both_loops
def test_hashing_does_not_hold_the_loop(run: Run) -> None:  # faults: S12
    async def scenario() -> None:
        ticks = 0
        async with ScriptedBroker(scram_broker(CANARY, iterations=200_000)) as broker:

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0.001)
                    ticks += 1

            ticking = asyncio.ensure_future(tick())
            work = ScramSha256("user", Secret(CANARY))
            del work
            before = ticks
            hung_up = asyncio.ensure_future(
                open_connection(Endpoint(host="127.0.0.1", port=broker.port), sasl_settings(), timeout_s=0.05)
            )
            with pytest.raises(ConnectionSetupTimeoutError):  # the thread hashes on; nobody waits for it
                await hung_up
            assert ticks > before  # a loop that hashes itself does not tick before its timeout
            ticking.cancel()

    run(scenario())


@both_loops
def test_a_broker_that_hangs_up_during_sasl_may_be_tried_again(run: Run) -> None:
    async def restart(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        await peer.request()

    async def restart_earlier(peer: Peer) -> None:
        await peer.negotiate()
        await peer.request()

    async def scenario() -> None:
        async with ScriptedBroker(restart, restart_earlier) as broker:
            for _ in range(2):
                error = await refused(broker, sasl_settings())
                assert isinstance(error, ConnectionLostError)
                assert error.retriable
                assert "hung up" in str(error)

    run(scenario())


@pytest.mark.parametrize("rounds", [0, 1])
@both_loops
def test_a_sasl_answer_that_cannot_be_read_is_a_protocol_error(run: Run, rounds: int) -> None:  # faults: H4, H22
    async def rubbish(peer: Peer) -> None:
        await peer.negotiate()
        if rounds:
            await peer.agree_on_sasl()
        peer.answer(await peer.request(), b"\x00\x00\x7f\xff\xff\xff")
        await idle(peer)

    async def scenario() -> None:
        async with ScriptedBroker(rubbish) as broker:
            assert isinstance(await refused(broker, sasl_settings()), ProtocolError)

    run(scenario())


@both_loops
def test_a_broker_without_sasl_requests_is_unsupported(run: Run) -> None:
    async def ancient(peer: Peer) -> None:
        request = await peer.request()
        answer = api_versions()
        answer.api_keys = [key for key in answer.api_keys if key.api_key not in (17, 36)]
        peer.answer(request, answer.encode(request.version))
        await idle(peer)

    async def scenario() -> None:
        async with ScriptedBroker(ancient) as broker:
            assert isinstance(await refused(broker, sasl_settings()), UnsupportedVersionError)

    run(scenario())


@both_loops
def test_an_endless_sasl_frame_is_refused_by_its_length(run: Run) -> None:  # faults: H21
    async def endless(peer: Peer) -> None:
        await peer.negotiate()
        await peer.agree_on_sasl()
        await peer.request()
        peer.send(struct.pack(">i", 100_000_000))
        with contextlib.suppress(ConnectionError):
            while True:
                peer.send(bytes(65536))
                await peer.writer.drain()

    async def scenario() -> None:
        async with ScriptedBroker(endless) as broker:
            assert isinstance(await refused(broker, sasl_settings()), ProtocolError)

    run(scenario())


@both_loops
def test_credentials_are_never_sent_to_a_broker_tls_does_not_trust(run: Run) -> None:  # faults: H17
    received: list[bytes] = []

    async def eavesdrop(peer: Peer) -> None:
        received.append(await peer.reader.read(10_000))

    async def scenario() -> None:
        async with ScriptedBroker(eavesdrop, tls=server_context()) as broker:
            settings = sasl_settings(Plain, ssl_context=tls_settings(OTHER_CA).ssl_context)
            assert isinstance(await refused(broker, settings), TlsError)
        assert received in ([], [b""])

    run(scenario())


# -- secrets ------------------------------------------------------------------------------------------------------


def shown(error: BaseException | None) -> str:
    """All that a traceback with locals would print of our own code."""
    text = ""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        text += f"{error!r} {error}"
        told = traceback.TracebackException.from_exception(error, capture_locals=True)
        for frame in told.stack:
            if "tests/unit" not in frame.filename:
                text += f"\n{frame.filename}:{frame.name} {frame.locals}"
        error = error.__cause__ or error.__context__
    return text


async def refuse_token(peer: Peer) -> None:
    await peer.negotiate()
    await peer.agree_on_sasl()
    await peer.sasl_token_only()
    peer.answer_sasl(SaslAuthenticateResponse(error_code=58, error_message="no"))


async def hang_up_on_token(peer: Peer) -> None:
    await peer.negotiate()
    await peer.agree_on_sasl()
    await peer.sasl_token_only()


async def reset_on_token(peer: Peer) -> None:
    await hang_up_on_token(peer)
    peer.reset()


async def silent_on_token(peer: Peer) -> None:
    await hang_up_on_token(peer)
    await idle(peer)


async def rubbish_on_token(peer: Peer) -> None:
    await hang_up_on_token(peer)
    peer.send(b"\xff" * 100)
    await idle(peer)


async def second_round(peer: Peer) -> None:
    await peer.negotiate()
    await peer.agree_on_sasl()
    await peer.sasl_token_only()
    peer.answer_sasl(SaslAuthenticateResponse(auth_bytes=b"more"))
    await idle(peer)


@pytest.mark.parametrize("kind", [Plain, ScramSha256])
@pytest.mark.parametrize(
    "script", [refuse_token, hang_up_on_token, reset_on_token, silent_on_token, rubbish_on_token, second_round]
)
@both_loops
def test_no_failure_shows_a_secret(
    run: Run, kind: Callable[[str, Secret], Mechanism], script: Script, caplog: pytest.LogCaptureFixture
) -> None:  # faults: S18
    caplog.set_level("DEBUG")

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker:
            error = await refused(broker, sasl_settings(kind), timeout_s=0.3)
            text = shown(error) + caplog.text
            assert "handshake" in text  # the net is not empty
            assert CANARY not in text
        gc.collect()

    run(scenario())


def test_nothing_of_a_connection_shows_a_secret() -> None:  # faults: S18
    settings = sasl_settings(Plain)
    assert CANARY not in repr(settings)
