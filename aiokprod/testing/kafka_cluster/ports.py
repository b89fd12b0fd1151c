"""`PortReservation`: TCP ports that stay ours for a cluster's life. One per cluster.

Ports come from below the range the kernel uses for outgoing connections: a broker that is down must find its port free
when it comes back, and a client that dials a dead port inside that range can be connected to itself. Parallel test runs
keep apart by a lock file per port, held until `release`, in a directory of this user's own. Runs of two users are kept
apart by the look whether a port is free.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import stat
import sys
import tempfile
from pathlib import Path

from aiokprod.testing.kafka_cluster.errors import KafkaClusterError

LOWEST_PORT = 20_000
HIGHEST_PORT = 32_000  # Linux hands out 32768 and up to outgoing connections


class PortReservation:
    """A set of free ports of 127.0.0.1 that other runs of these tests do not take."""

    def __init__(self, random_source: random.Random | None = None) -> None:
        self._random = random_source or random.Random()
        self._locks: dict[int, int] = {}  # port -> descriptor of its lock file

    def take(self) -> int:
        """Return a port on which nothing listens and that no other reservation holds.

        Raises:
            KafkaClusterError: a thousand tries found none, or the directory of the locks is not this user's own.
        """
        for _ in range(1000):
            port = self._random.randrange(LOWEST_PORT, HIGHEST_PORT)
            if port not in self._locks and is_free(port) and self._lock(port):
                return port
        raise KafkaClusterError(f"no free port between {LOWEST_PORT} and {HIGHEST_PORT} on 127.0.0.1")

    def release(self) -> None:
        """Give every port back. May be called twice."""
        for lock in self._locks.values():
            os.close(lock)
        self._locks.clear()

    def _lock(self, port: int) -> bool:
        if sys.platform == "win32":  # no flock there: a port that is free now has to do
            return True
        import fcntl

        path = _lock_directory() / str(port)
        lock = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._locks[port] = lock
        return True


def _lock_directory() -> Path:
    """Return the directory of the locks of this user's runs.

    The temporary folder is shared: what lies there under our name may be a link, or another user's. Neither is used, and
    its mode is not changed.

    Raises:
        KafkaClusterError: it is something else than a directory of this user that no other one can write to.
    """
    directory = Path(tempfile.gettempdir()) / f"aiokprod-ports-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise KafkaClusterError(
            f"{directory} is not a directory that only its owner, this user, can write to: remove it, or set TMPDIR"
        )
    return directory


def is_open(port: int) -> bool:
    """Return whether connections to this port of 127.0.0.1 are accepted."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5.0).close()
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Return whether this port of 127.0.0.1 can be bound now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT of an earlier cluster is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
