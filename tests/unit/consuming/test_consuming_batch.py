"""Batches: their own `send`, tasks that they leave over, and bodies in which the transaction can only be aborted."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import pytest
from consuming_rig import Rig, run

from aiokprod import BytesColumn, Delivery, ProducerState, exactly_once
from aiokprod.errors import (
    BrokerRejectedError,
    DeliveryTimeoutError,
    ProducerClosedError,
    SendManyError,
    TransactionAbortedError,
    UsageError,
)
from aiokprod.explanation import Place

TIMEOUT_MS = 1000


async def until_abortable(producer: Any) -> None:
    """Wait until the coordinator has aborted the transaction, as it was open for too long, and the producer knows it."""
    await asyncio.sleep(3 * TIMEOUT_MS / 1000)
    delivery = producer.send("out", b"lost")
    await asyncio.wait([delivery])


# ---------------------------------------------------------------------- what can pass, noticed in the body
@pytest.mark.parametrize("bound", [False, True], ids=["producer.send", "batch.send"])
def test_a_transaction_that_can_only_be_aborted_takes_and_drops_records_and_the_batch_is_run_again(bound: bool) -> None:
    async def scenario(rig: Rig) -> None:
        consumer, runs = rig.member(), 0
        dropped: list[Delivery] = []
        async with rig.producer(transaction_timeout_ms=TIMEOUT_MS, linger_ms=0) as producer:
            async with exactly_once(consumer, producer, max_records=20, timeout=0.1) as batches:
                async for batch in batches:
                    runs += 1
                    send = batch.send if bound else producer.send
                    if runs == 1:
                        await producer.send("out", b"first")
                        await until_abortable(producer)
                    for record in batch:
                        delivery = send("out", record.value)
                        if runs == 1:
                            dropped.append(delivery)
                    if runs == 2:
                        batches.stop()
            assert runs == 2
            for delivery in dropped:
                assert delivery.done() and not delivery.cancelled()
                assert isinstance(delivery.exception(), TransactionAbortedError)
                assert delivery.explain().place is Place.FAILED
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario, transaction_check_interval_ms=100)


@pytest.mark.parametrize("call", ["send", "send_many", "gathered", "task group"])
def test_a_body_that_awaits_is_run_again_if_it_leaves_its_errors_to_the_loop(call: str) -> None:
    async def scenario(rig: Rig) -> None:
        consumer, runs = rig.member(), 0
        options = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1000, "linger_ms": 0}
        async with rig.producer(**options) as producer:  # noqa: SIM117 - the loop has an end of its own
            async with exactly_once(consumer, producer, max_records=20, timeout=0.1) as batches:
                async for batch in batches:
                    runs += 1
                    if runs == 1:
                        rig.cluster.fail_next("Produce", 7, times=40)
                    values = [record.value for record in batch]
                    with batch:
                        match call:
                            case "send":
                                for value in values:
                                    await batch.send("out", value)
                            case "send_many":
                                await batch.send_many("out", values)
                            case "gathered":
                                await asyncio.gather(*(batch.send("out", value) for value in values))
                            case _:
                                async with asyncio.TaskGroup() as group:
                                    for value in values:
                                        group.create_task(producer.send("out", value).wait())
                        batches.stop()
                        continue
                    rig.cluster.clear_faults()
                    assert runs == 1
        assert runs == 2
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_without_that_the_error_ends_the_loop_as_any_other() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        options = {"delivery_timeout_ms": 2000, "request_timeout_ms": 1000, "linger_ms": 0}
        async with rig.producer(**options) as producer:
            rig.cluster.fail_next("Produce", 7, times=40)
            with pytest.raises(DeliveryTimeoutError):
                async with exactly_once(consumer, producer, timeout=0.1) as batches:
                    async for batch in batches:
                        await batch.send("out", b"v")
        assert await rig.output() == []
        await consumer.stop()

    run(scenario)


def test_what_would_come_again_is_raised_by_the_next_step_of_the_loop() -> None:
    async def scenario(rig: Rig) -> None:
        consumer, passed = rig.member(), 0
        async with rig.producer(linger_ms=0) as producer:
            rig.cluster.fail_next("Produce", 87)
            with pytest.raises((BrokerRejectedError, TransactionAbortedError)) as caught:
                async with exactly_once(consumer, producer, timeout=0.1) as batches:
                    async for batch in batches:
                        with batch:
                            await batch.send_many("out", [b"v"])
                        passed += 1
            assert passed == 1
            assert caught.value.code == 87 or getattr(caught.value.__cause__, "code", None) == 87
        await consumer.stop()

    run(scenario)


@pytest.mark.parametrize("error", [KeyError("x"), ExceptionGroup("two", [KeyError("x"), UsageError("y")])])
def test_errors_that_are_not_of_this_package_end_the_loop(error: Exception) -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer(transaction_timeout_ms=TIMEOUT_MS, linger_ms=0) as producer:
            with pytest.raises(type(error)):
                async with exactly_once(consumer, producer, timeout=0.1) as batches:
                    async for batch in batches:
                        await producer.send("out", b"first")
                        await until_abortable(producer)
                        with batch:
                            raise error
        await consumer.stop()

    run(scenario, transaction_check_interval_ms=100)


def test_errors_of_a_transaction_that_can_be_committed_end_the_loop() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            with pytest.raises(UsageError, match="mine"):
                async with exactly_once(consumer, producer, timeout=0.1) as batches:
                    async for batch in batches:
                        with batch as same:
                            assert same is batch
                            raise UsageError("mine")
            with pytest.raises(ProducerClosedError):
                async with exactly_once(consumer, producer, timeout=0.1) as batches:
                    async for batch in batches:
                        with batch:
                            await producer.close()
                            batch.send("out", b"v")
            assert producer.health().state is ProducerState.CLOSED
        await consumer.stop()

    run(scenario)


def test_send_many_of_a_transaction_that_can_only_be_aborted_raises_at_once() -> None:
    async def scenario(rig: Rig) -> None:
        consumer, seen = rig.member(), 0
        async with rig.producer(transaction_timeout_ms=TIMEOUT_MS, linger_ms=0) as producer:  # noqa: SIM117
            async with exactly_once(consumer, producer, timeout=0.1) as batches:
                async for batch in batches:
                    seen += 1
                    if seen == 1:
                        await producer.send("out", b"first")
                        await until_abortable(producer)
                        for values in ([b"v"], iter([b"v"])):
                            with pytest.raises((TransactionAbortedError, SendManyError)):
                                await batch.send_many("out", values)
                    else:
                        batches.stop()
        assert seen == 2
        await consumer.stop()

    run(scenario, transaction_check_interval_ms=100)


# ---------------------------------------------------------------------- tasks that are left over
LATE = ["send", "try_send", "send_many", "of an iterator", "send_columns", "batch.send", "batch.send_many"]


@pytest.mark.parametrize("call", LATE)
def test_a_task_that_a_batch_has_left_over_cannot_send_into_the_next_one(call: str) -> None:
    async def scenario(rig: Rig) -> None:
        consumer, tasks = rig.member(), []
        async with rig.producer() as producer:

            async def late(batch: Any, ready: asyncio.Event) -> None:
                await ready.wait()
                match call:
                    case "send" | "try_send":
                        getattr(producer, call)("out", b"late")
                    case "send_many":
                        await producer.send_many("out", [b"late"])
                    case "of an iterator":
                        await producer.send_many("out", iter([b"late"]))
                    case "send_columns":
                        await producer.send_columns("out", BytesColumn(array("i", [0, 4]), b"late"))
                    case "batch.send":
                        batch.send("out", b"late")
                    case _:
                        await batch.send_many("out", [b"late"])

            ready = asyncio.Event()
            async with exactly_once(consumer, producer, max_records=3, timeout=0.1) as batches:
                async for batch in batches:
                    if tasks:
                        ready.set()
                        await asyncio.wait(tasks)
                    else:
                        tasks.append(asyncio.create_task(late(batch, ready)))
                    for record in batch:
                        batch.send("out", record.value)
                    if batch[-1].offset == 9 and batch[-1].partition == 1:
                        batches.stop()
            with pytest.raises(UsageError, match="is over") as caught:
                await tasks[0]
            assert "Await every task" in caught.value.advice
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_tasks_from_outside_of_the_loop_send_and_so_does_the_send_of_a_batch_in_each_task() -> None:
    async def scenario(rig: Rig) -> None:
        consumer, queue, seen = rig.member(), asyncio.Queue[Any](), 0
        async with rig.producer() as producer:

            async def work(bound: bool) -> None:
                while True:
                    batch, value = await queue.get()
                    (batch.send if bound else producer.send)("out", value)
                    queue.task_done()

            for loop in range(2):
                outside = asyncio.create_task(work(False))  # before the second loop: in the task that had a batch
                inside: asyncio.Task[None] | None = None
                async with exactly_once(consumer, producer, max_records=3, timeout=0.1) as batches:
                    async for batch in batches:
                        if loop and inside is None:
                            outside.cancel()
                            inside = asyncio.create_task(work(True))
                        for record in batch:
                            queue.put_nowait((batch, record.value))
                        await queue.join()
                        seen += len(batch)
                        if seen >= (20 if loop else 9):
                            batches.stop()
                for task in (outside, inside):
                    if task is not None:
                        task.cancel()
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario)


def test_afterwards_the_producer_sends_as_before() -> None:
    async def scenario(rig: Rig) -> None:
        consumer = rig.member()
        async with rig.producer() as producer:
            path = producer._path
            seen: list[Any] = []
            async with exactly_once(consumer, producer, timeout=0.1) as batches:
                async for batch in batches:
                    assert producer._path is not path
                    seen.append(batch)
                    batches.stop()
            with pytest.raises(UsageError, match="is over"):
                seen[0].send("out", b"v")
            assert producer._path is path
            async with producer.transaction():
                await producer.send("out", b"v")
        assert await rig.output() == [b"v"]
        await consumer.stop()

    run(scenario)
