"""Virtual time: the whole producer and the whole MockCluster on a loop whose clock jumps, with a network in memory.

run_virtual(scenario, seed=7)       # the same seed is the same run, to the last callback
"""

from __future__ import annotations

from .loop import VirtualLoop
from .network import VirtualNetwork
from .run import LeftoverError, Leftovers, VirtualRun, run_virtual
from .threads import VirtualLimitError
from .turns import DeadlockError
from .work import WorkCount

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
