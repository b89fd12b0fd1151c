"""`PortReservation`: TCP ports that stay ours for a cluster's life. One per cluster.

Ports come from below the range the kernel uses for outgoing connections: a broker that is down must find its port free
when it comes back, and a client that dials a dead port inside that range can be connected to itself. Parallel test runs
keep apart by a lock file per port, held until `release`.
"""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import tempfile
from pathlib import Path
from typing import IO

from aiokprod.testing.kafka_cluster.errors import KafkaClusterError

LOWEST_PORT = 20_000
HIGHEST_PORT = 32_000  # Linux hands out 32768 and up to outgoing connections


class PortReservation:
    """Hands out free ports of 127.0.0.1 and keeps other runs of ours away from them."""

    def __init__(self, random_source: random.Random | None = None) -> None:
        self._random = random_source or random.Random()
        self._locks: dict[int, IO[bytes]] = {}
        self._directory = Path(tempfile.gettempdir()) / "aiokprod-ports"

    def take(self) -> int:
        """A port nobody listens on and no other reservation holds.

        Raises:
            KafkaClusterError: a thousand tries found none.
        """
        for _ in range(1000):
            port = self._random.randrange(LOWEST_PORT, HIGHEST_PORT)
            if port not in self._locks and is_free(port) and self._lock(port):
                return port
        raise KafkaClusterError(f"no free port between {LOWEST_PORT} and {HIGHEST_PORT} on 127.0.0.1")

    def release(self) -> None:
        """Give every port back. May be called twice."""
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    def _lock(self, port: int) -> bool:
        if sys.platform == "win32":  # no flock there: a port that is free now has to do
            return True
        import fcntl

        self._directory.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # the directory of another user's run: shared by all, as /tmp is
            self._directory.chmod(0o1777)
        try:
            lock = (self._directory / str(port)).open("ab")
        except PermissionError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._locks[port] = lock
        return True


def is_open(port: int) -> bool:
    """Does somebody accept connections on this port of 127.0.0.1?"""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5.0).close()
    except OSError:
        return False
    return True


def is_free(port: int) -> bool:
    """Can this port of 127.0.0.1 be bound now?"""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # TIME_WAIT of an earlier cluster is no obstacle
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
