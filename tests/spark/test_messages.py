"""Messages of a task: what it knows of itself, and what it tells."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext

from aiokprod.spark.errors import SinkUsageError
from aiokprod.spark.messages import PartitionRange, TaskIdentity, TaskMessage
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan
from aiokprod.spark.task import write_rows


@pytest.fixture
def context() -> Iterator[TaskContext]:
    """Return a task's context, as Spark's worker makes it."""
    made = TaskContext._getOrCreate()
    made._stageId, made._partitionId, made._attemptNumber, made._taskAttemptId = 3, 5, 1, 77
    made._localProperties = {}
    yield made
    TaskContext._setTaskContext(None)


def test_outside_a_task_nothing_is_known() -> None:
    assert TaskIdentity.current() == TaskIdentity()
    assert TaskIdentity.current(4).batch_id == 4


def test_a_task_of_a_stream_knows_query_and_batch(context: TaskContext) -> None:
    context._localProperties = {"streaming.sql.batchId": "12", "sql.streaming.queryId": "q"}
    known = TaskIdentity.current()
    assert known == TaskIdentity(stage_id=3, partition_id=5, attempt=1, task_attempt_id=77, query_id="q", batch_id=12)


def test_a_task_of_a_batch_job_knows_no_query(context: TaskContext) -> None:
    known = TaskIdentity.current(9)
    assert (known.query_id, known.batch_id, known.stage_id) == (None, 9, 3)


def test_a_continuous_trigger_is_refused_before_a_row_is_taken(context: TaskContext) -> None:
    context._localProperties = {"__is_continuous_processing": "true"}
    taken: list[str] = []

    def batches() -> Iterator[pa.RecordBatch]:
        taken.append("a batch")
        yield pa.record_batch([pa.array([b"a"])], ["value"])

    options = SinkOptions.read({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    with pytest.raises(SinkUsageError, match=r"trigger\(continuous=\.\.\.\) is not supported"):
        write_rows(batches(), options, ColumnPlan(value=0))
    assert not taken


def test_ranges_of_one_partition_are_joined() -> None:
    def place(count: int, first: int | None, last: int | None) -> PartitionRange:
        return PartitionRange(
            topic="t",
            partition=1,
            count=count,
            bytes=10 * count,
            first_offset=first,
            last_offset=last,
            fingerprint=(count << 62) % 2**64,
        )

    assert place(2, 10, 11).joined(place(3, 5, 7)) == place(5, 5, 11)
    assert place(2, 10, 11).joined(place(0, None, None)) == place(2, 10, 11)


def test_a_message_survives_pickling() -> None:
    place = PartitionRange(
        topic="t", partition=1, count=2, bytes=20, first_offset=3, last_offset=4, fingerprint=2**64 - 1
    )
    task = TaskIdentity(query_id="q", batch_id=1)
    message = TaskMessage(task=task, rows=2, bytes=20, seconds=0.5, partitions=(place,))
    assert pickle.loads(pickle.dumps(message)) == message
