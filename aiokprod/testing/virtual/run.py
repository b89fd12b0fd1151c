"""`run_virtual`: one scenario in virtual time, from a seed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from aiokprod import chance
from aiokprod.pipeline import wall_clock

from .loop import VirtualLoop
from .network import VirtualNetwork

Result = TypeVar("Result")


class LeftoverError(AssertionError):
    """Something of the run was left behind: a task, a connection, an exception nobody saw."""


def run_virtual(
    scenario: Callable[[VirtualNetwork, Random], Coroutine[Any, Any, Result]], *, seed: int, shuffled: bool = True
) -> Result:
    """Run a scenario on a loop of its own and return its result.

    Args:
        scenario: gets the network (its `dial` is the producer's `dialer`) and a source of chance.
        seed: decides everything: the order of callbacks, latencies, jitter, partitions.
        shuffled: draw the order of ready callbacks; else asyncio's own.

    Raises:
        DeadlockError: everybody waits for ever, or the loop spins.
        LeftoverError: a task, a connection or an unseen exception was left.
    """
    random = Random(seed)
    loop = VirtualLoop(Random(random.getrandbits(64)) if shuffled else None)
    network = VirtualNetwork(loop, Random(random.getrandbits(64)))
    enabled = gc.isenabled()
    gc.disable()  # a collection at a real moment would run finalizers at another virtual one each time
    try:
        with chance.seeded(Random(random.getrandbits(64))), wall_clock.on(loop.wall_s):
            asyncio.set_event_loop(loop)
            try:
                result = loop.run_until_complete(scenario(network, Random(random.getrandbits(64))))
                loop.run_until_complete(asyncio.sleep(1.0))  # what closes gets a moment
                _check(loop, network)
            finally:
                for task in asyncio.all_tasks(loop):
                    task.cancel()
                asyncio.set_event_loop(None)
                loop.close()
    finally:
        if enabled:
            gc.enable()
    return result


def _check(loop: VirtualLoop, network: VirtualNetwork) -> None:
    if loop.faults:
        raise LeftoverError(f"the loop's exception handler was told: {loop.faults[:3]}")
    if tasks := [task.get_name() for task in asyncio.all_tasks(loop)]:
        raise LeftoverError(f"tasks are left: {sorted(tasks)}")
    if network.open_ends:
        raise LeftoverError(f"{network.open_ends} ends of connections are open")
