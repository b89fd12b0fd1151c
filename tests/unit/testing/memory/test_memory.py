"""MemoryProducer: the same interface, checks, errors and states as a Producer; records kept; errors and delays scripted.

What must not differ is asked of both: of a MemoryProducer, and of a Producer on a MockCluster.
"""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokprod import Delivery, Producer, ProducerConfig, ProducerInterceptor, Record, RecordMetadata, TimestampType
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    BrokerRejectedError,
    BufferFullError,
    ConfigError,
    DeliveryTimeoutError,
    InvalidPartitionError,
    InvalidTimestampError,
    InvalidTopicError,
    PartitionerError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerNotStartedError,
    RecordPurgedError,
    RecordRecalledError,
    RecordTooLargeError,
    RecordTypeError,
    SendManyError,
    SendTimeoutError,
    SerializationError,
    UndeliveredAtCloseError,
    UnknownTopicError,
    WrongLoopError,
)
from aiokprod.explanation import Place
from aiokprod.foreign_calls import NAMES
from aiokprod.model import CloseReport, Persistence, ProducerState, PurgeReport
from aiokprod.pipeline.sending.hashes import murmur2_partition
from aiokprod.testing import MemoryProducer, MockCluster
from aiokprod.testing.memory.backend import MemoryBackend

LIMIT_S = 60.0
LONG_S = 3600.0  # nothing here may wait for it

Make = Callable[..., Producer]
Scenario = Callable[[Make], Coroutine[Any, Any, None]]


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(LIMIT_S):
            await scenario()

    asyncio.run(bounded())


def backend_of(producer: MemoryProducer) -> MemoryBackend:
    """Return the backend of a producer that is started."""
    assert producer._pipeline is not None
    backend = producer._pipeline.backend
    assert isinstance(backend, MemoryBackend)
    return backend


@asynccontextmanager
async def makers(kind: str) -> AsyncIterator[Make]:
    """Yield a way to make producers of one kind, with a topic `t` of three partitions."""
    if kind == "memory":
        yield lambda **options: MemoryProducer(topics={"t": 3}, **options)
    else:
        async with MockCluster() as cluster:
            cluster.create_topic("t", partitions=3)
            yield lambda **options: Producer(cluster.bootstrap_servers, **options)


@pytest.fixture(params=["memory", "cluster"])
def run_with(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    """Run a scenario with either kind of producer."""

    def run_scenario(scenario: Scenario) -> None:
        async def whole() -> None:
            async with makers(request.param) as make:
                await scenario(make)

        run(whole)

    return run_scenario


async def outcome(delivery: Awaitable[RecordMetadata]) -> RecordMetadata | AiokprodError:
    try:
        return await delivery
    except AiokprodError as error:
        return error


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# ---------------------------------------------------------------------- the interface
def public(kind: type) -> dict[str, object]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_") and name not in NAMES}


def test_every_public_name_of_a_producer_is_there_with_the_same_parameters() -> None:
    ours, theirs = public(MemoryProducer), public(Producer)
    assert len(theirs) >= 11
    for name, method in theirs.items():
        assert callable(method), f"{name}: compare this kind of attribute too"
        mine = ours[name]
        assert callable(mine)
        assert inspect.signature(mine, eval_str=True) == inspect.signature(method, eval_str=True), name
        assert asyncio.iscoroutinefunction(mine) == asyncio.iscoroutinefunction(method), name
        assert inspect.iscoroutinefunction(mine) == inspect.iscoroutinefunction(method), name
    special = {"__init__", "__aenter__", "__aexit__"}
    for name in special:
        wanted = inspect.signature(getattr(Producer, name)).parameters
        given = inspect.signature(getattr(MemoryProducer, name)).parameters
        assert {n: given[n] for n in wanted} == dict(wanted), name
        assert [n for n in given if n in wanted] == list(wanted), name


def test_it_adds_what_a_test_asks_and_scripts_and_nothing_else() -> None:
    assert set(public(MemoryProducer)) - set(public(Producer)) == {
        "clear",
        "delay_next",
        "fail_next",
        "hold",
        "records",
        "records_of",
        "release",
    }
    added = set(inspect.signature(MemoryProducer).parameters) - set(inspect.signature(Producer).parameters)
    assert added == {"topics", "auto_create"}


def test_objects_have_the_same_public_attributes() -> None:
    def attributes(producer: Producer) -> set[str]:
        return {name for name in vars(producer) if not name.startswith("_")}

    assert attributes(MemoryProducer()) == attributes(Producer("localhost:9092")) == {"config"}


def test_a_memory_producer_is_a_producer() -> None:
    assert isinstance(MemoryProducer(), Producer)


def test_options_are_those_of_a_producer() -> None:
    assert MemoryProducer("kafka.test:1234", linger_ms=7).config.linger_ms == 7
    assert MemoryProducer(ProducerConfig.of(bootstrap_servers="kafka.test:1234", acks=1)).config.acks == 1
    assert (
        MemoryProducer(bootstrap_servers=["kafka.test:1234"]).config.bootstrap_addresses
        == MemoryProducer("kafka.test:1234").config.bootstrap_addresses
    )
    with pytest.raises(ConfigError, match="linger"):
        MemoryProducer(lingerms=7)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="acks"):
        MemoryProducer(acks=7)


@pytest.mark.parametrize("partitions", [0, -1, True, "3", None])
def test_a_topic_has_a_number_of_partitions(partitions: Any) -> None:
    with pytest.raises(ConfigError, match="'t' must have a number of partitions above 0"):
        MemoryProducer(topics={"t": partitions})


def test_a_topic_has_a_name_that_kafka_takes() -> None:
    with pytest.raises(InvalidTopicError):
        MemoryProducer(topics={"no/topic": 1})


# ---------------------------------------------------------------------- the same of both
def test_a_record_has_its_outcome_after_send_never_within(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        async with make() as producer:
            delivery = producer.send("t", b"v", key=b"k", partition=2, timestamp_ms=5)
            assert isinstance(delivery, Delivery)
            assert not delivery.done()
            assert (delivery.attempts, delivery.latency) == (None, None)
            assert await delivery == RecordMetadata("t", 2, 0, 5, TimestampType.CREATE_TIME)
            assert delivery.done() and delivery.attempts == 1 and delivery.latency is not None
            assert (delivery.explain().place, delivery.explain().why) == (Place.DELIVERED, "offset 0")
            assert delivery.size_bytes > 0 and not delivery.recall() and not delivery.cancel()
            assert delivery.get_loop() is asyncio.get_running_loop()
            assert (await producer.send("t", b"v", partition=2)).offset == 1

    run_with(scenario)


def test_offsets_count_per_partition_in_the_order_of_the_sends(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        async with make() as producer:
            deliveries = [producer.send("t", b"%d" % n, partition=n % 3) for n in range(30)]
            done = await asyncio.gather(*deliveries)
            assert [(d.partition, d.offset) for d in done] == [(n % 3, n // 3) for n in range(30)]

    run_with(scenario)


def test_keys_choose_the_same_partitions(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        async with make() as producer:
            done = await asyncio.gather(*(producer.send("t", b"v", b"key %d" % n) for n in range(12)))
            assert [d.partition for d in done] == [murmur2_partition(b"key %d" % n, 3) for n in range(12)]

    run_with(scenario)


def test_what_cannot_be_sent_is_refused_at_once(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        async with make(
            max_request_size=1000, batch_size=500, partitioner=lambda key, all_of_them, usable: 3
        ) as producer:
            await producer.partitions_for("t")
            await producer.send("t", b"v", partition=0)
            refused: list[tuple[type[AiokprodError], Callable[[], object]]] = [
                (RecordTypeError, lambda: producer.send("t", "text")),
                (RecordTypeError, lambda: producer.send("t", b"v", 5)),
                (RecordTypeError, lambda: producer.send("t", b"v", headers=[("h", 5)])),  # type: ignore[list-item]
                (RecordTypeError, lambda: producer.send("t", b"v", timeout=0)),
                (RecordTypeError, lambda: producer.send(5, b"v")),  # type: ignore[arg-type]
                (InvalidTopicError, lambda: producer.send("no/topic", b"v")),
                (InvalidPartitionError, lambda: producer.send("t", b"v", partition=-1)),
                (InvalidTimestampError, lambda: producer.send("t", b"v", timestamp_ms=-1)),
                (RecordTooLargeError, lambda: producer.send("t", bytes(1000))),
                (PartitionerError, lambda: producer.send("t", b"v")),
            ]
            for kind, call in refused:
                with pytest.raises(kind):
                    call()
            assert producer.health().buffered_bytes == 0

    run_with(scenario)


def test_a_partition_that_does_not_exist_fails_the_record(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        async with make() as producer:
            error = await outcome(producer.send("t", b"v", partition=3))
            assert isinstance(error, PartitionOutOfRangeError)
            assert str(error).startswith("partition 3 does not exist: topic 't' has partitions 0 to 2")

    run_with(scenario)


def test_the_states_of_its_life(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        producer = make(client_id="shop")

        def state() -> ProducerState:
            health = producer.health()
            assert health.ready == (health.state is ProducerState.READY) and health.live
            return health.state

        assert state() is ProducerState.NEW
        assert await producer.close() == CloseReport.empty()
        for call in (producer.flush, producer.ready, producer.ping, lambda: producer.partitions_for("t")):
            with pytest.raises(ProducerNotStartedError):
                await call()
        with pytest.raises(ProducerNotStartedError):
            producer.send("t", b"v")
        with pytest.raises(ProducerNotStartedError):
            await producer.send_many("t", [b"v"])
        for _ in range(2):
            assert await producer.start() is producer and await producer.start() is producer
            assert state() is ProducerState.READY
            await producer.send("t", b"v")
            report, again = await asyncio.gather(producer.close(), producer.close())
            assert report.is_clean and again is report
            assert state() is ProducerState.CLOSED
            with pytest.raises(ProducerClosedError):
                producer.send("t", b"v")
        assert await producer.start(wait=False) is producer
        await producer.send("t", b"v")
        await producer.close()
        assert "Producer shop CLOSED" in repr(producer)

    run_with(scenario)


def test_while_it_closes_it_takes_nothing_and_cannot_be_started(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        registry_answers = asyncio.Event()

        async def slowly(value: bytes) -> bytes:
            await registry_answers.wait()
            return value

        producer = await make(value_serializer=slowly).start()
        delivery = producer.send("t", b"v")
        closing = asyncio.create_task(producer.close())
        await turns()
        assert producer.health().state is ProducerState.CLOSING
        with pytest.raises(ProducerClosedError):
            producer.send("t", b"v")
        with pytest.raises(ProducerClosedError):
            await producer.start()
        registry_answers.set()
        assert (await closing).is_clean and delivery.result().offset == 0

    run_with(scenario)


def test_another_loop_is_told_apart_and_may_have_it_after_close(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        producer = await make().start()

        async def elsewhere() -> None:
            with pytest.raises(WrongLoopError):
                producer.send("t", b"v")
            with pytest.raises(WrongLoopError):
                await producer.close()
            with pytest.raises(WrongLoopError):
                await producer.start()

        await asyncio.to_thread(asyncio.run, elsewhere())
        with pytest.raises(WrongLoopError):
            await asyncio.to_thread(producer.send, "t", b"v")
        await producer.close()

        async def alone() -> None:
            async with producer:
                assert (await producer.send("t", b"v", partition=0)).offset == 0

        await asyncio.to_thread(asyncio.run, alone())

    run_with(scenario)


def test_an_exception_of_the_body_wins(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        with pytest.raises(LookupError):
            async with make() as producer:
                raise LookupError
        assert producer.health().state is ProducerState.CLOSED

    run_with(scenario)


def test_send_many_reports_offsets_and_failures(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        unheard: list[AiokprodError] = []

        async def values() -> AsyncIterator[object]:
            for n in range(5):
                yield Record(value=b"%d" % n, partition=1)
            yield "text"

        async with make(on_delivery_error=unheard.append) as producer:
            report = await producer.send_many("t", (Record(value=b"%d" % n, partition=1) for n in range(1200)))
            assert report.delivered == 1200 and report.offsets == {("t", 1): (0, 1199)}
            with pytest.raises(SendManyError) as failed:
                await producer.send_many("t", values())
            report = failed.value.report
            assert report.delivered == 5 and report.offsets == {("t", 1): (1200, 1204)}
            assert [(n, type(error)) for n, error in report.failures] == [(5, RecordTypeError)]
        assert unheard == []

    run_with(scenario)


def test_serializers_and_interceptors_see_each_record_once(run_with: Callable[[Scenario], None]) -> None:
    class Seen(ProducerInterceptor):
        def __init__(self) -> None:
            self.events: list[object] = []

        def configure(self, config: object) -> None:
            self.events.append(isinstance(config, ProducerConfig))

        def on_send(self, record: Record) -> Record:
            record.value += 1
            return record

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            self.events.append(metadata.offset if metadata else type(error))

        def close(self) -> None:
            self.events.append("closed")

    def serialize(topic: str, headers: list[tuple[str, bytes | None]], value: Any) -> bytes:
        headers.append(("made", b"here"))
        return b"%d" % (1 // value) if value < 2 else b"%d" % value

    async def scenario(make: Make) -> None:
        seen = Seen()
        async with make(interceptors=[seen], value_serializer=serialize) as producer:
            await producer.send("t", 41, partition=0)
            with pytest.raises(SerializationError):
                producer.send("t", -1)
        assert seen.events == [True, 0, SerializationError, "closed"] or seen.events == [
            True,
            SerializationError,
            0,
            "closed",
        ]
        if isinstance(producer, MemoryProducer):
            (record,) = producer.records
            assert (record.value, record.original_value) == (b"42", 42)
            assert record.headers == (("made", b"here"),)

    run_with(scenario)


def test_a_hook_that_cannot_be_configured_fails_the_start(run_with: Callable[[Scenario], None]) -> None:
    class Broken(ProducerInterceptor):
        def configure(self, config: object) -> None:
            raise LookupError("no registry")

    async def scenario(make: Make) -> None:
        producer = make(interceptors=[Broken()])
        with pytest.raises(ConfigError, match="no registry"):
            await producer.start()
        assert producer.health().state is ProducerState.NEW

    run_with(scenario)


def test_without_acks_no_offset_is_told(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        async with make(acks=0, enable_idempotence=False) as producer:
            delivery = producer.send("t", b"v", timestamp_ms=5)
            assert (await delivery).offset is None and delivery.result().timestamp == 5
            assert delivery.explain().why == "offset unknown"

    run_with(scenario)


def test_asking(run_with: Callable[[Scenario], None]) -> None:
    async def scenario(make: Make) -> None:
        async with make() as producer:
            assert await producer.partitions_for("t") == [0, 1, 2]
            with pytest.raises(InvalidTopicError):
                await producer.partitions_for("no/topic")
            assert await producer.ping() >= 0
            await producer.send("t", b"v")
            metrics = producer.metrics()
            assert metrics["records_delivered"] == 1 and metrics["buffer_used_bytes"] == 0
            assert metrics["buffer_limit_bytes"] == producer.config.buffer_memory
            health = producer.health()
            assert health.brokers_connected >= 1 and health.oldest_record_s is None and health.last_error is None

    run_with(scenario)


# ---------------------------------------------------------------------- records
def test_records_are_kept_as_they_would_be_in_the_log() -> None:
    async def scenario() -> None:
        async with MemoryProducer(topics={"orders": 6}) as producer:
            value = bytearray(b"v")
            producer.send("orders", value, b"k", headers={"h": b"1", "n": None}, partition=4, timestamp_ms=7)
            value[:] = b"x"
            producer.send("audit", None)
            assert producer.records == []
            await producer.flush()
        first, second = producer.records
        assert (first.topic, first.partition, first.offset, first.timestamp_ms) == ("orders", 4, 0, 7)
        assert (first.key, first.value, first.original_key, first.original_value) == (b"k", b"v", b"k", b"v")
        assert first.headers == (("h", b"1"), ("n", None))
        assert (second.topic, second.partition, second.value, second.key) == ("audit", 0, None, None)
        assert producer.records_of("orders") == [first] == producer.records_of("orders", 4)
        assert producer.records_of("orders", 3) == [] == producer.records_of("nothing")

    run(scenario)


def test_records_come_in_the_order_of_the_sends_over_all_partitions() -> None:
    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 3}) as producer:
            for n in (0, 0, 2, 0, 1, 2, 2, 0, 1):
                producer.send("t", b"%d" % len(str(n)), partition=n)
            await producer.flush()
            assert [record.partition for record in producer.records] == [0, 0, 2, 0, 1, 2, 2, 0, 1]

    run(scenario)


def test_what_the_serializers_were_given_is_kept_also_when_they_are_awaited() -> None:
    async def slowly(topic: str, headers: object, value: Any) -> bytes:
        await asyncio.sleep(0)
        if value == "bad":
            raise LookupError(value)
        return str(value).encode()

    async def scenario() -> None:
        async with MemoryProducer(value_serializer=slowly, key_serializer=lambda key: key.encode()) as producer:
            deliveries = [producer.send("t", value, "key") for value in (1, "bad", 2)]
            first, bad, second = [await outcome(delivery) for delivery in deliveries]
            assert isinstance(bad, SerializationError) and isinstance(bad.__cause__, LookupError)
            assert isinstance(first, RecordMetadata) and isinstance(second, RecordMetadata)
            assert (first.offset, second.offset) == (0, 1)
        assert [(r.value, r.original_value, r.key, r.original_key) for r in producer.records] == [
            (b"1", 1, b"key", "key"),
            (b"2", 2, b"key", "key"),
        ]

    run(scenario)


def test_records_topics_and_the_script_outlive_a_close() -> None:
    async def scenario() -> None:
        producer = MemoryProducer()
        producer.fail_next(BrokerRejectedError)
        async with producer:
            assert isinstance(await outcome(producer.send("t", b"0")), BrokerRejectedError)
            await producer.send("t", b"1")
        async with producer:
            assert (await producer.send("t", b"2")).offset == 1
        assert [record.value for record in producer.records] == [b"1", b"2"]

    run(scenario)


def test_clear_forgets_records_and_script_and_ends_a_hold() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            await producer.send("t", b"0")
            producer.fail_next(BrokerRejectedError)
            producer.delay_next(LONG_S)
            producer.hold()
            producer.clear()
            assert producer.records == []
            assert (await producer.send("t", b"1")).offset == 1
            assert len(producer.records) == 1

    run(scenario)


def test_another_thread_reads_records_and_releases() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            producer.hold()
            delivery = producer.send("t", b"v")
            await turns()
            threading.Thread(target=producer.release).start()
            await delivery
            assert [r.value for r in await asyncio.to_thread(lambda: producer.records)] == [b"v"]

    run(scenario)


# ---------------------------------------------------------------------- topics
def test_topics_have_the_partitions_they_were_given_others_one() -> None:
    async def scenario() -> None:
        async with MemoryProducer(topics={"orders": 6}) as producer:
            assert await producer.partitions_for("orders") == list(range(6))
            assert await producer.partitions_for("audit") == [0]

    run(scenario)


def test_an_unknown_topic_is_refused_at_once_if_none_are_made() -> None:
    async def scenario() -> None:
        unheard: list[AiokprodError] = []
        options: Any = {"max_block_ms": int(LONG_S * 1000), "on_delivery_error": unheard.append}
        async with MemoryProducer(topics={"orders": 6}, auto_create=False, **options) as producer:
            for _ in range(2):
                delivery = producer.send("audit", b"v")
                assert not delivery.done()
                error = await outcome(delivery)
                assert isinstance(error, UnknownTopicError) and error.topic == "audit"
                assert error.code == 3 and "UNKNOWN_TOPIC_OR_PARTITION" in str(error)
                assert error.persistence is Persistence.NOT_PERSISTED and delivery.attempts == 0
            with pytest.raises(UnknownTopicError):
                await producer.partitions_for("audit")
            with pytest.raises(UnknownTopicError):
                await producer.send_many("audit", [b"v"])
            producer.send("audit", b"v")
            await producer.send("orders", b"v")
            assert unheard == []
        assert [type(error) for error in unheard] == [UnknownTopicError]

    run(scenario)


# ---------------------------------------------------------------------- errors on demand
@pytest.mark.parametrize("why", ["script", "topic", "partition"])
def test_a_failure_is_told_to_the_task_that_is_made_to_wait_for_it_alone(why: str) -> None:
    """The failure came before the task had taken its first step, and was told to `on_delivery_error` as well."""

    async def scenario() -> None:
        unheard: list[AiokprodError] = []
        async with MemoryProducer(topics={"t": 1}, auto_create=False, on_delivery_error=unheard.append) as producer:
            await producer.send("t", b"0")
            if why == "script":
                producer.fail_next(DeliveryTimeoutError("no"))
            delivery = producer.send("u" if why == "topic" else "t", b"1", partition=7 if why == "partition" else None)
            with pytest.raises(AiokprodError):
                await asyncio.create_task(delivery.wait())
        assert unheard == []

    run(scenario)


def test_the_next_record_fails_as_scripted_and_is_not_kept() -> None:
    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 3}) as producer:
            scripted = BrokerRejectedError("POLICY_VIOLATION", code=44, persistence=Persistence.POSSIBLY_PERSISTED)
            producer.fail_next(scripted)
            delivery = producer.send("t", b"v", partition=2)
            error = await outcome(delivery)
            assert isinstance(error, BrokerRejectedError) and error is not scripted
            assert (error.topic, error.partition, error.attempts, error.code) == ("t", 2, 1, 44)
            assert error.persistence is Persistence.POSSIBLY_PERSISTED and error.elapsed_s is not None
            assert scripted.topic is None  # the test's own object is left alone
            assert delivery.attempts == 1 and delivery.explain().why.startswith("BrokerRejectedError: ")
            assert (await producer.send("t", b"w", partition=2)).offset == 0
            assert [record.value for record in producer.records] == [b"w"]
            assert producer.metrics()["records_failed"] == 1 and producer.health().buffered_bytes == 0

    run(scenario)


def test_facts_the_error_names_stay_and_persistence_is_never_open() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            producer.fail_next(
                DeliveryTimeoutError("late", topic="elsewhere", partition=9, attempts=4, elapsed_s=120.0)
            )
            error = await outcome(producer.send("t", b"v"))
            assert isinstance(error, DeliveryTimeoutError)
            assert (error.topic, error.partition, error.attempts, error.elapsed_s) == ("elsewhere", 9, 4, 120.0)
            assert error.persistence is Persistence.NOT_PERSISTED and error.retriable

    run(scenario)


def test_errors_are_for_a_topic_and_a_number_of_records() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            producer.fail_next(BrokerRejectedError, topic="t", times=2)
            producer.fail_next(AuthenticationError)
            sent = [producer.send(topic, b"v") for topic in ("u", "t", "u", "t", "t")]
            kinds = [type(await outcome(delivery)) for delivery in sent]
            assert kinds == [
                AuthenticationError,
                BrokerRejectedError,
                RecordMetadata,
                BrokerRejectedError,
                RecordMetadata,
            ]

    run(scenario)


def test_a_rule_is_about_records_sent_after_it() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            before = producer.send("t", b"v")
            producer.fail_next(BrokerRejectedError)
            assert isinstance(await outcome(before), RecordMetadata)
            assert isinstance(await outcome(producer.send("t", b"v")), BrokerRejectedError)

    run(scenario)


@pytest.mark.parametrize("error", [LookupError("x"), LookupError, "POLICY_VIOLATION", None])
def test_no_error_but_ours_can_be_scripted(error: Any) -> None:
    with pytest.raises(ConfigError, match=r"error must be an error of aiokprod\.errors"):
        MemoryProducer().fail_next(error)


@pytest.mark.parametrize("times", [0, -1, True, 1.5])
def test_a_rule_is_for_a_number_of_records(times: Any) -> None:
    with pytest.raises(ConfigError, match="times must be"):
        MemoryProducer().fail_next(BrokerRejectedError, times=times)


@pytest.mark.parametrize("seconds", [-1, True, "1", float("nan"), float("inf")])
def test_a_delay_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="seconds must be"):
        MemoryProducer().delay_next(seconds)


def test_a_failure_that_nothing_waits_for_reaches_the_option() -> None:
    async def scenario() -> None:
        unheard: list[AiokprodError] = []
        async with MemoryProducer(on_delivery_error=unheard.append) as producer:
            producer.fail_next(BrokerRejectedError("first"), times=3)
            producer.send("t", b"v")
            await outcome(producer.send("t", b"v"))
            detached = producer.send("t", b"v")
            assert detached.cancel()
            await producer.flush()
            assert unheard == []
        assert [type(error) for error in unheard] == [BrokerRejectedError, BrokerRejectedError]
        assert all(error.topic == "t" for error in unheard)

    run(scenario)


def test_interceptors_hear_of_outcomes() -> None:
    outcomes: list[object] = []

    class Seen(ProducerInterceptor):
        def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            outcomes.append((metadata.offset if metadata else None, type(error)))

    async def scenario() -> None:
        async with MemoryProducer(interceptors=[Seen()]) as producer:
            producer.fail_next(BrokerRejectedError)
            producer.send("t", b"v").add_done_callback(lambda delivery: delivery.exception())
            producer.send("t", b"v")
        assert outcomes == [(None, BrokerRejectedError), (0, type(None))]

    run(scenario)


def test_send_many_has_the_scripted_failures_in_its_report_and_nowhere_else() -> None:
    async def scenario() -> None:
        unheard: list[AiokprodError] = []
        async with MemoryProducer(on_delivery_error=unheard.append) as producer:
            producer.delay_next(0.01)
            producer.fail_next(BrokerRejectedError, times=2)
            with pytest.raises(SendManyError) as failed:
                await producer.send_many("t", [b"0", b"1", b"2"])
            assert [number for number, _ in failed.value.report.failures] == [0, 1]
            assert failed.value.report.offsets == {("t", 0): (0, 0)}
            await turns()
        assert unheard == []

    run(scenario)


# ---------------------------------------------------------------------- delays and holds
def test_a_delayed_record_keeps_those_behind_it_in_its_partition_waiting() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with MemoryProducer(topics={"t": 2}) as producer:
            producer.delay_next(0.05, topic="t")
            began = loop.time()
            late = producer.send("t", b"late", partition=0)
            behind = producer.send("t", b"behind", partition=0)
            other = producer.send("t", b"other", partition=1)
            await other
            assert not late.done() and not behind.done() and "delay of 0.05 s" in late.explain().why
            await behind
            assert late.done() and loop.time() - began >= 0.049
            assert late.latency is not None and late.latency >= 0.049
            assert [record.value for record in producer.records] == [b"other", b"late", b"behind"]

    run(scenario)


def test_those_behind_a_delayed_record_go_on_when_it_is_recalled() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            producer.delay_next(LONG_S)
            late, behind = producer.send("t", b"late"), producer.send("t", b"behind")
            await turns()
            assert late.recall() and not late.recall()
            assert isinstance(await outcome(late), RecordRecalledError) and late.attempts == 0
            assert (await behind).offset == 0

    run(scenario)


def test_a_purge_lets_go_of_all_that_has_no_outcome() -> None:
    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 2, "u": 1}) as producer:
            producer.hold()
            kept = producer.send("u", b"kept")
            purged = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(4)]
            assert producer.purge("t", 1) == PurgeReport(purged=2, in_flight=0)
            assert producer.purge("t") == PurgeReport(purged=2, in_flight=0)
            for delivery in purged:
                assert isinstance(await outcome(delivery), RecordPurgedError) and delivery.attempts == 0
            producer.release()
            await kept
            assert [record.value for record in producer.records] == [b"kept"]
            assert producer.health().buffered_bytes == 0

    run(scenario)


def test_a_hold_holds_everything_until_it_is_released() -> None:
    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 2}) as producer:
            producer.hold()
            deliveries = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(6)]
            flush = asyncio.create_task(producer.flush())
            await turns(20)
            assert not any(delivery.done() for delivery in deliveries) and not flush.done()
            assert producer.records == [] and producer.health().buffered_bytes > 0
            assert producer.health().oldest_record_s is not None
            assert deliveries[0].explain().place is Place.QUEUED
            producer.release()
            await flush
            assert [record.value for record in producer.records] == [b"%d" % n for n in range(6)]
            assert producer.health().buffered_bytes == 0

    run(scenario)


def test_release_without_a_hold_and_without_a_start_does_nothing() -> None:
    producer = MemoryProducer()
    producer.release()
    producer.hold()
    producer.release()

    async def scenario() -> None:
        async with producer:
            await producer.send("t", b"v")

    run(scenario)
    producer.release()
    assert len(producer.records) == 1


def test_the_delivery_timeout_ends_what_is_held() -> None:
    async def scenario() -> None:
        async with MemoryProducer(delivery_timeout_ms=30, request_timeout_ms=20, linger_ms=0) as producer:
            producer.hold()
            first, second = producer.send("t", b"0"), producer.send("t", b"1")
            for delivery in (first, second):
                error = await outcome(delivery)
                assert isinstance(error, DeliveryTimeoutError)
                assert error.persistence is Persistence.NOT_PERSISTED and delivery.attempts == 0
            producer.release()
            assert (await producer.send("t", b"2")).offset == 0

    run(scenario)


def test_the_timeout_of_a_send_ends_it_alone() -> None:
    async def scenario() -> None:
        unheard: list[AiokprodError] = []
        async with MemoryProducer(on_delivery_error=unheard.append) as producer:
            producer.hold()
            waited, forgotten = producer.send("t", b"0", timeout=0.02), producer.send("t", b"1", timeout=0.02)
            patient = producer.send("t", b"2")
            error = await outcome(waited)
            assert isinstance(error, SendTimeoutError) and error.topic == "t"
            assert error.persistence is Persistence.NOT_PERSISTED
            while not forgotten.done():
                await asyncio.sleep(0)
            producer.release()
            assert (await patient).offset == 0
        assert [type(error) for error in unheard] == [SendTimeoutError]

    run(scenario)


def test_a_full_buffer_is_felt_as_with_a_cluster() -> None:
    async def scenario() -> None:
        async with MemoryProducer(
            buffer_memory=2000, max_waiting_bytes=1000, max_request_size=1000, batch_size=500
        ) as producer:
            producer.hold()
            taken: list[Delivery] = []
            with pytest.raises(BufferFullError):
                for _ in range(100):
                    taken.append(producer.send("t", bytes(200)))
            with pytest.raises(BufferFullError):
                producer.try_send("t", b"v")
            assert taken[-1].explain().place is Place.PARKED and not producer.health().ready
            room = asyncio.create_task(producer.ready())
            await turns()
            assert not room.done()
            producer.release()
            await room
            await asyncio.gather(*taken)
            assert await producer.try_send("t", b"v")
        assert [record.offset for record in producer.records] == list(range(len(taken) + 1))

    run(scenario)


def test_close_reports_what_was_held_back() -> None:
    async def scenario() -> None:
        producer = await MemoryProducer(topics={"t": 2}).start()
        producer.hold()
        held = [producer.send("t", b"v", partition=1) for _ in range(3)]
        report = await producer.close(timeout=0.01)
        assert report.undelivered == {("t", 1, Persistence.NOT_PERSISTED): 3} and not report.is_clean
        assert report.duration_s >= 0.009
        assert [type(delivery.exception()) for delivery in held] == [UndeliveredAtCloseError] * 3
        assert producer.records == []
        assert len(asyncio.all_tasks()) == 1

    run(scenario)


def test_cancelling_its_tasks_fails_it_and_close_makes_it_new() -> None:
    async def scenario() -> None:
        producer = await MemoryProducer().start()
        producer.hold()
        held = producer.send("t", b"v")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name() == "aiokprod-supervisor":
                task.cancel()
        error = await outcome(held)
        assert isinstance(error, ProducerFailedError) and error.__cause__ is not None
        assert producer.health().state is ProducerState.FAILED and not producer.health().live
        with pytest.raises(ProducerFailedError):
            producer.send("t", b"v")
        with pytest.raises(ProducerFailedError):
            await producer.start()
        await producer.close()
        producer.release()
        async with producer:
            assert (await producer.send("t", b"v")).offset == 0

    run(scenario)


def test_nothing_of_it_is_left_after_close() -> None:
    async def scenario() -> None:
        threads = set(threading.enumerate())  # an earlier test of this process may have left one that is ending
        producer = await MemoryProducer().start()
        producer.delay_next(LONG_S)
        producer.send("t", b"v").add_done_callback(lambda delivery: delivery.exception())
        await turns()
        await producer.close(timeout=0)
        assert len(asyncio.all_tasks()) == 1
        assert set(threading.enumerate()) <= threads

    run(scenario)


@pytest.mark.pure("what is broken is no MemoryPartition")
def test_a_bug_fails_every_delivery_and_hangs_none() -> None:
    class Broken:
        def head(self) -> None:
            raise LookupError("a bug")

    async def scenario() -> None:
        async with MemoryProducer() as producer:
            delivery = producer.send("t", b"v")
            backend = backend_of(producer)
            backend.broker.partitions.append(Broken())  # type: ignore[arg-type]
            error = await outcome(delivery)
            assert isinstance(error, ProducerFailedError) and isinstance(error.__cause__, LookupError)
            assert "a bug" in str(producer.health().last_error)
            backend.broker.partitions.pop()

    run(scenario)


def test_a_timeout_reaches_records_that_have_no_partition_yet() -> None:
    async def never(value: bytes) -> bytes:
        await asyncio.get_running_loop().create_future()
        return value

    async def scenario() -> None:
        producer = await MemoryProducer(value_serializer=never).start()
        delivery = producer.send("t", b"v", timeout=0.01)
        assert isinstance(await outcome(delivery), SendTimeoutError)
        assert (await producer.close(timeout=0)).is_clean

    run(scenario)


def test_what_it_is_made_of_shows_where_it_stands() -> None:
    async def scenario() -> None:
        async with MemoryProducer(client_id="shop") as producer:
            producer.hold()
            delivery = producer.send("t", b"v")
            backend = backend_of(producer)
            assert [repr(p) for p in backend.broker.partitions] == ["<MemoryPartition t-0: 1 pending>"]
            assert backend.broker.partitions[0].pending_bytes() == delivery.size_bytes
            producer.release()
            await delivery
            holder, index = delivery._position()
            assert not holder.recall(index)
            assert repr(producer) == "<MemoryProducer shop READY, 1 records>"

    run(scenario)


def test_the_partitioner_hears_of_batches() -> None:
    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 3}, partitioner="sticky", batch_size=1000) as producer:
            done = await asyncio.gather(*(producer.send("t", bytes(400)) for _ in range(6)))
            partitions = [metadata.partition for metadata in done]
            assert partitions[0] == partitions[1] and len(set(partitions)) > 1

    run(scenario)


def _send_in_child(producer: MemoryProducer, answers: Any) -> None:
    async def scenario() -> None:
        try:
            producer.send("t", b"v")
        except AiokprodError as error:
            answers.send(type(error).__name__)
        async with producer:
            answers.send((await producer.send("t", b"v")).offset)

    asyncio.run(scenario())


def test_a_forked_child_must_start_it_again() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            here, there = multiprocessing.Pipe()
            child = multiprocessing.get_context("fork").Process(target=_send_in_child, args=(producer, there))
            await asyncio.to_thread(child.start)
            answers = [await asyncio.to_thread(here.recv) for _ in range(2)]
            await asyncio.to_thread(child.join)
            assert answers == ["ForkedError", 0] and producer.records == []
            here.close()
            there.close()

    run(scenario)


@pytest.mark.parametrize("in_nanoseconds", [False, True])
def test_a_clock_that_stands_still_hangs_no_memory_producer(
    monkeypatch: pytest.MonkeyPatch, in_nanoseconds: bool
) -> None:
    # What freezegun's `freeze_time()` does, with the loop's clock too: docs/testing.md, "Tests that stop the clock".
    async def scenario() -> list[int | None]:
        async with MemoryProducer() as producer:
            sent = [producer.send("orders", b"value") for _ in range(3)]
            await producer.flush()
            assert asyncio.get_running_loop().time() == 1_577_836_800.0, "why a timer never ends"
            return [(await each).offset for each in sent]

    for name in ("time", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: 1_577_836_800.0)
    if in_nanoseconds:
        monkeypatch.setattr(time, "time_ns", lambda: 1_577_836_800 * 10**9)
        monkeypatch.setattr(time, "monotonic_ns", lambda: 1_577_836_800 * 10**9)
    assert asyncio.run(scenario()) == [0, 1, 2]
