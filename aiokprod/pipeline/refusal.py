"""`Refusal`: what a broker said of one attempt of one batch, in its words (KIP-467). Pure.

It stays with the ledger's entry until the batch has its verdict: in between the partition may have heard of other batches.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiokprod.logs import printable
from aiokprod.wire.codes import name_of

TEXT_LIMIT = 500  # characters of a broker's text that we repeat


class Refusal:
    """A code, a text about the batch, and texts about records of it, by their position among those that were sent.

    A record that is named twice has the first text there is. A position outside the batch names no record.
    """

    __slots__ = ("_message", "_texts", "code", "named")

    def __init__(
        self, code: int, message: str | None, record_errors: Sequence[tuple[int, str | None]], count: int
    ) -> None:
        texts: dict[int, str] = {}
        for position, text in record_errors:
            if 0 <= position < count and not texts.get(position):
                texts[position] = text or ""
        self.code = code
        self.named: tuple[int, ...] = tuple(sorted(texts))
        self._texts = texts
        self._message = message or ""

    def text(self) -> str:
        """Of the batch: the name of the code, and the broker's words."""
        return self._with_name(self._message)

    def words_of(self, position: int) -> str:
        """About one record, as the broker gave them: what may be said of several records alike."""
        return self._texts.get(position) or self._message

    def text_of(self, position: int) -> str:
        """Of one record. Where the broker has no words for it, those about the batch stand."""
        return self._with_name(self.words_of(position))

    def _with_name(self, words: str) -> str:
        name = name_of(self.code)
        return f"{name}: {printable(words, TEXT_LIMIT)}" if words else name

    def __repr__(self) -> str:
        return f"<Refusal {self.text()} of {len(self.named)} records by name>"
