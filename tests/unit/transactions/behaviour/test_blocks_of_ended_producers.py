"""The end of a block whose producer was fenced, closed or has failed before it: told, and in the way of no other exception."""

from __future__ import annotations

import asyncio

import pytest
from txn_rig import CLUSTERS, committed, run

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import ClusterAuthorizationError, ProducerClosedError, ProducerFailedError, ProducerFencedError
from aiokprod.testing import MockCluster

EVERY = pytest.mark.parametrize("version", list(CLUSTERS))
FIRST = pytest.mark.parametrize("version", ["TV1", "TV0"])


def crash(producer: Producer) -> None:
    pipeline = producer._life.pipeline
    assert pipeline is not None
    pipeline.crashed(ZeroDivisionError("a bug"))


@FIRST
def test_a_fence_inside_the_block_is_raised_by_its_end(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        cluster.fail_next("Produce", 47)
        with pytest.raises(ProducerFencedError):
            async with transaction:
                producer.send("t", b"v", partition=0)  # not awaited by any task
                await asyncio.sleep(1)
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert await committed(cluster) == []

    run(scenario, CLUSTERS[version])


@EVERY
def test_a_close_behind_a_failure_tells_of_the_transaction_that_was_open_then(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        crash(producer)
        await asyncio.sleep(1)
        assert (await producer.close()).transaction is TransactionOutcome.ABORTED
        await producer.start()
        producer.begin_transaction()
        await producer.send("t", b"w", partition=0)
        cluster.blackhole_next("EndTxn")
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(1)
        crash(producer)
        with pytest.raises(ProducerFailedError):
            await commit
        assert (await producer.close()).transaction is TransactionOutcome.UNKNOWN
        await producer.start()
        async with producer.transaction():
            producer.send("t", b"x", partition=0)
        crash(producer)
        assert (await producer.close()).transaction is None, "none was open"

    run(scenario, CLUSTERS[version])


@EVERY
def test_a_close_behind_a_fence_tells_of_the_transaction_that_was_open_then(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for inside in (True, False):
            producer.begin_transaction()
            await producer.send("t", b"v", partition=0)
            if not inside:
                await producer.commit_transaction()
                producer.begin_transaction()
            cluster.fail_next("EndTxn" if inside else "TxnOffsetCommit", 90 if inside else 53)
            with pytest.raises((ProducerFencedError, ClusterAuthorizationError)):
                if inside:
                    await producer.abort_transaction()
                else:
                    await producer.send_offsets_to_transaction({("t", 0): 1}, "g")
            assert (await producer.close()).transaction is TransactionOutcome.ABORTED
            await producer.start()

    run(scenario, CLUSTERS[version])


@EVERY
def test_a_fence_that_a_close_finds_is_told_once(version: str, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.fail_next("EndTxn", 90)
        assert (await producer.close()).transaction is TransactionOutcome.ABORTED
        assert len([line for line in caplog.messages if "FAILED because" in line]) == 1

    run(scenario, CLUSTERS[version])


@EVERY
@pytest.mark.parametrize("bound", [0, 5], ids=["at once", "in time"])
def test_a_close_inside_the_block_is_raised_by_its_end(version: str, bound: float) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        with pytest.raises(ProducerClosedError):
            async with transaction:
                await producer.send("t", b"v", partition=0)
                report = await producer.close(bound)
        assert transaction.outcome is report.transaction
        assert await committed(cluster) == []

    run(scenario, CLUSTERS[version])


@EVERY
def test_a_commit_inside_the_block_that_a_close_lets_go_on_is_a_normal_end(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction() as transaction:
            producer.send("t", b"v", partition=0)
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await producer.close()
            await commit
        assert transaction.outcome is TransactionOutcome.COMMITTED
        assert await committed(cluster) == [b"v"]

    run(scenario, CLUSTERS[version])


def test_a_block_ends_no_transaction_of_a_later_start() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(ProducerClosedError):
            async with producer.transaction():
                producer.send("t", b"former", partition=0)
                await producer.close(0)
                await producer.start()
                producer.begin_transaction()
                producer.send("t", b"later", partition=1)
        assert producer.health().transaction == "open"
        await producer.commit_transaction()
        assert await committed(cluster) == [b"later"]

    run(scenario)


@pytest.mark.parametrize("raises", [False, True], ids=["normal end", "exception"])
def test_a_crash_inside_the_block_hides_no_exception_of_it(raises: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        with pytest.raises(KeyError if raises else ProducerFailedError):
            async with transaction:
                producer.send("t", b"v", partition=0)
                crash(producer)
                if raises:
                    raise KeyError
        assert transaction.outcome is TransactionOutcome.ABORTED, "nothing has asked for a commit"

    run(scenario)


def test_a_close_that_goes_on_beside_the_end_of_a_block_hides_no_exception_of_it() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.delay_next("EndTxn", 2.0)
        with pytest.raises(KeyError) as caught:
            async with producer.transaction():
                await producer.send("t", b"v", partition=0)
                closing = asyncio.create_task(producer.close())
                await asyncio.sleep(1)
                raise KeyError
        assert "could not be aborted (ProducerClosedError)" in caught.value.__notes__[0]
        assert (await closing).transaction is TransactionOutcome.ABORTED

    run(scenario)


@EVERY
def test_nothing_is_asked_for_once_the_pipeline_has_ended(version: str) -> None:
    """Connections are closed one by one: the end of one drained the transaction, and its abort left by another."""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v")
        transactor = producer._transactor()
        transactor.stop()
        abort = asyncio.create_task(transactor.abort(None))
        await asyncio.sleep(1.0)
        assert not cluster.requests_seen("EndTxn")
        abort.cancel()

    run(scenario, CLUSTERS[version])
