"""The writers that Spark calls: `write` in a worker, `commit` and `abort` on the driver. One for batches, one for streams.

Spark pickles a writer into every task, with all options, passwords too: no repr shows them. Everything that `commit` needs
is in the messages, as Spark calls it on another object for a stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from aiokprod.spark.commit_log import Committed, tell, tell_claims
from aiokprod.spark.errors import SinkUsageError, check_packages
from aiokprod.spark.messages import TaskMessage
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch job."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan) -> None:
        self.options = options
        self.plan = plan
        self.job_id = str(uuid4())

    def __repr__(self) -> str:
        return f"BatchWriter({self.options!r})"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task; returns when all are acknowledged."""
        return _written(iterator, self.options, self.plan)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log the written rows, and write the claims."""
        _commit(_task_messages(messages), self.options, self.job_id, self.options.batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave everything as it is: acknowledged rows stay in the log."""


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream; Spark makes a new one for each batch, and another one for its commit."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan) -> None:
        self.options = options
        self.plan = plan

    def __repr__(self) -> str:
        return f"StreamWriter({self.options!r})"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task; returns when all are acknowledged."""
        return _written(iterator, self.options, self.plan)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log the written rows, and write the claims."""
        told = _task_messages(messages)
        query_id = next((each.task.query_id for each in told if each.task.query_id is not None), "unknown")
        _commit(told, self.options, query_id, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave everything as it is: acknowledged rows stay in the log."""


def _written(iterator: Iterator[Any], options: SinkOptions, plan: ColumnPlan) -> WriterCommitMessage:
    check_packages()  # again: the executor's environment may differ from the driver's
    from aiokprod.spark.task import write_rows

    return write_rows(iterator, options, plan)


def _task_messages(messages: Sequence[WriterCommitMessage | None]) -> tuple[TaskMessage, ...]:
    told = tuple(message for message in messages if isinstance(message, TaskMessage))
    if len(told) != len(messages):
        # Spark 4.1 to 4.3 drop the rows of a continuous trigger in the JVM: `write` is never called, and this commit is the
        # first call in Python. The error is only logged, but a commit that succeeded would count the rows as written.
        raise SinkUsageError(
            "a task has no commit message, as with trigger(continuous=...), which is not supported: Spark drops the rows of"
            " such a query. Stop it, and use trigger(processingTime=...) or trigger(availableNow=True) with another checkpoint"
        )
    return told


def _commit(messages: tuple[TaskMessage, ...], options: SinkOptions, query_id: str, batch_id: int | None) -> None:
    batch = Committed(query_id=query_id, batch_id=batch_id, messages=messages)
    tell(batch)
    if options.claims_path is not None:
        tell_claims(batch, options.claims_path)
