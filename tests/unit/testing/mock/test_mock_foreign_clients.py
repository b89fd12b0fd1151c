"""Clients we did not write produce to the mock cluster and read from it: librdkafka and aiokafka.

They prove what our own codecs cannot: that bytes on the wire, negotiation and error behaviour are Kafka's.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import Counter
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from aiokprod.testing import MockCluster

QUIET = {"log_level": 0}
DEADLINE_S = 60.0


class Librdkafka:
    """A librdkafka producer that remembers what it was told of each message."""

    def __init__(self, cluster: MockCluster, **options: Any) -> None:
        config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1, **QUIET}
        named = {name if name == "oauth_cb" else name.replace("_", "."): value for name, value in options.items()}
        self._producer = Producer({**config, **named})
        self.delivered: list[tuple[int, int, bytes]] = []
        self.failed: list[int] = []

    def send(self, topic: str, value: bytes, **options: Any) -> None:
        self._producer.produce(topic, value, on_delivery=self._told, **options)
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0

    def _told(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.delivered.append((message.partition(), message.offset(), message.value()))
        else:
            self.failed.append(error.code())


def read_all(cluster: MockCluster, topic: str, count: int, partitions: int = 1, **options: Any) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "enable.auto.commit": False,
            **QUIET,
            **options,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        messages: list[Any] = []
        until = time.monotonic() + DEADLINE_S
        while len(messages) < count and time.monotonic() < until:
            messages += [message for message in consumer.consume(1000, 0.2) if message.error() is None]
        return messages
    finally:
        consumer.close()


# ---------------------------------------------------------------------- librdkafka


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_librdkafka_produces_and_reads_back(codec: str, idempotent: bool) -> None:
    with MockCluster(3, validate_records=True) as cluster:
        cluster.create_topic("t", partitions=3)
        producer = Librdkafka(cluster, enable_idempotence=idempotent, compression_type=codec)
        sent = [b"value %d" % n for n in range(300)]
        for n, value in enumerate(sent):
            producer.send("t", value, key=b"k%d" % (n % 7), headers=[("h", b"x"), ("null", None)], timestamp=1000 + n)
        producer.flush()
        assert not producer.failed and len(producer.delivered) == 300
        stored = {(r.partition, r.offset): r for r in cluster.records("t")}
        assert len(stored) == 300
        assert all(stored[partition, offset].value == value for partition, offset, value in producer.delivered)
        assert stored[next(iter(stored))].headers == (("h", b"x"), ("null", None))
        assert {r.producer_id >= 0 for r in stored.values()} == {idempotent}
        messages = read_all(cluster, "t", 300, 3)
        assert sorted(m.value() for m in messages) == sorted(sent)
        assert {m.timestamp()[1] for m in messages} == set(range(1000, 1300))
        assert cluster.counters.crashes == []


def test_librdkafka_retries_through_refusals_and_torn_connections_without_copy_or_hole() -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("t")
        producer = Librdkafka(
            cluster, enable_idempotence=True, retry_backoff_ms=1, retry_backoff_max_ms=20, reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=20, batch_num_messages=10, topic_metadata_refresh_fast_interval_ms=20,
        )  # fmt: skip
        cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", nth=3)
        cluster.fail_next("Produce", "REQUEST_TIMED_OUT", after_append=True, nth=6)
        cluster.drop_answer("Produce", after_append=True, nth=9)
        cluster.drop_answer("Produce", after_append=False, nth=11)
        cluster.on_request("Produce", lambda: cluster.move_leader("t", 0, 2), nth=12)
        sent = [b"%d" % n for n in range(400)]
        for value in sent:
            producer.send("t", value)
        producer.flush()
        assert not producer.failed
        assert [record.value for record in cluster.records("t")] == sent
        assert cluster.counters.duplicates >= 1 and cluster.leader("t") == 2
        assert cluster.counters.refusals[6] >= 1


def test_librdkafka_gets_in_with_a_token_and_its_extensions() -> None:
    token = f"{'x' * 100}.y-z_.~+/="
    with MockCluster(1, sasl_mechanisms=["OAUTHBEARER"], users={"alice": token}) as cluster:
        cluster.create_topic("t")
        producer = Librdkafka(
            cluster, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
            oauth_cb=lambda _: (token, time.time() + 300, "alice", {"logicalCluster": "lkc-1"}),
        )  # fmt: skip
        producer.send("t", b"v")
        producer.flush()
        assert [record.value for record in cluster.records("t")] == [b"v"]


def test_librdkafka_survives_the_death_of_the_leader() -> None:
    with MockCluster(3) as cluster:
        cluster.create_topic("t")
        producer = Librdkafka(
            cluster, enable_idempotence=True, retry_backoff_ms=1, retry_backoff_max_ms=20, reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=20, batch_num_messages=10, topic_metadata_refresh_fast_interval_ms=20,
        )  # fmt: skip
        cluster.on_request("Produce", lambda: cluster.kill_broker(1), nth=5)
        sent = [b"%d" % n for n in range(200)]
        for value in sent:
            producer.send("t", value)
        producer.flush()
        cluster.start_broker(1)
        assert not producer.failed and [record.value for record in cluster.records("t")] == sent


def test_librdkafka_understands_what_is_refused_for_good() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("small", max_message_bytes=500)
        cluster.create_topic("keys", cleanup_policy="compact")
        producer = Librdkafka(cluster, enable_idempotence=False)
        producer.send("small", b"x" * 1000)
        producer.flush()
        producer.send("keys", b"no key")
        producer.flush()
        assert producer.failed == [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD]


def test_librdkafka_administers_topics() -> None:
    with MockCluster(3, auto_create_topics=False) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
        admin.create_topics([NewTopic("t", 4, 3, config={"max.message.bytes": "99"})])["t"].result(DEADLINE_S)
        found = admin.list_topics("t", timeout=DEADLINE_S)
        assert len(found.topics["t"].partitions) == 4 and found.cluster_id == cluster.cluster_id
        assert sorted(found.brokers) == [1, 2, 3]
        with pytest.raises(KafkaException, match="already exists"):
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
        admin.delete_topics(["t"])["t"].result(DEADLINE_S)
        assert "t" not in admin.list_topics(timeout=DEADLINE_S).topics


def test_librdkafka_creates_a_topic_by_writing_to_it() -> None:
    with MockCluster(1, default_partitions=2) as cluster:
        producer = Librdkafka(cluster, allow_auto_create_topics=True)
        producer.send("new", b"v")
        producer.flush()
        assert [record.value for record in cluster.records("new")] == [b"v"]


def test_librdkafka_reads_offsets_by_name_and_time() -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t")
        producer = Librdkafka(cluster)
        for n in range(5):
            producer.send("t", b"v", timestamp=1000 + 10 * n)
            producer.flush()
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", **QUIET})
        try:
            assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=DEADLINE_S) == (0, 5)
            (found,) = consumer.offsets_for_times([TopicPartition("t", 0, 1015)], timeout=DEADLINE_S)
            assert found.offset == 2
        finally:
            consumer.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_authenticates(mechanism: str) -> None:
    with MockCluster(1, sasl_mechanisms=[mechanism], users={"alice": "secret"}) as cluster:
        cluster.create_topic("t")
        options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_username": "alice"}
        producer = Librdkafka(cluster, sasl_password="secret", **options)
        producer.send("t", b"v")
        producer.flush()
        assert len(cluster.records("t")) == 1


# ---------------------------------------------------------------------- aiokafka


def aiokafka_quietly() -> None:
    """Silence aiokafka's own deprecations: they are not ours."""
    warnings.simplefilter("ignore", DeprecationWarning)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_aiokafka_produces_and_reads_back_on_one_loop(codec: str | None, idempotent: bool) -> None:
    async def scenario() -> None:
        async with MockCluster(3, validate_records=True) as cluster:
            cluster.create_topic("t", partitions=3)
            servers = cluster.bootstrap_servers
            producer = AIOKafkaProducer(
                bootstrap_servers=servers, enable_idempotence=idempotent, compression_type=codec, acks="all"
            )
            await producer.start()
            try:
                sends = [
                    await producer.send("t", b"%d" % n, key=b"k%d" % (n % 5), headers=[("h", b"x")]) for n in range(200)
                ]
                metadata = await asyncio.gather(*sends)
            finally:
                await producer.stop()
            stored = {(r.partition, r.offset): r.value for r in cluster.records("t")}
            assert [stored[m.partition, m.offset] for m in metadata] == [b"%d" % n for n in range(200)]

            consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
            await consumer.start()
            try:
                consumer.assign([AioTopicPartition("t", index) for index in range(3)])
                got: Counter[bytes] = Counter()
                async with asyncio.timeout(DEADLINE_S):
                    while got.total() < 200:
                        for messages in (await consumer.getmany(timeout_ms=200)).values():
                            got.update(message.value for message in messages)
            finally:
                await consumer.stop()
            assert got == Counter(b"%d" % n for n in range(200))
            assert cluster.counters.crashes == []

    with warnings.catch_warnings():
        aiokafka_quietly()
        asyncio.run(scenario())


def test_aiokafka_retries_a_lost_answer_without_a_copy() -> None:
    async def scenario() -> None:
        async with MockCluster(3) as cluster:
            cluster.create_topic("t")
            cluster.drop_answer("Produce", after_append=True, nth=2)
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", nth=4)
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=5
            )
            await producer.start()
            try:
                for n in range(10):
                    await producer.send_and_wait("t", b"%d" % n)
            finally:
                await producer.stop()
            assert [record.value for record in cluster.records("t")] == [b"%d" % n for n in range(10)]
            assert cluster.counters.duplicates == 1

    with warnings.catch_warnings():
        aiokafka_quietly()
        asyncio.run(scenario())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_aiokafka_authenticates(mechanism: str) -> None:
    async def scenario() -> None:
        async with MockCluster(1, sasl_mechanisms=[mechanism], users={"alice": "secret"}) as cluster:
            cluster.create_topic("t")
            producer = AIOKafkaProducer(
                bootstrap_servers=cluster.bootstrap_servers, security_protocol="SASL_PLAINTEXT",
                sasl_mechanism=mechanism, sasl_plain_username="alice", sasl_plain_password="secret",
            )  # fmt: skip
            await producer.start()
            try:
                await producer.send_and_wait("t", b"v")
            finally:
                await producer.stop()
            assert len(cluster.records("t")) == 1

    with warnings.catch_warnings():
        aiokafka_quietly()
        asyncio.run(scenario())
