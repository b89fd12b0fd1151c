"""Checks of timeouts that are arguments of calls (`close(timeout=)`), made before the call does anything. Pure."""

from __future__ import annotations

from math import isfinite

from aiokprod.config.option_checks import shown
from aiokprod.errors import ConfigError


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
