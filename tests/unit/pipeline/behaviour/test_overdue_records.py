"""Records whose time to wait is over: each fails once, and what follows from the first does not reach the others."""

from __future__ import annotations

import asyncio
import logging
from array import array

import pytest
from virtual_rig import kinds, log, outcomes, room, run, started, waits_for

from aiokprod import BytesColumn, Delivery, Producer, SendColumnsError
from aiokprod.errors import AiokprodError
from aiokprod.explanation import Place, WaitsFor
from aiokprod.model import ProducerState
from aiokprod.testing.virtual import VirtualNetwork


def test_a_record_that_is_overdue_is_not_admitted_by_the_room_of_another_one_that_is() -> None:
    """The first gives up its place in the line, the second would fit, and both are out of time: it was passed on and then
    failed, its flush was finished twice, and the producer failed with that."""

    async def scenario(network: VirtualNetwork) -> None:
        options = room(10_000, max_waiting_bytes=100_000, max_block_ms=1_000, linger_ms=0)
        async with started(network, **options) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            fill = producer.send("t", b"f" * 8_000)
            await asyncio.sleep(0.1)
            overdue = [producer.send("t", b"x" * size) for size in (5_000, 100, 100)]
            assert {waits_for(delivery) for delivery in overdue} == {WaitsFor.ROOM}
            await asyncio.sleep(0.5)
            in_time = producer.send("t", b"y" * 100)
            await asyncio.sleep(0.7)
            assert kinds(await outcomes(overdue)) == ["BufferFullError"] * 3
            assert in_time.explain().place is Place.OPEN_BATCH  # there is room for it
            cluster.release(held)
            assert kinds(await outcomes([fill, in_time])) == ["RecordMetadata"] * 2
            assert log(cluster) == [b"0", b"f" * 8_000, b"y" * 100]
            await producer.flush()
            assert producer.health().state is ProducerState.READY
            assert producer.health().buffered_bytes == 0
            metrics = producer.metrics()
            assert (metrics["records_failed"], metrics["records_delivered"]) == (3, 3)

    run(scenario)


def test_a_record_behind_columns_that_were_taken_later_is_told_at_its_own_time() -> None:
    """Their time begins when there is room for them, and its time began when it was sent: it is due before them."""

    async def scenario(network: VirtualNetwork) -> None:
        options = room(
            10_000, max_waiting_bytes=100_000, delivery_timeout_ms=10_000, request_timeout_ms=5_000, linger_ms=0
        )
        async with started(network, **options) as (cluster, producer):
            await producer.send("t", b"0")
            loop = asyncio.get_running_loop()
            cluster.refuse_connections(1)
            cluster.close_connections()
            began = loop.time()
            first = producer.send("t", b"f" * 5_000)
            await asyncio.sleep(1.0)
            second = producer.send("t", b"s" * 4_000)
            await asyncio.sleep(1.0)
            rows = BytesColumn(array("i", range(0, 1_001, 100)), b"c" * 1_000)
            columns = asyncio.create_task(producer.send_columns("t", rows))
            await asyncio.sleep(1.0)
            behind = producer.send("t", b"x" * 4_800)
            assert waits_for(behind) is WaitsFor.ROOM
            assert kinds(await outcomes([first, second])) == ["DeliveryTimeoutError"] * 2
            await asyncio.sleep(0.1)
            assert behind.explain().place is Place.OPEN_BATCH
            assert kinds(await outcomes([behind])) == ["DeliveryTimeoutError"]
            assert loop.time() - began < 13.1, "it was sent three seconds after the first"
            assert not columns.done()
            with pytest.raises(SendColumnsError):
                await columns
            assert 19.9 < loop.time() - began < 20.1, "they had room when the first had failed"

    run(scenario)


class SendsAgain(logging.Handler):
    """A log handler that sends what it is told of, once."""

    def __init__(self, producer: Producer) -> None:
        super().__init__()
        self.producer = producer
        self.deliveries: list[Delivery] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not self.deliveries:
            self.deliveries.append(self.producer.send("nowhere", b"log"))


def test_a_log_handler_that_sends_does_not_make_others_wait_longer() -> None:
    """The handler's record waits for the same topic, and its deadline is later than that of the next one in the queue."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, max_block_ms=10_000) as (_, producer):
            loop = asyncio.get_running_loop()
            handler = SendsAgain(producer)
            began = loop.time()
            first = producer.send("nowhere", b"1")
            await asyncio.sleep(1)
            second = producer.send("nowhere", b"2")
            second_is_over: list[float] = []
            second.add_done_callback(lambda _: second_is_over.append(loop.time() - began))
            await asyncio.sleep(7)
            logger = logging.getLogger("aiokprod")
            logger.addHandler(handler)
            try:
                await asyncio.sleep(60)
            finally:
                logger.removeHandler(handler)
            assert len(handler.deliveries) == 1
            assert kinds(await outcomes([first, second, *handler.deliveries])) == ["UnknownTopicError"] * 3
            assert 11.0 <= second_is_over[0] < 11.1

    run(scenario)


def test_an_outage_longer_than_the_delivery_timeout_loses_no_record_with_half_of_its_time_left() -> (
    None
):  # ledger: R8.6
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=5, delivery_timeout_ms=120_000) as (cluster, producer):
            await producer.send("t", b"v")
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            sent: list[Delivery] = []
            for number in range(150):
                sent.append(producer.send("t", b"%d" % number))
                await asyncio.sleep(1)
            refusing.cancel()
            results = await outcomes(sent)
            failed = [number for number, result in enumerate(results) if isinstance(result, AiokprodError)]
            assert failed == list(range(61)), "the first one was sent alone; the others up to half of the time, as one"
            assert log(cluster) == [b"v", *(b"%d" % number for number in range(61, 150))]

    run(scenario)
