"""`Unclosed`: what happens to a producer that is never closed. Its lost records are counted and reported.

    dropped, the loop runs    -> closed in the background; the loop's exception handler is called; ResourceWarning
    dropped, the loop stands  -> the same when the loop runs again; now an ERROR in the log with the count of unsettled records
    dropped, the loop ended   -> an ERROR in the log with the count of lost records; ResourceWarning
    the loop ends (asyncio.run cancels all tasks)  -> the loop's exception handler gets the count of lost records
    closed or started on another loop              -> an ERROR in the log with the count of lost records; ResourceWarning

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
from aiokprod.pipeline.pipeline import Pipeline

CLOSE_S = 30.0  # the default of close()
CloseHooks = Callable[[], Coroutine[Any, Any, None]]


class Unclosed:
    """The watch over one start of a producer, until it is closed."""

    def __init__(
        self, producer: object, pipeline: Pipeline, close_hooks: CloseHooks, log: StateLog, is_ours: Callable[[], bool]
    ) -> None:
        """Begin to watch the producer.

        Args:
            producer: held by a weak reference only.
            pipeline: of this start.
            close_hooks: closes interceptors and serializers.
            log: receives the counts of lost records.
            is_ours: False in a forked child, which must not report the parent's producer.
        """
        self._name = f"{type(producer).__name__} {pipeline.config.client_id}"
        self._pipeline = pipeline
        self._close_hooks = close_hooks
        self._log = log
        self._is_ours = is_ours
        self._finalizer = weakref.finalize(producer, self._dropped)

    def end(self) -> None:
        """Stop watching: the producer is closed."""
        self._finalizer.detach()

    def leave_loop(self) -> CloseReport:
        """Report in the log what is lost because the loop was closed before the producer."""
        self.end()
        report = self._pipeline.abandon()
        self._log.lost_with_loop(self._text("its event loop ended and it was not closed", report.count))
        return report

    def crashed(self) -> None:
        """Call the loop's exception handler if the pipeline failed because the loop ends; its records have not failed yet."""
        loop = self._pipeline.loop
        if all(task.cancelling() for task in asyncio.all_tasks(loop)):
            text = self._text("the event loop ends and it was not closed", sum(self._pipeline.unsettled().values()))
            loop.call_exception_handler({"message": text})

    def _dropped(self) -> None:
        """Handle the collection of the producer; called by the garbage collector, in any thread, or at exit."""
        if not self._is_ours():
            return
        pipeline = self._pipeline
        if pipeline.loop.is_closed():
            text = self._text("it was never closed", pipeline.abandon().count)
            self._log.lost_with_loop(text)
        else:
            text = f"{self._name} was dropped without close(): it is closed now, in the background"
            pipeline.loop.call_soon_threadsafe(self._close, text)
            if not pipeline.loop.is_running():  # between two runs of a Runner, or for ever: which, is not known here
                text = self._text("it was never closed", sum(pipeline.unsettled().values()))
                self._log.lost_with_loop(f"{text}; if its event loop runs again, it is closed then")
        warnings.warn(text, ResourceWarning, stacklevel=2)

    def _close(self, text: str) -> None:
        self._pipeline.loop.call_exception_handler({"message": text})
        closing = Closing(self._pipeline, self._close_hooks, self._closed, self._log)
        closing.within(CLOSE_S)

    def _closed(self) -> None:
        report = self._pipeline.reports.close_report(0.0)
        if not report.is_clean:
            self._log.lost_with_loop(self._text("it was dropped without close()", report.count))

    def _text(self, why: str, lost: int) -> str:
        return f"{self._name}: {why}: {lost} records are lost" if lost else f"{self._name}: {why}"


def weakly(method: Callable[[BaseException], None]) -> Callable[[BaseException], None]:
    """Return a function that calls a bound method, does not keep its object alive, and does nothing once that is gone."""
    reference = weakref.WeakMethod(method)

    def call(cause: BaseException) -> None:
        alive = reference()
        if alive is not None:
            alive(cause)

    return call
