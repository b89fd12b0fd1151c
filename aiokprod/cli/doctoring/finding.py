"""`Finding`: one thing that is wrong, and the one line to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NOT_HERE: Final = "nothing on the client's side mends it"
"""where that is so, the change says it, and what is left to do"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one examination."""

    name: str
    """the kind of set-up: a word that scripts can look for"""
    what: str
    """what was seen"""
    change: str
    """the line to change, or the command to run; empty if nothing is wrong"""
    is_trouble: bool = True
    """False: nothing fails by it, but it is worth knowing"""


def fine(name: str, what: str) -> Finding:
    """Return the result of an examination that found nothing wrong."""
    return Finding(name, what, "", is_trouble=False)
