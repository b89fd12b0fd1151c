"""Virtual time: the whole producer and the whole MockCluster on a loop whose clock jumps, with a network in memory.

run_virtual(scenario, seed=7)       # the same seed is the same run, to the last callback
"""

from __future__ import annotations

from .loop import DeadlockError, VirtualLoop
from .network import VirtualNetwork
from .run import run_virtual
from .threads import VirtualLimitError

__all__ = ["DeadlockError", "VirtualLimitError", "VirtualLoop", "VirtualNetwork", "run_virtual"]
