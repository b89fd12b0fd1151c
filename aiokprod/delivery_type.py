"""`Delivery` as type checkers see it: an `asyncio.Future`. At run time it is the pipeline's own class.

asyncio takes what satisfies `asyncio.isfuture`, and a Delivery does; the annotations of `asyncio.wait` ask for the class.
The pipeline's class cannot derive from it: it is compiled, and a Future costs a dozen fields for each record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Self

from aiokprod.pipeline import delivery
from aiokprod.record_metadata import RecordMetadata

if TYPE_CHECKING:

    class Delivery(delivery.Delivery, asyncio.Future[RecordMetadata]):  # type: ignore[misc] # both have slots
        """The answer of one record; see `aiokprod.pipeline.delivery.Delivery`."""

        set_result: None  # type: ignore[assignment] # only the producer settles a Delivery
        set_exception: None  # type: ignore[assignment]

        def add_done_callback(self, fn: Callable[[Self], object], *, context: Context | None = None) -> None: ...
        def remove_done_callback(self, fn: Callable[[Self], object]) -> int: ...

else:
    Delivery = delivery.Delivery
