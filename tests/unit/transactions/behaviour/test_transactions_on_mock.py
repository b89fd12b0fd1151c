"""Transactions of a producer, from begin to end, in each version of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from txn_rig import CLUSTERS, ID, Scenario, committed, run, written

from aiokprod import Persistence, Producer, TransactionOutcome
from aiokprod.errors import (
    BrokerRejectedError,
    DeliveryTimeoutError,
    OffsetCommitRefusedError,
    ProducerFencedError,
    RecordTooLargeError,
    TopicAuthorizationError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
    UnknownTopicError,
    UsageError,
)
from aiokprod.testing import MockCluster
from aiokprod.transactions.errors_of_causes import error_of
from aiokprod.transactions.machine_actions import Cause, Reason
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

EVERY = pytest.mark.parametrize("version", list(CLUSTERS))
SECOND = ["TV2"]
FIRST = ["TV1", "TV0"]


def on(version: str, scenario: Scenario, **options: Any) -> None:
    run(scenario, CLUSTERS[version], **options)


# ---------------------------------------------------------------------- commit and abort
@EVERY
def test_a_block_commits_all_its_records(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for number in range(4):
            async with producer.transaction() as transaction:
                deliveries = [producer.send("t", b"%d" % number, partition=p) for p in range(3)]
                await deliveries[0]
                assert len(await committed(cluster)) == 3 * number, "nothing is seen before the commit"
            assert transaction.outcome is TransactionOutcome.COMMITTED
            assert all(delivery.done() for delivery in deliveries)
        assert await committed(cluster) == [b"0", b"1", b"2", b"3"] * 3
        assert producer.metrics()["transactions_committed"] == 4

    on(version, scenario)


@EVERY
def test_each_version_sends_its_own_requests(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for _ in range(2):
            async with producer.transaction():
                for partition in range(3):
                    producer.send("t", b"v", partition=partition)

        def versions(api: str) -> set[int]:
            return {seen.version for seen in cluster.requests(api)}

        if version == "TV2":
            assert (versions("Produce"), versions("EndTxn"), versions("AddPartitionsToTxn")) == ({13}, {5}, set())
            assert cluster.transaction(ID).epoch == 2
        else:
            assert (versions("Produce"), versions("EndTxn"), versions("AddPartitionsToTxn")) == ({11}, {4}, {3})
            assert cluster.transaction(ID).epoch == 0, "the epoch stays, and sequences go on"
            assert cluster.requests_seen("InitProducerId") == 1

    on(version, scenario)


@EVERY
def test_an_exception_aborts_and_is_raised(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        with pytest.raises(ZeroDivisionError):
            async with transaction:
                delivered = producer.send("t", b"delivered", partition=0)
                await delivered
                queued = producer.send("t", b"queued", partition=1)
                raise ZeroDivisionError
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert delivered.exception() is None, "what had its outcome keeps it"
        error = queued.exception()
        assert isinstance(error, TransactionAbortedError)
        assert error.persistence is Persistence.NOT_PERSISTED
        assert await committed(cluster) == []
        assert written(cluster) == [b"delivered"]
        async with producer.transaction():
            producer.send("t", b"next", partition=0)
        assert await committed(cluster) == [b"next"]
        assert producer.metrics()["transactions_aborted"] == 1

    on(version, scenario)


@EVERY
def test_a_cancelled_block_is_aborted(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()

        async def work() -> None:
            async with transaction:
                await producer.send("t", b"v", partition=0)
                await asyncio.sleep(100)

        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(UsageError):  # from now on, though the end is under way
            producer.send("t", b"w", partition=0)
        await asyncio.sleep(0.1)
        assert transaction.outcome is TransactionOutcome.ABORTED
        assert await committed(cluster) == []

    on(version, scenario)


@EVERY
def test_the_long_form_is_five_calls(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        producer.send("t", b"1", partition=0)
        await producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"2", partition=0)
        assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        producer.begin_transaction()
        producer.send("t", b"3", partition=0)
        await producer.commit_transaction(timeout=5)
        assert await committed(cluster) == [b"1", b"3"]

    on(version, scenario)


@EVERY
def test_an_empty_transaction_sends_nothing(version: str) -> None:
    """faults: X13"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        seen = len(cluster.requests())
        async with producer.transaction() as transaction:
            pass
        assert transaction.outcome is TransactionOutcome.COMMITTED
        producer.begin_transaction()
        await producer.abort_transaction()
        assert not cluster.requests_seen("EndTxn")
        assert len(cluster.requests()) == seen

    on(version, scenario)


@EVERY
def test_a_transaction_right_behind_another_writes_as_soon_as_the_markers_are_there(version: str) -> None:
    """broker: 10.6"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        now = asyncio.get_running_loop().time
        for _ in range(2):
            cluster.hold_markers()
            async with producer.transaction():
                producer.send("t", b"v", partition=0)
            before = cluster.requests_seen("Produce")
            producer.begin_transaction()
            delivery = producer.send("t", b"w", partition=0)
            await asyncio.sleep(0.02)
            assert cluster.requests_seen("Produce") == before, "it would wait in the broker, 20 ms and more"
            cluster.release_markers()
            released = now()
            await delivery
            assert now() - released < 0.02
            await producer.commit_transaction()
        assert await committed(cluster) == [b"v", b"w"] * 2

    on(version, scenario)


@EVERY
def test_an_abort_while_the_markers_of_the_transaction_before_are_due_is_no_fence(version: str) -> None:
    """faults: X3, broker: 10.4e"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.hold_markers()
        async with producer.transaction():
            producer.send("t", b"v", partition=0)
        producer.begin_transaction()
        producer.send("t", b"w", partition=0)
        asyncio.get_running_loop().call_later(3, cluster.release_markers)
        await asyncio.sleep(1)
        assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        async with producer.transaction():
            producer.send("t", b"x", partition=0)
        assert await committed(cluster) == [b"v", b"x"]

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("commits", [True, False])
def test_an_empty_transaction_ends_while_the_epoch_is_renewed(version: str, commits: bool) -> None:
    """faults: X13"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        cluster.fail_next("InitProducerId", 51, times=2)
        await producer.abort_transaction()
        producer.begin_transaction()
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        async with producer.transaction():
            producer.send("t", b"w", partition=0)
        assert await committed(cluster) == [b"w"]

    on(version, scenario)


@EVERY
def test_a_transaction_whose_every_produce_failed_is_aborted(version: str) -> None:
    """faults: X13"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next("Produce", 44, times=None)
        with pytest.raises(TransactionAbortedError):
            async with producer.transaction() as transaction:
                producer.send("t", b"v")
        assert transaction.outcome is TransactionOutcome.ABORTED
        cluster.clear_faults()
        async with producer.transaction():
            producer.send("t", b"w")
        assert await committed(cluster) == [b"w"]

    on(version, scenario)


# ---------------------------------------------------------------------- failures inside
@EVERY
def test_one_record_that_fails_aborts_the_block(version: str) -> None:
    """faults: X11"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.alter_topic("t", **{"max.message.bytes": 2000})
        with pytest.raises(TransactionAbortedError) as caught:
            async with producer.transaction() as transaction:
                producer.send("t", b"good", partition=0)
                producer.send("t", bytes(5000), partition=1)  # its Delivery is never looked at
        assert isinstance(caught.value.__cause__, RecordTooLargeError)
        assert transaction.outcome is TransactionOutcome.ABORTED
        async with producer.transaction():
            producer.send("t", b"next", partition=1)
            producer.send("t", b"next", partition=0)
        assert await committed(cluster) == [b"next", b"next"]

    on(version, scenario)


@EVERY
def test_in_the_long_form_commit_raises_the_error_of_the_record(version: str) -> None:
    """faults: X11"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.alter_topic("t", **{"max.message.bytes": 2000})
        producer.begin_transaction()
        failed = producer.send("t", bytes(5000), partition=1)
        with pytest.raises(RecordTooLargeError):
            await producer.commit_transaction()
        assert isinstance(failed.exception(), RecordTooLargeError)
        with pytest.raises(TransactionAbortedError) as refused:
            producer.send("t", b"more")
        assert isinstance(refused.value.__cause__, RecordTooLargeError)
        with pytest.raises(RecordTooLargeError):
            await producer.commit_transaction()
        with pytest.raises(TransactionAbortedError):
            producer.begin_transaction()
        assert await producer.abort_transaction() is TransactionOutcome.ABORTED
        producer.begin_transaction()
        producer.send("t", b"next", partition=1)
        await producer.commit_transaction()
        assert await committed(cluster) == [b"next"]

    on(version, scenario)


@EVERY
def test_a_record_that_was_never_in_a_batch_counts_as_well(version: str) -> None:
    """faults: X11"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        with pytest.raises(TransactionAbortedError) as caught:
            async with producer.transaction():
                producer.send("missing", b"v")
        assert isinstance(caught.value.__cause__, UnknownTopicError)

    on(version, scenario, max_block_ms=1000)


@EVERY
def test_a_record_that_was_taken_back_does_not_count(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            assert producer.send("t", b"back", partition=0).recall()
            producer.send("t", b"v", partition=0)
        assert await committed(cluster) == [b"v"]

    on(version, scenario, linger_ms=100)


@EVERY
def test_a_transaction_whose_records_were_all_taken_back_commits(version: str) -> None:
    """broker: 10.5"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        await producer.partitions_for("t")
        async with producer.transaction() as transaction:
            back = producer.send("t", b"back", partition=0)
            await asyncio.sleep(0.05)  # the partition was looked at meanwhile
            assert back.recall()
        assert transaction.outcome is TransactionOutcome.COMMITTED
        assert written(cluster) == []

    on(version, scenario, linger_ms=100)


@EVERY
def test_records_that_were_purged_are_left_out_of_their_transaction(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            await producer.send("t", b"first", partition=0)
            producer.send("t", b"purged", partition=0)
            producer.send("t", b"purged", partition=1)
            assert producer.purge("t").purged == 2
            producer.send("t", b"last", partition=0)
        assert await committed(cluster) == [b"first", b"last"]
        async with producer.transaction() as transaction:
            producer.send("t", b"purged", partition=0)
            await asyncio.sleep(0.05)
            assert producer.purge().purged == 1
        assert transaction.outcome is TransactionOutcome.COMMITTED
        assert written(cluster) == [b"first", b"last"]

    on(version, scenario, linger_ms=100)


@EVERY
def test_a_sequence_out_of_order_is_no_silent_bump(version: str) -> None:
    """faults: X24"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next("Produce", 45)
        with pytest.raises(TransactionAbortedError):
            async with producer.transaction():
                producer.send("t", b"v", partition=0)
        async with producer.transaction():
            producer.send("t", b"w", partition=0)
        assert await committed(cluster) == [b"w"]

    on(version, scenario)


@EVERY
def test_records_that_expire_abort_their_transaction(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        rule = cluster.fail_next("Produce", 19, times=None)
        with pytest.raises(TransactionAbortedError) as caught:
            async with producer.transaction():
                delivery = producer.send("t", b"v", partition=0)
        assert isinstance(caught.value.__cause__, DeliveryTimeoutError)
        error = delivery.exception()
        assert error is not None
        assert error.persistence is Persistence.NOT_PERSISTED
        assert rule
        cluster.clear_faults()
        async with producer.transaction():
            producer.send("t", b"w", partition=0)
        assert await committed(cluster) == [b"w"]

    on(version, scenario, delivery_timeout_ms=3000, request_timeout_ms=1000)


@EVERY
def test_an_abort_does_not_wait_for_retries(version: str) -> None:
    """faults: X12"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        loop = asyncio.get_running_loop()
        producer.begin_transaction()
        await producer.send("t", b"delivered", partition=0)
        cluster.fail_next("Produce", 19, times=None)
        trying = producer.send("t", b"trying", partition=0)
        await asyncio.sleep(2)
        began = loop.time()
        await producer.abort_transaction()
        assert loop.time() - began < 1
        error = trying.exception()
        assert isinstance(error, TransactionAbortedError)
        assert error.persistence is Persistence.NOT_PERSISTED
        cluster.clear_faults()
        async with producer.transaction():
            producer.send("t", b"next", partition=0)
        assert await committed(cluster) == [b"next"]

    on(version, scenario)


@EVERY
def test_what_is_in_flight_at_an_abort_falls_into_no_later_transaction(version: str) -> None:
    """faults: X9, X12, broker: 10.4d"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"delivered", partition=0)
        cluster.delay_next("Produce", 2.0, before_serving=True)
        flying = producer.send("t", b"late", partition=0)
        await asyncio.sleep(0.1)
        await producer.abort_transaction()
        assert isinstance(flying.exception(), TransactionAbortedError)
        for _ in range(2):
            async with producer.transaction():
                producer.send("t", b"next", partition=0)
        await asyncio.sleep(5)
        assert await committed(cluster) == [b"next", b"next"]

    on(version, scenario)


# ---------------------------------------------------------------------- lost answers
@EVERY
@pytest.mark.parametrize("api", ["InitProducerId", "EndTxn", "Produce", "AddPartitionsToTxn", "FindCoordinator"])
def test_an_answer_that_is_lost_costs_time_and_nothing_else(version: str, api: str) -> None:
    """faults: X5"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for number in range(3):
            cluster.drop_answer(api)
            async with producer.transaction() as transaction:
                for partition in range(3):
                    producer.send("t", b"%d" % number, partition=partition)
            assert transaction.outcome is TransactionOutcome.COMMITTED
        assert await committed(cluster) == [b"0", b"1", b"2"] * 3 == written(cluster)

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("code", [14, 15, 16, 51, -1, 7])
@pytest.mark.parametrize("api", ["EndTxn", "AddPartitionsToTxn"])
def test_codes_that_pass_are_waited_for(version: str, api: str, code: int) -> None:
    """faults: X2, X3, X18"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next(api, code, times=3)
        for number in range(2):
            async with producer.transaction() as transaction:
                producer.send("t", b"%d" % number, partition=0)
            assert transaction.outcome is TransactionOutcome.COMMITTED
        assert await committed(cluster) == [b"0", b"1"]

    on(version, scenario)


@EVERY
@pytest.mark.parametrize("has_been_done", [False, True])
def test_a_commit_without_an_answer_is_unknown_until_it_is_asked_for_again(version: str, has_been_done: bool) -> None:
    """faults: X6, X7"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        with pytest.raises(TransactionOutcomeUnknownError) as caught:
            async with transaction:
                producer.send("t", b"v", partition=0)
                await producer.flush()
                cluster.swallow_next("EndTxn", before_serving=not has_been_done, times=None)
                await producer.commit_transaction(timeout=5)
        assert caught.value.persistence is Persistence.POSSIBLY_PERSISTED
        assert transaction.outcome is TransactionOutcome.UNKNOWN
        with pytest.raises(UsageError, match="not known"):
            producer.begin_transaction()
        with pytest.raises(UsageError, match="not known"):
            producer.send("t", b"w")
        with pytest.raises(TransactionOutcomeUnknownError):
            await producer.commit_transaction(timeout=5)
        cluster.clear_faults()
        await producer.commit_transaction()
        assert transaction.outcome is TransactionOutcome.COMMITTED
        ends = producer.metrics()
        assert (ends["transactions_unknown"], ends["transactions_committed"]) == (2, 1)
        assert await committed(cluster) == [b"v"]
        async with producer.transaction():
            producer.send("t", b"w", partition=0)
        assert await committed(cluster) == [b"v", b"w"]

    on(version, scenario, request_timeout_ms=2000)


@EVERY
def test_an_abort_of_an_unknown_commit_tells_what_happened(version: str) -> None:
    """broker: 10.4b"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        rule = cluster.swallow_next("EndTxn", before_serving=False, times=None)
        with pytest.raises(TransactionOutcomeUnknownError):
            await producer.commit_transaction(timeout=5)
        assert rule
        cluster.clear_faults()
        assert await producer.abort_transaction() is TransactionOutcome.COMMITTED
        async with producer.transaction():
            producer.send("t", b"w", partition=0)
        assert await committed(cluster) == [b"v", b"w"]

    on(version, scenario, request_timeout_ms=2000)


# ---------------------------------------------------------------------- coordinators
@EVERY
def test_a_coordinator_may_move_at_any_time(version: str) -> None:
    """faults: X2"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for number in range(6):
            async with producer.transaction():
                producer.send("t", b"%d" % number, partition=0)
                if number % 2:
                    await producer.flush()
                cluster.move_coordinator(ID, number % 3 + 1)
        assert await committed(cluster) == [b"%d" % number for number in range(6)]

    on(version, scenario)


@EVERY
def test_a_coordinator_that_dies_is_replaced(version: str) -> None:
    """faults: X4"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            producer.send("t", b"1", partition=0)
        async with producer.transaction() as transaction:
            producer.send("t", b"2", partition=0)
            await producer.flush()
            cluster.kill_broker(cluster.coordinator(ID))
        assert transaction.outcome is TransactionOutcome.COMMITTED
        assert await committed(cluster) == [b"1", b"2"]

    on(version, scenario)


# ---------------------------------------------------------------------- fences and timeouts
@EVERY
def test_a_second_instance_fences_the_first(version: str) -> None:
    """faults: X1"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        transaction = producer.transaction()
        with pytest.raises(ProducerFencedError, match="another instance"):
            async with transaction:
                await producer.send("t", b"zombie", partition=0)
                second = Producer(producer.config.replace(client_id="second"))
                await second.start()
                producer.send("t", b"zombie", partition=0)
        assert transaction.outcome is TransactionOutcome.ABORTED
        async with second.transaction():
            second.send("t", b"second", partition=0)
        assert await committed(cluster) == [b"second"]
        for call in (producer.begin_transaction, lambda: producer.send("t", b"v")):
            with pytest.raises(ProducerFencedError):
                call()
        with pytest.raises(ProducerFencedError):
            await producer.abort_transaction()
        assert not producer.health().live
        await second.close()

    on(version, scenario)


@EVERY
def test_a_start_ends_the_transaction_of_a_crashed_predecessor(version: str) -> None:
    """faults: X3, X22, broker: 9.8"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"lost", partition=0)
        second = Producer(producer.config.replace(client_id="second"))
        await second.start()
        async with second.transaction():
            second.send("t", b"second", partition=0)
        assert await committed(cluster) == [b"second"]
        await second.close()

    on(version, scenario)


def test_the_second_version_recovers_from_the_timeout_of_its_coordinator() -> None:
    """faults: X10, broker: 10.7"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"slow", partition=0)
        await asyncio.sleep(20)  # past the timeout, and the coordinator's next look
        with pytest.raises(TransactionTimeoutError, match="transaction_timeout_ms"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            producer.send("t", b"next", partition=0)
        assert await committed(cluster) == [b"next"]

    on("TV2", scenario, transaction_timeout_ms=5000)


@pytest.mark.parametrize("version", FIRST)
def test_the_first_version_cannot_tell_a_timeout_from_a_fence(version: str) -> None:
    """faults: X10, broker: 10.7"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"slow", partition=0)
        await asyncio.sleep(20)  # past the timeout, and the coordinator's next look
        with pytest.raises(ProducerFencedError, match="or the transaction was open for longer"):
            await producer.commit_transaction()
        await producer.close()
        await producer.start()
        async with producer.transaction():
            producer.send("t", b"next", partition=0)
        assert await committed(cluster) == [b"next"]

    on(version, scenario, transaction_timeout_ms=5000)


@EVERY
def test_a_commit_whose_time_is_over_while_it_flushes_is_not_committed(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        cluster.fail_next("Produce", 19, times=None)
        producer.send("t", b"v", partition=0)
        with pytest.raises(TransactionTimeoutError, match="time of the call"):
            await producer.commit_transaction(timeout=2)
        await producer.abort_transaction()
        cluster.clear_faults()
        assert not cluster.records("t", committed=True)

    on(version, scenario)


# ---------------------------------------------------------------------- calls
def test_calls_that_mean_nothing_change_nothing() -> None:
    """faults: X15"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        for call in (lambda: producer.send("t", b"v"), lambda: producer.try_send("t", b"v")):
            with pytest.raises(UsageError, match="no transaction is open"):
                call()
        for end in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(UsageError, match="no transaction is open"):
                await end()
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.send_many("t", [b"v"])
        producer.begin_transaction()
        with pytest.raises(UsageError, match="open already"):
            producer.begin_transaction()
        producer.send("t", b"v", partition=0)
        held = cluster.hold("EndTxn", before_serving=True)
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(1)
        with pytest.raises(UsageError, match="being committed"):
            await producer.abort_transaction()
        with pytest.raises(UsageError, match="being committed"):
            producer.send("t", b"w")
        with pytest.raises(UsageError, match="being committed"):
            producer.begin_transaction()
        cluster.release(held)
        await asyncio.gather(commit, producer.commit_transaction())
        assert await committed(cluster) == [b"v"]
        transaction = producer.transaction()
        async with transaction:
            pass
        with pytest.raises(UsageError, match="used once"):
            async with transaction:
                pass

    on("TV2", scenario)


@EVERY
def test_a_cancelled_commit_goes_on_and_the_next_call_tells_its_end(version: str) -> None:
    """faults: X14"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        held = cluster.hold("EndTxn", before_serving=False)
        commit = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(1)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        with pytest.raises(UsageError, match="being committed"):
            producer.begin_transaction()
        cluster.release(held)
        await asyncio.sleep(1)
        await producer.commit_transaction()
        with pytest.raises(UsageError, match="no transaction is open"):
            await producer.commit_transaction()
        assert await committed(cluster) == [b"v"]

    on(version, scenario)


# ---------------------------------------------------------------------- partitions (version 1)
@pytest.mark.parametrize("version", FIRST)
def test_one_partition_that_is_refused_aborts_and_its_records_fail_by_name(version: str) -> None:
    """faults: X16, broker: 10.9"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        def refuse_one(answer: object, version: int) -> object:
            assert isinstance(answer, AddPartitionsToTxnResponse)
            for result in answer.results_by_topic_v3_and_below[0].results_by_partition:
                result.partition_error_code = 29 if result.partition_index == 1 else 55
            return answer

        cluster.rewrite_answer("AddPartitionsToTxn", refuse_one)
        with pytest.raises(TransactionAbortedError) as caught:
            async with producer.transaction():
                deliveries = [producer.send("t", b"v", partition=partition) for partition in range(3)]
        cause = caught.value.__cause__
        assert isinstance(cause, TopicAuthorizationError)
        assert (cause.topic, cause.partition, cause.code) == ("t", 1, 29)
        errors = [delivery.exception() for delivery in deliveries]
        assert [type(error).__name__ for error in errors] == [
            "TransactionAbortedError", "TopicAuthorizationError", "TransactionAbortedError"
        ]  # fmt: skip
        async with producer.transaction():
            producer.send("t", b"next", partition=1)
        assert await committed(cluster) == [b"next"]

    on(version, scenario)


@EVERY
def test_a_batch_that_is_too_large_goes_in_parts_within_its_transaction(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        await producer.partitions_for("t")
        cluster.alter_topic("t", **{"max.message.bytes": 3000})
        async with producer.transaction():
            for number in range(50):
                producer.send("t", b"%03d" % number + bytes(500), partition=0)
        values = await committed(cluster)
        assert [value[:3] for value in values if value is not None] == [b"%03d" % number for number in range(50)]

    on(version, scenario, linger_ms=50)


@EVERY
def test_a_partition_moves_in_the_middle(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction():
            for number in range(9):
                producer.send("t", b"%d" % number, partition=0)
                if number % 3 == 2:
                    await producer.flush()
                    cluster.move_leader("t", 0, (cluster.leader("t", 0) or 0) % 3 + 1)
        assert await committed(cluster) == [b"%d" % number for number in range(9)]

    on(version, scenario)


@EVERY
def test_a_broker_error_has_the_words_of_the_broker(version: str) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next("Produce", 44)
        producer.begin_transaction()
        producer.send("t", b"v")
        with pytest.raises(BrokerRejectedError) as caught:
            await producer.commit_transaction()
        assert caught.value.code == 44
        await producer.abort_transaction()

    on(version, scenario)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_offsets_that_are_refused_by_a_fence_are_not_blamed_on_the_group(code: int) -> None:
    error = error_of(Cause(Reason.OFFSETS_REFUSED, code), "shop-1")
    assert isinstance(error, OffsetCommitRefusedError) and error.code == code
    of_a_fence = code != ErrorCode.GROUP_ID_NOT_FOUND
    assert ("another instance has taken the transactional id 'shop-1'" in error.advice) is of_a_fence
    assert ("another member of the group" in error.advice) is not of_a_fence
    assert error.__notes__ == [error.advice] == error.clone().__notes__
    assert error.clone().advice == error.advice


@pytest.mark.parametrize("api", ["Produce", "EndTxn", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"])
@EVERY
def test_a_broker_that_asks_for_an_abort_gets_one_and_the_producer_goes_on(version: str, api: str) -> None:
    """KIP-1050"""

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        if api.startswith("Add") and version == "TV2":
            return  # has no such request
        cluster.fail_next(api, "TRANSACTION_ABORTABLE")
        with pytest.raises(TransactionAbortedError) as raised:
            async with producer.transaction() as transaction:
                await producer.send("t", b"first", partition=0)
                await transaction.send_offsets({("t", 1): 1}, "g")
        first = raised.value if raised.value.code == 120 else raised.value.__cause__
        assert isinstance(first, TransactionAbortedError) and first.code == 120
        assert "TRANSACTION_ABORTABLE" in str(first) and "Correct" not in "".join(first.__notes__)
        async with producer.transaction():
            producer.send("t", b"second", partition=0)
        assert await committed(cluster) == [b"second"]

    on(version, scenario)
