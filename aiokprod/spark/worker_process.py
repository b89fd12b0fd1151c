"""Two settings of the processes that Spark's daemon forks, which save time in each task. In other processes nothing is set.

Garbage: the daemon calls `gc.collect()` after each use of a worker. For the modules of Spark, pyarrow, numpy and aiokprod that
is 12 ms of processor time, in four workers for each micro-batch of two tasks.

Acknowledgements: Spark writes the input of a task in several small segments. Its sockets hold the second one back until the
first is acknowledged (Nagle), and the kernel of the worker does that 40 ms later, as it hopes for data to send along.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

DAEMON: Final = "pyspark.daemon"
QUICKACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)
"""an option of Linux"""
LOOKED_AT: Final = 64
"""Files that are looked at, 25 us each; Spark's connection is among the first that a worker has opened."""


class _Frozen:
    pid: int | None = None


def freeze_modules() -> None:
    """Take what exists now out of the collector's sight, once in each worker.

    Call it behind the first use, when all modules are loaded. What is frozen is still freed when its last reference goes.
    """
    if _Frozen.pid == os.getpid() or not is_worker():
        return
    _Frozen.pid = os.getpid()
    gc.collect()  # cycles that are garbage now would stay for ever
    gc.freeze()


def acknowledge_at_once() -> None:
    """Let the kernel acknowledge what comes next without delay; for one task, as an answer to Spark ends it."""
    if QUICKACK is None or not is_worker():
        return
    for fd in _open_files():
        with suppress(OSError):  # no socket, not of TCP, or closed meanwhile
            # By no copy, whose close would end the locks that this process has on a file. Without SOCK_NONBLOCK, a default
            # timeout of the user's code would make the connection non-blocking, and Spark could not read from it.
            connection = socket.socket(type=socket.SOCK_STREAM | socket.SOCK_NONBLOCK, fileno=fd)
            try:
                connection.setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
            finally:
                connection.detach()


def _open_files() -> list[int]:
    try:
        return sorted(int(each.name) for each in Path("/proc/self/fd").iterdir())[:LOOKED_AT]
    except OSError:  # not mounted
        return []


@cache
def is_worker() -> bool:
    """Return whether Spark's daemon has forked this process."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == DAEMON
