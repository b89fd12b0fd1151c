"""One consumer and one producer: batches, failures, ends of the loop."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from consuming_rig import Rig, copy, run, value_of
from fake_group import AiokafkaMember, AsyncConfluentMember, ConfluentMember, TopicPartition

from aiokprod import ProducerState, TransactionOutcome, exactly_once
from aiokprod.errors import (
    BrokerRejectedError,
    ClusterError,
    ConfigError,
    OffsetCommitRefusedError,
    ProducerClosedError,
    ProducerFencedError,
    RecordTypeError,
    TransactionAbortedError,
    UsageError,
)


def test_each_batch_is_one_transaction_with_its_offsets() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            assert await copy(rig, consumer, producer, until=20, max_records=6) == 4
        assert await rig.output() == rig.group.input
        assert await rig.offsets() == {("in", 0): 10, ("in", 1): 10}
        assert (
            rig.cluster.requests_seen("EndTxn") >= 4
        )  # version 2 asks again before the next: docs/transactions_states.md
        assert rig.group.unchecked == 0
        await consumer.stop()

    run(scenario)


def test_polls_without_records_make_no_transaction() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:

            async def loop() -> None:
                async with exactly_once(consumer, producer, timeout=0.1) as batches:
                    async for _ in batches:
                        raise AssertionError

            task = asyncio.create_task(loop())
            await asyncio.sleep(100)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not rig.cluster.requests_seen("EndTxn")
        await consumer.stop()

    run(scenario, each=0)


def test_an_exception_of_the_body_aborts_and_the_consumer_goes_back() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            with pytest.raises(ZeroDivisionError):
                async with exactly_once(consumer, producer, max_records=4) as batches:
                    async for records in batches:
                        for record in records:
                            producer.send("out", record.value)
                        if records[0].offset:
                            raise ZeroDivisionError
            assert await rig.offsets() == {("in", 0): 4}
            assert consumer.positions == {("in", 0): 4, ("in", 1): 0}
            await copy(rig, consumer, producer, until=16)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_break_leaves_the_batch_for_the_next_loop() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            async with exactly_once(consumer, producer) as batches:
                async for records in batches:
                    producer.send("out", records[0].value)
                    break
            assert await rig.output() == []
            await copy(rig, consumer, producer, until=20)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_a_consumer_without_committed_offsets_goes_back_to_where_it_began() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            with pytest.raises(KeyError):
                async with exactly_once(consumer, producer, max_records=4) as batches:
                    async for records in batches:
                        assert [record.offset for record in records] == [0, 1, 2, 3]
                        raise KeyError
            assert consumer.positions[records[0].topic, records[0].partition] == 0
        await consumer.stop()

    run(scenario, partitions=1)


@pytest.mark.parametrize("to", [0, 8, 3], ids=["the beginning", "the end", "back by one"])
def test_a_consumer_that_moves_by_itself_is_put_back(to: int) -> None:
    """As librdkafka does when it asks for the offset of auto.offset.reset a second time (positions.py)."""

    async def scenario(rig: Rig) -> None:
        consumer, batches_seen = rig.member(), 0
        async with rig.producer() as producer, exactly_once(consumer, producer, max_records=2, timeout=0.1) as batches:
            async for records in batches:
                for record in records:
                    producer.send("out", record.value)
                batches_seen += 1
                if batches_seen == 2:
                    assert consumer.positions == {("in", 0): 4}
                    consumer.positions["in", 0] = to
                if records[-1].offset == 9:
                    batches.stop()
        assert await rig.output() == rig.group.input
        assert await rig.offsets() == {("in", 0): 10}
        await consumer.stop()

    run(scenario, partitions=1)


def test_a_consumer_that_moves_within_a_poll_is_put_back() -> None:
    class Moving(AiokafkaMember):
        def records(self, most: int) -> list[Any]:
            found = super().records(most)
            if len(found) == 4 and not self.sought[1:]:
                self.positions[found[0].topic, found[0].partition] = 0
                found += super().records(most)
            return found

    async def scenario(rig: Rig) -> None:
        consumer = Moving(rig.group)
        rig.group.join(consumer)
        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=10, max_records=4)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario, partitions=1)


@pytest.mark.parametrize("shape", [AiokafkaMember, ConfluentMember, AsyncConfluentMember])
def test_a_new_group_reads_a_topic_of_small_transactions(shape: Any) -> None:
    """The offsets of markers are left out: each looks like a jump ahead, once."""

    async def scenario(rig: Rig) -> None:
        rig.group.spread(2)
        consumer = shape(rig.group)
        rig.group.join(consumer)
        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=80, max_records=15)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario, partitions=2, each=40)


@pytest.mark.parametrize("shape", [AiokafkaMember, ConfluentMember, AsyncConfluentMember])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_new_group_comes_forward_in_a_topic_of_small_transactions_that_grows(shape: Any, partitions: int) -> None:
    class Growing(shape):  # type: ignore[misc]
        def records(self, most: int) -> list[Any]:
            for where, log in self.group.logs.items():
                log.append(SimpleNamespace(topic="in", partition=where[1], offset=2 * len(log), key=None, value=b"new"))
            return super().records(most)

    async def scenario(rig: Rig) -> None:
        rig.group.is_mixed = True
        rig.group.spread(2)
        consumer = Growing(rig.group)
        rig.group.join(consumer)
        async with rig.producer() as producer:
            began = asyncio.get_running_loop().time()
            await copy(rig, consumer, producer, until=100 * partitions, max_records=10**6)
            assert asyncio.get_running_loop().time() - began < 20
        await consumer.stop()

    run(scenario, partitions=partitions)


def test_a_step_ahead_is_noticed_when_the_next_record_comes() -> None:
    async def scenario(rig: Rig) -> None:
        consumer, log = rig.member(), rig.group.logs["in", 0]
        late = log[8:]
        del log[8:]
        async with rig.producer() as producer, exactly_once(consumer, producer, max_records=4, timeout=0.1) as batches:
            async for records in batches:
                for record in records:
                    producer.send("out", record.value)
                if records[0].offset == 0:
                    consumer.positions["in", 0] = 8
                    asyncio.get_running_loop().call_later(30, log.extend, late)
                if records[-1].offset == 9:
                    batches.stop()
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario, partitions=1)


@pytest.mark.parametrize("shape", [AiokafkaMember, ConfluentMember, AsyncConfluentMember])
def test_a_step_back_beside_the_first_records_of_another_partition_loses_none_of_them(shape: Any) -> None:
    async def scenario(rig: Rig) -> None:
        consumer, late = shape(rig.group), rig.group.logs["in", 1][:]
        rig.group.logs["in", 1].clear()
        rig.group.is_mixed = True
        rig.group.join(consumer)
        async with rig.producer() as producer, exactly_once(consumer, producer, max_records=4, timeout=0.1) as batches:
            copied = 0
            async for records in batches:
                for record in records:
                    producer.send("out", value_of(record))
                copied += len(records)
                if not rig.group.logs["in", 1]:
                    consumer.positions["in", 0] = 0
                    rig.group.logs["in", 1] += late
                if copied == 20:
                    batches.stop()
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario, partitions=2)


def test_a_step_ahead_beside_the_end_of_a_loop_is_noticed_by_the_next_one() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=4, max_records=4)
            async with exactly_once(consumer, producer, max_records=4, timeout=0.1) as batches:
                async for records in batches:
                    for record in records:
                        producer.send("out", record.value)
                    if records[0].offset == 4:
                        consumer.positions["in", 0] = 9
                    if records[-1].offset == 9:
                        batches.stop()
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario, partitions=1)


def test_steps_back_of_one_partition_are_counted_while_another_one_goes_on() -> None:
    class Resetting(AiokafkaMember):
        """Reads "in-1" while it asks where "in-0", whose log is shorter now, begins."""

        is_asking = True

        def records(self, most: int) -> list[Any]:
            position = self.positions["in", 0]
            if position <= len(self.group.logs["in", 0]):
                return super().records(most)
            if self.is_asking:
                del self.positions["in", 0]
                found = super().records(1)
                self.positions["in", 0] = position
            else:
                self.positions["in", 0] = 0
                found = super().records(most)
            self.is_asking = not self.is_asking
            return found

    async def scenario(rig: Rig) -> None:
        consumer = Resetting(rig.group)
        rig.group.join(consumer)
        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=50, max_records=50)
            assert await rig.offsets() == {("in", 0): 50}
            del rig.group.logs["in", 0][20:]
            with pytest.raises(
                ClusterError, match="reads in-0 from offset 0 on instead of 50, and was put back 4 times"
            ):
                await copy(rig, consumer, producer, until=1000)
            assert (await rig.offsets())["in", 1] >= 4
        await consumer.stop()

    run(scenario, partitions=2, each=50)


def test_a_partition_that_has_lost_its_last_records_is_told() -> None:
    """The log ends before the committed offset, so the consumer does what auto.offset.reset says, each time."""

    class Resetting(AiokafkaMember):
        def seek(self, tp: TopicPartition, offset: int) -> None:
            super().seek(tp, offset if offset <= len(self.group.logs[tp[:2]]) else 0)

    async def scenario(rig: Rig) -> None:
        consumer = Resetting(rig.group)
        rig.group.join(consumer)
        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=10)
            del rig.group.logs["in", 0][5:]
            with pytest.raises(ClusterError, match=r"reads in-0 from offset 0 on instead of 10") as told:
                await copy(rig, consumer, producer, until=1)
            assert "--reset-offsets" in told.value.advice
        assert await rig.output() == sorted(b"0:%d" % number for number in range(10))
        assert await rig.offsets() == {("in", 0): 10}
        await consumer.stop()

    run(scenario, partitions=1)


def test_offsets_whose_commit_is_not_finished_are_waited_for() -> None:
    """The consumer's own look-up gives earlier offsets: records would be doubled."""

    async def scenario(rig: Rig) -> None:
        first = rig.member("a")
        async with rig.producer("one") as producer:
            await copy(rig, first, producer, until=5, max_records=5)
        await first.stop()
        second = rig.member("b")  # joins while the marker is on its way
        async with rig.producer("two") as producer:
            await copy(rig, second, producer, until=5, max_records=5)
        assert second.sought, "it was put to the committed offsets"
        assert await rig.output() == rig.group.input
        await second.stop()

    run(scenario, partitions=1, transaction_completion_ms=3000)


@pytest.mark.parametrize("code", [22, 25, 27, 82, 113])
def test_a_refusal_because_the_group_has_moved_on_runs_the_batch_again(code: int) -> None:
    """faults: X17"""

    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        rig.cluster.fail_next("TxnOffsetCommit", code, times=15)
        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=20 + 15 * 3)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_a_transaction_that_a_broker_calls_abortable_is_run_again(api: str) -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        rule = rig.cluster.fail_next(api, "TRANSACTION_ABORTABLE")
        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=23)
        assert rule.is_spent
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_a_refusal_for_good_is_raised_and_the_consumer_goes_back() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        rig.cluster.fail_next("TxnOffsetCommit", 30)
        async with rig.producer() as producer:
            with pytest.raises(OffsetCommitRefusedError):
                await copy(rig, consumer, producer, until=20)
            assert consumer.positions == {("in", 0): 0, ("in", 1): 0}
            await copy(rig, consumer, producer, until=20)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_a_topic_that_was_deleted_is_told_and_named() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        began = asyncio.get_running_loop().time()
        async with rig.producer() as producer:
            rig.cluster.on_request("TxnOffsetCommit", lambda: rig.cluster.delete_topic("in"), times=1)
            with pytest.raises(OffsetCommitRefusedError, match=r"no partition \d of topic 'in'") as caught:
                await copy(rig, consumer, producer, until=20)
            assert caught.value.topic == "in"
            assert asyncio.get_running_loop().time() - began < 10, "not max_block_ms, again and again"
            assert await rig.output() == []
        await consumer.stop()

    run(scenario)


def test_a_record_that_the_broker_rejects_is_raised() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        rig.cluster.fail_next("Produce", 87)
        async with rig.producer() as producer:
            with pytest.raises((BrokerRejectedError, TransactionAbortedError)):
                await copy(rig, consumer, producer, until=20)
            assert await rig.offsets() == {}
            assert consumer.positions == {("in", 0): 0, ("in", 1): 0}
        await consumer.stop()

    run(scenario)


def test_a_record_that_was_too_slow_runs_the_batch_again_and_not_for_ever() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        slow = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1000, "linger_ms": 0}
        async with rig.producer(**slow) as producer:
            rig.cluster.fail_next("Produce", 7, times=40)
            await copy(rig, consumer, producer, until=20 + 3)
            rig.cluster.fail_next("Produce", 7, times=None)
            consumer.positions = dict.fromkeys(consumer.positions, 0)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_an_unknown_end_is_asked_for_until_it_is_known() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        quick = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1000, "max_block_ms": 1000, "linger_ms": 0}
        async with rig.producer(**quick) as producer:
            rig.cluster.drop_answer("EndTxn", times=8)
            await copy(rig, consumer, producer, until=20)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_a_fence_is_fatal() -> None:
    """faults: X1"""

    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            with pytest.raises(ProducerFencedError):
                async with exactly_once(consumer, producer, max_records=3) as batches:
                    async for records in batches:
                        for record in records:
                            producer.send("out", record.value)
                        if records[0].offset >= 3:
                            await producer.flush()
                            async with rig.producer(client_id="other"):
                                pass
        assert len(await rig.output()) == 3
        await consumer.stop()

    run(scenario)


def test_a_fence_during_the_body_is_told_as_one() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            with pytest.raises(ProducerFencedError):
                async with exactly_once(consumer, producer, max_records=3) as batches:
                    async for records in batches:
                        async with rig.producer(client_id="other"):
                            pass
                        producer.send("out", records[0].value)
                        while producer.health().state is not ProducerState.FAILED:
                            await asyncio.sleep(0.1)
        assert await rig.output() == []
        await consumer.stop()

    run(scenario, transaction_version=1)  # version 2 knows it only when it ends the transaction


def test_a_producer_that_is_closed_during_the_body_is_told_as_one() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            with pytest.raises(ProducerClosedError):
                async with exactly_once(consumer, producer, max_records=3) as batches:
                    async for _ in batches:
                        await producer.close()
        await consumer.stop()

    run(scenario)


@pytest.mark.parametrize("code", [0, 29], ids=["done", "refused"])
def test_an_end_that_was_cancelled_twice_goes_on_and_leaves_nothing_open(code: int) -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            rule = rig.cluster.hold("Produce", before_serving=True)
            task = asyncio.create_task(copy(rig, consumer, producer, until=10, max_records=10))
            await asyncio.sleep(1)
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0.1)
            began = asyncio.get_running_loop().time()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert asyncio.get_running_loop().time() == began, "it asks no broker any more"
            assert consumer.positions == {("in", 0): 0, ("in", 1): 0}, "nothing that may not be committed is left out"
            if code:
                rig.cluster.fail_next("Produce", code)
            rig.cluster.release(rule)
            # The next loop waits for that end, which may come later than this.
            await copy(rig, consumer, producer, until=20 if code else 10, max_records=10)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


@pytest.mark.parametrize("timeout", [0.0001, 5e-324])
def test_a_very_short_timeout_leaves_the_event_loop_its_turns(timeout: float) -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer, exactly_once(consumer, producer, timeout=timeout) as batches:
            asyncio.get_running_loop().call_later(1, batches.stop)
            async for _ in batches:
                raise AssertionError
        await consumer.stop()

    run(scenario, each=0)


def test_a_commit_that_was_cancelled_goes_on() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            rule = rig.cluster.hold("EndTxn", before_serving=True)
            task = asyncio.create_task(copy(rig, consumer, producer, until=20, max_records=20))
            while not rig.cluster.requests_seen("EndTxn"):
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.sleep(0.3)
            assert not task.done(), "it waits for the end of the commit"
            rig.cluster.release(rule)
            with pytest.raises(asyncio.CancelledError) as caught:
                await task
            assert not hasattr(caught.value, "__notes__"), "nothing was left to undo"
            assert consumer.positions == {("in", 0): 10, ("in", 1): 10}
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


@pytest.mark.parametrize("shape", [AiokafkaMember, ConfluentMember, AsyncConfluentMember])
@pytest.mark.parametrize("at", ["in the body", "at its end", "in the wait for records", "at the committed offsets"])
def test_a_time_limit_is_kept_whatever_the_cluster_does(shape: Any, at: str) -> None:
    async def scenario(rig: Rig) -> None:
        consumer = shape(rig.group)
        rig.group.join(consumer)
        clock = asyncio.get_running_loop().time

        def outage() -> None:
            for broker in (1, 2, 3):
                rig.cluster.kill_broker(broker)

        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=6, max_records=6)
            done = sum((await rig.offsets()).values())
            began = clock()
            if at == "at the committed offsets":
                outage()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    async with exactly_once(consumer, producer, max_records=100, timeout=20) as batches:
                        async for records in batches:
                            for record in records:
                                producer.send("out", value_of(record))
                            if at == "in the body":
                                outage()
                                await asyncio.sleep(100)
                            elif at == "at its end":
                                outage()
                            else:
                                done += len(records)
            assert clock() - began < 6
            for broker in (1, 2, 3):
                if at != "in the wait for records":
                    rig.cluster.start_broker(broker)
            if done < 20:
                await copy(rig, consumer, producer, until=20 - done)
        assert await rig.output() == rig.group.input
        assert sum((await rig.offsets()).values()) == 20
        await consumer.stop()

    run(scenario)


@pytest.mark.parametrize("shape", [AiokafkaMember, ConfluentMember, AsyncConfluentMember])
def test_a_loop_that_could_not_read_the_committed_offsets_leaves_nothing_out(shape: Any) -> None:
    """The group has none yet: nothing but the consumer's position says where it reads on."""

    async def scenario(rig: Rig) -> None:
        consumer = shape(rig.group)
        rig.group.join(consumer)
        async with rig.producer(max_block_ms=2000) as producer:
            with pytest.raises(ZeroDivisionError) as caught:
                async with exactly_once(consumer, producer, max_records=3, timeout=0.1) as batches:
                    async for _ in batches:
                        for broker in (1, 2, 3):
                            rig.cluster.kill_broker(broker)
                        raise ZeroDivisionError
            assert "could not be read within 2 s: the consumer was put to the first" in caught.value.__notes__[0]
            for broker in (1, 2, 3):
                rig.cluster.start_broker(broker)
            await copy(rig, consumer, producer, until=20)
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_partitions_by_hand_are_read_without_a_member() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = AiokafkaMember(rig.group)
        consumer.assigned_by_hand()
        async with rig.producer() as producer:
            await copy(rig, consumer, producer, until=20)
        assert await rig.output() == rig.group.input
        assert rig.group.unchecked > 0

    run(scenario)


# ---------------------------------------------------------------------- wrong calls
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"max_records": 0}, ConfigError, "max_records"),
        ({"max_records": -1}, ConfigError, "max_records"),
        ({"max_records": True}, ConfigError, "max_records"),
        ({"max_records": "5"}, ConfigError, "max_records"),
        ({"timeout": 0}, ConfigError, "timeout"),
        ({"timeout": -1}, ConfigError, "timeout"),
        ({"timeout": float("nan")}, ConfigError, "timeout"),
        ({"timeout": float("inf")}, ConfigError, "timeout"),
        ({"timeout": None}, ConfigError, "timeout"),
        ({"consumer": object()}, RecordTypeError, "AIOKafkaConsumer"),
        ({"consumer": None}, RecordTypeError, "NoneType"),
        ({"producer": "p"}, RecordTypeError, "Producer"),
        ({"consumer": {"enable_auto_commit": True}}, ConfigError, "enable_auto_commit"),
        ({"consumer": {"isolation_level": "read_uncommitted"}}, ConfigError, "isolation_level"),
        ({"consumer": {"group_id": None}}, UsageError, "group_id"),
        ({"producer": {"transactional_id": None}}, UsageError, "transactional_id"),
    ],
    ids=lambda value: repr(value) if isinstance(value, dict) and "object" not in repr(value) else None,
)
def test_a_wrong_set_up_is_refused_at_once(options: dict[str, Any], error: type[Exception], text: str) -> None:
    async def scenario(rig: Rig) -> None:
        given = dict(options)
        consumer = given.pop("consumer", {})
        if isinstance(consumer, dict):
            consumer = AiokafkaMember(rig.group, **consumer)
        producer = given.pop("producer", {})
        if isinstance(producer, dict):
            producer = rig.producer(**producer)
        with pytest.raises(error, match=text):
            exactly_once(consumer, producer, **given)

    run(scenario)


def test_calls_in_the_wrong_order_are_refused() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        producer = rig.producer()
        batches = exactly_once(consumer, producer)
        with pytest.raises(UsageError, match="not been started"):
            await batches.__aenter__()
        with pytest.raises(UsageError, match="inside `async with"):
            aiter(batches)
        with pytest.raises(UsageError, match="inside `async with"):
            await anext(batches)
        async with producer:
            producer.begin_transaction()
            with pytest.raises(UsageError, match="open already"):
                await batches.__aenter__()
            await producer.abort_transaction()
            unstarted = AiokafkaMember(rig.group)
            unstarted._coordinator = None
            with pytest.raises(UsageError, match="start"):
                await exactly_once(unstarted, producer).__aenter__()
            unsubscribed = AiokafkaMember(rig.group)
            unsubscribed._subscription.subscription = None
            with pytest.raises(UsageError, match="topics"):
                await exactly_once(unsubscribed, producer).__aenter__()
            async with batches:
                with pytest.raises(UsageError, match="async for"):
                    await anext(batches)
                aiter(batches)
                with pytest.raises(UsageError, match="one loop"):
                    aiter(batches)
                waiting = asyncio.create_task(anext(batches))
                await asyncio.sleep(0)
                with pytest.raises(UsageError, match="another task"):
                    await anext(batches)
                assert len(await waiting) == 20
                assert repr(batches) == "<ExactlyOnceBatches open>"
            with pytest.raises(UsageError, match="used once"):
                await batches.__aenter__()
        await consumer.stop()

    run(scenario)


def test_a_body_that_ends_the_transaction_is_refused() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            with pytest.raises(UsageError, match="leave that to exactly_once"):
                async with exactly_once(consumer, producer) as batches:
                    async for _ in batches:
                        assert await producer.abort_transaction() is TransactionOutcome.ABORTED
            assert await copy(rig, consumer, producer, until=20) > 0
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)
