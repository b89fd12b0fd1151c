"""`Positions`: where a consumer reads on in each partition of its place, compared with what it hands over. Pure.

Some consumers move a position by themselves, without a rebalance, so that nothing but the offsets shows it:

- librdkafka asks for the offset of `auto.offset.reset` when nothing is committed. When a change of the assignment makes that
  answer outdated it asks again 500 ms later, and takes the second answer although the partition has been read since (seen with
  2.16.0 and `group.protocol=consumer`): with `earliest` records come again, with `latest` some are left out.
- Every consumer does what `auto.offset.reset` says when the log ends before its position, as after an unclean election.

Invariants: an offset below the position is a jump. One above it mostly is none, as the offsets of markers, of aborted records
and of compacted ones are left out. Only of partitions that had no committed offset some seconds ago it is looked at twice: what
is there the second time, after the consumer was put back, is the log's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aiokprod.transactions.machine_actions import Partition
from aiokprod.transactions.offsets import Offset

UNSETTLED_S: Final = 5.0
"""How long librdkafka may come back to the offset of `auto.offset.reset`."""


@dataclass(frozen=True, slots=True)
class Jump:
    """A consumer that does not read on where it was."""

    partition: Partition
    expected: int
    found: int
    """the offset of the record that it has read instead"""

    @property
    def is_back(self) -> bool:
        """True: it reads records again. False: perhaps nothing is there in between."""
        return self.found < self.expected


class Positions:
    """The positions of a consumer. Times are in seconds, of any clock."""

    def __init__(self) -> None:
        self._next: dict[Partition, int] = {}
        self._unsettled: dict[Partition, float] = {}  # until one reading after that time
        self._gaps: dict[Partition, set[Jump]] = {}  # that were seen, ahead of the position

    def begin(self, positions: Mapping[Partition, int], unsettled: Iterable[Partition], now: float) -> None:
        """Note where the consumer was put.

        Args:
            positions: the offset of the next record, for the partitions of which it is known.
            unsettled: partitions that have, or have had a moment ago, no committed offset.
        """
        self._next = dict(positions)
        self._unsettled |= dict.fromkeys(unsettled, now + UNSETTLED_S)

    def take(self, found: Iterable[tuple[Partition, Offset]], now: float) -> dict[Partition, Offset] | Jump:
        """Return where a group reads on after these records; or the first jump, and then the positions are as they were.

        Args:
            found: partition of each record, in the order of reading, with the offset behind it.
        """
        after: dict[Partition, Offset] = {}
        gap: Jump | None = None  # the first one; all are noted, so that one more look is enough for the whole reading
        for partition, offset in found:
            before = after.get(partition)
            expected = self._next.get(partition, -1) if before is None else before.offset
            at = offset.offset - 1
            if at != expected >= 0:
                jump = Jump(partition, expected, at)
                if jump.is_back:
                    return jump
                if self._is_new(jump):
                    gap = gap or jump
            after[partition] = offset
        if gap is not None:
            return gap
        for partition, offset in after.items():
            self._next[partition] = offset.offset
            self._gaps.pop(partition, None)
            if self._unsettled.get(partition, now) < now:
                del self._unsettled[partition]
        return after

    def _is_new(self, gap: Jump) -> bool:
        """Return whether the gap is to be looked at again, and note that it was seen."""
        if gap.partition not in self._unsettled:
            return False
        seen = self._gaps.setdefault(gap.partition, set())
        is_new = gap not in seen
        seen.add(gap)
        return is_new
