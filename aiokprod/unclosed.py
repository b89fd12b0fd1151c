"""`Unclosed`: what happens to a producer that is never closed. Its lost records are counted and reported.

    the program ends, the loop runs (in a daemon thread)  -> closed first, see `Watch`; an ERROR in the log with the count of
                                 records that could not be delivered; ResourceWarning
    dropped, the loop runs    -> closed in the background; the loop's exception handler is called; ResourceWarning
    dropped, the loop stands  -> the same when the loop runs again; now an ERROR in the log with the count of unsettled records
    dropped, the loop ended   -> an ERROR in the log with the count of lost records; ResourceWarning
    the loop ends (asyncio.run cancels all tasks)  -> the loop's exception handler gets the count of lost records
    closed or started on another loop              -> an ERROR in the log with the count of lost records; ResourceWarning

At exit Python waits for the threads that are not daemons, ends the threads of `concurrent.futures`, calls the functions
of `atexit`, and only then stops the daemon threads, wherever they are. So a loop of a daemon thread still runs while
`Watch` waits for it, but no thread can be begun for it: code that wants one asks `program.has_ended`.

A pipeline holds its producer by a weak reference (`weakly`), else its tasks would keep the producer alive.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from time import monotonic
from typing import Any

from aiokprod.closing import Closing, named
from aiokprod.logs import StateLog
from aiokprod.model import CloseReport, Persistence
from aiokprod.pipeline.pipeline import Pipeline
from aiokprod.record_metadata import RecordMetadata

GRACE_S = 3.0  # at exit, for what follows the bound of a close: tasks, sockets and hooks end
LOOK_S = 0.05  # how often the wait at exit looks at the loops
STANDING_S = 0.2  # at exit, until a loop that does not run is given up: its thread may be between two runs of it
COUNTS = 100  # attempts at exit to count records while the loop changes them
CloseHooks = Callable[[], Coroutine[Any, Any, None]]
Undelivered = Counter[tuple[str, int | None, Persistence]]


class Unclosed:
    """The watch over one start of a producer, until it is closed."""

    def __init__(
        self,
        producer: object,
        pipeline: Pipeline,
        begin_close: Callable[[float], None],
        close_hooks: CloseHooks,
        log: StateLog,
        is_ours: Callable[[], bool],
        untaken: set[Future[RecordMetadata]],
    ) -> None:
        """Begin to watch the producer.

        Args:
            producer: held by a weak reference only.
            pipeline: of this start.
            begin_close: a bound method that begins to close the producer, on its loop; held by a weak reference only.
            close_hooks: closes interceptors and serializers.
            log: receives the counts of lost records.
            is_ours: False in a forked child, which must not report the parent's producer.
            untaken: Futures of `send_threadsafe` whose records the loop has not taken.
        """
        self.is_ours = is_ours
        self._name = f"{type(producer).__name__} {pipeline.config.client_id}"
        self._pipeline = pipeline
        self._begin_close = weakref.WeakMethod(begin_close)
        self._close_hooks = close_hooks
        self._log = log
        self._untaken = untaken
        self._closing: Closing | None = None  # of a producer that was dropped
        self._ended = threading.Event()
        self._at_exit: _AtExit | None = None  # once the program has ended
        self._finalizer = weakref.finalize(producer, self._dropped)
        self._finalizer.atexit = False  # WATCH closes all of them side by side
        WATCH.add(self)

    def end(self) -> None:
        """Stop watching: the producer is closed."""
        self._finalizer.detach()
        self._end()

    def _end(self) -> None:
        WATCH.discard(self)
        self._ended.set()

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
        """Handle the collection of the producer; called by the garbage collector, in any thread."""
        if not self.is_ours():
            return
        pipeline = self._pipeline
        if not pipeline.loop.is_running():
            WATCH.discard(self)  # which would keep the loop
        if pipeline.loop.is_closed():
            text = self._text("it was never closed", pipeline.abandon().count)
            self._log.lost_with_loop(text)
        else:
            text = f"{self._name} was dropped without close(): it is closed now, in the background"
            pipeline.loop.call_soon_threadsafe(self._close, text)
            if not pipeline.loop.is_running():  # between two runs of a Runner, or for ever: which, is not known here
                pipeline.tell_failures()
                text = self._text("it was never closed", sum(pipeline.unsettled().values()))
                self._log.lost_with_loop(f"{text}; if its event loop runs again, it is closed then")
        warnings.warn(text, ResourceWarning, stacklevel=2)

    def _close(self, text: str) -> None:
        self._pipeline.loop.call_exception_handler({"message": text})
        if self._closing is None:  # the program may have ended first
            WATCH.add(self)
            self._close_dropped(self._close_s())

    def _close_dropped(self, timeout: float) -> None:
        self._closing = Closing(self._pipeline, self._close_hooks, self._closed, self._log)
        self._closing.within(timeout)

    def _closed(self) -> None:
        report = self._pipeline.reports.close_report(0.0)
        if not report.is_clean and self._at_exit is None:
            self._log.lost_with_loop(self._text("it was dropped without close()", report.count))
        self._end()

    def _text(self, why: str, lost: int) -> str:
        return f"{self._name}: {why}: {lost} records are lost" if lost else f"{self._name}: {why}"

    # ------------------------------------------------------------------ at exit; called by `Watch`, in the main thread
    def close_at_exit(self) -> bool:
        """Let the loop close the producer; False if it cannot."""
        pipeline, loop = self._pipeline, self._pipeline.loop
        self._at_exit = _AtExit(self._close_s(), pipeline)
        if (
            loop.is_closed() or asyncio._get_running_loop() is loop
        ):  # a wait in the thread of the loop would be for ever
            return False
        try:
            loop.call_soon_threadsafe(self._close_on_loop, self._at_exit)
        except RuntimeError:  # it was closed in between
            return False
        return True

    def _close_s(self) -> float:
        """Return how many seconds a close may take that the program has not called."""
        config = self._pipeline.config
        if config.close_timeout is not None:
            return config.close_timeout
        return config.delivery_timeout + config.max_block_ms / 1000  # each record has its outcome by then

    def _close_on_loop(self, at_exit: _AtExit) -> None:
        at_exit.has_begun = True
        if self._ended.is_set():
            return
        left_s = max(0.0, at_exit.deadline - monotonic())  # the loop may have been blocked since the end of the program
        begin_close = self._begin_close()
        if self._closing is not None:
            self._closing.within(left_s)
        elif begin_close is not None:
            begin_close(left_s)
        else:
            self._close_dropped(left_s)

    def is_over(self) -> bool:
        """Return whether the wait for the close ends: it has ended itself, is late, or the loop does not run."""
        at_exit, loop, now = self._at_exit, self._pipeline.loop, monotonic()
        if at_exit is None or self._ended.is_set() or loop.is_closed():
            return True
        if loop.is_running():
            at_exit.running_at = now
        return now >= at_exit.deadline + GRACE_S * at_exit.has_begun or now - at_exit.running_at >= STANDING_S

    def wait(self, timeout: float) -> None:
        """Wait until it is closed, for so many seconds at most."""
        self._ended.wait(timeout)

    def report_exit(self, *, was_interrupted: bool) -> None:
        """Report in the log what could not be delivered."""
        WATCH.discard(self)
        pipeline = self._pipeline
        at_exit = self._at_exit or _AtExit(0.0, pipeline)  # the wait was interrupted before it came here
        text = "the program ended before its close() did" if at_exit.was_closing else "it was never closed"
        if self._ended.is_set():
            lost = Undelivered(pipeline.reports.close_report(0.0).undelivered)
            why = f", and not all could be delivered within {at_exit.timeout:g} s after the program ended"
            how = ", and is closed now that the program has ended"
        else:
            lost = self._left()
            how, why = "", at_exit.why(was_interrupted) if pipeline.loop.is_running() else ""
        untaken = 0
        if not at_exit.has_begun and not self._ended.is_set():  # else they came later: the loop refuses them
            untaken = sum(not future.done() for future in tuple(self._untaken))
        if at_exit.had_failed:  # its records have failed with their errors
            lost.clear()
        where = [named(lost)] if lost else []
        if untaken:
            where.append(f"{untaken} that send_threadsafe() had not handed over")
        if lost or untaken:
            self._log.lost_with_loop(f"{self._text(text + why, lost.total() + untaken)} ({', '.join(where)})")
        warnings.warn(f"{self._name}: {text}{how}", ResourceWarning, stacklevel=2)

    def _left(self) -> Undelivered:
        """Count what has no outcome yet, and what has failed since the close began; the loop may run meanwhile."""
        if self._pipeline.loop.is_closed():
            return Undelivered(self._pipeline.abandon().undelivered)
        if not self._pipeline.loop.is_running():
            self._pipeline.tell_failures()
        for _ in range(COUNTS - 1):
            try:
                unsettled = self._pipeline.unsettled()
                break
            except RuntimeError:  # a dictionary has changed while it was read
                continue
        else:
            unsettled = self._pipeline.unsettled()
        return Undelivered(self._pipeline.reports.close_report(0.0).undelivered) + Undelivered(unsettled)


class _AtExit:
    """How the close at exit of one producer goes on."""

    def __init__(self, timeout: float, pipeline: Pipeline) -> None:
        self.timeout = timeout
        self.deadline = monotonic() + timeout
        self.was_closing = pipeline.is_closing
        self.had_failed = pipeline.failure is not None
        self.has_begun = False  # set by the loop
        self.running_at = monotonic()  # when the loop was last seen running

    def why(self, was_interrupted: bool) -> str:
        """Return why the close has not ended on a loop that runs."""
        if was_interrupted:
            return ", and the wait for its close was interrupted"
        if self.has_begun:
            return f", and its close did not end within {self.timeout + GRACE_S:g} s after the program ended"
        return f", and its event loop was blocked for {self.timeout:g} s after the program ended"


class Watch:
    """The starts of all producers that no close() has ended. At exit they are closed, side by side.

    That takes as long as the longest of their `close_timeout_ms` at most, and `GRACE_S`; a loop that does not run, and one
    that is blocked, cannot hold up the end of the program for longer.
    """

    def __init__(self) -> None:
        self._unclosed: set[Unclosed] = set()
        self._process = os.getpid()
        # When it is imported: what the application registers later is called first, and may still close its producers.
        atexit.register(self._close_all)

    def add(self, unclosed: Unclosed) -> None:
        """Close it at exit."""
        if self._process != os.getpid():
            self._process = os.getpid()
            atexit.register(self._close_all)  # a child of multiprocessing forgets what its parent registered
        self._unclosed.add(unclosed)

    def discard(self, unclosed: Unclosed) -> None:
        """Forget it, from any thread."""
        self._unclosed.discard(unclosed)

    def _close_all(self) -> None:
        left = [each for each in tuple(self._unclosed) if each.is_ours()]
        was_interrupted = False
        try:
            waiting = [each for each in left if each.close_at_exit()]
            while waiting := [each for each in waiting if not each.is_over()]:
                waiting[0].wait(LOOK_S)
        except (KeyboardInterrupt, SystemExit):  # of the user, or of a signal handler: not another second
            was_interrupted = True
        for each in left:
            try:
                each.report_exit(was_interrupted=was_interrupted)
            except Exception as error:  # of a warning that is an error: the next one is reported all the same
                sys.excepthook(type(error), error, error.__traceback__)


WATCH = Watch()


def weakly(method: Callable[[BaseException], None]) -> Callable[[BaseException], None]:
    """Return a function that calls a bound method, does not keep its object alive, and does nothing once that is gone."""
    reference = weakref.WeakMethod(method)

    def call(cause: BaseException) -> None:
        alive = reference()
        if alive is not None:
            alive(cause)

    return call
