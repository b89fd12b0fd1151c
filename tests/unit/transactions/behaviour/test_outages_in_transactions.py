"""No broker answers for minutes, in the middle of a transaction: the producer goes on when they are back, by itself."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from txn_rig import CLUSTERS, committed, run

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import (
    AiokprodError,
    ProducerFailedError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
    UsageError,
)
from aiokprod.model import ProducerState
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

EVERY = pytest.mark.parametrize("version", CLUSTERS)
POOL_PAGE = Path(__file__).parents[4] / "docs" / "exactly_once.md"
BOUND_S = 10.0
"""From the return of the brokers to a transaction that commits."""


def freeze(cluster: MockCluster) -> None:
    for node in cluster.broker_ids:
        cluster.freeze_broker(node)


def thaw(cluster: MockCluster) -> None:
    for node in cluster.broker_ids:
        cluster.thaw_broker(node)


async def outage(cluster: MockCluster, seconds: float) -> None:
    freeze(cluster)
    await asyncio.sleep(seconds)  # virtual
    thaw(cluster)


async def goes_on(cluster: MockCluster, producer: Producer) -> None:
    """Check that a fresh transaction commits, and that the health is READY again."""
    async with asyncio.timeout(BOUND_S):
        async with producer.transaction() as fresh:
            producer.send("t", b"fresh", partition=0)
    assert fresh.outcome is TransactionOutcome.COMMITTED
    assert producer.health().ready and producer.health().state is ProducerState.READY
    assert b"fresh" in await committed(cluster)


@EVERY
@pytest.mark.parametrize("outage_s", [20.0, 250.0, 900.0])
@pytest.mark.parametrize("ending", ["raises", "awaits", "commits"])
def test_the_next_block_begins_when_the_brokers_are_back(version: str, outage_s: float, ending: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        away = None
        with suppress(KeyError, AiokprodError):
            async with producer.transaction():
                await producer.send("t", b"first", partition=0)
                away = asyncio.create_task(outage(cluster, outage_s))
                await asyncio.sleep(0)
                if ending == "raises":
                    raise KeyError("a mistake of the handler")
                delivery = producer.send("t", b"second", partition=1)
                if ending == "awaits":
                    await delivery
        if not producer.health().live:  # below version 2 the coordinator's timeout looks like a fence
            assert version != "TV2"
            return
        assert away is not None
        with suppress(AiokprodError):  # of a block that begins in the outage
            async with producer.transaction():
                producer.send("t", b"third", partition=2)
        await away
        await asyncio.sleep(BOUND_S)
        if version != "TV2" and not producer.health().live:
            return
        await goes_on(cluster, producer)

    run(scenario, CLUSTERS[version])


@EVERY
def test_an_abort_without_an_answer_is_said_and_ends_by_itself(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(KeyError) as raised:
            async with producer.transaction() as transaction:
                await producer.send("t", b"first", partition=0)
                rule = cluster.drop_answer("EndTxn", after_append=False, times=None)
                raise KeyError("a mistake of the handler")
        assert "goes on asking" in raised.value.__notes__[0]
        health = producer.health()
        assert (health.state, health.ready, health.live) == (ProducerState.DEGRADED, False, True)
        assert health.transaction == "unknown" and "how the transaction of 'tx' ended" in str(health.last_error)
        assert transaction.outcome is TransactionOutcome.UNKNOWN
        rule.cancel()
        await asyncio.sleep(5)
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert await producer.abort_transaction() is TransactionOutcome.ABORTED, "no caller has seen it yet"
        await goes_on(cluster, producer)
        assert await committed(cluster) == [b"fresh"]

    run(scenario, CLUSTERS[version], delivery_timeout_ms=3_000, request_timeout_ms=500, max_block_ms=1_000)


def test_a_block_waits_for_the_end_before_it_within_its_time() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send("t", b"first", partition=0)
                freeze(cluster)
                raise KeyError
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(TransactionTimeoutError, match="no transaction has begun"):
            async with producer.transaction():
                pytest.fail("it has begun")
        assert loop.time() - began == pytest.approx(1, abs=0.1)
        with pytest.raises(UsageError, match="not known how"):
            producer.begin_transaction()  # a plain call, which does not wait
        waiting = asyncio.create_task(goes_on(cluster, producer))
        await asyncio.sleep(0.5)
        thaw(cluster)
        await waiting

    run(scenario, delivery_timeout_ms=3_000, request_timeout_ms=500, max_block_ms=1_000)


def test_a_refused_commit_whose_abort_has_no_answer_is_aborted() -> None:
    """Nothing commits it any more: there is no unknown outcome to find out."""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(TransactionAbortedError) as raised:
            async with producer.transaction():
                await producer.send("t", b"first", partition=0)
                cluster.fail_next("Produce", "INVALID_RECORD")
                producer.send("t", b"bad", partition=0)
                cluster.drop_answer("EndTxn", times=None)
        assert any("goes on asking" in note for note in raised.value.__notes__)
        cluster.clear_faults()
        await goes_on(cluster, producer)
        assert await committed(cluster) == [b"fresh"]

    run(scenario, delivery_timeout_ms=3_000, request_timeout_ms=500, max_block_ms=1_000)


def test_an_unknown_commit_is_said_and_left_to_the_caller() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.drop_answer("EndTxn", times=None)
        with pytest.raises(TransactionOutcomeUnknownError):
            async with producer.transaction():
                producer.send("t", b"first", partition=0)
        cluster.clear_faults()
        await asyncio.sleep(5)
        health = producer.health()
        assert (health.state, health.ready, health.transaction) == (ProducerState.DEGRADED, False, "unknown")
        with pytest.raises(UsageError, match="not known how"):
            async with producer.transaction():
                pytest.fail("it has begun")
        assert await producer.abort_transaction() is TransactionOutcome.COMMITTED
        await goes_on(cluster, producer)

    run(scenario, delivery_timeout_ms=3_000, request_timeout_ms=500, max_block_ms=1_000)


def test_a_close_ends_the_wait_of_a_block() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send("t", b"first", partition=0)
                freeze(cluster)
                raise KeyError
        waiting = asyncio.ensure_future(producer.transaction().__aenter__())
        await asyncio.sleep(0.1)
        await producer.close(0.1)
        with pytest.raises(AiokprodError, match="closed"):
            await waiting

    run(scenario, delivery_timeout_ms=3_000, request_timeout_ms=500, max_block_ms=60_000)


# ---------------------------------------------------------------------- time limits
@EVERY
@pytest.mark.parametrize("place", ["body", "commit", "commit_transaction", "abort_transaction"])
def test_a_time_limit_holds_whatever_the_cluster_does(version: str, place: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        loop = asyncio.get_running_loop()

        async def work() -> None:
            if place in ("body", "commit"):
                async with producer.transaction():
                    await producer.send("t", b"first", partition=0)
                    freeze(cluster)
                    delivery = producer.send("t", b"second", partition=1)
                    if place == "body":
                        await delivery
                return
            producer.begin_transaction()
            await producer.send("t", b"first", partition=0)
            freeze(cluster)
            producer.send("t", b"second", partition=1)
            await (producer.commit_transaction() if place == "commit_transaction" else producer.abort_transaction())

        began = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await work()
        assert loop.time() - began < 6
        if place != "commit_transaction":
            with pytest.raises(UsageError):  # the end is under way
                producer.send("t", b"stray", partition=0)
        await asyncio.sleep(20)
        thaw(cluster)
        await asyncio.sleep(BOUND_S)
        await goes_on(cluster, producer)
        seen = await committed(cluster)
        assert seen in ([b"fresh"], [b"first", b"fresh", b"second"])
        assert (b"first" in seen) <= (place.startswith("commit"))

    run(scenario, CLUSTERS[version])


def test_a_block_that_is_cancelled_while_it_commits_ends_after_any_outage() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                async with transaction:
                    await producer.send("t", b"first", partition=0)
                    freeze(cluster)
        await asyncio.sleep(700)
        thaw(cluster)
        await asyncio.sleep(BOUND_S)
        assert transaction.outcome in (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED)
        await goes_on(cluster, producer)

    run(scenario)


# ---------------------------------------------------------------------- the pool of the page
def pool_of_the_page(producer: Any) -> Any:
    """Return the class `TransactionPool` of docs/exactly_once.md, as it stands there."""
    found = re.search(r"^class TransactionPool:.*?(?=^def )", POOL_PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    names: dict[str, Any] = {
        "asyncio": asyncio, "AsyncExitStack": AsyncExitStack, "asynccontextmanager": asynccontextmanager,
        "AsyncGenerator": AsyncGenerator, "Producer": producer, "ProducerFailedError": ProducerFailedError,
        "TransactionOutcomeUnknownError": TransactionOutcomeUnknownError,
    }  # fmt: skip
    exec(found.group(), names)  # of our own page
    return names["TransactionPool"]


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("outage_s", [60.0, 240.0, 600.0])
@pytest.mark.parametrize("kind", ["not awaited", "awaited", "handler raises", "cancelled"])
def test_the_pool_of_the_page_goes_on_after_any_outage(kind: str, outage_s: float) -> None:
    async def place(pool: Any, number: int) -> str:
        try:
            async with asyncio.timeout(5 if kind == "cancelled" else None), pool.transaction() as producer:
                sent = [producer.send("orders", b"%d" % number), producer.send("invoices", b"%d" % number)]
                if kind == "handler raises" and number % 2:
                    raise KeyError("of the handler")
                if kind != "not awaited":
                    await asyncio.gather(*sent)
        except KeyError:
            return "raised"
        except Exception as error:
            return type(error).__name__
        return "placed"

    async def traffic(pool: Any, seconds: float) -> Counter[str]:
        tasks = []
        for number in range(int(seconds)):
            tasks.append(asyncio.create_task(place(pool, number)))
            await asyncio.sleep(1)
        return Counter(await asyncio.gather(*tasks))

    async def whole(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(3, network=network, seed=1, now_ms=wall_ms) as cluster:
            cluster.create_topic("orders")
            cluster.create_topic("invoices")
            pool = pool_of_the_page(partial(Producer, dialer=network.dial))(cluster.bootstrap_servers, "shop", 4)
            async with pool.started():
                during = asyncio.create_task(traffic(pool, outage_s))
                await asyncio.sleep(2)
                await outage(cluster, outage_s)
                await during
                await asyncio.sleep(BOUND_S)
                after = await traffic(pool, 20)
                assert set(after) <= {"placed", "raised"}, after
                assert all(each.health().ready for each in pool._producers)

    run_virtual(whole, seed=1)
