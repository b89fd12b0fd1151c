"""The assignors of the consumer protocol: uniform and range. Pure functions, the same result for the same input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, TypeAlias

TopicPartition: TypeAlias = tuple[bytes, int]
"""A partition, by the id of its topic."""


@dataclass(frozen=True, slots=True)
class Share:
    """The facts about a member that an assignor uses."""

    order: str
    """The instance id, or the member id."""
    topics: frozenset[bytes]
    before: frozenset[TopicPartition]
    """The partitions of its last target."""


Shares: TypeAlias = Mapping[str, Share]
Assignment: TypeAlias = dict[str, set[TopicPartition]]


def uniform(members: Shares, counts: Mapping[bytes, int]) -> Assignment:
    """Give each member as many partitions as the others, as far as subscriptions allow, and what it had before.

    Args:
        members: by member id.
        counts: the number of partitions of each topic.
    """
    ids = sorted(members, key=lambda name: members[name].order)
    wanted = [(topic, index) for topic in sorted(counts) for index in range(counts[topic])]
    wanted = [where for where in wanted if any(where[0] in members[name].topics for name in ids)]
    least, extra = divmod(len(wanted), len(ids)) if ids else (0, 0)
    given: Assignment = {name: set() for name in ids}
    open_ = dict.fromkeys(wanted)
    # The member with most keeps the odd ones, so that as little as possible moves.
    for name in sorted(ids, key=lambda name: -len(members[name].before)):
        kept = sorted(where for where in members[name].before if where in open_ and where[0] in members[name].topics)
        room = least + (1 if extra and len(kept) > least else 0)
        extra -= room - least
        for where in kept[:room]:
            given[name].add(where)
            del open_[where]
    heaps: dict[bytes, list[tuple[int, int, str]]] = {}
    for topic in {where[0] for where in open_}:
        heaps[topic] = sorted(
            (len(given[name]), place, name) for place, name in enumerate(ids) if topic in members[name].topics
        )
    for where in open_:
        heap = heaps[where[0]]
        while True:
            size, place, name = heappop(heap)
            if size == len(given[name]):
                break
            heappush(heap, (len(given[name]), place, name))  # it got partitions of another topic meanwhile
        given[name].add(where)
        heappush(heap, (len(given[name]), place, name))
    return given


def range_(members: Shares, counts: Mapping[bytes, int]) -> Assignment:
    """Give each subscriber of a topic partitions that follow each other, the first ones the odd ones.

    Args:
        members: by member id.
        counts: the number of partitions of each topic.
    """
    given: Assignment = {name: set() for name in members}
    for topic, count in counts.items():
        ids = sorted((name for name in members if topic in members[name].topics), key=lambda one: members[one].order)
        if not ids:
            continue
        least, extra = divmod(count, len(ids))
        first = 0
        for place, name in enumerate(ids):
            size = least + (place < extra)
            given[name].update((topic, index) for index in range(first, first + size))
            first += size
    return given


ASSIGNORS: Final[dict[str, Callable[[Shares, Mapping[bytes, int]], Assignment]]] = {
    "uniform": uniform,
    "range": range_,
}
"""By name; the first one is the default (`group.consumer.assignors`)."""
