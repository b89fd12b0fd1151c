"""`OwnedTasks`: every task of the cluster layer, with one owner that ends them.

One per start of a `ClusterClient`. A task ends by itself, is cancelled here, or raises because of a bug; a bug (or a
cancellation by other code, `# faults: L14`) is reported to the owner, so that nothing waits for a task that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aiokprod.errors import ClusterError, UsageError, advise


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop.

    Raises:
        UsageError: no asyncio loop runs here: another library's does (trio), or none at all.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "no asyncio event loop runs here: aiokprod works on asyncio and uvloop, not on trio; under anyio choose the"
            " backend 'asyncio'"
        ) from None


def cancelled_from_outside(task: str) -> ClusterError:
    """Return the error of a producer that lost a task because other code cancelled it."""
    error = ClusterError(
        f"the task {task} was cancelled from outside, by other code: asyncio.run(), for example, cancels all tasks at its end"
    )
    advise(error, "Close the producer before its event loop ends; cancel no tasks but your own.")
    return error


class OwnedTasks:
    """A group of named tasks.

    Args:
        crashed: called with the exception that ended a task, once per task.
    """

    def __init__(self, crashed: Callable[[BaseException], None]) -> None:
        self._crashed = crashed
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._cancelled: set[asyncio.Task[None]] = set()  # by this class, not by other code

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task; after `close` has begun it is cancelled before its first step."""
        try:
            task = asyncio.get_running_loop().create_task(work, name=name)
        except BaseException:
            work.close()  # else Python warns of a coroutine that was never awaited
            raise
        try:
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        except BaseException:
            # The caller takes it for one that was not started. Its end is not waited for, and is told to nothing.
            self._tasks.discard(task)
            task.cancel()
            raise
        if self._is_closing:
            self.cancel(task)
        return task

    def cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a task of the group, without a report to the owner."""
        if not task.done():
            self._cancelled.add(task)
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        is_ours = task in self._cancelled
        self._cancelled.discard(task)
        if task.cancelled():
            if not is_ours:
                self._report(cancelled_from_outside(task.get_name()))
            return
        bug = task.exception()
        if bug is not None and not self._is_closing:
            self._report(bug)

    def _report(self, bug: BaseException) -> None:
        try:
            self._crashed(bug)
        except BaseException:
            # Interrupted: a task that is gone, and of which the owner has not heard, would never come back.
            asyncio.get_running_loop().call_soon(self._crashed, bug)
            raise

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended.

        Cancellation: the tasks are cancelled nevertheless; only the wait for their end is given up.
        """
        self._is_closing = True
        me = asyncio.current_task()
        while rest := {task for task in self._tasks if task is not me}:
            for task in rest:
                self.cancel(task)
            await asyncio.wait(rest)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"<OwnedTasks {sorted(task.get_name() for task in self._tasks)}>"
