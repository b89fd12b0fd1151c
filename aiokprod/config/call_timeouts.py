"""Timeouts that are arguments of calls (`close(timeout=)`), checked before the call does anything. Pure."""

from __future__ import annotations

from math import isfinite

from aiokprod.config.option_checks import shown
from aiokprod.errors import ConfigError


def check_timeout(name: str, timeout: object) -> None:
    """Refuse what is neither None nor a finite number of seconds: text, bool, NaN, infinity, numbers beyond a float.

    Args:
        name: the argument as an error names it: "timeout of close()".

    Raises:
        ConfigError: a timeout of the wrong type or size.
    """
    if timeout is not None and not _is_seconds(timeout):
        raise ConfigError(
            f"{name} is {shown(timeout)} ({type(timeout).__name__}): it must be a finite number of seconds, or None"
        )


def _is_seconds(timeout: object) -> bool:
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        return False
    try:
        return isfinite(timeout)
    except OverflowError:  # an int that no float can hold
        return False
