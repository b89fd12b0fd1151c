"""Delivery as asyncio's own tools see it, and what cancelling and recalling do."""

from __future__ import annotations

import asyncio
import inspect

import pytest
from rig import run, run_in_virtual_time, started, until, values

from aiokprod import Delivery, RecordMetadata
from aiokprod.errors import AiokprodError, BrokerRejectedError, RecordRecalledError, SendTimeoutError
from aiokprod.explanation import Place, WaitsFor
from aiokprod.model import Persistence
from aiokprod.pipeline.delivery.delivery import NOT_TAKEN
from aiokprod.pipeline.delivery.unasked_failures import GRACE_S


def test_a_delivery_is_a_future_to_asyncio() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            delivery = producer.send("t", b"v")
            assert asyncio.isfuture(delivery)
            assert asyncio.ensure_future(delivery) is delivery
            assert delivery.get_loop() is asyncio.get_running_loop()
            metadata = await delivery
            assert (metadata.topic, metadata.partition, metadata.offset) == ("t", 0, 0)
            assert delivery.done() and not delivery.cancelled()
            assert delivery.exception() is None
            assert await delivery == metadata  # as often as one likes

    run(scenario())


def test_gather_wait_as_completed_shield_and_wait_for_take_it() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            offsets = [m.offset for m in await asyncio.gather(*(producer.send("t", b"%d" % i) for i in range(50)))]
            assert offsets == list(range(50))
            done, pending = await asyncio.wait([producer.send("t", b"v"), producer.send("t", b"v")])
            assert len(done) == 2 and not pending
            assert [(await first).offset for first in asyncio.as_completed([producer.send("t", b"v")])] == [52]
            assert (await asyncio.shield(producer.send("t", b"v"))).offset == 53
            assert (await asyncio.wait_for(producer.send("t", b"v"), 60)).offset == 54
            async with asyncio.timeout(60):
                assert (await producer.send("t", b"v")).offset == 55

    run(scenario())


def test_gathering_makes_no_tasks() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            await producer.send("t", b"v")
            gathered = asyncio.gather(*(producer.send("t", b"v") for _ in range(100)))
            before = len(asyncio.all_tasks())
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) <= before
            await gathered

    run(scenario())


def test_run_until_complete_takes_it() -> None:
    loop = asyncio.new_event_loop()
    try:
        scenario = started("t")
        _, producer = loop.run_until_complete(scenario.__aenter__())

        async def send() -> Delivery:
            return producer.send("t", b"v")

        delivery = loop.run_until_complete(send())
        assert loop.run_until_complete(delivery).offset == 0
        loop.run_until_complete(scenario.__aexit__(None, None, None))
    finally:
        loop.close()


def test_wait_is_a_coroutine_for_task_groups() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            async with asyncio.TaskGroup() as group:
                task = group.create_task(producer.send("t", b"v").wait())
            assert isinstance(task.result(), RecordMetadata)

    run(scenario())


def test_send_is_marked_so_that_frameworks_keep_it_on_the_loop() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            iscoroutinefunction = getattr(inspect, "markcoroutinefunction", None)
            check = inspect.iscoroutinefunction if iscoroutinefunction else asyncio.iscoroutinefunction
            assert check(producer.send)
            assert check(producer.try_send)

    run(scenario())


def test_cancelling_one_waiting_task_touches_no_other() -> None:  # faults: L4
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"first")
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"v")
            tasks = [asyncio.create_task(delivery.wait()) for _ in range(3)]
            await until(lambda: held.hits == 1)
            tasks[0].cancel()
            await asyncio.sleep(0)
            cluster.release(held)
            assert (await tasks[1]).offset == (await tasks[2]).offset == (await delivery).offset == 1
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]

    run(scenario())


def test_cancel_detaches_the_handle_and_the_record_goes_on() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            called: list[Delivery] = []
            delivery = producer.send("t", b"v")
            delivery.add_done_callback(called.append)
            waiter = asyncio.create_task(delivery.wait())
            await asyncio.sleep(0)
            assert delivery.cancel("why")
            assert delivery.cancelled() and delivery.done()
            assert not delivery.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            with pytest.raises(asyncio.CancelledError):
                delivery.result()
            assert called == [delivery]
            await producer.flush()
            assert values(cluster, "t") == [b"v"]

    run(scenario())


def test_gather_cancel_detaches_all_and_does_not_hang() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            gathered = asyncio.gather(*(producer.send("t", b"v") for _ in range(3)))
            assert gathered.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gathered
            await producer.flush()
            assert len(values(cluster, "t")) == 3

    run(scenario())


def test_a_timeout_leaves_the_record_and_the_handle_alone() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"first")
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"v")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await delivery
            cluster.release(held)
            assert (await delivery).offset == 1

    run_in_virtual_time(scenario())


def test_the_failure_of_a_detached_handle_reaches_on_delivery_error() -> None:
    async def scenario() -> None:
        told: list[AiokprodError] = []
        async with started("t", on_delivery_error=told.append) as (cluster, producer):
            await producer.send("t", b"first")
            cluster.fail_next("Produce", "POLICY_VIOLATION")
            delivery = producer.send("t", b"v")
            delivery.cancel()
            await producer.flush()
            await asyncio.sleep(GRACE_S + 1)
            assert [type(error) for error in told] == [BrokerRejectedError]
            assert told[0].persistence is Persistence.NOT_PERSISTED

    run_in_virtual_time(scenario())


def test_a_failure_that_a_task_waits_for_is_told_to_it_alone() -> None:
    async def scenario() -> None:
        told: list[AiokprodError] = []
        async with started("t", on_delivery_error=told.append) as (cluster, producer):
            await producer.send("t", b"first")
            cluster.fail_next("Produce", "POLICY_VIOLATION")
            delivery = producer.send("t", b"v")
            with pytest.raises(BrokerRejectedError) as raised:
                await delivery
            assert delivery.exception() is raised.value  # every reader sees the same one
            await asyncio.sleep(2 * GRACE_S)
            assert told == []
            assert not raised.value.reported

    run_in_virtual_time(scenario())


def test_recall_takes_an_unstamped_record_back() -> None:  # faults: L3
    async def scenario() -> None:
        async with started("t", linger_ms=60_000, delivery_timeout_ms=120_000) as (cluster, producer):
            await producer.send("t", b"first")
            deliveries = [producer.send("t", b"%d" % i) for i in range(3)]
            assert deliveries[1].recall()
            assert not deliveries[1].recall()
            with pytest.raises(RecordRecalledError):
                await deliveries[1]
            await producer.flush()
            assert not deliveries[0].recall()
            assert values(cluster, "t") == [b"first", b"0", b"2"]
            assert [(await deliveries[0]).offset, (await deliveries[2]).offset] == [1, 2]
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_the_only_record_of_a_batch_can_be_recalled() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=60_000, delivery_timeout_ms=120_000) as (cluster, producer):
            await producer.send("t", b"first")
            alone = producer.send("t", b"alone")
            assert alone.recall()
            assert producer.health().buffered_bytes == 0
            await producer.send("t", b"next")
            assert values(cluster, "t") == [b"first", b"next"]

    run(scenario())


def test_recall_while_the_topic_is_unknown_frees_the_record() -> None:  # faults: L1
    async def scenario() -> None:
        async with started() as (_, producer):
            delivery = producer.send("unknown", b"v")
            assert delivery.explain().waits_for is WaitsFor.METADATA and "unknown" in repr(delivery)
            assert delivery.recall()
            with pytest.raises(RecordRecalledError):
                await delivery
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_a_stamped_record_cannot_be_recalled() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"first")
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"v")
            waiter = asyncio.create_task(delivery.wait())
            await until(lambda: held.hits == 1)
            assert delivery.explain().place is Place.IN_FLIGHT and "in flight" in repr(delivery)
            assert not delivery.recall()
            cluster.release(held)
            await waiter

    run(scenario())


def test_a_send_timeout_before_the_stamp_takes_the_record_out() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=60_000, delivery_timeout_ms=120_000) as (cluster, producer):
            await producer.send("t", b"first")
            timed = producer.send("t", b"timed", timeout=0.02)
            other = producer.send("t", b"other")
            await until(timed.done)
            error = timed.exception()
            assert isinstance(error, SendTimeoutError)
            assert error.persistence is Persistence.NOT_PERSISTED
            await producer.flush()
            assert (await other).offset == 1
            assert values(cluster, "t") == [b"first", b"other"]

    run_in_virtual_time(scenario())


def test_a_send_timeout_after_the_stamp_fails_the_handle_alone() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"first")
            held = cluster.hold("Produce")
            with pytest.raises(SendTimeoutError) as raised:
                await producer.send("t", b"v", timeout=0.05)
            assert raised.value.persistence is Persistence.POSSIBLY_PERSISTED
            cluster.release(held)
            await producer.flush()
            assert values(cluster, "t") == [b"first", b"v"]

    run_in_virtual_time(scenario())


def test_done_callbacks_can_be_removed_and_run_soon_on_a_settled_delivery() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            called: list[Delivery] = []
            delivery = producer.send("t", b"v")
            delivery.add_done_callback(called.append)
            assert delivery.remove_done_callback(called.append) == 1
            await delivery
            await asyncio.sleep(0)
            assert called == []
            delivery.add_done_callback(called.append)
            assert called == []
            await asyncio.sleep(0)
            assert called == [delivery]

    run(scenario())


def test_an_unsettled_delivery_has_no_result_yet() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            delivery = producer.send("t", b"v")
            with pytest.raises(asyncio.InvalidStateError):
                delivery.result()
            with pytest.raises(asyncio.InvalidStateError):
                delivery.exception()
            assert isinstance(delivery._make_cancelled_error(), asyncio.CancelledError)
            await delivery

    run(scenario())


def test_a_delivery_whose_record_was_not_taken_is_over_for_what_looks_at_it() -> None:
    assert Delivery(NOT_TAKEN, 0).done()


@pytest.mark.parametrize("listens", ["a task", "a callback", "both"])
def test_a_loop_that_refuses_the_call_leaves_a_cancelled_delivery_as_it_was(
    listens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            delivery = producer.send("t", b"v")
            heard: list[Delivery] = []
            if listens != "a task":
                delivery.add_done_callback(heard.append)
            waits = listens != "a callback"
            task = asyncio.ensure_future(_awaited(delivery)) if waits else None
            await asyncio.sleep(0)
            loop = asyncio.get_running_loop()
            with monkeypatch.context() as patch:
                patch.setattr(loop, "call_soon", _refused)
                with pytest.raises(MemoryError):
                    delivery.cancel("message")
            assert not delivery.cancelled() and not delivery.done()
            if task is not None:
                assert (await task).offset == 0
            assert (await delivery).offset == 0
            await asyncio.sleep(0)
            assert heard == ([] if listens == "a task" else [delivery])

    run(scenario())


async def _awaited(delivery: Delivery) -> RecordMetadata:
    return await delivery


def _refused(*_: object, **__: object) -> None:
    raise MemoryError
