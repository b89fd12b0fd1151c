"""Points of the library's sources, where an exception or a call comes; the end of the stack; garbage.

    for fault in each_fault(KeyboardInterrupt):       every line of what runs inside, one after the other
        with fault:
            producer.send("t", b"v")
        ...                                            what must hold after it

`Point` is one point of the pure sources: when a function is entered, before a line, or when it returns. `OneFault` raises
there. The compiled form has no such points. `with_frames_left` comes to the end of the stack, which also lets the handlers of
the exception fail; `collecting` lets finalizers run wherever the interpreter lets the collector run.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

import aiokprod

SOURCES: Final = str(Path(aiokprod.__file__).parent)
OF_THE_TESTS: Final = str(Path(aiokprod.__file__).parent / "testing")
KINDS: Final[tuple[type[BaseException], ...]] = (KeyboardInterrupt, RecursionError, MemoryError)
"""What comes between any two lines: a signal handler's, the end of the stack, the end of the memory."""
MOST_POINTS: Final = 5_000
BEGUN: Final = 2
"""Offset of the first instruction of a function behind those that enter it."""
SUSPENDS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def has_begun(frame: FrameType) -> bool:
    """Return whether a function has taken a step: an exception at its entry comes before any `try` of it."""
    return frame.f_lasti > BEGUN


class Point:
    """Calls something at one point of the library's sources, once.

    Invariants: Python takes the trace function away when it raises, so a call that raises is the last one, too.
    """

    def __init__(
        self,
        at: int,
        strike: Callable[[], object],
        may_strike: Callable[[FrameType], bool] | None = None,
        inside: str = "",
    ) -> None:
        """Make it.

        Args:
            at: the number of the point, from 0.
            strike: is called there; what it raises comes out of that line.
            may_strike: says whether a frame may be struck; else the next point is, whose frame may. None: any may.
            inside: the name of a function, with its class: points are counted while it is being called. Empty: all are.
        """
        self.at = at
        self.place = ""
        """Where it struck: file, line and event; empty before."""
        self.function = ""
        """The function that it struck."""
        self.has_begun = False
        """That function had begun, so that its `try` was entered if it begins with one."""
        self._strike = strike
        self._may_strike = may_strike
        self._inside = inside
        self._entered: FrameType | None = None
        self._seen = 0
        self._before: Any = None

    @property
    def has_struck(self) -> bool:
        return bool(self.place)

    def arm(self) -> None:
        """Begin to count: in every frame that is entered from now on."""
        self._before = sys.gettrace()
        sys.settrace(self._called)

    def disarm(self) -> None:
        """Count no more."""
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(SOURCES) or name.startswith(OF_THE_TESTS):
            return None
        if self._inside and self._entered is None:
            if frame.f_code.co_qualname != self._inside:
                return self._stepped
            self._entered = frame
        self._point(frame, event)
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, argument: object) -> Any:
        if event != "exception" and (not self._inside or self._entered is not None):
            if event == "return" and frame.f_code.co_flags & SUSPENDS:
                return (
                    self._stepped
                )  # mostly it waits, where nothing can come between; raised there, its handlers do not run
            if event == "return" and frame is self._entered:
                self._entered = None
            self._point(frame, event)
        return self._stepped

    def _point(self, frame: FrameType, event: str) -> None:
        if self.place:
            return
        seen, self._seen = self._seen, self._seen + 1
        if seen >= self.at and (self._may_strike is None or self._may_strike(frame)):
            self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {event}"
            self.function, self.has_begun = frame.f_code.co_qualname, has_begun(frame)
            self.disarm()
            self._strike()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.at} at {self.place}>"


class OneFault(Point):
    """Raises one exception at one point of the library's sources, inside `with`, and swallows it where it comes out."""

    def __init__(self, at: int, kind: type[BaseException], inside: str = "") -> None:
        """Make it.

        Args:
            at: the number of the point, from 0.
            kind: of the exception.
            inside: the name of a function, with its class: points are counted while it is being called. Empty: all are.
        """
        super().__init__(at, self._raise, None, inside)
        self.came_out = False
        """The exception left the block."""
        self._kind = kind

    def _raise(self) -> None:
        raise self._kind(f"at {self.place}")

    def __enter__(self) -> OneFault:
        self.arm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self.disarm()
        self.came_out = self.has_struck and kind is not None
        return self.came_out

    def __repr__(self) -> str:
        return f"<{self._kind.__name__} {self.at} at {self.place}>"


def each_fault(kind: type[BaseException], inside: str = "") -> Iterator[OneFault]:
    """Yield a fault for each point of what runs inside it, until one does not strike any more: then all were played."""
    for at in range(MOST_POINTS):
        fault = OneFault(at, kind, inside)
        yield fault
        if not fault.has_struck:
            assert at, "nothing of the library has run"
            return
    raise AssertionError("what runs inside does not come to an end")


def with_frames_left(frames: int, call: Callable[[], object]) -> None:
    """Call it so deep in the stack that so many frames are left, of Python or of C."""

    def down(left: int) -> None:
        if left <= 0:
            call()
        else:
            down(left - 1)

    def deepest(depth: int) -> int:
        try:
            return deepest(depth + 1)
        except RecursionError:
            return depth

    down(
        deepest(0) - frames
    )  # measured: calls of C count, too, and there are more of them above a test than above a command


@contextmanager
def collecting(every: int = 1) -> Iterator[None]:
    """Let the collector run after so many new objects, wherever it may."""
    before, was_on = gc.get_threshold(), gc.isenabled()
    gc.collect()
    gc.enable()
    gc.set_threshold(every, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not was_on:
            gc.disable()


class Collected:
    """Garbage that only the collector finds, and that calls something when it does."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.me = self

    def __del__(self) -> None:
        self.call()
