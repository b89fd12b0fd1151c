"""`MissingPartitions`: tells offsets of a partition that does not exist from those of one that is too new. One per `Requests`.

    UNKNOWN_TOPIC_OR_PARTITION of a group's coordinator ──> asked again, for PATIENCE_S
                                                                  │ still unknown
                                       Metadata of another broker <┘ ──> it has no such partition: refused
                                                                    └──> it has, or does not answer: asked again

A broker hears of a new topic some 10 to 100 ms after its creation was answered (broker: 8.1), and a busy one later. So neither
broker is believed alone, nor at once. Offsets create no topic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from aiokprod.errors import AiokprodError
from aiokprod.transactions.coordinator import Coordinators
from aiokprod.transactions.machine_actions import NO_ANSWER, NO_SUCH_PARTITION, Partition
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.metadata import MetadataResponse

PATIENCE_S: Final = 3.0
"""So long a partition may be unknown to the coordinator before the cluster is asked for it."""
LOOK_S: Final = 2.0
"""The time of that question; after it, the offsets are sent again."""
UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_TOPIC: Final = frozenset({UNKNOWN, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""Codes of a topic in Metadata that mean: there is none of this name."""
BESIDE: Final = frozenset({ErrorCode.NONE, UNKNOWN, NO_ANSWER})
"""Codes beside which a partition is looked for; what any other code means comes first."""


class MissingPartitions:
    """The offsets that are under way, as far as their partitions are unknown to the coordinator of their group.

    Args:
        coordinators: ask brokers.
        now: the loop's clock.
    """

    def __init__(self, coordinators: Coordinators, now: Callable[[], float]) -> None:
        self._coordinators = coordinators
        self._now = now
        self._call = 0  # number of the call whose offsets are under way: one at a time
        self._since = 0.0  # when its partitions were first unknown, or last seen

    async def judged(self, call: int, group: str, codes: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the codes of TxnOffsetCommit, with NO_SUCH_PARTITION for what the cluster does not have.

        Args:
            call: number of the call of `send_offsets`.
            group: whose coordinator has answered.
            codes: by partition; `NO_ANSWER` if the answer has no entry.

        Cancellation: nothing was changed anywhere.
        """
        judged = dict(codes)
        unknown = [where for where, code in codes.items() if code == UNKNOWN]
        if not unknown or not BESIDE.issuperset(codes.values()):
            return judged
        if call != self._call:
            self._call, self._since = call, self._now()
        if self._now() - self._since < PATIENCE_S:
            return judged
        try:
            cluster = await self._coordinators.topics(group, dict.fromkeys(topic for topic, _ in unknown), LOOK_S)
        except AiokprodError:
            return judged  # not known yet: another broker is asked the next time
        missing = _missing(unknown, cluster)
        if not missing:
            self._since = self._now()
        judged.update(dict.fromkeys(missing, NO_SUCH_PARTITION))
        return judged

    def __repr__(self) -> str:
        return f"<MissingPartitions of call {self._call}>"


def _missing(asked: list[Partition], cluster: MetadataResponse) -> list[Partition]:
    """Return what a broker says is not there. A topic that it says nothing about, or refuses, may be."""
    there: dict[str, frozenset[int]] = {}
    for topic in cluster.topics:
        if topic.name is not None and topic.error_code in NO_TOPIC:
            there[topic.name] = frozenset()
        elif topic.name is not None and topic.error_code == ErrorCode.NONE:
            there[topic.name] = frozenset(partition.partition_index for partition in topic.partitions)
    return [(topic, number) for topic, number in asked if topic in there and number not in there[topic]]
