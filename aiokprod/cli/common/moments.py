"""Places in a topic: `--from` and `--to` of the commands that read."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

import click

from aiokprod.cli.common.parameter import ParameterType

_NAMES: Final = {
    "beginning": "BEGINNING", "earliest": "BEGINNING", "start": "BEGINNING", "end": "END", "latest": "END",
}  # fmt: skip
_AGO: Final = re.compile(r"([0-9]+)(ms|s|m|h|d)")
_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class Kind(Enum):
    """The kind of a place."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    LAST = "last"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in each partition."""

    kind: Kind
    number: int = 0
    """an offset; how many records before the end; milliseconds since 1970"""


class PlaceType(ParameterType[Place]):
    """The parameter type of a place."""

    name = "PLACE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Read a place."""
        if isinstance(value, Place):
            return value
        found = place_of(str(value), time.time_ns() // 1_000_000)
        if found is None:
            why = _why_no_date(str(value).strip())
            if why:
                self.fail(f"{value!r} is no date: {why}", param, ctx)
            self.fail(
                f"{value!r} is no place: beginning, end, an offset, -N (the last N of each partition), a time such as"
                " 2026-05-04T10:00 or @1777888800000, or how long ago, such as 90s, 10m, 2h, 1d",
                param,
                ctx,
            )
        return found


def _why_no_date(text: str) -> str:
    """Return what is wrong with a text that begins as a date does; empty if it does not."""
    if not re.match(r"[0-9]{4}-[0-9]", text):
        return ""
    try:
        datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        return str(error).partition(":")[0]
    return ""


def place_of(text: str, now_ms: int) -> Place | None:
    """Return the place that a text names; None if it names none.

    Args:
        text: as `PlaceType` explains.
        now_ms: milliseconds since 1970, from which "ago" counts.
    """
    text = text.strip()
    if text.lower() in _NAMES:
        return Place(Kind[_NAMES[text.lower()]])
    if re.fullmatch(r"[0-9]{1,19}", text):
        return Place(Kind.OFFSET, int(text))
    if re.fullmatch(r"-[0-9]{1,19}", text):
        return Place(Kind.LAST, -int(text))
    if re.fullmatch(r"@[0-9]{1,16}", text):
        return Place(Kind.TIME, int(text[1:]))
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return Place(Kind.TIME, max(0, now_ms - int(ago[1]) * _MS[ago[2]]))
    try:
        moment = datetime.fromisoformat(text)  # without an offset: local time
        return Place(Kind.TIME, max(0, round(moment.timestamp() * 1000)))
    except (ValueError, OverflowError, OSError):
        return None
