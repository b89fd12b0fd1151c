"""The writers that Spark calls: `write` in a worker, `commit` and `abort` on the driver. One for batches, one for streams.

Spark pickles a writer into every task, with all options, passwords too: no repr shows them. Everything that `commit` needs
is in the messages, as Spark calls it on another object for a stream.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from aiokprod.errors import AiokprodError
from aiokprod.spark.commit_log import Committed, tell, tell_claims
from aiokprod.spark.errors import SinkUsageError, check_packages
from aiokprod.spark.messages import Opened, TaskMessage
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan
from aiokprod.spark.task_errors import as_spark_shows_it
from aiokprod.spark.worker_process import acknowledge_at_once, freeze_modules


class BatchWriter(DataSourceArrowWriter):
    """The writer of a batch job."""

    def __init__(self, options: SinkOptions, plan: ColumnPlan, job_id: str, opened: Opened | None = None) -> None:
        self.options = options
        self.plan = plan
        self.job_id = job_id
        self.opened = opened

    def __repr__(self) -> str:
        return f"BatchWriter({self.options!r})"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task; returns when all are acknowledged."""
        told = _written(iterator, self.options, self.plan, self.opened)
        freeze_modules()
        return told

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the rows that are written exactly once; log the rows, and write the claims."""
        _commit(_task_messages(messages), self.options, self.job_id, self.options.batch_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Abort what is written exactly once. Otherwise acknowledged rows stay in the log."""
        _abort(messages, self.options, self.opened)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of a stream; Spark makes a new one for each batch, and another one for its commit.

    `opened` is told to the tasks of a batch that is written exactly once; the writer of the commit has none.
    """

    def __init__(self, options: SinkOptions, plan: ColumnPlan, opened: Opened | None = None) -> None:
        self.options = options
        self.plan = plan
        self.opened = opened

    def __repr__(self) -> str:
        return f"StreamWriter({self.options!r})"

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of one task; returns when all are acknowledged."""
        told = _written(iterator, self.options, self.plan, self.opened)
        freeze_modules()
        return told

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the rows that are written exactly once; log the rows, and write the claims."""
        told = _task_messages(messages)
        query_id = next((each.task.query_id for each in told if each.task.query_id is not None), "unknown")
        _commit(told, self.options, query_id, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Abort what is written exactly once. Otherwise acknowledged rows stay in the log."""
        _abort(messages, self.options, self.opened)


def _written(
    iterator: Iterator[Any], options: SinkOptions, plan: ColumnPlan, opened: Opened | None
) -> WriterCommitMessage:
    acknowledge_at_once()
    check_packages()  # again: the executor's environment may differ from the driver's
    try:
        if options.exactly_once is not None:
            from aiokprod.spark.exactly_once_task import write_exactly_once

            return write_exactly_once(iterator, options, plan, options.exactly_once, opened)
        from aiokprod.spark.task import write_rows

        return write_rows(iterator, options, plan)
    except AiokprodError as error:
        told = as_spark_shows_it(error, options.config)
        if told is error:
            raise
    # Outside the handler, so that Spark shows no other error beside it.
    raise told


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
    commit_s = None
    if options.exactly_once is not None:
        from aiokprod.spark.exactly_once_driver import commit_batch

        began = time.monotonic()
        commit_batch(options, options.exactly_once, messages)
        commit_s = time.monotonic() - began
    batch = Committed(query_id=query_id, batch_id=batch_id, messages=messages, commit_s=commit_s)
    tell(batch)
    if options.claims_path is not None:
        tell_claims(batch, options.claims_path)
    freeze_modules()


def _abort(messages: Sequence[WriterCommitMessage | None], options: SinkOptions, opened: Opened | None) -> None:
    if options.exactly_once is not None:
        from aiokprod.spark.exactly_once_driver import abort_batch

        abort_batch(options, options.exactly_once, messages, opened)
