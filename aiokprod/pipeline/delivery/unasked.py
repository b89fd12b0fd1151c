"""`Unasked`: records of one holder that failed together while nothing waited for them, until they are asked for or reported.

The holder of the records has it (the segment of a batch, a parked record), or a Delivery that has failed alone. It refers
to no hook of the user and to no part of the pipeline: a Delivery that is kept would be part of a cycle (see `delivery`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from aiokprod.errors import AiokprodError
from aiokprod.model import Record

Report: TypeAlias = "tuple[AiokprodError, int, Iterable[Record] | None, Iterator[AiokprodError] | None]"
"""why records failed, how many they are, the records, if they are kept, and the error of each, if they are not all alike"""


class Tally:
    """The count of all that is kept."""

    __slots__ = ("records", "size_bytes")

    def __init__(self) -> None:
        self.records = 0
        self.size_bytes = 0


class Unasked:
    """Records of one holder that failed together, and what a report of them needs until they are asked for or reported."""

    __slots__ = ("_asked", "_error", "_errors", "_indices", "_kept", "_left", "_size_bytes", "_tally", "is_reported")

    def __init__(
        self,
        error: AiokprodError,
        indices: Sequence[int],
        kept: Iterable[Record] | None,
        errors: Iterator[AiokprodError] | None,
        size_bytes: int,
        tally: Tally,
    ) -> None:
        """Note the failures.

        Args:
            error: why they failed.
            indices: of the records in their holder, ascending.
            kept: the records, one for each, where the user wants them.
            errors: the error of each, where they are not all like `error`.
            size_bytes: of `kept`.
            tally: counts them until they are asked for or reported.
        """
        self.is_reported = False
        self._error: AiokprodError | None = error
        self._indices = indices
        self._kept = kept
        self._errors = errors
        self._size_bytes = size_bytes
        self._tally = tally
        self._left = len(indices)  # neither asked for nor reported
        self._asked: set[int] | None = None  # None: no record has been asked for in time
        tally.records += self._left
        tally.size_bytes += size_bytes

    @property
    def left(self) -> int:
        """Records that are neither asked for nor reported."""
        return self._left

    def ask(self, index: int) -> bool:
        """Note that the caller of this record asks for its failure; return whether that has been reported before."""
        indices = self._indices
        at = bisect_left(indices, index)
        if at == len(indices) or indices[at] != index:
            return False  # it was waited for when it failed
        asked = self._asked
        if asked is not None and index in asked:
            return False
        if self.is_reported:
            return True
        if asked is None:
            asked = self._asked = set()
        asked.add(index)
        self._left -= 1
        self._tally.records -= 1
        if not self._left:
            self._let_go()
        return False

    def take(self) -> Report | None:
        """Return what has not been asked for, to be reported, and count it as reported from now on; None: nothing is left."""
        error, count, kept, errors, asked = self._error, self._left, self._kept, self._errors, self._asked
        if error is None or not count:
            return None
        self.is_reported = True
        self._tally.records -= count
        self._left = 0
        self._let_go()
        if asked is not None:
            kept = None if kept is None else _records_left(self._indices, kept, asked)
            errors = None if errors is None else _errors_left(self._indices, errors, asked)
        return error, count, kept, errors

    def _let_go(self) -> None:
        """Drop what only a report needs: a Delivery that is kept would keep the records."""
        self._tally.size_bytes -= self._size_bytes
        self._size_bytes = 0
        self._error = self._kept = self._errors = None

    def __repr__(self) -> str:
        state = "reported" if self.is_reported else f"{self._left} left"
        return f"<Unasked {len(self._indices)} records, {state}>"


def _records_left(indices: Sequence[int], records: Iterable[Record], asked: set[int]) -> Iterator[Record]:
    """Return the records that have not been asked for."""
    for index, record in zip(indices, records, strict=False):
        if index not in asked:
            yield record


def _errors_left(indices: Sequence[int], errors: Iterator[AiokprodError], asked: set[int]) -> Iterator[AiokprodError]:
    """Return the errors of the records that have not been asked for."""
    for index, error in zip(indices, errors, strict=False):
        if index not in asked:
            yield error
