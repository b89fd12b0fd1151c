"""`SendMany`: what became of each record of one `send_many`, without an object for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from rig import run, run_in_virtual_time, started, until, values
from stage_rig import parked

from aiokprod import Persistence, Record
from aiokprod.errors import (
    AiokprodError,
    BrokerRejectedError,
    PartitionerError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    RecordRecalledError,
    RecordTooLargeError,
    RecordTypeError,
    SendManyError,
    UndeliveredAtCloseError,
    UnknownTopicError,
)
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.delivery.unasked_failures import GRACE_S
from aiokprod.pipeline.partition.batch import BatchOwner, ProducerBatch, Segment
from aiokprod.pipeline.partition.send_many import SendMany


class Owner(BatchOwner):
    def __init__(self, partition: int) -> None:
        self.topic = "t"
        self.partition = partition
        self.loop = asyncio.get_running_loop()
        self.urged = 0

    def urge(self, batch: ProducerBatch) -> None:
        self.urged += 1


class Reported:
    """The reports of a call of a failure that nothing waits for."""

    def __init__(self) -> None:
        self.errors: list[tuple[AiokprodError, int]] = []

    def __call__(self, error: AiokprodError, count: int) -> None:
        self.errors.append((error, count))


def batch_of(count: int, partition: int = 0) -> ProducerBatch:
    batch = ProducerBatch(Owner(partition), 0.0, 10.0, 0, 0, 0)
    for number in range(count):
        batch.append(b"%d" % number, None, None, 0, 10, 0.0)
    return batch


def done(first: int, last: int, offset: int) -> Segment:
    return Segment(first, last, offset, -1, None, 1, 0.0)


def failed(first: int, last: int) -> Segment:
    return Segment(first, last, -1, -1, UndeliveredAtCloseError("x"), 1, 0.0)


# ---------------------------------------------------------------------- bookkeeping
@pytest.mark.pure("its owner of batches subclasses BatchOwner")
def test_records_that_followed_each_other_into_a_batch_are_one_span() -> None:
    async def scenario() -> None:
        bulk = SendMany(Reported())
        one, two = batch_of(6, 0), batch_of(2, 1)
        for index in range(3):
            bulk.add(Delivery(one, index), has_timeout=False)
        bulk.add(Delivery(two, 0), has_timeout=False)
        bulk.add(Delivery(one, 3), has_timeout=False)
        bulk.add(Delivery(one, 5), has_timeout=False)  # a record of another call is between
        assert [(span.claim.first, span.claim.last, span.number) for span in bulk.spans] == [
            (0, 3, 0), (0, 1, 3), (3, 4, 4), (5, 6, 5),
        ]  # fmt: skip
        bulk.urge()
        assert isinstance(one.owner, Owner)
        assert one.owner.urged == 1  # one batch, three spans: urged once
        one.settle(done(0, 6, 100))
        two.settle(done(0, 2, 7))
        report = await bulk.settled()
        assert report.delivered == 6
        assert report.offsets == {("t", 0): (100, 105), ("t", 1): (7, 7)}
        assert report.failures == []

    asyncio.run(scenario())


@pytest.mark.pure("its owner of batches subclasses BatchOwner")
def test_failures_carry_the_number_of_their_record_in_the_call() -> None:
    async def scenario() -> None:
        bulk = SendMany(Reported())
        batch = batch_of(5)
        bulk.add(Delivery(batch, 0), has_timeout=False)
        for index in range(1, 5):
            bulk.add(Delivery(batch, index), has_timeout=False)
        bulk.refuse(RecordTooLargeError("too large"))
        batch.settle(failed(2, 4))
        batch.settle(done(0, 2, 10))
        batch.settle(done(4, 5, 12))
        report = await bulk.settled()
        assert [(number, type(error)) for number, error in report.failures] == [
            (2, UndeliveredAtCloseError),
            (3, UndeliveredAtCloseError),
            (5, RecordTooLargeError),
        ]
        assert len({id(error) for _, error in report.failures}) == 3
        assert report.delivered == 3
        assert report.offsets == {("t", 0): (10, 12)}

    asyncio.run(scenario())


@pytest.mark.pure("its owner of batches subclasses BatchOwner")
def test_it_waits_for_what_is_settled_piece_by_piece() -> None:
    async def scenario() -> None:
        bulk = SendMany(Reported())
        batch = batch_of(4)
        for index in range(4):
            bulk.add(Delivery(batch, index), has_timeout=False)
        task = asyncio.create_task(bulk.settled())
        for first, last, offset in ((2, 3, 7), (0, 2, -1), (3, 4, 9)):
            await asyncio.sleep(0)
            assert not task.done()
            batch.settle(done(first, last, offset))
        report = await task
        assert report.delivered == 4
        assert report.offsets == {("t", 0): (7, 9)}  # unknown offsets are never invented

    asyncio.run(scenario())


@pytest.mark.pure("its owner of batches subclasses BatchOwner")
def test_a_parked_record_is_followed_into_its_batch() -> None:
    async def scenario() -> None:
        bulk = SendMany(Reported())
        record, lost = parked(asyncio.get_running_loop()), parked(asyncio.get_running_loop())
        bulk.add(record.delivery, has_timeout=False)
        bulk.add(lost.delivery, has_timeout=False)
        task = asyncio.create_task(bulk.settled())
        await asyncio.sleep(0)
        batch = batch_of(1, 2)
        record.delivery._move_to(batch, 0)
        batch.settle(done(0, 1, 5))
        lost.failure = UnknownTopicError("never")
        lost.delivery._fire()
        report = await task
        assert report.offsets == {("t", 2): (5, 5)}
        assert [(number, type(error)) for number, error in report.failures] == [(1, UnknownTopicError)]

    asyncio.run(scenario())


@pytest.mark.pure("its owner of batches subclasses BatchOwner")
def test_failures_that_the_report_will_tell_are_told_nowhere_else() -> None:
    async def scenario() -> None:
        bulk = SendMany(Reported())
        batch = batch_of(4)
        bulk.add(Delivery(batch, 1), has_timeout=False)
        bulk.add(Delivery(batch, 2), has_timeout=False)
        assert batch.unwatched(failed(0, 4)) == [0, 3]

    asyncio.run(scenario())


# ---------------------------------------------------------------------- through a producer
def test_an_iterable_is_taken_only_as_fast_as_there_is_room() -> None:
    """faults: M15"""

    async def scenario() -> None:
        options = {"buffer_memory": 20_000, "max_request_size": 10_000, "batch_size": 1_000}
        async with started("t", **options) as (cluster, producer):
            await producer.send("t", b"first")
            held = cluster.hold("Produce")
            taken = 0

            def source() -> Iterator[bytes]:
                nonlocal taken
                for number in range(1_000):
                    taken += 1
                    yield b"%04d" % number + b"x" * 100

            task = asyncio.create_task(producer.send_many("t", source()))
            await until(lambda: held.hits >= 1 and producer.health().buffered_bytes > 15_000)
            await asyncio.sleep(0.02)
            assert taken < 200
            assert producer.health().buffered_bytes <= 20_000
            cluster.release(held)
            report = await task
            assert report.delivered == 1_000
            assert report.offsets == {("t", 0): (1, 1_000)}
            assert [value[:4] for value in values(cluster, "t")[1:] if value] == [b"%04d" % n for n in range(1_000)]
            assert producer.health().buffered_bytes == 0

    run_in_virtual_time(scenario())


def test_an_async_iterable_of_records_and_values_may_name_other_topics() -> None:
    async def scenario() -> None:
        async with started("t", "u", partitions=2) as (cluster, producer):

            async def source() -> AsyncIterator[object]:
                yield Record(value=b"a", partition=1)
                await asyncio.sleep(0)
                yield Record(topic="u", value=b"b", key=b"k", headers={"h": b"1"}, partition=0, timestamp_ms=5)
                yield Record(value=b"c", partition=1)

            report = await producer.send_many("t", source())
            assert report.delivered == 3
            assert report.offsets == {("t", 1): (0, 1), ("u", 0): (0, 0)}
            (record,) = cluster.records("u")
            assert (record.key, record.value, record.timestamp_ms) == (b"k", b"b", 5)

    run(scenario())


def test_some_that_fail_are_told_by_number_and_the_others_arrive() -> None:
    async def scenario() -> None:
        told: list[object] = []
        async with started("t", on_delivery_error=told.append, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"first")
            rows: list[object] = [b"0", "no bytes", b"x" * 2_000_000, b"3"]
            with pytest.raises(SendManyError) as raised:
                await producer.send_many("t", rows)
            report = raised.value.report
            assert [(number, type(error)) for number, error in report.failures] == [
                (1, RecordTypeError),
                (2, RecordTooLargeError),
            ]
            assert report.delivered == 2
            assert values(cluster, "t") == [b"first", b"0", b"3"]
            cluster.fail_next("Produce", "POLICY_VIOLATION")
            with pytest.raises(SendManyError) as raised:
                await producer.send_many("t", [b"4", b"5"])
            assert {type(error) for _, error in raised.value.report.failures} == {BrokerRejectedError}
            await asyncio.sleep(2 * GRACE_S)
            assert told == []  # the caller of send_many is told there

    run_in_virtual_time(scenario())


def test_what_a_partitioner_breaks_is_told_by_number_too() -> None:
    def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        calls.append(key)
        if len(calls) == 3:
            raise ValueError("no third one")
        return partitions[0]

    calls: list[bytes | None] = []

    async def scenario() -> None:
        async with started("t", partitioner=choose) as (cluster, producer):
            await producer.send("t", b"first", partition=0)
            with pytest.raises(SendManyError) as raised:
                await producer.send_many("t", [b"0", b"1", b"2", b"3"])
            report = raised.value.report
            assert [(number, type(error)) for number, error in report.failures] == [(2, PartitionerError)]
            assert report.delivered == 3
            assert values(cluster, "t") == [b"first", b"0", b"1", b"3"]
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_a_record_that_fails_while_it_is_taken_is_told_by_number_and_not_reported_too() -> None:
    told: list[AiokprodError] = []

    def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        raise ValueError("never")

    async def scenario() -> None:
        async with started("t", partitioner=choose, on_delivery_error=told.append) as (_, producer):
            await producer.partitions_for("t")  # the first record finds them known
            with pytest.raises(SendManyError) as raised:
                await producer.send_many("t", [b"0"])
            assert [(number, type(error)) for number, error in raised.value.report.failures] == [(0, PartitionerError)]
            await asyncio.sleep(2 * GRACE_S)
            assert told == []

    run_in_virtual_time(scenario())


def test_what_a_partitioner_sends_while_send_many_takes_a_record_is_reported() -> None:
    told: list[AiokprodError] = []

    async def scenario() -> None:
        def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
            producer.send("other", b"nested", partition=9)
            return partitions[0]

        async with started("t", "other", partitioner=choose, on_delivery_error=told.append) as (_, producer):
            await producer.partitions_for("t")
            await producer.partitions_for("other")
            await producer.send("t", b"-", partition=0)
            assert (await producer.send_many("t", [Record(value=b"0")])).delivered == 1
            await asyncio.sleep(10)
            assert [type(error) for error in told] == [PartitionOutOfRangeError]

    run_in_virtual_time(scenario())


def test_a_producer_that_closes_meanwhile_ends_the_call_and_keeps_what_was_taken() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=0) as (cluster, producer):

            async def source() -> AsyncIterator[bytes]:
                yield b"taken"
                await producer.close()
                yield b"too late"

            with pytest.raises(ProducerClosedError):
                await producer.send_many("t", source())
            assert values(cluster, "t") == [b"taken"]

    run(scenario())


def test_an_error_of_the_source_stays_what_it_is() -> None:
    """The error may be the outcome of another record: `send_many` made a POSSIBLY_PERSISTED of its NOT_PERSISTED."""

    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            recalled = producer.send("t", b"recalled", partition=0)
            assert recalled.recall()

            async def source() -> AsyncIterator[bytes]:
                yield b"taken"
                await recalled

            with pytest.raises(RecordRecalledError) as raised:
                await producer.send_many("t", source())
            assert raised.value is recalled.exception()
            assert raised.value.persistence is Persistence.NOT_PERSISTED
            assert raised.value.__notes__[-1].startswith("1 records of this send_many were taken before")
            await producer.flush()
            assert values(cluster, "t") == [b"taken"]

    run(scenario())


def test_a_cancelled_call_stops_taking_and_what_was_taken_goes_on() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def source() -> AsyncIterator[bytes]:
                yield b"0"
                yield b"1"
                await never
                yield b"2"

            task = asyncio.create_task(producer.send_many("t", source()))
            await until(lambda: producer.health().buffered_bytes > 0 or len(values(cluster, "t")) == 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await producer.flush()
            assert values(cluster, "t") == [b"0", b"1"]

    run(scenario())


def test_an_empty_call_reports_nothing_and_an_unknown_topic_takes_nothing() -> None:
    async def scenario() -> None:
        async with started("t", max_block_ms=100) as (_, producer):
            report = await producer.send_many("t", [])
            assert (report.delivered, report.failures, report.offsets) == (0, [], {})
            taken: list[int] = []
            with pytest.raises(UnknownTopicError):
                await producer.send_many("never", (taken.append(1) or b"v" for _ in range(3)))  # type: ignore[func-returns-value]
            assert taken == []

    run_in_virtual_time(scenario())
