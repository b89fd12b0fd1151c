"""`Closing`: the end of one life of a producer, shared by every call of `close`. One per start.

    end the transaction, drain, both until the earliest bound
        ->  fail the rest  ->  wait for tasks and sockets to end  ->  close hooks  ->  one report

A third party may cancel the task of the closing before or during any step (frameworks cancel every task of a loop).
So each step runs in a task of its own, and the closing continues whatever happens to the task that waits for the step. A
closing that was cancelled before its first step starts again. It always ends, at most `GONE_S` plus the time of the hooks
after its bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from math import inf
from typing import Any, TypeAlias

from aiokprod.errors import AiokprodError
from aiokprod.interceptor_chain import raise_soon
from aiokprod.logs import StateLog
from aiokprod.model import CloseReport, Persistence
from aiokprod.pipeline.pipeline import Pipeline

GONE_S = 2.0  # for tasks and sockets to end: a connection takes a second at most, a user's coroutine may never end
MOST_NAMED = 5  # partitions listed in a warning
ATTEMPTS = 10  # runs of a step that third parties cancel each time
Bound: TypeAlias = "asyncio.Future[None]"


class Closing:
    """The closing of one pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        close_hooks: Callable[[], Coroutine[Any, Any, None]],
        ended: Callable[[], None],
        log: StateLog,
    ) -> None:
        """Stop accepting records and begin to close; needs the running loop of the pipeline.

        Args:
            pipeline: the one to close.
            close_hooks: closes interceptors and serializers, within a bound of its own.
            ended: called when everything is closed, just before the report is set.
            log: receives what does not end, and bugs.
        """
        self._pipeline = pipeline
        self._close_hooks: Callable[[], Coroutine[Any, Any, None]] | None = close_hooks
        self._ended = ended
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._began_at = self._loop.time()
        self._report: asyncio.Future[CloseReport] = self._loop.create_future()
        self._deadline = inf
        self._due: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        pipeline.stop_taking()
        self._spawn()

    @property
    def is_done(self) -> bool:
        """True once the report is set."""
        return self._report.done()

    def within(self, timeout: float | None) -> None:
        """Add the bound of one caller, in seconds from now; the earliest bound of all callers counts."""
        if timeout is None or self._due.done():
            return
        deadline = self._loop.time() + max(0.0, timeout)
        if deadline < self._deadline:
            former = self._timer
            self._timer = self._loop.call_at(deadline, self._ring)
            self._deadline = deadline  # behind the call: a later bound that is earlier is set again
            if former is not None:
                former.cancel()

    async def report(self) -> CloseReport:
        """Wait for the report of undelivered records, which is the same for every caller.

        Cancellation: the closing goes on.
        """
        return self._report.result() if self._report.done() else await asyncio.shield(self._report)

    def _ring(self) -> None:
        if not self._due.done():
            self._due.set_result(None)

    def _spawn(self) -> None:
        self._loop.create_task(self._run(), name="aiokprod-close").add_done_callback(self._look)

    def _look(self, task: asyncio.Task[None]) -> None:
        """Start again if the task was cancelled before its first step, and so has done nothing."""
        if task.cancelled():
            self._spawn()
        else:
            self._tell_bug(task)
            self._settle()  # no-op unless the task ended with a bug

    async def _run(self) -> None:
        pipeline = self._pipeline
        if pipeline.failure is None:
            await self._carry_through(self._end_transaction, "aiokprod-transaction", self._due)
        if pipeline.failure is None:
            await self._carry_through(pipeline.flush, "aiokprod-drain", self._due)
        if pipeline.failure is None and pipeline.has_last_push:
            await self._carry_through(pipeline.push_last, "aiokprod-last-push", self._due)
        if pipeline.failure is None:
            never: Bound = self._loop.create_future()
            await self._carry_through(pipeline.give_up, "aiokprod-rest", never)
        for _ in range(2):
            try:
                pipeline.end()
                break
            except (SystemExit, KeyboardInterrupt) as ended:
                raise_soon(ended)  # where the loop goes on, the closing does, too
            except Exception as bug:  # of ours: what it has not done it does again, and the tasks end all the same
                self._log.failed(bug)
        late: asyncio.Future[None] = self._loop.create_future()
        timer = self._loop.call_later(GONE_S, late.set_result, None)
        if not await self._carry_through(pipeline.gone, "aiokprod-gone", late):
            self._log.warned("resists", f"close() leaves tasks behind that do not end: {pipeline.tasks_left()}")
        timer.cancel()
        pipeline.measure()
        never = self._loop.create_future()  # the hooks have a bound of their own
        await self._carry_through(self._run_hooks, "aiokprod-hooks", never)
        self._close_hooks = None  # may hold what holds this closing
        self._settle()

    async def _end_transaction(self) -> None:
        left_s = None if self._deadline == inf else max(0.0, self._deadline - self._loop.time())
        with suppress(AiokprodError):  # a fence that this finds has failed the pipeline, which has told it
            await self._pipeline.end_transaction(left_s)

    async def _carry_through(self, step: Callable[[], Coroutine[Any, Any, None]], name: str, bound: Bound) -> bool:
        """Run a step to its end, again if a third party cancelled it; False if the bound came first."""
        for _ in range(ATTEMPTS):
            task = self._loop.create_task(step(), name=name)
            await _first(task, bound)
            if not task.done():
                task.cancel()
                return False
            if not task.cancelled():
                self._tell_bug(task)
                return True
        return False

    async def _run_hooks(self) -> None:
        close_hooks = self._close_hooks
        if close_hooks is None:
            return
        for _ in range(2):  # each hook is closed once: the second call closes those that an exception has left
            try:
                await close_hooks()
                break
            except (SystemExit, KeyboardInterrupt) as ended:
                raise_soon(ended)
            except Exception as bug:
                self._log.failed(bug)

    def _tell_bug(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._log.failed(bug)

    def _settle(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._report.done():
            self._ended()
            self._report.set_result(self._pipeline.reports.close_report(self._loop.time() - self._began_at))


def tell_unclean(report: CloseReport, log: StateLog) -> None:
    """Log a warning about the records that a close could not deliver, where no caller reads the report."""
    if report.is_clean:
        return
    records = "1 record" if report.count == 1 else f"{report.count} records"
    log.warned("unclean", f"close() could not deliver {records} ({named(report.undelivered)})")


def named(undelivered: Mapping[tuple[str, int | None, Persistence], int]) -> str:
    """Return the first partitions with their counts, for a log line."""
    left = [
        f"{topic if partition is None else f'{topic}-{partition}'}: {count} {persistence.value}"
        for (topic, partition, persistence), count in undelivered.items()
    ]
    more = f", and {len(left) - MOST_NAMED} more" if len(left) > MOST_NAMED else ""
    return f"{', '.join(left[:MOST_NAMED])}{more}"


async def _first(*awaited: asyncio.Future[Any]) -> None:
    """Wait until one of them is done; a cancellation does not end the wait."""
    while not any(each.done() for each in awaited):
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
