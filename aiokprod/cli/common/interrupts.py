"""Ctrl-C while modules are imported: Python would print a traceback of whatever it was importing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator

TYPE_CHECKING = False  # what is imported here is imported before Ctrl-C is caught
if TYPE_CHECKING:
    from types import FrameType
    from typing import Final, NoReturn

INTERRUPTED: Final = 128 + signal.SIGINT


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def quiet_interrupt() -> Generator[None]:
    """End the process without a word on Ctrl-C inside the block: nothing has begun that would have to be ended first.

    A handler that the program has set stays, and so does everything on another thread than the main one.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, _end)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
