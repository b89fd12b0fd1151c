"""Virtual time: the whole producer and the whole MockCluster on a loop whose clock jumps, with a network in memory.

run_virtual(scenario, seed=7)       # the same seed is the same run, to the last callback
"""

from __future__ import annotations

from aiokprod.testing.virtual.loop import VirtualLoop
from aiokprod.testing.virtual.network import VirtualNetwork
from aiokprod.testing.virtual.run import LeftoverError, Leftovers, VirtualRun, run_virtual
from aiokprod.testing.virtual.threads import VirtualLimitError
from aiokprod.testing.virtual.turns import DeadlockError
from aiokprod.testing.virtual.work import WorkCount

__all__ = [
    "DeadlockError",
    "LeftoverError",
    "Leftovers",
    "VirtualLimitError",
    "VirtualLoop",
    "VirtualNetwork",
    "VirtualRun",
    "WorkCount",
    "run_virtual",
]
