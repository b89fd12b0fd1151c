"""Calls that end one transaction side by side: each waits for its own timeout, and what goes on is not stopped by it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from txn_rig import CLUSTERS, committed, run

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import TransactionOutcomeUnknownError, UsageError
from aiokprod.testing import MockCluster

EVERY = pytest.mark.parametrize("version", list(CLUSTERS))


async def told_after(call: Any) -> tuple[object, float]:
    """Return the result or the error of a call, and how long it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        result: object = await call
    except TransactionOutcomeUnknownError as error:
        result = error
    return result, loop.time() - began


@EVERY
@pytest.mark.parametrize("timeouts", [(100, 2), (2, 100)], ids=["the second is shorter", "the first is shorter"])
@pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction", "prepare_transaction"])
def test_each_call_waits_for_its_own_timeout(version: str, name: str, timeouts: tuple[float, float]) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        if name == "prepare_transaction":
            rule = cluster.hold("Produce", before_serving=True)
            producer.send("t", b"w", partition=0)
        else:
            rule = cluster.hold("EndTxn", before_serving=True)
        call = getattr(producer, name)
        tasks = [asyncio.create_task(told_after(call(timeout))) for timeout in timeouts]
        await asyncio.sleep(3)
        short, long = sorted(tasks, key=lambda task: not task.done())
        error, took = await short
        assert isinstance(error, TransactionOutcomeUnknownError)
        assert "goes on, for another call" in str(error)
        assert took == pytest.approx(2)
        assert not long.done()
        cluster.release(rule)
        result, took = await long
        assert took < 4
        if name == "abort_transaction":
            assert result is TransactionOutcome.ABORTED
        elif name == "commit_transaction":
            assert await committed(cluster) == [b"v"]
        else:
            assert await producer.prepare_transaction() == result

    run(scenario, CLUSTERS[version])


@EVERY
def test_the_caller_that_has_left_is_told_by_its_next_call(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        rule = cluster.hold("EndTxn", before_serving=True)
        first = asyncio.create_task(producer.commit_transaction(100))
        await asyncio.sleep(0.1)
        first.cancel()
        with pytest.raises(TransactionOutcomeUnknownError):
            await producer.commit_transaction(1)
        with pytest.raises(UsageError, match="being committed"):
            await producer.abort_transaction()
        with pytest.raises(UsageError, match="being committed"):
            producer.begin_transaction()
        cluster.release(rule)
        await asyncio.sleep(1)
        await producer.commit_transaction(1)
        async with producer.transaction():
            producer.send("t", b"w", partition=0)
        assert await committed(cluster) == [b"v", b"w"]

    run(scenario, CLUSTERS[version])


@EVERY
def test_of_equal_timeouts_all_are_told_how_it_stands(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.blackhole_next("EndTxn")
        told = await asyncio.gather(*(told_after(producer.commit_transaction(2)) for _ in range(3)))
        assert [took for _, took in told] == [pytest.approx(2)] * 3
        assert ["has not said in time" in str(error) for error, _ in told] == [True] * 3
        await producer.commit_transaction()
        assert await committed(cluster) == [b"v"]

    run(scenario, CLUSTERS[version])


def test_a_commit_before_the_id_is_taken_waits_for_its_own_timeout() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        await producer.close()
        rule = cluster.hold("InitProducerId", before_serving=True)
        await producer.start(wait=False)
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        first = asyncio.create_task(told_after(producer.commit_transaction(100)))
        error, took = await told_after(producer.commit_transaction(2))
        assert isinstance(error, TransactionOutcomeUnknownError)
        assert took == pytest.approx(2)
        cluster.release(rule)
        assert (await first)[0] is None
        assert await committed(cluster) == [b"v"]

    run(scenario)
