"""`Defects`: exceptions in steps that only observe (lines of the log, metrics, explanations). One per pipeline.

Such a step may be wrong, and no record depends on it: its exception is logged once, with the traceback, and counted, and the
pipeline goes on. A step that moves records fails the producer instead (`Pipeline.crashed`).
"""

from __future__ import annotations

from typing import ClassVar

from aiokprod.forms import mypyc_attr
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics


@mypyc_attr(native_class=False)
class CaughtDefects:
    """The defects of all pipelines of this process. Kept in our tests, which fail if there is one that they did not plant."""

    kept: ClassVar[list[str] | None] = None


class Defects:
    """The defects that were caught, each told once."""

    def __init__(self, metrics: Metrics, log: StateLog) -> None:
        self._metrics = metrics
        self._log = log
        self._told: set[str] = set()

    def caught(self, step: str, bug: Exception) -> None:
        """Count an exception, and write it if it is the first of its type in this step. From any thread.

        Args:
            step: what raised, as the line calls it; one of a few constants.
            bug: what it raised.
        """
        self._metrics.defects_caught.add(1)
        kind = f"{step}: {type(bug).__name__}"
        if kind not in self._told:
            self._told.add(kind)
            self._log.defect(step, bug)
        if CaughtDefects.kept is not None:
            CaughtDefects.kept.append(kind)

    def __repr__(self) -> str:
        return f"<Defects {sorted(self._told)}>"
