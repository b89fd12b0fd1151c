"""How many seeds until the swarm finds a defect. Each is played in a process of its own: a defect may hang or crash it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from .patching import Defect

WORLD_S = 120.0
"""Longer than any world takes, on a busy machine: what takes longer hangs."""

NOTHING = "nothing"
HANGS, CRASHES = "the world hangs", "the world crashes"

Wrongs = list[tuple[str, str]]
"""(kind, text)"""


@dataclass(slots=True)
class Hunt:
    """The outcome of one defect.

    Attributes:
        seed: that shows it; None: none of those that were played.
        kind, text: what the judges say of it.
        others: kinds of findings that were not expected of this defect, and the first seed of each.
        seeds: looked at; worlds: of those, played.
    """

    defect: Defect
    seed: int | None = None
    kind: str = ""
    text: str = ""
    others: dict[str, int] = field(default_factory=dict)
    seeds: int = 0
    worlds: int = 0
    seconds: float = 0.0

    def row(self) -> str:
        """Return the row of the table."""
        seed = "not found" if self.seed is None else f"{self.seed}"
        others = "".join(f"; {kind} at {seed}" for kind, seed in self.others.items())
        theme = self.defect.theme or "any"
        return f"| {self.defect.name} | {theme} | {self.worlds} | {seed} | {self.kind}{others} |"


HEADER = "| without | theme | worlds played until found | seed | finding |\n| --- | --- | --- | --- | --- |"


def hunt(defect: Defect, seeds: int, first: int = 0, *, is_themed: bool = False) -> Hunt:
    """Play from `first` on until a finding of a kind that is expected of the defect, and not given without it."""
    found, began = Hunt(defect), time.monotonic()
    next_seed, last = first, first + seeds
    while next_seed < last and found.seed is None:
        begins, next_seed = next_seed, last  # unless it ends early
        for seed, wrongs in _played(defect.name, begins, last - begins, is_themed):
            found.worlds += 1
            if _shows(found, seed, wrongs):
                break
            if any(kind in (HANGS, CRASHES) for kind, _ in wrongs):
                next_seed = seed + 1
    found.seeds = seeds
    found.seconds = time.monotonic() - began
    return found


def _shows(found: Hunt, seed: int, wrongs: Wrongs) -> bool:
    """Return whether the defect is found, and nothing else."""
    if not wrongs:
        return False
    defect = found.defect
    known = set[str]()
    if not set(found.others) >= {kind for kind, _ in wrongs}:
        known = {kind for _, without in _played(NOTHING, seed, 1, False) for kind, _ in without}
    for kind, text in wrongs:
        is_whole = kind in (HANGS, CRASHES)
        if kind in known or (is_whole and known):
            continue
        if kind in defect.kinds or kind == HANGS:
            found.seed, found.kind, found.text = seed, kind, text
            return True
        found.others.setdefault(kind, seed)
    return False


def _played(name: str, first: int, seeds: int, is_themed: bool) -> Iterator[tuple[int, Wrongs]]:
    """Yield each seed with its findings; end early if one hangs or crashes, which is a finding of that seed."""
    folder = Path(__file__).parent
    command = [sys.executable, str(folder), name, str(first), str(seeds), "themed" if is_themed else ""]
    environment = {**os.environ, "AIOKPROD_PURE": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        said, complained = _lines_of(child.stdout), _lines_of(child.stderr)
        seed, wrongs = -1, Wrongs()
        try:
            while True:
                try:
                    line = said.get(timeout=WORLD_S)
                except Empty:
                    yield max(seed, first), [(HANGS, f"more than {WORLD_S:g} s")]
                    return
                if line is None:
                    break
                told: dict[str, Any] = json.loads(line)
                if "begins" in told:
                    if seed >= 0:
                        yield seed, wrongs
                    seed, wrongs = told["begins"], []
                else:
                    wrongs = [(kind, text) for kind, text in told["wrongs"]]
            if child.wait() == 0:
                if seed >= 0:
                    yield seed, wrongs
                return
            last_words = "".join(line for line in iter(complained.get, None))[-600:]
            if seed < 0:
                raise RuntimeError(f"{name} cannot be played: {last_words}")
            yield seed, [(CRASHES, last_words)]
        finally:
            child.kill()


def _lines_of(stream: Any) -> Queue[str | None]:
    """Return a queue of the stream's lines, then None."""
    lines: Queue[str | None] = Queue()

    def read() -> None:
        for line in stream:
            lines.put(line)
        lines.put(None)

    Thread(target=read, daemon=True).start()
    return lines


def table(defects: list[Defect], seeds: int, tell: Callable[[str], None], *, is_themed: bool = False) -> list[Hunt]:
    """Hunt one defect after the other, and print each when it is through."""
    tell(HEADER)
    hunts: list[Hunt] = []
    for defect in defects:
        found = hunt(defect, seeds, is_themed=is_themed)
        hunts.append(found)
        tell(found.row())
    missed = [found.defect.name for found in hunts if found.seed is None]
    tell(f"\n{len(hunts) - len(missed)} of {len(hunts)} found in {sum(found.seconds for found in hunts):.0f} s")
    for name in missed:
        tell(f"not found: {name}")
    return hunts
