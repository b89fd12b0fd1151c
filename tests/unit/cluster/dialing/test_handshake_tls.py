"""The handshake over TLS, and through a dialer of the user's."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import random
import socket
import ssl
import threading
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trustme
from both_loops import Run, both_loops
from connected import Recorder, send
from handshakes import CA, OTHER_CA, at, modern, opened, refused, server_context, tls_settings
from scripted_broker import Peer, ScriptedBroker, eventually, idle

from aiokprod.cluster.connection.connection import READ_BYTES
from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.dialing.handshake import Endpoint, open_connection
from aiokprod.config import Secret
from aiokprod.errors import (
    ConnectionLostError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from aiokprod.wire.messages.metadata import MetadataRequest

CLIENT = CA.issue_cert("client@example.org")


def named(settings: ConnectionSettings, broker: ScriptedBroker) -> ConnectionSettings:
    """Return settings whose resolver leads every name to the broker."""
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


@both_loops
def test_answers_of_all_sizes_come_through(run: Run) -> None:
    """Above and below what is read at once: a TLS layer fills our buffer several times within one call of the loop."""
    sizes = [0, 1, 16_384, *(READ_BYTES + more for more in range(-12, 3)), 3 * READ_BYTES + 7, 1_000_000]

    async def echoes(peer: Peer) -> None:
        await peer.negotiate()
        for _ in sizes:
            request = await peer.request()
            peer.answer(request, bytes(request.body))
        await idle(peer)

    async def scenario() -> None:
        recorder = Recorder()
        async with (
            ScriptedBroker(echoes, tls=server_context()) as broker,
            opened(broker, named(tls_settings(), broker)) as connection,
        ):
            connection.listener = recorder
            bodies = [random.Random(size).randbytes(size) for size in sizes]
            for token, body in enumerate(bodies):
                send(connection, token, body)
            await eventually(lambda: len(recorder.events) == len(sizes))
            assert recorder.events == [("answered", token, body) for token, body in enumerate(bodies)]

    run(scenario())


@pytest.mark.parametrize(("count", "size"), [(1, 150_000), (3, 60_000), (4, 62_000)])
@both_loops
def test_answers_that_came_before_the_end_are_read_by_a_loop_that_was_busy(run: Run, count: int, size: int) -> None:
    """The TLS layers of both loops read once more at the end of the stream, as much as our buffer takes."""
    ports: queue.Queue[int] = queue.Queue()
    is_busy, has_ended, is_over = threading.Event(), threading.Event(), threading.Event()

    async def answers_and_ends(peer: Peer) -> None:
        await peer.negotiate()
        requests = [await peer.request() for _ in range(count)]
        await asyncio.to_thread(is_busy.wait)
        for request in requests:
            peer.answer(request, bytes(size))
        transport: Any = peer.writer.transport
        await eventually(lambda: not transport.get_write_buffer_size())  # the client's socket has all of it
        with contextlib.suppress(ssl.SSLError):
            transport._ssl_protocol._sslobj.unwrap()
        transport._ssl_protocol._process_outgoing()
        with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as end:
            end.shutdown(socket.SHUT_WR)
        has_ended.set()
        await asyncio.to_thread(is_over.wait)

    async def serve() -> None:
        async with ScriptedBroker(answers_and_ends, tls=server_context()) as broker:
            ports.put(broker.port)
            await asyncio.to_thread(is_over.wait)

    async def scenario() -> None:
        recorder = Recorder()
        host, port = "127.0.0.1", await asyncio.to_thread(ports.get)
        settings = replace(tls_settings(), receive_buffer_bytes=1 << 20, resolver=at((host, port)))
        connection = await open_connection(Endpoint(host="localhost", port=port), settings, timeout_s=5.0)
        connection.listener = recorder
        for token in range(count):
            send(connection, token, b"?")
        is_busy.set()
        assert has_ended.wait(30)  # the loop is busy
        await eventually(lambda: not connection.is_open)
        await connection.wait_closed()
        assert recorder.answers == list(range(count))

    def serve_in_thread() -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # its TLS layer is taken apart above
            runner.run(serve())

    server = threading.Thread(target=serve_in_thread)
    server.start()
    try:
        run(scenario())
    finally:
        is_busy.set()
        is_over.set()
        server.join()


@pytest.mark.parametrize("host", ["other.example", "wild.example", "a.b.wild.example", "127.0.0.2", "localhost.evil"])
@both_loops
def test_a_wrong_host_name_is_refused_by_default(run: Run, host: str) -> None:  # faults: S2
    async def scenario() -> None:
        async with ScriptedBroker(modern, tls=server_context()) as broker:
            error = await refused(broker, named(tls_settings(), broker), host=host)
            assert isinstance(error, TlsError)
            assert f"not for {host}" in str(error)
            assert "ssl_check_hostname" not in str(error)

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


class AlertingServer:
    """One connection, in a thread: unlike asyncio's transports, a blocking TLS server says in an alert what it refuses."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> AlertingServer:
        self._thread.start()
        return self

    def _serve(self) -> None:
        accepted, _ = self._listener.accept()
        accepted.settimeout(5.0)
        try:
            with self._context.wrap_socket(accepted, server_side=True) as secured:
                secured.recv(1000)
        except OSError:
            with contextlib.suppress(OSError):
                while accepted.recv(1000):
                    pass
        accepted.close()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()


def of_version(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the versions we want to be refused
        context.minimum_version = version
        context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


TOO_OLD = of_version(server_context(), ssl.TLSVersion.TLSv1_1)
WANTING = of_version(server_context(wants_client=True), ssl.TLSVersion.TLSv1_2)
WANTING_1_3 = server_context(wants_client=True)


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (TOO_OLD, ("no common TLS version", "ssl.enabled.protocols")),
        (WANTING, ("client certificate", "ssl_certfile")),
        (WANTING_1_3, ("client certificate", "ssl_certfile")),
    ],
    ids=["1.1 only", "certificate, 1.2", "certificate, 1.3"],
)
@both_loops
def test_what_a_broker_says_in_an_alert_is_told(run: Run, context: ssl.SSLContext, words: tuple[str, ...]) -> None:
    # faults: S4
    async def scenario() -> None:
        with AlertingServer(context) as broker:
            with pytest.raises((TlsError, ConnectionLostError)) as raised:
                await open_connection(Endpoint(host="127.0.0.1", port=broker.port), tls_settings(), timeout_s=5.0)
            assert all(word in str(raised.value) for word in words)
            assert "PLAINTEXT" not in str(raised.value)

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
