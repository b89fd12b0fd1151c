"""`send_threadsafe`: from any thread, in the order of its calls, with the same checks and errors as `send`."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import pytest
from rig import run, started, until, values

from aiokprod import Producer, RecordMetadata
from aiokprod.errors import (
    BufferFullError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerNotStartedError,
    RecordTypeError,
    UndeliveredAtCloseError,
    UsageError,
)
from aiokprod.testing import MemoryProducer


def test_records_of_several_threads_arrive_each_in_the_order_of_its_calls() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):

            def work(number: int) -> list[RecordMetadata]:
                futures = [producer.send_threadsafe("t", b"%d-%d" % (number, i), partition=0) for i in range(200)]
                return [future.result(timeout=30) for future in futures]

            with ThreadPoolExecutor(4) as threads:
                loop = asyncio.get_running_loop()
                told = await asyncio.gather(*(loop.run_in_executor(threads, work, number) for number in range(4)))
            log = values(cluster, "t", 0)
            for number, metadata in enumerate(told):
                assert [log[each.offset or 0] for each in metadata] == [b"%d-%d" % (number, i) for i in range(200)]
                assert [each.offset for each in metadata] == sorted(each.offset or 0 for each in metadata)

    run(scenario())


async def in_thread(call: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, call)


def test_headers_in_any_mapping_are_copied_by_the_call() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            below = {"h": b"before"}

            def work() -> Future[RecordMetadata]:
                taken = producer.send_threadsafe("t", b"v", headers=MappingProxyType(below))
                below["h"] = b"after"
                return taken

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()  # the loop has not run since
            await producer.flush()
            while not producer.records:
                await asyncio.sleep(0)
            assert producer.records[0].headers == (("h", b"before"),)

    run(scenario())


def test_what_could_change_is_copied_by_the_call() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            taken: list[Future[RecordMetadata]] = []

            def work() -> None:
                value, header = bytearray(b"before"), bytearray(b"before")
                headers: list[Any] = [("h", header)]
                taken.append(producer.send_threadsafe("t", value, memoryview(value), headers=headers))
                value[:] = header[:] = b"after!"
                headers.clear()

            thread = threading.Thread(target=work)
            thread.start()
            thread.join()  # the loop has not run since
            assert (await asyncio.wrap_future(taken[0])).offset == 0
            [record] = producer.records_of("t")
            assert (record.value, record.key, list(record.headers)) == (b"before", b"before", [("h", b"before")])

    run(scenario())


def test_errors_of_the_call_and_of_the_delivery_are_in_the_future() -> None:
    async def scenario() -> None:
        small = {"buffer_memory": 3_000, "max_request_size": 2_000, "batch_size": 2_000, "max_waiting_bytes": 0}
        async with started("t", **small) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            wrong = await in_thread(lambda: producer.send_threadsafe("t", "text"))
            flying = await in_thread(lambda: producer.send_threadsafe("t", b"v" * 1_500))
            full = await in_thread(lambda: producer.send_threadsafe("t", b"v" * 1_800))
            await until(full.done)
            assert isinstance(wrong.exception(), RecordTypeError)
            assert isinstance(full.exception(), BufferFullError)
            assert not flying.done() and not flying.cancel()
            await producer.close(timeout=0)
            await until(flying.done)
            assert isinstance(flying.exception(), UndeliveredAtCloseError)
            cluster.release(held)

    run(scenario())


def test_a_future_that_is_cancelled_before_the_loop_looks_sends_nothing() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            taken: list[Future[RecordMetadata]] = []
            thread = threading.Thread(target=lambda: taken.append(producer.send_threadsafe("t", b"v")))
            thread.start()
            thread.join()
            assert taken[0].cancel()
            await producer.send("t", b"w")
            assert [record.value for record in producer.records_of("t")] == [b"w"]
            with pytest.raises(CancelledError):
                taken[0].result(0)

    run(scenario())


def test_it_is_refused_at_once_where_it_cannot_work() -> None:
    async def scenario() -> None:
        producer = MemoryProducer()
        with pytest.raises(ProducerNotStartedError):
            await in_thread(lambda: producer.send_threadsafe("t", b"v"))
        async with producer:
            with pytest.raises(UsageError, match="use send"):
                producer.send_threadsafe("t", b"v")
        with pytest.raises(ProducerClosedError):
            await in_thread(lambda: producer.send_threadsafe("t", b"v"))

    run(scenario())


@pytest.mark.filterwarnings("ignore:.*not closed before its event loop was:ResourceWarning")
def test_a_producer_whose_loop_is_closed_refuses_at_once() -> None:
    producer: Producer = MemoryProducer()

    async def leave() -> None:
        await producer.start()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    with pytest.raises(ProducerFailedError):
        producer.send_threadsafe("t", b"v")
    asyncio.run(producer.close())  # type: ignore[arg-type]
