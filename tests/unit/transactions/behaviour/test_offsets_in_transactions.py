"""Offsets of consumer groups in transactions."""

from __future__ import annotations

import asyncio

import pytest
from txn_rig import CLUSTERS, ID, Scenario, committed, run

from aiokprod import GroupMetadata, Producer, TransactionOutcome
from aiokprod.errors import OffsetCommitRefusedError, RecordTypeError, TransactionAbortedError, UsageError
from aiokprod.testing import MockCluster

EVERY = pytest.mark.parametrize("version", list(CLUSTERS))


def on(version: str, scenario: Scenario) -> None:
    run(scenario, CLUSTERS[version])


async def offsets(cluster: MockCluster, group: str = "g") -> dict[tuple[str, int], int]:
    await asyncio.sleep(0.1)  # virtual: until the markers are written
    return {where: place.offset for where, place in cluster.committed_offsets(group).items()}


@EVERY
def test_offsets_are_committed_with_the_records(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for number in range(1, 4):
            async with producer.transaction() as transaction:
                producer.send("t", b"%d" % number, partition=0)
                await transaction.send_offsets({("t", 1): 10 * number, ("t", 2): number}, "g")
                assert (await offsets(cluster)).get(("t", 1), 0) == 10 * (number - 1)
            assert await offsets(cluster) == {("t", 1): 10 * number, ("t", 2): number}
        versions = {seen.version for seen in cluster.requests("TxnOffsetCommit")}
        assert versions == ({5} if version == "TV2" else {4})
        assert bool(cluster.requests_seen("AddOffsetsToTxn")) == (version != "TV2")

    on(version, scenario)


@EVERY
def test_offsets_alone_make_a_transaction(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({("t", 1): 10}, GroupMetadata("g"))
        await producer.commit_transaction()
        assert await offsets(cluster) == {("t", 1): 10}

    on(version, scenario)


@EVERY
def test_offsets_of_an_aborted_transaction_are_forgotten(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                await transaction.send_offsets({("t", 1): 10}, "g")
                raise ZeroDivisionError
        assert await offsets(cluster) == {}

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("code", [22, 25, 27, 82, 113])
def test_a_group_that_has_moved_on_aborts(version: str, code: int) -> None:
    """faults: X17"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next("TxnOffsetCommit", code)
        with pytest.raises(OffsetCommitRefusedError, match="moved on") as caught:
            async with producer.transaction() as transaction:
                producer.send("t", b"v", partition=0)
                await transaction.send_offsets({("t", 1): 10}, "g")
        assert caught.value.code == code
        assert transaction.outcome is TransactionOutcome.ABORTED
        producer.begin_transaction()
        cluster.fail_next("TxnOffsetCommit", code)
        with pytest.raises(OffsetCommitRefusedError):
            await producer.send_offsets_to_transaction({("t", 1): 10}, "g")
        with pytest.raises(OffsetCommitRefusedError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        assert await committed(cluster) == []

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("code", [14, 15, 16, 51, 3, 7])
@pytest.mark.parametrize("api", ["TxnOffsetCommit", "AddOffsetsToTxn"])
def test_codes_that_pass_are_waited_for(version: str, api: str, code: int) -> None:
    """faults: X2, X17"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        if api == "AddOffsetsToTxn" and code == 3:
            return  # a code about partitions
        cluster.fail_next(api, code, times=3)
        async with producer.transaction() as transaction:
            await transaction.send_offsets({("t", 1): 10}, "g")
        assert await offsets(cluster) == {("t", 1): 10}

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("api", ["TxnOffsetCommit", "AddOffsetsToTxn", "FindCoordinator"])
def test_an_answer_that_is_lost_is_asked_for_again(version: str, api: str) -> None:
    """faults: X17"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.drop_answer(api)
        async with producer.transaction() as transaction:
            await transaction.send_offsets({("t", 1): 10}, "g")
        cluster.kill_broker(cluster.group_coordinator("g"))
        async with producer.transaction() as transaction:
            await transaction.send_offsets({("t", 1): 20}, "g")
        assert await offsets(cluster) == {("t", 1): 20}

    on(version, scenario)


def test_calls_that_mean_nothing_change_nothing() -> None:
    """faults: X15"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.send_offsets_to_transaction({("t", 1): 10}, "g")
        transaction = producer.transaction()
        with pytest.raises(UsageError, match="not open"):
            await transaction.send_offsets({("t", 1): 10}, "g")
        async with transaction:
            with pytest.raises(RecordTypeError):
                await transaction.send_offsets({"t": 10}, "g")
            with pytest.raises(RecordTypeError):
                await transaction.send_offsets({("t", 1): 10}, 7)
            await transaction.send_offsets({}, "g")
        with pytest.raises(UsageError, match="not open"):
            await transaction.send_offsets({("t", 1): 10}, "g")
        assert not cluster.requests_seen("TxnOffsetCommit")

    on("TV2", scenario)


@EVERY
def test_an_abort_ends_the_wait_for_offsets(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        cluster.fail_next("TxnOffsetCommit", 14, times=None)
        waiting = asyncio.create_task(producer.send_offsets_to_transaction({("t", 1): 10}, "g"))
        await asyncio.sleep(1)
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await waiting

    on(version, scenario)


@EVERY
def test_a_cancelled_wait_does_not_hold_the_commit_up(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        rule = cluster.hold("TxnOffsetCommit", before_serving=True)
        waiting = asyncio.create_task(producer.send_offsets_to_transaction({("t", 1): 10}, "g"))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(1)
        assert not commit.done(), "the offsets are part of the transaction"
        cluster.release(rule)
        await commit
        assert await offsets(cluster) == {("t", 1): 10}

    on(version, scenario)


@pytest.mark.parametrize("version", ["TV1", "TV0"])
def test_offsets_whose_transaction_fails_before_they_are_sent_do_not_hold_its_abort(version: str) -> None:
    """All on one broker: the answers to Produce and to AddOffsetsToTxn come in one turn of the loop."""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        leader = cluster.leader("t", 0)
        assert leader is not None
        cluster.move_coordinator(ID, leader)
        cluster.move_group_coordinator("g", leader)
        async with producer.transaction() as transaction:
            await producer.send("t", b"0", partition=0)
            await transaction.send_offsets({("t", 1): 1}, "g")
        producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        cluster.fail_next("Produce", "INVALID_RECORD")
        producer.send("t", b"2", partition=0)
        with pytest.raises(TransactionAbortedError):
            await producer.send_offsets_to_transaction({("t", 1): 2}, "g")
        assert await producer.abort_transaction(1.0) is TransactionOutcome.ABORTED
        assert await offsets(cluster) == {("t", 1): 1}

    run(scenario, CLUSTERS[version], linger_ms=0)
