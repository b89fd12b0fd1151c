"""Room in the buffer: what fits is taken, what waits lingers no longer, and what can never fit is refused."""

from __future__ import annotations

import asyncio

import pytest
from virtual_rig import kinds, log, outcomes, room, run, started, waits_for

from aiokprod import Record
from aiokprod.errors import BufferFullError, RecordTooLargeError
from aiokprod.explanation import WaitsFor
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES
from aiokprod.records.batch import record_size_bound
from aiokprod.testing.virtual import VirtualNetwork

LINGER_MS = 20_000


# ---------------------------------------------------------------------- one record
def test_try_send_takes_what_fits_and_nothing_else() -> None:
    """The buffer was not entirely full, so a record that did not fit was put in the line."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **room(10_000)) as (cluster, producer):
            held = cluster.hold("Produce")
            first = producer.send("t", b"x" * 6_000)
            with pytest.raises(BufferFullError):
                producer.try_send("t", b"y" * 6_000)
            second = producer.try_send("t", b"z" * 2_000)
            assert producer.metrics()["buffer_waiting_records"] == 0
            with pytest.raises(BufferFullError):
                producer.try_send("unknown", b"y" * 6_000)
            waiting = producer.send("t", b"y" * 6_000)  # after a refusal `send` still waits
            assert waits_for(waiting) is WaitsFor.ROOM
            with pytest.raises(BufferFullError):
                producer.try_send("t", b"1")  # there is room for it, and an earlier one waits
            cluster.release(held)
            assert set(kinds(await outcomes([first, second, waiting]))) == {"RecordMetadata"}
            assert [(value or b"")[:1] for value in log(cluster)] == [b"x", b"z", b"y"]

    run(scenario)


def test_a_record_that_can_never_have_room_is_refused_for_its_size() -> None:
    """The refusal was "retriable", or stood at the head of the line for max_block_ms before an empty buffer."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **room(10_000, max_waiting_bytes=1_000_000)) as (cluster, producer):
            most = 10_000 - RECORD_OVERHEAD_BYTES
            length = next(n for n in range(most, 0, -1) if record_size_bound(-1, n, 0) <= most)
            for longer in (1, 50):
                with pytest.raises(RecordTooLargeError, match="buffer_memory is 10000") as raised:
                    producer.send("t", b"x" * (length + longer))
                assert not raised.value.retriable
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert kinds(await outcomes([producer.send("t", b"x" * length)])) == ["RecordMetadata"]
            assert loop.time() - began < 1
            assert producer.health().buffered_bytes == 0
            assert len(log(cluster)) == 1

    run(scenario)


def test_send_many_waits_for_room_however_little_may_wait() -> None:
    """92 of these 100 records were refused."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **room(10_000, max_waiting_bytes=0)) as (_, producer):
            report = await producer.send_many("t", [b"x" * 1_000] * 100)
            assert (report.delivered, report.failures) == (100, [])
            with pytest.raises(BufferFullError):
                for _ in range(100):
                    producer.send("t", b"x" * 1_000)
            await producer.flush()
            assert producer.health().buffered_bytes == 0

    run(scenario)


# ---------------------------------------------------------------------- linger
def test_a_flush_cuts_the_linger_of_a_record_short_that_waited_for_room_when_it_began() -> None:
    """The batch is opened by an acknowledgement of another partition, later than the flush."""

    async def scenario(network: VirtualNetwork) -> None:
        loop = asyncio.get_running_loop()
        async with started(network, partitions=2, linger_ms=LINGER_MS, **room(20_000)) as (_, producer):
            deliveries = [producer.send("t", b"x" * 500, partition=0) for _ in range(31)]
            last = producer.send("t", b"y" * 500, partition=1)
            assert waits_for(last) is WaitsFor.ROOM
            began = loop.time()
            await producer.flush()
            assert loop.time() - began < 1
            assert all(delivery.done() for delivery in [*deliveries, last])

    run(scenario)


def test_a_flush_cuts_the_linger_of_a_record_short_that_waited_for_its_partition_when_it_began() -> None:
    """Metadata opens its batch, later than the flush."""

    async def scenario(network: VirtualNetwork) -> None:
        loop = asyncio.get_running_loop()
        async with started(network, partitions=2, linger_ms=LINGER_MS, **room(20_000)) as (cluster, producer):
            await producer.send_many("t", [Record(value=b"0", partition=number) for number in range(2)])
            held = cluster.hold("Metadata")
            waiting = producer.send("t", b"old", partition=2)
            assert waits_for(waiting) is WaitsFor.PARTITION
            cluster.add_partitions("t", 3)
            began = loop.time()
            flush = asyncio.create_task(producer.flush())
            await asyncio.sleep(0.1)
            cluster.release(held)
            await flush
            assert loop.time() - began < 1
            assert waiting.done()

    run(scenario)


@pytest.mark.parametrize("many", [False, True])
def test_nothing_lingers_while_records_wait_for_room(many: bool) -> None:
    """Only those batches hurried that were open when the first record began to wait."""

    async def scenario(network: VirtualNetwork) -> None:
        loop = asyncio.get_running_loop()
        options = room(20_000, batch_size=16_000, max_waiting_bytes=10_000_000)
        async with started(network, partitions=20, linger_ms=LINGER_MS, **options) as (_, producer):
            began = loop.time()
            if many:
                await producer.send_many("t", [Record(value=b"x" * 500, partition=n % 20) for n in range(600)])
                assert loop.time() - began < 2
            else:
                deliveries = [producer.send("t", b"x" * 500, partition=number % 20) for number in range(600)]
                while producer.metrics()["buffer_waiting_records"]:
                    await asyncio.sleep(0.01)
                assert loop.time() - began < 2
                assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}

    run(scenario)
