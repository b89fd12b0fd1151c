"""`SerializingLine`: records whose serializer returned an awaitable. One line per topic, while any record is in it.

Call order is kept per topic: while a record of a topic waits for its serializer, later ones of the topic wait behind it.
Awaitables are awaited one after the other, by one task for each line; usual serializers wait for a cache miss only.

The line is only the order of work. The records stand in the queue of their topic as all that wait do, so a line that ends
early (its task is cancelled, the producer fails) loses none of them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable

from aiokprod.errors import AiokprodError
from aiokprod.model import Record
from aiokprod.pipeline.partition.parked_record import ParkedRecord


class SerializingLine:
    """A line of records at their serializers: first in, first out."""

    def __init__(
        self,
        finish: Callable[[Record], Awaitable[None]],
        resume: Callable[[ParkedRecord, Record], None],
        fail: Callable[[ParkedRecord, AiokprodError], None],
        too_late: Callable[[ParkedRecord], AiokprodError],
    ) -> None:
        """Make the line; `too_late`: the error of a record whose serializer has not answered within max.block.ms."""
        self._finish = finish
        self._resume = resume
        self._fail = fail
        self._too_late = too_late
        self.waiting: deque[ParkedRecord] = deque()
        # The last failure that another attempt may cure, until a serializer succeeds: what it asks seems to be away, and the
        # records behind have waited for that.
        self.away: AiokprodError | None = None

    async def run(self) -> None:
        """Run until the line is empty."""
        while self.waiting:
            parked = self.waiting[0]
            record = parked.draft
            if parked.is_over or record is None:
                self.waiting.popleft()
                continue
            failure: AiokprodError | None = None
            try:
                async with asyncio.timeout_at(parked.block_deadline):
                    await self._finish(record)
                self.away = None
            except AiokprodError as error:
                failure = error
                if error.retriable:
                    self.away = error
            except TimeoutError:  # what the user's code raises comes as a SerializationError
                failure = self._too_late(parked)
            self.waiting.popleft()
            if parked.is_settled(0):
                continue  # recalled, or timed out, meanwhile
            if failure is None:
                try:
                    self._resume(parked, record)
                except AiokprodError as error:
                    failure = error
            if failure is not None:
                self._fail(parked, failure)


def let_go(record: Record | None) -> None:
    """Close the coroutines that the serializers returned: nothing awaits them, and they must not warn of it."""
    if record is not None:
        for result in (record.key, record.value):
            if inspect.iscoroutine(result) and inspect.getcoroutinestate(result) == inspect.CORO_CREATED:
                result.close()
