"""Rows of the fault catalogue about tasks, callbacks, clocks and ends, through the whole pipeline."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from rig import mock_cluster, producer_of, run, run_in_virtual_time, started, until, values

from aiokprod import Delivery, Persistence, Producer, RecordMetadata
from aiokprod.errors import (
    AiokprodError,
    BufferFullError,
    ProducerClosedError,
    RecordRecalledError,
    UndeliveredAtCloseError,
)
from aiokprod.explanation import WaitsFor
from aiokprod.pipeline import wall_clock
from aiokprod.testing import MockCluster

SMALL: dict[str, Any] = {
    "buffer_memory": 20_000, "max_request_size": 10_000, "batch_size": 1_000, "linger_ms": 0,
}  # fmt: skip


# ---------------------------------------------------------------------- cancelling
def test_a_task_cancelled_while_its_topic_is_unknown_leaves_the_record_to_settle() -> None:
    """faults: L1"""

    async def scenario() -> None:
        async with started() as (cluster, producer):
            delivery = producer.send("later", b"v")
            task = asyncio.create_task(delivery.wait())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not delivery.done()
            recalled = producer.send("later", b"recalled")
            assert recalled.recall()
            cluster.create_topic("later")
            assert (await delivery).offset == 0
            assert values(cluster, "later") == [b"v"]

    run_in_virtual_time(scenario())


def test_a_task_cancelled_while_its_record_waits_for_room_costs_no_other_its_place() -> None:
    """faults: L2, M3"""

    async def scenario() -> None:
        async with started("t", **SMALL) as (cluster, producer):
            await producer.send("t", b"first")
            held = cluster.hold("Produce")
            deliveries: list[Delivery] = []
            while not any(delivery.explain().waits_for is WaitsFor.ROOM for delivery in deliveries):
                deliveries.append(producer.send("t", b"%03d" % len(deliveries) + b"x" * 500))
            deliveries += [producer.send("t", b"%03d" % (len(deliveries) + n) + b"x" * 500) for n in range(6)]
            waiting = deliveries[-6:]
            task = asyncio.create_task(waiting[0].wait())
            await asyncio.sleep(0)
            task.cancel()
            assert waiting[1].recall()
            assert not waiting[1].recall()
            with pytest.raises(RecordRecalledError):
                await waiting[1]
            cluster.release(held)
            await producer.flush()
            sent = [number for number, delivery in enumerate(deliveries) if delivery is not waiting[1]]
            assert [value[:3] for value in values(cluster, "t")[1:] if value] == [b"%03d" % n for n in sent]
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_a_recall_is_all_or_nothing_at_every_moment() -> None:
    """faults: L3"""

    async def scenario() -> None:
        async with started("t", linger_ms=1) as (cluster, producer):
            kept: list[bytes] = []
            deliveries: list[Delivery] = []
            for number in range(400):
                delivery = producer.send("t", b"%d" % number)
                deliveries.append(delivery)
                if number % 7 == 0:
                    await asyncio.sleep(0.0005 * (number % 5))
                if number % 3 or not deliveries[number // 2 * 2].recall():
                    continue
            await producer.flush()
            for number, delivery in enumerate(deliveries):
                error = delivery.exception()
                if error is None:
                    kept.append(b"%d" % number)
                else:
                    assert isinstance(error, RecordRecalledError)
            assert values(cluster, "t") == kept
            assert 0 < len(kept) < 400
            offsets = [d.result().offset for d in deliveries if d.exception() is None]
            assert offsets == list(range(len(kept)))

    run_in_virtual_time(scenario())


def test_a_task_cancelled_in_the_tick_of_its_answer_has_one_outcome() -> None:
    """faults: L5"""

    async def scenario() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with started("t") as (_, producer):
            outcomes: list[object] = []
            for number in range(60):
                delivery = producer.send("t", b"%d" % number)
                tasks = [asyncio.create_task(delivery.wait()) for _ in range(3)]
                cancelled = tasks[number % 3]

                def cancel(_: Delivery, task: asyncio.Task[RecordMetadata] = cancelled) -> None:
                    task.cancel()

                if number % 2:
                    await asyncio.sleep(0)
                delivery.add_done_callback(cancel)
                outcomes += await asyncio.gather(*tasks, return_exceptions=True)
                assert delivery.result().offset == number
                assert not delivery.cancelled()
            assert {type(outcome) for outcome in outcomes} <= {RecordMetadata, asyncio.CancelledError}
            assert sum(isinstance(outcome, RecordMetadata) for outcome in outcomes) >= 120
        assert complaints == []

    run(scenario())


def test_one_flush_cancelled_among_a_hundred_harms_no_other() -> None:
    """faults: L7"""

    async def scenario() -> None:
        async with started("t", linger_ms=1_000) as (cluster, producer):
            await producer.send("t", b"first")
            held = cluster.hold("Produce")
            before = [producer.send("t", b"%d" % number) for number in range(10)]
            flushes = [asyncio.create_task(producer.flush()) for _ in range(100)]
            await until(lambda: held.hits == 1)
            after = producer.send("t", b"after")
            flushes[50].cancel()
            cluster.release(held)
            results = await asyncio.gather(*flushes, return_exceptions=True)
            assert [type(result) for result in results].count(asyncio.CancelledError) == 1
            assert all(delivery.done() for delivery in before)
            assert not after.done()  # each covers what was sent before it
            await producer.flush()
            assert after.done()

    run(scenario())


# ---------------------------------------------------------------------- callbacks
def test_a_callback_may_wait_for_flush_in_a_task_and_send_again() -> None:
    """faults: L20"""

    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            tasks: list[asyncio.Task[None]] = []

            async def again(number: int) -> None:
                producer.send("t", b"again %d" % number)
                await producer.flush()

            def done(delivery: Delivery) -> None:
                tasks.append(asyncio.ensure_future(again(len(tasks))))

            for _ in range(20):
                producer.send("t", b"v").add_done_callback(done)
            await until(lambda: len(tasks) == 20)
            await asyncio.gather(*tasks)
            assert len(values(cluster, "t")) == 40

    run(scenario())


# ---------------------------------------------------------------------- ends
@pytest.mark.parametrize("turns", range(6))
def test_a_send_that_races_close_is_refused_or_accounted_for(turns: int) -> None:
    """faults: L9"""

    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers)
            await producer.start()
            deliveries: list[Delivery] = []
            refused: list[AiokprodError] = []

            async def keep_sending() -> None:
                for number in range(2_000):
                    try:
                        deliveries.append(producer.send("t", b"%d" % number))
                    except ProducerClosedError as error:
                        refused.append(error)
                        return
                    if number % 10 == 9:
                        await asyncio.sleep(0)

            task = asyncio.create_task(keep_sending())
            for _ in range(turns * 3):
                await asyncio.sleep(0)
            report = await producer.close(timeout=5)
            await task
            assert len(refused) == 1
            assert all(delivery.done() for delivery in deliveries)
            delivered = [delivery for delivery in deliveries if delivery.exception() is None]
            assert len(delivered) + report.count == len(deliveries)
            assert len(values(cluster, "t")) == len(delivered)

    run(scenario())


def test_at_close_tasks_that_wait_for_room_hear_of_it_at_once_and_records_keep_their_places() -> None:
    """faults: M5, L9"""

    async def scenario() -> None:
        async with mock_cluster() as cluster:
            cluster.create_topic("t")
            producer = producer_of(cluster, **SMALL)
            await producer.start()
            await producer.send("t", b"first")
            cluster.hold("Produce")
            deliveries: list[Delivery] = []
            while not any(delivery.explain().waits_for is WaitsFor.ROOM for delivery in deliveries):
                deliveries.append(producer.send("t", b"x" * 500))
            room = asyncio.create_task(producer.ready())
            await asyncio.sleep(0.01)
            closing = asyncio.create_task(producer.close(timeout=0.3))
            await asyncio.sleep(0.05)
            with pytest.raises(ProducerClosedError):
                await room
            assert deliveries[-1].explain().waits_for is WaitsFor.ROOM
            assert not closing.done()
            report = await closing
            assert isinstance(deliveries[-1].exception(), UndeliveredAtCloseError)
            assert report.count == len(deliveries)

    run_in_virtual_time(scenario())


def test_close_delivers_what_waits_for_room() -> None:
    """faults: M5. `send` accepted it, and the cluster is healthy."""

    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers, **SMALL)
            await producer.start()
            sent = [b"%03d" % number + b"x" * 500 for number in range(60)]
            deliveries = [producer.send("t", value) for value in sent]
            await asyncio.sleep(0)
            assert deliveries[-1].explain().waits_for is WaitsFor.ROOM
            report = await producer.close(timeout=30.0)
            assert report.count == 0
            assert [delivery.result().offset for delivery in deliveries] == list(range(60))
            assert values(cluster, "t") == sent

    run(scenario())


def test_nothing_of_ours_reaches_the_wire_or_a_metric_while_closing_in_the_middle_of_a_retry() -> None:
    """faults: L25"""

    async def scenario() -> None:
        async with mock_cluster() as cluster:
            cluster.create_topic("t")
            producer = producer_of(cluster, linger_ms=0, batch_size=0, retry_backoff_ms=5)
            await producer.start()
            await producer.send("t", b"0")
            await producer.send("t", b"1")
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            held = cluster.hold("Produce", nth=2)
            deliveries = [producer.send("t", b"%d" % number) for number in range(2, 12)]
            await until(lambda: held.hits >= 1 and producer.metrics()["chaser_rounds"] >= 1)
            report = await producer.close(timeout=0.1)
            assert report.count == 10
            assert {type(delivery.exception()) for delivery in deliveries} == {UndeliveredAtCloseError}
            metrics = producer.metrics()
            assert metrics["records_delivered"] == 2
            assert metrics["records_failed"] == 10
            cluster.clear_faults()
            await asyncio.sleep(0.02)
            assert values(cluster, "t") == [b"0", b"1"]
            assert not cluster.counters.crashes

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- clocks
@pytest.mark.parametrize("jump_s", [-3_600.0, 3_600.0, -(10.0**9)])
def test_a_wall_clock_that_jumps_expires_nothing_and_holds_up_nothing(jump_s: float) -> None:
    """faults: L21"""

    async def scenario() -> None:
        shift = 0.0

        def clock() -> float:
            return max(0.0, time.time() + shift)

        with wall_clock.on(clock):
            async with started("t", linger_ms=5) as (cluster, producer):
                await producer.send("t", b"0")
                held = cluster.hold("Produce")
                deliveries = [producer.send("t", b"%d" % number) for number in range(1, 6)]
                await until(lambda: held.hits == 1)
                shift = jump_s
                deliveries += [producer.send("t", b"%d" % number) for number in range(6, 10)]
                cluster.release(held)
                async with asyncio.timeout(60):
                    outcomes = await asyncio.gather(*deliveries)
                assert [metadata.offset for metadata in outcomes] == list(range(1, 10))
                assert all(delivery.latency is not None and 0 <= delivery.latency < 60 for delivery in deliveries)

    run(scenario())


# ---------------------------------------------------------------------- memory
def test_a_buffer_full_of_stopped_brokers_makes_sends_wait_and_then_fail_for_certain() -> None:
    """faults: M1"""

    async def scenario() -> None:
        async with started("t", **SMALL, max_block_ms=100, max_waiting_bytes=5_000) as (cluster, producer):
            await producer.send("t", b"first")
            for node in cluster.broker_ids:
                cluster.stop_broker(node)
            deliveries: list[Delivery] = []
            with pytest.raises(BufferFullError):
                while True:
                    deliveries.append(producer.send("t", b"x" * 500))
            await until(lambda: any(delivery.done() for delivery in deliveries))
            late = [delivery.exception() for delivery in deliveries if delivery.done()]
            assert {type(error) for error in late} == {BufferFullError}
            assert {error.persistence for error in late if error} == {Persistence.NOT_PERSISTED}
            assert all(error is not None and error.elapsed_s is not None and error.elapsed_s >= 0.09 for error in late)
            for node in cluster.broker_ids:
                cluster.start_broker(node)
            await producer.flush()
            assert producer.health().buffered_bytes == 0

    run_in_virtual_time(scenario())
