"""`VirtualRun`: a loop, a network and random numbers, all from one seed; `run_virtual`: one scenario in it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from aiokprod import randomness
from aiokprod.pipeline import wall_clock
from aiokprod.testing.virtual.loop import VirtualLoop
from aiokprod.testing.virtual.network import VirtualNetwork
from aiokprod.testing.virtual.threads import anyio_threads
from aiokprod.testing.virtual.turns import DeadlockError

Result = TypeVar("Result")


class LeftoverError(AssertionError):
    """An error that a run left something behind: a task, a connection, an exception that was never retrieved."""


@dataclass(frozen=True)
class Leftovers:
    """The tasks and connections that exist at one moment of a run; at its end, those left behind."""

    tasks: tuple[str, ...] = ()
    """Names of those that are not done, but for the current one."""
    timers: tuple[str, ...] = ()
    """When and what, soonest first."""
    connections: tuple[int, ...] = ()
    """The server's port of each connection that is open, once for each open end."""
    ports: tuple[int, ...] = ()
    """Where connections are taken."""
    threads: int = 0
    """Calls for threads whose outcome is not told."""
    errors: tuple[str, ...] = ()
    """What reached the exception handler of the loop."""


class VirtualRun:
    """One run in virtual time, as a context. Within it chance, the wall clock and anyio's threads are the run's.

    Args:
        seed: decides everything: the order of callbacks, latencies, threads, jitter, partitions.
        shuffled: draw the order of ready callbacks; else asyncio's own.
    """

    def __init__(self, seed: int, *, shuffled: bool = True) -> None:
        random = Random(seed)
        self.seed = seed
        self.loop = VirtualLoop(Random(random.getrandbits(64)) if shuffled else None)
        self.network = VirtualNetwork(self.loop, Random(random.getrandbits(64)))
        self.loop.network = self.network
        self._chance = Random(random.getrandbits(64))
        self.random = Random(random.getrandbits(64))
        """The random numbers for the code under test."""
        self.loop.threads.random = Random(random.getrandbits(64))
        self._contexts = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if gc.isenabled():
            gc.disable()  # a collection at a real moment would run finalizers at another virtual one each time
            self._contexts.callback(gc.enable)
        self._contexts.enter_context(randomness.seeded(self._chance))
        self._contexts.enter_context(wall_clock.on(self.loop.wall_s))
        self._contexts.enter_context(anyio_threads())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._cancel()
        finally:
            self.loop.close()
            self._contexts.close()

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Let the loop turn until it is done.

        Raises:
            DeadlockError: every task waits for ever, or the loop spins.
        """
        return self.loop.run_until_complete(work)

    def check(self) -> None:
        """Check that nothing is left, after a moment for connections that are closing.

        Raises:
            LeftoverError: a task, a connection or an exception that was never retrieved.
        """
        self.wait_for(asyncio.sleep(1.0))
        left = self.leftovers()
        if left.errors:
            raise LeftoverError(f"the loop's exception handler was told: {list(left.errors[:3])}")
        if left.tasks:
            raise LeftoverError(f"tasks are left: {list(left.tasks)}")
        if left.connections:
            raise LeftoverError(f"{len(left.connections)} ends of connections are open")

    def leftovers(self) -> Leftovers:
        """Return what is there now: during a run to watch it, after `check` to see the timers and ports as well."""
        current = asyncio.current_task(self.loop)
        return Leftovers(
            tasks=tuple(sorted(task.get_name() for task in asyncio.all_tasks(self.loop) if task is not current)),
            timers=tuple(self.loop.timers()),
            connections=tuple(self.network.open_ports),
            ports=tuple(self.network.listening_ports),
            threads=self.loop.threads.under_way,
            errors=tuple(str(context) for context in self.loop.faults),
        )

    def _cancel(self) -> None:
        """Cancel all tasks that are left, as asyncio.run does at its end."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            with contextlib.suppress(DeadlockError):
                self.wait_for(_gathered(tasks))


async def _gathered(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def run_virtual(
    scenario: Callable[[VirtualNetwork, Random], Coroutine[Any, Any, Result]],
    *,
    seed: int,
    shuffled: bool = True,
    left: Callable[[Leftovers], object] | None = None,
) -> Result:
    """Run a scenario on a loop of its own and return its result.

    Args:
        scenario: gets the network (its `dial` is the producer's `dialer`) and a source of chance.
        seed: decides everything: the order of callbacks, latencies, threads, jitter, partitions.
        shuffled: draw the order of ready callbacks; else asyncio's own.
        left: is told what there is at the end besides what is an error: timers, ports that are open, work for threads.

    Raises:
        DeadlockError: every task waits for ever, or the loop spins.
        LeftoverError: a task, a connection or an unseen exception was left.
    """
    with VirtualRun(seed, shuffled=shuffled) as run:
        result = run.wait_for(scenario(run.network, run.random))
        run.check()
        if left is not None:
            left(run.leftovers())
    return result
