"""The time limit of a test that waits for other processes: it fails, and does not hang."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

AGAIN_S = 30.0  # what cleans up behind the failure may hang as well


class OutOfTimeError(Exception):
    """The time of a test is over."""


@contextmanager
def limited(most_s: float) -> Iterator[None]:
    """Raise OutOfTimeError in the block, which the main thread runs, when it takes longer."""

    def over(signum: int, frame: FrameType | None) -> NoReturn:
        raise OutOfTimeError(f"longer than {most_s} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, most_s, AGAIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
