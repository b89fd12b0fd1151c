"""`Flushes`: which flush waits for what, without looking at records. One per pipeline.

Work (an open batch, a parked record) belongs to the generation in which it began; `flush` ends a generation and waits
until nothing of it, or of an older one, is unfinished. So a flush covers what was sent before it and nothing else, and
endless sending cannot keep it waiting (faults: L7, L8).
"""

from __future__ import annotations

import asyncio


class Flushes:
    """Unfinished work by generation, and the flushes that wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.generation = 0
        self._loop = loop
        self._is_over = False
        self._pending: dict[int, int] = {}  # work by generation; 0: prepared for some that has not come
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def prepare(self, generation: int) -> dict[int, int]:
        """Return the counts, with a place for work of this generation: to add 1 to it can neither fail nor be interrupted."""
        pending = self._pending
        if generation not in pending:
            pending[generation] = 0
        return pending

    def began(self, generation: int) -> None:
        """Count work that a flush of this generation, or of a later one, waits for."""
        self.prepare(generation)[generation] += 1

    def finished(self, generation: int) -> None:
        """Count work of this generation that has its outcome."""
        if self._is_over:
            return
        pending = self._pending
        # In place, and no place is taken away here: a finalizer that sends between two lines counts in the same one.
        pending[generation] -= 1
        if pending[generation] or not self._waiting:
            return
        oldest = min([each for each, count in list(pending.items()) if count], default=self.generation + 1)
        for until, future in self._waiting:
            if until < oldest and not future.done():
                future.set_result(None)
        self._waiting = [(until, future) for until, future in self._waiting if until >= oldest]

    def end_generation(self) -> asyncio.Future[None] | None:
        """Return a future that is done when all work so far has its outcome; None: there is no unfinished work."""
        until = self.generation
        self.generation += 1
        pending = self._pending
        is_pending = False
        for each, count in list(pending.items()):  # what is sent in between is of the new generation
            if count and each <= until:
                is_pending = True
            elif each <= until:
                del pending[each]
        if not is_pending:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((until, future))
        return future

    def end(self) -> None:
        """Let all flushes end, after a crash: everything has its outcome, though it may not have been counted."""
        self._is_over = True
        self._pending.clear()
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(None)

    def forget(self, future: asyncio.Future[None]) -> None:
        """Drop a future that no task waits for any more."""
        self._waiting = [pair for pair in self._waiting if pair[1] is not future]

    def __repr__(self) -> str:
        return f"<Flushes generation {self.generation}, pending {self._pending}, {len(self._waiting)} waiting>"
