"""The loop of a test cluster: the caller's own, or one on a thread made for it; and calls into it from any thread.

One `LoopHome` per MockCluster or FaultProxy. Invariant: its state changes only on the home loop, so no caller sees half
a change. Before the cluster is started and after it is closed calls run at once, in the caller.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Final, TypeVar

_Result = TypeVar("_Result")

CALL_TIMEOUT_S: Final = 30.0
"""A call into a loop that does not turn is a mistake of the test; it fails rather than hangs."""


class LoopHome:
    """The loop on which the brokers, or the links of a proxy, run."""

    def __init__(self, thread_name: str = "mock-cluster") -> None:
        self._thread_name = thread_name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._thread_id: int | None = None

    def adopt_running_loop(self) -> None:
        """Use the caller's loop."""
        assert self._loop is None, "the cluster is running already"
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()

    def start_thread(self) -> None:
        """Start a loop on a thread of its own."""
        assert self._loop is None, "the cluster is running already"
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(loop,), name=self._thread_name, daemon=True)
        self._loop = loop
        started: Future[None] = Future()
        loop.call_soon(started.set_result, None)
        self._thread.start()
        started.result(CALL_TIMEOUT_S)
        self._thread_id = self._thread.ident

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def leave(self) -> None:
        """Stop the thread, if there is one. Everything on the loop was closed before."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = self._thread_id = None
        if thread is not None and loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CALL_TIMEOUT_S)

    @property
    def is_running(self) -> bool:
        """Return whether there is a loop."""
        return self._loop is not None

    def call(self, function: Callable[[], _Result]) -> _Result:
        """Run a plain function on the loop and return its result; at once if we are there or nothing runs."""
        loop = self._loop
        if loop is None or threading.get_ident() == self._thread_id:
            return function()
        future: Future[_Result] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except Exception as failed:
                future.set_exception(failed)

        loop.call_soon_threadsafe(run)
        return future.result(CALL_TIMEOUT_S)

    def wait(self, work: Callable[[], Coroutine[object, object, _Result]], timeout_s: float) -> _Result:
        """Run a coroutine on the loop from another thread and wait for it."""
        loop = self._loop
        if loop is None or threading.get_ident() == self._thread_id:
            raise RuntimeError("on the cluster's own loop there is nothing to block on: await it instead")
        return asyncio.run_coroutine_threadsafe(work(), loop).result(timeout_s)
