"""Records expire while others of their partition wait for the room they take: each settles once, and with the truth."""

from __future__ import annotations

import asyncio

import pytest
from virtual_rig import kinds, log, outcomes, room, run, started, waits_for

from aiokprod import Delivery
from aiokprod.errors import AiokprodError
from aiokprod.explanation import WaitsFor
from aiokprod.model import Persistence
from aiokprod.testing.virtual import VirtualNetwork


def test_the_room_of_an_expired_batch_does_not_let_a_record_into_it() -> None:
    """The record, and all later ones of the partition, would never be sent and never settle."""

    async def scenario(network: VirtualNetwork) -> None:
        options = room(100_000, batch_size=65_536, linger_ms=0, request_timeout_ms=500, delivery_timeout_ms=1_000)
        async with started(network, partitions=2, **options) as (cluster, producer):
            cluster.refuse_connections(1)
            first = producer.send("t", b"1" * 100, partition=1)
            await asyncio.sleep(0.5)
            fill = [producer.send("t", b"x" * size, partition=0) for size in (49_000, 49_000, 1_100)]
            second = producer.send("t", b"2" * 100, partition=1)
            assert waits_for(second) is WaitsFor.ROOM
            await asyncio.sleep(0.6)
            assert isinstance(first.exception(), AiokprodError)
            cluster.allow_connections(1)
            await asyncio.sleep(5)
            later = [producer.send("t", b"%d" % number, partition=1) for number in range(400)]
            results = await outcomes([*fill, second])
            assert set(kinds(results[:3])) == {"DeliveryTimeoutError"}
            assert set(kinds(await outcomes(later))) == {"RecordMetadata"}
            in_log = [] if isinstance(results[3], AiokprodError) else [b"2" * 100]
            assert log(cluster, 1) == in_log + [b"%d" % number for number in range(400)]
            await asyncio.wait_for(producer.flush(), 60)
            assert producer.health().buffered_bytes == 0

    run(scenario)


@pytest.mark.parametrize("back_after_s", [0.0, 1.0])
def test_records_that_have_expired_are_not_sealed_into_a_batch(back_after_s: float) -> None:
    """Told NOT_PERSISTED, and then written; or settled a second time, with the buffer below zero."""

    async def outcome(delivery: Delivery) -> object:
        try:
            return await delivery
        except AiokprodError as error:
            return type(error).__name__, error.persistence

    async def scenario(network: VirtualNetwork) -> None:
        network._latency_s = (0.0001, 0.0002)
        options = room(3_000, batch_size=1_000, linger_ms=0, request_timeout_ms=1_000, delivery_timeout_ms=1_000)
        async with started(network, partitions=2, **options) as (cluster, producer):
            loop = asyncio.get_running_loop()
            await asyncio.sleep(1)
            held = cluster.hold("ApiVersions")  # the leader takes the connection, and is slow
            at = loop.time()
            one = producer.send("t", b"1" * 800, partition=1)  # a batch of its own
            two = [producer.send("t", b"2" * 100, partition=1) for _ in range(2)]
            await asyncio.sleep(0.5)
            three = producer.send("t", b"3" * 100, partition=1)  # in the batch of the two, and due later
            fill = producer.send("t", b"f" * 1_000, partition=0)
            four = producer.send("t", b"4" * 700, partition=1)
            assert waits_for(four) is WaitsFor.ROOM
            waiting = [asyncio.create_task(outcome(delivery)) for delivery in two]
            await asyncio.sleep(at + 1.0003 - loop.time())
            told = [task.result() for task in waiting]
            assert told == [("DeliveryTimeoutError", Persistence.NOT_PERSISTED)] * 2
            await asyncio.sleep(back_after_s)
            cluster.release(held)
            await asyncio.sleep(5)
            assert [await outcome(delivery) for delivery in two] == told
            assert b"2" * 100 not in log(cluster, 1)
            await asyncio.wait_for(producer.flush(), 60)
            settled = await outcomes([one, *two, three, four, fill])
            failed = sum(isinstance(each, Exception) for each in settled)
            metrics = producer.metrics()
            assert (metrics["records_failed"], metrics["records_delivered"]) == (failed, 6 - failed)
            assert len(log(cluster, 0)) + len(log(cluster, 1)) == 6 - failed
            assert producer.health().buffered_bytes == 0

    run(scenario)
