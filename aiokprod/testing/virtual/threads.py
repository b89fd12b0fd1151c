"""`VirtualThreads`: work for threads, done on the loop's own thread as steps of virtual time. One per virtual loop.

`loop.run_in_executor`, `asyncio.to_thread` and `anyio.to_thread.run_sync` come here. The work begins after a drawn delay, is
done in one step in which no loop is running (as in a thread), and its result is told after a second drawn delay. In between
the loop turns: what waits for a result can be cancelled, records can expire or be recalled. No thread is made.

Invariants: an executor begins its work in the order in which it was submitted, and works on no more at a time than it has
workers; results are told in the order in which the work was done; the same seed gives the same delays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final
from weakref import WeakKeyDictionary

WORKERS: Final = 32
"""Of the loop's default executor; asyncio's depends on the machine."""
DELAYS_S: Final = (0.0, 0.0, 0.001, 0.02)
"""One is chosen, then a time up to it is drawn: often none, as a thread that begins at once."""


class VirtualLimitError(RuntimeError):
    """An error of a feature that virtual time lacks on purpose; the message says what has it."""


WAITS_FOR_LOOP: Final = (
    "in virtual time what a thread does is one step of the loop, so it cannot wait for the loop: "
    "test this on a real one, with the fixture mock_kafka and without the marker kafka_seeds"
)


class _Workers:
    """The workers of one executor."""

    def __init__(self, count: int) -> None:
        self.free = count
        self.waiting: deque[_Work] = deque()


class _Work:
    """One call."""

    __slots__ = ("call", "error", "future", "result", "workers")

    def __init__(self, call: Callable[[], Any], future: asyncio.Future[Any], workers: _Workers | None) -> None:
        self.call = call
        self.future = future
        self.workers = workers
        self.result: Any = None
        self.error: BaseException | None = None


class VirtualThreads:
    """A stand-in for threads: their work is done on the loop.

    Args:
        loop: the loop on which the work is done.
        random: draws the delays; None: everything on the next turn.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random | None = None) -> None:
        self.random = random
        self.under_way = 0
        """Calls that were submitted and whose outcome is not told."""
        self.is_at_work = False
        self._loop = loop
        self._default = _Workers(WORKERS)
        self._executors: WeakKeyDictionary[object, _Workers] = WeakKeyDictionary()
        self._done: deque[_Work] = deque()  # in the order in which they are told
        self._tells_at = 0.0

    def execute(self, executor: object, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Submit a call to an executor (None: the default one) and return the future of its result."""
        workers = self._default
        if executor is not None:
            count = getattr(executor, "_max_workers", WORKERS)
            workers = self._executors.setdefault(executor, _Workers(count))
        # A context of its own: a thread of an executor knows none of its caller's variables.
        return self._submit(lambda: Context().run(call), workers)

    def run(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run a call in a thread of its own and return the future of its result."""
        return self._submit(call, None)

    def _submit(self, call: Callable[[], Any], workers: _Workers | None) -> asyncio.Future[Any]:
        work = _Work(call, self._loop.create_future(), workers)
        self.under_way += 1
        if workers is not None and not workers.free:
            workers.waiting.append(work)
        else:
            self._begin(work)
        return work.future

    def _begin(self, work: _Work) -> None:
        if work.workers is not None:
            work.workers.free -= 1
        self._loop.call_later(self._delay_s(), self._do, work)

    def _do(self, work: _Work) -> None:
        if not work.future.cancelled():  # else it is not begun; begun, it goes on to its end
            self.is_at_work = True
            asyncio._set_running_loop(None)
            try:
                work.result = work.call()
            except KeyboardInterrupt:  # the user's: it is for the run, not for the work
                raise
            except StopIteration as stopped:  # which a future does not take
                work.error = RuntimeError("work for a thread raised StopIteration")
                work.error.__cause__ = stopped
            except BaseException as error:
                work.error = error
            finally:
                asyncio._set_running_loop(self._loop)
                self.is_at_work = False
        self._done.append(work)
        self._tells_at = max(self._tells_at, self._loop.time() + self._delay_s())
        self._loop.call_at(self._tells_at, self._tell)
        workers = work.workers
        if workers is not None:
            workers.free += 1
            if workers.waiting:
                self._begin(workers.waiting.popleft())

    def _tell(self) -> None:
        """Deliver the next outcome, whichever timer fired: timers of one moment fire in no order."""
        work = self._done.popleft()
        self.under_way -= 1
        if work.future.done():
            return
        if work.error is None:
            work.future.set_result(work.result)
        else:
            work.future.set_exception(work.error)

    def _delay_s(self) -> float:
        if self.random is None:
            return 0.0
        return self.random.random() * self.random.choice(DELAYS_S)


_REPLACED: Final = ("run_sync_in_worker_thread", "run_sync_from_thread", "run_async_from_thread")


@contextlib.contextmanager
def anyio_threads() -> Generator[None]:
    """Replace anyio's worker threads for loops that have `VirtualThreads`; those of other loops stay threads."""
    from anyio import CancelScope
    from anyio._backends._asyncio import AsyncIOBackend  # anyio has no public way to replace its threads
    from anyio._core._eventloop import claim_worker_thread, threadlocals

    real = {name: vars(AsyncIOBackend)[name] for name in _REPLACED}
    backend: Any = AsyncIOBackend

    async def run_sync_in_worker_thread(
        cls: Any, func: Callable[..., Any], args: Any, abandon_on_cancel: bool = False, limiter: Any = None
    ) -> Any:
        loop = asyncio.get_running_loop()
        threads = getattr(loop, "threads", None)
        if not isinstance(threads, VirtualThreads):
            in_thread = real["run_sync_in_worker_thread"].__get__(None, cls)
            return await in_thread(func, args, abandon_on_cancel=abandon_on_cancel, limiter=limiter)
        await cls.checkpoint()
        async with limiter or cls.current_default_thread_limiter():
            with CancelScope(shield=not abandon_on_cancel) as scope:
                outer: Any = getattr(scope, "_parent_scope", None)
                context = copy_context()

                def call() -> Any:
                    with claim_worker_thread(AsyncIOBackend, loop):
                        threadlocals.current_cancel_scope = scope if abandon_on_cancel or outer is None else outer
                        try:
                            return context.run(func, *args)
                        finally:
                            del threadlocals.current_cancel_scope

                return await threads.run(call)

    def run_sync_from_thread(cls: Any, func: Callable[..., Any], args: Any, token: object) -> Any:
        loop = _virtual_loop(token, threadlocals)
        if loop is None:
            return real["run_sync_from_thread"].__get__(None, cls)(func, args, token)
        asyncio._set_running_loop(loop)  # it is this thread's
        try:
            return copy_context().run(func, *args)
        finally:
            asyncio._set_running_loop(None)

    def run_async_from_thread(cls: Any, func: Callable[..., Any], args: Any, token: object) -> Any:
        if _virtual_loop(token, threadlocals) is not None:
            raise VirtualLimitError(WAITS_FOR_LOOP)
        return real["run_async_from_thread"].__get__(None, cls)(func, args, token)

    replacements: tuple[Any, ...] = (run_sync_in_worker_thread, run_sync_from_thread, run_async_from_thread)
    for function in replacements:
        setattr(backend, function.__name__, classmethod(function))
    try:
        yield
    finally:
        for name, method in real.items():
            setattr(backend, name, method)


def _virtual_loop(token: Any, threadlocals: Any) -> asyncio.AbstractEventLoop | None:
    """Return the loop that a worker thread of anyio belongs to, if it has `VirtualThreads` and this is its work."""
    known = token or getattr(threadlocals, "current_token", None)
    loop = getattr(known, "native_token", known)
    threads = getattr(loop, "threads", None)
    return loop if isinstance(threads, VirtualThreads) and threads.is_at_work else None
