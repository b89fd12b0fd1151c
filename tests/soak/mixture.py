"""The workload with a small buffer and mixed operations: every way of sending, each record's outcome in the book.

The operations, as the book calls them:

    awaited     a task awaits what `send` gave              tried       `try_send`: there is room now, or an error
    watched     a callback is told                          recalled    taken back at once or a little later
    answered    the callback sends another record           cancelled   the handle is cancelled, the record goes on
    dropped     nothing keeps what `send` gave              many        `send_many`, of values or of `Record`s
    streamed    `send_many` of an async iterator            columns     `send_columns`

About half of the records have a timeout of their own, no two alike. Bulk calls are cancelled sometimes, and iterables
raise. Nothing waits for room before it sends: what has none waits in the line or is refused.

What becomes of a dropped record is told only if it fails, and then without its name. So they have a topic of their own: if
no failure was told of it until the producer was closed, all of them must be there; if some were, as many may be missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import accumulate
from typing import Any

from profiles import DROPPED, KEYS, TOPICS, WEIGHTS, draw_small_size
from sender import TICK_S, Workload
from values import value_of

from aiokprod import BytesColumn, Delivery, IntColumn, Persistence, Producer, Record
from aiokprod.errors import AiokprodError, ColumnsReport, SendColumnsError, SendManyError

BULKS = ("many", "streamed", "columns")
MOST_BULKS = 6  # at the same time
BULK_RECORDS = (2, 30)
CANCELLED_SHARE = 0.1  # of bulk calls
RAISING_SHARE = 0.05  # of iterables
TIMED_SHARE = 0.5
TIMEOUT_S = (0.02, 20.0)
ANSWER_SHARE = 0.5


class BrokenIterableError(Exception):
    """An iterable of ours raises."""


class Mixture(Workload):
    """All operations, drawn."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._bulks = 0
        self._dropped: list[int] = []  # of this session
        self._hurries_drops = True
        self._failed_drops = {Persistence.NOT_PERSISTED: 0, Persistence.POSSIBLY_PERSISTED: 0}

    # Sessions.

    def _hooks(self) -> dict[str, Any]:
        self._dropped = []
        self._hurries_drops = not self._hurries_drops  # else hardly a session would be without a failure
        self._failed_drops = dict.fromkeys(self._failed_drops, 0)
        return {"on_delivery_error": self._drop_failed}

    def _drop_failed(self, error: AiokprodError) -> None:
        if error.topic == DROPPED:
            assert error.persistence is not None
            self._failed_drops[error.persistence] += 1

    async def _end(self, producer: Producer) -> None:
        await asyncio.gather(
            *self._own, return_exceptions=True
        )  # bulk calls take as long as there is something to take
        await producer.flush()

    def _untold(self) -> dict[str, Any]:
        certain, unsure = (
            self._failed_drops[Persistence.NOT_PERSISTED],
            self._failed_drops[Persistence.POSSIBLY_PERSISTED],
        )
        for number in self._dropped:
            self._pen.write(f"{'d' if certain or unsure else 'q'} {number} {time.monotonic():.4f}")
        dropped = {"numbers": self._dropped, "not persisted": certain, "possibly persisted": unsure}
        return {"dropped": dropped}

    # One tick.

    async def _tick(self, producer: Producer) -> None:
        due = time.monotonic() + TICK_S
        left = self._due_count()
        while left > 0:
            operation = self._draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            if operation in BULKS:
                left -= self._bulk(producer, operation)
            elif operation == "flush":
                self._start(producer.flush())
                left -= 1
            else:
                self._single(producer, operation)
                left -= 1
        self._churn(producer)
        await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _drawn(self, topic: str) -> tuple[int, int | None, int | None, int]:
        """Draw number, partition, key and size of the next record of a topic."""
        number, self._count = self._count, self._count + 1
        how = self._draw.random()
        key = self._draw.randrange(KEYS) if how < 0.6 else None
        partition = self._draw.randrange(TOPICS[topic]) if 0.6 <= how < 0.8 else None
        return number, partition, key, draw_small_size(self._draw)

    def _topic(self) -> str:
        return self._draw.choice(list(self.topics))

    def _timeout(self) -> float | None:
        if self._draw.random() >= TIMED_SHARE:
            return None
        return round(math.exp(self._draw.uniform(*map(math.log, TIMEOUT_S))), 6)

    # One record.

    def _single(self, producer: Producer, operation: str) -> None:
        topic = DROPPED if operation == "dropped" else self._topic()
        number, partition, key, size = self._drawn(topic)
        timeout = None if operation == "dropped" and not self._hurries_drops else self._timeout()
        within = "-" if operation == "dropped" else str(timeout or math.inf)
        self._announce(number, topic, partition, key, size, within, operation, "-")
        self._pen.flush()
        key_bytes = None if key is None else b"key-%d" % key
        value = value_of(self.life, number, size, topic, key_bytes)
        send = producer.try_send if operation == "tried" else producer.send
        try:
            delivery = send(topic, value, key_bytes, partition=partition, timeout=timeout)
        except AiokprodError as refused:
            self._failed(number, refused)
            return
        if operation == "dropped":
            self._dropped.append(number)
        elif operation == "awaited":
            self._start(self._await(number, delivery))
        else:
            delivery.add_done_callback(self._callback(producer, number, is_answered=operation == "answered"))
            if operation == "cancelled":
                delivery.cancel()
            elif operation == "recalled":
                self._start(self._recall(delivery, self._draw.choice((0.0, 0.001, 0.05))))

    async def _await(self, number: int, delivery: Delivery) -> None:
        with contextlib.suppress(AiokprodError):
            await delivery
        self._settled(number, delivery)

    def _callback(self, producer: Producer, number: int, *, is_answered: bool) -> Callable[[Delivery], object]:
        def told(delivery: Delivery) -> None:
            self._settled(number, delivery)
            if is_answered and self._draw.random() < ANSWER_SHARE:
                self._single(producer, "answered")

        return told

    async def _recall(self, delivery: Delivery, after_s: float) -> None:
        if after_s:
            await asyncio.sleep(after_s)
        delivery.recall()

    # Many records.

    def _bulk(self, producer: Producer, operation: str) -> int:
        """Start a bulk of records; return their number."""
        if self._bulks >= MOST_BULKS:
            return 1
        count = self._draw.randint(*BULK_RECORDS)
        work = self._columns(producer, count) if operation == "columns" else self._many(producer, operation, count)
        task = asyncio.ensure_future(work)
        self._bulks += 1
        task.add_done_callback(self._bulk_ended)
        self._start(task)
        if self._draw.random() < CANCELLED_SHARE:
            asyncio.get_running_loop().call_later(self._draw.uniform(0.0, 0.2), task.cancel)
        return count

    def _bulk_ended(self, _: asyncio.Task[None]) -> None:
        self._bulks -= 1

    async def _many(self, producer: Producer, operation: str, count: int) -> None:
        numbers: list[int] = []
        topic, timeout = self._topic(), self._timeout()
        is_streamed = operation == "streamed"
        is_plain = self._draw.random() < 0.5
        breaks_at = self._draw.randrange(count) if self._draw.random() < RAISING_SHARE else count

        def taken() -> Iterator[Any]:
            """Yield each record just before the producer takes it, so that the book has the order of the sends."""
            for place in range(count):
                if place == breaks_at:
                    raise BrokenIterableError
                yield self._taken(numbers, topic, operation, is_plain, self._within(place, count, timeout, is_streamed))

        async def streamed() -> AsyncIterator[Any]:
            for each in taken():
                await asyncio.sleep(0)
                yield each

        try:
            values = streamed() if is_streamed else taken()
            await producer.send_many(topic, values, timeout=timeout)
        except SendManyError as some:
            failed = dict(some.report.failures)
        except (AiokprodError, BrokenIterableError, asyncio.CancelledError) as ended:
            for number in numbers:  # taken, and nothing more will be told of them
                self._pen.write(f"d {number} {time.monotonic():.4f}")
            if isinstance(ended, asyncio.CancelledError):
                raise
            return
        else:
            failed = {}
        for place, number in enumerate(numbers):
            if (error := failed.get(place)) is not None:
                self._failed(number, error)
            else:
                self._pen.write(f"o {number} {time.monotonic():.4f} - -")

    @staticmethod
    def _within(place: int, count: int, timeout: float | None, is_streamed: bool) -> str:
        """Return the deadline of a row for the book. A call reports all rows together; a stream waits for room before each."""
        return "-" if is_streamed or place < count - 1 else str(timeout or math.inf)

    def _taken(self, numbers: list[int], topic: str, operation: str, is_plain: bool, within: str) -> bytes | Record:
        number, partition, key, size = self._drawn(topic)
        if is_plain:
            partition = key = None
        line = "-" if operation == "many" else f"{operation}-{numbers[0] if numbers else number}"
        self._announce(number, topic, partition, key, size, within, operation, line)
        self._pen.flush()
        numbers.append(number)
        key_bytes = None if key is None else b"key-%d" % key
        value = value_of(self.life, number, size, topic, key_bytes)
        return value if is_plain else Record(value=value, key=key_bytes, partition=partition)

    async def _columns(self, producer: Producer, count: int) -> None:
        topic = self._topic()
        numbers: list[int] = []
        values: list[bytes] = []
        keys: list[bytes] = []
        partitions = array("i")
        for _ in range(count):
            number, _, _, size = self._drawn(topic)
            key = self._draw.randrange(KEYS)
            partition = self._draw.randrange(TOPICS[topic])
            numbers.append(number)
            keys.append(b"key-%d" % key)
            partitions.append(partition)
            values.append(value_of(self.life, number, min(size, 10_000), topic, keys[-1]))
        is_placed = self._draw.random() < 0.5
        line = f"columns-{numbers[0]}"
        for number, key_bytes, partition, value in zip(numbers, keys, partitions, values, strict=True):
            own = partition if is_placed else None
            self._announce(
                number, topic, own, None if is_placed else int(key_bytes[4:]), len(value), "-", "columns", line
            )
        self._pen.flush()
        try:
            report = await producer.send_columns(
                topic,
                column_of(values),
                column_of(keys),
                partitions=IntColumn(partitions) if is_placed else None,
                placements=True,
            )
        except SendColumnsError as some:
            report = some.report
        except asyncio.CancelledError:
            for number in numbers:
                self._pen.write(f"d {number} {time.monotonic():.4f}")
            raise
        except AiokprodError as refused:  # nothing was taken
            for number in numbers:
                self._failed(number, refused)
            return
        self._book_rows(numbers, report)

    def _book_rows(self, numbers: list[int], report: ColumnsReport) -> None:
        """Book what a report says about each row: its place, that it was not taken, or that it failed."""
        left = dict(enumerate(numbers))
        for placement in report.placements:
            for place, row in enumerate(placement.rows):
                offset = "-" if placement.base_offset is None else placement.base_offset + place
                self._pen.write(f"o {left.pop(row)} {time.monotonic():.4f} {placement.partition} {offset}")
        for row in range(len(numbers) - report.untaken, len(numbers)):
            assert report.untaken_error is not None
            self._failed(left.pop(row), report.untaken_error)
        for partition in report.partitions.values():
            if partition.first_error is not None and partition.first_failed_row is not None:
                self._failed(left.pop(partition.first_failed_row), partition.first_error)
        for number in left.values():  # one of a partition's failed rows that are not the first
            self._pen.write(f"p {number} {time.monotonic():.4f} SendColumnsError")


def column_of(rows: list[bytes]) -> BytesColumn:
    """Return a column, without a package for columns."""
    return BytesColumn(array("i", accumulate(map(len, rows), initial=0)), b"".join(rows))
