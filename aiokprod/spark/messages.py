"""The message of a task to the driver when its rows are acknowledged. Plain data; `commit` knows nothing else.

One `TaskMessage` per successful task. It has the task's identity (query, batch, stage, partition, attempt), so that a later
commit protocol can tell attempts and replays apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from aiokprod.spark.exactly_once.protocol import BatchName, Opening, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The rows that one task wrote to one topic partition. Other writers' records may lie between first and last offset.

    `fingerprint` is the sum modulo 2**64 of `fingerprint.row_hashes` of its rows, in any order. `bytes` is the size in the
    record format, before compression.
    """

    topic: str
    partition: int
    count: int
    bytes: int
    first_offset: int | None
    last_offset: int | None
    fingerprint: int

    def joined(self, other: PartitionRange) -> PartitionRange:
        """Combine two ranges."""
        firsts = [each.first_offset for each in (self, other) if each.first_offset is not None]
        lasts = [each.last_offset for each in (self, other) if each.last_offset is not None]
        return PartitionRange(
            topic=self.topic,
            partition=self.partition,
            count=self.count + other.count,
            bytes=self.bytes + other.bytes,
            first_offset=min(firsts, default=None),
            last_offset=max(lasts, default=None),
            fingerprint=(self.fingerprint + other.fingerprint) % 2**64,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskIdentity:
    """The identity of a task; `query_id` and `batch_id` are those of a stream, None in a batch job."""

    stage_id: int = 0
    partition_id: int = 0
    attempt: int = 0
    task_attempt_id: int = 0
    query_id: str | None = None
    batch_id: int | None = None

    @classmethod
    def current(cls, batch_id: int | None = None) -> TaskIdentity:
        """Return the identity of the task that runs in this process; `batch_id` is the one given to `write_each_batch`."""
        context = TaskContext.get()
        if context is None:
            return cls(batch_id=batch_id)
        batch = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            stage_id=context.stageId(),
            partition_id=context.partitionId(),
            attempt=context.attemptNumber(),
            task_attempt_id=context.taskAttemptId(),
            query_id=context.getLocalProperty("sql.streaming.queryId"),
            batch_id=batch_id if batch is None else int(batch),
        )


def is_continuous() -> bool:
    """Return True if this task belongs to a continuous trigger, which has no batches to commit.

    Spark 4.1 to 4.3 call no task of such a query (`writer._task_messages`); a version that does must not get a row written.
    """
    context = TaskContext.get()
    return context is not None and context.getLocalProperty("__is_continuous_processing") == "true"


@dataclass(frozen=True, slots=True)
class Opened:
    """The opening of a batch that is written exactly once, as its tasks have it.

    Args:
        opening: the state of the last batch, and the token.
        slots: number of partitions of the marker topic that are used.
    """

    opening: Opening
    slots: int


@dataclass(frozen=True, slots=True)
class ExactlyOnceReport:
    """The result of a task of such a batch, for the driver.

    Args:
        opened: as the driver told it: Spark commits a stream in another process, which has it from here only.
        batch: as Spark names it to tasks.
        report: the prepared transaction, if there is one.
        version: of its protocol; 0 without one.
        stream: name of the streaming query in whose `foreachBatch` a batch job runs; None: none is known.
    """

    opened: Opened
    batch: BatchName
    report: Report
    version: int
    stream: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage(WriterCommitMessage):
    """The report that a task's rows are in the log.

    `bytes` is the size in the record format, before compression; `seconds` the time from the request for the first row to
    the last acknowledgement; `began_s` when that time began, since 1970 by the worker's clock. `exactly_once` is what the
    commit needs if the rows are written exactly once: then they are not visible yet.
    """

    task: TaskIdentity
    rows: int
    bytes: int
    seconds: float
    partitions: tuple[PartitionRange, ...]
    began_s: float = 0.0
    exactly_once: ExactlyOnceReport | None = None

    @property
    def rows_per_s(self) -> float:
        """The rate of the task; 0 for a task without rows."""
        return self.rows / self.seconds if self.rows and self.seconds > 0 else 0.0
