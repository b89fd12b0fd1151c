"""docs/dead_letters.md: its program runs, and puts what fails, for whatever reason, into the dead-letter topic.

tests/frameworks/test_dead_letters_app.py runs the service of the page.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from aiokprod import Producer
from aiokprod.errors import AiokprodError, BufferFullError, ProducerClosedError, RecordTooLargeError, SerializationError
from aiokprod.testing import MockCluster
from aiokprod.testing.memory import MemoryProducer

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "dead_letters.md").read_text(encoding="utf-8")
PROGRAM = "".join(re.findall(r"```python\n(.*?)```", PAGE.partition("\n## In FastAPI\n")[0], re.DOTALL))


def program() -> dict[str, Any]:
    """Return the names that the page defines."""
    names: dict[str, Any] = {"__name__": "dead_letters"}
    exec(compile(PROGRAM, "docs/dead_letters.md", "exec"), names)
    return names


def facts(cluster: MockCluster) -> list[dict[str, str]]:
    """Return the headers of each dead letter, and its key and value."""
    found: list[dict[str, str]] = []
    for record in cluster.records("orders.dead"):
        texts = {name: (value or b"").decode() for name, value in record.headers}
        found.append(texts | {"key": (record.key or b"").decode(), "value": (record.value or b"").decode()})
    return found


class Shop:
    """A cluster with both topics, and the two producers of the page."""

    def __init__(self, cluster: MockCluster, producer: Producer) -> None:
        self.cluster = cluster
        self.producer = producer


def played(scenario: Any, **options: Any) -> list[dict[str, str]]:
    """Return the dead letters of a scenario, in which both producers are closed as on the page."""

    async def whole() -> list[dict[str, str]]:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("orders", partitions=1)
            cluster.create_topic("orders.dead", partitions=1, max_message_bytes=5_000_000)
            servers = cluster.bootstrap_servers
            async with Producer(servers, max_request_size=2_000_000) as letters:
                dead = program()["DeadLetters"](letters, "orders.dead")
                options.setdefault("linger_ms", 100)
                async with Producer(servers, on_delivery_error=dead, keep_failed_records=True, **options) as producer:
                    await producer.partitions_for("orders")
                    await scenario(Shop(cluster, producer))
                assert dead.without_record == 0
            return facts(cluster)

    return asyncio.run(whole())


def test_a_record_that_is_too_large_for_its_topic_becomes_a_dead_letter() -> None:
    async def scenario(shop: Shop) -> None:
        shop.cluster.alter_topic("orders", max_message_bytes=1_000)
        shop.producer.send("orders", b"small")
        shop.producer.send("orders", b"L" * 5_000, key=b"7", headers=[("trace", b"a1")])
        await shop.producer.flush()
        assert [record.value for record in shop.cluster.records("orders", 0)] == [b"small"]

    [letter] = played(scenario)
    assert letter["value"] == "L" * 5_000
    assert (letter["key"], letter["trace"]) == ("7", "a1")
    assert (letter["dead.topic"], letter["dead.partition"]) == ("orders", "0")
    assert (letter["dead.error"], letter["dead.persistence"]) == ("RecordTooLargeError", "NOT_PERSISTED")


def test_a_record_that_the_broker_names_as_invalid_becomes_a_dead_letter_with_its_words() -> None:
    async def scenario(shop: Shop) -> None:
        shop.cluster.alter_topic("orders", cleanup_policy="compact")
        shop.producer.send("orders", b"good", key=b"k")
        shop.producer.send("orders", b"poison")
        await shop.producer.flush()
        assert [record.value for record in shop.cluster.records("orders", 0)] == [b"good"]

    [letter] = played(scenario)
    assert (letter["value"], letter["dead.error"]) == ("poison", "InvalidRecordError")
    assert letter["dead.text"].startswith("INVALID_RECORD")


@pytest.mark.parametrize(
    ("code", "answer", "verdict"),
    [(19, "NOT_ENOUGH_REPLICAS", "NOT_PERSISTED"), (7, "REQUEST_TIMED_OUT", "POSSIBLY_PERSISTED")],
)
def test_a_record_whose_time_is_over_becomes_a_dead_letter_with_the_verdict(
    code: int, answer: str, verdict: str
) -> None:
    async def scenario(shop: Shop) -> None:
        shop.cluster.fail_next("Produce", code, topic="orders", times=None)
        shop.producer.send("orders", b"late")
        await shop.producer.flush()

    [letter] = played(scenario, linger_ms=0, request_timeout_ms=200, delivery_timeout_ms=400)
    assert (letter["value"], letter["dead.error"]) == ("late", "DeliveryTimeoutError")
    assert letter["dead.persistence"] == verdict
    assert answer in letter["dead.text"]


def test_what_fails_while_the_producer_closes_becomes_a_dead_letter() -> None:
    async def scenario(shop: Shop) -> None:
        shop.cluster.fail_next("Produce", 19, topic="orders", times=None)
        shop.producer.send("orders", b"too late")
        assert (await shop.producer.close(timeout=0)).count == 1

    [letter] = played(scenario)
    assert (letter["value"], letter["dead.error"]) == ("too late", "UndeliveredAtCloseError")


def test_the_pages_own_run_delivers_its_order_and_writes_no_letter() -> None:
    async def whole() -> None:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("orders", partitions=1)
            cluster.create_topic("orders.dead", partitions=1)
            await program()["run"](cluster.bootstrap_servers)
            assert [record.value for record in cluster.records("orders", 0)] == [b"an order"]
            assert facts(cluster) == []

    asyncio.run(whole())


def test_the_errors_that_the_page_names_are_raised_by_send_and_not_told_elsewhere() -> None:
    async def whole() -> None:
        heard: list[Any] = []
        small: dict[str, Any] = {"max_request_size": 1_000, "batch_size": 1_000, "buffer_memory": 100_000}
        small["max_waiting_bytes"] = 100_000
        async with MockCluster(brokers=1) as cluster:
            async with Producer(cluster.bootstrap_servers, on_delivery_error=heard.append, **small) as producer:
                refused: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
                    "RecordTooLargeError": (("orders", b"L" * 2_000), {}),
                    "RecordTypeError": (("orders", "text"), {}),
                    "InvalidTopicError": (("no topic!", b"v"), {}),
                    "InvalidPartitionError": (("orders", b"v"), {"partition": -1}),
                    "InvalidTimestampError": (("orders", b"v"), {"timestamp_ms": -5}),
                }
                for name, (arguments, options) in refused.items():
                    assert f"`{name}`" in PAGE.partition("\n## ")[0]
                    with pytest.raises(AiokprodError) as caught:
                        producer.send(*arguments, **options)
                    assert type(caught.value).__name__ == name and caught.value.record is None
                with pytest.raises(BufferFullError):
                    for _ in range(100_000):
                        producer.send("orders", b"v" * 900)
                assert "`BufferFullError`" in PAGE.partition("\n## ")[0]
            with pytest.raises(ProducerClosedError):
                producer.send("orders", b"v")
        await asyncio.sleep(0)
        assert heard == []

    asyncio.run(whole())


def test_with_an_async_serializer_a_record_that_is_too_large_fails_later() -> None:
    async def as_bytes(data: bytes) -> bytes:
        await asyncio.sleep(0)
        return data

    async def scenario(shop: Shop) -> None:
        shop.producer.send("orders", b"L" * 2_000)
        await shop.producer.flush()

    [letter] = played(scenario, value_serializer=as_bytes, max_request_size=1_000, batch_size=1_000)
    assert (letter["value"], letter["dead.error"]) == ("L" * 2_000, "RecordTooLargeError")


def broken(data: bytes) -> bytes:
    raise ValueError("never")


def text_of(data: bytes) -> Any:
    return data.decode()


async def broken_later(data: bytes) -> bytes:
    raise ValueError("never")


async def text_later(data: bytes) -> Any:
    return data.decode()


async def never(data: bytes) -> bytes:
    return await asyncio.get_running_loop().create_future()


async def failures_of(serializer: Any) -> tuple[AiokprodError | None, list[AiokprodError]]:
    """Return what `send` raises, and what `on_delivery_error` is told."""
    heard = list[AiokprodError]()
    async with MockCluster(brokers=1) as cluster:
        options: Any = {"on_delivery_error": heard.append, "keep_failed_records": True, "max_block_ms": 100}
        async with Producer(cluster.bootstrap_servers, value_serializer=serializer, **options) as producer:
            try:
                producer.send("orders", b"v")
            except AiokprodError as error:
                return error, heard
            await producer.flush()
    return None, heard


@pytest.mark.parametrize("serializer", [broken, text_of])
def test_send_refuses_a_record_that_its_serializer_does_not_serialize(serializer: Any) -> None:
    assert "`SerializationError`" in PAGE.partition("\n## ")[0]
    raised, heard = asyncio.run(failures_of(serializer))
    assert (type(raised), heard) == (SerializationError, [])


@pytest.mark.parametrize("serializer", [broken_later, text_later, never])
def test_a_record_that_its_async_serializer_does_not_serialize_fails_later_and_is_not_kept(serializer: Any) -> None:
    assert "`async` serializer raised, returned something else than bytes or None, or had not returned yet" in PAGE
    raised, [told] = asyncio.run(failures_of(serializer))
    assert (raised, type(told), told.record) == (None, SerializationError, None)


def test_an_awaited_record_becomes_a_letter_where_its_error_is_caught() -> None:
    async def whole() -> None:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("orders", partitions=1, max_message_bytes=100)
            cluster.create_topic("orders.dead", partitions=1)
            async with Producer(cluster.bootstrap_servers) as producer:
                await program()["send"](producer, producer, b"L" * 200)
            [letter] = facts(cluster)
            assert letter["dead.error"] == "RecordTooLargeError"

    asyncio.run(whole())


def test_a_memory_producer_gives_the_record_too() -> None:
    async def whole() -> None:
        heard: list[Any] = []
        async with MemoryProducer(on_delivery_error=heard.append, keep_failed_records=True) as producer:
            producer.fail_next(RecordTooLargeError("scripted"))
            producer.send("orders", b"v", key=b"k", headers=[("h", b"1")])
            await producer.flush()
        [error] = heard
        assert (error.record.topic, error.record.value, error.record.key) == ("orders", b"v", b"k")
        assert error.record.headers == (("h", b"1"),)

    asyncio.run(whole())
