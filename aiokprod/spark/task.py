"""One task of a write: takes rows, waits for their acknowledgements, returns a message.

The task's own thread pulls batches from Spark, which blocks, and passes them to the loop's thread; there a producer that
the process keeps sends them. Calls follow each other without waiting for acknowledgements, and the producer accepts their
rows in the order of the calls. Small batches are gathered while a call is in flight, and are sent in one call.

Invariant: bytes in flight stay below `max_in_flight_bytes`; a larger batch is sent in parts, a larger row alone. In addition
at most `GATHERED_BYTES` or half of that bound, whichever is less, and one batch of Spark's are gathered.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from hashlib import sha256
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from aiokprod import BytesColumn, ColumnsReport, HeadersColumn, SendColumnsError
from aiokprod.errors import AiokprodError
from aiokprod.spark.engine import Lease, leased
from aiokprod.spark.errors import RowError, SinkUsageError, root_of
from aiokprod.spark.fingerprint import at_rows, total
from aiokprod.spark.messages import ExactlyOnceReport, PartitionRange, TaskIdentity, TaskMessage, is_continuous
from aiokprod.spark.rows import Rows, pieces

if TYPE_CHECKING:
    from aiokprod.producer import Producer
    from aiokprod.spark.fingerprint import Hashes
    from aiokprod.spark.options import SinkOptions
    from aiokprod.spark.schema import ColumnPlan

GATHERED_BYTES: Final = 1_048_576
"""Spark's batches are gathered up to this size: for fewer bytes a call costs more than the sending"""


def write_rows(batches: Iterator[Any], options: SinkOptions, plan: ColumnPlan) -> TaskMessage:
    """Write all rows of a task and wait until each is acknowledged.

    Raises:
        RowError: a row was not delivered, or has no topic; others may be in the log.
        AiokprodError: the cluster cannot be reached, the topic does not exist, ...
    """
    if is_continuous():
        raise SinkUsageError("trigger(continuous=...) is not supported: use processingTime or availableNow")
    began_s, began = time.time(), time.monotonic()
    outcome = Outcome()
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is not None:  # a task without rows needs no connection
        with leased(options.config, options.idle_timeout_s) as lease:
            hand = HandOver(lease, options, plan, outcome)
            try:
                for batch in chain((first,), filled):
                    hand.over(batch)
                hand.finish()
            except BaseException:
                hand.give_up()
                raise
    return outcome.message(options.batch_id, began_s, time.monotonic() - began)


def combined(ranges: Iterable[PartitionRange]) -> int:
    """Return one fingerprint of rows of several topics, in whatever partition each was written."""
    return sum(each.fingerprint * topic_weight(each.topic) for each in ranges) % 2**64


def topic_weight(topic: str) -> int:
    """Return the factor of a topic in `combined`: an odd number."""
    return int.from_bytes(sha256(topic.encode()).digest()[:8], "little") | 1


class HandOver:
    """The hand-over of rows from the task's thread to the loop's: gathered rows, and calls in flight."""

    def __init__(self, lease: Lease, options: SinkOptions, plan: ColumnPlan, outcome: Outcome) -> None:
        self._lease = lease
        self._topic = options.topic
        self._most_bytes = options.max_in_flight_bytes
        self._plan = plan
        self._outcome = outcome
        self._gathered: list[Any] = []
        self._gathered_bytes = 0
        self._taken = 0  # rows before the gathered ones
        self._on_the_way: deque[_Call] = deque()
        self._bytes_on_the_way = 0

    def over(self, batch: Any) -> None:
        """Take a batch of Spark's; wait while too many bytes are in flight."""
        self._gathered.append(batch)
        self._gathered_bytes += batch.nbytes
        while self._on_the_way and self._on_the_way[0].future.done():
            self._wait_for_oldest()
        if not self._on_the_way or self._gathered_bytes >= min(GATHERED_BYTES, self._most_bytes // 2):
            self._submit()

    def finish(self) -> None:
        """Send the gathered rows and wait until everything is acknowledged."""
        self._submit()
        while self._on_the_way:
            self._wait_for_oldest()

    def give_up(self) -> None:
        """Cancel the calls in flight: rows that they have not passed to the producer yet are not sent."""
        for call in self._on_the_way:
            call.future.cancel()

    def _submit(self) -> None:
        if not self._gathered:
            return
        batch, self._gathered, self._gathered_bytes = _joined(self._gathered), [], 0
        first, self._taken = self._taken, self._taken + batch.num_rows
        for rows in pieces(batch, self._plan, self._topic, first, self._most_bytes // 2):
            while self._on_the_way and self._bytes_on_the_way + rows.bytes > self._most_bytes:
                self._wait_for_oldest()
            self._bytes_on_the_way += rows.bytes
            future = self._lease.submit(_send(self._lease.producer, rows))
            self._on_the_way.append(_Call(rows, future, rows.fingerprints()))  # computed while the rows are sent

    def _wait_for_oldest(self) -> None:
        call = self._on_the_way.popleft()
        rows = call.rows
        self._bytes_on_the_way -= rows.bytes
        try:
            report = call.future.result()
        except SendColumnsError as failed:
            raise _row_error(failed.report, rows) from failed
        except AiokprodError as error:
            if error.row is not None:
                row = rows.position(error.row)
                raise RowError(f"row {row} of this task cannot be sent: {error}", row=row, topic=rows.topic) from error
            error.add_note(
                f"Topic {rows.topic!r}, rows {rows.position(0)} to {rows.position(len(rows) - 1)} of this task."
            )
            raise
        self._outcome.settle(report, call)


class _Call(NamedTuple):
    """Rows in flight."""

    rows: Rows
    future: Future[ColumnsReport]
    fingerprints: Hashes


def _joined(batches: list[Any]) -> Any:
    """Join several record batches into one."""
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


async def _send(producer: Producer, rows: Rows) -> ColumnsReport:
    return await producer.send_columns(
        rows.topic,
        BytesColumn.from_arrow(rows.values),
        None if rows.keys is None else BytesColumn.from_arrow(rows.keys),
        headers=None if rows.headers is None else HeadersColumn.from_arrow(rows.headers),
        partitions=rows.partitions,
        timestamps_ms=rows.timestamps,
        placements=True,
    )


class Outcome:
    """The outcome of the rows so far."""

    def __init__(self) -> None:
        self._rows = 0
        self._ranges: dict[tuple[str, int], PartitionRange] = {}

    def settle(self, report: ColumnsReport, call: _Call) -> None:
        """Add the rows of a call that are in the log."""
        self._rows += len(call.rows)
        sums: dict[tuple[str, int], int] = defaultdict(int)
        for placement in report.placements:
            sums[placement.topic, placement.partition] += total(at_rows(call.fingerprints, placement.rows))
        for (topic, partition), told in report.partitions.items():
            new = PartitionRange(
                topic=topic,
                partition=partition,
                count=told.count,
                bytes=told.bytes,
                first_offset=told.first_offset,
                last_offset=told.last_offset,
                fingerprint=sums[topic, partition] % 2**64,
            )
            old = self._ranges.get((topic, partition))
            self._ranges[topic, partition] = new if old is None else old.joined(new)

    @property
    def rows(self) -> int:
        """The number of rows that are in the log."""
        return self._rows

    @property
    def fingerprint(self) -> int:
        """The fingerprint of all of them."""
        return combined(self._ranges.values())

    def message(
        self, batch_id: int | None, began_s: float, seconds: float, exactly_once: ExactlyOnceReport | None = None
    ) -> TaskMessage:
        """Make the message of the task."""
        return TaskMessage(
            task=TaskIdentity.current(batch_id),
            rows=self._rows,
            bytes=sum(each.bytes for each in self._ranges.values()),
            seconds=seconds,
            began_s=began_s,
            partitions=tuple(self._ranges[place] for place in sorted(self._ranges)),
            exactly_once=exactly_once,
        )


def _row_error(report: ColumnsReport, rows: Rows) -> RowError:
    """Make the error of the first row that failed: where it is and why it failed."""
    failed = {place: told for place, told in report.partitions.items() if told.first_failed_row is not None}
    lost = report.failed + report.untaken
    if report.first_error is None:
        return RowError(f"{lost} of {len(rows)} rows were not sent", topic=rows.topic)
    error = root_of(report.first_error)
    why = f"{type(error).__name__}: {error.message}"  # its facts are those of the RowError
    text, partition, row = f"{lost} of {len(rows)} rows were not sent: {why}", None, None
    if failed:
        (_, partition), told = min(failed.items(), key=lambda each: each[1].first_failed_row or 0)
        row = rows.position(told.first_failed_row or 0)
        text = f"{lost} of {len(rows)} rows were not delivered, the first is row {row} of this task: {why}"
    row_error = RowError(
        text,
        row=row,
        topic=rows.topic,
        partition=partition,
        attempts=error.attempts,
        elapsed_s=error.elapsed_s,
        persistence=report.first_error.persistence,
        code=error.code,
        broker=error.broker,
    )
    if error.advice:
        row_error.add_note(error.advice)
    return row_error
