"""Rows of the fault catalogue that one broker's answers can show, through the whole pipeline."""

from __future__ import annotations

import asyncio
import random

import pytest
from rig import run, run_in_virtual_time, started, until, values

from aiokprod import Delivery, Persistence, Producer
from aiokprod.errors import (
    AiokprodError,
    BrokerRejectedError,
    BufferFullError,
    DeliveryTimeoutError,
    InvalidRecordError,
    PartitionOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationError,
    UndeliveredAtCloseError,
    UnknownTopicError,
)
from aiokprod.testing import MockCluster


# ---------------------------------------------------------------------- response codes
@pytest.mark.parametrize(
    "code",
    [
        "CORRUPT_MESSAGE",  # faults: P3
        "UNKNOWN_TOPIC_OR_PARTITION",  # faults: P4
        "LEADER_NOT_AVAILABLE",  # faults: P5
        "REPLICA_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "NOT_LEADER_OR_FOLLOWER",  # faults: P6
        "FENCED_LEADER_EPOCH",
        "REQUEST_TIMED_OUT",  # faults: P8
        "NOT_ENOUGH_REPLICAS",  # faults: P11
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",  # faults: P12
        "NETWORK_EXCEPTION",  # faults: P13
        "KAFKA_STORAGE_ERROR",  # faults: P18
        "UNKNOWN_LEADER_EPOCH",  # faults: P19
        "THROTTLING_QUOTA_EXCEEDED",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "UNKNOWN_TOPIC_ID",  # faults: P20
    ],
)
@pytest.mark.parametrize("after_append", [False, True])
def test_a_retriable_code_is_invisible_and_nothing_is_written_twice(code: str, after_append: bool) -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.fail_next("Produce", code, after_append=after_append, times=2)
            deliveries = [producer.send("t", b"%d" % i) for i in range(1, 6)]
            assert [m.offset for m in await asyncio.gather(*deliveries)] == [1, 2, 3, 4, 5]
            assert values(cluster, "t") == [b"%d" % i for i in range(6)]
            assert producer.metrics()["batches_resent"] > 0

    run(scenario())


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("INVALID_TOPIC_EXCEPTION", BrokerRejectedError),  # faults: P14
        ("POLICY_VIOLATION", BrokerRejectedError),
        ("UNSUPPORTED_FOR_MESSAGE_FORMAT", BrokerRejectedError),
        ("UNSUPPORTED_COMPRESSION_TYPE", BrokerRejectedError),
        ("INVALID_REQUIRED_ACKS", BrokerRejectedError),
        ("UNSUPPORTED_VERSION", BrokerRejectedError),  # faults: P21
        ("INVALID_TIMESTAMP", InvalidRecordError),
        ("MESSAGE_TOO_LARGE", RecordTooLargeError),  # faults: P10
        ("RECORD_LIST_TOO_LARGE", RecordTooLargeError),
        ("TOPIC_AUTHORIZATION_FAILED", TopicAuthorizationError),  # faults: P15
    ],
)
def test_a_fatal_code_fails_its_batch_alone_and_the_partition_goes_on(code: str, error: type[AiokprodError]) -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.fail_next("Produce", code)
            with pytest.raises(error) as raised:
                await producer.send("t", b"refused")
            assert raised.value.persistence is Persistence.NOT_PERSISTED
            assert (raised.value.topic, raised.value.partition, raised.value.attempts) == ("t", 0, 1)
            assert (await producer.send("t", b"1")).offset == 1
            assert producer.metrics()["epoch_bumps"] == 0  # its numbers were closed up

    run(scenario())


@pytest.mark.parametrize("code", [-1, 999])
def test_an_unknown_code_leaves_the_fate_open_and_the_partition_goes_on(code: int) -> None:  # faults: P2
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.fail_next("Produce", code)
            with pytest.raises(BrokerRejectedError) as raised:
                await producer.send("t", b"?")
            assert raised.value.persistence is Persistence.POSSIBLY_PERSISTED
            assert raised.value.code == code
            await producer.send("t", b"1")
            assert values(cluster, "t") == [b"0", b"1"]

    run(scenario())


def test_not_leader_with_a_base_offset_was_appended(cluster_moves: None = None) -> None:  # faults: P6, broker: 6.4
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", after_append=True)
            assert (await producer.send("t", b"1")).offset == 1
            assert values(cluster, "t") == [b"0", b"1"]

    run(scenario())


def test_a_leader_hint_is_followed_without_waiting_for_metadata() -> None:  # faults: P7
    async def scenario() -> None:
        async with started("t", retry_backoff_ms=60_000, retry_backoff_max_ms=60_000) as (cluster, producer):
            await producer.send("t", b"0")
            leader = cluster.leader("t")
            cluster.move_leader("t", 0, next(node for node in cluster.broker_ids if node != leader))
            async with asyncio.timeout(30):  # below the backoff
                assert (await producer.send("t", b"1")).offset == 1

    run(scenario())


def test_a_throttled_answer_settles_at_once_and_mutes_its_connection_alone() -> None:  # faults: P25
    async def scenario() -> None:
        async with started("t", partitions=3) as (cluster, producer):
            for partition in range(3):
                await producer.send("t", b"0", partition=partition)
            cluster.throttle_next("Produce", 300, topic="t", partition=0)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await producer.send("t", b"1", partition=0)
            assert loop.time() - began < 0.25
            await producer.send("t", b"1", partition=1)
            assert loop.time() - began < 0.25
            await producer.send("t", b"2", partition=0)
            assert loop.time() - began >= 0.28

    run_in_virtual_time(scenario())


def test_acks_0_resolves_without_an_offset_after_the_write() -> None:  # faults: P26
    async def scenario() -> None:
        async with started("t", acks=0) as (cluster, producer):
            metadata = await producer.send("t", b"v")
            assert metadata.offset is None
            await until(lambda: values(cluster, "t") == [b"v"])
            await asyncio.gather(*(producer.send("t", b"%d" % i) for i in range(100)))
            await until(lambda: len(values(cluster, "t")) == 101)

    run(scenario())


def test_acks_1_is_acknowledged_with_an_offset() -> None:
    async def scenario() -> None:
        async with started("t", acks=1) as (_, producer):
            assert not producer.config.idempotent
            assert [(await producer.send("t", b"v")).offset for _ in range(3)] == [0, 1, 2]

    run(scenario())


# ---------------------------------------------------------------------- sequences
def test_an_out_of_order_head_bumps_the_epoch_of_its_partition_alone() -> None:  # faults: I2, I5
    async def scenario() -> None:
        async with started("t", partitions=2) as (cluster, producer):
            await producer.send("t", b"0", partition=0)
            await producer.send("t", b"0", partition=1)
            cluster.forget_producers("t", 0)
            cluster.fail_next("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER", partition=0, topic="t")
            assert (await producer.send("t", b"1", partition=0)).offset == 1
            assert (await producer.send("t", b"1", partition=1)).offset == 1
            assert producer.metrics()["epoch_bumps"] == 1
            epochs = {batch.producer_epoch for batch in cluster.log("t", 1)}
            assert len(epochs) == 1

    run(scenario())


@pytest.mark.parametrize("code", ["INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID"])
def test_a_lost_identity_is_replaced_by_a_fresh_one(code: str) -> None:  # faults: I13, I14, I15
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            before = cluster.requests_seen("InitProducerId")
            cluster.fail_next("Produce", code)
            assert (await producer.send("t", b"1")).offset == 1
            assert cluster.requests_seen("InitProducerId") == before + 1

    run(scenario())


def test_a_duplicate_answer_is_a_success_without_an_offset() -> None:  # faults: I16
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.fail_next("Produce", "DUPLICATE_SEQUENCE_NUMBER", after_append=True)
            assert (await producer.send("t", b"1")).offset is None
            assert values(cluster, "t") == [b"0", b"1"]

    run(scenario())


def test_the_first_batches_of_a_producer_go_one_by_one() -> None:  # faults: I6
    async def scenario() -> None:
        async with started("t", linger_ms=0, batch_size=0) as (cluster, producer):
            held = cluster.hold("Produce", before_serving=True)
            deliveries = [producer.send("t", b"%d" % i) for i in range(5)]
            await until(lambda: held.hits == 1)
            await asyncio.sleep(0.03)
            assert producer.metrics()["requests_in_flight"] == 1
            cluster.release(held)
            await asyncio.gather(*deliveries)

    run_in_virtual_time(scenario())


def test_a_batch_too_large_for_the_topic_is_split_in_order_while_flush_waits() -> None:  # faults: I10, I11, P9
    async def scenario() -> None:
        async with started("t", linger_ms=1_000, compression_type="gzip") as (cluster, producer):
            await producer.send("t", b"0" * 100)
            cluster.alter_topic("t", max_message_bytes=2_000)
            draw = random.Random(1)
            sent = [b"%03d " % i + draw.randbytes(200) for i in range(200)]
            deliveries = [producer.send("t", value) for value in sent]
            await producer.flush()
            assert all(delivery.done() for delivery in deliveries)
            assert [delivery.result().offset for delivery in deliveries] == list(range(1, 201))
            assert values(cluster, "t")[1:] == sent

    run(scenario())


def test_one_record_too_large_among_others_fails_alone() -> None:  # faults: I11
    async def scenario() -> None:
        async with started("t", linger_ms=1_000) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.alter_topic("t", max_message_bytes=2_000)
            deliveries = [producer.send("t", b"x" * (3_000 if i == 7 else 100)) for i in range(20)]
            await producer.flush()
            failed = [i for i, delivery in enumerate(deliveries) if delivery.exception() is not None]
            assert failed == [7]
            assert isinstance(deliveries[7].exception(), RecordTooLargeError)
            assert [d.result().offset for i, d in enumerate(deliveries) if i != 7] == list(range(1, 20))

    run(scenario())


def test_records_named_by_the_broker_fail_with_its_text_and_the_others_arrive() -> None:  # faults: P24
    async def scenario() -> None:
        async with started(linger_ms=1_000) as (cluster, producer):
            cluster.create_topic("t", cleanup_policy="compact")
            await producer.send("t", b"0", key=b"k")
            deliveries = [producer.send("t", b"v", key=None if i in (3, 5) else b"k") for i in range(8)]
            await producer.flush()
            failed = [i for i, delivery in enumerate(deliveries) if delivery.exception() is not None]
            assert failed == [3, 5]
            assert isinstance(deliveries[3].exception(), InvalidRecordError)
            assert [d.result().offset for i, d in enumerate(deliveries) if i not in (3, 5)] == list(range(1, 7))

    run(scenario())


def test_a_recreated_topic_starts_again() -> None:  # faults: T6
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            for i in range(3):
                await producer.send("t", b"old %d" % i)
            cluster.recreate_topic("t")
            assert (await producer.send("t", b"new")).offset == 0
            assert values(cluster, "t") == [b"new"]

    run(scenario())


# ---------------------------------------------------------------------- network
@pytest.mark.parametrize("after_append", [False, True])
def test_a_lost_answer_makes_no_second_copy(after_append: bool) -> None:  # faults: N1, N2
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.drop_answer("Produce", after_append=after_append)
            deliveries = [producer.send("t", b"%d" % i) for i in range(1, 5)]
            assert [m.offset for m in await asyncio.gather(*deliveries)] == [1, 2, 3, 4]
            assert values(cluster, "t") == [b"%d" % i for i in range(5)]

    run(scenario())


def test_an_answer_that_leaves_a_partition_out_is_a_failed_attempt() -> None:  # faults: H9
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.omit_partition("Produce", "t", 0)
            assert (await producer.send("t", b"1")).offset == 1
            assert values(cluster, "t") == [b"0", b"1"]

    run(scenario())


@pytest.mark.parametrize(
    ("code", "base_offset"),
    [(0, -5), (0, 2**63 - 1), (6, 2**63 - 1)],  # behind the last there is none for the second record
)
def test_an_acknowledgement_without_offsets_is_no_answer(code: int, base_offset: int) -> None:  # faults: H12
    async def scenario() -> None:
        async with started("t", linger_ms=5) as (cluster, producer):
            await producer.send("t", b"0")

            def lie(request: object, version: int) -> object:
                from aiokprod.wire.messages.produce import (
                    PartitionProduceResponse,
                    ProduceResponse,
                    TopicProduceResponse,
                )

                return ProduceResponse(
                    responses=[
                        TopicProduceResponse(
                            name="t",
                            topic_id=cluster.topic_id("t"),
                            partition_responses=[
                                PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset)
                            ],
                        )
                    ]
                )

            cluster.answer_with("Produce", lie)
            assert [m.offset for m in await asyncio.gather(producer.send("t", b"1"), producer.send("t", b"2"))] == [
                1,
                2,
            ]
            assert producer.metrics()["connections_lost"] >= 1

    run(scenario())


def test_a_broker_that_never_answers_is_left_at_the_request_timeout() -> None:  # faults: N4, N7
    async def scenario() -> None:
        async with started("t", request_timeout_ms=200) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce", times=1)
            delivery = producer.send("t", b"1")
            assert (await delivery).offset == 1
            assert held.hits == 1
            assert values(cluster, "t") == [b"0", b"1"]

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- deadlines
def test_an_unstamped_batch_sheds_only_the_records_that_are_due() -> None:
    async def scenario() -> None:
        options = {"linger_ms": 0, "delivery_timeout_ms": 300, "request_timeout_ms": 250}
        async with started("t", **options) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.move_leader("t", 0, None)
            early = producer.send("t", b"early")
            await asyncio.sleep(0.2)
            late = producer.send("t", b"late")
            await until(early.done)
            error = early.exception()
            assert isinstance(error, DeliveryTimeoutError)
            assert error.persistence is Persistence.NOT_PERSISTED
            assert not late.done()
            cluster.move_leader("t", 0, 1)
            await late
            assert values(cluster, "t") == [b"0", b"late"]

    run_in_virtual_time(scenario())


def test_a_batch_that_may_be_in_the_log_expires_as_possibly_persisted() -> None:  # faults: I8, P8
    async def scenario() -> None:
        options = {"linger_ms": 0, "delivery_timeout_ms": 300, "request_timeout_ms": 250}
        async with started("t", **options) as (cluster, producer):
            await producer.send("t", b"0")
            rule = cluster.fail_next("Produce", "REQUEST_TIMED_OUT", after_append=True, times=None)
            with pytest.raises(DeliveryTimeoutError) as raised:
                await producer.send("t", b"1")
            assert raised.value.persistence is Persistence.POSSIBLY_PERSISTED
            assert "REQUEST_TIMED_OUT" in str(raised.value)
            rule.cancel()
            await producer.send("t", b"2")
            assert values(cluster, "t") == [b"0", b"1", b"2"]

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- topics
def test_sends_to_a_topic_that_comes_later_succeed_in_order() -> None:  # faults: T1
    async def scenario() -> None:
        async with started() as (cluster, producer):
            deliveries = [producer.send("later", b"%d" % i) for i in range(10)]
            await asyncio.sleep(0.05)
            cluster.create_topic("later")
            await asyncio.gather(*deliveries)
            assert values(cluster, "later") == [b"%d" % i for i in range(10)]

    run_in_virtual_time(scenario())


def test_an_unknown_topic_is_an_error_at_max_block_with_its_cause() -> None:  # faults: T2
    async def scenario() -> None:
        async with started(max_block_ms=150) as (_, producer):
            delivery = producer.send("never", b"v")
            with pytest.raises(UnknownTopicError, match="UNKNOWN_TOPIC_OR_PARTITION") as raised:
                await delivery
            assert raised.value.persistence is Persistence.NOT_PERSISTED
            assert producer.health().buffered_bytes == 0

    run_in_virtual_time(scenario())


def test_a_partition_out_of_range_fails_after_one_refresh_and_names_the_range() -> None:
    async def scenario() -> None:
        async with started("t", partitions=3) as (cluster, producer):
            await producer.send("t", b"v")
            before = cluster.requests_seen("Metadata")
            with pytest.raises(PartitionOutOfRangeError, match="0 to 2"):
                await producer.send("t", b"v", partition=3)
            assert cluster.requests_seen("Metadata") == before + 1
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_a_partition_that_was_added_is_found_by_the_refresh() -> None:  # faults: T7
    async def scenario() -> None:
        async with started("t", partitions=1) as (cluster, producer):
            await producer.send("t", b"v")
            cluster.add_partitions("t", 3)
            assert (await producer.send("t", b"v", partition=2)).partition == 2

    run(scenario())


def test_a_partition_without_a_leader_waits_for_one() -> None:  # faults: T11
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.move_leader("t", 0, None)
            delivery = producer.send("t", b"1")
            await asyncio.sleep(0.1)
            assert not delivery.done()
            cluster.move_leader("t", 0, 2)
            assert (await delivery).offset == 1

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- memory
def test_a_full_buffer_makes_sends_wait_in_order_and_then_refuses() -> None:  # faults: M1
    async def scenario() -> None:
        options = {"buffer_memory": 20_000, "max_request_size": 10_000, "batch_size": 1_000, "max_block_ms": 100}
        async with started("t", **options) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            accepted: list[Delivery] = []
            text = (
                r"^no room for a record of \d+ bytes: \d+ of 20000 bytes of buffer_memory are taken, and records that wait"
                r" for room take \d+ of 20000 bytes \(max_waiting_bytes\) "
            )
            with pytest.raises(BufferFullError, match=text):
                for _ in range(1_000):
                    accepted.append(producer.send("t", b"x" * 500))
            with pytest.raises(BufferFullError):
                producer.try_send("t", b"x")
            await until(lambda: any(d.done() for d in accepted))
            late = [d for d in accepted if d.done()]
            assert all(isinstance(d.exception(), BufferFullError) for d in late)
            assert all(" bytes within 0.1 s (max_block_ms): " in str(d.exception()) for d in late)
            assert producer.health().buffered_bytes <= 20_000
            cluster.release(held)
            await producer.flush()
            assert producer.health().buffered_bytes == 0
            delivered = sum(1 for d in accepted if d.exception() is None)
            assert len(values(cluster, "t")) == delivered + 1

    run_in_virtual_time(scenario())


def test_waiting_records_go_on_when_there_is_room() -> None:  # faults: M2
    async def scenario() -> None:
        options = {"buffer_memory": 20_000, "max_request_size": 10_000, "batch_size": 1_000}
        async with started("t", **options) as (cluster, producer):
            deliveries = [producer.send("t", b"%03d" % i + b"x" * 300) for i in range(80)]
            await asyncio.gather(*deliveries)
            assert [value[:3] for value in values(cluster, "t") if value] == [b"%03d" % i for i in range(80)]

    run(scenario())


# ---------------------------------------------------------------------- closing
def test_close_reports_what_it_could_not_deliver() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers, linger_ms=0)
            await producer.start()
            await producer.send("t", b"0")
            cluster.hold("Produce")
            deliveries = [producer.send("t", b"%d" % i) for i in range(5)]
            report = await producer.close(timeout=0.1)
            assert report.count == 5
            assert not report.is_clean
            for delivery in deliveries:
                with pytest.raises(UndeliveredAtCloseError):
                    delivery.result()

    run(scenario())


# ---------------------------------------------------------------------- everything at once
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("idempotent", [True, False])
def test_random_faults_lose_nothing_and_keep_the_order(seed: int, idempotent: bool) -> None:  # faults: I25, N3
    async def scenario() -> None:
        draw = random.Random(seed)
        async with started("t", partitions=4, enable_idempotence=idempotent) as (cluster, producer):
            sent: list[list[Delivery]] = [[] for _ in range(4)]
            for number in range(2_000):
                partition = draw.randrange(4)
                sent[partition].append(producer.send("t", b"%d" % number, partition=partition))
                if draw.random() < 0.02:
                    await asyncio.sleep(draw.random() * 0.005)
                if draw.random() < 0.01:
                    _misfortune(cluster, draw)
            await producer.flush()
            for partition, deliveries in enumerate(sent):
                log = [int(value) for value in values(cluster, "t", partition) if value is not None]
                offsets = [delivery.result().offset for delivery in deliveries]
                firsts = list(dict.fromkeys(log))
                assert firsts == sorted(firsts)
                assert len(firsts) == len(deliveries)
                if idempotent:
                    assert log == firsts
                    assert offsets == list(range(len(deliveries)))
            assert producer.health().buffered_bytes == 0

    run_in_virtual_time(scenario())


def _misfortune(cluster: MockCluster, draw: random.Random) -> None:
    dice = draw.random()
    if dice < 0.2:
        cluster.drop_answer("Produce", after_append=draw.random() < 0.5)
    elif dice < 0.4:
        cluster.move_leader("t", draw.randrange(4), draw.choice(cluster.broker_ids))
    elif dice < 0.6:
        cluster.fail_next("Produce", draw.choice(["NOT_ENOUGH_REPLICAS", "CORRUPT_MESSAGE", "NOT_LEADER_OR_FOLLOWER"]))
    elif dice < 0.7:
        cluster.fail_next("Produce", "REQUEST_TIMED_OUT", after_append=True)
    elif dice < 0.8:
        cluster.omit_partition("Produce", "t", draw.randrange(4))
    elif dice < 0.9:
        cluster.close_connections(draw.choice(cluster.broker_ids), abort=True)
    else:
        cluster.throttle_next("Produce", 20)
