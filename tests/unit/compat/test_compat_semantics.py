"""`aiokprod.compat.aiokafka` beside aiokafka, call by call: the same outcome, or an error that is of the same class."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaError
from drop_in_rig import LIMIT_S

from aiokprod.compat.aiokafka import AIOKafkaProducer
from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster

Call = Callable[[Any], Awaitable[object]]
NO_SERVER = "127.0.0.1:1"


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(auto_create_topics=False) as started:
        started.create_topic("t", partitions=3)
        yield started
    gc.collect()


def outcome(kind: Any, cluster: MockCluster, call: Call, options: dict[str, Any], starts: bool) -> object:
    """Return what a call returns or raises, with this class of producer."""

    async def scenario() -> object:
        made = {"bootstrap_servers": cluster.bootstrap_servers, "request_timeout_ms": 2_000, **options}
        producer = kind(**made)
        try:
            if starts:
                await producer.start()
            return await call(producer)
        except Exception as error:
            return error
        finally:
            await producer.stop()

    async def bounded() -> object:
        return await asyncio.wait_for(scenario(), LIMIT_S)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # aiokafka's own, of connections
        return asyncio.run(bounded())


def plain(value: object) -> object:
    """Return a value without what two runs have differently: offsets and times."""
    if isinstance(value, tuple) and hasattr(value, "_replace"):
        return value._replace(offset=0, timestamp=0 if value.timestamp != -1 else -1, log_start_offset=None)  # type: ignore[attr-defined]
    return value


def is_same(theirs: object, ours: object) -> bool:
    if isinstance(theirs, Exception):
        return isinstance(ours, type(theirs))
    return type(ours) is type(theirs) and plain(theirs) == plain(ours)


def later(name: str, *arguments: Any, **named: Any) -> Call:
    """Return a call of a method."""

    async def call(producer: Any) -> object:
        return await getattr(producer, name)(*arguments, **named)

    return call


def outcome_of(*arguments: Any, **named: Any) -> Call:
    """Return a call of `send`, and then a wait for what it has returned."""

    async def call(producer: Any) -> object:
        return await (await producer.send(*arguments, **named))

    return call


async def is_a_future(producer: Any) -> object:
    future = await producer.send("t", b"v")
    looks = (isinstance(future, asyncio.Future), asyncio.isfuture(future), asyncio.iscoroutinefunction(producer.send))
    await future
    return looks


async def cancelled(producer: Any) -> object:
    future = await producer.send("t", b"v")
    told = future.cancel(), future.cancelled(), future.done(), future.cancel()
    await producer.flush()
    return told


async def gathered(producer: Any) -> object:
    futures = [await producer.send("t", b"v", partition=1) for _ in range(3)]
    return [each.partition for each in await asyncio.gather(*futures)]


async def batch(producer: Any) -> object:
    filled = producer.create_batch()
    added = [filled.append(key=None, value=b"%d" % number, timestamp=None) for number in range(3)]
    told = [each.offset for each in added], filled.record_count(), filled.closed()
    metadata = await (await producer.send_batch(filled, "t", partition=2))
    refused = filled.append(key=None, value=b"late", timestamp=None)
    return told, refused, metadata.partition, metadata.topic_partition, metadata.timestamp, filled.closed()


async def empty_batch(producer: Any) -> object:
    return await (await producer.send_batch(producer.create_batch(), "t", partition=0))


async def full_batch(producer: Any) -> object:
    filled = producer.create_batch()
    count = 0
    while filled.append(key=b"k", value=b"x" * 100, timestamp=1, headers=[("h", b"v")]) is not None:
        count += 1
    return count


async def stopped(producer: Any) -> object:
    await producer.send_and_wait("t", b"v")  # else aiokafka asks for the topic for ever
    await producer.stop()
    await producer.stop()
    return await producer.send("t", b"v")


async def in_a_transaction(producer: Any) -> object:
    async with producer.transaction():
        sent = await producer.send_and_wait("t", b"v", partition=0)
    async with producer.transaction() as context:
        await producer.send("t", b"w", partition=0)
    return sent.partition, context is not None


async def aborted(producer: Any) -> object:
    with pytest.raises(KeyError):
        async with producer.transaction():
            await producer.send("t", b"v")
            raise KeyError
    await producer.begin_transaction()
    return await producer.abort_transaction()


async def committed_twice(producer: Any) -> object:
    await producer.begin_transaction()
    await producer.commit_transaction()
    return await producer.commit_transaction()


async def begun_twice(producer: Any) -> object:
    await producer.begin_transaction()
    try:
        return await producer.begin_transaction()
    finally:
        await producer.abort_transaction()


def raises(*_: object) -> Any:
    raise LookupError("a serializer of the user")


TXN = {"transactional_id": "txn"}
CALLS: dict[str, tuple[Call, dict[str, Any]]] = {
    "a value": (later("send_and_wait", "t", b"v", partition=1), {}),
    "by position": (later("send_and_wait", "t", b"v", b"k", 2, 1_700_000_000_000, [("h", b"v")]), {}),
    "key alone": (later("send_and_wait", "t", key=b"k"), {}),
    "a key": (later("send_and_wait", "t", b"v", key=b"some key"), {}),
    "an empty key": (later("send_and_wait", "t", b"v", key=b""), {}),
    "nothing": (later("send", "t"), {}),
    "str value": (outcome_of("t", "text"), {}),
    "str key": (outcome_of("t", b"v", key="text"), {}),
    "bytearray": (later("send_and_wait", "t", bytearray(b"v"), partition=0), {}),
    "memoryview": (later("send_and_wait", "t", memoryview(b"v"), partition=0), {}),
    "header without a value": (later("send_and_wait", "t", b"v", partition=0, headers=[("a", None)]), {}),
    "timestamp 0": (later("send_and_wait", "t", b"v", partition=0, timestamp_ms=0), {}),
    "timestamp with a fraction": (later("send_and_wait", "t", b"v", partition=0, timestamp_ms=1.5), {}),
    "timestamp of a wrong type": (outcome_of("t", b"v", timestamp_ms="1"), {}),
    "partition 99": (later("send", "t", b"v", partition=99), {}),
    "partition -1": (later("send", "t", b"v", partition=-1), {}),
    "too large": (later("send", "t", b"x" * 2_000_000), {}),
    "a topic that is not there": (later("send", "none", b"v"), {}),
    "a Future": (is_a_future, {}),
    "cancelled": (cancelled, {}),
    "gathered": (gathered, {}),
    "acks=0": (later("send_and_wait", "t", b"v"), {"acks": 0}),
    "acks=1": (later("send_and_wait", "t", b"v", partition=0), {"acks": 1}),
    "idempotent": (later("send_and_wait", "t", b"v", partition=0), {"enable_idempotence": True}),
    "value serializer": (
        later("send_and_wait", "t", {"a": 1}, partition=0),
        {"value_serializer": lambda value: repr(value).encode()},
    ),
    "key serializer of None": (later("send_and_wait", "t", b"v"), {"key_serializer": lambda key: b"%r" % key}),
    "serializer that raises": (later("send", "t", b"v"), {"value_serializer": raises}),
    "partitioner": (
        later("send_and_wait", "t", b"v", key=b"k"),
        {"partitioner": lambda key, every, available: every.index(2) if key == b"k" else 0},
    ),
    "partitioner that raises": (later("send", "t", b"v", key=b"k"), {"partitioner": raises}),
    "partitions_for": (later("partitions_for", "t"), {}),
    "partitions_for what is not there": (later("partitions_for", "none"), {}),
    "flush": (later("flush"), {}),
    "a batch": (batch, {}),
    "an empty batch": (empty_batch, {}),
    "a full batch": (full_batch, {}),
    "a batch to partition 99": (
        lambda producer: producer.send_batch(producer.create_batch(), "t", partition=99),
        {},
    ),
    "after stop": (stopped, {}),
    "begin without an id": (later("begin_transaction"), {}),
    "commit without an id": (later("commit_transaction"), {}),
    "offsets without an id": (later("send_offsets_to_transaction", {aiokafka.TopicPartition("t", 0): 1}, "group"), {}),
    "send outside a transaction": (later("send", "t", b"v"), TXN),
    "transactions": (in_a_transaction, TXN),
    "aborted": (aborted, TXN),
    "begun twice": (begun_twice, TXN),
    "committed twice": (committed_twice, TXN),
    "abort outside": (later("abort_transaction"), TXN),
    "health check": (lambda producer: producer.client.force_metadata_update(), {}),
    "metadata of the client": (lambda producer: producer.client._wait_on_metadata("t"), {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_has_the_outcome_that_it_has_with_aiokafka(name: str, cluster: MockCluster) -> None:
    call, options = CALLS[name]
    theirs = outcome(aiokafka.producer.producer.AIOKafkaProducer, cluster, call, options, True)
    ours = outcome(AIOKafkaProducer, cluster, call, options, True)
    assert is_same(theirs, ours), (theirs, ours, type(ours).__mro__)
    if isinstance(theirs, KafkaError):
        assert isinstance(ours, AiokprodError)


@pytest.mark.parametrize("options", [
    {"acks": 7}, {"compression_type": "brotli"}, {"acks": 1, "enable_idempotence": True}, {"retries": 3},
    {"acks": 1, "transactional_id": "txn"}, {"security_protocol": "SSL"}, {"security_protocol": "TLS"},
    {"security_protocol": "SASL_PLAINTEXT"}, {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "CRAM"},
])  # fmt: skip
def test_a_constructor_that_aiokafka_refuses_is_refused_in_the_same_way(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        with pytest.raises((ValueError, TypeError)) as theirs:
            aiokafka.producer.producer.AIOKafkaProducer(**options)
        with pytest.raises(type(theirs.value)):
            AIOKafkaProducer(**options)

    asyncio.run(scenario())


@pytest.mark.parametrize("servers", [NO_SERVER, f"{NO_SERVER},127.0.0.1:2", "no.such.host.invalid:9092"])
def test_a_start_without_a_server_fails_as_soon_as_that_of_aiokafka(servers: str, cluster: MockCluster) -> None:
    options = {"bootstrap_servers": servers, "request_timeout_ms": 600_000}  # the test's own limit is shorter
    theirs = outcome(aiokafka.producer.producer.AIOKafkaProducer, cluster, later("flush"), options, True)
    ours = outcome(AIOKafkaProducer, cluster, later("flush"), options, True)
    assert isinstance(theirs, KafkaError)
    assert isinstance(ours, type(theirs)) and isinstance(ours, AiokprodError)
