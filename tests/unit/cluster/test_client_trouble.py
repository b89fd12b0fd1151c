"""A client when brokers lie, leave, or are another cluster's."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from both_loops import Run, both_loops
from client_rig import rig
from fake_cluster import FakeBroker, FakeCluster, usual
from scripted_broker import eventually

from aiokprod.errors import (
    AuthenticationError,
    BootstrapError,
    ClusterIdMismatchError,
    ConnectionLostError,
    RequestTimeoutError,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse


@both_loops
@pytest.mark.parametrize("trouble", ["silence", "hang up", "error", "no brokers"])
def test_when_one_broker_fails_to_tell_another_is_asked(run: Run, trouble: str) -> None:  # faults: T17, H9
    async def scenario() -> None:
        async with rig(2, request_timeout_ms=100, delivery_timeout_ms=1000) as r:

            def fails(broker: FakeBroker, request: MetadataRequest) -> Any:
                match trouble:
                    case "silence":
                        return None
                    case "hang up":
                        return ConnectionError()
                    case "error":
                        return MetadataResponse(error_code=-1)
                    case _:
                        return MetadataResponse(cluster_id="ours")

            good, bad = r.cluster.brokers[1], r.cluster.brokers[2]
            for turn in range(3):
                good, bad = bad, good
                bad.answers[MetadataRequest] = fails
                good.answers.pop(MetadataRequest, None)
                r.cluster.topic(f"t{turn}", 1)
                await r.known(f"t{turn}")
            assert r.metrics.metadata_refreshes.value >= 4

    run(scenario())


@both_loops
def test_when_every_known_broker_is_gone_the_bootstrap_servers_are_asked(run: Run) -> None:  # faults: T16
    async def scenario() -> None:
        cluster = FakeCluster(2)
        front = FakeBroker(cluster, 99)  # a bootstrap address that is no broker of its own
        await front.start()
        async with rig(cluster=cluster, bootstrap_servers=[f"127.0.0.1:{front.port}"]) as r:
            assert set(r.client.snapshot.brokers) == {1, 2}
            await r.client.refreshed(5.0)
            await front.hang_up()
            for node_id in (1, 2):
                await r.cluster.remove(node_id)
            for node_id in (21, 22):
                await r.cluster.add(node_id)
            await r.client.refreshed(5.0)
            assert set(r.client.snapshot.brokers) == {21, 22}
            r.client.dial(21)
            await eventually(lambda: bool(r.listener.ready))
            await front.stop()

    run(scenario())


@both_loops
def test_a_broker_may_send_us_back_to_the_bootstrap_servers(run: Run) -> None:  # faults: T16 (KIP-1102)
    async def scenario() -> None:
        cluster = FakeCluster(2)
        front = FakeBroker(cluster, 99)
        await front.start()
        async with rig(cluster=cluster, bootstrap_servers=[f"127.0.0.1:{front.port}"]) as r:
            await r.client.refreshed(5.0)
            asked = len(front.asked(MetadataRequest))
            once = [MetadataResponse(error_code=129)]
            for broker in cluster.brokers.values():
                broker.answers[MetadataRequest] = lambda broker, request: once.pop() if once else usual(broker, request)
            await r.client.refreshed(5.0)
            assert not once
            assert len(front.asked(MetadataRequest)) == asked + 1
            await r.client.refreshed(5.0)
            assert len(front.asked(MetadataRequest)) == asked + 1
            await front.stop()

    run(scenario())


@both_loops
def test_another_cluster_behind_the_same_addresses_is_refused(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    # faults: T18
    async def scenario() -> None:
        async with rig(2) as r:
            r.cluster.topic("t", 1)
            await r.known("t")
            known = r.client.snapshot
            for broker in r.cluster.brokers.values():
                await broker.hang_up()
            r.cluster.cluster_id = "theirs"
            r.cluster.topic("t", 2, 2, 2, epoch=99)
            cause: BaseException | None = None
            while not isinstance(
                cause, ClusterIdMismatchError
            ):  # on a busy machine the first wait may end before it is known
                with pytest.raises(RequestTimeoutError) as caught:
                    await r.client.refreshed(0.3)
                cause = caught.value.__cause__
            assert r.client.snapshot is known
            r.client.dial(1)
            await eventually(lambda: bool(r.listener.failed))
            assert isinstance(r.listener.failed[0][1], ClusterIdMismatchError)
            assert r.listener.ready == []
            code, cause = r.client.last_error("t") or (None, None)
            assert (code, type(cause)) == (0, ClusterIdMismatchError)
            r.cluster.cluster_id = "ours"
            await r.client.refreshed(5.0)

    run(scenario())
    assert any("theirs" in record.getMessage() and "ours" in record.getMessage() for record in caplog.records)


@both_loops
def test_all_names_that_cannot_be_resolved_are_told(run: Run) -> None:  # faults: N17
    async def scenario() -> None:
        async with rig(1, start=False, bootstrap_servers=["no-such-host.invalid:9092"]) as r:
            with pytest.raises(BootstrapError, match=r"no-such-host\.invalid:9092: .*resol"):
                await r.client.start(2.0)

    run(scenario())


@both_loops
def test_a_name_whose_first_address_is_dead_is_reached_at_the_next(run: Run) -> None:  # faults: N17
    async def scenario() -> None:
        async with rig(1, start=False) as r:
            r.cluster.announced[1] = ("localhost", r.cluster.brokers[1].port)  # ::1 comes first where there is IPv6
            await r.client.start(5.0)
            r.client.dial(1)
            await eventually(lambda: bool(r.listener.ready))

    run(scenario())


@both_loops
def test_a_cancel_of_all_tasks_is_told(run: Run) -> None:  # faults: L14
    async def scenario() -> None:
        async with rig(1) as r:
            for task in asyncio.all_tasks():
                if task.get_name() == "metadata":
                    task.cancel()
            await eventually(lambda: bool(r.listener.crashes))
            assert "cancelled from outside" in str(r.listener.crashes.pop())

    run(scenario())


@both_loops
def test_without_metadata_for_long_it_begins_again(run: Run) -> None:  # faults: T16 (KIP-1102)
    async def scenario() -> None:
        cluster = FakeCluster(2)
        front = FakeBroker(cluster, 99)
        await front.start()
        async with rig(
            cluster=cluster,
            bootstrap_servers=[f"127.0.0.1:{front.port}"],
            metadata_recovery_rebootstrap_trigger_ms=200,
        ) as r:
            await r.client.refreshed(5.0)
            for broker in cluster.brokers.values():  # they are there, and say nothing of use
                broker.answers[MetadataRequest] = lambda broker, request: MetadataResponse(error_code=-1)
            asked = len(front.asked(MetadataRequest))
            began = time.monotonic()
            await r.client.refreshed(5.0)
            assert time.monotonic() - began >= 0.2
            assert len(front.asked(MetadataRequest)) == asked + 1
            await front.stop()

    run(scenario())


@both_loops
def test_an_answer_that_cannot_be_read_closes_the_connection(run: Run) -> None:  # faults: H22
    async def scenario() -> None:
        async with rig(1) as r:
            broker = r.cluster.brokers[1]
            once = [Garbage()]
            broker.answers[MetadataRequest] = lambda broker, request: once.pop() if once else usual(broker, request)
            dials = broker.dials
            await r.client.refreshed(5.0)
            assert broker.dials > dials

    run(scenario())


class Garbage:
    def encode(self, version: int) -> bytes:
        return b"\x7f" * 40


@both_loops
@pytest.mark.parametrize("refused", [1, 2])
def test_wrong_credentials_end_the_start_at_once(run: Run, refused: int) -> None:  # faults: S8
    async def scenario() -> None:
        dialled: list[int] = []

        async def dialer(host: str, port: int, context: object, factory: object) -> asyncio.Transport:
            dialled.append(port)
            raise AuthenticationError("wrong password") if port <= refused else ConnectionRefusedError("refused")

        async with rig(1, start=False, bootstrap_servers=["a:2", "b:1"], dialer=dialer) as r:
            began = time.monotonic()
            with pytest.raises(AuthenticationError, match="wrong password"):
                await r.client.start(200.0)
            assert time.monotonic() - began < 60
            assert len(dialled) <= 2

    run(scenario())


@both_loops
def test_closing_ends_a_start_that_waits(run: Run) -> None:  # faults: L10
    async def scenario() -> None:
        async with rig(1, start=False) as r:
            r.cluster.brokers[1].answers[MetadataRequest] = lambda broker, request: None
            starting = asyncio.create_task(r.client.start(None))
            await eventually(lambda: bool(r.metadata_requests))
            await r.client.close()
            with pytest.raises(ConnectionLostError, match="closed"):
                await starting

    run(scenario())
