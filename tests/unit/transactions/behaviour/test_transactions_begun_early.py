"""Transactions that begin before the transactional id is taken: the same rules, and no wait without a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from txn_rig import CLUSTERS, committed, producer_of

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import (
    ProducerClosedError,
    SendTimeoutError,
    TransactionAbortedError,
    TransactionTimeoutError,
    UsageError,
)
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

EVERY = pytest.mark.parametrize("version", list(CLUSTERS))
Scenario = Callable[[MockCluster, Producer], Awaitable[None]]


def without_a_cluster(scenario: Scenario, version: str = "TV2", **options: Any) -> None:
    """Run the scenario with a producer that has started in the background, while each broker refuses connections."""

    async def whole(network: VirtualNetwork, random: Random) -> None:
        settings = {"seed": 1, "auto_create_topics": False, "now_ms": wall_ms} | CLUSTERS[version]
        async with MockCluster(3, network=network, **settings) as cluster:
            cluster.create_topic("t", partitions=3)
            for node in cluster.broker_ids:
                cluster.refuse_connections(node)
            producer = producer_of(cluster, network, **options)
            await producer.start(wait=False)
            try:
                async with asyncio.timeout(1000):  # virtual: a hang fails the test
                    await scenario(cluster, producer)
            finally:
                await producer.close(5)

    run_virtual(whole, seed=1)


async def connect(cluster: MockCluster) -> None:
    """Let the producer find the cluster, and take its id."""
    for node in cluster.broker_ids:
        cluster.allow_connections(node)
    await asyncio.sleep(5)  # virtual


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@EVERY
@pytest.mark.parametrize("end", ["commit", "block"])
def test_a_record_that_fails_meanwhile_aborts(version: str, end: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        await transaction.__aenter__()
        kept = producer.send("t", b"kept", partition=0)
        producer.send("t", b"late", partition=0, timeout=0.5)
        await asyncio.sleep(1)
        assert isinstance(kept.exception(), TransactionAbortedError), "what waits fails with it, as in each transaction"
        with pytest.raises(TransactionAbortedError, match="can only be aborted"):
            producer.send("t", b"next", partition=0)
        with pytest.raises(TransactionAbortedError, match="can only be aborted"):
            await transaction.send_offsets({("t", 0): 1}, "g")
        await connect(cluster)
        if end == "commit":
            with pytest.raises(SendTimeoutError):
                await producer.commit_transaction()
            assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        else:
            with pytest.raises(TransactionAbortedError) as caught:
                await transaction.__aexit__(None, None, None)
            assert isinstance(caught.value.__cause__, SendTimeoutError)
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert await committed(cluster) == []
        async with producer.transaction():
            producer.send("t", b"again", partition=0)
        assert await committed(cluster) == [b"again"]

    without_a_cluster(scenario, version)


def test_a_failure_refuses_the_commit_that_waits() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        producer.send("t", b"late", partition=0, timeout=2.0)
        with pytest.raises(SendTimeoutError):
            await producer.commit_transaction()
        assert await producer.abort_transaction() is TransactionOutcome.ABORTED

    without_a_cluster(scenario)


def test_a_commit_has_its_bound() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        producer.begin_transaction()
        delivery = producer.send("t", b"v", partition=0)
        began = loop.time()
        with pytest.raises(TransactionTimeoutError):
            await producer.commit_transaction(timeout=3)
        assert loop.time() - began == pytest.approx(3, abs=0.1)
        assert isinstance(delivery.exception(), TransactionAbortedError)
        with pytest.raises(TransactionTimeoutError):
            await producer.commit_transaction()
        assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        with pytest.raises(TransactionAbortedError):  # by its own bound, as nothing is said of one
            async with producer.transaction():
                pass
        assert loop.time() - began < 300

    without_a_cluster(scenario)


def test_nothing_else_is_let_in_while_a_commit_waits() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        with pytest.raises(UsageError, match="open already"):
            producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        commits = [asyncio.create_task(producer.commit_transaction()) for _ in range(2)]
        await turns()
        with pytest.raises(UsageError, match="being committed"):
            producer.send("t", b"late", partition=0)
        with pytest.raises(UsageError, match="being committed"):
            await producer.abort_transaction()
        with pytest.raises(UsageError, match="being committed"):
            await producer.send_offsets_to_transaction({("t", 0): 1}, "g")
        with pytest.raises(UsageError, match="being committed"):
            producer.begin_transaction()
        await connect(cluster)
        await asyncio.gather(*commits)
        assert await committed(cluster) == [b"v"]

    without_a_cluster(scenario)


@EVERY
def test_a_cancelled_commit_goes_on(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await turns()
        commit.cancel()
        await asyncio.wait([commit])
        await connect(cluster)
        assert await committed(cluster) == [b"v"]
        await producer.commit_transaction()  # tells it

    without_a_cluster(scenario, version)


@EVERY
def test_offsets_are_part_of_the_commit_behind_them(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        offsets = asyncio.create_task(producer.send_offsets_to_transaction({("t", 0): 7}, "g"))
        await turns()
        commit = asyncio.create_task(producer.commit_transaction())
        await connect(cluster)
        await offsets
        await commit
        assert {at: place.offset for at, place in cluster.committed_offsets("g").items()} == {("t", 0): 7}

    without_a_cluster(scenario, version)


def test_offsets_have_their_bound_and_end_with_an_abort() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        with pytest.raises(TransactionTimeoutError, match="max_block_ms"):
            await producer.send_offsets_to_transaction({("t", 0): 7}, "g")
        with pytest.raises(TransactionTimeoutError, match="max_block_ms"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        producer.begin_transaction()
        offsets = asyncio.create_task(producer.send_offsets_to_transaction({("t", 0): 7}, "g"))
        await turns()
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await offsets

    without_a_cluster(scenario, max_block_ms=3000)


def test_a_close_ends_a_commit_that_waits() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        await transaction.__aenter__()
        producer.send("t", b"v", partition=0)
        commit = asyncio.create_task(producer.commit_transaction())
        await turns()
        report = await producer.close(5)
        assert report.transaction is TransactionOutcome.ABORTED
        with pytest.raises(TransactionAbortedError) as caught:
            await commit
        assert isinstance(caught.value.__cause__, ProducerClosedError)
        with pytest.raises(ProducerClosedError):
            await transaction.__aexit__(None, None, None)
        assert transaction.outcome is TransactionOutcome.ABORTED

    without_a_cluster(scenario)
