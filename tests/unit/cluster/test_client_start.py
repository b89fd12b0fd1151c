"""How a client starts: in the foreground, in the background, and when no broker is there."""

from __future__ import annotations

import asyncio
import time
import traceback

import pytest
from both_loops import Run, both_loops
from client_rig import rig, unused_port
from listener import Listener
from scripted_broker import eventually, turns

from aiokprod.cluster.metadata.snapshot import LeaderHint
from aiokprod.errors import (
    BootstrapError,
    ConnectionLostError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.metadata import MetadataRequest


@both_loops
def test_start_learns_the_brokers(run: Run) -> None:
    async def scenario() -> None:
        async with rig() as r:
            snapshot = r.client.snapshot
            assert snapshot.cluster_id == "ours"
            assert {node.id: (node.host, node.port) for node in snapshot.brokers.values()} == r.cluster.announced
            assert len(r.listener.changes) == 1
            assert [len(request.topics) for request in r.metadata_requests] == [0]
            assert r.metadata_requests[0].allow_auto_topic_creation
            assert 0 <= (r.client.metadata_age_s or 0) < 5

    run(scenario())


@both_loops
def test_start_with_no_broker_there_names_each_address_and_its_cause(run: Run) -> None:  # faults: T15, L19, N16
    async def scenario() -> None:
        ports = [unused_port(), unused_port()]
        async with rig(1, start=False, bootstrap_servers=[f"127.0.0.1:{port}" for port in ports]) as r:
            began = time.monotonic()
            with pytest.raises(BootstrapError) as caught:
                await r.client.start(1.5)
            assert 1.4 < time.monotonic() - began < 20
            assert [(host, port) for host, port, _ in caught.value.tried] == [("127.0.0.1", port) for port in ports]
            for port in ports:
                assert f"127.0.0.1:{port}: " in str(caught.value)
            assert "onnect" in str(caught.value)
            printed = "".join(traceback.format_exception(caught.value))
            assert printed.count("Traceback") == 2 and "ConnectionRefusedError" in printed, printed
            assert len(asyncio.all_tasks()) == 1

    run(scenario())


@both_loops
def test_a_start_that_failed_can_be_repeated(run: Run) -> None:  # faults: T15
    async def scenario() -> None:
        async with rig(1, start=False) as r:
            broker = r.cluster.brokers[1]
            await broker.stop()
            with pytest.raises(BootstrapError):
                await r.client.start(0.1)
            await broker.start()
            await r.client.start(5.0)
            assert r.client.snapshot.brokers

    run(scenario())


@both_loops
def test_start_waits_for_a_cluster_that_comes_up(run: Run) -> None:
    async def scenario() -> None:
        async with rig(1, start=False) as r:
            broker = r.cluster.brokers[1]
            await broker.stop()
            starting = asyncio.create_task(r.client.start(5.0))
            await turns()
            assert not starting.done()
            await broker.start()
            await starting

    run(scenario())


@both_loops
def test_a_cancelled_start_leaves_nothing_behind(run: Run) -> None:  # faults: L19
    async def scenario() -> None:
        async with rig(2, start=False) as r:
            for broker in r.cluster.brokers.values():
                broker.answers[MetadataRequest] = lambda broker, request: None
            starting = asyncio.create_task(r.client.start(None))
            await eventually(lambda: bool(r.metadata_requests))
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            await eventually(lambda: all(broker.connections == 0 for broker in r.cluster.brokers.values()))

    run(scenario())


@both_loops
def test_a_bootstrap_server_that_is_silent_does_not_hold_up_the_start(run: Run) -> None:  # faults: B16
    async def scenario() -> None:
        async with rig(2, start=False) as r:
            r.cluster.brokers[1].answers[ApiVersionsRequest] = lambda broker, request: None
            await r.client.start(3.0)
            assert r.client.snapshot.brokers

    run(scenario())


@both_loops
@pytest.mark.parametrize(
    "keys", [[], [ApiVersion(3, 5, 2)], [ApiVersion(18, 0, 3)]], ids=["none", "min>max", "no Metadata"]
)
def test_brokers_without_what_we_need_end_the_start_at_once(run: Run, keys: list[ApiVersion]) -> None:  # faults: H15
    async def scenario() -> None:
        async with rig(2, start=False) as r:
            for broker in r.cluster.brokers.values():
                broker.answers[ApiVersionsRequest] = lambda broker, request: ApiVersionsResponse(api_keys=keys)
            began = time.monotonic()
            with pytest.raises(UnsupportedVersionError):
                await r.client.start(200.0)
            assert time.monotonic() - began < 60

    run(scenario())


@both_loops
def test_plaintext_brokers_end_the_start_of_a_tls_client_at_once(run: Run) -> None:  # faults: S1, S5
    async def scenario() -> None:
        async with rig(2, start=False, security_protocol="SSL") as r:
            for broker in r.cluster.brokers.values():  # hang up on whatever comes
                await broker.stop()

            async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                writer.close()

            servers = [Listener(hang_up) for _ in r.cluster.brokers]
            for server, broker in zip(servers, r.cluster.brokers.values(), strict=True):
                await server.start(broker.port)
            began = time.monotonic()
            with pytest.raises(TlsError):
                await r.client.start(200.0)
            assert time.monotonic() - began < 60
            for server in servers:
                await server.stop()

    run(scenario())


@both_loops
def test_a_start_in_the_background_connects_when_the_cluster_comes_up(run: Run) -> None:  # faults: N16
    async def scenario() -> None:
        async with rig(1, start=False) as r:
            broker = r.cluster.brokers[1]
            await broker.stop()
            r.client.start_in_background()
            r.client.want("t")
            await eventually(lambda: r.client.last_error("t") is not None)
            code, cause = r.client.last_error("t") or (None, None)
            assert code == 0
            assert isinstance(cause, BootstrapError)
            r.cluster.topic("t", 1)
            await broker.start()
            await eventually(lambda: r.client.topic("t") is not None)

    run(scenario())


@both_loops
def test_a_start_in_the_background_dials_at_most_five_times_a_second(run: Run) -> None:  # faults: N16
    async def scenario() -> None:
        async with rig(1, start=False) as r:
            broker = r.cluster.brokers[1]
            broker.answers[ApiVersionsRequest] = lambda broker, request: ConnectionError()
            loop = asyncio.get_running_loop()
            began = loop.time()
            r.client.start_in_background()
            await eventually(lambda: broker.dials == 6, within_s=20.0)
            assert loop.time() - began > 0.5

    run(scenario())


@both_loops
def test_close_ends_a_start_in_the_background_and_is_idempotent(run: Run) -> None:  # faults: L10
    async def scenario() -> None:
        async with rig(1, start=False) as r:
            r.client.start_in_background()
            await asyncio.gather(r.client.close(), r.client.close())
            await r.client.close()
            with pytest.raises(ConnectionLostError):
                await r.client.request(MetadataRequest(), timeout_s=1)
            with pytest.raises(ConnectionLostError):
                await r.client.refreshed(1)
            assert r.client.topic("t") is None
            assert r.client.last_error("t") is None
            assert r.client.produce_connection(1) is None
            r.client.want("t")
            r.client.refresh("why")
            r.client.dial(1)
            r.client.hint_leaders([LeaderHint("t", 0, 1, 1, None)])

    run(scenario())
