"""The error for an option nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from aiokprod.errors import ConfigError


def unknown_option(name: str, known: Sequence[str]) -> ConfigError:
    """The error for an option nobody knows, with the nearest one."""
    near = get_close_matches(name, known, 1, 0.5)
    return ConfigError(f"unknown option {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))
