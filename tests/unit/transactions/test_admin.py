"""`TransactionAdmin` on a `MockCluster` in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from txn_rig import CLUSTERS, ID, QUICK, committed, started

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    ClusterAuthorizationError,
    ConfigError,
    ProducerFencedError,
    ProtocolError,
    RequestTimeoutError,
    TopicAuthorizationError,
    TransactionOutcomeUnknownError,
    UnsupportedVersionError,
    UsageError,
)
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.transactions.admin import TransactionAdmin, TransactionDescription

Scenario = Callable[[MockCluster, Producer, TransactionAdmin], Awaitable[None]]
EVERY = pytest.mark.parametrize("version", list(CLUSTERS))
BELOW_2 = pytest.mark.parametrize("version", ["TV1", "TV0"])


def on(scenario: Scenario, version: str = "TV2", **cluster_options: Any) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        async with started(network, CLUSTERS[version] | cluster_options) as (cluster, producer):
            options: dict[str, Any] = {"dialer": network.dial} | QUICK
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("aiokprod.transactions.admin.now_ms", wall_ms)  # virtual, as the brokers' clocks
                async with TransactionAdmin(cluster.bootstrap_servers, **options) as admin, asyncio.timeout(2000):
                    await scenario(cluster, producer, admin)

    run_virtual(whole, seed=1)


async def left_open(producer: Producer, *partitions: int) -> None:
    producer.begin_transaction()
    for partition in partitions or (0,):
        await producer.send("t", b"v", partition=partition)


# ---------------------------------------------------------------------- questions
@EVERY
def test_ids_of_all_coordinators_are_listed(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        names = [f"more-{number}" for number in range(12)]
        for name in names:
            async with Producer(producer.config.replace(transactional_id=name)):
                pass
        await left_open(producer)
        listed = await admin.transactional_ids()
        assert [each.transactional_id for each in listed] == sorted([ID, *names])
        assert len({each.coordinator for each in listed}) == 3
        assert all(each.coordinator == cluster.coordinator(each.transactional_id) for each in listed)
        assert [each.transactional_id for each in await admin.transactional_ids("more-1")] == [
            "more-1", "more-10", "more-11",
        ]  # fmt: skip
        (found,) = await admin.transactional_ids(states=["Ongoing"])
        assert (found.transactional_id, found.producer_id, found.state) == (
            ID, cluster.transaction(ID).producer_id, "Ongoing",
        )  # fmt: skip

    on(scenario, version)


@EVERY
def test_an_id_is_described(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        idle = await admin.describe(ID)
        assert (idle.is_open, idle.started_ms, idle.partitions) == (False, None, ())
        await left_open(producer, 0, 2)
        found, known = await admin.describe(ID), cluster.transaction(ID)
        assert found.is_open
        assert (found.state, found.timeout_ms, found.started_ms) == ("Ongoing", 60_000, known.started_ms)
        assert (found.producer_id, found.epoch) == (known.producer_id, known.epoch)
        assert found.partitions == (("t", 0), ("t", 2))

    on(scenario, version)


def test_an_id_that_no_coordinator_knows() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        with pytest.raises(BrokerAnswerError, match="TRANSACTIONAL_ID_NOT_FOUND") as raised:
            await admin.describe("unknown-id")
        assert raised.value.code == 105

    on(scenario)


def test_moves_lost_answers_and_stopped_brokers_are_outlived() -> None:
    # faults: X2
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        await admin.describe(ID)
        cluster.move_coordinator(ID, 1 + cluster.coordinator(ID) % 3)
        for code in (14, 15, 16):
            cluster.fail_next("DescribeTransactions", code)
        cluster.drop_answer("DescribeTransactions")
        assert (await admin.describe(ID)).is_open
        for api, codes in (("ListTransactions", (14, 15)), ("DescribeProducers", (6, 3, 5, 56))):
            for code in codes:
                cluster.fail_next(api, code)
            cluster.drop_answer(api)
        assert len(await admin.transactional_ids()) == 1
        assert await admin.find_hanging(older_than=0) == []
        cluster.kill_broker(cluster.coordinator(ID))
        assert (await admin.describe(ID)).is_open

    on(scenario)


@pytest.mark.parametrize(
    ("api", "code", "kind"),
    [
        ("ListTransactions", 31, ClusterAuthorizationError),
        ("DescribeTransactions", 53, ClusterAuthorizationError),
        ("DescribeProducers", 29, TopicAuthorizationError),
        ("WriteTxnMarkers", 31, ClusterAuthorizationError),
        ("WriteTxnMarkers", 47, BrokerAnswerError),
        ("FindCoordinator", 53, ClusterAuthorizationError),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_refusal_is_told_by_its_kind(api: str, code: int, kind: type[AiokprodError]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        cluster.lose_transaction(ID)
        (hanging,) = await admin.find_hanging(older_than=0)
        cluster.fail_next(api, code, times=None)
        calls: dict[str, Callable[[], Awaitable[object]]] = {
            "ListTransactions": admin.transactional_ids,
            "DescribeTransactions": lambda: admin.describe(ID),
            "FindCoordinator": lambda: admin.describe(ID),
            "DescribeProducers": lambda: admin.find_hanging(["t"]),
            "WriteTxnMarkers": lambda: admin.abort_hanging(hanging),
        }
        with pytest.raises(kind) as raised:
            await calls[api]()
        assert raised.value.code == code

    on(scenario)


def test_what_is_never_answered_ends_with_the_timeout() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        cluster.fail_next("ListTransactions", 14, times=None)
        with pytest.raises(BrokerAnswerError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await admin.transactional_ids()
        cluster.swallow_next("DescribeTransactions", before_serving=True, times=None)
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeoutError):
            await admin.describe(ID)
        assert asyncio.get_running_loop().time() - began == pytest.approx(30, abs=1)

    on(scenario)


def test_an_answer_that_cannot_be_read_is_asked_for_again() -> None:  # faults: H25
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        for api in ("ListTransactions", "DescribeProducers", "DescribeTransactions"):
            cluster.corrupt_next(api, offset=-1, mask=0x7F)  # 127 tagged fields that are not there
        assert len(await admin.transactional_ids()) == 1
        assert await admin.find_hanging(older_than=0) == []
        assert (await admin.describe(ID)).is_open
        cluster.corrupt_next("ListTransactions", offset=-1, mask=0x7F, times=None)
        with pytest.raises(ProtocolError):
            await admin.transactional_ids()

    on(scenario)


def test_brokers_before_3_0_cannot_tell() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        with pytest.raises(UnsupportedVersionError) as listed:
            await admin.transactional_ids()
        with pytest.raises(UnsupportedVersionError) as described:
            await admin.describe(ID)
        for each in (listed.value, described.value):
            assert each.advice == "Kafka 3.0 or later is needed." and each.__notes__ == [each.advice]

    on(scenario, "TV0", kafka_version="2.8")


# ---------------------------------------------------------------------- what hangs
@EVERY
def test_a_transaction_that_its_coordinator_has_forgotten_is_found_and_ended(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer, 0, 1)
        assert await admin.find_hanging(older_than=0) == [], "its coordinator knows it"
        cluster.lose_transaction(ID)
        assert await admin.find_hanging() == [], "it is young"
        await asyncio.sleep(901)
        found = await admin.find_hanging()
        assert [(each.open.partition, each.open.start_offset, each.transactional_id) for each in found] == [
            (0, 0, None),
            (1, 0, None),
        ]
        assert found == await admin.find_hanging(["t"], older_than=0)
        async with Producer(producer.config.replace(transactional_id="other")) as other, other.transaction():
            other.send("t", b"behind", partition=0)
        assert await committed(cluster) == [], "readers wait"
        await admin.abort_hanging(found[0])
        assert await committed(cluster) == [b"behind"]
        assert await admin.find_hanging(older_than=0) == found[1:]
        with pytest.raises(UsageError, match="not open any more"):
            await admin.abort_hanging(found[0])

    on(scenario, version)


def test_a_later_transaction_at_the_same_place_is_not_aborted() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        cluster.lose_transaction(ID)
        (hanging,) = await admin.find_hanging(older_than=0)
        await admin.abort_hanging(hanging)
        async with Producer(producer.config.replace(transactional_id="other")) as other:
            other.begin_transaction()
            await other.send("t", b"later", partition=0)
            with pytest.raises(UsageError, match="not open any more"):
                await admin.abort_hanging(hanging)
            await other.commit_transaction()
        assert await committed(cluster) == [b"later"]

    on(scenario)


# ---------------------------------------------------------------------- abort by id
def test_an_open_transaction_is_aborted_and_its_producer_goes_on() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        assert await admin.abort(ID) is TransactionOutcome.ABORTED
        await asyncio.sleep(0.1)
        assert not cluster.transaction(ID).is_ongoing
        with pytest.raises(UsageError, match="CompleteAbort"):
            await admin.abort(ID)
        with pytest.raises(AiokprodError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            producer.send("t", b"next", partition=0)
        assert await committed(cluster) == [b"next"]

    on(scenario)


@BELOW_2
@pytest.mark.parametrize("way", ["another partition", "the same partition", "offsets", "commit", "abort"])
def test_below_version_2_the_producer_is_fenced_and_nothing_of_the_rest_is_committed(version: str, way: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        assert await admin.abort(ID) is TransactionOutcome.ABORTED
        await asyncio.sleep(0.1)
        with pytest.raises(UsageError, match="its state is CompleteAbort"):
            await admin.abort(ID)
        with pytest.raises(ProducerFencedError):
            if way == "offsets":
                await producer.send_offsets_to_transaction({("in", 0): 2}, "g")
            elif way == "abort":
                await producer.abort_transaction()
            elif way != "commit":
                producer.send("t", b"rest", partition=0 if way == "the same partition" else 1)
            await producer.commit_transaction()
        assert await committed(cluster) == []
        assert cluster.committed_offsets("g") == {}

    on(scenario, version)


@BELOW_2
@pytest.mark.parametrize("commits", [True, False])
def test_below_version_2_a_transaction_that_ends_meanwhile_is_not_told_as_aborted(version: str, commits: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        found = await admin.describe(ID)

        async def described(transactional_id: str) -> TransactionDescription:
            return found

        admin.describe = described  # type: ignore[method-assign]
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        with pytest.raises(TransactionOutcomeUnknownError, match="fenced"):
            await admin.abort(ID)
        assert await committed(cluster) == ([b"v"] if commits else [])

    on(scenario, version)


@BELOW_2
@pytest.mark.parametrize("is_done", [True, False])
def test_below_version_2_a_fence_without_an_answer_is_asked_for_again(version: str, is_done: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        cluster.drop_answer("InitProducerId", after_append=is_done)
        assert await admin.abort(ID) is TransactionOutcome.ABORTED
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
        assert await committed(cluster) == []

    on(scenario, version)


@BELOW_2
@pytest.mark.parametrize("commits", [True, False])
def test_below_version_2_a_producer_that_is_faster_is_told_and_not_fenced(version: str, commits: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        cluster.hold_markers()
        found = await admin.describe(ID)

        async def described(transactional_id: str) -> TransactionDescription:
            return found

        admin.describe = described  # type: ignore[method-assign]
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        outcome = await admin.abort(ID)
        assert outcome is (TransactionOutcome.COMMITTED if commits else TransactionOutcome.ABORTED)
        cluster.release_markers()
        async with producer.transaction():
            producer.send("t", b"next", partition=0)
        assert await committed(cluster) == ([b"v", b"next"] if commits else [b"next"])

    on(scenario, version)


def test_a_prepared_transaction_is_aborted_too() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        await producer.prepare_transaction()
        await producer.close()
        assert await admin.abort(ID) is TransactionOutcome.ABORTED

    on(scenario)


@EVERY
def test_an_abort_that_is_refused_is_unknown(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await left_open(producer)
        cluster.fail_next("EndTxn" if version == "TV2" else "InitProducerId", 53)
        with pytest.raises(TransactionOutcomeUnknownError) as raised:
            await admin.abort(ID)
        assert isinstance(raised.value.__cause__, ClusterAuthorizationError)
        await producer.commit_transaction()

    on(scenario, version)


# ---------------------------------------------------------------------- arguments
def test_arguments_are_checked() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        wrong: list[tuple[Callable[..., Awaitable[object]], tuple[Any, ...], dict[str, Any]]] = [
            (admin.transactional_ids, (7,), {}),
            (admin.transactional_ids, (), {"states": ["Open"]}),
            (admin.transactional_ids, (), {"states": None}),
            (admin.transactional_ids, (), {"states": b"Ongoing"}),
            (admin.find_hanging, (7,), {}),
            (admin.find_hanging, (["\ud800"],), {}),
            (admin.describe, ("\ud800",), {}),
            (admin.describe, ("x" * 32_768,), {}),
            (admin.describe, ("",), {}),
            (admin.describe, (None,), {}),
            (admin.abort, (b"x",), {}),
            (admin.abort_hanging, ("t-0",), {}),
            (admin.find_hanging, ([""],), {}),
        ]
        for call, arguments, named in wrong:
            with pytest.raises(UsageError):
                await call(*arguments, **named)
        with pytest.raises(ConfigError):
            await admin.find_hanging(older_than=-1)

    on(scenario)


def test_it_is_used_between_start_and_close() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, admin: TransactionAdmin) -> None:
        await admin.close()
        with pytest.raises(UsageError, match="not started"):
            await admin.transactional_ids()
        await admin.start()
        assert len(await admin.transactional_ids()) == 1

    on(scenario)
    with pytest.raises(ConfigError):
        TransactionAdmin("localhost:1", timeout=None)  # type: ignore[arg-type]
