"""The error for an option nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from aiokprod.config.foreign_names import CODEC_LEVELS, RENAMED, dotted, ignored, refused
from aiokprod.errors import ConfigError


def unknown_option(name: str, known: Sequence[str]) -> ConfigError:
    """The error for an option nobody knows: what another client's is called here, or the nearest name."""
    absent = refused(name) or ignored(name)
    if absent is not None:
        return ConfigError(f"option {name!r} has no meaning here: {absent.advice}")
    ours = RENAMED.get(dotted(name)) or ("compression_level" if dotted(name) in CODEC_LEVELS else None)
    if ours is None and name.replace(".", "_") in known:
        ours = name.replace(".", "_")
    if ours is not None:
        return ConfigError(f"unknown option {name!r}: it is called {ours!r} here (from_mapping takes other names too)")
    near = get_close_matches(name, known, 1, 0.5) or get_close_matches(name.lower(), known, 1, 0.5)
    return ConfigError(
        f"unknown option {name!r}: "
        + (f"did you mean {near[0]!r}?" if near else "leave it out (docs/configuration.md lists the options)")
    )
