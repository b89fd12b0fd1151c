"""Warnings of the library as lines of the command, and none that its end makes needless.

A cluster that does not answer is warned of at once, and is an error of the command some seconds later; a topic that is missing
is warned of, and created in the next moment. So what is warned of in the first seconds is held back: until the first warning
after that, which comes soon if nothing has changed, or until the command ends. An error of the start says the same, and a
command that has done its work needs none of it.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator
from typing import Final

from aiokprod.config.command_line import START_TIMEOUT_MS
from aiokprod.errors import AuthenticationError, BootstrapError, TlsError

HELD_S: Final = START_TIMEOUT_MS / 1_000 + 1.0


class LogLines(logging.Handler):
    """A handler that tells lines, the first ones late."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell
        self._clock = clock
        self._ends_at = clock() + HELD_S
        self._held: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Hold a line back, or tell it and those before it."""
        line = record.getMessage()
        if line not in self._held:
            self._held.append(line)
        if self._clock() >= self._ends_at:
            self.tell_held()

    def tell_held(self) -> None:
        """Tell what is held back."""
        held, self._held = self._held, []
        for line in held:
            self._tell(line)

    def forget_held(self) -> None:
        """Forget what is held back: the command has done its work all the same."""
        self._held = []


@contextlib.contextmanager
def log_lines(tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Generator[LogLines]:
    """Tell the library's warnings inside the block, unless the program has set up logging itself.

    Args:
        tell: writes one line to standard error.
        clock: seconds.
    """
    logger = logging.getLogger("aiokprod")
    lines = LogLines(tell, clock)
    if logger.hasHandlers():
        yield lines
        return
    logger.addHandler(lines)
    try:
        yield lines
    except (BootstrapError, TlsError, AuthenticationError):
        raise  # it says what is held back
    except BaseException:
        lines.tell_held()
        raise
    else:
        lines.tell_held()
    finally:
        logger.removeHandler(lines)
