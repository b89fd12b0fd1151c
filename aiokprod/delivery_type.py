"""`Delivery` as type checkers see it, an `asyncio.Future`; at run time it is the pipeline's own class.

asyncio accepts any object that satisfies `asyncio.isfuture`, as a Delivery does, but the annotations of `asyncio.wait` ask
for the class. The pipeline's class cannot derive from it: it is compiled, and a Future has a dozen fields too many for an
object that exists once per record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Self

from aiokprod.pipeline.delivery import delivery
from aiokprod.record_metadata import RecordMetadata

if TYPE_CHECKING:

    class Delivery(delivery.Delivery, asyncio.Future[RecordMetadata]):  # type: ignore[misc] # both have slots
        """The outcome of one record, to await; see `aiokprod.pipeline.delivery.delivery.Delivery`."""

        set_result: None  # type: ignore[assignment] # only the producer settles a Delivery
        set_exception: None  # type: ignore[assignment]

        def add_done_callback(self, fn: Callable[[Self], object], *, context: Context | None = None) -> None: ...
        def remove_done_callback(self, fn: Callable[[Self], object]) -> int: ...

else:
    Delivery = delivery.Delivery
