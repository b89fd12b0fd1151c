"""Records without an answer: the memory they take, and their cost to the garbage collector. In a child of `memory.py`."""

from __future__ import annotations

import gc
import sys
import time
from typing import Self

from startup_child import resident_mb

MIB = 2**20


def ask(word: str) -> None:
    """Ask the parent to pause or resume the broker."""
    print(word, flush=True)
    assert sys.stdin.readline().strip() == "done"


class Pauses:
    """A record of the garbage collector's pauses."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self.total_s = 0.0
        self._began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            pause_s = time.perf_counter() - self._began
            self.worst_s = max(self.worst_s, pause_s)
            self.total_s += pause_s


class Pending:
    """A measurement around the sends of an idle producer; the broker is stopped inside the block."""

    def __init__(self) -> None:
        self._pauses = Pauses()
        self._worst_sending_s = 0.0
        self._idle_mb = 0.0
        self._full_mb = 0.0

    def __enter__(self) -> Self:
        gc.collect()
        self._idle_mb = resident_mb()
        ask("pause")
        gc.callbacks.append(self._pauses)
        return self

    def __exit__(self, *_: object) -> None:
        self._full_mb = resident_mb()
        self._worst_sending_s = self._pauses.worst_s
        ask("resume")

    def figures(self, records: int) -> dict[str, float]:
        """Wait until all of them are settled."""
        gc.callbacks.remove(self._pauses)
        return {
            "records": records,
            "idle_mb": round(self._idle_mb, 1),
            "bytes_per_record": round((self._full_mb - self._idle_mb) * MIB / records, 1),
            "collector_worst_ms_sending": round(self._worst_sending_s * 1e3, 1),
            "collector_worst_ms": round(self._pauses.worst_s * 1e3, 1),
            "collector_total_ms": round(self._pauses.total_s * 1e3, 1),
        }
