"""Methods of other clients are answered with ours, and cost the own ones nothing."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
import sys
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol
from unittest.mock import create_autospec

import pytest

from aiokprod import Producer, blocking
from aiokprod.errors import ProducerNotStartedError
from aiokprod.foreign_calls import NAMES, OF_DELIVERIES
from aiokprod.testing import MemoryProducer


@pytest.mark.parametrize(
    ("name", "client", "ours"),
    [
        ("stop", "aiokafka", "await producer.close()"),
        ("send_and_wait", "aiokafka", "await producer.send(...)"),
        ("client", "aiokafka", "producer.health()"),
        ("produce", "confluent-kafka", "producer.send(...)"),
        ("poll", "confluent-kafka", "nothing is polled"),
        ("list_topics", "confluent-kafka", "partitions_for"),
        ("init_transactions", "confluent-kafka and kafka-python", "await producer.start()"),
        ("bootstrap_connected", "kafka-python", "producer.health()"),
    ],
)
def test_a_name_of_another_client_is_answered_with_ours(name: str, client: str, ours: str) -> None:
    for producer in (Producer("localhost:9092"), MemoryProducer()):
        with pytest.raises(AttributeError) as raised:
            getattr(producer, name)
        assert f"no {name!r}" in str(raised.value)
        assert client in str(raised.value) and ours in str(raised.value)
        assert not hasattr(producer, name)


def test_a_delivery_says_that_it_has_to_be_awaited() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            delivery: Any = producer.send("t", b"v")
            with pytest.raises(AttributeError, match=r"Delivery has no 'get', .* kafka-python: await the Delivery"):
                delivery.get(timeout=10)
            with pytest.raises(
                AttributeError, match=r"no 'offset', which is a name of RecordMetadata: .*\(await delivery\)"
            ):
                print(delivery.offset)
            assert not OF_DELIVERIES.keys() & set(dir(delivery))
            assert (await delivery).offset == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["add_callback", "add_errback", "add_both", "succeeded", "failed", "is_done"])
def test_a_delivery_answers_to_the_names_of_a_future_of_kafka_python(name: str) -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            delivery: Any = producer.send("t", b"v")
            with pytest.raises(
                AttributeError, match=rf"Delivery has no '{name}', .* kafka-python: .*(callback|done\(\))"
            ):
                getattr(delivery, name)
            assert not hasattr(delivery, name) and name not in dir(delivery)
            await delivery

    asyncio.run(scenario())


def test_a_with_of_the_other_kind_is_answered_with_what_to_write() -> None:
    for producer in (Producer("localhost:9092"), MemoryProducer()):
        other: Any = producer
        with pytest.raises(TypeError, match=r"`async with Producer\(\.\.\.\)`.*aiokprod\.blocking\.Producer"), other:
            pass
        assert not hasattr(producer, "__enter__") and "__enter__" not in dir(producer)
        assert not isinstance(producer, AbstractContextManager) and isinstance(producer, AbstractAsyncContextManager)

    async def scenario() -> None:
        other: Any = blocking.Producer("localhost:9092")
        with pytest.raises(TypeError, match=r"`with Producer\(\.\.\.\)`.*aiokprod\.Producer"):
            async with other:
                pass
        assert not hasattr(other, "__aenter__")

    asyncio.run(scenario())


def test_the_error_of_a_producer_that_was_not_started_says_how_to_start_it() -> None:
    async def scenario() -> None:
        producer = Producer("localhost:9092")
        with pytest.raises(ProducerNotStartedError) as raised:
            await producer.send("t", b"v")
        assert "await producer.start()" in str(raised.value) and "async with Producer(...)" in str(raised.value)

    asyncio.run(scenario())


@pytest.mark.parametrize(("arguments", "options"), [((10,), {}), ((), {"timeout": 10}), ((None,), {})])
def test_a_flush_with_a_timeout_is_answered_with_ours(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    flush: Any = Producer("localhost:9092").flush
    is_marked = inspect.iscoroutinefunction if sys.version_info >= (3, 12) else asyncio.iscoroutinefunction
    assert is_marked(flush)
    with pytest.raises(
        TypeError, match=r"flush\(\) takes no arguments: .*asyncio\.timeout\(10\): await producer\.flush"
    ):
        flush(*arguments, **options)


@pytest.mark.parametrize("kind", [Producer, MemoryProducer])
def test_help_shows_what_a_user_needs_and_nothing_else(kind: type) -> None:
    page = pydoc.plain(pydoc.render_doc(kind))
    methods = page.partition("Methods defined here")[2]
    listed = set(re.findall(r"^ \|  (?:async )?(\w+)(?:\(| =|$)", methods, re.MULTILINE))
    offered = {name for name in dir(Producer) if not name.startswith("_")}
    assert {"send", "send_many", "close", "health"} <= offered
    assert {name for name in listed if name.startswith("_")} == {"__aenter__", "__aexit__", "__init__", "__repr__"}
    assert offered <= listed
    assert not listed & NAMES.keys()
    assert "foreign_calls" not in methods


def test_the_class_can_be_asked_for_everything_that_dir_lists() -> None:
    assert not NAMES.keys() & set(dir(Producer))
    assert {"send", "close", "__aenter__", "__doc__"} <= set(dir(Producer))
    assert all(hasattr(Producer, name) for name in dir(Producer))


def test_a_name_asked_of_the_class_tells_its_replacement() -> None:
    every: dict[str, Any] = {name: getattr(Producer, name) for name in NAMES}
    assert not any(callable(value) or inspect.isroutine(value) for value in every.values())
    assert "await producer.close()" in repr(every["stop"])
    with pytest.raises(AttributeError, match="'stop'"):
        create_autospec(Producer, instance=True).stop()


def test_a_producer_is_mixed_with_abstract_classes_and_protocols() -> None:
    class Bus(Protocol):
        def publish(self) -> str: ...

    class Named(ABC):
        @abstractmethod
        def name(self) -> str: ...

    class Mine(Producer, Bus, Named):
        def publish(self) -> str:
            return "published"

        def name(self) -> str:
            return "mine"

    class Unnamed(Named, Producer):
        pass

    mine = Mine("localhost:9092")
    assert (mine.publish(), mine.name(), isinstance(mine, Producer)) == ("published", "mine", True)
    assert {"publish", "name", "send"} <= set(dir(Mine))
    assert not isinstance(object(), Producer)
    with pytest.raises(TypeError, match="abstract"):
        Unnamed("localhost:9092")  # type: ignore[abstract]


def test_what_is_advised_is_there() -> None:
    for advice in NAMES.values():
        for called in re.findall(r"producer\.(\w+)\(", advice.ours):
            assert callable(getattr(Producer, called)), called


def test_any_other_name_is_an_attribute_error_of_python() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'sned'"):
        Producer("localhost:9092").sned  # type: ignore[attr-defined]


def test_attributes_are_looked_up_as_of_a_class_without_getattr() -> None:
    """With it each `producer.send` would pass a slower way, whatever the name is."""
    assert not any(
        "__getattr__" in kind.__dict__ or "__getattribute__" in kind.__dict__ for kind in Producer.__mro__[:-1]
    )


def test_nothing_foreign_is_shown_by_dir_of_a_producer_or_by_inspect() -> None:
    producer = Producer("localhost:9092")
    assert not NAMES.keys() & set(dir(producer))
    assert {"send", "close", "config"} <= set(dir(producer))
    assert not NAMES.keys() & {name for name, _ in inspect.getmembers(producer)}


def test_an_attribute_of_the_user_wins() -> None:
    class Mine(Producer):
        def poll(self) -> int:
            return 7

    producer: Any = Producer("localhost:9092")
    producer.stop = "mine"
    assert (producer.stop, Mine("localhost:9092").poll()) == ("mine", 7)


def test_a_mock_made_of_the_class_has_our_methods() -> None:
    mock = create_autospec(Producer, instance=True)
    assert callable(mock.send) and callable(mock.metrics)
