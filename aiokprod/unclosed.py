"""A producer that nothing closed: it was dropped, or its event loop ended. Its records are counted, and that is told.

    dropped, the loop runs    -> closed in the background; the loop's exception handler hears of it; ResourceWarning
    dropped, the loop ended   -> an ERROR in the log with the lost records; ResourceWarning
    the loop ends (asyncio.run cancels all tasks)  -> the loop's exception handler hears what is lost
    closed or started on another loop              -> an ERROR in the log with the lost records; ResourceWarning

A pipeline holds its producer by a weak reference (`weakly`), else its tasks would keep the producer alive.
"""

from __future__ import annotations

import asyncio
import warnings
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from aiokprod.closing import Closing
from aiokprod.logs import StateLog
from aiokprod.model import CloseReport
from aiokprod.pipeline.assembly import Pipeline

CLOSE_S = 30.0  # as close() has by default
CloseHooks = Callable[[], Coroutine[Any, Any, None]]


class Unclosed:
    """Watches over one start of a producer, until it is closed."""

    def __init__(
        self, producer: object, pipeline: Pipeline, close_hooks: CloseHooks, log: StateLog, is_ours: Callable[[], bool]
    ) -> None:
        """`is_ours`: False in a forked child, where the parent's producer is nothing to tell of."""
        self._name = f"{type(producer).__name__} {pipeline.config.client_id}"
        self._pipeline = pipeline
        self._close_hooks = close_hooks
        self._log = log
        self._is_ours = is_ours
        self._finalizer = weakref.finalize(producer, self._dropped)

    def end(self) -> None:
        """The producer is closed."""
        self._finalizer.detach()

    def leave_loop(self) -> CloseReport:
        """The loop was closed before the producer was: what is lost, told in the log."""
        self.end()
        report = self._pipeline.abandon()
        self._log.lost_with_loop(self._text("its event loop ended and it was not closed", report.count))
        return report

    def crashed(self) -> None:
        """The pipeline has failed, its records not yet. If that is so because the loop ends, say so."""
        loop = self._pipeline.loop
        if all(task.cancelling() for task in asyncio.all_tasks(loop)):
            text = self._text("the event loop ends and it was not closed", sum(self._pipeline.unsettled().values()))
            loop.call_exception_handler({"message": text})

    def _dropped(self) -> None:
        """Called by the collector, in any thread, or at the end of the process."""
        if not self._is_ours():
            return
        pipeline = self._pipeline
        if pipeline.loop.is_running():
            text = f"{self._name} was dropped and not closed: it is closed now, in the background"
            pipeline.loop.call_soon_threadsafe(self._close, text)
        else:
            text = self._text("it was never closed", pipeline.abandon().count)
            self._log.lost_with_loop(text)
        warnings.warn(text, ResourceWarning, stacklevel=2)

    def _close(self, text: str) -> None:
        self._pipeline.loop.call_exception_handler({"message": text})
        closing = Closing(self._pipeline, self._close_hooks, self._closed, self._log)
        closing.within(CLOSE_S)

    def _closed(self) -> None:
        report = self._pipeline.close_report(0.0)
        if not report.is_clean:
            self._log.lost_with_loop(self._text("it was dropped and not closed", report.count))

    def _text(self, why: str, lost: int) -> str:
        return f"{self._name}: {why}: {lost} records are lost" if lost else f"{self._name}: {why}"


def weakly(method: Callable[[BaseException], None]) -> Callable[[BaseException], None]:
    """A bound method that does not keep its object alive, and does nothing when that is gone."""
    reference = weakref.WeakMethod(method)

    def call(cause: BaseException) -> None:
        alive = reference()
        if alive is not None:
            alive(cause)

    return call
