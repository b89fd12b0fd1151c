"""`BatchFill`: how many bytes of records a batch of one topic takes, before compression. One per topic. Pure.

With a codec a batch is full when its records are expected to pack into `batch_size`. What they pack into is known when the
batch is closed, so it is estimated from the batches before it. Java's client has an estimate of this kind for each topic and
codec (CompressionRatioEstimator); a producer has one codec, so here the topic is enough. As there, a batch that packs worse
than expected counts at once, and one that packs better counts little by little. The steps are ours: a share of the
difference instead of a fixed one, as a fixed one takes more than a hundred batches to get from 1 to the ratio of log lines.

The estimate may be wrong, so it does not bound what a batch can cost: `most_plain_bytes` does (docs/configuration.md).

It lives as long as the topic's dispatcher and its partitions, which hold it: there is no table of topics to be kept small.
"""

from __future__ import annotations

from typing import Final

from aiokprod.records.compression import plain_that_fits

MOST_PLAIN_BYTES: Final = 1_048_576
"""The most that a batch takes because it packs well, whatever the options: it is encoded in one turn of the event loop, and a
thread compresses it in one go (bench/codecs.py has the times)."""
BUFFER_SHARE: Final = 32
"""The same as a share of buffer_memory. A record is charged 6.5 times its size at most (`record_size_bound` and
RECORD_OVERHEAD_BYTES), so that one open batch takes a fifth of the buffer at most."""
BETTER_SHARE: Final = 4
"""A batch that packs better moves the estimate by the difference divided by this."""
TELLING_SHARE: Final = 4
"""A batch smaller than batch_size divided by this does not change the estimate: small ones pack worse, and are not sent for
their size. So the records that a task awaits one by one do not make the batches of others small."""
MARGIN: Final = 15 / 16
"""The share of batch_size that is filled: batches of one kind of records differ a little."""
MEMORY_S: Final = 600.0
"""After this time (s) without a refusal, batches that a refusal made smaller may be twice as large: the limit of the topic may
have been raised."""


def most_plain_bytes(batch_bytes: int, max_request_bytes: int, buffer_bytes: int) -> int:
    """Return how many bytes of records a batch may take before compression, header included, however well they pack.

    Args:
        batch_bytes: `batch_size`.
        max_request_bytes: `max_request_size`. Records that do not pack at all fit too, so that no wrong estimate can make a
            request larger than that.
        buffer_bytes: `buffer_memory`.
    """
    most = max(batch_bytes, min(MOST_PLAIN_BYTES, buffer_bytes // BUFFER_SHARE))
    return min(most, plain_that_fits(max_request_bytes))


class BatchFill:
    """The bytes of records that the next batch of the topic takes, from those that its batches were packed into."""

    __slots__ = ("_batch_bytes", "_most_bytes", "_packed_bytes", "_refused_at", "limit_bytes", "ratio")

    def __init__(self, batch_bytes: int, most_bytes: int) -> None:
        """Make that of a topic that had no batch yet.

        Args:
            batch_bytes: what a batch should weigh when it is packed (`batch_size`).
            most_bytes: what it may take before compression; without a codec `batch_bytes`.
        """
        self._batch_bytes = batch_bytes
        self._most_bytes = most_bytes
        self._packed_bytes = batch_bytes  # what it should weigh, as far as brokers take that
        self._refused_at = 0.0  # or made larger again, at this time
        self.ratio = 1.0  # packed bytes for each byte of records, as expected of the next batch
        self.limit_bytes = min(batch_bytes, most_bytes)  # before compression, header included

    def packed(self, plain_bytes: int, packed_bytes: int, now: float) -> None:
        """Take in what the records of a batch were packed into."""
        if self._packed_bytes < self._batch_bytes and now - self._refused_at >= MEMORY_S:
            self._refused_at = now
            self._packed_bytes = min(self._batch_bytes, 2 * self._packed_bytes)
            self._set_limit()
        if plain_bytes * TELLING_SHARE < self._batch_bytes:
            return
        ratio = packed_bytes / plain_bytes
        if ratio < self.ratio:
            ratio = self.ratio - (self.ratio - ratio) / BETTER_SHARE
        self.ratio = ratio
        self._set_limit()

    def refused(self, packed_bytes: int, now: float) -> None:
        """Take in that a broker refused a batch for its size (MESSAGE_TOO_LARGE), header included.

        The limit of the topic is not known. Half of what was refused is at least half of it, as often as this is called.
        """
        self._refused_at = now
        self._packed_bytes = max(1, min(self._packed_bytes, packed_bytes // 2))
        self._set_limit()

    def _set_limit(self) -> None:
        wanted = max(self._packed_bytes, int(self._packed_bytes * MARGIN / self.ratio))
        self.limit_bytes = min(self._most_bytes, wanted)

    def __repr__(self) -> str:
        return f"<BatchFill {self.limit_bytes} bytes, ratio {self.ratio:.3f}>"
