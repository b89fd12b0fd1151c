"""`LoopThread`: a producer on an event loop in a daemon thread of its own. One per start of a blocking producer.

    begin -> start -> run until it is closed -> end: every wait of a thread has an outcome, then the loop is closed

Invariant: no thread waits for ever. A call and a record that the loop can no longer serve fail with `ProducerFailedError`,
also if code of the user ends the loop (`sys.exit()` in a hook). Of a program that ends without a close, `aiokprod.unclosed`
closes the producer at exit.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar

from aiokprod.blocking.hand_over import HandOver
from aiokprod.blocking.outcome import Forks
from aiokprod.closing import tell_unclean
from aiokprod.errors import AiokprodError, ProducerClosedError, ProducerFailedError, advise
from aiokprod.logs import StateLog
from aiokprod.model import CloseReport
from aiokprod.producer import Producer, untaken_of

T = TypeVar("T")
GRACE_S: Final = 10.0  # for what follows the bound of a close: tasks, sockets and hooks end, the thread ends


class LoopThread:
    """The thread of one producer, with its loop."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.started: Future[None] = Future()
        self.is_started = False
        self._loop = asyncio.new_event_loop()
        self.hand_over = HandOver(self._loop, producer)
        self._lock = threading.RLock()  # of a finalizer or a signal handler, too, that calls in the middle of a call
        self._calls: dict[Future[Any], asyncio.Task[Any] | None] = {}
        self._is_over = False  # nothing is called on the loop any more
        self._is_closing = self._is_closed = False
        self._make_error: Callable[[], AiokprodError] = closed_error  # of what the loop no longer does
        self._report = CloseReport.empty()
        self._ended: Future[CloseReport] = Future()
        self._log = StateLog("producer", client_id=producer.config.client_id)
        self._thread = threading.Thread(target=self._run, name=f"aiokprod {producer.config.client_id}", daemon=True)
        self._has_begun = False
        self._forks = Forks.count

    def begin(self) -> None:
        """Start the thread, which connects; once.

        Raises:
            ProducerClosedError: the program has ended, and no thread can be started.
        """
        if self._has_begun:
            return
        try:
            self._thread.start()
        except RuntimeError as ended:
            self._loop.close()
            error = ProducerClosedError(f"the producer's thread cannot be started: {ended}")
            self.started.set_exception(error)
            raise error from ended
        self._has_begun = True

    # ------------------------------------------------------------------ calls of other threads
    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run a coroutine on the loop, behind all that was handed over before.

        Raises:
            ProducerClosedError: the loop has ended.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_over:
                raise self._make_error()
            self._loop.call_soon_threadsafe(self._begin_call, work, future, context=Context())
            self._calls[future] = None  # the loop takes the lock first, and so finds it
        return future

    def cancel(self, future: Future[Any]) -> None:
        """Cancel a call; its Future is cancelled soon."""
        with self._lock:
            if not self._is_over:
                self._loop.call_soon_threadsafe(self._cancel_call, future)

    def post(self, work: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop; nothing happens if it has ended, as each call has its outcome then."""
        with self._lock:
            if not self._is_over:
                self._loop.call_soon_threadsafe(work, *arguments)

    def close(self, timeout: float | None) -> CloseReport:
        """Close the producer, and end the thread.

        Raises:
            ProducerFailedError: the thread is blocked by code of the user.
        """
        self._begin_close(timeout)
        try:
            report = self._ended.result(None if timeout is None else timeout + GRACE_S)
        except TimeoutError:
            raise ProducerFailedError(
                f"the producer's thread did not end within {GRACE_S:g} s behind the timeout of close(): a serializer, an"
                " interceptor or another function that it calls blocks it"
            ) from None
        self._thread.join(GRACE_S)
        return report

    def drop(self) -> None:
        """Close in the background: the producer was dropped. Called by the garbage collector, in any thread."""
        if self._is_closing or self._is_over or self._forks != Forks.count:
            return
        name = f"aiokprod.blocking.Producer {self.producer.config.client_id}"
        with suppress(RuntimeError):  # the loop ends by itself
            self._loop.call_soon_threadsafe(self._close_on_loop, self.producer.config.close_timeout, True)
        warnings.warn(
            f"{name} was dropped without close(): it is closed now, in the background", ResourceWarning, stacklevel=2
        )

    def _begin_close(self, timeout: float | None) -> None:
        self.hand_over.refuse(closed_error)
        self.post(self._close_on_loop, timeout)

    # ------------------------------------------------------------------ the thread
    def _run(self) -> None:
        loop, error = self._loop, None
        try:
            loop.run_until_complete(self.producer.start(self.producer.config.start_timeout))
            self.hand_over.count_in(untaken_of(self.producer))
            atexit.register(
                self._at_exit
            )  # behind `aiokprod.unclosed`, which closes the producer then: called before it
            self.is_started = True
            self.started.set_result(None)
            loop.run_forever()
        except BaseException as ended:  # a start that failed; or SystemExit and the like, raised in a callback
            error = ended
        try:
            self._end(error)
        finally:
            atexit.unregister(self._at_exit)
            self._loop.close()
            if not self.started.done():
                self.started.set_exception(error or ProducerClosedError("the producer was closed while it started"))
            self._ended.set_result(self._report)

    def _at_exit(self) -> None:
        """Let the producer have all that was handed over, before it is closed."""
        if self._forks == Forks.count:
            self.post(self.hand_over.drain_all)

    def _begin_call(self, work: Callable[[], Coroutine[Any, Any, T]], future: Future[T]) -> None:
        self.hand_over.drain_all()
        with self._lock:
            if future not in self._calls:  # the call was interrupted
                return
        task = self._loop.create_task(work())
        self._calls[future] = task
        task.add_done_callback(partial(self._end_call, future))

    def _cancel_call(self, future: Future[Any]) -> None:
        task = self._calls.get(future)
        if task is not None:
            task.cancel()

    def _end_call(self, future: Future[T], task: asyncio.Task[T]) -> None:
        self._calls.pop(future, None)
        error = None if task.cancelled() else task.exception()
        if (
            task.cancelled() or type(error) is ProducerClosedError
        ):  # here it is closed for good, or its thread has ended
            future.set_exception(self._make_error())
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def _close_on_loop(self, timeout: float | None, warns: bool = False) -> None:
        self.hand_over.refuse(closed_error)
        self._loop.create_task(self._close(timeout, warns), name="aiokprod-blocking-close")
        self._is_closing = True

    async def _close(self, timeout: float | None, warns: bool) -> None:
        self.hand_over.drain_all()
        self._report = await self.producer.close(timeout)
        self._is_closed = True
        if warns:
            tell_unclean(self._report, self._log)
        if self.is_started:  # else the start fails, and with it the loop ends
            self._loop.stop()

    def _end(self, error: BaseException | None) -> None:
        """Settle all that waits, and end what is left on the loop."""
        if self.is_started and not self._is_closed:
            reason = "its loop was stopped" if error is None else f"{type(error).__name__}: {error}"
            self._make_error = partial(_failed, reason, error)
            self.hand_over.refuse(self._make_error)
            self._log.warned("crashed", f"the producer's thread ends: {reason}")
            with suppress(BaseException):  # each record gets its exact outcome, if the loop can still run
                self._report = self._loop.run_until_complete(self._last_close())
        with suppress(BaseException):
            self._loop.run_until_complete(self._cancel_tasks())
        with self._lock:
            self._is_over = True
            calls, self._calls = self._calls, {}
        self.hand_over.refuse(self._make_error)
        self.hand_over.fail(self._make_error)
        for future in calls:
            if not future.done():
                future.set_exception(self._make_error())

    async def _last_close(self) -> CloseReport:
        self.hand_over.drain_all()
        return await self.producer.close(0)

    async def _cancel_tasks(self) -> None:
        me = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
        with suppress(RuntimeError):  # it needs a thread, and the program may have ended
            await self._loop.shutdown_default_executor()


def closed_error() -> AiokprodError:
    """Return the error of calls behind the close."""
    error = ProducerClosedError("the producer is closed: create a new one")
    advise(error, "Send before close(); a closed producer of aiokprod.blocking cannot be opened again.")
    return error


def _failed(reason: str, cause: BaseException | None) -> AiokprodError:
    error = ProducerFailedError(f"the producer's thread has ended: {reason}")
    error.__cause__ = cause
    return error
