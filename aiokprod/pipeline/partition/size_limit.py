"""`SizeLimit`: how large a batch of the partition may be, as far as its broker's answers show (ledger: R4.5). One per ledger.

A broker that refuses a batch for its size does not say what it would take. Halving finds that out too, but every half that is
still too large sends its bytes for nothing. So the first part of a refused batch is small, and the parts double as long as the
broker takes them. A part of a size that was not accepted yet travels last: if it is refused, no other bytes are lost with it.

Sizes are counted before compression, as bounds of what the records take. So they can be compared with each other, but not
with `max.message.bytes`: a batch that packs worse than the one before may still be refused, and is cut again.
"""

from __future__ import annotations

import sys
from typing import Final

SHARE: Final = 32
"""The first part of a refused batch has its size divided by this. The size of parts doubles once this many times that size was
refused or accepted, so that a refused part is small beside what was sent."""
MEMORY_S: Final = 600.0
"""After this time (s) a refusal does not keep the parts from doubling any more: the limit of the topic may have been raised."""


class SizeLimit:
    """The bytes that a batch may have, from the sizes that were refused and accepted."""

    __slots__ = (
        "_ceiling_bytes",
        "_judged_bytes",
        "_memory_s",
        "_refused_at",
        "_share",
        "accepted_bytes",
        "batch_bytes",
    )

    def __init__(self, share: int = SHARE, memory_s: float = MEMORY_S) -> None:
        # Larger batches of several records are cut before they are sent. 0: none has been refused yet.
        self.batch_bytes = 0
        # The size of a batch that was accepted since the first refusal. Not above `batch_bytes`; below it, the next size is
        # being tried.
        self.accepted_bytes = 0
        self._ceiling_bytes = sys.maxsize  # was refused, so `batch_bytes` does not double up to it
        self._judged_bytes = 0  # refused (the largest batch) or accepted
        self._refused_at = 0.0
        self._share = share
        self._memory_s = memory_s

    def refused(self, size_bytes: int, now: float) -> None:
        """Note that a batch of several records was too large for the broker."""
        self._refused_at = now
        self._ceiling_bytes = min(self._ceiling_bytes, size_bytes)
        self._judged_bytes = max(self._judged_bytes, size_bytes)
        if 0 < self.batch_bytes < size_bytes:
            return  # not cut for this limit, as it was ambiguous: it shows nothing new
        if not self.accepted_bytes:
            self.batch_bytes = max(1, size_bytes // self._share)
        elif self.accepted_bytes < size_bytes:
            self.batch_bytes = self.accepted_bytes
        else:
            # Another limit, or records that pack worse. Not a small part again: the size to be found is near.
            self.batch_bytes = self.accepted_bytes = max(1, size_bytes // 2)

    def accepted(self, size_bytes: int, now: float) -> None:
        """Note that the broker took a batch. Call it while there is a limit."""
        self._judged_bytes += size_bytes
        if size_bytes > self.accepted_bytes:
            # One that was cut is as large as its records allow. A small batch shows no more than its own size, and a record
            # that is larger than the limit travels alone.
            is_cut = 2 * size_bytes > self.batch_bytes
            self.accepted_bytes = max(size_bytes, self.batch_bytes) if is_cut else size_bytes
            self.batch_bytes = max(self.batch_bytes, self.accepted_bytes)
        if self.accepted_bytes < self.batch_bytes or self._judged_bytes < self._share * self.batch_bytes:
            return
        if now - self._refused_at >= self._memory_s:
            self._ceiling_bytes = sys.maxsize
        # Not up to the ceiling itself, nor to where rounding and the sizes of records put it the next time.
        if 2 * self.batch_bytes < self._ceiling_bytes - self._ceiling_bytes // 8:
            self.batch_bytes *= 2

    def __repr__(self) -> str:
        return f"<SizeLimit {self.batch_bytes or 'unknown'}>"
