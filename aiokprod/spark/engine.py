"""The producers of one worker process, on an event loop in a thread of its own.

One engine per process, made when a task needs it; one producer in it per set of options. Tasks of the process share them,
one after the other; a producer that no task has used for its idle timeout is closed. Between tasks the engine holds nothing
that must not be lost: Spark kills idle workers without notice.

Every wait of a task has a bound: `max_block_ms` for the cluster and for an unknown topic, `delivery_timeout_ms` for a row and
so for the room that other rows hold. `release` waits for nothing. No task waits for the close of an idle producer (`CLOSE_S`).

Invariant: an engine is never used in a process other than the one that made it (Spark forks workers from a daemon).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError
from aiokprod.producer import Producer

Result = TypeVar("Result")
CLOSE_S = 5.0  # short: every row has been acknowledged, so nothing is left to deliver


class Engine:
    """An event loop, its thread, and the producers on it."""

    def __init__(self) -> None:
        self.last_task_had_rows = False  # of the tasks that write exactly once
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._producers: dict[ProducerConfig, _Shared] = {}
        self._replaced: set[_Shared] = set()  # failed producers that tasks still use
        self._ending: set[_Shared | _Kept] = set()
        self._free: dict[object, list[_Kept]] = {}  # things that tasks take for themselves, by their keys
        self._emptied = asyncio.Condition()
        self.early: set[asyncio.Task[Any]] = set()  # takes that their tasks may not wait for; cancelled at the end
        self.kept_later: set[asyncio.Task[Any]] = set()  # what gives their producers back
        # A daemon thread: with spark.python.use.daemon=false a worker exits as any interpreter, and must not wait for it.
        self._thread = threading.Thread(target=self._run, name="aiokprod-spark", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"Engine(pid={self._pid}, producers={len(self._producers)})"

    @property
    def is_usable(self) -> bool:
        """True if this process can give the engine work."""
        return self._pid == os.getpid() and self._thread.is_alive()

    @property
    def producers(self) -> int:
        """The number of open producers."""
        return len(self._producers)

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine on the loop; callable from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until no producer is open; for tests."""
        self.submit(self._wait_until_idle()).result(timeout_s)

    async def _wait_until_idle(self) -> None:
        async with self._emptied:
            await self._emptied.wait_for(lambda: not self._producers and not self._ending and not self._free)

    def end(self) -> None:
        """Close everything and end the thread."""
        self.submit(self._close_all()).result(CLOSE_S + 5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _close_all(self) -> None:
        for taking in self.early:
            taking.cancel()
        await asyncio.gather(*self.early, *self.kept_later, return_exceptions=True)
        for shared in (*self._producers.values(), *self._replaced):
            self._close_soon(shared)
        self._producers.clear()
        self._replaced.clear()
        for key, kept in [(key, each) for key, things in self._free.items() for each in things]:
            self._close_free(key, kept)
        await asyncio.gather(*(each.closing for each in self._ending if each.closing is not None))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def acquire(self, config: ProducerConfig, start_s: float) -> Producer:
        """Return the started producer for these options; call it on the loop.

        Raises:
            BootstrapError, AuthenticationError, ...: as `Producer.start`; the producer is dropped.
        """
        shared = self._producers.get(config)
        if shared is not None and not shared.producer.health().live:
            self._replace(config, shared)
            shared = None
        if shared is None:
            shared = self._producers[config] = _Shared(Producer(config))
        shared.hold()
        try:
            return await shared.producer.start(start_s)  # no-op if it is started; another task may be starting it
        except BaseException:
            if shared.let_go():  # a failed start leaves nothing open
                self._forget(config, shared)
                self._replaced.discard(shared)
            raise

    async def release(self, config: ProducerConfig, producer: Producer, idle_s: float) -> None:
        """End a task's use of a producer; call it on the loop."""
        shared = self._producers.get(config)
        if shared is not None and shared.producer is producer:
            if shared.let_go():
                shared.alarm = self._loop.call_later(idle_s, self._close_idle, config, shared)
            return
        for each in self._replaced:
            if each.producer is producer and each.let_go():
                self._replaced.discard(each)
                self._close_soon(each)
                return

    # ------------------------------------------------------------------ things with one user at a time
    def take(self, key: object) -> Any:
        """Take a thing that was given back under this key; None: there is none. Call it on the loop."""
        things = self._free.get(key)
        if not things:
            return None
        kept = things.pop()
        if not things:
            del self._free[key]
        kept.stop()
        return kept.thing

    def give_back(self, key: object, thing: Any, idle_s: float) -> None:
        """Keep a thing that has an async `close()` for the next user, and close it if none comes. Call it on the loop."""
        kept = _Kept(thing)
        kept.alarm = self._loop.call_later(idle_s, self._close_free, key, kept)
        self._free.setdefault(key, []).append(kept)

    def _close_free(self, key: object, kept: _Kept) -> None:
        kept.stop()
        things = self._free[key]
        things.remove(kept)
        if not things:
            del self._free[key]
        self._ending.add(kept)
        kept.closing = self._loop.create_task(self._close_kept(kept), name="aiokprod-spark-close")

    async def _close_kept(self, kept: _Kept) -> None:
        try:
            with suppress(AiokprodError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await kept.thing.close()
        finally:
            self._ending.discard(kept)
        async with self._emptied:
            self._emptied.notify_all()

    def _replace(self, config: ProducerConfig, shared: _Shared) -> None:
        """Drop a failed producer: the next task gets another one, and the last task that uses this one closes it."""
        self._forget(config, shared)
        if shared.alarm is not None:
            shared.alarm.cancel()
        if shared.users:
            self._replaced.add(shared)
        else:
            self._close_soon(shared)

    def _close_idle(self, config: ProducerConfig, shared: _Shared) -> None:
        # Forgotten in the same step as the closing begins: a task that comes next must get another producer.
        if not shared.users:
            self._forget(config, shared)
            self._close_soon(shared)

    def _close_soon(self, shared: _Shared) -> None:
        self._ending.add(shared)
        shared.closing = self._loop.create_task(self._close(shared), name="aiokprod-spark-close")

    async def _close(self, shared: _Shared) -> None:
        try:
            with suppress(AiokprodError):  # every row has its outcome already
                await shared.producer.close(CLOSE_S)
        finally:
            self._ending.discard(shared)
        async with self._emptied:
            self._emptied.notify_all()

    def _forget(self, config: ProducerConfig, shared: _Shared) -> None:
        if self._producers.get(config) is shared:
            del self._producers[config]


class _Kept:
    """A thing without a user, and the timer that closes it."""

    __slots__ = ("alarm", "closing", "thing")

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self.alarm: asyncio.TimerHandle | None = None
        self.closing: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stop the timer."""
        if self.alarm is not None:
            self.alarm.cancel()


class _Shared:
    """A producer and the number of tasks that use it."""

    __slots__ = ("alarm", "closing", "producer", "users")

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.users = 0
        self.alarm: asyncio.TimerHandle | None = None
        self.closing: asyncio.Task[None] | None = None

    def hold(self) -> None:
        self.users += 1
        if self.alarm is not None:
            self.alarm.cancel()
            self.alarm = None

    def let_go(self) -> bool:
        """End one use; return True if it was the last one."""
        self.users -= 1
        return self.users == 0


class _Current:
    """The holder of this process's engine."""

    engine: Engine | None = None
    lock = threading.Lock()


def _forked() -> None:
    _Current.engine = None  # its thread exists only in the parent; a lock held at the fork would never be released
    _Current.lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def current_engine() -> Engine:
    """Return the engine of this process; make one if there is none."""
    with _Current.lock:
        if _Current.engine is None or not _Current.engine.is_usable:
            _Current.engine = Engine()
        return _Current.engine


def end_engine() -> None:
    """Close all producers of this process and end the thread; for tests, as Spark kills its workers."""
    with _Current.lock:
        if _Current.engine is not None and _Current.engine.is_usable:
            _Current.engine.end()
        _Current.engine = None


class Lease:
    """The use of a producer by a task, from the task's own thread."""

    __slots__ = ("engine", "producer")

    def __init__(self, engine: Engine, producer: Producer) -> None:
        self.engine = engine
        self.producer = producer

    def submit(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine on the producer's loop."""
        return self.engine.submit(work)


@contextmanager
def leased(config: ProducerConfig, idle_s: float, start_s: float | None = None) -> Generator[Lease, None, None]:
    """Lend the producer of this process for these options to a task.

    Args:
        config: the options.
        idle_s: seconds until the producer is closed if no other task uses it.
        start_s: seconds to reach the cluster; None uses `max_block_ms` of the options.

    Raises:
        ClusterError: the cluster cannot be reached, or refuses us.
    """
    engine = current_engine()
    if start_s is None:
        start_s = config.max_block_ms / 1000
    producer = engine.submit(engine.acquire(config, start_s)).result()
    try:
        yield Lease(engine, producer)
    finally:
        engine.submit(engine.release(config, producer, idle_s)).result()
