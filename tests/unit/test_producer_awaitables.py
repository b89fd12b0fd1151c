"""Deliveries in asyncio's and anyio's own tools: those that fail, wait or are let go, through a whole producer."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from aiokprod import Delivery, Producer, RecordMetadata
from aiokprod.errors import BrokerRejectedError
from aiokprod.model import Persistence
from aiokprod.testing import MockCluster
from aiokprod.testing.faults import Rule

LIMIT_S = 60.0


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


@asynccontextmanager
async def started(**options: Any) -> AsyncIterator[tuple[MockCluster, Producer]]:
    async with MockCluster(auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=3)
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            for partition in range(3):
                await producer.send("t", b"first", partition=partition)
            yield cluster, producer


@asynccontextmanager
async def partition_1_held() -> AsyncIterator[tuple[MockCluster, Producer, Rule]]:
    """Yield a cluster whose leader of partition 1 gives no answers until the rule is released."""
    async with started() as (cluster, producer):
        yield cluster, producer, cluster.hold("Produce", broker=cluster.leader("t", 1))


def values(cluster: MockCluster, partition: int) -> list[bytes | None]:
    return [record.value for record in cluster.records("t", partition)][1:]


def to_each(producer: Producer, value: bytes = b"v") -> list[Delivery]:
    return [producer.send("t", value, partition=partition) for partition in range(3)]


# ---------------------------------------------------------------------- wait
def test_wait_for_the_first_leaves_the_others_pending() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            deliveries = to_each(producer)
            pending = set(deliveries)
            while len(pending) > 1:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                assert done
            assert pending == {deliveries[1]}
            done, pending = await asyncio.wait(pending, timeout=0.02)
            assert not done and pending == {deliveries[1]}
            assert not deliveries[1].cancelled()
            cluster.release(held)
            done, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(0)), *pending])
            assert len(done) == 2 and not pending
            assert deliveries[1].result().offset == 1

    run(scenario)


def test_wait_for_the_first_exception_ends_at_a_record_that_failed() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            cluster.fail_next("Produce", "INVALID_RECORD", topic="t", partition=2)
            deliveries = to_each(producer)
            done, pending = await asyncio.wait(deliveries, return_when=asyncio.FIRST_EXCEPTION)
            assert deliveries[2] in done and deliveries[1] in pending
            assert isinstance(deliveries[2].exception(), BrokerRejectedError)
            cluster.release(held)

    run(scenario)


# ---------------------------------------------------------------------- gather
def test_gather_returns_results_and_typed_errors_in_the_order_of_the_calls() -> None:
    async def scenario() -> None:
        async with started() as (cluster, producer):
            cluster.fail_next("Produce", "INVALID_RECORD", topic="t", partition=1)
            outcomes = await asyncio.gather(*to_each(producer), return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [RecordMetadata, type(outcomes[1]), RecordMetadata]
            assert isinstance(outcomes[1], BrokerRejectedError)
            assert outcomes[1].persistence is Persistence.NOT_PERSISTED
            assert (outcomes[1].topic, outcomes[1].partition) == ("t", 1)

    run(scenario)


def test_gather_raises_the_first_error_and_the_others_still_arrive() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            cluster.fail_next("Produce", "INVALID_RECORD", topic="t", partition=2)
            deliveries = to_each(producer)
            with pytest.raises(BrokerRejectedError):
                await asyncio.gather(*deliveries)
            assert not deliveries[1].done()
            cluster.release(held)
            await producer.flush()
            assert [values(cluster, partition) for partition in range(3)] == [[b"v"], [b"v"], []]

    run(scenario)


def test_a_timeout_around_gather_lets_the_handles_go_and_no_record() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            deliveries = to_each(producer)
            await asyncio.wait([deliveries[0], deliveries[2]])
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await asyncio.gather(*deliveries)
            assert deliveries[1].cancelled() and not deliveries[0].cancelled()
            cluster.release(held)
            await producer.flush()
            assert values(cluster, 1) == [b"v"]

    run(scenario)


def test_gathers_within_gathers_and_the_same_delivery_twice() -> None:
    async def scenario() -> None:
        async with started() as (_, producer):
            shared = producer.send("t", b"v", partition=0)
            inner = asyncio.gather(shared, producer.send("t", b"v", partition=1))
            (first, second), again = await asyncio.gather(inner, shared)
            assert first == again
            assert (first.partition, second.partition) == (0, 1)

    run(scenario)


# ---------------------------------------------------------------------- as_completed, wait_for, shield, timeout
def test_as_completed_gives_them_as_they_settle_and_times_out() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            settled = []
            with pytest.raises(TimeoutError):
                for following in asyncio.as_completed(to_each(producer), timeout=0.3):
                    settled.append((await following).partition)
            assert set(settled) <= {0, 2}
            cluster.release(held)
            await producer.flush()
            assert [values(cluster, partition) for partition in range(3)] == [[b"v"]] * 3

    run(scenario)


def test_wait_for_gives_up_and_the_record_arrives() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send("t", b"v", partition=1), 0.02)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send("t", b"w", partition=1).wait(), 0.02)
            cluster.release(held)
            await producer.flush()
            assert values(cluster, 1) == [b"v", b"w"]

    run(scenario)


def test_shield_keeps_the_handle_when_its_outer_future_is_cancelled() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            delivery = producer.send("t", b"v", partition=1)
            shielded = asyncio.shield(delivery)
            assert shielded.cancel()
            with pytest.raises(asyncio.CancelledError):
                await shielded
            assert not delivery.cancelled()
            cluster.release(held)
            assert (await delivery).offset == 1

    run(scenario)


def test_a_timeout_of_a_send_into_an_unknown_topic_leaves_the_record_waiting() -> None:
    async def scenario() -> None:
        async with started(metadata_max_age_ms=50) as (cluster, producer):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await producer.send("later", b"v")
            cluster.create_topic("later")
            await producer.flush()
            assert [record.value for record in cluster.records("later")] == [b"v"]

    run(scenario)


# ---------------------------------------------------------------------- tasks
def test_a_task_group_cancels_the_waiting_and_no_record() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            cluster.fail_next("Produce", "INVALID_RECORD", topic="t", partition=2)
            deliveries = to_each(producer)
            with pytest.raises(ExceptionGroup) as raised:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(delivery.wait()) for delivery in deliveries]
            assert [type(error) for error in raised.value.exceptions] == [type(deliveries[2].exception())]
            assert tasks[1].cancelled()
            assert not deliveries[1].done()
            cluster.release(held)
            assert (await deliveries[1]).offset == 1

    run(scenario)


def test_anyio_waits_cancels_and_groups() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):
            deliveries = to_each(producer)
            with anyio.move_on_after(0.02) as scope:
                await deliveries[1]
            assert scope.cancelled_caught and not deliveries[1].done()
            cluster.release(held)
            async with anyio.create_task_group() as group:
                for delivery in deliveries:
                    group.start_soon(delivery.wait)
            assert [delivery.result().offset for delivery in deliveries] == [1, 1, 1]

    run(scenario)


def test_a_cancelled_task_lets_go_wherever_its_record_is() -> None:
    async def scenario() -> None:
        async with partition_1_held() as (cluster, producer, held):

            async def one(topic: str, partition: int) -> None:
                await producer.send(topic, b"v", partition=partition)

            tasks = [asyncio.create_task(one(*where)) for where in (("t", 1), ("unknown", 0), ("t", 1))]
            while not held.hits:
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            assert all(
                isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*tasks, return_exceptions=True)
            )
            cluster.create_topic("unknown")
            cluster.release(held)
            await producer.flush()
            assert values(cluster, 1) == [b"v", b"v"]
            assert len(cluster.records("unknown")) == 1
            assert producer.health().buffered_bytes == 0

    run(scenario)


def test_every_waiter_of_a_failed_record_gets_the_error() -> None:
    async def scenario() -> None:
        async with started() as (cluster, producer):
            cluster.fail_next("Produce", "INVALID_RECORD", topic="t", partition=0)
            delivery = producer.send("t", b"v", partition=0)
            tasks = [asyncio.create_task(delivery.wait()) for _ in range(3)]
            errors = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(error, BrokerRejectedError) for error in errors)
            with pytest.raises(BrokerRejectedError):
                await delivery
            with pytest.raises(BrokerRejectedError):
                delivery.result()

    run(scenario)


# ---------------------------------------------------------------------- loops, threads, callbacks
def test_run_until_complete_takes_a_gather_of_deliveries() -> None:
    loop = asyncio.new_event_loop()
    try:
        context = started()
        _, producer = loop.run_until_complete(context.__aenter__())

        async def send() -> list[Delivery]:
            return to_each(producer)

        deliveries = loop.run_until_complete(send())
        assert loop.run_until_complete(deliveries[0]).offset == 1
        gathered = asyncio.gather(*deliveries)  # outside the loop: it is found by the deliveries
        assert [metadata.offset for metadata in loop.run_until_complete(gathered)] == [1, 1, 1]
        loop.run_until_complete(context.__aexit__(None, None, None))
    finally:
        loop.close()


def test_another_thread_waits_through_run_coroutine_threadsafe() -> None:
    async def scenario() -> None:
        async with started() as (_, producer):
            loop = asyncio.get_running_loop()
            offsets: list[int | None] = []

            async def send() -> RecordMetadata:
                return await producer.send("t", b"v", partition=0)

            def elsewhere() -> None:
                offsets.append(asyncio.run_coroutine_threadsafe(send(), loop).result(LIMIT_S).offset)

            thread = threading.Thread(target=elsewhere)
            thread.start()
            await asyncio.to_thread(thread.join)
            assert offsets == [1]

    run(scenario)


def test_done_callbacks_run_in_their_context_and_one_that_raises_harms_no_other() -> None:
    async def scenario() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        asked = contextvars.ContextVar("asked", default="none")
        seen: list[str] = []
        async with started() as (_, producer):
            for name in ("first", "second"):
                asked.set(name)
                delivery = producer.send("t", b"v", partition=0)
                delivery.add_done_callback(lambda _: 1 / 0)
                delivery.add_done_callback(lambda _: seen.append(asked.get()))
            await producer.send("t", b"v", partition=0)
            await asyncio.sleep(0)
            assert seen == ["first", "second"]
            assert [type(context["exception"]) for context in complaints] == [ZeroDivisionError] * 2

    run(scenario)
