"""`create_batch` and `send_batch`: a batch that the program fills is written to its partition as one batch, in its turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from source_points import with_frames_left
from virtual_rig import kinds, log, outcomes, room, run, started, waits_for

from aiokprod import Delivery, Persistence, Producer, ProducerInterceptor, PurgeReport, RecordBatch, RecordMetadata
from aiokprod.errors import (
    AiokprodError,
    ConfigError,
    InvalidPartitionError,
    InvalidTopicError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerNotStartedError,
    RecordTypeError,
    UnknownTopicError,
    UsageError,
)
from aiokprod.explanation import WaitsFor
from aiokprod.testing import MemoryProducer
from aiokprod.testing.virtual import VirtualNetwork


def filled(producer: Producer, *values: bytes, partition: int = 0, **options: Any) -> RecordBatch:
    batch = producer.create_batch("t", partition, **options)
    for value in values:
        assert batch.append(value)
    return batch


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, first + count)]


def test_its_records_are_one_batch_behind_what_was_sent_before_and_each_has_its_outcome() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=2, linger_ms=1_000) as (cluster, producer):
            before = producer.send("t", b"before", partition=1)
            batch = producer.create_batch("t", 1)
            assert batch.append(b"a", b"key", headers={"h": b"1"}, timestamp_ms=77) and batch.append(None)
            deliveries = await producer.send_batch(batch)
            after = producer.send("t", b"after", partition=1)
            assert batch.closed and not batch.append(b"late")
            results = await outcomes([before, *deliveries, after])
            assert [each.offset for each in results if isinstance(each, RecordMetadata)] == [0, 1, 2, 3]
            assert log(cluster, 1) == [b"before", b"a", None, b"after"]
            record = cluster.records("t", 1)[1]
            assert (record.key, record.timestamp_ms, list(record.headers)) == (b"key", 77, [("h", b"1")])
            metadata = deliveries[0].result()
            assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 1)

    run(scenario)


def test_batches_and_single_records_do_not_mix_and_their_numbers_follow_each_other() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, compression_type="gzip") as (cluster, producer):
            sent: list[Delivery] = []
            expected: list[bytes] = []
            for number in range(20):
                values = numbered(10 * number, 9)
                sent += await producer.send_batch(filled(producer, *values))
                single = b"%04d" % (10 * number + 9)
                sent.append(producer.send("t", single))
                expected += [*values, single]
            cluster.drop_answer("Produce")
            assert set(kinds(await outcomes(sent))) == {"RecordMetadata"}
            assert log(cluster) == expected
            assert producer.metrics()["batches_sent"] >= 40

    run(scenario)


def test_one_request_carries_the_whole_batch_also_if_it_is_larger_than_batch_size() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, batch_size=200) as (_, producer):
            deliveries = await producer.send_batch(filled(producer, *numbered(0, 500), size=100_000))
            await outcomes(deliveries)
            assert producer.metrics()["batches_sent"] == 1

    run(scenario)


def test_it_waits_for_room_in_the_line_and_a_cancelled_call_takes_nothing() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options = room(3_000, max_waiting_bytes=100_000, linger_ms=0)
        async with started(network, **options) as (cluster, producer):
            held = cluster.hold("Produce")
            first = [producer.send("t", b"x" * 500) for _ in range(5)]
            given_up, batch = filled(producer, b"given up"), filled(producer, b"batch", b"y" * 400)
            cancelled = asyncio.create_task(producer.send_batch(given_up))
            placed = asyncio.create_task(producer.send_batch(batch))
            await asyncio.sleep(1)
            behind = producer.send("t", b"behind")
            assert waits_for(behind) is WaitsFor.ROOM and not placed.done()
            cancelled.cancel()
            cluster.release(held)
            deliveries = await placed
            assert set(kinds(await outcomes([*first, *deliveries, behind]))) == {"RecordMetadata"}
            places = [log(cluster).index(value) for value in (b"batch", b"y" * 400, b"behind")]
            assert places[1] == places[0] + 1 and min(places) == 5
            again = await producer.send_batch(given_up)
            await outcomes(again)
            assert log(cluster)[-1] == b"given up" and producer.health().buffered_bytes == 0

    run(scenario)


def test_a_topic_that_is_new_is_waited_for_and_one_that_is_missing_is_told() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, max_block_ms=2_000) as (cluster, producer):
            batch = producer.create_batch("later", 0)
            batch.append(b"v")
            placed = asyncio.create_task(producer.send_batch(batch))
            await asyncio.sleep(0.5)
            cluster.create_topic("later", partitions=1)
            assert [(await each).offset for each in await placed] == [0]
            missing = producer.create_batch("missing", 0)
            missing.append(b"v")
            with pytest.raises(UnknownTopicError):
                await producer.send_batch(missing)
            outside = filled(producer, b"v", partition=7)
            with pytest.raises(PartitionOutOfRangeError) as told:
                await producer.send_batch(outside)
            assert told.value.persistence is Persistence.NOT_PERSISTED
            cluster.add_partitions("t", 8)
            producer_knows = asyncio.create_task(producer.send("t", b"v", partition=7).wait())
            await producer_knows
            assert len(await producer.send_batch(outside)) == 1

    run(scenario)


def test_a_broker_for_which_it_is_too_large_gets_it_in_parts() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            cluster.fail_next("Produce", "MESSAGE_TOO_LARGE")
            deliveries = await producer.send_batch(filled(producer, *numbered(0, 64)))
            assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}
            assert log(cluster) == numbered(0, 64)

    run(scenario)


def test_a_batch_that_waits_can_be_purged_recalled_and_flushed() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=60_000, max_in_flight_requests_per_connection=1) as (cluster, producer):
            held = cluster.hold("Produce")
            first = producer.send("t", b"first")
            flushed = asyncio.create_task(producer.flush())
            await asyncio.sleep(1)
            one = await producer.send_batch(filled(producer, b"a", b"b", b"c"))
            assert one[1].recall()
            other = await producer.send_batch(filled(producer, b"d"))
            assert other[0].recall()
            cluster.release(held)
            await flushed
            await producer.flush()
            assert log(cluster) == [b"first", b"a", b"c"] and first.done()
            cluster.hold("Produce")
            producer.send("t", b"in flight")
            await asyncio.sleep(0)
            flushed = asyncio.create_task(producer.flush())
            await asyncio.sleep(1)
            await producer.send_batch(filled(producer, b"e", b"f"))
            assert producer.purge("t", 0) == PurgeReport(purged=2, in_flight=1)
            flushed.cancel()
            await producer.close(0)

    run(scenario)


def test_an_empty_batch_is_no_batch_and_a_batch_is_sent_once() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            assert await producer.send_batch(producer.create_batch("t", 0)) == []
            batch = filled(producer, b"v")
            both = await asyncio.gather(producer.send_batch(batch), producer.send_batch(batch), return_exceptions=True)
            assert [type(each).__name__ for each in both] == ["list", "UsageError"]
            await producer.flush()
            assert log(cluster) == [b"v"]

    run(scenario)


def test_calls_that_are_wrong_are_refused() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            wrong: Any
            for arguments, expected in (
                (("no topic", 0), InvalidTopicError),
                (("t", -1), InvalidPartitionError),
                (("t", None), RecordTypeError),
            ):
                with pytest.raises(expected):
                    producer.create_batch(*arguments)
            for wrong in (0, "5", True):
                with pytest.raises(RecordTypeError, match="size"):
                    producer.create_batch("t", 0, size=wrong)
            wrong = [b"v"]
            with pytest.raises(RecordTypeError, match="create_batch"):
                await producer.send_batch(wrong)
            async with Producer(cluster.bootstrap_servers, dialer=network.dial) as other:
                with pytest.raises(UsageError, match="another producer"):
                    await other.send_batch(filled(producer, b"v"))
            batch = filled(producer, b"v")
        with pytest.raises(ProducerClosedError):
            await producer.send_batch(batch)
        with pytest.raises(ProducerNotStartedError):
            Producer("localhost:9092").create_batch("t", 0)

    run(scenario)


def test_interceptors_that_see_single_records_are_refused_and_serializers_are_called() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        class Sees(ProducerInterceptor):
            def on_send(self, record: Any) -> Any:
                return record

        async with started(network, interceptors=[Sees()]) as (_, producer):
            with pytest.raises(ConfigError, match="interceptors"):
                producer.create_batch("t", 0)
        async with started(network, value_serializer=str.encode) as (cluster, producer):
            batch = producer.create_batch("t", 0)
            batch.append("text")
            await outcomes(await producer.send_batch(batch))
            assert log(cluster) == [b"text"]

    run(scenario)


def test_a_producer_in_memory_takes_batches_and_its_script_reaches_each_record() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MemoryProducer(topics={"t": 1}) as producer:
            producer.fail_next(UnknownTopicError)
            deliveries = await producer.send_batch(filled(producer, b"a", b"b"))
            assert kinds(await outcomes(deliveries)) == ["UnknownTopicError", "RecordMetadata"]
            assert [record.value for record in producer.records] == [b"b"]
            assert producer.health().buffered_bytes == 0

    run(scenario)


def test_a_batch_that_is_taken_so_deep_in_the_stack_that_no_call_is_left_is_taken_whole_or_not_at_all() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        for frames in range(1, 60):
            async with started(network, linger_ms=5) as (cluster, producer):
                single = producer.send("t", b"single")
                call = producer.send_batch(filled(producer, b"a", b"b"))
                taken: list[Delivery] = []
                try:
                    with_frames_left(frames, lambda: call.send(None))  # noqa: B023
                except StopIteration as done:
                    taken = done.value
                except RecursionError:
                    pass
                call.close()
                results = await outcomes([single, *taken])
                await producer.flush()
                if not [each for each in results if isinstance(each, AiokprodError)]:
                    assert log(cluster) in ([b"single"], [b"single", b"a", b"b"]), f"{frames} frames"
                    assert producer.health().buffered_bytes == 0, f"{frames} frames"

    run(scenario)
