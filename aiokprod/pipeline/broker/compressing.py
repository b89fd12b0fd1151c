"""`CompressingThreads`: large sections are compressed beside the loop. One per pipeline."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aiokprod.pipeline.partition.ledger import Entry
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.program import has_ended
from aiokprod.records.compression import compress

MOST_THREADS = 2


class CompressingThreads:
    """The threads that compress sections; each answers with `queue.compressed`."""

    def __init__(
        self, codec: str, level: int | None, spawn: Callable[[Coroutine[Any, Any, None], str], object]
    ) -> None:
        self._codec = codec
        self._level = level
        self._spawn = spawn
        self._limiter: Any = None
        if codec != "none":
            from anyio import CapacityLimiter  # only with a codec: the import takes a while

            self._limiter = CapacityLimiter(MOST_THREADS)

    def submit(
        self, queue: PartitionQueue, entry: Entry, ranges: list[tuple[int, int]], section: bytes | bytearray
    ) -> None:
        """Compress the section, which holds these ranges of the entry's records; they are told with the answer.

        The ranges are noted here and not in the task: between this call and its first step a record may leave the entry,
        and a section with that record would go out under a header without it.
        """
        name = f"aiokprod-compress-{queue.topic}-{queue.partition}"
        self._spawn(self._compress(queue, entry, ranges, section), name)

    async def _compress(
        self, queue: PartitionQueue, entry: Entry, ranges: list[tuple[int, int]], section: bytes | bytearray
    ) -> None:
        if has_ended():
            squeezed = compress(self._codec, self._level, section)
        else:
            squeezed = await self._compress_in_thread(section)
        queue.compressed(entry, ranges, squeezed, len(section))

    async def _compress_in_thread(self, section: bytes | bytearray) -> bytes:
        from anyio.to_thread import run_sync

        try:
            squeezed: bytes = await run_sync(
                compress, self._codec, self._level, section, abandon_on_cancel=True, limiter=self._limiter
            )
        except RuntimeError:  # "can't start new thread": the program has ended in between
            if not has_ended():
                raise
            squeezed = compress(self._codec, self._level, section)
        return squeezed
