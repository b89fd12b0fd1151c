"""The outcome told of each record against the log of real brokers: lost answers, frost, a stopped client, acks.

Killed, rolled and unreachable brokers: test_broker_rows.py; many at once: test_exactly_once.py.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from delivery_check import DELIVERED, NOT, POSSIBLY, Told, judge, read_log
from sending import send_numbered

from aiokprod import Delivery, Persistence, Producer
from aiokprod.errors import BrokerAnswerError, DeliveryTimeoutError
from aiokprod.model import TimestampType
from aiokprod.testing import KafkaCluster
from aiokprod.testing.checker import Finding, Outcome
from aiokprod.testing.faults import Drop, Effect, Fault, Swallow, Truncate, WrongCorrelation
from aiokprod.wire.codes import ErrorCode

pytestmark = pytest.mark.real

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, version=kafka_version, proxied=True) as started:
        yield started


@pytest.fixture(autouse=True)
def healed(cluster: KafkaCluster) -> Iterator[None]:
    yield
    cluster.proxy.clear_faults()
    for broker in cluster.brokers.values():
        if not broker.is_running:
            broker.start(wait=False)
    cluster.wait_ready()


def log_of(cluster: KafkaCluster, topic: str) -> dict[int, list[tuple[int, int]]]:
    cluster.wait_all_in_sync(topic)
    return read_log(cluster.bootstrap_servers, topic, cluster.end_offsets(topic))


def judged(cluster: KafkaCluster, topic: str, told: list[Told]) -> list[Finding]:
    return judge(told, log_of(cluster, topic))


def send(producer: Producer, topic: str, told: list[Told], count: int, partitions: int = 1) -> list[Delivery]:
    deliveries = []
    for _ in range(count):
        record = Told(len(told) % partitions, len(told))
        told.append(record)
        deliveries.append(send_numbered(producer, topic, record))
    return deliveries


@contextmanager
def everything_frozen(cluster: KafkaCluster) -> Iterator[None]:
    for broker in cluster.brokers.values():
        broker.pause()
    try:
        yield
    finally:
        for broker in cluster.brokers.values():
            broker.resume()


# ---------------------------------------------------------------------- lost answers
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "effect", [Drop(), Swallow(), Truncate(20), WrongCorrelation()], ids=lambda effect: type(effect).__name__
)
def test_an_answer_lost_after_the_append_is_asked_for_again_and_told_with_its_offset(
    cluster: KafkaCluster, kafka_name: str, effect: Effect
) -> None:  # faults: N2
    cluster.create_topic(kafka_name)

    async def scenario() -> None:
        async with Producer(cluster.bootstrap_servers, request_timeout_ms=2_000) as producer:
            for number in range(3):
                assert (await producer.send(kafka_name, b"%d" % number)).offset == number
            lost = cluster.proxy.add_fault(Fault(effect=effect, api="Produce"))
            delivery = producer.send(kafka_name, b"3")
            metadata = await delivery
            assert lost.hits == 1
            assert (metadata.partition, metadata.offset) == (0, 3)
            assert delivery.attempts == 2
            assert (await producer.send(kafka_name, b"4")).offset == 4

    asyncio.run(scenario())
    assert log_of(cluster, kafka_name) == {0: [(number, number) for number in range(5)]}


@pytest.mark.slow
def test_answers_lost_again_and_again_with_five_in_flight_make_no_copy(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: N2, N3
    cluster.create_topic(kafka_name, partitions=3)
    told: list[Told] = []

    async def scenario() -> None:
        options = {"linger_ms": 0, "batch_size": 1_000, "request_timeout_ms": 5_000}
        async with Producer(cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
            for after_append in (True, False) * 5:
                rule = cluster.proxy.drop_answer("Produce", after_append=after_append, nth=7)
                while not rule.hits:
                    await asyncio.gather(*send(producer, kafka_name, told, 300, partitions=3))

    asyncio.run(scenario())
    findings = judged(cluster, kafka_name, told)
    assert not findings, findings
    assert {record.outcome for record in told} == {DELIVERED}
    assert all(record.offset is not None for record in told)


# ---------------------------------------------------------------------- frost
@pytest.mark.slow
def test_what_times_out_while_all_brokers_are_frozen_is_told_exactly(cluster: KafkaCluster, kafka_name: str) -> None:
    # faults: B5, I8
    cluster.create_topic(kafka_name, partitions=3)
    told: list[Told] = []

    async def scenario() -> None:
        options = {"linger_ms": 0, "batch_size": 1_000, "request_timeout_ms": 1_500, "delivery_timeout_ms": 6_000}
        async with Producer(cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
            await asyncio.gather(*send(producer, kafka_name, told, 60, partitions=3))
            with everything_frozen(cluster):
                outcomes = await asyncio.gather(
                    *send(producer, kafka_name, told, 600, partitions=3), return_exceptions=True
                )
            assert {type(outcome) for outcome in outcomes} == {DeliveryTimeoutError}
            await asyncio.to_thread(cluster.wait_all_in_sync, kafka_name)
            deadline = time.monotonic() + PATIENCE_S
            while any(record.outcome != DELIVERED for record in told[-3:]):  # it comes back by itself
                assert time.monotonic() < deadline, told[-3:]
                await asyncio.gather(*send(producer, kafka_name, told, 3, partitions=3), return_exceptions=True)
                await asyncio.sleep(0)

    asyncio.run(scenario())
    findings = judged(cluster, kafka_name, told)
    assert not findings, findings
    said = Counter(record.outcome for record in told)
    assert said[DELIVERED] >= 63
    assert said[NOT] > 0
    assert said[POSSIBLY] > 0
    # At most five batches of a partition were on the way; the rest never left.
    assert said[POSSIBLY] <= 3 * 5 * (1_000 // 80)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["answers", "requests"])
def test_a_partition_gives_its_numbers_up_where_a_batch_past_its_deadline_never_came(
    cluster: KafkaCluster, kafka_name: str, lost: str
) -> None:  # faults: I5, I8
    cluster.create_topic(kafka_name, partitions=2)
    has_come = lost == "answers"  # then the next batch's numbers fit, and there is nothing to give up

    async def scenario() -> None:
        options = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 10_000}
        async with Producer(cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
            for partition in (0, 1):
                assert (await producer.send(kafka_name, b"0", partition=partition)).offset == 0
            rule = cluster.proxy.swallow_next(
                "Produce", topic=kafka_name, partition=0, times=None, before_serving=not has_come
            )
            with pytest.raises(DeliveryTimeoutError) as raised:
                await producer.send(kafka_name, b"1", partition=0)
            assert raised.value.persistence is Persistence.POSSIBLY_PERSISTED
            rule.cancel()
            assert await offset_of(producer, kafka_name, b"2") == 1 + has_come
            assert (producer.metrics()["epoch_bumps"] > 0) == (not has_come)
            assert (await producer.send(kafka_name, b"1", partition=1)).offset == 1
            assert await offset_of(producer, kafka_name, b"3") == 2 + has_come

    asyncio.run(scenario())
    numbers = [0, 1, 2, 3] if has_come else [0, 2, 3]
    assert log_of(cluster, kafka_name) == {0: list(enumerate(numbers)), 1: [(0, 0), (1, 1)]}


async def offset_of(producer: Producer, topic: str, value: bytes) -> int | None:
    """Send a record to partition 0 and return its offset; a short delivery timeout may need several tries."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return (await producer.send(topic, value, partition=0)).offset
        except DeliveryTimeoutError as late:
            assert late.persistence is Persistence.NOT_PERSISTED, "sent again it would be there twice"
            assert time.monotonic() < deadline


@pytest.mark.slow
def test_close_while_all_brokers_are_frozen_accounts_for_each_record(cluster: KafkaCluster, kafka_name: str) -> None:
    # faults: L11
    cluster.create_topic(kafka_name, partitions=3)
    told: list[Told] = []

    async def scenario() -> None:
        producer = Producer(cluster.bootstrap_servers, linger_ms=0, batch_size=1_000)
        await producer.start()
        await asyncio.gather(*send(producer, kafka_name, told, 60, partitions=3))
        with everything_frozen(cluster):
            deliveries = send(producer, kafka_name, told, 600, partitions=3)
            began = time.monotonic()
            report = await producer.close(timeout=2.0)
            assert time.monotonic() - began < 2.0 + 5.0
        errors = [delivery.exception() for delivery in deliveries]
        left = Counter((e.topic, e.partition, e.persistence) for e in errors if e is not None)
        assert report.undelivered == left
        assert report.count == 600
        assert not report.is_clean
        await asyncio.sleep(0)

    asyncio.run(scenario())
    cluster.wait_ready()
    findings = judged(cluster, kafka_name, told)
    assert not findings, findings


# ---------------------------------------------------------------------- a stopped client
@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("delivery_timeout_ms", "stopped_s"),
    [(120_000, 3.0), (5_000, 6.0)],
    ids=["past the request timeout", "past the delivery timeout"],
)
@pytest.mark.parametrize("answers", ["wait in the socket", "come later"])
def test_a_client_that_was_stopped_and_continued_sends_nothing_twice(
    cluster: KafkaCluster, kafka_name: str, delivery_timeout_ms: int, stopped_s: float, answers: str
) -> None:  # faults: N20
    cluster.create_topic(kafka_name, partitions=3)
    options = {"request_timeout_ms": 1_500, "delivery_timeout_ms": delivery_timeout_ms}
    is_too_late = stopped_s * 1_000 > delivery_timeout_ms
    job = {"servers": cluster.bootstrap_servers, "topic": kafka_name, "partitions": 3, "options": options}
    client = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("stopped_client.py"), json.dumps(job)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "sending\n"
        if answers == "come later":
            held = cluster.proxy.hold("Produce")
            held.wait_hit()
        client.send_signal(signal.SIGSTOP)
        time.sleep(stopped_s)
        client.send_signal(signal.SIGCONT)
        if answers == "come later" and is_too_late:
            assert client.stdout.readline() == "failed\n"
        cluster.proxy.clear_faults()
        said, _ = client.communicate(timeout=PATIENCE_S)
    finally:
        if client.poll() is None:
            client.kill()
            client.communicate()
    assert client.returncode == 0
    told = [
        Told(partition, number, outcome and Outcome(outcome), offset)
        for partition, number, outcome, offset in json.loads(said.splitlines()[-1])
    ]
    findings = judged(cluster, kafka_name, told)
    assert not findings, findings
    outcomes = {record.outcome for record in told}
    if not is_too_late:
        assert outcomes == {DELIVERED}
    elif answers == "come later":
        assert outcomes >= {DELIVERED, POSSIBLY}
    assert told[-1].outcome == DELIVERED


# ---------------------------------------------------------------------- acks
@pytest.mark.slow
def test_without_idempotence_a_copy_is_explained_by_a_second_attempt(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name)
    told: list[Told] = []
    deliveries: list[Delivery] = []

    async def scenario() -> None:
        options: dict[str, Any] = {"linger_ms": 0, "batch_size": 1_000, "enable_idempotence": False}
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            for _ in range(4):
                lost = cluster.proxy.drop_answer("Produce", nth=5)
                while not lost.hits:
                    some = send(producer, kafka_name, told, 200)
                    deliveries.extend(some)
                    await asyncio.gather(*some)

    asyncio.run(scenario())
    log = log_of(cluster, kafka_name)
    findings = judge(told, log, idempotent=False)
    assert not findings, findings
    assert {record.outcome for record in told} == {DELIVERED}
    copies = Counter(number for _, number in log[0])
    assert max(copies.values()) > 1, "an answer was lost after the append, four times"
    for record, delivery in zip(told, deliveries, strict=True):
        assert 1 <= copies[record.number] <= (delivery.attempts or 0)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_the_metadata_says_what_the_acknowledgement_told(
    cluster: KafkaCluster, kafka_name: str, acks: int | str
) -> None:  # faults: P26
    cluster.create_topic(kafka_name)

    async def scenario() -> None:
        async with Producer(cluster.bootstrap_servers, acks=acks) as producer:
            for number in range(10):
                metadata = await producer.send(kafka_name, b"%d" % number, timestamp_ms=1_700_000_000_000 + number)
                assert (metadata.topic, metadata.partition) == (kafka_name, 0)
                assert metadata.offset == (None if acks == 0 else number)
                assert metadata.timestamp == 1_700_000_000_000 + number
                assert metadata.timestamp_type is TimestampType.CREATE_TIME

    cluster.alter_topic(kafka_name, {"retention.ms": "-1"})
    asyncio.run(scenario())
    deadline = time.monotonic() + PATIENCE_S
    while cluster.end_offsets(kafka_name) != [10]:  # acks=0 waits for no broker
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert log_of(cluster, kafka_name) == {0: [(number, number) for number in range(10)]}


@pytest.mark.slow
def test_too_few_replicas_are_a_typed_error_at_the_deadline_and_none_when_one_comes_back(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: B8, P11
    # All three must be in sync: with two of three stopped the controllers would have no majority to say which are.
    cluster.create_topic(kafka_name, config={"min.insync.replicas": "3"})
    follower = cluster.broker(next(node for node in cluster.brokers if node != cluster.leaders(kafka_name)[0]))

    async def refused() -> None:
        options = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 5_000}
        async with Producer(cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
            await producer.send(kafka_name, b"0")
            await asyncio.to_thread(follower.stop)
            while len(_in_sync(cluster, kafka_name)) == 3:
                await asyncio.sleep(0.1)
            with pytest.raises(DeliveryTimeoutError, match="NOT_ENOUGH_REPLICAS") as raised:
                await producer.send(kafka_name, b"1")
            assert raised.value.persistence is Persistence.NOT_PERSISTED
            assert isinstance(raised.value.__cause__, BrokerAnswerError)
            assert raised.value.__cause__.code == ErrorCode.NOT_ENOUGH_REPLICAS

    async def delivered() -> None:
        async with Producer(cluster.bootstrap_servers, delivery_timeout_ms=120_000) as producer:
            delivery = producer.send(kafka_name, b"2")
            while producer.metrics()["batches_resent"] < 2:
                await asyncio.sleep(0.05)
            assert not delivery.done()
            await asyncio.to_thread(follower.start)
            assert (await delivery).offset == 1

    asyncio.run(refused())
    asyncio.run(delivered())
    assert log_of(cluster, kafka_name) == {0: [(0, 0), (1, 2)]}


@pytest.mark.slow
def test_a_majority_that_is_gone_leaves_the_fate_open_and_a_longer_patience_delivers(
    cluster: KafkaCluster, kafka_name: str
) -> None:
    """The leader appends and cannot commit: with the controllers' majority gone nothing takes replicas out of sync."""
    cluster.create_topic(kafka_name)
    others = [broker for node, broker in cluster.brokers.items() if node != cluster.leaders(kafka_name)[0]]
    hasty: dict[str, Any] = {"request_timeout_ms": 2_000, "delivery_timeout_ms": 5_000}

    async def scenario() -> list[Told]:
        told = [Told(0, number) for number in range(3)]
        async with (
            Producer(cluster.bootstrap_servers, **hasty) as impatient,
            Producer(cluster.bootstrap_servers, request_timeout_ms=2_000) as patient,
        ):
            await send_numbered(patient, kafka_name, told[0])
            await impatient.send(kafka_name, b"-1")
            for broker in others:
                await asyncio.to_thread(broker.kill)
            waiting = send_numbered(patient, kafka_name, told[1])
            with pytest.raises(DeliveryTimeoutError) as raised:
                await send_numbered(impatient, kafka_name, told[2])
            assert raised.value.persistence is Persistence.POSSIBLY_PERSISTED
            assert not waiting.done()
            for broker in others:
                broker.start(wait=False)
            assert (await waiting).offset is not None
            await asyncio.sleep(0)
        return told

    told = asyncio.run(scenario())
    cluster.wait_ready()
    findings = judged(cluster, kafka_name, told)
    assert not findings, findings
    assert [record.outcome for record in told] == [DELIVERED, DELIVERED, POSSIBLY]


def _in_sync(cluster: KafkaCluster, topic: str) -> tuple[int, ...]:
    partitions = cluster.admin.topic(topic)
    assert partitions is not None
    return partitions[0].in_sync
