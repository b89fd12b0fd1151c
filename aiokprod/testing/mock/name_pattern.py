"""`NamePattern`: a regular expression of a client, matched by RE2, as on a broker.

RE2 refuses what would need backtracking, and its time is linear in the name. Python's `re` needs minutes for some patterns of a
few characters. The package is google-re2, of the extra `testing`; without it every pattern is refused.
"""

from __future__ import annotations

from typing import Any, Final

MAX_PATTERN: Final = 1_000
"""Characters of a pattern."""

MAX_MEMORY: Final = 1 << 16
"""Bytes of a compiled pattern: counted repetitions are written out, and nested ones multiply.

It bounds the time for a character to some 10 us.
"""


class NamePattern:
    """A compiled pattern.

    Args:
        text: in RE2's syntax.

    Raises:
        ValueError: it is wrong, or too large; or google-re2 is not installed.
    """

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        if len(text) > MAX_PATTERN:
            raise ValueError(f"longer than {MAX_PATTERN} characters")
        self.text = text
        self._compiled = _compile(text)

    def __repr__(self) -> str:
        return f"<NamePattern {self.text!r}>"

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name, in time that is linear in it."""
        return self._compiled.fullmatch(name) is not None


def _compile(text: str) -> Any:
    try:
        import re2  # only a cluster that has a client with a pattern needs it
    except ImportError:
        raise ValueError("the mock needs google-re2 for patterns: pip install google-re2") from None
    options = re2.Options()
    options.max_mem = MAX_MEMORY
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as wrong:
        reason = wrong.args[0] if wrong.args else ""
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
