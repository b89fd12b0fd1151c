"""`Fault`: what happens, where, and how often. A value; a `Rule` is a fault that was added."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from aiokprod.testing.faults.apis import api_key_of
from aiokprod.testing.faults.effects import (
    EITHER_WAY,
    LARGEST_LENGTH,
    Corrupt,
    Drip,
    Effect,
    Fail,
    HugeLength,
    Omit,
    Rechunk,
    Refuse,
    Truncate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault: what happens, where, and how often.

    Attributes:
        effect: what happens: a value of `aiokprod.testing.faults`, for instance `Drop()`.
        api: Kafka's name or key of the request; None is every API.
        broker: node id; None is every broker.
        topic: topic name; None is every topic.
        partition: partition number; None is every partition.
        nth: the first match to act on, counted from when the fault is added; 1 is the next one.
        times: number of matches to act on, from the n-th one; None is all of them.
        before_serving: True applies the fault to the request, False to its answer.
        chance: probability of acting on a match, from the n-th one; a match without effect does not count in `times`.
        seed: seed of all random choices: chance, the byte that is changed, the sizes of pieces.
        api_key: key of `api`, made from it.

    Raises:
        ValueError: the API is unknown, a number is out of its range, or the effect does not have one of the others.
    """

    effect: Effect
    api: str | int | None = None
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    nth: int = 1
    times: int | None = 1
    before_serving: bool = False
    chance: float = 1.0
    seed: int = 0
    api_key: int | None = field(init=False)

    def __post_init__(self) -> None:
        # The dataclass is frozen: a derived field can only be set like this.
        object.__setattr__(self, "api_key", None if self.api is None else api_key_of(self.api))
        if self.nth < 1:
            raise ValueError(f"nth={self.nth}: the next one is 1")
        if self.times is not None and self.times < 1:
            raise ValueError(f"times={self.times}: at least once, or None for ever")
        if not 0.0 < self.chance <= 1.0:
            raise ValueError(f"chance={self.chance}: above 0, at most 1")
        name = type(self.effect).__name__
        if self.before_serving and not isinstance(self.effect, EITHER_WAY):
            raise ValueError(f"{name} has no before_serving")
        if isinstance(self.effect, Refuse) and (self.api, self.topic, self.partition) != (None, None, None):
            raise ValueError("Refuse is about connections: it has a broker, no API, topic or partition")
        if (wrong := _wrong_in(self.effect)) is not None:
            raise ValueError(f"{name}: {wrong}")

    @property
    def is_about_items(self) -> bool:
        """Return whether the fault applies to partitions or topics inside a request."""
        return isinstance(self.effect, Fail | Omit)

    @property
    def is_about_requests(self) -> bool:
        """Return whether the fault applies to a request, its answer, or the bytes of either."""
        return not isinstance(self.effect, Fail | Omit | Refuse)

    def matches_request(self, api_key: int, broker: int, items: Collection[tuple[str, int]]) -> bool:
        """Return True if this fault applies to a request.

        Args:
            api_key: key of the request's API.
            broker: node id.
            items: (topic, partition) pairs of the request; a partition of -1 stands for a whole topic.
        """
        if not self._is_about(api_key, broker):
            return False
        if self.topic is None and self.partition is None:
            return True
        return any(self._covers(topic, partition) for topic, partition in items)

    def matches_item(self, api_key: int, broker: int, topic: str, partition: int) -> bool:
        """Return True if this fault applies to one topic or partition of a request.

        Args:
            api_key: key of the request's API.
            broker: node id.
            topic: topic name.
            partition: partition number; -1 stands for the whole topic.
        """
        return self._is_about(api_key, broker) and self._covers(topic, partition)

    def matches_connection(self, broker: int) -> bool:
        """Return True if this fault applies to a new connection.

        Args:
            broker: node id.
        """
        return isinstance(self.effect, Refuse) and self.broker in (None, broker)

    def _is_about(self, api_key: int, broker: int) -> bool:
        return self.api_key in (None, api_key) and self.broker in (None, broker)

    def _covers(self, topic: str, partition: int) -> bool:
        return self.topic in (None, topic) and self.partition in (None, partition)


def _wrong_in(effect: Effect) -> str | None:
    match effect:
        case Truncate(size) if size < 0:
            return f"size={size} is less than nothing"
        case Rechunk(largest) if largest < 1:
            return f"largest={largest}: a piece has at least one byte"
        case Drip(bytes_per_s) if not bytes_per_s > 0:
            return f"bytes_per_s={bytes_per_s}: above 0"
        case Corrupt(_, mask) if mask is not None and not 0 < mask < 256:
            return f"mask={mask}: 1 to 255, 0 changes nothing"
        case HugeLength(length) if not -(2**31) <= length <= LARGEST_LENGTH:
            return f"length={length} does not fit the four bytes of a length"
        case _:
            return None
