"""docs/migrating.md: what its table says of each client is what that client does; the peers' names in it are theirs."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import re
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final

import aiokafka
import confluent_kafka
import confluent_kafka.aio
import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.errors import MessageSizeTooLargeError as AiokafkaTooLarge
from page_programs import ROOT

from aiokprod import Producer, errors
from aiokprod.testing import MockCluster

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's own, when it is imported
    import kafka
    from kafka.errors import KafkaTimeoutError
    from kafka.errors import MessageSizeTooLargeError as KafkaPythonTooLarge

PAGE: Final = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
CLIENTS: Final = ("aiokafka", "confluent-kafka", "kafka-python", "aiokprod")
LIMIT_S: Final = 30.0
KEYS: Final = [b"key-%d" % number for number in range(12)]
LARGE: Final = b"x" * 3_000_000
POLICY_VIOLATION: Final = 44


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(3) as started:
        yield started
    gc.collect()  # what the peers leave open is told here, where it is ignored, and not in a later test


# ---------------------------------------------------------------------- a little of each client
class Outcome(list[Any]):
    """Outcomes, in their order, and the threads in which they were told."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def add(self, outcome: object) -> None:
        self.append(outcome)
        self.threads.add(threading.get_ident())


def with_aiokafka(cluster: MockCluster, values: list[tuple[bytes | None, Any]], **options: Any) -> Outcome:
    """Send (key, value) pairs; return the outcomes."""
    told = Outcome()

    async def scenario() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
            for key, value in values:
                future = await producer.send("orders", value, key=key)
                future.add_done_callback(lambda done: told.add(done.exception() or done.result()))
                await asyncio.wait([future])
                await asyncio.sleep(0)

    asyncio.run(scenario())
    return told


def with_confluent(cluster: MockCluster, values: list[tuple[bytes | None, Any]], **options: Any) -> Outcome:
    told = Outcome()
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **options})
    for key, value in values:
        producer.produce("orders", value, key, on_delivery=lambda error, message: told.add(error or message))
    assert producer.flush(LIMIT_S) == 0
    return told


def with_kafka_python(cluster: MockCluster, values: list[tuple[bytes | None, Any]], **options: Any) -> Outcome:
    told = Outcome()
    producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options)
    try:
        futures = [producer.send("orders", value, key=key) for key, value in values]
        for future in futures:
            future.add_both(told.add)
        producer.flush(timeout=LIMIT_S)
    finally:
        producer.close(timeout=LIMIT_S)
    return told


def with_aiokprod(cluster: MockCluster, values: list[tuple[bytes | None, Any]], **options: Any) -> Outcome:
    told = Outcome()

    async def scenario() -> None:
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            deliveries = [producer.send("orders", value, key=key) for key, value in values]
            for delivery in deliveries:
                delivery.add_done_callback(lambda done: told.add(done.exception() or done.result()))
            await producer.flush()
            await asyncio.sleep(0)

    asyncio.run(scenario())
    return told


SEND: Final[dict[str, Callable[..., Outcome]]] = dict(
    zip(CLIENTS, (with_aiokafka, with_confluent, with_kafka_python, with_aiokprod), strict=True)
)


# ---------------------------------------------------------------------- a check for each row
def partition_of_a_key(client: str, cluster: MockCluster, cell: str) -> None:
    cluster.create_topic("orders", partitions=8)
    SEND[client](cluster, [(key, b"v") for key in KEYS])
    theirs = {record.key: record.partition for record in cluster.records("orders")}
    option = {"murmur2": "murmur2", "CRC-32": "crc32"}[re.findall(r"murmur2|CRC-32", cell)[0]]
    with MockCluster(1) as other:
        other.create_topic("orders", partitions=8)
        with_aiokprod(other, [(key, b"v") for key in KEYS], partitioner=option)
        assert theirs == {record.key: record.partition for record in other.records("orders")}
    assert len(set(theirs.values())) > 1


def what_a_call_returns(client: str, cluster: MockCluster, cell: str) -> None:
    cluster.create_topic("orders")
    if client == "confluent-kafka":
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        assert producer.produce("orders", b"v") is None and cell.startswith("nothing")
        producer.flush(LIMIT_S)
    elif client == "kafka-python":
        sender = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        assert sender.send("orders", b"v").get(timeout=LIMIT_S).offset == 0 and "`get()`" in cell
        sender.close()
    else:
        asyncio.run(awaited(client, cluster))


async def awaited(client: str, cluster: MockCluster) -> None:
    if client == "aiokafka":
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            future = await producer.send("orders", b"v")
            assert isinstance(future, asyncio.Future) and (await future).offset == 0
    else:
        async with Producer(cluster.bootstrap_servers) as ours:
            assert (await ours.send("orders", b"v")).offset == 0


def where_callbacks_run(client: str, cluster: MockCluster, cell: str) -> None:
    cluster.create_topic("orders")
    told = SEND[client](cluster, [(None, b"v")])
    here = threading.get_ident()  # the thread of the event loop, and the one that calls flush()
    assert told.threads and (told.threads == {here}) == ("own thread" not in cell)


def no_broker(client: str, cluster: MockCluster, cell: str) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        servers = f"127.0.0.1:{unused.getsockname()[1]}"
        if client == "confluent-kafka":
            producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0})
            assert isinstance(producer, confluent_kafka.Producer) and "returns" in cell
        elif client == "kafka-python":
            with pytest.raises(KafkaTimeoutError):
                kafka.KafkaProducer(bootstrap_servers=servers, bootstrap_timeout_ms=300)
        else:
            asyncio.run(started(client, servers))


async def started(client: str, servers: str) -> None:
    if client == "aiokafka":
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers)
        with pytest.raises(KafkaConnectionError):
            await producer.start()
        await producer.stop()
        return
    ours = Producer(servers)
    with pytest.raises(errors.BootstrapError):
        await ours.start(timeout=0.3)
    await ours.start(wait=False)
    await ours.close(0)


def idempotent_by_default(client: str, cluster: MockCluster, cell: str) -> None:
    cluster.create_topic("orders")
    SEND[client](cluster, [(None, b"v")])
    assert (cluster.requests_seen("InitProducerId") > 0) == (cell == "yes")


def acks_by_default(client: str, cluster: MockCluster, cell: str) -> None:
    cluster.create_topic("orders", min_insync_replicas=2)
    leader = cluster.leader("orders")
    assert leader is not None
    cluster.freeze_replicas("orders", 0)
    cluster.set_isr("orders", 0, [leader])  # acks=all is refused
    short = {
        "aiokafka": {"request_timeout_ms": 600, "retry_backoff_ms": 50},
        "confluent-kafka": {"message.timeout.ms": 500},
        "kafka-python": {"delivery_timeout_ms": 900, "request_timeout_ms": 600},
        "aiokprod": {"delivery_timeout_ms": 500, "request_timeout_ms": 300},
    }[client]
    (outcome,) = SEND[client](cluster, [(None, b"v")], **short)
    is_refused = isinstance(outcome, Exception | confluent_kafka.KafkaError)
    assert is_refused == (cell == "all")
    assert len(cluster.records("orders")) == (0 if is_refused else 1)


def missing_topic(client: str, cluster: MockCluster, cell: str) -> None:
    assert cell == "asks the broker to create it"
    SEND[client](cluster, [(None, b"v")])
    assert [record.value for record in cluster.records("orders")] == [b"v"]


def a_text(client: str, cluster: MockCluster, cell: str) -> None:
    cluster.create_topic("orders")
    if client == "confluent-kafka":
        SEND[client](cluster, [(None, "höher")])
        assert [record.value for record in cluster.records("orders")] == ["höher".encode()]
        return
    refused = errors.RecordTypeError if client == "aiokprod" else (TypeError, AssertionError, ValueError)
    with pytest.raises(refused):
        SEND[client](cluster, [(None, "text")])


def too_large(client: str, cluster: MockCluster, cell: str) -> None:
    cluster.create_topic("orders")
    raised = {
        "aiokafka": AiokafkaTooLarge,
        "confluent-kafka": confluent_kafka.KafkaException,
        "kafka-python": KafkaPythonTooLarge,
        "aiokprod": errors.RecordTooLargeError,
    }[client]
    assert f"`{raised.__name__}`" in cell
    with pytest.raises(raised):
        SEND[client](cluster, [(None, LARGE)])


def failure_that_no_code_asked_about(client: str, cluster: MockCluster, cell: str) -> None:
    cluster.create_topic("orders")
    seen: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = seen.append  # type: ignore[method-assign]
    told: list[Exception] = []

    async def sent_and_flushed() -> None:
        if client == "aiokafka":
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                future = await producer.send("orders", b"v")
                await producer.flush()
                assert future.exception() is not None  # asked, so that asyncio does not complain
        else:
            async with Producer(cluster.bootstrap_servers, on_delivery_error=told.append) as ours:
                ours.send("orders", b"v")
                await ours.flush()

    logging.getLogger("aiokprod").addHandler(handler)
    try:
        cluster.fail_next("Produce", POLICY_VIOLATION)
        if client == "confluent-kafka":
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
            producer.produce("orders", b"v")
            assert producer.flush(LIMIT_S) == 0
        elif client == "kafka-python":
            sender = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            sender.send("orders", b"v")
            sender.flush(timeout=LIMIT_S)
            sender.close()
        else:
            asyncio.run(sent_and_flushed())
    finally:
        logging.getLogger("aiokprod").removeHandler(handler)
    assert cluster.records("orders") == []
    assert (len(told), len(seen)) == ((1, 1) if client == "aiokprod" else (0, 0))
    assert ("on_delivery_error" in cell) == (client == "aiokprod")


CHECKS: Final[dict[str, Callable[[str, MockCluster, str], None]]] = {
    "partition of a key": partition_of_a_key,
    "a call that sends returns": what_a_call_returns,
    "callbacks run": where_callbacks_run,
    "no broker at the start": no_broker,
    "idempotent, if not asked for": idempotent_by_default,
    "replicas that acknowledge, if not asked for": acks_by_default,
    "a missing topic": missing_topic,
    "a value that is a `str`": a_text,
    "a record that is too large": too_large,
    "a failed record that no code asked about": failure_that_no_code_asked_about,
}


def rows(title: str) -> list[list[str]]:
    """Return the rows of the first table of a section, without its head."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    table = re.split(r"\n\n", section.partition("\n|")[2])[0]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in table.splitlines()[2:]]


DIFFERENCES: Final = {what: cells for what, *cells in rows("What behaves differently")}


def test_each_row_has_a_check() -> None:
    assert list(DIFFERENCES) == list(CHECKS)
    assert all(len(cells) == len(CLIENTS) for cells in DIFFERENCES.values())


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("what", list(CHECKS))
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the peers' own sockets
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_does_what_the_table_says(what: str, client: str, cluster: MockCluster) -> None:
    CHECKS[what](client, cluster, DIFFERENCES[what][CLIENTS.index(client)])


# ---------------------------------------------------------------------- names
PEERS: Final[dict[str, tuple[type, ...]]] = {
    "aiokafka": (aiokafka.AIOKafkaProducer,),
    "confluent-kafka": (confluent_kafka.Producer, confluent_kafka.aio.AIOProducer),
    "kafka-python": (kafka.KafkaProducer,),
}


@pytest.mark.parametrize("client", list(PEERS))
def test_every_method_of_a_peer_in_its_table_is_one_of_its_methods(client: str) -> None:
    named = {name for row in rows(client) for name in re.findall(r"producer\.(\w+)\(", row[0])}
    assert len(named) >= 4
    assert {name for name in named if not any(hasattr(kind, name) for kind in PEERS[client])} == set()


def test_every_option_of_aiokafka_in_its_table_is_one_of_its_options() -> None:
    known = set(inspect.signature(aiokafka.AIOKafkaProducer).parameters)
    named = {
        name
        for row in rows("aiokafka")
        for name in re.findall(r"`(\w+)`|(\w+)=", row[0])
        for name in name
        if "_" in name
    }
    assert {"max_batch_size", "transactional_id", "enable_idempotence"} <= named & known
    assert {name for name in named - known if not hasattr(aiokafka.AIOKafkaProducer, name)} == set()
