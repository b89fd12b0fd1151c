"""Each failure is told once, and to the one place where it is waited or asked for: its caller, or `on_delivery_error`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from virtual_rig import Told, kinds, lost, outcomes, room, run, started

from aiokprod import Delivery, Producer, Record
from aiokprod.errors import (
    AiokprodError,
    BrokerRejectedError,
    DeliveryTimeoutError,
    SendManyError,
    SendReport,
    SendTimeoutError,
    SerializationError,
    UnknownTopicError,
)
from aiokprod.explanation import Place
from aiokprod.model import Persistence
from aiokprod.pipeline.delivery.unasked_failures import GRACE_S
from aiokprod.testing import MemoryProducer, MockCluster
from aiokprod.testing.virtual import VirtualNetwork

QUICK = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 2_000}


def test_a_send_timeout_that_nothing_waits_for_is_told_wherever_its_record_is() -> None:
    """The timeout of a record in a batch that was not stamped was reported nowhere."""

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told) as (cluster, producer):
            cluster.refuse_connections(1)
            in_batch = [producer.send("t", b"lost", timeout=1.0) for _ in range(10)]
            parked = [producer.send("unknown", b"lost", timeout=1.0) for _ in range(10)]
            assert [each.explain().place for each in (in_batch[0], parked[0])] == [Place.OPEN_BATCH, Place.PARKED]
            await asyncio.sleep(2)
            assert told.errors == []
            await asyncio.sleep(GRACE_S)
            assert sorted(str(error.topic) for error in told.errors) == ["t"] * 10 + ["unknown"] * 10
            assert {type(error) for error in told.errors} == {SendTimeoutError}
            assert {error.persistence for error in told.errors} == {Persistence.NOT_PERSISTED}
            await asyncio.sleep(300)
            assert len(told.errors) == 20

    run(scenario)


def test_a_send_timeout_that_is_awaited_or_recalled_is_told_to_its_caller_alone() -> None:

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told) as (cluster, producer):
            cluster.refuse_connections(1)
            awaited = producer.send("t", b"lost", timeout=1.0)
            recalled = producer.send("t", b"back", timeout=1.0)
            assert recalled.recall()
            assert kinds(await outcomes([awaited])) == ["SendTimeoutError"]
            await asyncio.sleep(2 * GRACE_S)
            assert told.errors == []

    run(scenario)


@pytest.mark.parametrize("what", ["cancelled", "iterable"])
def test_what_a_send_many_that_ended_early_took_is_told_when_it_fails(what: str) -> None:
    """The records counted as awaited for ever, and their failures were reported nowhere."""

    def broken() -> Iterator[bytes]:
        yield from (b"%d" % number for number in range(100))
        raise ValueError("the source broke")

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **QUICK) as (cluster, producer):
            cluster.refuse_connections(1)
            if what == "cancelled":
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(producer.send_many("t", [b"%d" % number for number in range(100)]), 0.5)
            else:
                with pytest.raises(ValueError, match="the source broke"):
                    await producer.send_many("t", broken())
            assert told.errors == []
            await asyncio.sleep(5 + GRACE_S)
            assert producer.metrics()["records_failed"] == 100
            assert told.kinds == ["DeliveryTimeoutError"] * 100

    run(scenario)


@pytest.mark.parametrize("timeout", [None, 1.5])
@pytest.mark.parametrize("where", ["batch", "serializer", "moved", "room"])
def test_what_a_send_many_that_was_cancelled_took_is_told_as_soon_as_it_fails(
    where: str, timeout: float | None
) -> None:
    """No code has a Delivery of these records, so none can ask for the failures within the grace."""

    async def scenario(network: VirtualNetwork) -> None:
        told, gate = Told(), asyncio.Event()

        async def serialize(topic: str, headers: object, data: object) -> bytes:
            await gate.wait()
            return b"x" * 90

        options: dict[str, Any] = {"on_delivery_error": told, "keep_failed_records": True, "max_block_ms": 4_000}
        options |= room(2_000) if where == "room" else {}
        options |= {"value_serializer": serialize} if where in ("serializer", "moved") else {}
        async with started(network, **QUICK, **options) as (cluster, producer):
            cluster.refuse_connections(1)
            values = [b"%d" % number + b"x" * 90 for number in range(100)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send_many("t", values, timeout=timeout), 0.5)
            if where == "moved":
                gate.set()
            failed = 0
            for _ in range(400):
                assert len(told.errors) >= failed
                failed = int(str(producer.metrics()["records_failed"]))
                await asyncio.sleep(0.02)
            assert len(told.errors) == failed >= 1
            kept = [error.record for error in told.errors]
            assert where == "serializer" or None not in kept
            gate.set()

    run(scenario)


def test_beside_records_of_a_cancelled_send_many_a_caller_has_its_time_to_ask() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, linger_ms=1_000, **QUICK) as (cluster, producer):
            cluster.refuse_connections(1)
            call = asyncio.create_task(producer.send_many("t", [b"%d" % number for number in range(50)]))
            await asyncio.sleep(0.1)
            mine = producer.send("t", b"mine")
            call.cancel()
            assert mine.explain().place is Place.OPEN_BATCH
            await asyncio.sleep(4)
            assert told.kinds == ["DeliveryTimeoutError"] * 50
            with pytest.raises(DeliveryTimeoutError) as raised:
                await mine
            assert not raised.value.reported
            await asyncio.sleep(2 * GRACE_S)
            assert len(told.errors) == 50

    run(scenario)


@pytest.mark.parametrize("how", ["await", "task"])
def test_a_serializer_that_fails_at_once_is_told_to_the_task_that_waits_alone(how: str) -> None:
    """The record failed before its task had taken its first step, or, where tasks are eager, within `send`."""

    async def broken(topic: str, headers: object, data: object) -> bytes:
        raise ValueError("no")

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, value_serializer=broken, on_delivery_error=told) as (_, producer):
            delivery = producer.send("t", b"0")
            with pytest.raises(SerializationError):
                await (delivery if how == "await" else asyncio.create_task(delivery.wait()))
            await asyncio.sleep(2 * GRACE_S)
            assert told.errors == []
            producer.send("t", b"1")
            await asyncio.sleep(1 + GRACE_S)
            assert told.kinds == ["SerializationError"]

    for seed in range(8):  # the seed orders what is ready in one turn of the loop
        run(scenario, seed)


@pytest.mark.parametrize(
    ("options", "timeout", "error"), [({"max_block_ms": 0}, None, UnknownTopicError), ({}, 1e-9, SendTimeoutError)]
)
def test_a_time_that_is_over_at_once_is_told_to_the_task_that_waits_alone(
    options: dict[str, int], timeout: float | None, error: type[AiokprodError]
) -> None:
    """The record failed before the task made of `wait()` had taken its first step."""

    async def scenario() -> None:  # on the real loop: uvloop orders timers that are due in its own way
        told = Told()
        async with MockCluster(brokers=1, auto_create_topics=False) as cluster:
            more: Any = options | {"on_delivery_error": told}
            async with Producer(cluster.bootstrap_servers, **more) as producer:
                for _ in range(5):
                    delivery = producer.send("unknown", b"0", timeout=timeout)
                    with pytest.raises(error):
                        await asyncio.create_task(delivery.wait())
                await producer.flush()
        assert told.errors == []

    asyncio.run(scenario())


def test_what_had_failed_when_a_send_many_is_cancelled_is_told_too_and_nothing_twice() -> None:
    """Half of its records have failed by then, and the others fail later."""

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **QUICK) as (cluster, producer):
            cluster.refuse_connections(1)

            async def source() -> AsyncIterator[bytes]:
                for number in range(10):
                    yield b"%d" % number
                await asyncio.sleep(1.5)
                for number in range(10, 20):
                    yield b"%d" % number
                await asyncio.sleep(1_000)

            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send_many("t", source()), 2.5)
            await asyncio.sleep(0)
            assert told.kinds == ["DeliveryTimeoutError"] * 10
            await asyncio.sleep(5 + GRACE_S)
            assert told.kinds == ["DeliveryTimeoutError"] * 20
            assert producer.metrics()["records_failed"] == 20

    run(scenario)


def test_a_send_many_keeps_to_its_timeout_and_tells_it_to_its_caller_alone() -> None:
    """The records are stamped, and the broker answers after 20 s."""

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            loop = asyncio.get_running_loop()
            began = loop.time()
            loop.call_later(20, cluster.release, held)
            with pytest.raises(SendManyError) as raised:
                await producer.send_many("t", [b"%d" % number for number in range(100)], timeout=1.0)
            assert 1.0 <= loop.time() - began < 1.1
            report = raised.value.report
            assert [(number, type(error), error.persistence) for number, error in report.failures] == [
                (number, SendTimeoutError, Persistence.POSSIBLY_PERSISTED) for number in range(100)
            ]
            assert report.delivered == 0
            await asyncio.sleep(30)
            assert len(cluster.records("t")) == 101
            assert told.errors == []

    run(scenario)


def test_a_send_many_with_a_timeout_reports_offsets_and_which_records_were_too_late() -> None:
    """The first batch is answered in time."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, batch_size=1_000, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce", nth=2)
            asyncio.get_running_loop().call_later(20, cluster.release, held)
            with pytest.raises(SendManyError) as raised:
                await producer.send_many("t", [b"x" * 100 for _ in range(30)], timeout=1.0)
            report: SendReport = raised.value.report
            assert report.delivered + len(report.failures) == 30
            assert 0 < report.delivered < 30
            assert [number for number, _ in report.failures] == list(range(report.delivered, 30))
            assert report.offsets == {("t", 0): (1, report.delivered)}

    run(scenario)


def test_a_record_whose_send_timed_out_is_not_told_a_second_time_when_it_fails() -> None:
    """The record was stamped when its timeout ended."""

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **QUICK) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.hold("Produce")
            producer.send("t", b"1", timeout=0.5)
            producer.send("t", b"2")
            await asyncio.sleep(5 + GRACE_S)
            assert [(type(error), error.persistence) for error in told.errors] == [
                (SendTimeoutError, Persistence.POSSIBLY_PERSISTED),
                (DeliveryTimeoutError, Persistence.POSSIBLY_PERSISTED),  # of the other one
            ]
            assert producer.metrics()["records_failed"] == 2

    run(scenario)


def test_a_send_timeout_inside_a_send_many_that_is_cancelled_is_told_once() -> None:
    """The record was stamped, and the call that would have reported it is gone."""

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **QUICK | {"delivery_timeout_ms": 20_000}) as (
            cluster,
            producer,
        ):
            await producer.send("t", b"0")
            cluster.hold("Produce")
            records = [Record(value=b"1", timeout=1.0), Record(value=b"2", timeout=100.0), Record(value=b"3")]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send_many("t", records), 5)
            await asyncio.sleep(0.1)  # eager tasks need another turn
            assert told.kinds == ["SendTimeoutError"]
            await asyncio.sleep(100)
            assert told.kinds == ["SendTimeoutError", "DeliveryTimeoutError", "DeliveryTimeoutError"]
            assert producer.metrics()["records_failed"] == 3

    run(scenario)


# ---------------------------------------------------------------------- what is kept for callers, at the end of a loop
def test_a_hook_that_ends_the_program_when_a_close_begins_ends_the_loop_not_the_close() -> None:
    told = Told()

    def hook(error: AiokprodError) -> None:
        told(error)
        if len(told.errors) == 1:
            raise SystemExit(3)

    async def scenario() -> None:
        memory.fail_next(BrokerRejectedError("no"), times=3)
        for _ in range(3):
            memory.send("t", b"v")
        await memory.flush()
        await memory.close()

    async def begin() -> None:
        await memory.start()

    memory = MemoryProducer(on_delivery_error=hook)
    with asyncio.Runner() as runner:
        runner.run(begin())
        with pytest.raises(SystemExit, match="3"):
            runner.run(scenario())
        assert len(told.errors) == 3
        assert runner.run(memory.close()).is_clean


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_the_end_of_the_loop_without_a_close_ends_the_time_of_the_caller(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop whose tasks are cancelled at its end, and one that is only closed: the producer notices it when it is closed."""
    told = Told()
    producer = MemoryProducer(on_delivery_error=told, keep_failed_records=True)

    async def scenario() -> Delivery:
        await producer.start()
        producer.fail_next(BrokerRejectedError("no"))
        delivery = producer.send("t", b"v")
        await producer.flush()
        assert told.errors == []
        return delivery

    if how == "cancelled":
        delivery = asyncio.run(scenario())
        assert told.given() == [b"v"]
    else:
        loop = asyncio.new_event_loop()
        delivery = loop.run_until_complete(scenario())
        for task in asyncio.all_tasks(loop):  # what is not closed with its loop warns when it is freed
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        assert told.errors == []
    with pytest.warns(ResourceWarning, match="was not closed before its event loop was"):
        asyncio.run(producer.close())
    assert told.given() == [b"v"] and lost(caplog) == 1
    error = delivery.exception()
    assert error is not None and error.reported
