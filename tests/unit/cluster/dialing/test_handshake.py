"""From an endpoint to an open connection, against brokers, liars and others on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from both_loops import Run, both_loops
from handshakes import at, modern, opened, refused, server_context, tls_settings
from scripted_broker import Peer, Script, ScriptedBroker, api_versions, idle

from aiokprod.cluster.dialing.connection_settings import ConnectionSettings
from aiokprod.cluster.dialing.dns import Address
from aiokprod.cluster.dialing.handshake import Endpoint, open_connection
from aiokprod.errors import (
    ConnectionLostError,
    ConnectionSetupTimeoutError,
    ProtocolError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse


@both_loops
def test_a_current_broker_is_connected_to(run: Run) -> None:
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
        settings = ConnectionSettings(send_buffer_bytes=50_000, receive_buffer_bytes=60_000, keepalive_s=60.0)
        async with ScriptedBroker(modern) as broker, opened(broker, settings) as connection:
            sock = cast(asyncio.Transport, connection._transport).get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert (
                sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            )  # the first probe came after two hours
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 10
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 6
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000  # Linux doubles it
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000

    run(scenario())


@both_loops
def test_no_listener_is_a_typed_error_with_host_port_and_cause(run: Run) -> None:  # faults: N16
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
def test_an_address_this_machine_cannot_dial_leaves_the_next_to_be_tried(run: Run) -> None:  # faults: N21
    """As an AAAA record on a kernel without IPv6."""

    async def scenario() -> None:
        async with ScriptedBroker(modern) as alive:

            async def resolver(host: str, port: int) -> Sequence[Address]:
                return [
                    Address(socket.AF_INET6, ("127.0.0.1", port, 0, 0)),
                    Address(socket.AF_INET, ("127.0.0.1", alive.port)),
                ]

            async with opened(alive, ConnectionSettings(resolver=resolver), host="two.example"):
                pass

    run(scenario())


@both_loops
@pytest.mark.parametrize("failure", [RuntimeError("can't start new thread"), ValueError("bad\nlabel"), OSError(24, "")])
def test_a_resolver_this_machine_has_no_means_for_fails_the_dial(run: Run, failure: Exception) -> None:
    # faults: N21
    async def scenario() -> None:
        async def resolver(host: str, port: int) -> Sequence[Address]:
            raise failure

        with pytest.raises(ConnectionLostError, match=r"a\.example:1: the name cannot be resolved") as raised:
            await open_connection(Endpoint(host="a.example", port=1), ConnectionSettings(resolver=resolver))
        assert "\n" not in str(raised.value)

    run(scenario())


@both_loops
def test_an_address_that_swallows_everything_does_not_use_up_the_time_of_the_others(run: Run) -> None:  # faults: B16
    async def scenario() -> None:
        async with ScriptedBroker(idle) as silent, ScriptedBroker(modern) as alive:
            settings = ConnectionSettings(resolver=at(("127.0.0.1", silent.port), ("127.0.0.1", alive.port)))
            async with opened(alive, settings, host="two.example", timeout_s=2.0):
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
def test_an_address_for_which_no_time_is_left_is_told_as_that(run: Run) -> None:
    async def blocking(peer: Peer) -> None:
        await peer.request()
        time.sleep(0.3)  # the loop stands still

    async def scenario() -> None:
        async with ScriptedBroker(blocking) as one, ScriptedBroker(idle) as two:
            settings = ConnectionSettings(resolver=at(("127.0.0.1", one.port), ("127.0.0.1", two.port)))
            error = await refused(two, settings, host="two.example", timeout_s=0.2)
            assert isinstance(error, ConnectionSetupTimeoutError)
            assert "did not end within 0.0 s" in str(error)

    run(scenario())


@both_loops
def test_the_name_is_resolved_again_on_each_dial(run: Run) -> None:  # faults: N17
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
            await asyncio.Event().wait()
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
            error = await refused(broker, timeout_s=1.0)  # enough to connect, also on a slow machine
            assert isinstance(error, ConnectionSetupTimeoutError)
            assert isinstance(error, TimeoutError)
            # what connecting has left of the time
            assert re.search(r"ApiVersions did not end within (0\.[1-9]|1\.0) s", str(error))

    run(scenario())


@both_loops
def test_cancelling_leaves_no_socket_behind(run: Run) -> None:  # faults: L19
    asked, ended = asyncio.Event(), asyncio.Event()

    async def watch(peer: Peer) -> None:
        await peer.request()
        asked.set()
        assert await peer.hung_up()
        ended.set()

    async def scenario() -> None:
        async with ScriptedBroker(watch) as broker:
            dialling = asyncio.ensure_future(
                open_connection(Endpoint(host="127.0.0.1", port=broker.port), ConnectionSettings())
            )
            await asked.wait()
            dialling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await dialling
            await asyncio.wait_for(ended.wait(), 60)

    run(scenario())


def older_broker(layout: Callable[[Peer, Any], bytes], highest: int) -> Script:
    """Return a script that refuses ApiVersions above `highest` in its own layout, then answers."""

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


@pytest.mark.parametrize(
    ("offered", "named"),
    [
        ([ApiVersion(3, 0, 12)], "API 0"),
        ([ApiVersion(0, 3, 9), ApiVersion(3, 0, 3)], "API 3"),
        ([ApiVersion(1, 4, 18), ApiVersion(62, 0, 4)], "a listener of a KRaft controller, which takes no records"),
    ],
    ids=["no Produce", "Metadata without its version 4", "a controller"],
)
@both_loops
def test_a_broker_without_what_a_producer_needs_is_unsupported(
    run: Run, offered: list[ApiVersion], named: str
) -> None:  # faults: H15
    async def controller(peer: Peer) -> None:
        while True:
            request = await peer.request()
            answer = ApiVersionsResponse(api_keys=[*offered, ApiVersion(18, 0, 4)])
            peer.answer(request, answer.encode(request.version))

    async def scenario() -> None:
        async with ScriptedBroker(controller) as broker:
            error = await refused(broker)
            assert isinstance(error, UnsupportedVersionError)
            assert named in str(error)

    run(scenario())


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


async def idle_no_more(peer: Peer) -> None:
    """Hang up before anything was read."""


@both_loops
def test_a_tls_listener_is_suspected_only_where_no_broker_has_answered(run: Run) -> None:
    async def scenario() -> None:
        scripts = [hang_up_at_once, modern, hang_up_at_once]

        async def next_one(peer: Peer) -> None:
            await scripts.pop(0)(peer)

        settings = ConnectionSettings()
        async with ScriptedBroker(next_one) as broker:
            assert "it may be a TLS listener" in str(await refused(broker, settings))
            async with opened(broker, settings):
                pass
            error = str(await refused(broker, settings))
            assert "hung up on the first request (it has answered before" in error
            assert "TLS" not in error

    run(scenario())


@pytest.mark.parametrize("hang_up", [hang_up_at_once, idle_no_more])
@both_loops
def test_a_tls_listener_of_one_broker_is_suspected_where_others_have_answered(run: Run, hang_up: Script) -> None:
    async def scenario() -> None:
        settings = ConnectionSettings()
        async with ScriptedBroker(modern) as first, ScriptedBroker(hang_up) as other:
            async with opened(first, settings):
                pass
            error = str(await refused(other, settings))
            assert "it may be a TLS listener: set security_protocol to SSL or SASL_SSL" in error

    run(scenario())


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
            assert "TLS listener" in str(error)

    run(scenario())
