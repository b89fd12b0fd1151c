"""`send_columns` on a MockCluster when something goes wrong: what arrives all the same, and what is told."""

from __future__ import annotations

import asyncio
import random
from array import array

import pytest
from column_rig import NUMBERS, column, encoder, nothing_is_held, room, told  # noqa: F401
from rig import run, run_in_virtual_time, started, until, values

from aiokprod import Producer, SendColumnsError
from aiokprod.errors import (
    AiokprodError,
    DeliveryTimeoutError,
    InvalidRecordError,
    PartitionerError,
    ProducerClosedError,
    RecordTooLargeError,
    UndeliveredAtCloseError,
)
from aiokprod.model import Persistence
from aiokprod.wire.codes import ErrorCode


def test_the_users_partitioner_that_raises_ends_the_taking() -> None:
    def broken(key: bytes | None, *_: object) -> int:
        if key == b"3000":
            raise ValueError("no")
        return 0

    async def scenario() -> None:
        async with started("t", partitioner=broken, **room(100_000)) as (
            cluster,
            producer,
        ):
            with pytest.raises(PartitionerError):
                await producer.send_columns("t", column([b"3000"]), column([b"3000"]))
            with pytest.raises(SendColumnsError) as caught:
                await producer.send_columns("t", column(NUMBERS), column(NUMBERS))
            report = caught.value.report
            assert 0 < report.delivered == len(values(cluster, "t")) <= 3_000
            assert report.untaken == 5_000 - report.delivered
            assert isinstance(report.untaken_error, PartitionerError)
            assert values(cluster, "t") == NUMBERS[: report.delivered]
            nothing_is_held(producer)

    run(scenario())


def test_faults_of_all_kinds_lose_double_and_reorder_nothing() -> None:
    async def scenario() -> None:
        async with started("t", partitions=3, batch_size=2_000) as (cluster, producer):
            cluster.drop_answer("Produce", nth=2)
            cluster.drop_answer("Produce", nth=5, after_append=False)
            cluster.fail_next("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, nth=9)
            cluster.fail_next("Produce", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, nth=4, after_append=True)
            report = await producer.send_columns("t", column(NUMBERS), column(NUMBERS))
            assert sorted(values(cluster, "t")) == sorted(NUMBERS)
            for number in range(3):
                there = [int(value) for value in values(cluster, "t", number) if value is not None]
                assert there == sorted(there)
            assert report.delivered == 5_000
            nothing_is_held(producer)

    run(scenario())


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_batch_the_topic_refuses_as_too_large_is_split(codec: str) -> None:
    async def scenario() -> None:
        async with started(batch_size=100_000, compression_type=codec) as (cluster, producer):
            cluster.create_topic("t", max_message_bytes=3_000)
            rows = [number + bytes(random.Random(int(number)).randbytes(20)) for number in NUMBERS]
            times = array("q", [1_700_000_000_000 + int(number) for number in NUMBERS])
            report = await producer.send_columns("t", column(rows), column(NUMBERS), timestamps_ms=times)
            there = cluster.records("t")
            assert [record.value for record in there] == rows
            assert [record.key for record in there] == NUMBERS
            assert [record.timestamp_ms for record in there] == list(times)
            told(report, cluster)
            nothing_is_held(producer)

    run(scenario())


def test_a_row_the_topic_refuses_as_too_large_is_the_first_that_failed() -> None:
    async def scenario() -> None:
        async with started(batch_size=100_000) as (cluster, producer):
            cluster.create_topic("t", max_message_bytes=3_000)
            rows = [b"x" * (5_000 if number == 1_234 else 20) for number in range(3_000)]
            with pytest.raises(SendColumnsError) as caught:
                await producer.send_columns("t", column(rows))
            partition = caught.value.report.partitions["t", 0]
            assert (partition.count, partition.failed, partition.first_failed_row) == (2_999, 1, 1_234)
            assert isinstance(partition.first_error, RecordTooLargeError)
            assert partition.first_error.row == 1_234
            assert caught.value.__cause__ is partition.first_error
            assert len(values(cluster, "t")) == 2_999
            nothing_is_held(producer)

    run(scenario())


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_refused_by_name_leave_and_the_others_go_on(codec: str) -> None:
    async def scenario() -> None:
        async with started(batch_size=20_000, compression_type=codec) as (cluster, producer):
            cluster.create_topic("t", cleanup_policy="compact")
            keys: list[bytes | None] = list(NUMBERS)
            keys[2_000] = keys[2_001] = keys[4_999] = None
            with pytest.raises(SendColumnsError, match="3 of 5000 records failed; first: ") as caught:
                await producer.send_columns("t", column(NUMBERS), column(keys))
            partition = caught.value.report.partitions["t", 0]
            assert (partition.count, partition.failed, partition.first_failed_row) == (4_997, 3, 2_000)
            assert isinstance(partition.first_error, InvalidRecordError)
            assert values(cluster, "t") == [value for value, key in zip(NUMBERS, keys, strict=True) if key is not None]
            nothing_is_held(producer)

    run(scenario())


def test_rows_that_run_out_of_time_fail_with_their_number() -> None:
    async def scenario() -> None:
        times = {"delivery_timeout_ms": 1_500, "request_timeout_ms": 500, "linger_ms": 0}
        async with started("t", partitions=2, batch_size=3_000, **times) as (cluster, producer):
            cluster.fail_next("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, partition=1, topic="t", times=None)
            with pytest.raises(SendColumnsError) as caught:
                await producer.send_columns("t", column(NUMBERS), partitions=array("i", [0] * 100 + [1] * 4_900))
            report = caught.value.report
            assert report.partitions["t", 0].count == 100
            failed = report.partitions["t", 1]
            assert (failed.failed, failed.first_failed_row, failed.first_offset) == (4_900, 100, None)
            assert isinstance(failed.first_error, DeliveryTimeoutError)
            nothing_is_held(producer)

    run_in_virtual_time(scenario())


def test_close_ends_columns_that_still_wait_and_tells_what_became_of_each() -> None:
    async def scenario() -> None:
        async with started("t", **room(20_000), batch_size=2_000) as (cluster, producer):
            held = cluster.hold("Produce", before_serving=True)
            sending = asyncio.ensure_future(producer.send_columns("t", column(NUMBERS)))
            await until(lambda: held.hits > 0 and producer.metrics()["buffer_waiting_records"] > 0)
            closed = await producer.close(timeout=0.1)
            with pytest.raises(SendColumnsError) as caught:
                await sending
            report = caught.value.report
            assert report.delivered == 0
            assert report.failed == closed.count > 0
            assert report.untaken == 5_000 - report.failed
            assert isinstance(report.untaken_error, ProducerClosedError)
            assert isinstance(report.first_error, UndeliveredAtCloseError)
            # The batches in the request may be in the log, those behind it are not: of one partition, and told apart.
            possibly = closed.undelivered["t", 0, Persistence.POSSIBLY_PERSISTED]
            assert 0 < possibly == report.possibly_persisted == report.partitions["t", 0].possibly_persisted
            assert report.failed - possibly == closed.undelivered["t", 0, Persistence.NOT_PERSISTED]
            assert f"({possibly} of them may be in the log)" in str(caught.value)
            assert values(cluster, "t") == []

    run_in_virtual_time(scenario())


def settled(producer: Producer) -> int:
    metrics = producer.metrics()
    return metrics["records_delivered"] + metrics["records_failed"]


def test_failures_after_a_cancellation_are_told_by_what_became_of_the_records(caplog: pytest.LogCaptureFixture) -> None:
    """One partition fails at once, another only after the cancellation; both are told, with all their rows."""

    async def scenario() -> None:
        errors: list[AiokprodError] = []
        async with started("t", partitions=2, batch_size=2_000, on_delivery_error=errors.append) as (cluster, producer):
            cluster.fail_next("Produce", ErrorCode.INVALID_RECORD, partition=0)
            held = cluster.hold("Produce", partition=1, before_serving=True)
            rows = array("i", [number % 2 for number in range(5_000)])
            sending = asyncio.ensure_future(producer.send_columns("t", column(NUMBERS), partitions=rows))
            # Not before the last record of the first partition: one that is left at close() would share the lines below.
            await until(lambda: held.hits > 0 and settled(producer) == 2_500)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            closed = await producer.close(timeout=0.1)
            left = {("t", 1, Persistence.NOT_PERSISTED), ("t", 1, Persistence.POSSIBLY_PERSISTED)}
            kinds = {("t", error.partition, error.persistence) for error in errors}
            assert kinds == {("t", 0, Persistence.NOT_PERSISTED), *left}
            assert closed.undelivered.keys() == left
            assert closed.count == 2_500
            told = [record for record in caplog.records if "no caller awaited" in record.msg]
            in_second = [record.getMessage().split()[2] for record in told if record.__dict__["kafka_partition"] == 1]
            assert sorted(map(int, in_second)) == sorted(closed.undelivered.values())

    run_in_virtual_time(scenario())


def test_cancelling_stops_taking_and_what_was_taken_goes_on() -> None:
    async def scenario() -> None:
        async with started("t", batch_size=2_000, **room(20_000)) as (cluster, producer):
            rule = cluster.hold("Produce", before_serving=True)
            sending = asyncio.ensure_future(producer.send_columns("t", column(NUMBERS)))
            await until(lambda: producer.metrics()["buffer_waiting_records"] > 0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert producer.metrics()["buffer_waiting_records"] == 0
            rule.cancel()
            await producer.flush()
            there = values(cluster, "t")
            assert 0 < len(there) < 5_000
            assert there == NUMBERS[: len(there)]
            nothing_is_held(producer)

    run(scenario())


def test_flush_waits_for_columns() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            held = cluster.hold("Produce", before_serving=True)
            sending = asyncio.ensure_future(producer.send_columns("t", column(NUMBERS[:100])))
            await until(lambda: producer.metrics()["buffer_used_bytes"] > 0)
            flushing = asyncio.ensure_future(producer.flush())
            await until(lambda: held.hits > 0)
            assert not flushing.done()
            held.cancel()
            await flushing
            assert values(cluster, "t") == NUMBERS[:100]
            assert (await sending).delivered == 100

    run(scenario())


def test_without_acknowledgements_no_offsets_are_told() -> None:
    async def scenario() -> None:
        async with started("t", acks=0, enable_idempotence=False) as (cluster, producer):
            report = await producer.send_columns("t", column(NUMBERS))
            partition = report.partitions["t", 0]
            assert (partition.count, partition.first_offset, partition.last_offset) == (5_000, None, None)
            await until(lambda: values(cluster, "t") == NUMBERS)

    run(scenario())
