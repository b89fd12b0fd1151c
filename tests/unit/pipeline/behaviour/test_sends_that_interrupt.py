"""Sends while code of ours is at work (by a finalizer, a log handler, a hook) are put off to the next turn of the loop."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest
from faults_of_the_process import Books
from rig import run_in_virtual_time, started, turns
from source_points import MOST_POINTS, Collected, Point, collecting

from aiokprod import Delivery, Producer
from aiokprod.errors import AiokprodError, BufferFullError, RecordRecalledError, UsageError
from aiokprod.explanation import Place
from aiokprod.pipeline.effects import Effects

INNER: dict[str, dict[str, Any]] = {
    "a value": {},
    "a key": {"key": b"k"},
    "headers": {"headers": [("h", b"1")]},
    "a time": {"timestamp_ms": 5},
    "a timeout": {"timeout": 20.0},
}


@pytest.fixture(autouse=True)
def a_clean_collector() -> Iterator[None]:
    gc.collect()
    yield
    gc.collect()


def effects_of(producer: Producer) -> Effects:
    assert producer._pipeline is not None
    return producer._pipeline.context.effects


# ---------------------------------------------------------------------- the garbage collector
@pytest.mark.slow_after(1)
@pytest.mark.parametrize("inner", INNER)
def test_a_finalizer_sends_wherever_the_collector_runs(inner: str) -> None:
    """A log handler that sends is called so, when asyncio tells of a task whose failure was not looked at."""

    async def scenario() -> None:
        async with started("t", linger_ms=5, batch_size=300) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            came = 0

            def sends() -> None:
                nonlocal came
                came += 1
                books.send(**INNER[inner])

            for outer in INNER.values():
                for every in range(1, 8):
                    with collecting(every):
                        for _ in range(6):
                            Collected(sends)
                            books.send(**outer)
                        await asyncio.sleep(0.02)
                    gc.collect()
                    await books.check(f"{inner} in {outer} at each {every}")
            assert came == 6 * 7 * len(INNER), "each was collected"

    run_in_virtual_time(scenario())


@pytest.mark.pure("points are lines of the sources")
@pytest.mark.parametrize("inside", ["Parking.dispatcher", "TopicDispatcher._open"])
def test_a_finalizer_sends_to_the_same_topic_while_it_is_made(inside: str) -> None:
    numbers = count()

    async def scenario() -> None:
        async with started(linger_ms=5) as (cluster, producer):
            for number in range(MOST_POINTS):
                topic, sent, first = f"new-{number}", list[Delivery](), next(numbers) + 1
                cluster.create_topic(topic)
                await producer.partitions_for(topic)
                inner = Point(number, partial(sends, producer, topic, sent), None, inside)
                inner.arm()
                try:
                    sends(producer, topic, sent)
                finally:
                    inner.disarm()
                sends(producer, topic, sent)
                async with asyncio.timeout(100):
                    await producer.flush()
                assert [delivery.exception() for delivery in sent] == [None] * (2 + inner.has_struck), inner
                values = [record.value for record in cluster.records(topic)]
                wanted = [b"%d" % each for each in range(first, first + len(sent))]
                assert sorted(values) == sorted(wanted), inner  # two queues of a partition would have the same numbers
                if not inner.has_struck:
                    break
            assert number > 5

    def sends(producer: Producer, topic: str, sent: list[Delivery]) -> None:
        sent.append(producer.send(topic, b"%d" % next(numbers), partition=0))

    run_in_virtual_time(scenario())


def test_a_finalizer_sends_while_send_many_takes_its_records() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=5, batch_size=300) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            for every in range(1, 12):
                for is_list in (True, False):
                    values = [books.value() for _ in range(5)]
                    books.refused.update(values)
                    Collected(books.send)
                    with collecting(every):
                        report = await producer.send_many("t", values if is_list else iter(values))
                    assert report.delivered == 5
                    gc.collect()
                    await books.check(every)

    run_in_virtual_time(scenario())


def test_a_log_handler_that_sends_is_called_by_the_collector() -> None:
    class ToKafka(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            books.send(key=b"log")

    async def fails() -> None:
        raise ValueError("nothing looks at this task")

    async def scenario() -> None:
        nonlocal books
        async with started("t", linger_ms=5, batch_size=300) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            asyncio.get_running_loop().set_exception_handler(lambda _, context: logger.error("%s", context["message"]))
            for _ in range(20):
                task = asyncio.create_task(fails())
                await turns(2)
                holder: list[Any] = [task]
                holder.append(holder)
                del task, holder
                before = books.taken
                with collecting(3):
                    for _ in range(5):
                        books.send()
                gc.collect()
                assert books.taken == before + 6
                await books.check()
            asyncio.get_running_loop().set_exception_handler(None)

    books: Books
    logger = logging.getLogger("of the test")
    logger.propagate = False
    handler = ToKafka()
    logger.addHandler(handler)
    try:
        run_in_virtual_time(scenario())
    finally:
        logger.removeHandler(handler)


# ---------------------------------------------------------------------- put off
def test_what_is_sent_at_work_is_taken_on_the_next_turn_before_what_is_sent_behind_it() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=5) as (cluster, producer):
            await producer.partitions_for("t")
            first = producer.send("t", b"0")
            effects = effects_of(producer)
            effects.begin()
            put_off = [producer.send("t", b"1"), producer.try_send("t", b"2", key=b"k", headers={"h": b"1"})]
            effects.end()
            behind = [producer.send("t", b"3"), producer.try_send("t", b"4")]
            assert first.explain().place is Place.OPEN_BATCH
            assert {each.explain().place for each in [*put_off, *behind]} == {Place.PARKED}
            await producer.flush()
            assert [(await each).offset for each in [first, *put_off, *behind]] == [0, 1, 2, 3, 4]
            assert [record.value for record in cluster.records("t")] == [b"0", b"1", b"2", b"3", b"4"]

    run_in_virtual_time(scenario())


def test_a_flush_waits_for_what_was_put_off_before_it() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=60_000) as (_, producer):
            await producer.partitions_for("t")
            effects = effects_of(producer)
            effects.begin()
            delivery = producer.send("t", b"v")
            effects.end()
            await producer.flush()
            assert delivery.done() and delivery.result().offset == 0

    run_in_virtual_time(scenario())


def test_what_is_put_off_is_bounded_by_the_buffer_and_waits_for_room_in_its_turn() -> None:
    async def scenario() -> None:
        room = {"buffer_memory": 500, "max_waiting_bytes": 300, "max_request_size": 400, "batch_size": 300}
        async with started("t", linger_ms=5, **room) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            effects = effects_of(producer)
            for _ in range(2):
                books.send()
            effects.begin()
            books.send()  # the last room
            with pytest.raises(BufferFullError):
                producer.try_send("t", b"no room")
            for _ in range(2):
                books.send()  # the waiting line
            with pytest.raises(BufferFullError):
                producer.send("t", b"no place in the line")
            effects.end()
            await books.check()

    run_in_virtual_time(scenario())


def test_what_was_put_off_can_be_recalled_and_fails_when_the_producer_closes() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=5) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            effects = effects_of(producer)
            effects.begin()
            recalled, timed = producer.send("t", b"recalled"), books.send(timeout=20.0)
            effects.end()
            assert recalled.recall() and isinstance(recalled.exception(), RecordRecalledError)
            await books.check()
            assert timed.done()
            effects.begin()
            delivery = producer.send("t", b"v")
            effects.end()
            assert producer._pipeline is not None
            producer._pipeline.end()
            assert isinstance(delivery.exception(), AiokprodError)

    run_in_virtual_time(scenario())


def test_a_mark_that_an_interrupt_left_behind_is_gone_on_the_next_turn() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=5) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            effects_of(producer).begin()  # its `end` never comes
            books.send()
            await turns(2)
            assert effects_of(producer).depth == 0
            assert books.send().explain().place is Place.OPEN_BATCH
            await books.check()

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- refused
def test_a_record_whose_serializer_is_awaited_cannot_be_put_off_and_the_error_says_what_to_do() -> None:
    async def serialized(topic: str, headers: Any, data: Any) -> Any:
        await asyncio.sleep(0.001)
        return data

    async def scenario() -> None:
        async with started("t", value_serializer=serialized) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            effects = effects_of(producer)
            effects.begin()
            with pytest.raises(UsageError, match="log handlers") as raised:
                producer.send("t", b"v")
            effects.end()
            assert raised.value.advice is not None
            assert "QueueHandler" in raised.value.advice and "send_threadsafe()" in raised.value.advice
            books.send()
            await books.check()

    run_in_virtual_time(scenario())


def test_a_partitioner_that_sends_where_waiting_records_go_on_is_put_off() -> None:
    async def scenario() -> None:
        sent: list[Delivery] = []

        def choose(key: bytes | None, partitions: Any, available: Any) -> int:
            if key == b"outer":
                sent.append(producer.send("t", b"inner"))
            return 0

        async with started("t", partitioner=choose, linger_ms=5) as (cluster, producer):
            outer = producer.send("t", b"outer", key=b"outer")  # waits for its topic
            await outer
            assert (await sent[0]).offset == 1
            assert [record.value for record in cluster.records("t")] == [b"outer", b"inner"]

    run_in_virtual_time(scenario())
