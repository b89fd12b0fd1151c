"""The client whole, on sockets of this machine and on both loops; time is real, so backoffs are short."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from both_loops import Run, both_loops
from fake_cluster import FakeBroker, FakeCluster, usual
from scripted_broker import eventually

from aiokprod.cluster.client import ClusterClient, ClusterListener
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.fetch import PARTITIONS_PER_SLICE
from aiokprod.cluster.snapshot import ClusterSnapshot
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    BootstrapError,
    ClusterIdMismatchError,
    ConnectionLostError,
    RequestTimeoutError,
    TlsError,
    UnsupportedVersionError,
)
from aiokprod.metrics import Metrics
from aiokprod.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
}


class Recorder(ClusterListener):
    def __init__(self) -> None:
        self.changes: list[tuple[ClusterSnapshot, ClusterSnapshot]] = []
        self.ready: list[tuple[int, BrokerConnection]] = []
        self.failed: list[tuple[int, Exception]] = []
        self.crashes: list[BaseException] = []

    def snapshot_changed(self, old: ClusterSnapshot, new: ClusterSnapshot) -> None:
        self.changes.append((old, new))

    def connection_ready(self, node_id: int, connection: BrokerConnection) -> None:
        self.ready.append((node_id, connection))

    def dial_failed(self, node_id: int, error: Exception) -> None:
        self.failed.append((node_id, error))

    def crashed(self, cause: BaseException) -> None:
        self.crashes.append(cause)


class Rig:
    def __init__(self, cluster: FakeCluster, bootstrap: list[str], options: dict[str, Any]) -> None:
        self.cluster = cluster
        self.listener = Recorder()
        self.metrics = Metrics()
        self.client = ClusterClient(
            ProducerConfig(bootstrap_servers=bootstrap, **{**QUICK, **options}), self.metrics, self.listener
        )

    @property
    def metadata_requests(self) -> list[MetadataRequest]:
        return [request for broker in self.cluster.brokers.values() for request in broker.asked(MetadataRequest)]

    async def known(self, name: str) -> None:
        self.client.want(name)
        await eventually(lambda: self.client.topic(name) is not None)


@contextlib.asynccontextmanager
async def rig(
    count: int = 3, *, start: bool = True, cluster: FakeCluster | None = None, **options: Any
) -> AsyncIterator[Rig]:
    before = asyncio.all_tasks()
    async with cluster or FakeCluster(count) as running:
        made = Rig(running, options.pop("bootstrap_servers", None) or running.bootstrap, options)
        try:
            if start:
                await made.client.start(5.0)
            yield made
        finally:
            await made.client.close()
        assert made.listener.crashes == []
        assert not [task for task in asyncio.all_tasks() - before if task.get_name().startswith(("metadata", "dial"))]
        await eventually(lambda: all(broker.connections == 0 for broker in running.brokers.values()))
        assert made.metrics.connections_open.value == 0


def unused_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


# -- start --------------------------------------------------------------------------------------------------------


@both_loops
def test_start_learns_the_brokers(run: Run) -> None:
    async def scenario() -> None:
        async with rig() as r:
            snapshot = r.client.snapshot
            assert snapshot.cluster_id == "ours"
            assert {node.id: (node.host, node.port) for node in snapshot.brokers.values()} == r.cluster.announced
            assert len(r.listener.changes) == 1
            assert [len(request.topics) for request in r.metadata_requests] == [0]
            assert not r.metadata_requests[0].allow_auto_topic_creation
            assert 0 <= (r.client.metadata_age_s or 0) < 5

    run(scenario())


@both_loops
def test_start_with_nobody_there_names_each_address_and_its_cause(run: Run) -> None:  # faults: T15, L19, N16
    async def scenario() -> None:
        ports = [unused_port(), unused_port()]
        async with rig(1, start=False, bootstrap_servers=[f"127.0.0.1:{port}" for port in ports]) as r:
            began = time.monotonic()
            with pytest.raises(BootstrapError) as caught:
                await r.client.start(0.3)
            assert 0.25 < time.monotonic() - began < 1.5
            assert [(host, port) for host, port, _ in caught.value.tried] == [("127.0.0.1", port) for port in ports]
            for port in ports:
                assert f"127.0.0.1:{port}: " in str(caught.value)
            assert "onnect" in str(caught.value)
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
            await asyncio.sleep(0.1)
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
                await r.client.start(20.0)
            assert time.monotonic() - began < 5

    run(scenario())


@both_loops
def test_plaintext_brokers_end_the_start_of_a_tls_client_at_once(run: Run) -> None:  # faults: S1, S5
    async def scenario() -> None:
        async with rig(2, start=False, security_protocol="SSL") as r:
            for broker in r.cluster.brokers.values():  # hang up on whatever comes
                await broker.stop()
            servers = [
                await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", broker.port)
                for broker in r.cluster.brokers.values()
            ]
            began = time.monotonic()
            with pytest.raises(TlsError):
                await r.client.start(20.0)
            assert time.monotonic() - began < 5
            for server in servers:
                server.close()

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
            r.client.start_in_background()
            await asyncio.sleep(0.5)
            assert 2 <= broker.dials <= 5

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
            r.client.hint_leader("t", 0, 1, 1, None)

    run(scenario())


# -- topics -------------------------------------------------------------------------------------------------------


@both_loops
def test_a_topic_that_is_wanted_becomes_known(run: Run) -> None:  # faults: T1
    async def scenario() -> None:
        async with rig() as r:
            r.client.want("t")
            await eventually(lambda: r.client.last_error("t") == (3, None))
            assert r.client.topic("t") is None
            r.cluster.topic("t", 1, 2, 3)
            await eventually(lambda: r.client.topic("t") is not None)
            known = r.client.topic("t")
            assert known is not None
            assert [partition.leader_id for partition in known.partitions] == [1, 2, 3]

    run(scenario())


@both_loops
def test_refreshed_waits_for_news_and_not_for_ever(run: Run) -> None:
    async def scenario() -> None:
        async with rig() as r:
            r.cluster.topic("t", 1)
            r.client.want("t")
            await r.client.refreshed(5.0)
            assert r.client.topic("t") is not None
            for broker in r.cluster.brokers.values():
                broker.answers[MetadataRequest] = lambda broker, request: None
            with pytest.raises(RequestTimeoutError):
                await r.client.refreshed(0.1)

    run(scenario())


@both_loops
def test_a_hint_reaches_the_listener(run: Run) -> None:  # faults: P7
    async def scenario() -> None:
        async with rig() as r:
            r.cluster.topic("t", 1)
            await r.known("t")
            new = await r.cluster.add(9)
            r.client.hint_leader("t", 0, 9, 5, (9, "127.0.0.1", new.port, None))
            assert r.listener.changes[-1][1].topics["t"].partitions[0].leader_id == 9
            r.client.dial(9)
            await eventually(lambda: r.client.produce_connection(9) is not None)

    run(scenario())


@both_loops
def test_the_loop_turns_while_twenty_thousand_partitions_are_decoded(run: Run) -> None:  # faults: T19
    async def scenario() -> None:
        async with rig(1) as r:
            for number in range(100):
                r.cluster.topic(f"t{number}", *([1] * 200))
            names = list(r.cluster.topics)
            for name in names:
                r.client.want(name)
            turns = 0

            async def watch() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            encoded = asyncio.Event()

            def prepared(broker: FakeBroker, request: MetadataRequest) -> Any:
                return Prepared(usual(broker, request), encoded)

            r.cluster.brokers[1].answers[MetadataRequest] = prepared
            r.client.refresh("all of them")
            await encoded.wait()
            watcher = asyncio.create_task(watch())
            await eventually(lambda: r.client.topic(names[-1]) is not None)
            watcher.cancel()
            assert len(r.client.snapshot.topics) == 100
            assert turns >= 20_000 / PARTITIONS_PER_SLICE, "the loop turned between the slices"

    run(scenario())


class Prepared:
    """An answer that says when it has been encoded: what comes after is the client's time."""

    def __init__(self, answer: MetadataResponse, encoded: asyncio.Event) -> None:
        self.answer = answer
        self.encoded = encoded

    def encode(self, version: int) -> bytes:
        body = self.answer.encode(version)
        self.encoded.set()
        return body


# -- brokers ------------------------------------------------------------------------------------------------------


@both_loops
def test_a_produce_connection_is_dialled_and_told(run: Run) -> None:
    async def scenario() -> None:
        async with rig() as r:
            assert r.client.produce_connection(2) is None
            r.client.dial(2)
            r.client.dial(2)
            await eventually(lambda: bool(r.listener.ready))
            node_id, connection = r.listener.ready[0]
            assert node_id == 2
            assert r.client.produce_connection(2) is connection
            assert connection.port == r.cluster.brokers[2].port
            await r.cluster.brokers[2].hang_up()
            await eventually(lambda: r.client.produce_connection(2) is None)
            r.client.dial(2)
            await eventually(lambda: r.client.produce_connection(2) is not None)
            assert len(r.listener.ready) == 2

    run(scenario())


@both_loops
def test_a_dial_that_fails_is_told(run: Run) -> None:
    async def scenario() -> None:
        async with rig() as r:
            await r.cluster.brokers[3].stop()
            r.client.dial(3)
            await eventually(lambda: bool(r.listener.failed))
            assert r.listener.failed[0][0] == 3
            assert isinstance(r.listener.failed[0][1], ConnectionLostError)

    run(scenario())


@both_loops
def test_a_broker_that_moved_is_followed(run: Run) -> None:  # faults: B12
    async def scenario() -> None:
        async with rig() as r:
            r.client.dial(2)
            await eventually(lambda: bool(r.listener.ready))
            old_broker = r.cluster.brokers[2]
            moved = FakeBroker(r.cluster, 2)
            await moved.start()
            r.cluster.brokers[2], r.cluster.brokers[99] = moved, old_broker
            r.cluster.announced[2] = ("127.0.0.1", moved.port)
            await r.client.refreshed(5.0)
            assert not r.listener.ready[0][1].is_open
            r.client.dial(2)
            await eventually(lambda: len(r.listener.ready) == 2)
            assert r.listener.ready[1][1].port == moved.port

    run(scenario())


@both_loops
def test_when_all_brokers_are_replaced_one_by_one_the_old_are_left_alone(run: Run) -> None:  # faults: B13
    async def scenario() -> None:
        async with rig(3, metadata_max_age_ms=50) as r:
            originals = dict(r.cluster.brokers)
            for old_id, new_id in ((1, 11), (2, 12), (3, 13)):
                await r.cluster.add(new_id)
                await eventually(lambda new_id=new_id: new_id in r.client.snapshot.brokers)
                await r.cluster.remove(old_id)
                await eventually(lambda old_id=old_id: old_id not in r.client.snapshot.brokers)
            assert set(r.client.snapshot.brokers) == {11, 12, 13}
            for old in originals.values():
                old.dials = 0
                await old.start()  # would count whoever still dials it
            await asyncio.sleep(0.3)
            assert [old.dials for old in originals.values()] == [0, 0, 0]
            for old in originals.values():
                await old.stop()

    run(scenario())


@both_loops
def test_two_ids_at_one_address_do_not_disturb_each_other(run: Run) -> None:  # faults: B15
    async def scenario() -> None:
        async with rig(1) as r:
            r.cluster.announced = {
                1: ("127.0.0.1", r.cluster.brokers[1].port),
                2: ("127.0.0.1", r.cluster.brokers[1].port),
            }
            r.cluster.topic("t", 1, 2)
            await r.known("t")
            r.client.dial(1)
            r.client.dial(2)
            await eventually(lambda: len(r.listener.ready) == 2)
            one, two = (r.client.produce_connection(node_id) for node_id in (1, 2))
            assert one is not None
            assert two is not None
            assert one is not two
            assert (one.node_id, two.node_id) == (1, 2)

    run(scenario())


@both_loops
def test_hostile_broker_entries_are_dropped(run: Run) -> None:  # faults: H16
    async def scenario() -> None:
        async with rig(1) as r:
            r.cluster.announced |= {-7: ("127.0.0.1", 9092), 5: ("", 9092), 6: ("h", 70_000), 2**31 - 1: ("h", -1)}
            await r.client.refreshed(5.0)
            assert set(r.client.snapshot.brokers) == {1}

    run(scenario())


# -- trouble ------------------------------------------------------------------------------------------------------


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
            with pytest.raises(RequestTimeoutError) as caught:
                await r.client.refreshed(0.3)
            assert isinstance(caught.value.__cause__, ClusterIdMismatchError)
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
                await r.client.start(0.5)

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
                await r.client.start(20.0)
            assert time.monotonic() - began < 2
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


# -- requests -----------------------------------------------------------------------------------------------------


@both_loops
def test_a_request_goes_to_any_broker_or_to_the_one_named(run: Run) -> None:
    async def scenario() -> None:
        async with rig(3) as r:
            answer: InitProducerIdResponse = await r.client.request(
                InitProducerIdRequest(transactional_id=None), timeout_s=5
            )
            assert answer.producer_id == 1001
            await r.client.request(InitProducerIdRequest(transactional_id=None), node_id=2, timeout_s=5)
            assert len(r.cluster.brokers[2].asked(InitProducerIdRequest)) >= 1

    run(scenario())


@both_loops
def test_a_request_is_sent_once_and_its_failure_raised(run: Run) -> None:
    async def scenario() -> None:
        async with rig(1) as r:
            broker = r.cluster.brokers[1]
            broker.answers[InitProducerIdRequest] = lambda broker, request: ConnectionError()
            with pytest.raises(ConnectionLostError):
                await r.client.request(InitProducerIdRequest(transactional_id=None), timeout_s=5)
            assert len(broker.asked(InitProducerIdRequest)) == 1

    run(scenario())


@both_loops
def test_a_request_without_an_answer_ends_in_time(run: Run) -> None:
    async def scenario() -> None:
        async with rig(1) as r:
            r.cluster.brokers[1].answers[InitProducerIdRequest] = lambda broker, request: None
            began = time.monotonic()
            with pytest.raises(RequestTimeoutError):
                await r.client.request(InitProducerIdRequest(transactional_id=None), timeout_s=0.1)
            assert time.monotonic() - began < 2

    run(scenario())


@both_loops
@pytest.mark.parametrize("node_id", [1, 55])
def test_a_request_to_a_broker_that_cannot_be_reached_fails(run: Run, node_id: int) -> None:
    async def scenario() -> None:
        async with rig(2) as r:
            await r.cluster.brokers[1].stop()
            with pytest.raises(AiokprodError):
                await r.client.request(InitProducerIdRequest(transactional_id=None), node_id=node_id, timeout_s=1.0)

    run(scenario())


@both_loops
def test_a_throttle_in_an_answer_mutes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with rig(1) as r:
            r.cluster.brokers[1].answers[InitProducerIdRequest] = lambda broker, request: InitProducerIdResponse(
                throttle_time_ms=200, producer_id=1, producer_epoch=0
            )
            request = InitProducerIdRequest(transactional_id=None)
            await r.client.request(request, timeout_s=5)
            began = time.monotonic()
            await r.client.request(request, timeout_s=5)
            assert time.monotonic() - began > 0.15

    run(scenario())
