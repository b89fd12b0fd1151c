"""One task of a write, on an in-process cluster: what arrives, what is told, what fails and how."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from aiokprod import BytesColumn, ColumnsReport
from aiokprod.errors import PartitionOutOfRangeError, RecordTooLargeError, UnknownTopicError
from aiokprod.model import Persistence
from aiokprod.spark import task
from aiokprod.spark.engine import Lease, current_engine, end_engine
from aiokprod.spark.errors import RowError
from aiokprod.spark.fingerprint import row_hash
from aiokprod.spark.messages import TaskMessage
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan
from aiokprod.spark.task import write_rows
from aiokprod.testing.mock import MockCluster

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(autouse=True)
def no_engine() -> Iterator[None]:
    yield
    end_engine()


def write(cluster: MockCluster, *batches: pa.RecordBatch, **options: str) -> TaskMessage:
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.linger.ms": "0", "topic": "t"}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    read = SinkOptions.read({name: value for name, value in given.items() if value})
    names = batches[0].schema.names if batches else ["value"]
    plan = ColumnPlan(**{name: place for place, name in enumerate(names) if name != "topic" or read.topic is None})
    return write_rows(iter(batches), read, plan)


def table(**columns: object) -> pa.RecordBatch:
    kinds = {"partition": pa.int32(), "headers": HEADERS, "timestamp": pa.timestamp("us", "UTC"), "topic": pa.string()}
    arrays = [pa.array(column, kinds.get(name, pa.binary())) for name, column in columns.items()]
    return pa.record_batch(arrays, list(columns))


class Answering(ABC):
    """A producer's stand-in; `until_answered` decides when a call is answered."""

    def __init__(self) -> None:
        self.calls: list[int] = []  # rows of each
        self.answered = 0
        self.most_on_the_way = 0

    async def send_columns(
        self, topic: str, values: BytesColumn, keys: BytesColumn | None, **others: object
    ) -> ColumnsReport:
        assert (topic, keys) == ("t", None)
        self.calls.append(values.length)
        self.most_on_the_way = max(self.most_on_the_way, sum(self.calls[self.answered :]))
        await self.until_answered(len(self.calls))
        self.answered += 1
        return ColumnsReport(delivered=values.length)

    @abstractmethod
    async def until_answered(self, number: int) -> None:
        """Return when the call of this number, from 1, is answered."""


def write_to(producer: Answering, monkeypatch: pytest.MonkeyPatch, *batches: pa.RecordBatch) -> TaskMessage:
    """Run a task with at most 64 KiB in flight, on a real loop in its own thread."""

    @contextmanager
    def leased(*arguments: object) -> Iterator[Lease]:
        yield Lease(current_engine(), producer)

    monkeypatch.setattr(task, "leased", leased)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "maxInFlightBytes": "65536"}
    return write_rows(iter(batches), SinkOptions.read(given), ColumnPlan(value=0))


def test_rows_arrive_as_they_are_and_the_message_says_where(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 2)
    first = table(
        value=[b"a", None, b"c"],
        key=[b"k", None, b""],
        partition=[0, 1, 0],
        headers=[[("h", b"1"), ("i", None)], None, []],
        timestamp=[1_000_999, 2_000_000, 3_000_000],
    )
    before_s = time.time()
    message = write(mock_kafka, first)
    assert before_s <= message.began_s <= time.time()
    records = mock_kafka.records("t", 0)
    assert [(record.value, record.key, record.timestamp_ms) for record in records] == [
        (b"a", b"k", 1000),
        (b"c", b"", 3000),
    ]
    assert [list(record.headers) for record in records] == [[("h", b"1"), ("i", None)], []]
    (tombstone,) = mock_kafka.records("t", 1)
    assert (tombstone.value, tombstone.key, tombstone.timestamp_ms) == (None, None, 2000)
    assert message.rows == 3
    assert message.rows_per_s == pytest.approx(3 / message.seconds)
    told = [
        (each.topic, each.partition, each.count, each.first_offset, each.last_offset) for each in message.partitions
    ]
    assert told == [("t", 0, 2, 0, 1), ("t", 1, 1, 0, 0)]
    assert message.bytes == sum(each.bytes for each in message.partitions) > 0
    first = row_hash(b"a", b"k", [(b"h", b"1"), (b"i", None)]) + row_hash(b"c", b"")
    assert [each.fingerprint for each in message.partitions] == [first % 2**64, row_hash(None, None)]


def test_many_batches_keep_their_order_whatever_their_size(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    batches = [table(value=[b"%d-%d" % (number, row) + b"x" * 700 for row in range(50)]) for number in range(40)]
    message = write(mock_kafka, *batches, maxInFlightBytes="65536")
    values = [value for batch in batches for value in batch.column(0).to_pylist()]
    assert [record.value for record in mock_kafka.records("t")] == values
    assert (message.rows, message.partitions[0].last_offset) == (2000, 1999)
    assert message.partitions[0].fingerprint == sum(row_hash(value, None) for value in values) % 2**64


def test_the_next_call_is_made_while_the_one_before_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    class UntilTheNext(Answering):
        """A stand-in that answers a call only when the next one is made."""

        def __init__(self) -> None:
            super().__init__()
            self.made = asyncio.Condition()

        async def until_answered(self, number: int) -> None:
            async with self.made, asyncio.timeout(60):  # a task that waits for each answer would wait for ever
                self.made.notify_all()
                await self.made.wait_for(lambda: number == 10 or len(self.calls) > number)

    producer = UntilTheNext()
    message = write_to(producer, monkeypatch, *[table(value=[b"x" * 30_000]) for _ in range(10)])
    assert (message.rows, producer.calls) == (10, [1] * 10)


def test_what_is_on_its_way_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Answering):
        """A stand-in that answers when no call has come for a while, so that the task makes as many as it may."""

        async def until_answered(self, number: int) -> None:
            seen = None
            while seen != len(self.calls):
                seen = len(self.calls)
                await asyncio.sleep(0.05)

    producer = Slow()
    message = write_to(producer, monkeypatch, *[table(value=[b"x" * 1_000] * 20) for _ in range(20)])
    assert (message.rows, sum(producer.calls)) == (400, 400)
    assert producer.most_on_the_way <= 65  # rows of 1,000 bytes


def test_the_fingerprint_of_a_partition_is_that_of_what_is_in_it(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 3)
    batches = [
        table(value=[b"%d-%d" % (number, row) for row in range(700)], key=[b"%d" % row for row in range(700)])
        for number in range(3)
    ]
    message = write(mock_kafka, *batches)
    assert [each.partition for each in message.partitions] == [0, 1, 2]
    for each in message.partitions:
        records = mock_kafka.records("t", each.partition)
        assert each.count == len(records)
        assert each.fingerprint == sum(row_hash(record.value, record.key) for record in records) % 2**64


def test_rows_of_several_topics_go_each_to_its_own(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("a", 1)
    mock_kafka.create_topic("b", 1)
    batches = [table(topic=["a", "b", "a"], value=[b"%d" % (3 * n + i) for i in range(3)]) for n in range(5)]
    message = write(mock_kafka, *batches, topic="")
    assert [record.value for record in mock_kafka.records("b")] == [b"1", b"4", b"7", b"10", b"13"]
    assert [record.value for record in mock_kafka.records("a")][:4] == [b"0", b"2", b"3", b"5"]
    assert [(each.topic, each.count) for each in message.partitions] == [("a", 10), ("b", 5)]
    for each in message.partitions:
        assert each.fingerprint == sum(row_hash(row.value, None) for row in mock_kafka.records(each.topic)) % 2**64


def test_a_task_without_rows_needs_no_cluster() -> None:
    options = SinkOptions.read({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    message = write_rows(iter([table(value=[])]), options, ColumnPlan(value=0))
    assert (message.rows, message.rows_per_s, message.partitions) == (0, 0.0, ())
    assert current_engine().producers == 0


def test_tasks_share_the_connections(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    for number in range(3):
        write(mock_kafka, table(value=[b"%d" % number]))
    assert mock_kafka.requests_seen("InitProducerId") == 1
    assert current_engine().producers == 1


def test_a_record_that_is_too_large_is_named_by_its_row(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    large = table(value=[b"a", b"x" * 3_000_000, b"c"])
    with pytest.raises(RowError, match=r"row 4 of this task cannot be sent: .*max_request_size") as caught:
        write(mock_kafka, table(value=[b"1", b"2", b"3"]), large)
    assert (caught.value.row, caught.value.topic) == (4, "t")
    assert isinstance(caught.value.__cause__, RecordTooLargeError)


@pytest.mark.parametrize(("bad", "why"), [(None, "a header is null"), ((None, b"1"), "the name of header 1 is null")])
def test_a_header_that_is_null_is_told_with_the_row_of_the_task(
    mock_kafka: MockCluster, bad: tuple[None, bytes] | None, why: str
) -> None:
    mock_kafka.create_topic("t", 1)
    headers = [None, [("a", b"1"), ("b", b"2")], [("c", b"3"), bad]]
    with pytest.raises(RowError, match=f"row 5 of this task cannot be sent: {why}") as caught:
        write(mock_kafka, table(value=[b"1"] * 3, headers=[None] * 3), table(value=[b"2"] * 3, headers=headers))
    assert caught.value.row == 5


def test_a_partition_that_does_not_exist_is_named_with_its_row(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 2)
    with pytest.raises(RowError, match="row 2 of this task cannot be sent: partition 7 does not exist") as caught:
        write(mock_kafka, table(value=[b"a", b"b", b"c"], partition=[0, 1, 7]))
    assert isinstance(caught.value.__cause__, PartitionOutOfRangeError)


def test_what_the_broker_refuses_is_told_with_row_partition_and_reason(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 2)
    write(mock_kafka, table(value=[b"first"], partition=[1]))
    mock_kafka.fail_next("Produce", "INVALID_TIMESTAMP", topic="t", partition=1)
    with pytest.raises(RowError, match="1 of 3 rows were not delivered, the first is row 1 of this task") as caught:
        write(mock_kafka, table(value=[b"a", b"b", b"c"], partition=[0, 1, 0]))
    error = caught.value
    assert (error.topic, error.partition, error.row, error.persistence) == ("t", 1, 1, Persistence.NOT_PERSISTED)


def test_a_topic_that_is_not_there_is_created_as_sparks_own_sink_does(mock_kafka: MockCluster) -> None:
    assert write(mock_kafka, table(value=[b"a", b"b"])).rows == 2
    assert mock_kafka.topics == {"t": 1}


def test_an_unknown_topic_is_told_with_the_rows(mock_kafka: MockCluster) -> None:
    with pytest.raises(UnknownTopicError) as caught:
        write(
            mock_kafka,
            table(value=[b"a", b"b"]),
            kafka__max__block__ms="500",  # for the start, and for the topic
            kafka__allow__auto__create__topics="false",
        )
    assert "Topic 't', rows 0 to 1 of this task." in caught.value.__notes__


def test_a_task_that_failed_leaves_a_producer_that_works(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    with pytest.raises(RowError):
        write(mock_kafka, table(value=[b"x" * 3_000_000]))
    assert write(mock_kafka, table(value=[b"a"])).rows == 1


def test_a_task_that_fails_sends_no_more(mock_kafka: MockCluster) -> None:
    mock_kafka.create_topic("t", 1)
    rule = mock_kafka.hold("Produce", before_serving=True)
    rows = [b"%d" % row + b"x" * 900 for row in range(2_000)]
    options = SinkOptions.read(
        {
            "kafka.bootstrap.servers": mock_kafka.bootstrap_servers,
            "topic": "t",
            "kafka.buffer.memory": "100000",
            "kafka.batch.size": "20000",
            "kafka.max.request.size": "100000",
        }
    )

    def batches() -> Iterator[pa.RecordBatch]:
        yield table(value=rows[:1_000])
        yield table(value=rows[1_000:])
        raise OSError("Spark takes the task back")

    with pytest.raises(OSError, match="takes the task back"):
        write_rows(batches(), options, ColumnPlan(value=0))
    rule.cancel()
    assert write_rows(iter([table(value=[b"next"])]), options, ColumnPlan(value=0)).rows == 1
    there = [record.value for record in mock_kafka.records("t")]
    assert there[-1] == b"next"
    assert there[:-1] == rows[: len(there) - 1]
    assert len(there) < 1_000
