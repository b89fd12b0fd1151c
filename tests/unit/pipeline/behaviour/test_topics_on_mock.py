"""Rows of the fault catalogue about topics and what is told of them, through the whole pipeline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from rig import mock_cluster, producer_of, run, run_in_virtual_time, started, until, values
from virtual_rig import run as run_virtually

from aiokprod import Persistence, Producer
from aiokprod.errors import (
    AiokprodError,
    BufferFullError,
    DeliveryTimeoutError,
    PartitionOutOfRangeError,
    UnknownTopicError,
)
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork
from aiokprod.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

QUICK_LOOKS: dict[str, Any] = {"metadata_max_age_ms": 100}
SOON_OLD: dict[str, Any] = {"metadata_max_age_ms": 10_000}


def telling(cluster: MockCluster, topic: str, leaders: Sequence[int] | None, *, error_code: int = 0) -> Any:
    """Let a broker report these leaders of the topic's partitions (None: no partitions at all)."""

    def answer(request: object, version: int) -> MetadataResponse:
        assert isinstance(request, MetadataRequest)
        addresses = [address.rsplit(":", 1) for address in cluster.bootstrap_servers.split(",")]
        response = MetadataResponse(cluster_id=cluster.cluster_id, controller_id=1)
        response.brokers = [
            MetadataResponseBroker(node_id=node, host=host, port=int(port))
            for node, (host, port) in zip(cluster.broker_ids, addresses, strict=True)
        ]
        for asked in request.topics or ():
            partitions = [
                MetadataResponsePartition(partition_index=number, leader_id=leader, leader_epoch=0)
                for number, leader in enumerate(leaders or ())
            ]
            response.topics.append(
                MetadataResponseTopic(
                    name=asked.name, topic_id=cluster.topic_id(topic), error_code=error_code, partitions=partitions
                )
            )
        return response

    return answer


def test_records_of_many_tasks_wait_for_a_topic_and_leave_in_the_order_of_the_calls() -> None:
    """faults: T1"""

    async def scenario() -> None:
        async with started() as (cluster, producer):

            async def send(number: int) -> int | None:
                return (await producer.send("later", b"%d" % number, partition=number % 2)).offset

            tasks = [asyncio.create_task(send(number)) for number in range(40)]
            await asyncio.sleep(0.05)
            cluster.create_topic("later", partitions=2)
            await asyncio.gather(*tasks)
            for partition in range(2):
                assert values(cluster, "later", partition) == [b"%d" % n for n in range(40) if n % 2 == partition]

    run_in_virtual_time(scenario())


def test_a_topic_that_never_comes_costs_little_metadata_and_no_memory() -> None:
    """faults: T2"""

    async def scenario() -> None:
        async with started(max_block_ms=400, retry_backoff_ms=50, retry_backoff_max_ms=100) as (cluster, producer):
            before = cluster.requests_seen("Metadata")
            deliveries = [producer.send("never", b"x" * 1_000) for _ in range(100)]
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {UnknownTopicError}
            assert cluster.requests_seen("Metadata") - before <= 12
            assert producer.health().buffered_bytes == 0

    run_in_virtual_time(scenario())


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_a_topic_made_again_with_other_partitions_takes_new_records_and_duplicates_none(partitions: int) -> None:
    """faults: T6"""

    async def scenario() -> None:
        async with started("t", partitions=2, **QUICK_LOOKS) as (cluster, producer):
            for number in range(4):
                await producer.send("t", b"old %d" % number, partition=number % 2)
            cluster.recreate_topic("t", partitions=partitions)
            fresh = [producer.send("t", b"%d" % number, partition=0) for number in range(5)]
            assert [m.offset for m in await asyncio.gather(*fresh)] == [0, 1, 2, 3, 4]
            assert values(cluster, "t", 0) == [b"%d" % number for number in range(5)]
            if partitions == 1:
                with pytest.raises(PartitionOutOfRangeError):
                    await producer.send("t", b"gone", partition=1)
            else:
                assert (await producer.send("t", b"v", partition=partitions - 1)).offset == 0
            assert producer.health().buffered_bytes == 0

    run(scenario())


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_topic_made_again_while_brokers_begin_to_tell_ids_takes_records_again(partitions: int) -> None:  # faults: T6
    """Kafka 2.7 is upgraded to 2.8, and meanwhile the topic is made again with fewer partitions, or at lower epochs."""

    async def scenario() -> None:
        options = {"kafka_version": "2.8", "api_versions": {"Metadata": (0, 9)}, "auto_create_topics": False}
        async with mock_cluster(brokers=2, **options) as cluster:
            cluster.create_topic("t", partitions=2, replication_factor=2)
            for partition in (0, 1):
                for _ in range(4):  # the former topic has seen elections
                    cluster.move_leader("t", partition, cluster.leader("t", partition) % 2 + 1)
            former = [cluster.leader("t", partition) for partition in (0, 1)]
            budget = {"delivery_timeout_ms": 10_000, "request_timeout_ms": 2_000, "metadata_max_age_ms": 5_000}
            async with producer_of(cluster, **budget) as producer:
                for partition in (0, 1):
                    await producer.send("t", b"before", partition=partition)
                cluster.recreate_topic("t", partitions)
                for partition in range(partitions):
                    cluster.move_leader("t", partition, former[partition] % 2 + 1)
                for node in (1, 2):
                    cluster.cap_versions(node, "Metadata", 0, 11)
                cluster.close_connections()
                async with asyncio.timeout(120):
                    while len(await producer.partitions_for("t")) != partitions:
                        with contextlib.suppress(AiokprodError):
                            await producer.send("t", b"meanwhile", key=b"1")
                    await asyncio.sleep(20)
                for number in range(6):
                    assert (await producer.send("t", b"after", key=b"%d" % number)).partition < partitions

    run_in_virtual_time(scenario())


def test_records_of_a_topic_made_again_while_they_were_on_the_way_arrive_once_or_fail() -> None:
    """faults: T6"""

    async def scenario() -> None:
        async with started("t", linger_ms=0, batch_size=0, **QUICK_LOOKS) as (cluster, producer):
            for _ in range(2):
                await producer.send("t", b"old")
            held = cluster.hold("Produce", before_serving=True)
            deliveries = [producer.send("t", b"%d" % number) for number in range(8)]
            await until(lambda: held.hits >= 1)
            cluster.recreate_topic("t")
            cluster.release(held)
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            log = values(cluster, "t")
            assert len(log) == len(set(log))
            for number, outcome in enumerate(outcomes):
                if not isinstance(outcome, BaseException) and outcome.offset is not None:
                    assert log[outcome.offset] == b"%d" % number
            assert (await producer.send("t", b"last")).offset == len(log)

    run(scenario())


def test_a_broker_that_lags_behind_takes_no_partition_away() -> None:
    """faults: T8"""

    async def scenario() -> None:
        async with started("t", partitions=2, **QUICK_LOOKS) as (cluster, producer):
            await producer.send("t", b"0", partition=1)
            leader = cluster.leader("t", 0)
            assert leader is not None
            lagging = cluster.answer_with("Metadata", telling(cluster, "t", [leader]), times=None)
            await until(lambda: lagging.hits >= 2)
            assert (await producer.send("t", b"1", partition=1)).offset == 1
            lagging.cancel()
            assert (await producer.send("t", b"2", partition=1)).offset == 2

    run(scenario())


def test_a_topic_without_partitions_is_waited_for_and_never_a_success() -> None:
    """faults: T9"""

    async def scenario() -> None:
        async with started("t", max_block_ms=5_000) as (cluster, producer):
            empty = cluster.answer_with("Metadata", telling(cluster, "t", []), times=None)
            delivery = producer.send("t", b"v")
            await until(lambda: empty.hits >= 3)
            assert not delivery.done()
            empty.cancel()
            assert (await delivery).offset == 0

    run(scenario())


def test_a_topic_that_stays_without_partitions_fails_at_max_block() -> None:
    """faults: T9"""

    async def scenario() -> None:
        async with started("t", max_block_ms=200) as (cluster, producer):
            cluster.answer_with("Metadata", telling(cluster, "t", []), times=None)
            with pytest.raises(UnknownTopicError) as raised:
                await producer.send("t", b"v")
            assert raised.value.persistence is Persistence.NOT_PERSISTED
            cluster.clear_faults()

    run_in_virtual_time(scenario())


def test_an_unknown_leader_is_no_leader() -> None:
    """faults: T12"""

    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            lying = cluster.answer_with("Metadata", telling(cluster, "t", [99]), times=None)
            delivery = producer.send("t", b"v")
            await until(lambda: lying.hits >= 3)
            assert not delivery.done()
            assert producer.health().live
            lying.cancel()
            assert (await delivery).offset == 0

    run(scenario())


def test_metadata_that_says_yes_and_no_in_turns_fails_no_record() -> None:
    """faults: T13"""

    async def scenario() -> None:
        async with started("t", metadata_max_age_ms=10) as (cluster, producer):
            leader = cluster.leader("t")
            assert leader is not None
            say = [telling(cluster, "t", [leader]), telling(cluster, "t", [], error_code=5)]
            turns = 0

            def answer(request: object, version: int) -> Any:
                nonlocal turns
                turns += 1
                return say[turns % 2](request, version)

            cluster.answer_with("Metadata", answer, times=None)
            number = 0
            while turns < 30:
                assert (await producer.send("t", b"%d" % number)).offset == number
                number += 1
            assert values(cluster, "t") == [b"%d" % n for n in range(number)]
            cluster.clear_faults()

    run(scenario())


def test_a_partition_without_a_leader_holds_up_no_other_and_expires_by_its_budget() -> None:
    """faults: T11, M9"""

    async def scenario() -> None:
        options = {"buffer_memory": 60_000, "max_request_size": 10_000, "batch_size": 1_000, "linger_ms": 0}
        options |= {"delivery_timeout_ms": 500, "request_timeout_ms": 400, "max_block_ms": 5_000}
        async with started("t", partitions=2, **options) as (cluster, producer):
            for partition in range(2):
                await producer.send("t", b"0", partition=partition)
            cluster.move_leader("t", 0, None)
            dead = [producer.send("t", b"x" * 500, partition=0) for _ in range(60)]
            for number in range(1, 21):  # others progress while there is room
                await producer.send("t", b"%d" % number, partition=1)
            assert not any(delivery.done() for delivery in dead)
            dead += [producer.send("t", b"x" * 500, partition=0) for _ in range(60)]  # fills the buffer, and waits
            await asyncio.sleep(0.25)
            late = producer.send("t", b"21", partition=1)
            assert (await late).offset == 21  # expiry frees it: no deadlock
            outcomes = await asyncio.gather(*dead, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} <= {DeliveryTimeoutError, BufferFullError}
            assert {e.persistence for e in outcomes if isinstance(e, AiokprodError)} == {Persistence.NOT_PERSISTED}
            assert producer.health().buffered_bytes == 0

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- deleted topics
def is_there(cluster: MockCluster, topic: str) -> bool:
    try:
        cluster.topic_id(topic)
    except KeyError:
        return False
    return True


@pytest.mark.parametrize("how", ["metadata ages", "a broker restarts"])
def test_a_topic_that_was_deleted_stays_so_while_no_record_waits_for_it(how: str) -> None:
    """Each refresh asked for all topics of the last minutes with creation: deleted topics were back after a minute.

    faults: T5
    """

    async def scenario(network: VirtualNetwork) -> None:
        cluster = MockCluster(brokers=3, network=network, seed=1, auto_create_topics=True)
        async with cluster, Producer(cluster.bootstrap_servers, dialer=network.dial, **SOON_OLD) as producer:
            await asyncio.gather(producer.send("kept", b"x"), producer.send("gone", b"x"))
            cluster.delete_topic("gone")
            if how == "a broker restarts":
                cluster.stop_broker(1)
                await asyncio.sleep(5)
                cluster.start_broker(1)
            for _ in range(60):
                await producer.send("kept", b"y")
                await asyncio.sleep(1)
            assert not is_there(cluster, "gone")
            await asyncio.gather(producer.send("new", b"x"), producer.send("kept", b"x"))
            assert not is_there(cluster, "gone")
            assert (await producer.send("gone", b"again")).offset == 0  # a record waits: it is created

    run_virtually(scenario)


def test_a_topic_that_was_deleted_while_a_record_is_sent_again_is_created_for_it() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        cluster = MockCluster(brokers=1, network=network, seed=1, auto_create_topics=True)
        async with cluster, Producer(cluster.bootstrap_servers, dialer=network.dial) as producer:
            await producer.send("gone", b"0")
            rule = cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=None)
            delivery = producer.send("gone", b"1")
            await asyncio.sleep(1)
            cluster.delete_topic("gone")
            rule.cancel()
            async with asyncio.timeout(60):
                await delivery
            assert is_there(cluster, "gone")

    run_virtually(scenario)
