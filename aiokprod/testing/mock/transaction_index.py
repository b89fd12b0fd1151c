"""`TransactionIndex`: which transactions are open in one partition's log, and which were aborted there.

One per partition, beside its log; rebuilt from the log when that is cut. Pure.

Invariants: a producer id has at most one open transaction; `aborted` is in the order of the markers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class LoggedBatch(Protocol):
    """The part of a batch in the log that the index reads."""

    @property
    def base_offset(self) -> int:
        """Return the address of a node."""
        ...

    @property
    def producer_id(self) -> int:
        """The id of the producer that wrote the batch."""
        ...

    @property
    def is_transactional(self) -> bool:
        """Return whether it belongs to a transaction."""
        ...

    @property
    def is_control(self) -> bool:
        """Return whether it is a marker."""
        ...

    @property
    def is_abort_marker(self) -> bool:
        """Return whether it is the marker of an abort."""
        ...


@dataclass(frozen=True, slots=True)
class EndedTransaction:
    """A transaction that has its marker."""

    producer_id: int
    first_offset: int
    marker_offset: int


class TransactionIndex:
    """Open and aborted transactions of one partition."""

    __slots__ = ("_ended", "aborted", "open")

    def __init__(self) -> None:
        self.open: dict[int, int] = {}
        """First offset of the open transaction, by producer id."""
        self.aborted: list[EndedTransaction] = []
        self._ended: list[EndedTransaction] = []  # transactions whose marker may not be replicated yet

    def __repr__(self) -> str:
        return f"<TransactionIndex open={self.open} aborted={len(self.aborted)}>"

    def note(self, batch: LoggedBatch) -> None:
        """Take in a batch that was appended."""
        if not batch.is_transactional:
            return
        if not batch.is_control:
            self.open.setdefault(batch.producer_id, batch.base_offset)
            return
        first_offset = self.open.pop(batch.producer_id, None)
        if first_offset is None:
            return  # nothing was written here
        ended = EndedTransaction(batch.producer_id, first_offset, batch.base_offset)
        self._ended.append(ended)
        if batch.is_abort_marker:
            self.aborted.append(ended)

    def rebuild(self, batches: Iterable[LoggedBatch]) -> None:
        """Build the index again from the batches of a log that was cut."""
        self.open.clear()
        self.aborted.clear()
        self._ended.clear()
        for batch in batches:
            self.note(batch)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return where read_committed readers stop: before the first record without a replicated verdict (broker: 12.1)."""
        if not self.open and not self._ended:
            return high_watermark
        self._ended = [one for one in self._ended if one.marker_offset >= high_watermark]
        undecided = [*self.open.values(), *(one.first_offset for one in self._ended)]
        return min([high_watermark, *undecided])

    def aborted_within(self, from_offset: int, up_to: int) -> list[EndedTransaction]:
        """Return aborted transactions that reach into these offsets; what a reader needs to filter (broker: 12.2)."""
        return [one for one in self.aborted if one.marker_offset >= from_offset and one.first_offset < up_to]
