"""More rows of the fault catalogue through the whole pipeline: answers, sequences, and what the network does to both."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rig import backend_of, mock_cluster, producer_of, run, run_in_virtual_time, started, until, values

from aiokprod import Persistence, Producer, TimestampType
from aiokprod.errors import (
    BrokerRejectedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from aiokprod.pipeline.partition.ledger import SEQUENCES, Ledger
from aiokprod.testing import MockCluster
from aiokprod.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

ONE_BY_ONE: dict[str, Any] = {"linger_ms": 0, "batch_size": 0}


def ledger_of(producer: Producer, topic: str, partition: int = 0) -> Ledger:
    queue = next(q for q in backend_of(producer).partitions if (q.topic, q.partition) == (topic, partition))
    return queue.ledger


def another(cluster: MockCluster, topic: str, partition: int = 0) -> int:
    """Return a broker that does not lead the partition."""
    return next(node for node in cluster.broker_ids if node != cluster.leader(topic, partition))


async def learned(cluster: MockCluster, producer: Producer, topic: str, leader: int) -> None:
    """Let the producer learn the leader."""
    assert producer._pipeline is not None
    client = producer._pipeline.client
    client.refresh("a test")

    def is_known() -> bool:
        known = client.topic(topic)
        return known is not None and known.partitions[0].leader_id == leader

    await until(is_known)


# ---------------------------------------------------------------------- timestamps
def test_the_answer_to_a_duplicate_does_not_date_the_records_of_a_create_time_topic() -> None:
    """faults: P1, broker: 2.2"""

    async def scenario() -> None:
        async with started("t", linger_ms=20) as (cluster, producer):
            await producer.send("t", b"0")
            dropped = cluster.drop_answer("Produce", after_append=True)
            now_ms = cluster.records("t")[0].timestamp_ms  # not older: old records are not sent again (R5.4)
            deliveries = [producer.send("t", b"v", timestamp_ms=now_ms - number) for number in range(3)]
            outcomes = await asyncio.gather(*deliveries)
            assert dropped.hits == 1
            assert cluster.counters.duplicates == 1
            assert [(m.offset, m.timestamp) for m in outcomes] == [(1 + number, now_ms - number) for number in range(3)]
            assert {m.timestamp_type for m in outcomes} == {TimestampType.CREATE_TIME}

    run(scenario())


def test_a_topic_that_dates_records_itself_tells_its_own_time() -> None:
    """faults: P1"""

    async def scenario() -> None:
        async with started() as (cluster, producer):
            cluster.create_topic("t", message_timestamp_type="LogAppendTime")
            outcomes = await asyncio.gather(*(producer.send("t", b"v", timestamp_ms=1_000) for _ in range(3)))
            (batch,) = {record.timestamp_ms for record in cluster.records("t")}
            assert {(m.timestamp, m.timestamp_type) for m in outcomes} == {(batch, TimestampType.LOG_APPEND_TIME)}
            cluster.drop_answer("Produce", after_append=True)
            later = await producer.send("t", b"v", timestamp_ms=1_000)
            assert later.timestamp == cluster.records("t")[-1].timestamp_ms
            assert later.timestamp_type is TimestampType.LOG_APPEND_TIME

    run(scenario())


# ---------------------------------------------------------------------- sequences
def test_nothing_goes_to_the_new_leader_while_the_old_one_owes_answers() -> None:
    """faults: I7"""

    async def scenario() -> None:
        async with started("t", **ONE_BY_ONE) as (cluster, producer):
            for number in range(2):
                await producer.send("t", b"%d" % number)
            old, new = cluster.leader("t"), another(cluster, "t")
            held = cluster.hold("Produce", broker=old)
            deliveries = [producer.send("t", b"%d" % number) for number in range(2, 7)]
            await until(lambda: producer.metrics()["requests_in_flight"] == 5)
            cluster.move_leader("t", 0, new)
            await learned(cluster, producer, "t", new)
            deliveries += [producer.send("t", b"%d" % number) for number in range(7, 10)]
            await asyncio.sleep(0.05)
            assert cluster.requests_seen("Produce", broker=new) == 0
            assert not any(delivery.done() for delivery in deliveries)
            cluster.release(held)
            assert [m.offset for m in await asyncio.gather(*deliveries)] == list(range(2, 10))
            assert cluster.requests_seen("Produce", broker=new) > 0
            assert values(cluster, "t") == [b"%d" % number for number in range(10)]
            assert producer.metrics()["epoch_bumps"] == 0

    run_in_virtual_time(scenario())


def test_a_batch_in_the_log_that_has_become_too_large_is_not_split() -> None:
    """faults: I12"""

    async def scenario() -> None:
        async with started("t", linger_ms=20) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.drop_answer("Produce", after_append=True)
            cluster.on_request("Produce", lambda: cluster.alter_topic("t", max_message_bytes=200))
            deliveries = [producer.send("t", b"x" * 100) for _ in range(3)]
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {RecordTooLargeError}
            assert {e.persistence for e in outcomes if isinstance(e, RecordTooLargeError)} == {
                Persistence.POSSIBLY_PERSISTED
            }
            assert (await producer.send("t", b"1")).offset == 4
            assert values(cluster, "t") == [b"0", *[b"x" * 100] * 3, b"1"]
            assert producer.metrics()["epoch_bumps"] == 0

    run(scenario())


@pytest.mark.parametrize("before", range(1, 6))
def test_sequences_pass_their_end_without_a_bump_even_when_answers_are_lost(before: int) -> None:
    """faults: I17"""

    async def scenario() -> None:
        async with started("t", linger_ms=0, batch_size=400) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.forget_producers("t")
            ledger_of(producer, "t").next_sequence = SEQUENCES - before
            cluster.drop_answer("Produce", after_append=True, nth=2)
            deliveries = [producer.send("t", b"%02d" % number + b"x" * 90) for number in range(1, 13)]
            assert [m.offset for m in await asyncio.gather(*deliveries)] == list(range(1, 13))
            records = cluster.records("t")[1:]
            assert [record.sequence for record in records] == [(SEQUENCES - before + n) % SEQUENCES for n in range(12)]
            assert {record.producer_epoch for record in records} == {0}
            assert producer.metrics()["epoch_bumps"] == 0

    run(scenario())


def test_a_broker_that_forgot_the_producer_takes_what_comes_next() -> None:
    """faults: I20"""

    async def scenario() -> None:
        async with started("t", **ONE_BY_ONE) as (cluster, producer):
            for round_ in range(3):
                deliveries = [producer.send("t", b"%d" % (10 * round_ + number)) for number in range(10)]
                await asyncio.gather(*deliveries)
                cluster.forget_producers("t")
            assert values(cluster, "t") == [b"%d" % number for number in range(30)]

    run(scenario())


def test_records_of_yesterday_arrive_in_order_one_batch_at_a_time() -> None:
    """faults: I20"""

    async def scenario() -> None:
        async with started("t", **ONE_BY_ONE) as (cluster, producer):
            await producer.send("t", b"0")
            old_ms = cluster.records("t")[0].timestamp_ms - 13 * 3600 * 1000
            held = cluster.hold("Produce")
            deliveries = [producer.send("t", b"%d" % number, timestamp_ms=old_ms) for number in range(1, 6)]
            await until(lambda: held.hits == 1)
            await asyncio.sleep(0.03)
            assert producer.metrics()["requests_in_flight"] == 1
            cluster.release(held)
            await asyncio.gather(*deliveries)
            assert values(cluster, "t") == [b"%d" % number for number in range(6)]

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- network
def test_records_for_a_broker_that_cannot_be_reached_wait_and_expire_while_others_flow() -> None:
    """faults: N14"""

    async def scenario() -> None:
        async with mock_cluster() as cluster:
            cluster.create_topic("t", partitions=3)
            dead = cluster.leader("t", 2)
            assert dead is not None
            cluster.advertise(dead, "127.0.0.1", 1)
            times = {"delivery_timeout_ms": 6_000, "request_timeout_ms": 500}
            async with producer_of(cluster, linger_ms=0, **times) as producer:
                waiting = producer.send("t", b"waits", partition=2)
                for number in range(50):
                    await producer.send("t", b"%d" % number, partition=number % 2)
                assert not waiting.done()
                with pytest.raises(DeliveryTimeoutError) as raised:
                    await waiting
                assert raised.value.persistence is Persistence.NOT_PERSISTED
                assert producer.health().buffered_bytes == 0
            assert len(values(cluster, "t")) == 50

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- topics refused for a time
def test_a_topic_that_is_not_allowed_fails_at_once_and_works_after_the_grant() -> None:
    """faults: T4, P15"""

    async def scenario() -> None:
        async with started("t", "u") as (cluster, producer):
            refused = cluster.fail_next("Metadata", "TOPIC_AUTHORIZATION_FAILED", topic="t", times=None)
            async with asyncio.timeout(30):
                with pytest.raises(TopicAuthorizationError) as raised:
                    await producer.send("t", b"v")
            assert raised.value.persistence is Persistence.NOT_PERSISTED
            assert (await producer.send("u", b"v")).offset == 0
            refused.cancel()
            async with asyncio.timeout(30):
                assert (await producer.send("t", b"v")).offset == 0
            assert producer.health().buffered_bytes == 0

    run(scenario())


# ---------------------------------------------------------------------- answers no broker should give
def answering(cluster: MockCluster, *partitions: PartitionProduceResponse) -> Any:
    """Answer Produce with these partitions, whatever was asked."""

    def answer(request: object, version: int) -> ProduceResponse:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(name="t", topic_id=cluster.topic_id("t"), partition_responses=list(partitions))
            ]
        )

    return answer


@pytest.mark.parametrize("second", [PartitionProduceResponse(error_code=44), PartitionProduceResponse(base_offset=99)])
def test_a_partition_answered_twice_is_resolved_once_by_the_first(second: PartitionProduceResponse) -> None:
    """faults: H10"""

    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.answer_with("Produce", answering(cluster, PartitionProduceResponse(base_offset=1), second))
            assert (await producer.send("t", b"never written, says the test")).offset == 1

    run(scenario())


def test_partitions_and_topics_not_asked_for_are_ignored() -> None:
    """faults: H11"""

    async def scenario() -> None:
        async with started("t", "u", partitions=2) as (cluster, producer):
            await producer.send("t", b"0", partition=0)
            waiting = producer.send("t", b"parked")  # its own partition must not be settled by the lie below

            def answer(request: object, version: int) -> ProduceResponse:
                lies = [PartitionProduceResponse(index=number, base_offset=50) for number in (1, 7, -1, 2**31 - 1)]
                return ProduceResponse(
                    responses=[
                        TopicProduceResponse(name="u", topic_id=cluster.topic_id("u"), partition_responses=lies[:1]),
                        TopicProduceResponse(name="unknown", topic_id=b"\x07" * 16, partition_responses=lies),
                        TopicProduceResponse(
                            name="t",
                            topic_id=cluster.topic_id("t"),
                            partition_responses=[PartitionProduceResponse(index=0, base_offset=1)],
                        ),
                    ]
                )

            await waiting
            cluster.answer_with("Produce", answer)
            assert (await producer.send("t", b"1", partition=0)).offset == 1
            assert (await producer.send("t", b"2", partition=1)).offset in (0, 1)
            assert producer.metrics()["connections_lost"] == 0

    run(scenario())


def test_names_of_records_that_are_not_there_are_bounded_and_fail_no_other() -> None:
    """faults: H13"""

    async def scenario() -> None:
        async with started("t", linger_ms=20) as (cluster, producer):
            await producer.send("t", b"0")
            named = [BatchIndexAndErrorMessage(index, "no") for index in (-1, 10**9, 2**31 - 1, 1, 1)]
            answer = PartitionProduceResponse(
                error_code=87, base_offset=-1, record_errors=named, error_message="z" * 50_000
            )
            cluster.answer_with("Produce", answering(cluster, answer))
            deliveries = [producer.send("t", b"%d" % number) for number in range(4)]
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes].count(InvalidRecordError) == 1
            assert isinstance(outcomes[1], InvalidRecordError)
            assert len(str(outcomes[1])) < 2_000
            assert values(cluster, "t") == [b"0", b"0", b"2", b"3"]

    run(scenario())


@pytest.mark.parametrize(
    ("names", "text"), [(20_000, ""), (100, ""), (0, "z" * 2_000_000)], ids=["bytes", "count", "text"]
)
def test_an_answer_that_is_longer_than_its_request_can_cause_is_none(names: int, text: str) -> None:
    """faults: H13, H25"""

    async def scenario() -> None:
        async with started("t", linger_ms=20) as (cluster, producer):
            await producer.send("t", b"0")
            named = [BatchIndexAndErrorMessage(number, "y" * 50) for number in range(names)]
            answer = PartitionProduceResponse(
                error_code=87, base_offset=-1, record_errors=named, error_message=text or None
            )
            cluster.answer_with("Produce", answering(cluster, answer))
            await asyncio.gather(*(producer.send("t", b"%d" % number) for number in range(1, 4)))
            assert values(cluster, "t") == [b"0", b"1", b"2", b"3"]
            assert producer.metrics()["connections_lost"] == 1

    run(scenario())


def test_a_brokers_text_cannot_write_into_our_log(caplog: pytest.LogCaptureFixture) -> None:
    """faults: H14"""

    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            evil = "\x1b[2J\nroot: logged in %s %d {0} {x}\r\x00"
            cluster.fail_next("Produce", "POLICY_VIOLATION", message=evil)
            with pytest.raises(BrokerRejectedError) as raised:
                await producer.send("t", b"1")
            cluster.fail_next("Produce", "POLICY_VIOLATION", message=evil)
            producer.send("t", b"nothing waits")
            await producer.close()
            for text in (str(raised.value), *(record.getMessage() for record in caplog.records)):
                assert not any(ord(letter) < 32 for letter in text), text
            assert "logged in %s %d {0} {x}" in str(raised.value)
            assert any("logged in" in record.getMessage() for record in caplog.records)

    run(scenario())
