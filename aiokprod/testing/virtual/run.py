"""`VirtualRun`: a loop, a network and chance, all from one seed; `run_virtual`: one scenario in it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from aiokprod import chance
from aiokprod.pipeline import wall_clock

from .loop import DeadlockError, VirtualLoop
from .network import VirtualNetwork
from .threads import anyio_threads

Result = TypeVar("Result")


class LeftoverError(AssertionError):
    """Something of the run was left behind: a task, a connection, an exception nobody saw."""


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
        """For whoever takes part in the run."""
        self.loop.threads.random = Random(random.getrandbits(64))
        self._contexts = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if gc.isenabled():
            gc.disable()  # a collection at a real moment would run finalizers at another virtual one each time
            self._contexts.callback(gc.enable)
        self._contexts.enter_context(chance.seeded(self._chance))
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
            DeadlockError: everybody waits for ever, or the loop spins.
        """
        return self.loop.run_until_complete(work)

    def check(self) -> None:
        """Is anything left? What closes gets a moment.

        Raises:
            LeftoverError: a task, a connection or an exception nobody saw.
        """
        self.wait_for(asyncio.sleep(1.0))
        if self.loop.faults:
            raise LeftoverError(f"the loop's exception handler was told: {self.loop.faults[:3]}")
        if tasks := [task.get_name() for task in asyncio.all_tasks(self.loop)]:
            raise LeftoverError(f"tasks are left: {sorted(tasks)}")
        if self.network.open_ends:
            raise LeftoverError(f"{self.network.open_ends} ends of connections are open")

    def _cancel(self) -> None:
        """Whoever is left learns of the end, as asyncio.run lets them."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            with contextlib.suppress(DeadlockError):
                self.wait_for(_gathered(tasks))


async def _gathered(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def run_virtual(
    scenario: Callable[[VirtualNetwork, Random], Coroutine[Any, Any, Result]], *, seed: int, shuffled: bool = True
) -> Result:
    """Run a scenario on a loop of its own and return its result.

    Args:
        scenario: gets the network (its `dial` is the producer's `dialer`) and a source of chance.
        seed: decides everything: the order of callbacks, latencies, threads, jitter, partitions.
        shuffled: draw the order of ready callbacks; else asyncio's own.

    Raises:
        DeadlockError: everybody waits for ever, or the loop spins.
        LeftoverError: a task, a connection or an unseen exception was left.
    """
    with VirtualRun(seed, shuffled=shuffled) as run:
        result = run.wait_for(scenario(run.network, run.random))
        run.check()
    return result
