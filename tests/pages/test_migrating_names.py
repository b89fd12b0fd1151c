"""docs/migrating.md, the tables of names: what each row says that is there is there, and does what it is named for.

The check of a row uses the names of both sides: those of the other client are looked up in its package, ours are called.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from unittest import TestCase

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.aio
import pytest
from test_migrating_peers import rows

from aiokprod import Delivery, Producer, ProducerConfig, RecordMetadata, TransactionOutcome, errors
from aiokprod.errors import ConfigError
from aiokprod.model import CloseReport, Health, Persistence, PurgeReport
from aiokprod.testing import MockCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, when it is imported
    import kafka
    import kafka.errors

Check = Callable[["Both"], Awaitable[None]]
CHECKS: Final[dict[str, list[Check]]] = {"aiokafka": [], "confluent-kafka": [], "kafka-python": []}
POLICY_VIOLATION: Final = 44
SMALL: Final[dict[str, Any]] = {"buffer_memory": 40_000, "max_request_size": 20_000, "batch_size": 20_000}


class Both:
    """A cluster for a row, and the text of its two cells."""

    def __init__(self, cluster: MockCluster, topic: str, theirs: str, ours: str, folder: Path) -> None:
        self.cluster = cluster
        self.topic = topic
        self.theirs = theirs
        self.ours = ours
        self.folder = folder

    def names(self, theirs: str, ours: str) -> None:
        """Check that the cells have these words."""
        assert theirs in self.theirs and ours in self.ours, (self.theirs, self.ours)

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.cluster.records(self.topic)]

    @asynccontextmanager
    async def started(self, **options: Any) -> AsyncIterator[Producer]:
        async with Producer(self.cluster.bootstrap_servers, **options) as producer:
            yield producer


def row(client: str) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CHECKS[client].append(check)
        return check

    return add


def keywords(call: Callable[..., Any]) -> set[str]:
    return set(inspect.signature(call).parameters)


# ---------------------------------------------------------------------- aiokafka
@row("aiokafka")
async def made_by_keywords(both: Both) -> None:
    both.names("linger_ms=5", "linger_ms=5")
    assert {"bootstrap_servers", "linger_ms"} <= keywords(aiokafka.AIOKafkaProducer)
    made: list[Producer] = []
    thread = threading.Thread(target=lambda: made.append(Producer(bootstrap_servers="kafka:9092", linger_ms=5)))
    thread.start()  # where no event loop is
    thread.join()
    assert made[0].config.linger_ms == 5


@row("aiokafka")
async def options_with_other_names(both: Both) -> None:
    both.names(
        "`max_batch_size`, `sasl_plain_username`, `sasl_plain_", "`batch_size`, `sasl_username`, `sasl_password`"
    )
    given = {"max_batch_size": 999, "sasl_plain_username": "alice", "sasl_plain_password": "secret"}
    assert set(given) <= keywords(aiokafka.AIOKafkaProducer)
    tls = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    config = ProducerConfig.from_mapping({"bootstrap_servers": "kafka:9092", **tls, **given})
    ours = {"batch_size": 999, "sasl_username": "alice", "sasl_password": "secret"}
    assert config == ProducerConfig.from_mapping({"bootstrap_servers": "kafka:9092", **tls, **ours})


@row("aiokafka")
async def a_provider_of_tokens(both: Both) -> None:
    both.names("sasl_oauth_token_provider", "the same")

    class Provider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return "a-token"

    assert "sasl_oauth_token_provider" in keywords(aiokafka.AIOKafkaProducer)
    with MockCluster(1, sasl_mechanisms=["OAUTHBEARER"], users={"alice": "a-token"}) as cluster:
        given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
        async with Producer(cluster.bootstrap_servers, sasl_oauth_token_provider=Provider(), **given) as producer:
            await producer.send("orders", b"v")


@row("aiokafka")
async def start_and_stop(both: Both) -> None:
    both.names("producer.stop()", "producer.close()")
    producer = Producer(both.cluster.bootstrap_servers, linger_ms=10_000)
    await producer.start()
    producer.send(both.topic, b"v", partition=0)
    report = await producer.close(0)
    assert isinstance(report, CloseReport) and report.count == 1
    with pytest.raises(AttributeError, match=r"close\(\)"):
        producer.stop  # type: ignore[attr-defined]


@row("aiokafka")
async def send_and_wait(both: Both) -> None:
    both.names("send_and_wait(topic, value)", "await producer.send(topic, value)")
    async with both.started() as producer:
        assert isinstance(await producer.send(both.topic, b"v"), RecordMetadata)


@row("aiokafka")
async def a_future_of_send(both: Both) -> None:
    both.names("future = await producer.send", "delivery = producer.send")
    async with both.started() as producer:
        delivery = producer.send(both.topic, b"v")
        assert isinstance(delivery, Delivery) and not delivery.done()


@row("aiokafka")
async def await_the_future(both: Both) -> None:
    both.names("await future", "await delivery")
    async with both.started() as producer:
        delivery = producer.send(both.topic, b"v")
        assert (await delivery).offset == 0 == (await delivery).offset


@row("aiokafka")
async def batches_by_hand(both: Both) -> None:
    both.names("create_batch()", "send_batch(batch)")
    assert hasattr(aiokafka.AIOKafkaProducer, "send_batch")
    async with both.started() as producer:
        batch = producer.create_batch(both.topic, 0)
        assert all(batch.append(b"%d" % number) for number in range(100))
        places = await asyncio.gather(*await producer.send_batch(batch))
        assert [place.offset for place in places] == list(range(100))
        assert producer.metrics()["batches_sent"] == 1


@row("aiokafka")
async def not_idempotent(both: Both) -> None:
    both.names("enable_idempotence=False", "enable_idempotence=False")
    theirs = inspect.signature(aiokafka.AIOKafkaProducer).parameters["enable_idempotence"]
    assert theirs.default is False
    async with both.started(enable_idempotence=False) as producer:
        seen = both.cluster.requests_seen("InitProducerId")
        await producer.send(both.topic, b"v")
        assert both.cluster.requests_seen("InitProducerId") == seen and not producer.config.idempotent
    assert Producer(both.cluster.bootstrap_servers).config.idempotent


@row("aiokafka")
async def errors_say_whether_it_is_in_the_log(both: Both) -> None:
    both.names("`KafkaTimeoutError`, `MessageSizeTooLargeError`", "`persistence`")
    assert {"KafkaTimeoutError", "MessageSizeTooLargeError"} <= set(vars(aiokafka.errors))
    async with both.started() as producer:
        with pytest.raises(errors.RecordTooLargeError) as caught:
            producer.send(both.topic, bytes(3_000_000))
        assert caught.value.persistence is Persistence.NOT_PERSISTED


@row("aiokafka")
async def offsets_in_a_transaction(both: Both) -> None:
    both.names("send_offsets_to_transaction(offsets, group_id)", "the same")
    assert list(keywords(aiokafka.AIOKafkaProducer.send_offsets_to_transaction)) != []
    async with both.started(transactional_id=both.topic) as producer:
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({aiokafka.TopicPartition(both.topic, 0): 5}, "g")
        await producer.commit_transaction()
    assert both.cluster.committed_offsets("g")[both.topic, 0].offset == 5


@row("aiokafka")
async def transactions(both: Both) -> None:
    both.names("async with producer.transaction()", "an exception aborts")
    assert hasattr(aiokafka.AIOKafkaProducer, "transaction")
    async with both.started(transactional_id=both.topic) as producer:
        with pytest.raises(KeyError):
            async with producer.transaction() as transaction:
                raise KeyError
        assert transaction.outcome is TransactionOutcome.ABORTED
        both.cluster.fail_next("Produce", POLICY_VIOLATION)
        with pytest.raises(errors.TransactionAbortedError):
            async with producer.transaction():
                producer.send(both.topic, b"v")  # no task awaits it


# ---------------------------------------------------------------------- confluent-kafka
@row("confluent-kafka")
async def made_from_a_mapping(both: Both) -> None:
    both.names('"linger.ms": 5', "linger_ms=5")
    options: dict[str, Any] = {"bootstrap.servers": "kafka:9092", "linger.ms": 5}
    assert isinstance(confluent_kafka.Producer(options | {"log_level": 0}), confluent_kafka.Producer)
    assert Producer(options).config.linger_ms == Producer("kafka:9092", linger_ms=5).config.linger_ms == 5


@row("confluent-kafka")
async def a_file_of_properties(both: Both) -> None:
    both.names("client.properties", "ProducerConfig.from_properties")
    path = both.folder / "client.properties"
    path.write_text(f"bootstrap.servers={both.cluster.bootstrap_servers}\nsecurity.protocol=PLAINTEXT\nlinger.ms=7\n")
    producer = Producer(ProducerConfig.from_properties(path))
    assert producer.config.linger_ms == 7
    async with producer:
        await producer.send(both.topic, b"v")


@row("confluent-kafka")
async def produce(both: Both) -> None:
    both.names("on_delivery=told", "add_done_callback(told)")
    told: list[Delivery] = []
    async with both.started() as producer:
        producer.send(both.topic, b"v", b"key").add_done_callback(told.append)
        await producer.flush()
        await asyncio.sleep(0)
    assert isinstance(told[0], Delivery) and told[0].result().offset == 0


@row("confluent-kafka")
async def arguments_of_a_record(both: Both) -> None:
    both.names("`partition=`, `headers=`, `timestamp=`", "`partition=`, `headers=`, `timestamp_ms=`")
    given: dict[str, Any] = {"partition": 1, "headers": [("a", b"1")]}
    theirs = confluent_kafka.Producer({"bootstrap.servers": both.cluster.bootstrap_servers})
    theirs.produce(both.topic, b"v", timestamp=7_000, **given)
    theirs.flush(30)
    async with both.started() as producer:
        await producer.send(both.topic, b"v", timestamp_ms=7_000, **given)
    first, second = both.cluster.records(both.topic)
    assert first.partition == second.partition == 1
    assert list(first.headers) == list(second.headers) == [("a", b"1")]
    assert first.timestamp_ms == second.timestamp_ms == 7_000


@row("confluent-kafka")
async def headers_of_text(both: Both) -> None:
    both.names('`headers={"a": "text"}`', '`headers={"a": "text".encode()}`: a `str` is a `RecordTypeError`')
    theirs = confluent_kafka.Producer({"bootstrap.servers": both.cluster.bootstrap_servers})
    theirs.produce(both.topic, b"v", headers={"a": "text"})
    theirs.flush(30)
    async with both.started() as producer:
        with pytest.raises(errors.RecordTypeError, match="encode it"):
            await producer.send(both.topic, b"v", headers={"a": "text"})  # type: ignore[dict-item]
        await producer.send(both.topic, b"v", headers={"a": b"text"})
    assert [list(record.headers) for record in both.cluster.records(both.topic)] == [[("a", b"text")]] * 2


@row("confluent-kafka")
async def poll(both: Both) -> None:
    both.names("producer.poll(0)", "nothing")
    assert hasattr(confluent_kafka.Producer, "poll")
    told = asyncio.Event()
    async with both.started() as producer:
        producer.send(both.topic, b"v").add_done_callback(lambda _: told.set())
        await asyncio.wait_for(told.wait(), 30)


@row("confluent-kafka")
async def no_room(both: Both) -> None:
    both.names("`BufferError` from `produce`", "await producer.ready()")
    theirs = confluent_kafka.Producer({
        "bootstrap.servers": both.cluster.bootstrap_servers, "queue.buffering.max.messages": 1, "linger.ms": 60_000,
    })  # fmt: skip
    theirs.produce(both.topic, b"v")
    with pytest.raises(BufferError):
        theirs.produce(both.topic, b"v")
    theirs.purge()
    theirs.flush(30)
    async with both.started(**SMALL) as producer:
        held = both.cluster.hold("Produce")
        deliveries = [producer.send(both.topic, bytes(9_000)) for _ in range(8)]
        ready = asyncio.ensure_future(producer.ready())
        await asyncio.sleep(0)
        assert not ready.done()
        both.cluster.release(held)
        await ready
        await asyncio.gather(*deliveries)


@row("confluent-kafka")
async def a_flush_with_a_bound(both: Both) -> None:
    both.names("producer.flush(10)", "asyncio.timeout(10)")
    async with both.started() as producer:
        held = both.cluster.hold("Produce")
        delivery = producer.send(both.topic, b"v")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await producer.flush()
        assert not delivery.done()
        both.cluster.release(held)
        await producer.flush()
        assert delivery.done()


@row("confluent-kafka")
async def produce_of_the_asynchronous_producer(both: Both) -> None:
    both.names("aio_producer.produce", "without `await`")
    assert inspect.iscoroutinefunction(confluent_kafka.aio.AIOProducer.produce)
    async with both.started() as producer:
        deliveries = [producer.send(both.topic, b"v") for _ in range(3)]
        assert [each.offset for each in await asyncio.gather(*deliveries)] == [0, 1, 2]


@row("confluent-kafka")
async def retriable_and_fatal(both: Both) -> None:
    both.names("err.retriable()", "`NOT_PERSISTED` is safe to send again")
    assert {"retriable", "fatal"} <= set(dir(confluent_kafka.KafkaError))
    async with both.started() as producer:
        both.cluster.fail_next("Produce", POLICY_VIOLATION)
        with pytest.raises(errors.BrokerRejectedError) as caught:
            await producer.send(both.topic, b"v")
        assert caught.value.persistence is Persistence.NOT_PERSISTED
        await producer.send(both.topic, b"v")
    assert both.values() == [b"v"]


@row("confluent-kafka")
async def list_topics(both: Both) -> None:
    both.names("producer.list_topics(topic)", "producer.partitions_for(topic)")
    async with both.started() as producer:
        assert await producer.partitions_for(both.topic) == [0, 1]


@row("confluent-kafka")
async def purge(both: Both) -> None:
    both.names("producer.purge()", "`recall()`")
    async with both.started(linger_ms=10_000) as producer:
        await producer.partitions_for(both.topic)
        back, lost = producer.send(both.topic, b"back"), producer.send(both.topic, b"lost")
        assert back.recall()
        assert producer.purge(both.topic) == PurgeReport(purged=1, in_flight=0)
        assert isinstance(lost.exception(), errors.RecordPurgedError)
    assert both.values() == []


def warned(given: dict[str, Any]) -> str:
    """Return the warnings about a mapping that is taken."""
    with TestCase().assertLogs("aiokprod", logging.WARNING) as logs:
        ProducerConfig.from_mapping(given)
    return "\n".join(logs.output)


@row("confluent-kafka")
async def statistics(both: Both) -> None:
    both.names("`statistics.interval.ms`, `stats_cb`", "producer.metrics()")
    for name, value in (("statistics.interval.ms", "1000"), ("stats_cb", print)):
        assert "metrics()" in warned({"bootstrap.servers": "kafka:9092", name: value})
    async with both.started() as producer:
        await producer.send(both.topic, b"v")
        assert (await asyncio.to_thread(producer.metrics))["records_delivered"] == 1


@row("confluent-kafka")
async def error_callback(both: Both) -> None:
    both.names("`error_cb`", "producer.health()")
    assert "health" in warned({"bootstrap.servers": "kafka:9092", "error_cb": print})
    async with both.started() as producer:
        assert isinstance(producer.health(), Health)


@row("confluent-kafka")
async def callbacks_of_deliveries(both: Both) -> None:
    both.names("`dr_cb`, `dr_msg_cb`, `on_delivery`", "`on_delivery_error`")
    for name in ("dr_cb", "dr_msg_cb", "on_delivery"):
        with pytest.raises(ConfigError):
            ProducerConfig.from_mapping({"bootstrap.servers": "kafka:9092", name: print})


@row("confluent-kafka")
async def a_short_time_for_messages(both: Both) -> None:
    both.names("`message.timeout.ms`", "`message.timeout.ms=10000` gives it 9995")
    given = {"bootstrap.servers": "kafka:9092", "message.timeout.ms": "10000"}
    assert isinstance(confluent_kafka.Producer(given | {"log_level": 0}), confluent_kafka.Producer)
    config = ProducerConfig.from_mapping(given)
    assert (config.delivery_timeout_ms, config.request_timeout_ms) == (10_000, 9_995)
    with pytest.raises(ConfigError, match=r"at least linger_ms \+ request_timeout_ms \(0 \+ 30000 = "):
        ProducerConfig.from_mapping(given | {"request.timeout.ms": "30000"})
    assert ProducerConfig.from_mapping(given | {"request.timeout.ms": "5000"}).delivery_timeout_ms == 10_000


@row("confluent-kafka")
async def most_messages(both: Both) -> None:
    both.names("`queue.buffering.max.messages`, `batch.num.messages`", "ignored with a WARNING. `buffer_memory` and")
    for name, ours in (("queue.buffering.max.messages", "buffer_memory"), ("batch.num.messages", "batch_size")):
        assert ours in warned({"bootstrap.servers": "kafka:9092", name: "50000"})
    assert ProducerConfig(bootstrap_servers="kafka:9092", **SMALL).buffer_memory == 40_000


# ---------------------------------------------------------------------- kafka-python
@row("kafka-python")
async def made_in_a_loop(both: Both) -> None:
    both.names("KafkaProducer(bootstrap_servers=...)", "in an event loop")
    assert "bootstrap_servers" in kafka.KafkaProducer.DEFAULT_CONFIG
    async with Producer(bootstrap_servers=both.cluster.bootstrap_servers) as producer:
        await producer.send(both.topic, b"v")


@row("kafka-python")
async def get_with_a_bound(both: Both) -> None:
    both.names("get(timeout=10)", "asyncio.timeout(10)")
    async with both.started() as producer:
        held = both.cluster.hold("Produce")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await producer.send(both.topic, b"v")
        both.cluster.release(held)
        await producer.flush()
    assert both.values() == [b"v"], "the record goes on"


@row("kafka-python")
async def from_a_thread(both: Both) -> None:
    both.names("in a thread", "send_threadsafe(topic, value).result(timeout=10)")
    async with both.started() as producer:
        sent = await asyncio.to_thread(lambda: producer.send_threadsafe(both.topic, b"v").result(timeout=10))
        assert sent.offset == 0


@row("kafka-python")
async def callbacks(both: Both) -> None:
    both.names("future.add_callback(f)", "`delivery.exception()` is the error or None")
    theirs = kafka.future.Future
    assert {"add_callback", "add_errback"} <= set(dir(theirs))
    told: list[BaseException | None] = []
    async with both.started() as producer:
        producer.send(both.topic, b"v").add_done_callback(lambda delivery: told.append(delivery.exception()))
        await producer.flush()
        both.cluster.fail_next("Produce", POLICY_VIOLATION)
        producer.send(both.topic, b"v").add_done_callback(lambda delivery: told.append(delivery.exception()))
        await producer.flush()
        await asyncio.sleep(0)
    assert [type(each) for each in told] == [type(None), errors.BrokerRejectedError]


@row("kafka-python")
async def flush_and_close(both: Both) -> None:
    both.names("producer.close(timeout=10)", "producer.close(timeout=10)")
    assert "timeout" in keywords(kafka.KafkaProducer.flush) & keywords(kafka.KafkaProducer.close)
    producer = await Producer(both.cluster.bootstrap_servers).start()
    producer.send(both.topic, b"v")
    await producer.flush()
    assert (await producer.close(timeout=10)).is_clean
    assert both.values() == [b"v"]


@row("kafka-python")
async def serializers(both: Both) -> None:
    both.names("value_serializer=lambda value: json.dumps(value).encode()", "`(topic, headers, data)`")

    async def later(value: Any) -> bytes:
        await asyncio.sleep(0)
        return json.dumps(value).encode()

    def with_topic(topic: str, headers: Any, data: Any) -> bytes:
        return json.dumps([topic, data]).encode()

    for serializer in (lambda value: json.dumps(value).encode(), later, with_topic):
        async with both.started(value_serializer=serializer) as producer:
            await producer.send(both.topic, {"a": 1}, partition=0)
    assert both.values() == [b'{"a": 1}', b'{"a": 1}', json.dumps([both.topic, {"a": 1}]).encode()]


@row("kafka-python")
async def partitions_for(both: Both) -> None:
    both.names("producer.partitions_for(topic)", "await producer.partitions_for(topic)")
    async with both.started() as producer:
        assert await producer.partitions_for(both.topic) == [0, 1]


@row("kafka-python")
async def bootstrap_connected(both: Both) -> None:
    both.names("producer.bootstrap_connected()", "producer.health()")
    async with both.started() as producer:
        assert producer.health().ready and producer.health().brokers_connected >= 1


@row("kafka-python")
async def metrics(both: Both) -> None:
    both.names("producer.metrics()", "with other names")
    async with both.started() as producer:
        assert "records_delivered" in producer.metrics()


@row("kafka-python")
async def a_timeout_has_three_names(both: Both) -> None:
    both.names("`KafkaTimeoutError`", "`BufferFullError`, `UnknownTopicError`, `DeliveryTimeoutError`")
    assert issubclass(kafka.errors.KafkaTimeoutError, Exception)
    short = {"max_block_ms": 1_000, "delivery_timeout_ms": 2_000, "request_timeout_ms": 2_000, "linger_ms": 0}
    async with both.started(**short, **SMALL) as producer:
        await producer.partitions_for(both.topic)
        held = both.cluster.hold("Produce")
        late, _, waits = (producer.send(both.topic, bytes(15_000)) for _ in range(3))
        unknown = producer.send("no-such-topic", b"v")
        await asyncio.wait([late, waits, unknown])
        both.cluster.release(held)
    kinds = [type(each.exception()) for each in (waits, unknown, late)]
    assert kinds == [errors.BufferFullError, errors.UnknownTopicError, errors.DeliveryTimeoutError]


# ---------------------------------------------------------------------- each row
@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1, auto_create_topics=False) as started:
        yield started


@pytest.mark.parametrize("client", list(CHECKS))
def test_each_row_has_a_check(client: str) -> None:
    assert len(rows(client)) == len(CHECKS[client])


def cases() -> list[Any]:
    return [
        pytest.param(client, number, id=f"{client}-{check.__name__}")
        for client, checks in CHECKS.items()
        for number, check in enumerate(checks)
    ]


@pytest.mark.parametrize(("client", "number"), cases())
def test_what_a_row_says_is_there_and_does_that(client: str, number: int, cluster: MockCluster, tmp_path: Path) -> None:
    theirs, ours = rows(client)[number]
    topic = f"{client}-{number}"
    cluster.create_topic(topic, partitions=2)
    both = Both(cluster, topic, theirs, ours, tmp_path)
    try:
        asyncio.run(asyncio.wait_for(CHECKS[client][number](both), 60))
    finally:
        cluster.clear_faults()
