"""`BatchHooks`: tells interceptors what happens to each batch. One per pipeline, if an interceptor follows batches.

    PartitionQueue (sealed, answered, settled), BrokerFlusher (sent) -> a line of events -> the next turn of the loop

An event is made at once, as its batch may change afterwards, and is told later: no code of the user runs inside a state
change. Without such an interceptor there is no object of this class, and a stage only looks whether there is one.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiokprod.hooks import BatchAnswered, BatchEvent, BatchSealed, BatchSent, BatchSettled
from aiokprod.interceptor_chain import ASKED_AGAIN_S, InterceptorChain
from aiokprod.pipeline.partition.batch import ProducerBatch, Segment
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.wire.codes import name_of

PASSES_BY: Final = -1
"""number of a batch that no interceptor follows"""


class BatchHooks:
    """The line of events of all batches, in the order in which they happened."""

    def __init__(self, loop: asyncio.AbstractEventLoop, interceptors: InterceptorChain) -> None:
        self._loop = loop
        self._interceptors = interceptors
        self._sees_sealed = interceptors.sees(BatchSealed)
        self._sees_sent = interceptors.sees(BatchSent)
        self._sees_answered = interceptors.sees(BatchAnswered)
        self._sees_settled = interceptors.sees(BatchSettled)
        self._line: list[BatchEvent] = []
        self._last_number = 0
        self._to_skip: int | None = 0  # batches that pass by before one is followed; None: all for a while
        self._asked_at = 0.0
        self._is_due = False  # a batch is followed: the interceptor will be asked after its first event
        self._ask()

    def _is_followed(self, batch: ProducerBatch, now: float) -> bool:
        """Return whether its events are told; decided at its first one, which gives it its number."""
        if not batch.number:
            # While the answer of the interceptor is due, all are followed.
            if not self._is_due:
                if self._to_skip is None:
                    if now < self._asked_at + ASKED_AGAIN_S:
                        batch.number = PASSES_BY
                        return False
                elif self._to_skip > 0:
                    self._to_skip -= 1
                    batch.number = PASSES_BY
                    return False
            self._last_number += 1
            batch.number = self._last_number
            self._is_due = True
        return batch.number > 0

    def _ask(self) -> None:
        """Ask how many batches may pass by. Not where a batch changes: this is code of the user, which may send or recall."""
        self._to_skip = self._interceptors.skip_batches()
        self._asked_at = self._loop.time()
        self._is_due = False

    def _since_1970(self, at: float) -> float:
        """Return a time of the loop as seconds since 1970."""
        return wall_s() - (self._loop.time() - at)

    def _add(self, event: BatchEvent) -> None:
        if not self._line:
            self._loop.call_soon(self._tell)
        self._line.append(event)

    def _tell(self) -> None:
        line, self._line = self._line, []
        told = 0
        try:
            for event in line:
                told += 1
                self._interceptors.batch_changed(event)
        finally:
            if told < len(line):  # KeyboardInterrupt, SystemExit. The loop may go on, as a notebook's does.
                if not self._line:
                    self._loop.call_soon(self._tell)
                self._line[:0] = line[told:]
        if self._is_due:
            self._ask()

    def sealed(self, batch: ProducerBatch) -> None:
        """Note that the batch takes no more records."""
        if not (self._sees_sealed and self._is_followed(batch, batch.sealed_at)):
            return
        event = BatchSealed(
            batch=batch.number,
            topic=batch.owner.topic,
            partition=batch.owner.partition,
            records=batch.unsettled_count,
            size_bytes=batch.size_bytes,
            opened_at=self._since_1970(batch.opened_at),
            at=self._since_1970(batch.sealed_at),
        )
        self._add(event)

    def sent(self, batch: ProducerBatch, records: int, size_bytes: int, attempt: int, broker: int, now: float) -> None:
        """Note that these records of the batch were written to a broker."""
        if not (self._sees_sent and self._is_followed(batch, now)):
            return
        event = BatchSent(
            batch=batch.number,
            topic=batch.owner.topic,
            partition=batch.owner.partition,
            records=records,
            size_bytes=size_bytes,
            attempt=attempt,
            broker=broker,
            at=self._since_1970(now),
        )
        self._add(event)

    def answered(
        self,
        batch: ProducerBatch,
        topic: str,
        partition: int,
        records: int,
        attempt: int,
        code: int | None,
        sent_at: float,
        now: float,
    ) -> None:
        """Note the end of an attempt; `code` None: without an answer."""
        if not (self._sees_answered and self._is_followed(batch, now)):
            return
        error = "NO_ANSWER" if code is None else name_of(code) if code else None
        event = BatchAnswered(
            batch=batch.number,
            topic=topic,
            partition=partition,
            records=records,
            attempt=attempt,
            code=code,
            error=error,
            request_s=max(0.0, now - sent_at),
            at=self._since_1970(now),
        )
        self._add(event)

    def settled(self, batch: ProducerBatch, topic: str, partition: int, segment: Segment) -> None:
        """Note the outcome of these records; after `ProducerBatch.settle`."""
        if not (self._sees_settled and self._is_followed(batch, segment.settled_at)):
            return
        error = None if segment.error is None else segment.error.clone()
        event = BatchSettled(
            batch=batch.number,
            topic=topic,
            partition=partition,
            records=segment.last - segment.first,
            first=segment.first,
            attempts=segment.attempts,
            server=batch.server if segment.attempts else None,  # others of the batch may have been written
            base_offset=segment.base_offset if error is None and segment.base_offset >= 0 else None,
            error=error,
            is_last=batch.is_finished,
            opened_at=self._since_1970(batch.opened_at),
            at=self._since_1970(segment.settled_at),
        )
        self._add(event)
