"""A fault at one line of the pipeline's sources, wherever a step of it gets to: the step may end anywhere (`FaultPoints`).

The sources are traced while one call of a function runs, with everything that it calls within `aiokprod/pipeline`. A first run
counts the lines (`lines`); in each further run the fault is raised just before one of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

import aiokprod

SOURCES: Final = str(Path(aiokprod.__file__).parent / "pipeline")


class FaultError(Exception):
    """The exception that the fault raises."""


class FaultPoints:
    """The lines of one step, and a fault before one of them.

    Args:
        target: the function that begins the step.
        at: the fault comes before the line of this number; None: there is none.
        calls: so many calls of the function pass first.
    """

    def __init__(self, target: Callable[..., Any], at: int | None = None, calls: int = 0) -> None:
        assert isinstance(target, FunctionType)
        self.lines: list[tuple[str, int]] = []  # each line as often as it was reached: function and number
        self.is_over = False  # the step was made
        self._target: CodeType = target.__code__
        self._at = at
        self._calls = calls
        self._is_inside = False

    def watch(self) -> None:
        """Let the next call of the function be the step."""
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is self._target and not self._is_inside and not self.is_over:
            if self._calls:
                self._calls -= 1
                return None
            self._is_inside = True
            return self._outermost
        if self._is_inside and frame.f_code.co_filename.startswith(SOURCES):
            return self._within
        return None

    def _outermost(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "return":
            self._is_inside = False
            self.is_over = True
            sys.settrace(None)
        else:
            self._within(frame, event, argument)
        return self._outermost

    def _within(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.lines.append((frame.f_code.co_qualname, frame.f_lineno))
            if len(self.lines) - 1 == self._at:
                self._is_inside = False
                self.is_over = True
                raise FaultError(f"before line {frame.f_lineno}, in {frame.f_code.co_qualname}")
        return self._within

    def first_points(self) -> list[int]:
        """Return the number of each line when it is reached for the first time."""
        first: dict[tuple[str, int], int] = {}
        for number, line in enumerate(self.lines):
            first.setdefault(line, number)
        return list(first.values())
