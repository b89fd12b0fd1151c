"""One run of the gate: steps with what they took, programs, programs beside them, and the failures of all pytest runs.

Invariants: a program that fails ends the run; a test that fails does not, as its other steps show more: `end` judges.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from child_process import Child

ROOT: Final = Path(__file__).resolve().parents[2]
LOGS: Final = ROOT / "build" / "gate"


class StepFailedError(Exception):
    """A program of a step failed; the message says which one."""


class Steps:
    """The steps of a run, in their order, with their costs."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._costs: list[tuple[float, str]] = []
        LOGS.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print the header of a step, and keep what it took."""
        began = time.monotonic()
        say(f"\n=== {name} (after {began - self._started:.0f} s)")
        try:
            yield
        finally:
            self._costs.append((time.monotonic() - began, name))

    def costs(self) -> list[str]:
        """Return a line for each step, and one for all."""
        whole = (time.monotonic() - self._started, "the whole run")
        return [f"{seconds:6.0f} s  {name}" for seconds, name in [*self._costs, whole]]


class Beside:
    """Work in a thread beside the main steps, with a log of its own.

    Args:
        work: gets the log's path, and sends the output of its programs there.
    """

    def __init__(self, name: str, work: Callable[[Path], None]) -> None:
        self.log = LOGS / f"{name}.log"
        self.log.write_text("")
        self._name = name
        self._work = work
        self._error: Exception | None = None
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._work(self.log)
        except Exception as error:  # raised again by `join`
            self._error = error
        self.seconds = time.monotonic() - began

    def join(self, *, tail: int | None = 40) -> None:
        """Wait for the end, print the last lines of the log (None: all of it); raise what the work has raised."""
        self._thread.join()
        lines = self.log.read_text(errors="replace").splitlines()
        say(f"--- {self._name}, {self.seconds:.0f} s")
        say("\n".join(lines if tail is None or self._error else lines[-tail:]))
        if self._error is not None:
            raise self._error


def say(line: str) -> None:
    """Print at once: other programs write to the same output."""
    print(line, flush=True)


def call(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT, log: Path | None = None) -> None:
    """Run a program to its end.

    Raises:
        StepFailedError: its exit status is not 0.
    """
    status = status_of(*command, env=env, cwd=cwd, log=log)
    if status:
        told = f"; its output: {log}" if log is not None else ""
        raise StepFailedError(f"exit status {status} of {' '.join(map(str, command))}{told}")


def status_of(
    *command: str | Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT, log: Path | None = None
) -> int:
    """Run a program to its end, its output also into a log, and return its exit status."""
    words = [str(word) for word in command]
    environment = os.environ | dict(env or {})
    if log is not None:
        with log.open("ab") as output:
            done = subprocess.run(
                words,
                env=environment,
                cwd=cwd,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        return done.returncode
    return subprocess.run(words, env=environment, cwd=cwd, check=False, stdin=subprocess.DEVNULL).returncode


def shown_and_kept(command: list[str], log: Path, env: Mapping[str, str], cwd: Path) -> int:
    """Run a program whose output is shown and also kept in a log; return its exit status."""
    with (
        log.open("ab") as kept,
        Child(
            command,
            env=os.environ | dict(env),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        ) as program,
    ):
        assert program.stdout is not None
        while piece := os.read(program.stdout.fileno(), 65_536):
            kept.write(piece)
            sys.stdout.buffer.write(piece)
            sys.stdout.flush()
    return program.returncode
