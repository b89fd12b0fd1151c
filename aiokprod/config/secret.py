"""`Secret`: a text that no log, repr, traceback or error shows."""

from __future__ import annotations


class Secret:
    """A wrapper of a password or a key; only `reveal()` returns it. It can be pickled, and compares by content.

    Args:
        content: the password or key.
    """

    __slots__ = ("_content",)

    def __init__(self, content: str) -> None:
        self._content = content

    def reveal(self) -> str:
        """Return the content, for the one place that needs it."""
        return self._content

    @classmethod
    def of(cls, value: str | Secret | None) -> Secret | None:
        """Return a Secret with a plain text; a Secret and None are returned as they are.

        Args:
            value: plain text, Secret or None.
        """
        return value if value is None or isinstance(value, Secret) else cls(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._content == self._content

    def __hash__(self) -> int:
        return hash((Secret, self._content))

    def __bool__(self) -> bool:
        return bool(self._content)

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__
