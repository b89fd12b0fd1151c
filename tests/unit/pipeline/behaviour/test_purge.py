"""`producer.purge()` lets go of what is in no request yet, says how much that was, and tells no record falsely."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from column_rig import column
from source_points import with_frames_left
from virtual_rig import Told, kinds, log, outcomes, room, run, started, waits_for

from aiokprod import Delivery, Persistence, Producer, ProducerInterceptor, PurgeReport, Record
from aiokprod.errors import (
    AiokprodError,
    InvalidPartitionError,
    InvalidTopicError,
    ProducerClosedError,
    ProducerNotStartedError,
    RecordPurgedError,
    RecordRecalledError,
    RecordTypeError,
    SendColumnsError,
    SendManyError,
    UsageError,
)
from aiokprod.explanation import WaitsFor
from aiokprod.hooks import RecordOutcome
from aiokprod.testing.virtual import VirtualNetwork

ONE_EACH = {"batch_size": 0, "max_in_flight_requests_per_connection": 1}


def error_of(delivery: Delivery) -> RecordPurgedError:
    error = delivery.exception()
    assert isinstance(error, RecordPurgedError) and isinstance(error, RecordRecalledError)
    assert error.persistence is Persistence.NOT_PERSISTED and error.retriable
    return error


def test_what_is_queued_fails_and_what_was_written_goes_on_to_its_outcome() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **ONE_EACH) as (cluster, producer):
            held = cluster.hold("Produce")
            written = producer.send("t", b"written")
            queued = [producer.send("t", b"%d" % number) for number in range(5)]
            await asyncio.sleep(1)
            assert producer.purge() == PurgeReport(purged=5, in_flight=1)
            assert not written.done() and producer.health().buffered_bytes < 200
            for delivery in queued:
                error = error_of(delivery)
                assert (error.topic, error.partition, delivery.attempts) == ("t", 0, 0)
            assert producer.purge() == PurgeReport(purged=0, in_flight=1)
            cluster.release(held)
            assert (await written).offset == 0
            assert (await producer.send("t", b"later")).offset == 1  # its number follows that of the first
            assert log(cluster) == [b"written", b"later"]
            assert producer.purge() == PurgeReport(purged=0, in_flight=0)
            assert producer.error_metrics()["RecordPurgedError"]["records_failed"] == 5

    run(scenario)


def test_a_batch_that_may_be_in_the_log_is_not_purged_while_it_waits_to_be_sent_again() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000) as (cluster, producer):
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", after_append=True)
            doubtful = producer.send("t", b"doubtful")
            await asyncio.sleep(1)
            behind = producer.send("t", b"behind")
            assert waits_for(doubtful) is WaitsFor.BACKOFF
            assert producer.purge("t") == PurgeReport(purged=1, in_flight=1)
            error_of(behind)
            assert (await doubtful).offset == 0
            await producer.send("t", b"later")
            assert log(cluster) == [b"doubtful", b"later"]

    run(scenario)


def test_the_open_batch_is_let_go_and_the_next_record_opens_another() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=60_000) as (cluster, producer):
            kept = producer.send("t", b"kept")
            first = [producer.send("t", b"%d" % number) for number in range(3)]
            assert first[0].recall() and kept.recall()
            assert producer.purge().purged == 2
            again = producer.send("t", b"again")
            await producer.flush()
            assert again.done() and log(cluster) == [b"again"]

    run(scenario)


@pytest.mark.parametrize(
    ("topic", "partition", "left"),
    [
        (None, None, set[str]()),
        ("t", None, {"u0", "unknown", "unknown1"}),
        ("t", 1, {"t0", "u0", "unknown", "unknown1"}),
        ("u", 0, {"t0", "t1", "unknown", "unknown1"}),
        ("unknown", None, {"t0", "t1", "u0"}),
        ("unknown", 1, {"t0", "t1", "u0", "unknown"}),
        ("nothing", None, {"t0", "t1", "u0", "unknown", "unknown1"}),
    ],
)
def test_a_topic_or_a_partition_is_let_go_alone(topic: str | None, partition: int | None, left: set[str]) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=2, linger_ms=60_000) as (cluster, producer):
            cluster.create_topic("u", partitions=1)
            await producer.partitions_for("u")
            deliveries = {
                "t0": producer.send("t", b"v", partition=0),
                "t1": producer.send("t", b"v", partition=1),
                "u0": producer.send("u", b"v"),
                "unknown": producer.send("unknown", b"v"),
                "unknown1": producer.send("unknown", b"v", partition=1),
            }
            assert producer.purge(topic, partition) == PurgeReport(purged=5 - len(left), in_flight=0)
            assert {name for name, each in deliveries.items() if not each.done()} == left
            cluster.create_topic("unknown", partitions=2)
            await producer.flush()
            for name, delivery in deliveries.items():
                if name in left:
                    assert delivery.result().offset == 0
                else:
                    assert error_of(delivery).topic == name.strip("01")

    run(scenario)


def test_records_that_wait_for_room_or_a_serializer_are_let_go_and_none_of_them_gets_the_room() -> None:
    going = asyncio.Event()

    async def late(data: bytes) -> bytes:
        await going.wait()
        return data

    def serialize(topic: str, headers: object, data: bytes) -> object:
        return late(data) if topic == "u" else data

    async def scenario(network: VirtualNetwork) -> None:
        options = room(2_000, max_waiting_bytes=100_000, linger_ms=60_000, value_serializer=serialize)
        async with started(network, **options) as (cluster, producer):
            cluster.create_topic("u", partitions=1)
            await producer.partitions_for("u")
            held = cluster.hold("Produce")
            serialized = producer.send("u", b"s")
            filling = [producer.send("t", b"x" * 500) for _ in range(20)]
            assert waits_for(serialized) is WaitsFor.SERIALIZER and waits_for(filling[-1]) is WaitsFor.ROOM
            await asyncio.sleep(1)
            report = producer.purge()
            assert report.purged + report.in_flight == 21 and 0 < report.in_flight < 5
            assert sum(delivery.done() for delivery in [serialized, *filling]) == report.purged
            going.set()
            cluster.release(held)
            await producer.flush()
            assert len(log(cluster)) == report.in_flight and not cluster.records("u")
            assert producer.health().buffered_bytes == 0

    run(scenario)


def test_a_record_of_another_topic_that_waits_for_room_gets_it() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **room(2_000, max_waiting_bytes=100_000, linger_ms=60_000)) as (cluster, producer):
            cluster.create_topic("u", partitions=1)
            await producer.partitions_for("u")
            held = cluster.hold("Produce")
            filling = [producer.send("t", b"x" * 500) for _ in range(20)]
            other = producer.send("u", b"other")
            waiting = asyncio.create_task(producer.ready())
            await asyncio.sleep(1)
            assert waits_for(other) is WaitsFor.ROOM and not waiting.done()
            report = producer.purge("t")
            assert sum(delivery.done() for delivery in filling) == report.purged
            cluster.release(held)
            await waiting
            assert (await other).offset == 0

    run(scenario)


def test_flush_and_calls_with_many_records_end_and_say_what_was_let_go() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, batch_size=200, max_in_flight_requests_per_connection=1) as (cluster, producer):
            held = cluster.hold("Produce")
            values = [b"%05d" % number * 10 for number in range(30)]
            many = asyncio.create_task(producer.send_many("t", values))
            columns = asyncio.create_task(producer.send_columns("t", column(values)))
            await asyncio.sleep(1)
            flush = asyncio.create_task(producer.flush())
            await asyncio.sleep(1)
            report = producer.purge()
            assert report.purged + report.in_flight == 60
            cluster.release(held)
            await flush
            with pytest.raises(SendManyError) as of_many:
                await many
            with pytest.raises(SendColumnsError) as of_columns:
                await columns
            failures = of_many.value.report.failures
            assert {type(error) for _, error in failures} == {RecordPurgedError}
            assert len(failures) + of_columns.value.report.failed == report.purged
            assert of_columns.value.report.possibly_persisted == 0
            assert len(log(cluster)) == report.in_flight

    run(scenario)


def test_a_batch_that_a_thread_compresses_is_let_go_and_what_comes_next_is_sent() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options: dict[str, Any] = {"compression_type": "gzip", "batch_size": 400_000, "linger_ms": 0}
        async with started(network, **options) as (cluster, producer):
            await producer.send("t", b"x" * 1_000)
            packed = [producer.send("t", b"x" * 1_000) for _ in range(300)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert waits_for(packed[0]) is WaitsFor.COMPRESSION
            assert producer.purge() == PurgeReport(purged=300, in_flight=0)
            later = [producer.send("t", b"y" * 1_000) for _ in range(300)]
            assert set(kinds(await outcomes(later))) == {"RecordMetadata"}
            assert log(cluster)[1:] == [b"y" * 1_000] * 300
            assert all(error_of(delivery) for delivery in packed)

    run(scenario)


# ---------------------------------------------------------------------- outcomes, and what hears of them
class Seen(ProducerInterceptor):
    """The outcomes that an interceptor is told of."""

    def __init__(self) -> None:
        self.errors: list[AiokprodError | None] = []

    def on_record_settled(self, record: Record, outcome: RecordOutcome) -> None:
        self.errors.append(outcome.error)


def test_the_caller_of_purge_and_what_awaits_a_record_hear_of_it_and_on_delivery_error_does_not() -> None:
    told, seen, called = Told(), Seen(), list[Delivery]()

    async def scenario(network: VirtualNetwork) -> None:
        options: dict[str, Any] = {"linger_ms": 60_000, "on_delivery_error": told, "interceptors": [seen]}
        async with started(network, **options) as (_, producer):
            awaited = asyncio.create_task(producer.send("t", b"awaited").wait())
            called_back, dropped = producer.send("t", b"called"), producer.send("t", b"dropped", timeout=5.0)
            parked = producer.send("unknown", b"parked")
            called_back.add_done_callback(called.append)
            await asyncio.sleep(0.001)
            assert producer.purge().purged == 4
            with pytest.raises(RecordPurgedError):
                await awaited
            await asyncio.sleep(60)
            assert called == [called_back] and not told.errors
            assert [type(error) for error in seen.errors] == [RecordPurgedError] * 4
            assert error_of(dropped).reported is False and error_of(parked).topic == "unknown"

    run(scenario)


# ---------------------------------------------------------------------- where it is called
def test_a_callback_and_a_hook_of_failures_may_purge() -> None:
    """The room and the flush of what is let go belong to the call, also where it is an effect of another failure."""
    reports: list[PurgeReport] = []

    async def scenario(network: VirtualNetwork) -> None:
        producer: Producer

        def failed(error: AiokprodError) -> None:
            reports.append(producer.purge())

        async with started(network, **ONE_EACH, on_delivery_error=failed) as (cluster, producer):
            held = cluster.hold("Produce")
            first = producer.send("t", b"0")
            first.add_done_callback(lambda _: reports.append(producer.purge()))
            queued = [producer.send("t", b"%d" % number) for number in range(1, 4)]
            await asyncio.sleep(0.1)
            cluster.release(held)
            assert kinds(await outcomes([first, *queued])).count("RecordPurgedError") == reports[0].purged == 2
            cluster.fail_next("Produce", "INVALID_RECORD")
            dropped = producer.send("t", b"dropped")
            await asyncio.sleep(1)
            held = cluster.hold("Produce")
            more = [producer.send("t", b"m%d" % number) for number in range(4)]
            await asyncio.sleep(10)  # the failure is reported now
            cluster.release(held)
            await outcomes(more)
            assert dropped.done() and reports == [
                PurgeReport(purged=2, in_flight=1),
                PurgeReport(purged=3, in_flight=1),
            ]
            assert log(cluster) == [b"0", b"1", b"m0"]

    run(scenario)


def test_code_that_interrupts_the_producer_is_refused_and_nothing_is_purged() -> None:
    refused: list[UsageError] = []

    async def scenario(network: VirtualNetwork) -> None:
        producer: Producer

        def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
            if key == b"purges":
                try:
                    producer.purge()
                except UsageError as error:
                    refused.append(error)
            return 0

        async with started(network, partitioner=choose) as (cluster, producer):
            cluster.create_topic("later", partitions=1)
            parked = [producer.send("later", b"v", b"purges"), producer.send("later", b"w")]
            results = await outcomes(parked)
            assert kinds(results) == ["RecordMetadata"] * 2
            assert len(refused) == 1 and "call_soon" in str(refused[0])

    run(scenario)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda producer: producer.purge(partition=0), UsageError),
        (lambda producer: producer.purge("no topic"), InvalidTopicError),
        (lambda producer: producer.purge(7), RecordTypeError),
        (lambda producer: producer.purge("t", -1), InvalidPartitionError),
        (lambda producer: producer.purge("t", "0"), RecordTypeError),
    ],
)
def test_wrong_arguments_are_refused_and_nothing_is_purged(
    call: Callable[[Producer], object], expected: type[AiokprodError]
) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=60_000) as (_, producer):
            delivery = producer.send("t", b"v")
            with pytest.raises(expected):
                call(producer)
            assert not delivery.done()

    run(scenario)


def test_a_producer_that_is_not_open_purges_nothing() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        with pytest.raises(ProducerNotStartedError):
            Producer("localhost:9092").purge()
        async with started(network) as (_, producer):
            pass
        with pytest.raises(ProducerClosedError):
            producer.purge()

    run(scenario)


# ---------------------------------------------------------------------- exactly once
def test_a_purge_so_deep_in_the_stack_that_no_call_is_left_leaves_no_record_without_an_outcome() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        for frames in range(1, 60):
            async with started(network, linger_ms=5) as (cluster, producer):
                deliveries = [producer.send("t", b"%d" % number) for number in range(3)]
                deliveries.append(producer.send("unknown", b"-"))
                try:
                    with_frames_left(frames, producer.purge)
                except RecursionError:
                    pass  # the producer may have failed, and says so
                cluster.create_topic("unknown", partitions=1)
                results = await outcomes(deliveries)
                there = {record.value for topic in ("t", "unknown") for record in cluster.records(topic)}
                for value, result in zip((b"0", b"1", b"2", b"-"), results, strict=True):
                    if not isinstance(result, AiokprodError):
                        assert value in there, f"{frames} frames"
                    elif result.persistence is Persistence.NOT_PERSISTED:
                        assert value not in there, f"{frames} frames"

    run(scenario)
