"""`CompressingThreads`: large sections are compressed beside the loop. One per pipeline."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aiokprod.pipeline.ledger import Entry
from aiokprod.pipeline.ports import Queue
from aiokprod.records.compression import compress

MOST_THREADS = 2


class CompressingThreads:
    """Takes sections, answers with `queue.compressed`."""

    def __init__(self, codec: str, level: int | None, spawn: Callable[[Coroutine[Any, Any, None], str], None]) -> None:
        self._codec = codec
        self._level = level
        self._spawn = spawn
        self._limiter: Any = None
        if codec != "none":
            from anyio import CapacityLimiter  # imported by those who compress: it takes a while

            self._limiter = CapacityLimiter(MOST_THREADS)

    def submit(self, queue: Queue, entry: Entry, section: bytes | bytearray) -> None:
        """Compress the section of this entry; what its records were by then is told with the answer."""
        self._spawn(self._compress(queue, entry, section), f"aiokprod-compress-{queue.topic}-{queue.partition}")

    async def _compress(self, queue: Queue, entry: Entry, section: bytes | bytearray) -> None:
        from anyio.to_thread import run_sync

        ranges = list(entry.ranges)
        squeezed = await run_sync(
            compress, self._codec, self._level, section, abandon_on_cancel=True, limiter=self._limiter
        )
        queue.compressed(entry, ranges, squeezed)
