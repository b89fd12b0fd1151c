"""The wall clock, for what it is needed: record timestamps, and the age after which a broker forgets a producer.

Every duration is measured by the loop's clock; a wall clock that jumps can date a record wrongly and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import time
from typing import Final


class WallClock:
    """The clock of the process: `seconds()` returns the seconds since 1970."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds


CLOCK: Final = WallClock(time)


def wall_s() -> float:
    """Return the seconds since 1970."""
    return CLOCK.seconds()


def wall_ms() -> int:
    """Return the milliseconds since 1970."""
    return int(CLOCK.seconds() * 1000)


@contextmanager
def on(seconds: Callable[[], float]) -> Generator[None]:
    """Use another clock for the whole process, for a run in virtual time."""
    before, CLOCK.seconds = CLOCK.seconds, seconds
    try:
        yield
    finally:
        CLOCK.seconds = before
