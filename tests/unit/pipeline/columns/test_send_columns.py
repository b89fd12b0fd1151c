"""`send_columns` on a MockCluster: what arrives, in which order, and what is refused before anything is taken."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import pytest
from column_rig import NUMBERS, column, encoder, headers_column, nothing_is_held, room, told  # noqa: F401
from rig import run, run_in_virtual_time, started, until, values

from aiokprod import (
    ColumnsReport,
    IntColumn,
    Producer,
    ProducerInterceptor,
    Record,
    SendColumnsError,
)
from aiokprod.config.producer_config import PARTITIONERS
from aiokprod.errors import (
    AiokprodError,
    BrokerRejectedError,
    ConfigError,
    InvalidColumnError,
    InvalidTimestampError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerNotStartedError,
    RecordTooLargeError,
    UndeliveredAtCloseError,
    UnknownTopicError,
    WrongLoopError,
)
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES
from aiokprod.records.batch import record_size_bound
from aiokprod.testing import MemoryProducer


# ---------------------------------------------------------------------- what arrives
def test_rows_arrive_once_and_in_order_and_the_report_says_where() -> None:
    async def scenario() -> None:
        async with started("t", batch_size=2_000) as (cluster, producer):
            report = await producer.send_columns("t", column(NUMBERS))
            assert values(cluster, "t") == NUMBERS
            told(report, cluster)
            nothing_is_held(producer)

    run(scenario())


def test_rows_without_a_key_go_from_partition_to_partition_with_each_batch() -> None:
    async def scenario() -> None:
        async with started("t", partitions=4, batch_size=2_000) as (cluster, producer):
            report = await producer.send_columns("t", column(NUMBERS))
            assert sorted(values(cluster, "t")) == sorted(NUMBERS)
            assert len(report.partitions) == 4
            where: dict[int, int] = {}
            for number in range(4):
                there = [int(value) for value in values(cluster, "t", number) if value is not None]
                assert there == sorted(there)
                where |= dict.fromkeys(there, number)
            told(report, cluster)
            moves = sum(where[row] != where[row - 1] for row in range(1, 5_000))
            # 67 batches, each drawn a partition: three of four are another than the one before.
            assert moves > 34, "a batch, and the next one elsewhere"

    run(scenario())


@pytest.mark.parametrize("partitioner", sorted({*PARTITIONERS} - {"random"}))  # which goes anywhere
def test_keys_go_where_send_sends_them(partitioner: str) -> None:
    async def scenario() -> None:
        keys = [b"key-%d" % (number % 300) for number in range(3_000)]
        async with started("one", "many", partitions=5, partitioner=partitioner, batch_size=3_000) as (
            cluster,
            producer,
        ):
            report = await producer.send_columns("many", column(NUMBERS[:3_000]), column(keys))
            records = [Record(value=value, key=key) for value, key in zip(NUMBERS, keys, strict=False)]
            await producer.send_many("one", records)
            told(report, cluster, "many")
            if partitioner == "round_robin":
                assert {partition.count for partition in report.partitions.values()} == {600}
                return
            for number in range(5):
                assert values(cluster, "many", number) == values(cluster, "one", number)

    run(scenario())


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("kind", [Producer, MemoryProducer])
def test_placements_say_where_every_row_is(keyed: bool, kind: type[Producer]) -> None:
    async def scenario() -> None:
        keys = column([b"key-%d" % (number % 300) for number in range(5_000)]) if keyed else None
        async with started("t", partitions=4, batch_size=3_000) as (cluster, producer):
            used = producer if kind is Producer else MemoryProducer(topics={"t": 4})
            await used.start()
            report = await used.send_columns("t", column(NUMBERS), keys, placements=True)
            records = used.records if isinstance(used, MemoryProducer) else cluster.records("t")
            found = {(record.partition, record.offset): record.value for record in records}
            rows: list[int] = []
            for placement in report.placements:
                assert placement.topic == "t" and placement.base_offset is not None
                for offset, row in enumerate(placement.rows, start=placement.base_offset):
                    assert found[placement.partition, offset] == NUMBERS[row]
                    rows.append(row)
            assert sorted(rows) == list(range(5_000))
            assert (await used.send_columns("t", column(NUMBERS[:10]))).placements == []
            await used.close()

    run(scenario())


def test_a_row_that_failed_has_no_place() -> None:
    async def scenario() -> None:
        async with started() as (cluster, producer):
            cluster.create_topic("t", cleanup_policy="compact")
            keys = column([None if row == 7 else b"k" for row in range(20)])
            with pytest.raises(SendColumnsError) as failed:
                await producer.send_columns("t", column(NUMBERS[:20]), keys, placements=True)
            places = {
                offset: row
                for placement in failed.value.report.placements
                for offset, row in enumerate(placement.rows, start=placement.base_offset or 0)
            }
            assert sorted(places.values()) == [row for row in range(20) if row != 7]
            assert [NUMBERS[places[offset]] for offset in range(19)] == values(cluster, "t")

    run(scenario())


def test_everything_a_record_may_have_arrives() -> None:
    async def scenario() -> None:
        async with started("t", partitions=3) as (cluster, producer):
            rows: list[bytes | None] = [b"a", None, b"", b"d" * 20_000]
            keys: list[bytes | None] = [None, b"", b"k", b"k" * 300]
            headers = [[(b"n", b"v"), (b"n", None)], [], [(b"", b"")], [(b"long", b"x" * 10_000)]]
            await producer.send_columns(
                "t",
                column(rows),
                column(keys),
                headers=headers_column(headers),
                partitions=array("i", [0, 1, 1, 1]),
                timestamps_ms=array("q", [5, 7, 2**40, 0]),
            )
            there = cluster.records("t", 0) + cluster.records("t", 1)
            assert [record.value for record in there] == rows
            assert [record.key for record in there] == keys
            assert [record.timestamp_ms for record in there] == [5, 7, 2**40, 0]
            assert [[(name.encode(), value) for name, value in record.headers] for record in there] == headers

    run(scenario())


def test_a_column_of_timestamps_that_looks_like_seconds_is_a_warning_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with started() as (cluster, producer):
            cluster.create_topic("t")
            for _ in range(2):
                await producer.send_columns(
                    "t", column([b"v"] * 2), timestamps_ms=array("q", [1_785_000_000, 1_785_000_001])
                )

    run(scenario())
    assert [record.levelname for record in caplog.records if "it looks like seconds" in record.getMessage()] == [
        "WARNING"
    ]


def test_where_the_partition_is_null_the_partitioner_chooses() -> None:
    async def scenario() -> None:
        async with started("t", partitions=3, batch_size=1_000) as (cluster, producer):
            numbers = IntColumn(array("i", [2] * 5_000), b"\x55" * 625)  # every second one
            report = await producer.send_columns("t", column(NUMBERS), partitions=numbers)
            told(report, cluster)
            assert set(NUMBERS[::2]) <= set(values(cluster, "t", 2))
            assert len(report.partitions) == 3
            for number in range(3):
                there = [int(value) for value in values(cluster, "t", number) if value is not None]
                assert there == sorted(there)

    run(scenario())


def test_rows_without_a_key_avoid_partitions_without_a_leader() -> None:
    async def scenario() -> None:
        async with started(batch_size=1_000) as (cluster, producer):
            cluster.create_topic("t", partitions=4)
            cluster.move_leader("t", 2, None)
            report = await producer.send_columns("t", column(NUMBERS))
            assert {partition for _, partition in report.partitions} == {0, 1, 3}
            told(report, cluster)

    run(scenario())


def test_several_calls_at_once_are_in_the_order_of_the_calls() -> None:
    async def scenario() -> None:
        async with started("t", "u", batch_size=2_000, **room(60_000)) as (cluster, producer):
            calls = [[b"%d %d" % (call, row) for row in range(3_000 >> call)] for call in range(4)]
            other = producer.send_columns("u", column(NUMBERS))
            *reports, _ = await asyncio.gather(*[producer.send_columns("t", column(rows)) for rows in calls], other)
            assert [report.delivered for report in reports] == [len(rows) for rows in calls]
            assert values(cluster, "t") == [row for rows in calls for row in rows]
            assert values(cluster, "u") == NUMBERS
            nothing_is_held(producer)

    run(scenario())


def test_a_call_that_is_refused_or_cancelled_lets_no_call_pass_those_before() -> None:
    async def scenario() -> None:
        async with started("t", batch_size=2_000, **room(20_000)) as (cluster, producer):
            rule = cluster.hold("Produce", before_serving=True)
            first = asyncio.ensure_future(producer.send_columns("t", column(NUMBERS)))
            refused = asyncio.ensure_future(producer.send_columns("t", column([b"x" * 30_000])))
            cancelled = asyncio.ensure_future(producer.send_columns("t", column([b"never"])))
            last = asyncio.ensure_future(producer.send_columns("t", column([b"last"])))
            await until(lambda: producer.metrics()["buffer_waiting_records"] > 0)
            cancelled.cancel()
            with pytest.raises(RecordTooLargeError):
                await refused  # at once, not when it were its turn
            rule.cancel()
            await asyncio.gather(first, last)
            assert cancelled.cancelled()
            assert values(cluster, "t") == [*NUMBERS, b"last"]
            nothing_is_held(producer)

    run(scenario())


def test_no_rows_are_no_work() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            report = await producer.send_columns("t", column([]))
            assert report == ColumnsReport()

    run(scenario())


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_batches_are_compressed_as_those_of_send(codec: str) -> None:
    async def scenario() -> None:
        async with started("t", compression_type=codec, batch_size=200_000) as (cluster, producer):
            rows = [b"the same text %d" % number for number in range(20_000)]
            report = await producer.send_columns("t", column(rows))
            assert values(cluster, "t") == rows
            told(report, cluster)
            assert producer.metrics()["batch_compressed_bytes"] < producer.metrics()["batch_uncompressed_bytes"] / 2
            nothing_is_held(producer)

    run(scenario())


def test_columns_and_single_sends_keep_their_order() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=1_000) as (cluster, producer):
            producer.send("t", b"before")
            await producer.send_columns("t", column(NUMBERS))
            await producer.send("t", b"after")
            assert values(cluster, "t") == [b"before", *NUMBERS, b"after"]

    run(scenario())


def test_a_send_that_waits_for_room_goes_before_columns_that_come_after_it() -> None:
    async def scenario() -> None:
        async with started("t", **room(40_000), batch_size=4_000) as (cluster, producer):
            first = [producer.send("t", b"x" * 1_500) for _ in range(45)]
            assert producer.metrics()["buffer_waiting_records"] > 0
            report = await producer.send_columns("t", column(NUMBERS))
            assert values(cluster, "t") == [b"x" * 1_500] * 45 + NUMBERS
            assert report.delivered == len(NUMBERS)
            assert all(delivery.done() for delivery in first)
            nothing_is_held(producer)

    run(scenario())


def test_memory_is_never_above_its_limit_and_all_is_given_back() -> None:
    async def scenario() -> None:
        async with started("t", partitions=20, **room(30_000), batch_size=1_000) as (
            cluster,
            producer,
        ):
            most = 0
            sending = asyncio.ensure_future(producer.send_columns("t", column(NUMBERS), column(NUMBERS)))
            while not sending.done():
                most = max(most, producer.metrics()["buffer_used_bytes"])
                await asyncio.sleep(0)
            assert 10_000 < most <= 30_000
            assert (await sending).delivered == 5_000
            assert sorted(values(cluster, "t")) == sorted(NUMBERS)
            nothing_is_held(producer)

    run(scenario())


def test_a_row_as_large_as_the_buffer_goes_alone() -> None:
    async def scenario() -> None:
        async with started("t", **room(20_000), batch_size=1_000) as (cluster, producer):
            largest = 20_000 - RECORD_OVERHEAD_BYTES  # as of a record that `send` takes
            length = next(n for n in range(largest, 0, -1) if record_size_bound(-1, n, 0) <= largest)
            rows = [b"a", b"x" * length, b"b"]
            await producer.send_columns("t", column(rows))
            assert values(cluster, "t") == rows
            nothing_is_held(producer)
            with pytest.raises(RecordTooLargeError):
                await producer.send_columns("t", column([b"a", b"x" * (length + 1), b"b"]))
            assert values(cluster, "t") == rows

    run(scenario())


# ---------------------------------------------------------------------- refused before anything is taken
@pytest.mark.parametrize(
    ("given", "kind", "row"),
    [
        ({"values": column([b"x"] * 7 + [b"x" * 3_000_000])}, RecordTooLargeError, 7),
        ({"partitions": array("i", [0, 1, 2])}, PartitionOutOfRangeError, 2),
        ({"partitions": array("i", [0, -1, 1])}, PartitionOutOfRangeError, 1),
        ({"timestamps_ms": array("q", [-1, 0, 0])}, InvalidTimestampError, 0),
        ({"keys": column([b"k"])}, InvalidColumnError, None),
        ({"keys": [b"k"] * 3}, InvalidColumnError, None),
        ({"values": None}, InvalidColumnError, None),
        ({"headers": headers_column([[]])}, InvalidColumnError, None),
        ({"partitions": [1, 2, 3]}, InvalidColumnError, None),
        ({"timestamps_ms": array("q", [1])}, InvalidColumnError, None),
    ],
)
def test_a_row_that_cannot_be_sent_is_named_and_nothing_is_taken(
    given: dict[str, Any], kind: type[AiokprodError], row: int | None
) -> None:
    async def scenario() -> None:
        async with started("t", partitions=2) as (cluster, producer):
            with pytest.raises(kind) as caught:
                await producer.send_columns("t", **({"values": column([b"1", b"2", b"3"])} | given))
            assert caught.value.row == row
            await producer.flush()
            assert values(cluster, "t") == []
            nothing_is_held(producer)

    run(scenario())


def test_a_topic_that_is_not_there_takes_nothing() -> None:
    async def scenario() -> None:
        async with started(max_block_ms=100) as (_, producer):
            with pytest.raises(UnknownTopicError):
                await producer.send_columns("t", column(NUMBERS))

    run_in_virtual_time(scenario())


class Stamp(ProducerInterceptor):
    def on_send(self, record: Record) -> Record:
        return record


@pytest.mark.parametrize("options", [{"interceptors": [Stamp()]}, {"value_serializer": lambda *_: b""}])
def test_a_producer_that_changes_records_has_no_columns(options: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with started("t", **options) as (_, producer):
            with pytest.raises(ConfigError, match="passes by interceptors"):
                await producer.send_columns("t", column(NUMBERS))

    run(scenario())


def test_a_producer_that_is_not_started_or_closed_takes_nothing() -> None:
    async def scenario() -> None:
        with pytest.raises(ProducerNotStartedError):
            await Producer("localhost:1").send_columns("t", column(NUMBERS))
        async with started("t") as (_, producer):
            await producer.close()
            with pytest.raises(ProducerClosedError):
                await producer.send_columns("t", column(NUMBERS))

    run(scenario())


def test_another_loop_takes_nothing() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):

            def elsewhere() -> None:
                with pytest.raises(WrongLoopError):
                    asyncio.run(producer.send_columns("t", column(NUMBERS)))

            await asyncio.to_thread(elsewhere)
            nothing_is_held(producer)

    run(scenario())


# ---------------------------------------------------------------------- in memory
def test_a_memory_producer_takes_columns_and_keeps_their_records() -> None:
    async def scenario() -> None:
        async with MemoryProducer(topics={"t": 2}) as producer:
            headers = headers_column([[(b"n", b"v")], [], []])
            report = await producer.send_columns(
                "t",
                column([b"a", None, b"c"]),
                column([b"1", b"2", None]),
                headers=headers,
                partitions=array("i", [1, 1, 0]),
            )
            assert [record.value for record in producer.records_of("t")] == [b"a", None, b"c"]
            assert report.delivered == 3
            assert (report.partitions["t", 1].first_offset, report.partitions["t", 1].last_offset) == (0, 1)
            producer.fail_next(BrokerRejectedError)
            with pytest.raises(SendColumnsError) as caught:
                await producer.send_columns("t", column([b"a", b"b", b"c"]), partitions=array("i", [0, 0, 0]))
            partition = caught.value.report.partitions["t", 0]
            assert (partition.failed, partition.first_failed_row, partition.count) == (1, 0, 2)
            assert (partition.first_offset, partition.last_offset) == (1, 2)

    run(scenario())


@pytest.mark.parametrize("kind", [Producer, MemoryProducer])
def test_a_memory_producer_refuses_and_is_cancelled_as_a_producer(kind: type[Producer]) -> None:
    async def scenario() -> None:
        lost: list[AiokprodError] = []
        async with started("t") as (cluster, _):
            held: Any
            producer: Producer
            if kind is Producer:
                held, producer = (
                    cluster.hold,
                    Producer(
                        cluster.bootstrap_servers, on_delivery_error=lost.append, batch_size=2_000, **room(20_000)
                    ),
                )
            else:
                memory = MemoryProducer(
                    topics={"t": 1}, on_delivery_error=lost.append, batch_size=2_000, **room(20_000)
                )
                held, producer = memory.hold, memory
            await producer.start()
            with pytest.raises(PartitionOutOfRangeError) as caught:
                await producer.send_columns("t", column([b"a", b"b"]), partitions=array("i", [0, 9]))
            assert caught.value.row == 1
            for placements in (array("i", [1]), 1, None):
                with pytest.raises(InvalidColumnError, match="placements is True or False, not "):
                    await producer.send_columns("t", column([b"a"]), placements=placements)  # type: ignore[arg-type]
            held("Produce") if kind is Producer else held()
            first = asyncio.ensure_future(producer.send_columns("t", column(NUMBERS)))
            second = asyncio.ensure_future(producer.send_columns("t", column([b"last"])))
            await until(lambda: producer.metrics()["buffer_waiting_records"] > 0)
            assert not second.done()
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            report = await producer.close(timeout=0.1)
            with pytest.raises((SendColumnsError, ProducerClosedError)):
                await second
            assert 0 < len(lost) <= report.count
            assert {type(error) for error in lost} <= {UndeliveredAtCloseError, ProducerClosedError}

    run_in_virtual_time(scenario())
