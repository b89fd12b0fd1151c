"""The wall clock, for what it is needed: record timestamps, and the age after which a broker forgets a producer.

Every duration is measured by the loop's clock; a wall clock that jumps can date a record wrongly and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from time import time
from typing import Final


class _Clock:
    def __init__(self, seconds: Callable[[], float]) -> None:
        self.seconds = seconds


_clock: Final = _Clock(time)


def wall_s() -> float:
    """Return the seconds since 1970."""
    return _clock.seconds()


def wall_ms() -> int:
    """Return the milliseconds since 1970."""
    return int(_clock.seconds() * 1000)


@contextmanager
def on(seconds: Callable[[], float]) -> Generator[None]:
    """Use another clock for the whole process, for a run in virtual time."""
    before, _clock.seconds = _clock.seconds, seconds
    try:
        yield
    finally:
        _clock.seconds = before
