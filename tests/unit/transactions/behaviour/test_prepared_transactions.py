"""Transactions that one producer prepares and a stranger ends, on a `MockCluster` in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest
from txn_rig import CLUSTERS, ID, QUICK, committed, started

from aiokprod import PreparedPartition, PreparedTransaction, Producer, TransactionOutcome, end_transaction
from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    ClusterAuthorizationError,
    ConfigError,
    TopicAuthorizationError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
    UsageError,
)
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

EVERY = pytest.mark.parametrize("version", list(CLUSTERS))
EITHER = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
End = Callable[..., Coroutine[Any, Any, bool]]
Scenario = Callable[[MockCluster, Producer, End], Awaitable[None]]


def on(version: str, scenario: Scenario, cluster_options: dict[str, Any] | None = None, **options: Any) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        async with started(network, CLUSTERS[version] | (cluster_options or {}), **options) as (cluster, producer):

            async def end(prepared: PreparedTransaction, commit: bool = True, **more: Any) -> bool:
                return await end_transaction(
                    cluster.bootstrap_servers, prepared, commit, **({"dialer": network.dial} | QUICK | more)
                )

            async with asyncio.timeout(2000):  # virtual
                await scenario(cluster, producer, end)

    run_virtual(whole, seed=1)


async def prepared_by(producer: Producer, *values: bytes) -> PreparedTransaction:
    producer.begin_transaction()
    for value in values or (b"v",):
        producer.send("t", value, partition=0)
    return await producer.prepare_transaction()


# ---------------------------------------------------------------------- prepare
@EVERY
def test_it_names_what_was_written(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        async with producer.transaction():
            producer.send("t", b"before", partition=0)
        producer.begin_transaction()
        for number in range(5):
            producer.send("t", b"%d" % number, partition=0)
        producer.send("t", b"x", partition=2)
        prepared = await producer.prepare_transaction()
        owner = cluster.transaction(ID)
        assert (prepared.producer_id, prepared.epoch) == (owner.producer_id, owner.epoch)
        assert prepared.transactional_id == ID
        assert prepared.version == (2 if version == "TV2" else 1)
        assert prepared.is_begun
        places = {each.partition: each for each in prepared.partitions}
        assert places[0] == PreparedPartition("t", 0, 2, 6, 5), "a marker is at offset 1"
        assert places[2] == PreparedPartition("t", 2, 0, 0, 1)
        assert len(places) == 2
        assert await producer.prepare_transaction() == prepared, "another call gives the same"
        assert await committed(cluster) == [b"before"]

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("records", [0, 1])
def test_its_outcome_is_not_known_when_the_producer_is_closed(version: str, records: int) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        transaction = await producer.transaction().__aenter__()
        for _ in range(records):
            producer.send("t", b"v", partition=0)
        prepared = await producer.prepare_transaction()
        await producer.close()
        assert transaction.outcome is TransactionOutcome.UNKNOWN, "any process may commit it"
        assert await end(prepared) is True

    on(version, scenario)


@EVERY
@EITHER
def test_a_stranger_ends_it_and_asks_as_often_as_it_likes(version: str, commit: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared = await prepared_by(producer, b"a", b"b")
        report = await producer.close()
        assert (report.is_clean, report.transaction) == (True, None)
        await asyncio.sleep(5)  # virtual
        assert cluster.transaction(ID).is_ongoing, "close() has not aborted it"
        for asked in (commit, commit, not commit, not commit):
            assert await end(prepared, asked) is commit
        assert await committed(cluster) == ([b"a", b"b"] if commit else [])
        assert cluster.requests_seen("InitProducerId") == 1, "of the producer"

    on(version, scenario)


@EVERY
def test_a_failed_record_makes_it_abortable(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        producer.begin_transaction()
        await producer.send("t", b"good", partition=0)
        cluster.fail_next("Produce", 29)
        producer.send("t", b"bad", partition=1)
        with pytest.raises(TopicAuthorizationError):
            await producer.prepare_transaction()
        with pytest.raises(TopicAuthorizationError):
            await producer.prepare_transaction()
        assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        assert await end(await prepared_by(producer, b"next"))
        assert await committed(cluster) == [b"next"]

    on(version, scenario)


@EVERY
def test_nothing_goes_on_but_its_end(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        await prepared_by(producer)
        for call in (
            producer.begin_transaction,
            lambda: producer.send("t", b"v"),
        ):
            with pytest.raises(UsageError, match="is prepared"):
                call()
        with pytest.raises(UsageError, match="is prepared"):
            async with producer.transaction():
                pass
        with pytest.raises(UsageError, match="is prepared"):
            await producer.send_offsets_to_transaction({("t", 0): 1}, "g")
        assert producer.health().transaction == "prepared"

    on(version, scenario)


@EVERY
@EITHER
def test_the_producer_ends_it_and_goes_on(version: str, commit: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared = await prepared_by(producer, b"a")
        if commit:
            await producer.commit_transaction()
        else:
            assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        producer.begin_transaction()
        await producer.send("t", b"next", partition=1)
        # A stranger's repetition must not end the next transaction, whatever the version (broker: 10.4c).
        assert await end(prepared, commit) is commit
        assert await committed(cluster) == ([b"a"] if commit else [])
        await producer.commit_transaction()
        assert await committed(cluster) == ([b"a", b"next"] if commit else [b"next"])

    on(version, scenario)


@EVERY
def test_the_producer_learns_of_the_end_by_a_stranger(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        await end(await prepared_by(producer, b"a"))
        assert await producer.abort_transaction() is TransactionOutcome.COMMITTED
        await end(await prepared_by(producer, b"b"), False)
        with pytest.raises(TransactionTimeoutError, match="the coordinator has aborted"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            producer.send("t", b"c", partition=0)
        assert await committed(cluster) == [b"a", b"c"]

    on(version, scenario)


def test_a_block_that_prepares_leaves_it_prepared() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        async with producer.transaction() as transaction:
            producer.send("t", b"a", partition=0)
            prepared = await producer.prepare_transaction()
        assert transaction.outcome is None
        assert await end(prepared)
        await producer.commit_transaction()
        assert transaction.outcome is TransactionOutcome.COMMITTED
        with pytest.raises(ZeroDivisionError) as raised:
            async with producer.transaction():
                producer.send("t", b"b", partition=0)
                prepared = await producer.prepare_transaction()
                raise ZeroDivisionError
        assert "was not aborted" in raised.value.__notes__[0]
        assert await end(prepared)
        assert await committed(cluster) == [b"a", b"b"]

    on("TV2", scenario)


@EVERY
def test_a_preparation_that_a_close_has_aborted_in_the_same_turn_fails(version: str) -> None:
    """A caller keeps what it is given, in a database of its own say."""

    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        assert producer._pipeline is not None
        transactor = producer._pipeline.transactor
        assert transactor is not None
        loop, tell, closing = asyncio.get_running_loop(), transactor._callers.tell, transactor.close(5.0)

        def close_first(result: Any) -> None:
            loop.call_soon(closing.send, None)  # before the step of the caller, which `tell` lets come
            tell(result)

        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        transactor._callers.tell = close_first  # type: ignore[method-assign]
        with pytest.raises(AiokprodError, match="closed"):
            await producer.prepare_transaction()
        del transactor._callers.tell  # type: ignore[method-assign]
        closing.close()
        await producer.close()
        assert await committed(cluster) == [] and not cluster.transaction(ID).is_ongoing

    on(version, scenario)


@EVERY
def test_what_no_caller_has_in_hand_is_aborted_by_close(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        task = asyncio.create_task(producer.prepare_transaction())
        for _ in range(2):  # it has begun: what is ready in one turn comes in a random order
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(1)
        assert producer.health().transaction == "prepared"
        await producer.close()
        assert not cluster.transaction(ID).is_ongoing
        assert await committed(cluster) == []

    on(version, scenario)


@EVERY
def test_a_start_with_the_id_aborts_it(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared = await prepared_by(producer, b"v")
        await producer.close()
        await producer.start()
        assert await end(prepared) is False
        assert await end(prepared, False) is False

    on(version, scenario)


@EVERY
def test_an_empty_one_needs_no_cluster(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        producer.begin_transaction()
        prepared = await producer.prepare_transaction()
        assert (prepared.is_begun, prepared.partitions) == (False, ())
        before = cluster.requests_seen("EndTxn")
        assert await end(prepared, True) is True
        assert await end(prepared, False) is False
        await producer.commit_transaction()
        assert cluster.requests_seen("EndTxn") == before

    on(version, scenario)


@EVERY
@EITHER
def test_offsets_alone_are_prepared_too(version: str, commit: bool) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({("t", 0): 5}, "g")
        prepared = await producer.prepare_transaction()
        assert (prepared.is_begun, prepared.partitions) == (True, ())
        assert await end(prepared, commit) is commit
        await asyncio.sleep(0.1)
        assert bool(cluster.committed_offsets("g")) is commit

    on(version, scenario)


def test_without_a_transaction_nothing_is_prepared() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.prepare_transaction()
        producer.begin_transaction()
        with pytest.raises(ConfigError):
            await producer.prepare_transaction(-1)
        await producer.commit_transaction()

    on("TV2", scenario)


# ---------------------------------------------------------------------- the end, in trouble
@EVERY
@EITHER
def test_it_is_found_out_behind_a_timeout_and_another_owner(version: str, commit: bool) -> None:
    # faults: X1, X10
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        first = await prepared_by(producer, b"a")
        await producer.close()
        await asyncio.sleep(120)  # the timeout of the transaction
        assert cluster.transaction(ID).state.value == "CompleteAbort"
        assert await end(first, commit) is False, "aborted by the coordinator"
        await producer.start()
        second = await prepared_by(producer, b"b")
        assert await end(second, commit) is commit
        await producer.close()
        await producer.start()  # takes the id: every answer is a fence from now on
        for asked in (True, False):
            assert await end(second, asked) is commit, "the log tells"
            assert await end(first, asked) is False

    on(version, scenario, transaction_timeout_ms=10_000)


@EVERY
def test_a_takeover_under_way_is_waited_for(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared = await prepared_by(producer, b"a")
        cluster.hold_markers()
        other = asyncio.create_task(producer_like(producer).start())
        await asyncio.sleep(1)
        asked = asyncio.create_task(end(prepared, timeout=100))
        await asyncio.sleep(5)
        assert not asked.done()
        cluster.release_markers()
        assert await asked is False
        await (await other).close()

    on(version, scenario)


def producer_like(producer: Producer) -> Producer:
    return Producer(producer.config)


@EVERY
@EITHER
def test_lost_answers_and_moved_coordinators_are_asked_again(version: str, commit: bool) -> None:
    # faults: X2, X5
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared = await prepared_by(producer, b"a")
        await producer.close()
        for code in (14, 15, 16, 51, -1, 7, 13, 999):
            cluster.fail_next("EndTxn", code)
        cluster.drop_answer("EndTxn")
        cluster.move_coordinator(ID, 1 + cluster.coordinator(ID) % 3)
        assert await end(prepared, commit) is commit
        assert await committed(cluster) == ([b"a"] if commit else [])

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("code", [31, 35, 42, 53, 120])
def test_a_refusal_leaves_it_unknown_while_it_is_open(version: str, code: int) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared = await prepared_by(producer, b"a")
        await producer.close()
        cluster.fail_next("EndTxn", code, times=None)
        with pytest.raises(TransactionOutcomeUnknownError) as raised:
            await end(prepared)
        assert raised.value.code == code
        kind = ClusterAuthorizationError if code in (31, 53) else BrokerAnswerError
        assert isinstance(raised.value.__cause__, kind)
        assert "Call it again" in raised.value.advice
        assert len(raised.value.__notes__) == 1
        await producer.start()  # aborts it
        assert await end(prepared) is False, "the log tells"

    on(version, scenario)


@EVERY
def test_without_its_records_a_fence_leaves_it_unknown(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared = await prepared_by(producer, b"a")
        assert await end(prepared)
        await producer.close()
        await producer.start()
        assert await end(prepared) is True
        cluster.delete_topic("t")
        with pytest.raises(TransactionOutcomeUnknownError):
            await end(prepared, timeout=20)
        cluster.create_topic("t", partitions=3)
        async with producer.transaction():
            producer.send("t", b"other", partition=0)
        with pytest.raises(TransactionOutcomeUnknownError):
            await end(prepared, timeout=20)

    on(version, scenario)


def test_silence_is_unknown_at_the_timeout() -> None:
    async def scenario(cluster: MockCluster, producer: Producer, end: End) -> None:
        prepared = await prepared_by(producer, b"a")
        await producer.close()
        for node in (1, 2, 3):
            cluster.stop_broker(node)
        began = asyncio.get_running_loop().time()
        with pytest.raises(TransactionOutcomeUnknownError):
            await end(prepared, timeout=7)
        assert asyncio.get_running_loop().time() - began < 10
        for node in (1, 2, 3):
            cluster.start_broker(node)
        assert await end(prepared)

    on("TV2", scenario)
