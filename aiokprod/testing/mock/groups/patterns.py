"""`GroupPatterns`: the regular expressions to which the members of a group subscribe, and the topics that they match. Pure."""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from aiokprod.testing.mock.name_pattern import NamePattern

MAX_PATTERNS: Final = 100
"""Different patterns in one group."""

MOST_CHARACTERS: Final = 20_000
"""Characters of names that one heartbeat compares. What is left is for the next ones: a broker too finds topics later."""


class _Known:
    """A pattern with the topics that were compared with it."""

    def __init__(self, pattern: NamePattern) -> None:
        self.pattern = pattern
        self.compared: set[str] = set()
        self.found: set[str] = set()


class GroupPatterns:
    """The patterns of a group's members, and the topics that they match. Each topic is compared with each pattern once."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._names: set[str] = set()
        self._is_complete = True

    def __repr__(self) -> str:
        return f"<GroupPatterns {list(self._known)}>"

    def check(self, text: str) -> None:
        """Raise ValueError unless this may be one of the patterns."""
        if text not in self._known:
            if len(self._known) >= MAX_PATTERNS:
                raise ValueError(f"the mock keeps {MAX_PATTERNS} different patterns in a group at most")
            NamePattern(text)

    def found(self, text: str) -> Set[str]:
        """Return the topics that this pattern matches, as far as they were compared."""
        known = self._known.get(text)
        return known.found if known is not None else frozenset()

    def look(self, texts: Set[str], names: Set[str]) -> None:
        """Compare topics with patterns, as far as the work of one heartbeat goes.

        Args:
            texts: the patterns that members have now.
            names: of all topics.
        """
        if texts == self._known.keys() and names == self._names and self._is_complete:
            return
        self._names = set(names)
        self._known = {text: self._known.get(text) or _Known(NamePattern(text)) for text in texts}
        left = MOST_CHARACTERS
        for known in self._known.values():
            known.compared &= names
            known.found &= names
            for name in names - known.compared:
                if left <= 0:
                    self._is_complete = False
                    return
                if known.pattern.matches(name):
                    known.found.add(name)
                known.compared.add(name)
                left -= len(name)
        self._is_complete = True
