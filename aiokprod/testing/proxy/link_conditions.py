"""`LinkConditions`: latency, bandwidth and loss between a proxy and its broker. Pure: the time is an argument.

One per broker. It replaces a queueing discipline of the kernel, which needs root and a module. A lost segment has the
effect that TCP gives it: its bytes, and all bytes behind them, come after a retransmission.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from aiokprod.testing.proxy.frames import Direction

SEGMENT_BYTES: Final = 1448  # of an Ethernet frame, less its headers
LEAST_RETRANSMISSION_S: Final = 0.2  # Linux: a round trip and 200 ms at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The latency, bandwidth and loss of a link.

    Attributes:
        delay_s: delay in each direction.
        bytes_per_s: bandwidth in each direction, shared by all connections to the broker; None: unlimited.
        loss: the share of segments that are lost.
        seed: determines which segments are lost.
    """

    delay_s: float
    bytes_per_s: float | None = None
    loss: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.delay_s < 0 or not 0 <= self.loss < 1 or (self.bytes_per_s is not None and self.bytes_per_s <= 0):
            raise ValueError(f"{self}: no delay below 0, a rate above 0, a loss of 0 up to less than 1")


class LinkConditions:
    """The conditions of both directions of the link to one broker."""

    def __init__(self) -> None:
        self.segments = 0
        """The segments that were sent while a distance was set."""
        self.lost = 0
        self._distance: Distance | None = None
        self._random = Random(0)
        self._free_at: dict[Direction, float] = {}

    @property
    def distance(self) -> Distance | None:
        """The distance that is set; None: no delay and no loss."""
        return self._distance

    def set_distance(self, distance: Distance | None) -> None:
        """Set the distance from now on; the counters start from zero with each distance."""
        self._distance = distance
        self._free_at.clear()
        if distance is not None:
            self._random = Random(distance.seed)
            self.segments = self.lost = 0

    def arrival_s(self, direction: Direction, size: int, now: float) -> float:
        """Return when bytes that are written now arrive; never before `now`."""
        distance = self._distance
        if distance is None:
            return now
        leaves = now
        if distance.bytes_per_s is not None:
            leaves = max(now, self._free_at.get(direction, now)) + size / distance.bytes_per_s
            self._free_at[direction] = leaves
        segments = -(-size // SEGMENT_BYTES)
        lost = sum(self._random.random() < distance.loss for _ in range(segments))
        self.segments += segments
        self.lost += lost
        again_s = 2 * distance.delay_s + LEAST_RETRANSMISSION_S if lost else 0.0
        return leaves + distance.delay_s + again_s
