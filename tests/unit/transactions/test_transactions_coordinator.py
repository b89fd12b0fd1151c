"""Coordinators: found, kept, and looked up again when they are gone; versions; pauses."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from aiokprod.cluster.client import ClusterClient, ClusterListener
from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.config import ProducerConfig
from aiokprod.errors import ConnectionLostError, ProtocolError, RequestTimeoutError
from aiokprod.metrics import Metrics
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.transactions.coordinator import (
    FIRST_VERSION,
    SECOND_VERSION,
    CoordinatorKind,
    Coordinators,
    NoAnswer,
    RetryPace,
    codes_of,
)
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aiokprod.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest
from aiokprod.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokprod.wire.messages.find_coordinator import Coordinator
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.metadata import MetadataResponse
from aiokprod.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

INIT = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
Scenario = Callable[[MockCluster, ClusterClient, Coordinators], Awaitable[None]]


class Deaf(ClusterListener):
    """A listener that nothing is of interest to."""

    def snapshot_changed(self, old: Any, new: Any) -> None:
        pass

    def connection_ready(self, node_id: int, connection: Any) -> None:
        pass

    def dial_failed(self, node_id: int, error: Exception) -> None:
        pass

    def crashed(self, cause: BaseException) -> None:
        raise cause


def run(scenario: Scenario, **options: Any) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(brokers=3, network=network, seed=1, **options) as cluster:
            config = ProducerConfig(bootstrap_servers=cluster.bootstrap_servers, dialer=network.dial)
            client = ClusterClient(config, Metrics(), Deaf(), random=random)
            await client.start(5.0)
            try:
                await scenario(cluster, client, Coordinators(client, 10.0))
            finally:
                await client.close()

    run_virtual(whole, seed=1)


@pytest.fixture(autouse=True, params=["ask", "ask_now"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test is done twice: requests go by a task, and at once where their coordinator is at hand."""
    monkeypatch.setattr(sys.modules[__name__], "asks_now", request.param == "ask_now")
    return str(request.param)


asks_now = False


async def ask(coordinators: Coordinators, message: RequestMessage = INIT, highest: int = 5) -> Any:
    if asks_now:
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if coordinators.ask_now(
            CoordinatorKind.TRANSACTION, "tx", message, highest, lambda take: outcome.set_result(take())
        ):
            assert not outcome.done(), "it was told within the call"
            return await outcome
    return await coordinators.ask(CoordinatorKind.TRANSACTION, "tx", message, highest)


async def init(coordinators: Coordinators) -> InitProducerIdResponse:
    answer = await ask(coordinators)
    assert isinstance(answer, InitProducerIdResponse)
    return answer


async def lost(coordinators: Coordinators) -> NoAnswer:
    answer = await ask(coordinators)
    assert isinstance(answer, NoAnswer)
    return answer


def test_a_coordinator_is_found_once_and_kept() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        for _ in range(3):
            assert (await init(coordinators)).error_code == 0
        assert coordinators.known(CoordinatorKind.TRANSACTION, "tx") == cluster.coordinator("tx")
        assert cluster.requests_seen("FindCoordinator") == 1
        assert {seen.broker for seen in cluster.requests("InitProducerId")} == {cluster.coordinator("tx")}

    run(scenario)


def test_groups_and_transactional_ids_of_one_name_are_two() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        cluster.move_coordinator("tx", 1)
        cluster.move_group_coordinator("tx", 2)
        await init(coordinators)
        request = AddOffsetsToTxnRequest(transactional_id="tx", group_id="tx")
        answer = await coordinators.ask(CoordinatorKind.GROUP, "tx", request, 3)
        assert list(codes_of(answer)) == [16]
        assert coordinators.known(CoordinatorKind.TRANSACTION, "tx") == 1
        assert coordinators.known(CoordinatorKind.GROUP, "tx") is None

    run(scenario)


def test_topics_are_asked_of_each_broker_but_the_coordinator_of_the_group() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        cluster.create_topic("t", partitions=2)
        cluster.move_group_coordinator("g", 2)
        request = AddOffsetsToTxnRequest(transactional_id="tx", group_id="g")
        cluster.fail_next("AddOffsetsToTxn", 51)
        await coordinators.ask(CoordinatorKind.GROUP, "g", request, 3)
        assert coordinators.known(CoordinatorKind.GROUP, "g") == 2
        before = len(cluster.requests("Metadata"))
        for _ in range(4):
            answer = await coordinators.topics("g", ["t", "nowhere"], 5.0)
            told = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answer.topics}
            assert told == {"t": (0, 2), "nowhere": (3, 0)}
        asked = [seen.broker for seen in cluster.requests("Metadata")[before:]]
        assert sorted(asked) == [1, 1, 3, 3]
        cluster.freeze_broker(1)
        cluster.freeze_broker(3)
        with pytest.raises(RequestTimeoutError):
            await coordinators.topics("g", ["t"], 5.0)
        assert list(cluster.topics) == ["t"], "brokers that create topics were not asked to"

    run(scenario)


def test_one_that_has_moved_is_looked_up_again() -> None:  # faults: X2
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        await init(coordinators)
        node = cluster.coordinator("tx") % 3 + 1
        cluster.move_coordinator("tx", node)
        assert (await init(coordinators)).error_code == 16
        assert (await init(coordinators)).error_code == 0
        assert coordinators.known(CoordinatorKind.TRANSACTION, "tx") == node

    run(scenario)


def test_one_that_loads_is_looked_up_again() -> None:  # faults: X2
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        cluster.load_coordinator("tx")
        assert (await init(coordinators)).error_code == 14
        assert coordinators.known(CoordinatorKind.TRANSACTION, "tx") is None
        cluster.load_coordinator("tx", is_loading=False)
        assert (await init(coordinators)).error_code == 0

    run(scenario)


def test_one_that_the_broker_of_the_metadata_does_not_know_is_found_by_another() -> None:  # faults: T8
    """A broker that is cut off from the controllers tells of an earlier cluster, and the client had no other connection."""

    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        stale = (await client.control_connection(None)).node_id
        victim = stale % 3 + 1
        cluster.move_coordinator("tx", victim)

        def without(answer: object, version: int) -> MetadataResponse:
            assert isinstance(answer, MetadataResponse)
            return replace(answer, brokers=[each for each in answer.brokers if each.node_id != victim])

        cluster.rewrite_answer("Metadata", without, broker=stale, times=None)
        await client.refreshed(5.0)
        assert victim not in client.snapshot.brokers
        for _ in range(4):
            answer = await ask(coordinators)
            if not isinstance(answer, NoAnswer):
                break
            await client.refreshed(5.0)
        else:
            pytest.fail("another broker was not asked")
        assert answer.error_code == 0

    run(scenario)


def test_one_that_is_silent_is_looked_up_again() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        await init(coordinators)
        cluster.blackhole_next("InitProducerId")
        silent = await lost(coordinators)
        assert silent.is_written
        assert silent.code is None
        assert coordinators.known(CoordinatorKind.TRANSACTION, "tx") is None
        assert (await init(coordinators)).error_code == 0

    run(scenario)


def test_an_answer_that_is_lost_may_have_been_acted_on() -> None:  # faults: X5
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        cluster.drop_answer("InitProducerId")
        assert (await lost(coordinators)).is_written
        assert (await init(coordinators)).producer_epoch == 1

    run(scenario)


def test_one_that_dies_is_looked_up_again_where_it_moved_to() -> None:  # faults: X4
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        await init(coordinators)
        node = cluster.coordinator("tx")
        cluster.stop_broker(node)
        await asyncio.sleep(1.0)  # virtual: the end of the connection is known
        dead = await lost(coordinators)
        assert not dead.is_written
        assert dead.code is None
        while isinstance(await ask(coordinators), NoAnswer):
            await asyncio.sleep(0.1)
        assert coordinators.known(CoordinatorKind.TRANSACTION, "tx") not in (None, node)

    run(scenario)


@pytest.mark.parametrize(
    ("code", "told"), [(53, 53), (30, 30), (42, 42), (15, None), (14, None), (-1, None), (7, None)]
)
def test_a_refused_look_up_has_its_code_if_it_is_for_good(code: int, told: int | None) -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        cluster.fail_next("FindCoordinator", code)
        refused = await lost(coordinators)
        assert (refused.code, refused.is_written) == (told, False)
        assert refused.error.code == code

    run(scenario)


@pytest.mark.parametrize(("versions", "sent"), [(FIRST_VERSION, 4), (SECOND_VERSION, 5)])
def test_the_version_of_the_protocol_caps_each_request(versions: dict[type, int], sent: int) -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        identity = await init(coordinators)
        request = EndTxnRequest("tx", identity.producer_id, identity.producer_epoch, committed=True)
        await ask(coordinators, request, versions[EndTxnRequest])
        assert [seen.version for seen in cluster.requests("EndTxn")] == [sent]
        assert [seen.version for seen in cluster.requests("InitProducerId")] == [5]
        assert [seen.version for seen in cluster.requests("FindCoordinator")] == [3]

    run(scenario)


def test_what_a_version_cannot_carry_is_not_sent() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        request = InitProducerIdRequest("tx", 60_000, producer_id=1, producer_epoch=1)
        for _ in range(2):
            answer = await ask(coordinators, request, 2)
            assert isinstance(answer, NoAnswer)
            assert (answer.code, answer.is_written) == (35, False)
        assert not cluster.requests_seen("InitProducerId")

    run(scenario)


def test_an_answer_that_cannot_be_read_ends_the_connection() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        await init(coordinators)
        connection = await client.control_connection(cluster.coordinator("tx"))
        cluster.rewrite_answer("InitProducerId", lambda answer, version: b"\0")
        broken = await lost(coordinators)
        assert broken.is_written
        assert isinstance(broken.error, ProtocolError)
        assert not connection.is_open
        assert (await init(coordinators)).error_code == 0

    run(scenario)


def test_nothing_is_sent_at_once_without_a_coordinator_at_hand() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        def at_once() -> bool:
            return coordinators.ask_now(CoordinatorKind.TRANSACTION, "tx", INIT, 5, told.append)

        told: list[Callable[[], Any]] = []
        assert not at_once(), "it is not known"
        await init(coordinators)
        connection = await client.control_connection(cluster.coordinator("tx"))
        connection.mute(0.5)
        assert not at_once(), "it is throttled"
        await asyncio.sleep(1.0)
        connection.close(ConnectionLostError("gone"))
        assert not at_once(), "its connection has ended"
        await init(coordinators)
        sent = cluster.requests_seen("InitProducerId")
        assert at_once()
        await asyncio.sleep(1.0)
        assert [take().error_code for take in told] == [0]
        assert cluster.requests_seen("InitProducerId") == sent + 1

    run(scenario)


def test_the_time_of_a_request_is_its_own_where_others_are_answered_late_before_it() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        await init(coordinators)
        loop = asyncio.get_running_loop()
        cluster.blackhole_next("DescribeTransactions")
        connection = await client.control_connection(cluster.coordinator("tx"))
        first = asyncio.ensure_future(connection.request(DescribeTransactionsRequest(["tx"]), timeout_s=25.0))
        await asyncio.sleep(0.1)
        began = loop.time()
        late = await lost(coordinators)
        assert late.is_written
        assert isinstance(late.error, RequestTimeoutError)
        assert loop.time() - began == pytest.approx(10.0, abs=0.5)
        with pytest.raises(ConnectionLostError):
            await first

    run(scenario)


@pytest.mark.parametrize(
    ("options", "version"), [({}, 2), ({"transaction_version": 1}, 1), ({"kafka_version": "2.8"}, 0)]
)
def test_the_client_tells_the_version_of_transactions(options: dict[str, Any], version: int) -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        await init(coordinators)
        assert client.finalized_features.get("transaction.version", 0) == version

    run(scenario, **options)


def test_the_codes_of_every_answer_are_found() -> None:
    added = AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult("t", [AddPartitionsToTxnPartitionResult(n, 50 + n) for n in range(2)]),
            AddPartitionsToTxnTopicResult("u", [AddPartitionsToTxnPartitionResult(0, 3)]),
        ]
    )
    offsets = TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic("t", [TxnOffsetCommitResponsePartition(0, 16)])]
    )
    assert list(codes_of(added)) == [50, 51, 3]
    assert list(codes_of(offsets)) == [16]
    for answer in (InitProducerIdResponse, AddOffsetsToTxnResponse, EndTxnResponse):
        assert list(codes_of(answer(error_code=7))) == [7]
    with pytest.raises(TypeError, match="MetadataResponse"):
        codes_of(MetadataResponse())


class Middle(Random):
    """No jitter."""

    def random(self) -> float:
        return 0.5


def test_the_first_pauses_after_a_concurrent_transaction_are_none_and_short() -> None:  # faults: X3
    pace = RetryPace(ProducerConfig(bootstrap_servers="b:1"), Middle())
    assert [round(pace.concurrent_s(attempt), 3) for attempt in (1, 2, 3, 4, 5, 11)] == [
        0,
        0,
        0.001,
        0.001,
        0.002,
        0.021,
    ]
    assert [round(pace.usual_s(attempt), 3) for attempt in (1, 2, 3, 9)] == [0.1, 0.2, 0.4, 1.0]


def test_pauses_become_longer_whatever_the_options_are() -> None:
    config = ProducerConfig(bootstrap_servers="b:1", retry_backoff_ms=0, retry_backoff_max_ms=0)
    pace = RetryPace(config, Random(1))
    assert pace.usual_s(1) > 0.005
    assert [pace.concurrent_s(attempt) > least for attempt, least in ((3, 0.0005), (11, 0.005))] == [True, True]


def test_many_coordinators_are_found_by_one_request() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        keys = [f"tx-{number}" for number in range(50)]
        before = len(cluster.requests("FindCoordinator"))
        await coordinators.find(CoordinatorKind.TRANSACTION, keys)
        assert len(cluster.requests("FindCoordinator")) - before == 1
        assert all(coordinators.known(CoordinatorKind.TRANSACTION, key) is not None for key in keys)
        for key in keys[:5]:
            answer = await coordinators.ask(
                CoordinatorKind.TRANSACTION,
                key,
                InitProducerIdRequest(key, 60_000),
                FIRST_VERSION[InitProducerIdRequest],
            )
            assert isinstance(answer, InitProducerIdResponse)
            assert answer.error_code == 0
        await coordinators.find(CoordinatorKind.TRANSACTION, keys)
        assert len(cluster.requests("FindCoordinator")) - before == 1

    run(scenario)


def test_what_was_not_asked_for_is_not_kept() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        def lie(answer: Any, version: int) -> Any:
            answer.coordinators += [Coordinator(key=f"foreign-{number}", node_id=1) for number in range(100)]
            return answer

        cluster.rewrite_answer("FindCoordinator", lie)
        await coordinators.find(CoordinatorKind.TRANSACTION, ["a", "b", "a"])
        assert coordinators.known(CoordinatorKind.TRANSACTION, "a") is not None
        assert coordinators.known(CoordinatorKind.TRANSACTION, "foreign-7") is None

    run(scenario)


def test_where_brokers_find_one_at_a_time_each_is_found_when_it_is_asked() -> None:
    async def scenario(cluster: MockCluster, client: ClusterClient, coordinators: Coordinators) -> None:
        await coordinators.find(CoordinatorKind.TRANSACTION, ["a", "b"])
        assert coordinators.known(CoordinatorKind.TRANSACTION, "a") is None
        answer = await coordinators.ask(
            CoordinatorKind.TRANSACTION, "a", InitProducerIdRequest("a", 60_000), FIRST_VERSION[InitProducerIdRequest]
        )
        assert isinstance(answer, InitProducerIdResponse)

    run(scenario, api_versions={"FindCoordinator": (0, 3)})
