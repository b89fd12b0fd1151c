"""A block whose task is cancelled at any turn of the loop leaves a producer that goes on with the next block."""

from __future__ import annotations

import asyncio

import pytest
from txn_rig import CLUSTERS, committed, run

from aiokprod import Producer, Transaction
from aiokprod.errors import TransactionTimeoutError
from aiokprod.model import TransactionOutcome
from aiokprod.testing import MockCluster
from aiokprod.wire.codes import ErrorCode

EVERY = pytest.mark.parametrize("version", CLUSTERS)


async def block(producer: Producer, transaction: Transaction, raises: bool) -> None:
    async with transaction:
        delivery = producer.send("t", b"first", partition=0)
        if raises:
            await delivery
            raise ValueError("the user's own")


@EVERY
@pytest.mark.parametrize("ending", ["commits", "is refused", "raises"])
def test_the_next_block_begins_after_a_cancelled_end(version: str, ending: str) -> None:
    """faults: X14"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cancelled = 0
        for turns in range(1, 40):
            before = await committed(cluster)
            if ending == "is refused":
                cluster.fail_next("Produce", ErrorCode.INVALID_RECORD, partition=0)
            transaction = producer.transaction()
            ended = asyncio.create_task(block(producer, transaction, ending == "raises"))
            for _ in range(turns):
                await asyncio.sleep(0)
            was_cancelled = ended.cancel()
            await asyncio.wait([ended])
            cancelled += was_cancelled and ended.cancelled()
            async with producer.transaction() as following:
                cluster.clear_faults()
                producer.send("t", b"second", partition=0)
            assert following.outcome is TransactionOutcome.COMMITTED
            is_done = transaction.outcome is TransactionOutcome.COMMITTED
            assert await committed(cluster) == [*before, *[b"first"] * is_done, b"second"]
            if ending != "commits":
                assert transaction.outcome in (None, TransactionOutcome.ABORTED)
        assert cancelled >= 2

    run(scenario, CLUSTERS[version])


def test_a_cancelled_end_is_asked_for_until_it_is_known() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.drop_answer("EndTxn", times=None)
        transaction = producer.transaction()
        ended = asyncio.create_task(block(producer, transaction, raises=False))
        await asyncio.sleep(1)
        ended.cancel()
        await asyncio.wait([ended])
        with pytest.raises(TransactionTimeoutError, match="no transaction has begun"):
            async with producer.transaction():
                pass
        await asyncio.sleep(30)
        assert transaction.outcome is TransactionOutcome.UNKNOWN
        cluster.clear_faults()
        async with producer.transaction():
            assert [transaction.outcome] == [TransactionOutcome.COMMITTED]
        assert await committed(cluster) == [b"first"]

    run(scenario, delivery_timeout_ms=3_000, request_timeout_ms=500, max_block_ms=1_000)


def test_a_producer_that_is_closed_meanwhile_ends_it() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        held = cluster.hold("EndTxn", before_serving=True)
        transaction = producer.transaction()
        ended = asyncio.create_task(block(producer, transaction, raises=False))
        await asyncio.sleep(1)
        ended.cancel()
        await asyncio.wait([ended])
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(1)
        cluster.release(held)
        report = await closing
        assert report.transaction is TransactionOutcome.COMMITTED is transaction.outcome
        assert await committed(cluster) == [b"first"]

    run(scenario)
