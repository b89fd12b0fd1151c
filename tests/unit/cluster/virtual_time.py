"""A loop whose time jumps to the next timer when nothing else is to do: hours pass at once, the same way each run."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[valid-type,misc]
    now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "nothing will ever happen again"
            self.now += max(timeout, 0)
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop that runs real code without waiting. Not for sockets: their bytes need real time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_virtual(scenario: Coroutine[Any, Any, None]) -> None:
    """Run as `asyncio.run` does, in virtual time; the scenario must leave no task behind."""

    async def checked() -> None:
        await scenario
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(checked())
