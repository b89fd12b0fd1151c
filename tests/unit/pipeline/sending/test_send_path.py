"""`send` is a call of the producer's running loop: in its thread, in a task or a callback, and nowhere else."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from aiokprod.errors import AiokprodError, WrongLoopError
from aiokprod.pipeline import wall_clock
from aiokprod.pipeline.sending.send_path import CLOCK_READ_EVERY_S
from aiokprod.testing import MemoryProducer


def refused(call: Callable[[], object]) -> AiokprodError:
    with pytest.raises(AiokprodError) as raised:
        call()
    return raised.value


def in_thread(call: Callable[[], Any]) -> Any:
    """Return what the call returns in a thread without a loop."""
    returned: list[Any] = []
    thread = threading.Thread(target=lambda: returned.append(call()))
    thread.start()
    thread.join()
    return returned[0]


def test_a_callback_of_the_loop_may_send() -> None:
    async def scenario() -> MemoryProducer:
        async with MemoryProducer() as producer:
            loop = asyncio.get_running_loop()
            sent: asyncio.Future[Any] = loop.create_future()
            loop.call_soon(lambda: sent.set_result(producer.send("t", b"v")))
            await (await sent)
            await producer.send("t", b"w")
        return producer

    producer = asyncio.run(scenario())
    assert [record.value for record in producer.records] == [b"v", b"w"]


def test_another_thread_may_not_send_while_a_task_of_the_loop_does() -> None:
    async def scenario() -> MemoryProducer:
        async with MemoryProducer() as producer:
            for _ in range(2):  # before and after this thread has sent
                assert isinstance(in_thread(lambda: refused(lambda: producer.send("t", b"v"))), WrongLoopError)
                await producer.send("t", b"w")
        return producer

    producer = asyncio.run(scenario())
    assert [record.value for record in producer.records] == [b"w", b"w"]


def test_a_loop_that_stands_may_not_send() -> None:
    with asyncio.Runner() as runner:
        producer = MemoryProducer()

        async def start() -> None:
            await producer.start()
            await producer.send("t", b"v")

        runner.run(start())
        assert isinstance(refused(lambda: producer.send("t", b"lost")), WrongLoopError)
        runner.run(producer.close())
    assert [record.value for record in producer.records] == [b"v"]


@pytest.mark.parametrize("has_sent", [True, False])
def test_a_loop_that_runs_in_another_thread_now(has_sent: bool) -> None:
    """The thread that it was started in may no longer send, whether the new one has sent something yet or not."""
    loop = asyncio.new_event_loop()
    producer = MemoryProducer()

    async def start() -> None:
        await producer.start()
        await producer.send("t", b"0")

    loop.run_until_complete(start())
    go, gone = threading.Event(), threading.Event()

    async def stand() -> None:  # a task that holds the loop
        if has_sent:
            await producer.send("t", b"1")
        go.set()
        assert gone.wait(30)

    thread = threading.Thread(target=lambda: loop.run_until_complete(stand()))
    thread.start()
    assert go.wait(30)
    with wall_clock.on(lambda: time.time() + 2 * CLOCK_READ_EVERY_S):
        error = refused(lambda: producer.send("t", b"lost"))
    gone.set()
    thread.join()
    loop.run_until_complete(producer.close())
    loop.close()
    assert isinstance(error, WrongLoopError)
    assert [record.value for record in producer.records] == ([b"0", b"1"] if has_sent else [b"0"])


def test_a_thread_in_which_nothing_was_sent_yet_may_not_send_into_a_running_task() -> None:
    loop = asyncio.new_event_loop()
    producer = MemoryProducer()
    loop.run_until_complete(producer.start())  # nothing is sent in this thread
    go, gone = threading.Event(), threading.Event()

    async def stand() -> None:
        go.set()
        assert gone.wait(30)

    thread = threading.Thread(target=lambda: loop.run_until_complete(stand()))
    thread.start()
    assert go.wait(30)
    error = refused(lambda: producer.send("t", b"lost"))
    gone.set()
    thread.join()
    loop.run_until_complete(producer.close())
    loop.close()
    assert isinstance(error, WrongLoopError)
    assert not producer.records


def test_the_topic_of_the_last_record_is_known_by_its_name_too() -> None:
    async def scenario() -> MemoryProducer:
        async with MemoryProducer() as producer:
            for topic in ("t", "u", "".join(["u", ""]), "u", "t"):
                await producer.send(topic, topic.encode())
            for wrong in ("", None, b"t", "a/b"):
                assert isinstance(refused(lambda wrong=wrong: producer.send(wrong, b"v")), AiokprodError)  # type: ignore[misc]
            await producer.send("t", b"t")
        return producer

    producer = asyncio.run(scenario())
    assert [(record.topic, record.value) for record in producer.records] == [
        (topic, topic.encode()) for topic in ("t", "u", "u", "u", "t", "t")
    ]
