"""Checks of timeouts that are arguments of calls (`close(timeout=)`), made before the call does anything. Pure."""

from __future__ import annotations

from enum import Enum
from math import isfinite
from typing import Final

from aiokprod.config.option_checks import shown
from aiokprod.errors import ConfigError

LONGEST_S: Final = 1e9
"""More than thirty years; above it event loops differ in what their timers accept."""


class Unset(Enum):
    """The default of a timeout that is bounded by an option if it is left out; None means "no bound"."""

    UNSET = "as the option says"

    def __repr__(self) -> str:
        return f"<{self.value}>"


UNSET: Final = Unset.UNSET


def timeout_of_call(name: str, timeout: float | Unset | None, of_option: float | None) -> float | None:
    """Return the seconds that a call may take; None: no bound.

    Args:
        name: the argument as an error names it, such as "timeout of close()".
        timeout: the argument.
        of_option: what the option says.

    Raises:
        ConfigError: a timeout of the wrong type or size.
    """
    if isinstance(timeout, Unset):
        return of_option
    check_timeout(name, timeout)
    return timeout


def check_timeout(name: str, timeout: object) -> None:
    """Refuse a timeout that is neither None nor a finite number of seconds, 0 or more.

    Refused are also text, bool, NaN, infinity and numbers too large for a float.
    A negative number could mean "no bound" (as `close_timeout_ms=-1` does) or "at once", so it is refused.

    Args:
        name: the argument as an error names it, such as "timeout of close()".

    Raises:
        ConfigError: a timeout of the wrong type or size.
    """
    if timeout is not None and not _is_seconds(timeout):
        raise ConfigError(
            f"{name} is {shown(timeout)} ({type(timeout).__name__}): it must be a finite number of seconds, 0 or more,"
            " or None"
        )


def _is_seconds(timeout: object) -> bool:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        return False
    try:
        return isfinite(timeout) and timeout >= 0
    except OverflowError:  # an int that no float can hold
        return False


def checked_seconds(timeout_s: object) -> float:
    """Return a timeout as a float that the loop's timers accept.

    Called before anything is sent or changed: found later, inside a timer, a bad timeout would end the whole producer.

    Raises:
        TypeError: the timeout is not a number.
        ConfigError: the timeout is not finite, or too large.
    """
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"a timeout is a number of seconds, not {type(timeout_s).__name__}")
    if not -LONGEST_S < timeout_s < LONGEST_S:  # nan fails this too (faults: M17)
        raise ConfigError(f"a timeout of {timeout_s} s: it must be below {LONGEST_S:g} s")
    return float(timeout_s)
