"""`producer.send` is the method of the class in everything but its cost, in either form."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
from typing import Any
from unittest import mock

import pytest
from rig import run, started

from aiokprod import Delivery, Producer
from aiokprod.errors import ProducerClosedError, ProducerNotStartedError
from aiokprod.testing import MemoryProducer, MockCluster


def test_it_tells_what_the_method_tells() -> None:
    producer = Producer("localhost:9092")
    assert inspect.isfunction(Producer.send)
    of_class, of_instance = inspect.signature(Producer.send), inspect.signature(producer.send)
    assert list(of_class.parameters.values())[1:] == list(of_instance.parameters.values())
    assert [each.kind for each in of_instance.parameters.values()][2:4] == [
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    ]
    assert of_class.return_annotation == of_instance.return_annotation == "Delivery"
    assert producer.send.__name__ == "send"
    assert producer.send.__doc__ == Producer.send.__doc__
    assert inspect.getdoc(producer.send) == inspect.getdoc(Producer.send)
    assert producer.send.__self__ is producer  # type: ignore[attr-defined]
    assert "Producer.send" in repr(producer.send)
    assert callable(producer.send) and not hasattr(producer.send, "no_such_name")


@pytest.mark.parametrize(
    ("arguments", "options"),
    [(("t", b"v", b"k", 0), {}), ((), {}), (("t",), {"partitions": 0}), (("t", b"v"), {"value": b"v"})],
)
def test_arguments_that_do_not_fit_are_type_errors(arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            with pytest.raises(TypeError):
                producer.send(*arguments, **options)

    run(scenario())


def test_one_that_was_taken_early_works_as_long_as_its_producer_does() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers)
            send = producer.send
            with pytest.raises(ProducerNotStartedError):
                send("t", b"too early")
            for life in range(2):
                async with producer:
                    assert (await send("t", b"v", headers=[("h", b"1")])).offset == life
                with pytest.raises(ProducerClosedError):
                    send("t", b"too late")

    run(scenario())


def test_a_subclass_may_override_it() -> None:
    class Shouting(Producer):
        def send(self, topic: str, value: Any = None, key: Any = None, **options: Any) -> Delivery:
            return super().send(topic, value.upper(), key, **options)

    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            async with Shouting(cluster.bootstrap_servers) as producer:
                await producer.send("t", b"quiet", b"k", partition=0)
            assert [(record.value, record.key) for record in cluster.records("t", 0)] == [(b"QUIET", b"k")]

    run(scenario())


def test_it_can_be_patched_in_the_class_and_in_an_instance() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            with mock.patch.object(Producer, "send", autospec=True) as of_class:
                await producer.send("t", b"1", partition=0)
            of_class.assert_called_once_with(producer, "t", b"1", partition=0)
            with mock.patch.object(producer, "send") as of_instance:
                await producer.send("t", b"2")
            of_instance.assert_called_once_with("t", b"2")
            assert (await producer.send("t", b"3")).offset == 0

    run(scenario())


def test_a_wrapper_around_the_method_of_the_class_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instrumentation replaces the method so."""
    original, seen = Producer.send, []

    def wrapped(self: Producer, *arguments: Any, **options: Any) -> Delivery:
        seen.append(arguments)
        return original(self, *arguments, **options)

    async def scenario() -> None:
        async with started("t") as (_, producer):
            monkeypatch.setattr(Producer, "send", wrapped)
            await asyncio.gather(*(producer.send("t", b"v") for _ in range(3)))
            assert seen == [("t", b"v")] * 3

    run(scenario())


@pytest.mark.parametrize("make", [Producer, MemoryProducer])
@pytest.mark.parametrize("take", [lambda producer: producer, lambda producer: producer.send, lambda p: [{"kafka": p}]])
@pytest.mark.parametrize("copy_it", [pickle.dumps, copy.deepcopy])
def test_a_producer_cannot_be_copied_and_says_what_to_do_instead(make: Any, take: Any, copy_it: Any) -> None:
    producer = make("localhost:9092")
    with pytest.raises(TypeError, match=f"a {make.__name__} cannot be copied or pickled: .* ProducerConfig"):
        copy_it(take(producer))
    with pytest.raises(TypeError, match="ProducerConfig"):
        copy.copy(producer)
    assert pickle.loads(pickle.dumps(producer.config)) == copy.deepcopy(producer.config) == producer.config
    assert copy.copy(producer.send).__self__ is producer  # a method is no copy of its object
