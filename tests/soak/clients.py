"""The workload processes of a soak, from outside: started, stopped, killed, started again.

One `Client` per profile; a life is one process of it. Only what we started is signalled, by the handle we hold.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PYTHON = (sys.executable, "-W", "default")  # ResourceWarning is told


class Client:
    """A workload and its lives. Methods may be called from any thread."""

    def __init__(self, name: str, folder: Path, job: Mapping[str, Any], program: str = "workload.py") -> None:
        self.name = name
        self.lives: list[str] = []
        self.killed_at: dict[str, float] = {}
        self.away: list[tuple[float, float]] = []  # from when to when we kept its loop from turning
        self._folder = folder
        self._job = dict(job)
        self._program = program
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin the next life."""
        with self._lock:
            life = f"{self.name}-{len(self.lives)}"
            self.lives.append(life)
            self._keeper = subprocess.Popen(
                [*PYTHON, str(HERE / "book.py"), str(self.book(life))], stdin=subprocess.PIPE
            )
            assert self._keeper.stdin is not None
            job = self._job | {"life": life, "profile": self.name, "turn": len(self.lives) - 1}
            with self.log(life).open("wb") as log:
                self._process = subprocess.Popen(
                    [*PYTHON, str(HERE / self._program), json.dumps(job)],
                    stdin=subprocess.PIPE,
                    stdout=self._keeper.stdin,
                    stderr=log,
                )
            self._keeper.stdin.close()

    def book(self, life: str) -> Path:
        """Return the path of the life's book."""
        return self._folder / f"{life}.book"

    def has_delivered(self) -> bool:
        """Return whether a record of the present life is acknowledged."""
        book = self.book(self.lives[-1])
        if not book.exists():
            return False
        with book.open("rb") as lines:
            return any(line.startswith(b"o ") for line in lines)

    def log(self, life: str) -> Path:
        """Return the path of its standard error."""
        return self._folder / f"{life}.log"

    def tell(self, command: str) -> None:
        """Write a line to the process's standard input; a process that has ended is ignored."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(command.encode() + b"\n")
            self._process.stdin.flush()

    def resolve(self, address: str) -> None:
        """Give the brokers' name this address, for this life and later ones."""
        with self._lock:
            self._job["address"] = address
            self.tell(f"resolve {address}")

    def freeze(self, seconds: float) -> None:
        """Send SIGSTOP, and SIGCONT after so many seconds."""
        with self._lock:  # no other thread kills it meanwhile
            assert self._process is not None
            began = time.monotonic()
            self._process.send_signal(signal.SIGSTOP)
            time.sleep(seconds)
            self._process.send_signal(signal.SIGCONT)
            self.away.append((began, time.monotonic()))

    def block(self, seconds: float) -> None:
        """Keep its event loop from turning."""
        began = time.monotonic()
        self.tell(f"block {seconds:.2f}")
        time.sleep(seconds + 0.5)
        self.away.append((began, time.monotonic()))

    def kill(self) -> None:
        """Send SIGKILL; return when the book is complete."""
        with self._lock:
            assert self._process is not None
            if self._process.poll() is None:  # one that ended before is not excused
                self._process.kill()
                self.killed_at[self.lives[-1]] = time.monotonic()
            self._reap(10.0)

    def wait(self, timeout_s: float) -> int | None:
        """Wait for it to end by itself; its exit status, None if it had to be killed."""
        with self._lock:
            assert self._process is not None
            try:
                status = self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                status = None
            self._reap(30.0)
            return status

    def end(self) -> None:
        """Kill the process if it still runs, and close what it had open."""
        with self._lock:
            for process in (self._process, self._keeper):
                if process is not None and process.poll() is None:
                    process.kill()
            self._reap(10.0)

    def _reap(self, timeout_s: float) -> None:
        if self._process is not None:
            self._process.wait(timeout_s)
            if self._process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
        if self._keeper is not None:
            self._keeper.wait(timeout_s)
