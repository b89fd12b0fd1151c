"""`SerializingLine`: records whose serializer returned an awaitable. One line per topic, while somebody is in it.

Call order is kept per topic: while a record of a topic waits for its serializer, later ones of the topic wait behind it.
Awaitables are awaited one after the other, by one task for each line; usual serializers wait for a cache miss only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

from aiokprod.errors import AiokprodError
from aiokprod.model import Record
from aiokprod.pipeline.parked import ParkedRecord


class SerializingLine:
    """First in, first out."""

    def __init__(
        self,
        finish: Callable[[Record], Awaitable[None]],
        resume: Callable[[ParkedRecord, Record], None],
        fail: Callable[[ParkedRecord, AiokprodError], None],
    ) -> None:
        self._finish = finish
        self._resume = resume
        self._fail = fail
        self.waiting: deque[tuple[ParkedRecord, Record]] = deque()

    async def run(self) -> None:
        """Until the line is empty."""
        while self.waiting:
            parked, record = first = self.waiting[0]
            failure: AiokprodError | None = None
            try:
                await self._finish(record)
            except AiokprodError as error:
                failure = error
            if not self.waiting or self.waiting[0] is not first:
                return  # the producer closed meanwhile: `abandon` took everybody
            self.waiting.popleft()
            if failure is not None:
                self._fail(parked, failure)
            elif parked.failure is None:
                try:
                    self._resume(parked, record)
                except AiokprodError as error:
                    self._fail(parked, error)

    def abandon(self) -> list[ParkedRecord]:
        """Closing: everybody in the line."""
        left = [parked for parked, _ in self.waiting]
        self.waiting.clear()
        return left
