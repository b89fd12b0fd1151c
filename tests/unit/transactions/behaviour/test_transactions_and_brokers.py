"""Transactions while brokers stand still or refuse something."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

import pytest
from txn_rig import CLUSTERS, ID, Scenario, committed, run, written

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import (
    BrokerAnswerError,
    OffsetCommitRefusedError,
    TopicAuthorizationError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
    UsageError,
)
from aiokprod.testing import MockCluster
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

Partition = tuple[str, int]
EVERY = pytest.mark.parametrize("version", list(CLUSTERS))
FIRST = pytest.mark.parametrize("version", ["TV1", "TV0"])


def on(version: str, scenario: Scenario, **options: Any) -> None:
    run(scenario, CLUSTERS[version], **options)


# ---------------------------------------------------------------------- coordinators
@pytest.mark.parametrize(
    ("request_timeout_s", "is_kept"), [(30, True), (34, True), (60, True), (120, True), (10, False), (5, False)]
)
def test_a_coordinator_that_stands_still_costs_no_connection_to_a_leader(
    request_timeout_s: int, is_kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """broker: 10.12; a timeout that is shorter than that of the brokers was asked for, and is kept"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.move_coordinator(ID, 1)
        for partition in range(3):
            cluster.move_leader("t", partition, 2)
        async with producer.transaction():
            await producer.send("t", b"0", partition=0)
            await producer.send("t", b"0", partition=1)
        async with producer.transaction():
            await producer.send("t", b"1", partition=0)
            cluster.freeze_broker(1)
            asyncio.get_running_loop().call_later(40, cluster.thaw_broker, 1)
            waits = producer.send("t", b"1", partition=1)
            await asyncio.sleep(0.1)
            assert not waits.done()
            await waits
        assert await committed(cluster) == [b"0", b"1", b"0", b"1"]

    with caplog.at_level(logging.INFO, "aiokprod"):
        on("TV2", scenario, request_timeout_ms=1000 * request_timeout_s)
    torn_down = [each.getMessage() for each in caplog.records if "no answer to api 0 " in each.getMessage()]
    assert (torn_down == []) is is_kept


async def first_batch_behind(cluster: MockCluster, producer: Producer, broken: int) -> tuple[float, float]:
    """Freeze a broker, 1: the coordinator, 2: the leader of all partitions, and send to a new and to an old partition.

    Returns the seconds until the record of each has its outcome. The transaction is committed when the broker is awake.
    """
    loop = asyncio.get_running_loop()

    async def seconds(delivery: Awaitable[object]) -> float:
        await delivery
        return loop.time() - began

    cluster.move_coordinator(ID, 1)
    for partition in range(3):
        cluster.move_leader("t", partition, 2)
    async with producer.transaction():
        await producer.send("t", b"old 1", partition=0)
        cluster.freeze_broker(broken)
        began = loop.time()
        first = asyncio.create_task(seconds(producer.send("t", b"new", partition=1)))
        await asyncio.sleep(0.1)
        waits = await asyncio.gather(first, seconds(producer.send("t", b"old 2", partition=0)))
        cluster.thaw_broker(broken)
    assert await committed(cluster) == [b"old 1", b"old 2", b"new"] == written(cluster)
    return waits[0], waits[1]


@pytest.mark.parametrize(("request_timeout_s", "closed"), [(5, 4), (10, 2), (21, 1), (30, 0), (60, 0)])
def test_below_30_s_each_timeout_closes_the_connection_to_the_leader_and_writes_nothing_twice(
    request_timeout_s: int, closed: int
) -> None:
    """broker: 10.12; docs/transactions.md says this, under "Versions" """

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        asyncio.get_running_loop().call_later(22, cluster.thaw_broker, 1)
        before = cluster.requests_seen("ApiVersions", 2)
        new, old = await first_batch_behind(cluster, producer, 1)
        assert cluster.requests_seen("ApiVersions", 2) - before == closed + 1, (
            "a first connection, and one for each closed"
        )
        assert 21.9 < new < 23 and 21.9 < old < 23, "the answers come in order"
        assert producer.metrics()["batches_resent"] == 2 * closed, "the new partition's and the old one's"

    on("TV2", scenario, request_timeout_ms=1000 * request_timeout_s)


@pytest.mark.parametrize(("request_timeout_s", "after_s"), [(5, 10), (10, 10), (30, 30), (60, 30)])
def test_behind_a_coordinator_that_is_replaced_a_short_timeout_goes_on_sooner(
    request_timeout_s: int, after_s: float
) -> None:
    """broker: 10.12; the leader goes on waiting for the old one, but a request that is sent again asks the new one"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        asyncio.get_running_loop().call_later(9, cluster.move_coordinator, ID, 3)
        new, old = await first_batch_behind(cluster, producer, 1)
        assert after_s <= new < after_s + 1 and after_s <= old < after_s + 1

    on("TV2", scenario, request_timeout_ms=1000 * request_timeout_s)


@pytest.mark.parametrize(("request_timeout_s", "after_s"), [(5, 5), (10, 10), (30, 35), (60, 60)])
def test_a_leader_that_stands_still_at_a_first_batch_is_given_up_after_a_short_timeout(
    request_timeout_s: int, after_s: float
) -> None:
    """Why a short timeout is kept: every transaction has first batches, and this is the more frequent trouble."""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        for partition in range(3):
            loop.call_later(3, cluster.move_leader, "t", partition, 3)
        new, old = await first_batch_behind(cluster, producer, 2)
        assert after_s <= new < after_s + 5 and after_s <= old < after_s + 5  # metadata may be asked of it, too

    on("TV2", scenario, request_timeout_ms=1000 * request_timeout_s)


@EVERY
@pytest.mark.parametrize("request_timeout_s", [5, 10, 30, 60, 120])
@pytest.mark.parametrize("call", ["commit", "offsets"])
def test_a_coordinator_that_stands_still_and_is_replaced_costs_one_attempt(
    call: str, request_timeout_s: int, version: str
) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        cluster.move_coordinator(ID, 1)
        cluster.move_group_coordinator("g", 1)
        cluster.move_leader("t", 0, 2)
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.send_offsets_to_transaction({("t", 0): 1}, "g")
        cluster.freeze_broker(1)
        loop.call_later(4, cluster.move_coordinator, ID, 3)
        loop.call_later(4, cluster.move_group_coordinator, "g", 3)
        began = loop.time()
        if call == "offsets":
            await producer.send_offsets_to_transaction({("t", 0): 2}, "g")
        else:
            await producer.commit_transaction()
        assert loop.time() - began < min(request_timeout_s, 30) + 1
        if call == "offsets":
            await producer.commit_transaction()
        cluster.thaw_broker(1)
        assert await committed(cluster) == [b"v"]

    on(version, scenario, request_timeout_ms=1000 * request_timeout_s)


@EVERY
def test_a_successor_of_a_crashed_instance_writes_soon(version: str) -> None:
    """faults: X22"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        now = asyncio.get_running_loop().time
        producer.begin_transaction()
        await producer.send("t", b"lost", partition=0)
        began = now()
        async with Producer(producer.config.replace(client_id="successor")) as successor, successor.transaction():
            await successor.send("t", b"next", partition=0)
            assert now() - began < 2
        assert now() - began < 2
        assert await committed(cluster) == [b"next"]

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("has_been_done", [False, True])
def test_a_refusal_behind_a_lost_answer_does_not_make_the_end_certain(version: str, has_been_done: bool) -> None:
    """faults: X7"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        lost = cluster.swallow_next("EndTxn", before_serving=not has_been_done)
        refused = cluster.fail_next("EndTxn", 15, times=None)
        with pytest.raises(TransactionOutcomeUnknownError):
            await producer.commit_transaction(timeout=8)
        assert lost.hits == 1 and refused.hits >= 1
        with pytest.raises(UsageError, match="not known"):
            producer.begin_transaction()
        cluster.clear_faults()
        await producer.commit_transaction()
        assert await committed(cluster) == [b"v"]

    on(version, scenario, request_timeout_ms=2000)


# ---------------------------------------------------------------------- partitions
@FIRST
def test_partitions_that_were_added_before_one_is_refused_are_aborted_with_it(version: str) -> None:
    """faults: X16"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.create_topic("secret", partitions=1)
        await producer.partitions_for("secret")  # so that one request adds both

        def refuse(answer: object, version: int) -> object:
            assert isinstance(answer, AddPartitionsToTxnResponse)
            for topic in answer.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    result.partition_error_code = 29 if topic.name == "secret" else 55
            return answer

        with pytest.raises(TransactionAbortedError) as caught:
            async with producer.transaction() as transaction:
                await producer.send("t", b"early", partition=0)
                assert cluster.transaction(ID).partitions == {("t", 0)}
                cluster.rewrite_answer("AddPartitionsToTxn", refuse)
                producer.send("secret", b"v")
                producer.send("t", b"beside", partition=1)
        assert isinstance(caught.value.__cause__, TopicAuthorizationError)
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert cluster.requests_seen("EndTxn") == 1, "the coordinator knows the first one"
        async with producer.transaction():
            producer.send("t", b"next", partition=0)
        assert (await committed(cluster), written(cluster)) == ([b"next"], [b"early", b"next"])

    on(version, scenario)


@EVERY
def test_batches_in_flight_behind_one_that_is_sent_again_stay_in_order(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        expected = [b"%03d" % number + bytes(90) for number in range(30)]
        async with producer.transaction():
            await producer.send("t", expected[0], partition=0)
            cluster.fail_next("Produce", 6, times=2)
            for value in expected[1:]:
                producer.send("t", value, partition=0)
        assert producer.metrics()["chaser_rounds"] >= 1
        assert await committed(cluster) == expected == written(cluster)

    on(version, scenario, batch_size=200, linger_ms=0)


# ---------------------------------------------------------------------- offsets
@EVERY
@pytest.mark.parametrize(
    ("known", "missing", "told"),
    [
        ([("t", 0)], [("nowhere", 7)], "the cluster has no partition 7 of topic 'nowhere'"),
        ([], [("nowhere", 0)], "the cluster has no partition 0 of topic 'nowhere'"),
        ([("t", 1)], [("t", 3), ("nowhere", 0)], "no partition 3 of topic 't' and partition 0 of topic 'nowhere'"),
    ],
)
def test_offsets_of_a_partition_that_does_not_exist_are_refused_soon(
    known: list[Partition], missing: list[Partition], told: str, version: str
) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        with pytest.raises(OffsetCommitRefusedError, match=told) as caught:
            async with producer.transaction() as transaction:
                await producer.send("t", b"v", partition=0)
                await transaction.send_offsets(dict.fromkeys([*known, *missing], 1), "g")
        assert 3 <= now() - began < 5, "a new partition gets 3 s"
        error = caught.value
        assert ((error.topic, error.partition), error.code) == (missing[0], 3)
        assert "correct or create the topic" in error.advice
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert (await committed(cluster), cluster.committed_offsets("g")) == ([], {})
        assert list(cluster.topics) == ["t"], "nothing is created"
        async with producer.transaction() as transaction:
            await transaction.send_offsets({("t", 0): 1}, "g")
        assert transaction.outcome is TransactionOutcome.COMMITTED

    on(version, scenario)


@EVERY
def test_a_commit_beside_offsets_of_a_missing_partition_is_refused(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        calls = [
            asyncio.create_task(producer.send_offsets_to_transaction(offsets, "g"))
            for offsets in ({("t", 0): 1, ("t", 9): 1}, {("t", 1): 1})
        ]
        await asyncio.sleep(0.1)
        with pytest.raises(OffsetCommitRefusedError, match="partition 9 of topic 't'"):
            await producer.commit_transaction()
        for call in calls:
            with pytest.raises(OffsetCommitRefusedError, match="partition 9 of topic 't'"):
                await call
        with pytest.raises(TransactionAbortedError) as caught:
            producer.send("t", b"late")
        assert isinstance(caught.value.__cause__, OffsetCommitRefusedError)
        await producer.abort_transaction()
        assert (await committed(cluster), cluster.committed_offsets("g")) == ([], {})

    on(version, scenario)


@EVERY
def test_the_question_whether_a_partition_exists_is_no_part_of_the_next_transaction(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        held = cluster.hold("Metadata", times=1)  # the refresh after its timeout would stop the broker of the abort
        call = asyncio.create_task(producer.send_offsets_to_transaction({("t", 9): 1}, "g"))
        while not held.hits:
            await asyncio.sleep(0.01)
        began = asyncio.get_running_loop().time()
        await producer.abort_transaction()
        assert asyncio.get_running_loop().time() - began < 2.1, "LOOK_S at most"
        with pytest.raises(TransactionAbortedError):
            await call
        async with producer.transaction():
            await producer.send("t", b"next", partition=0)
            cluster.release(held)
            await asyncio.sleep(3)
        assert await committed(cluster) == [b"next"]

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("late_s", [1.0, 10.0])
def test_offsets_of_a_partition_that_the_coordinator_hears_of_late_are_taken(version: str, late_s: float) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        fault = cluster.fail_next("TxnOffsetCommit", 3, times=1_000)
        asyncio.get_running_loop().call_later(late_s, fault.cancel)
        began = asyncio.get_running_loop().time()
        async with producer.transaction() as transaction:
            await transaction.send_offsets({("t", 0): 1}, "g")
        assert late_s <= asyncio.get_running_loop().time() - began < late_s + 1
        await committed(cluster)
        assert {where: place.offset for where, place in cluster.committed_offsets("g").items()} == {("t", 0): 1}

    on(version, scenario)


@EVERY
def test_offsets_of_a_partition_that_is_created_a_moment_later_are_taken(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        asyncio.get_running_loop().call_later(2.5, cluster.create_topic, "new")
        async with producer.transaction() as transaction:
            await transaction.send_offsets({("new", 0): 1}, "g")
        assert transaction.outcome is TransactionOutcome.COMMITTED

    on(version, scenario)


@EVERY
def test_offsets_that_only_the_coordinator_does_not_know_are_named_when_their_time_is_over(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next("TxnOffsetCommit", 3, times=1_000)
        with pytest.raises(TransactionTimeoutError, match=r"group 'g' .* within 5 s \(max_block_ms\)") as caught:
            async with producer.transaction() as transaction:
                await producer.send("t", b"v", partition=0)
                await transaction.send_offsets({("t", 1): 1}, "g")
        cause = caught.value.__cause__
        assert isinstance(cause, BrokerAnswerError)
        assert (cause.topic, cause.partition, cause.code) == ("t", 1, 3)
        assert "partition 1 of topic 't'" in str(cause) and "UNKNOWN_TOPIC_OR_PARTITION" in str(cause)
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert (await committed(cluster), cluster.committed_offsets("g")) == ([], {})

    on(version, scenario, max_block_ms=5_000)
