"""A record is taken with all its books, or the producer is as it was before, whatever comes between two lines of a call.

Faults at each point of the sources, at the end of the stack, and what the garbage collector runs in the middle of a call.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest
from column_rig import column
from faults_of_the_process import Books
from rig import run_in_virtual_time, started
from source_points import OneFault, each_fault, with_frames_left

from aiokprod import Delivery, ProducerInterceptor, Record, RecordMetadata
from aiokprod.errors import AiokprodError, RecordRecalledError, UnknownTopicError
from aiokprod.pipeline.delivery.unasked_failures import GRACE_S

# An exception between the two lines of an alarm is set right by the watch, half a second later.
pytestmark = pytest.mark.usefixtures("heals", "defects")
PURE = pytest.mark.pure("the faults come between lines of the sources")
TINY = {"buffer_memory": 500, "max_request_size": 400, "batch_size": 300, "linger_ms": 5}
SMALL = {"batch_size": 250, "linger_ms": 5}  # a large key ends a batch


class Later:
    """The result of a serializer, which has to be awaited. No coroutine, which would warn where a fault drops it."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0.001).__await__()
        return self.data


def serialized_later(topic: str, headers: Any, data: Any) -> Any:
    return Later(data)


# The options of the producer, how many records are sent before, and those of the `send` that meets a fault.
SENDS: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "first of a batch": ({"linger_ms": 5}, 0, {}),
    "another of a batch": ({"linger_ms": 5}, 3, {}),
    "without linger": ({"linger_ms": 0}, 0, {}),
    "a key": ({"linger_ms": 5}, 3, {"key": b"k"}),
    "headers": ({"linger_ms": 5}, 3, {"headers": [("h", b"1")]}),
    "a time": ({"linger_ms": 5}, 3, {"timestamp_ms": 77}),
    "a timeout": ({"linger_ms": 5}, 3, {"timeout": 20.0}),
    "a full batch": (SMALL, 2, {"key": b"k" * 60}),
    "full, with a codec": (SMALL | {"compression_type": "gzip"}, 2, {"key": b"k" * 60}),
    "a partitioner": ({"partitioner": lambda key, all_of_them, there: 0}, 1, {}),
    "no room": (TINY, 3, {}),
    "no room, with a timeout": (TINY, 3, {"timeout": 20.0}),
    "a serializer that is awaited": ({"value_serializer": serialized_later}, 1, {}),
}


async def meet(books: Books, fault: OneFault, call: Callable[[bytes], object]) -> None:
    """Let the call meet the fault, send two more records, and check everything."""
    value, delivery = books.value(), None
    with fault:
        delivery = call(value)
    if isinstance(delivery, Delivery) and not fault.came_out:
        books.sent[value] = delivery
    else:
        books.refused.add(value)
    books.send()
    books.send(key=b"k")
    await books.check(fault)


def meets_each_fault(case: str, kind: type[BaseException]) -> Coroutine[Any, Any, None]:
    options, before, more = SENDS[case]

    async def scenario() -> None:
        async with started("t", **options) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            for fault in each_fault(kind):
                for _ in range(before):
                    books.send()
                await meet(books, fault, lambda value: producer.send("t", value, **more))

    return scenario()


# ---------------------------------------------------------------------- an exception at each point
@pytest.mark.slow_after(3)
@PURE
@pytest.mark.parametrize("case", SENDS)
def test_an_interrupt_at_any_point_of_a_send_leaves_it_taken_or_as_it_was(case: str) -> None:
    run_in_virtual_time(meets_each_fault(case, KeyboardInterrupt))


@pytest.mark.slow_after(3)
@PURE
@pytest.mark.parametrize("kind", [RecursionError, MemoryError])
@pytest.mark.parametrize("case", ["first of a batch", "another of a batch", "no room"])
def test_so_does_the_end_of_the_stack_or_of_the_memory(case: str, kind: type[BaseException]) -> None:
    run_in_virtual_time(meets_each_fault(case, kind))


@PURE
@pytest.mark.parametrize("is_full", [False, True])
def test_so_does_a_try_send(is_full: bool) -> None:
    async def scenario() -> None:
        async with started("t", **(TINY if is_full else {"linger_ms": 5})) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            for fault in each_fault(KeyboardInterrupt):
                for _ in range(3 if is_full else 1):
                    books.send()

                def tried(value: bytes) -> object:
                    try:
                        return producer.try_send("t", value)
                    except AiokprodError as full:
                        assert is_full and "buffer_memory" in str(full)
                        return None

                await meet(books, fault, tried)

    run_in_virtual_time(scenario())


@PURE
def test_a_topic_that_is_sent_to_for_the_first_time_works_afterwards() -> None:
    """Each record failed after max_block_ms: the dispatcher of the topic was there, and knew of no partitions."""

    async def scenario() -> None:
        async with started("t", linger_ms=5) as (cluster, producer):
            number = 0
            for fault in each_fault(KeyboardInterrupt):
                topic, number = f"new-{number}", number + 1
                cluster.create_topic(topic, partitions=1)
                if number % 2:
                    await producer.partitions_for(topic)  # known, and without a dispatcher
                books = Books(cluster, producer, topic)
                await meet(books, fault, lambda value: producer.send(topic, value))  # noqa: B023 - called at once

    run_in_virtual_time(scenario())


@pytest.mark.slow
@PURE
@pytest.mark.parametrize("more", [{}, {"timeout": 5.0}, {"partition": 9}])
def test_a_record_that_waits_in_vain_does_not_keep_a_flush_waiting(more: dict[str, Any]) -> None:
    """A record for a topic that does not exist was counted, and `flush` of all callers hung for ever."""

    async def scenario() -> None:
        async with started("t", linger_ms=5, max_block_ms=3_000) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            topic = "t" if "partition" in more else "nope"
            for fault in each_fault(KeyboardInterrupt):
                delivery = None
                with fault:
                    delivery = producer.send(topic, b"-", **more)
                later = producer.send(topic, b"-", **more)
                books.send()
                await books.check(fault)
                for each in (delivery, later):
                    assert each is None or isinstance(each.exception(), AiokprodError), fault

    run_in_virtual_time(scenario())


@PURE
def test_a_done_callback_is_called_once_and_a_send_works_after_an_interrupt_at_any_point_of_adding_one() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=1_000) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            for listeners in range(2):
                for fault in each_fault(KeyboardInterrupt):
                    called: list[int] = []
                    delivery = books.send()
                    for _ in range(listeners):
                        delivery.add_done_callback(lambda _, calls=called: calls.append(0))
                    with fault:
                        delivery.add_done_callback(lambda _, calls=called: calls.append(1))
                    delivery.add_done_callback(lambda _, calls=called: calls.append(2))
                    await books.check(fault)
                    await asyncio.sleep(0)
                    assert called.count(0) == listeners and called.count(2) == 1, fault
                    assert called.count(1) == 1 or (fault.came_out and called.count(1) == 0), fault

    run_in_virtual_time(scenario())


@PURE
def test_a_failure_is_reported_after_an_interrupt_at_any_point_of_an_await() -> None:
    """The Delivery of a wait that never began counted as awaited: its failure was told to nothing."""
    told: list[AiokprodError] = []

    async def scenario() -> None:
        async with started("t", linger_ms=1_000, delivery_timeout_ms=5_000, on_delivery_error=told.append) as (
            cluster,
            producer,
        ):
            await producer.partitions_for("t")
            for node in range(1, 4):
                cluster.freeze_broker(node)
            for fault in each_fault(KeyboardInterrupt):
                told.clear()
                delivery = producer.send("t", b"v")
                first_step = delivery.__await__()
                with fault:
                    first_step.send(None)
                first_step.close()  # the task ends
                await asyncio.sleep(10 + GRACE_S)
                assert delivery.done() and len(told) == 1, fault
            for node in range(1, 4):
                cluster.thaw_broker(node)

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- many records
@PURE
@pytest.mark.parametrize("is_list", [True, False])
def test_send_many_takes_its_records_with_all_their_books_or_not_at_all(is_list: bool) -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=5, batch_size=300) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            for fault in each_fault(KeyboardInterrupt, "SendPath.take_list" if is_list else "SendPath.take"):
                books.send()
                values = [books.value() for _ in range(3)]
                books.refused.update(values)
                with fault:
                    await producer.send_many("t", values if is_list else iter(values))
                books.send()
                await books.check(fault)

    run_in_virtual_time(scenario())


@pytest.mark.slow
@PURE
def test_send_columns_takes_a_batch_with_all_its_books_or_not_at_all() -> None:
    async def scenario() -> None:
        async with started("t", partitions=2, linger_ms=5) as (cluster, producer):
            await producer.partitions_for("t")
            books = Books(cluster, producer)
            for fault in each_fault(KeyboardInterrupt, "ColumnsSend._append"):
                books.send()
                values = [books.value() for _ in range(4)]
                books.refused.update(values)
                with fault:
                    await producer.send_columns("t", column(values), partitions=array("i", [0, 1, 0, 1]))
                books.send()
                await books.check(fault)

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- the end of the stack
FRAMES = range(1, 45)


@pytest.mark.parametrize("case", SENDS)
def test_a_send_so_deep_in_the_stack_that_no_call_is_left_is_taken_or_leaves_all_as_it_was(case: str) -> None:
    """There the handlers of the exception fail, too: bytes of buffer_memory were gone, and other records refused."""
    options, before, more = SENDS[case]

    async def scenario() -> None:
        refused = 0
        for frames in FRAMES:
            async with started("t", **options) as (cluster, producer):
                await producer.partitions_for("t")
                books = Books(cluster, producer)
                for _ in range(before):
                    books.send()
                value, taken = books.value(), list[Delivery]()
                try:
                    with_frames_left(frames, lambda: taken.append(producer.send("t", value, **more)))  # noqa: B023
                except RecursionError:
                    refused += 1
                    books.refused.add(value)
                if taken:
                    books.sent[value] = taken[0]
                books.send()
                await books.check(f"{frames} frames")
        assert 0 < refused < len(FRAMES)

    run_in_virtual_time(scenario())


def test_a_send_to_an_unknown_topic_so_deep_in_the_stack_keeps_no_flush_waiting() -> None:
    async def scenario() -> None:
        for frames in FRAMES:
            async with started("t", linger_ms=5, max_block_ms=3_000) as (cluster, producer):
                await producer.partitions_for("t")
                books = Books(cluster, producer)
                try:
                    with_frames_left(frames, lambda: producer.send("nope", b"-"))
                except RecursionError:
                    pass
                later = producer.send("nope", b"-")
                books.send()
                await books.check(f"{frames} frames")
                assert isinstance(later.exception(), UnknownTopicError)

    run_in_virtual_time(scenario())


def test_what_a_recall_leaves_deep_in_the_stack_is_a_record_that_was_taken_back_or_is_sent() -> None:
    async def scenario() -> None:
        for frames in FRAMES:
            async with started("t", linger_ms=5) as (cluster, producer):
                await producer.partitions_for("t")
                books = Books(cluster, producer)
                books.send()
                delivery = producer.send("t", b"taken back")
                try:
                    with_frames_left(frames, delivery.recall)
                except RecursionError:
                    continue  # the producer may have failed, and says so
                assert isinstance(delivery.exception(), RecordRecalledError)
                await books.check(f"{frames} frames")

    run_in_virtual_time(scenario())


def test_ctrl_c_in_what_tells_the_interceptors_of_a_recall_leaves_no_bytes_and_no_flush_behind() -> None:
    class Listens(ProducerInterceptor):
        def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            pass

    async def scenario() -> None:
        async with started("t", linger_ms=1_000, interceptors=[Listens()]) as (cluster, producer):
            await producer.partitions_for("t")
            chain = producer._checks.interceptors
            delivery = producer.send("t", b"0")

            def stopped(holder: object) -> bool:
                raise KeyboardInterrupt

            chain.has_seen = stopped  # type: ignore[method-assign]
            try:
                with pytest.raises(KeyboardInterrupt):
                    delivery.recall()
            finally:
                del chain.has_seen  # type: ignore[method-assign]
            assert producer.health().buffered_bytes == 0
            await producer.flush()
            assert isinstance(delivery.exception(), RecordRecalledError)
            assert cluster.records("t") == []

    run_in_virtual_time(scenario())
