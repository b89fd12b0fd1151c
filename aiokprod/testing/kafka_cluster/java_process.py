"""`JavaProcess`: one JVM over its lives: launch, signal, end. Knows nothing of Kafka. One per node, one for ZooKeeper.

Invariants: a signal goes only to a process that we started and have not waited for yet; each runs in a session of its
own; the `ProcessReaper` knows a process exactly as long as it lives.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from aiokprod.testing.kafka_cluster.backend import BrokerState
from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.process_reaper import ProcessReaper

STOPPING_S = 5.0  # a process that is not stopped by then is left as it is


class JavaProcess:
    """A command that can be run, frozen, ended and run again."""

    def __init__(self, name: str, command: list[str], directory: Path, reaper: ProcessReaper) -> None:
        self.name = name
        self.log_file = directory / "server.log"
        self._command = command
        self._output_file = directory / "output.txt"
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def state(self) -> BrokerState:
        if self._process is not None and self._process.poll() is not None:
            self._forget(self._process)  # it ended by itself
        if self._process is None:
            return BrokerState.STOPPED
        return BrokerState.PAUSED if self._paused else BrokerState.RUNNING

    @property
    def pid(self) -> int | None:
        """The process's id while it lives."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def launch(self) -> None:
        self._paused = False
        with self._output_file.open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C in the terminal is ours to handle, not the brokers'
            )
        self._reaper.add(self._process.pid)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        if not self._paused:
            self._paused = True
            self._wait_until_stopped()

    def _wait_until_stopped(self) -> None:
        """Wait until a stop signal has taken effect: one thread takes it and stops the others, a while later if busy."""
        process = self._process
        give_up_at = time.monotonic() + STOPPING_S
        while process is not None and process.poll() is None and time.monotonic() < give_up_at:
            if os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG) is not None:
                return
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._paused = False

    def end(self, first: signal.Signals, timeout_s: float) -> None:
        """Send the signal and wait; SIGKILL when the timeout has passed. Nothing happens if it has ended."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(first)
            if self._paused and first is not signal.SIGKILL:
                process.send_signal(signal.SIGCONT)  # a stopped process takes no other signal until it goes on
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._forget(process)

    def tail(self, lines: int) -> str:
        """Return the end of its log and of its output, in which a JVM that cannot start says why."""
        parts = [
            "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
            for path in (self.log_file, self._output_file)
            if path.exists()
        ]
        return "\n".join(part for part in parts if part)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        """Forget a process that has ended and was waited for: its id may soon belong to another process."""
        self._reaper.remove(process.pid)
        self._process = None
        self._paused = False

    def _signal(self, which: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            raise KafkaClusterError(f"{self.name} is not running: no {which.name} sent")
        self._process.send_signal(which)
