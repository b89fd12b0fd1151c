"""Checks of a run besides its records: leaks, too many requests, a blocked loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from aiokprod.testing.checker.history import Finding, Kind

_DESCRIPTORS: Final = (Path("/proc/self/fd"), Path("/dev/fd"))


def check_rate(what: str, times: Sequence[float], *, most: int, within_s: float = 1.0) -> list[Finding]:
    """Return a finding if more than `most` of `times` (seconds, in order) lie within any `within_s`."""
    first = 0
    worst = 0
    for last, at in enumerate(times):
        while at - times[first] >= within_s:
            first += 1
        worst = max(worst, last - first + 1)
    if worst <= most:
        return []
    return [Finding(Kind.STORM, f"{worst} {what} within {within_s:g} s; at most {most} are decent")]


@dataclass(frozen=True, slots=True)
class Footprint:
    """The resources that this process holds at one moment. Take one before a run and one after, without a producer."""

    tasks: frozenset[str]
    threads: frozenset[str]
    descriptors: int | None
    """Open files and sockets; None where the system does not tell."""

    @classmethod
    def take(cls) -> Self:
        """Return what the process holds now; the tasks are those of the running loop."""
        try:
            tasks = frozenset(f"{task.get_name()} {id(task)}" for task in asyncio.all_tasks())
        except RuntimeError:  # no loop runs here
            tasks = frozenset[str]()
        threads = frozenset(f"{thread.name} {thread.ident}" for thread in threading.enumerate())
        return cls(tasks, threads, _open_descriptors())

    def leaks_since(self, before: Footprint) -> list[Finding]:
        """Return a finding for each kind of resource that is held now and was not held before."""
        found: list[Finding] = []
        if tasks := self.tasks - before.tasks:
            found.append(Finding(Kind.LEAKED_TASKS, f"{len(tasks)} tasks were left: {', '.join(sorted(tasks)[:5])}"))
        if threads := self.threads - before.threads:
            text = f"{len(threads)} threads were left: {', '.join(sorted(threads)[:5])}"
            found.append(Finding(Kind.LEAKED_THREADS, text))
        if self.descriptors is not None and before.descriptors is not None and self.descriptors > before.descriptors:
            text = f"{self.descriptors - before.descriptors} files or sockets were left open"
            found.append(Finding(Kind.LEAKED_SOCKETS, text))
        return found


def _open_descriptors() -> int | None:
    for folder in _DESCRIPTORS:
        try:
            return sum(1 for _ in folder.iterdir())
        except OSError:
            continue
    return None


class StallMeter:
    """A meter of how long the running loop does not turn: `async with StallMeter() as meter: ...; meter.worst_s`.

    Asks for a turn every `every_s` seconds; how much later it comes than asked is the stall.
    """

    def __init__(self, every_s: float = 0.01) -> None:
        self.every_s = every_s
        self.worst_s = 0.0
        self.turns = 0
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        self._ask(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._note(asyncio.get_running_loop())  # a stall that has not been seen yet

    def check(self, most_s: float) -> list[Finding]:
        """Return a finding if the loop stood still for longer than `most_s`."""
        if self.worst_s <= most_s:
            return []
        return [
            Finding(Kind.STALL, f"the event loop stood still for {self.worst_s:.3f} s; at most {most_s:g} s is decent")
        ]

    def _ask(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = loop.time() + self.every_s
        self._timer = loop.call_at(self._due, self._turn, loop)

    def _note(self, loop: asyncio.AbstractEventLoop) -> None:
        self.worst_s = max(self.worst_s, loop.time() - self._due)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self.turns += 1
        self._note(loop)
        self._ask(loop)
