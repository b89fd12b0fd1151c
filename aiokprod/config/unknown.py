"""The error for an unknown option."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from typing import Final

from aiokprod.config.foreign_names import CODEC_LEVELS, JAAS, RENAMED, dotted, ignored, of_others, refused
from aiokprod.errors import ConfigError

NEAR: Final = 0.6  # "this" and "retries" are less alike
SAME_FIRST_WORD: Final = 0.25  # "queue.time" is nearer to "queue.buffering.max.ms" than to "request.timeout.ms"
SERVERS: Final = frozenset(
    {
        "address",
        "bootstrap",
        "bootstrap_server",
        "broker",
        "brokers",
        "host",
        "hosts",
        "hostname",
        "server",
        "servers",
        "url",
    }
)
"""Words that users guess for the servers, and that resemble no option of any client."""


def unknown_option(name: str, known: Sequence[str]) -> ConfigError:
    """Make the error for an unknown option: what another client's option is called here, or the nearest name."""
    if name.lower() in SERVERS:
        return ConfigError(f"unknown option {name!r}: it is called 'bootstrap_servers' here, and is the first argument")
    whose = of_others(name)
    if whose is not None:
        return ConfigError(
            f"option {name!r} has no meaning here: it is an option of {whose}, and this is a producer: leave it out"
        )
    if dotted(name) == JAAS:
        return ConfigError(f"option {name!r}: set sasl_username and sasl_password (from_mapping reads {JAAS} too)")
    absent = refused(name) or ignored(name)
    if absent is not None:
        return ConfigError(f"option {name!r} has no meaning here: {absent.advice}")
    ours = RENAMED.get(dotted(name)) or ("compression_level" if dotted(name) in CODEC_LEVELS else None)
    if ours is None and name.replace(".", "_") in known:
        ours = name.replace(".", "_")
    if ours is not None:
        return ConfigError(f"unknown option {name!r}: it is called {ours!r} here (from_mapping takes other names too)")
    spelled = [each.replace("_", ".") if "." in name else each for each in known]
    return ConfigError(
        f"unknown option {name!r}: {_advice(name, spelled) or 'leave it out (docs/configuration.md lists the options)'}"
    )


def _advice(name: str, known: Sequence[str]) -> str | None:
    near = get_close_matches(name, known, 1, NEAR) or get_close_matches(name.lower(), known, 1, NEAR)
    foreign = None if name.isupper() else _nearest_foreign(name)
    if foreign is not None and (not near or _likeness(name, foreign) > _likeness(name, near[0])):
        return f"did you mean {foreign!r}, which is {RENAMED[dotted(foreign)]!r} here?"
    return f"did you mean {near[0]!r}?" if near else None


def _nearest_foreign(name: str) -> str | None:
    """Return the nearest name of another client, spelled with dots or underscores as `name` is."""
    spelled = [each if "." in name else each.replace(".", "_") for each in RENAMED]
    likely = _at_least(name, spelled)
    return max(likely, key=lambda each: _likeness(name, each), default=None)


def _at_least(name: str, names: Iterable[str]) -> list[str]:
    return [each for each in names if _likeness(name, each) >= NEAR]


def _likeness(name: str, other: str) -> float:
    words = [dotted(each.lower()).partition(".")[0] for each in (name, other)]
    return SequenceMatcher(None, name.lower(), other).ratio() + (SAME_FIRST_WORD if words[0] == words[1] else 0.0)
