"""OffsetFetch, versions 1 to 10: where groups go on reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.consumer_group import ConsumerGroup
from aiokprod.testing.mock.handlers.api import Call
from aiokprod.testing.mock.handlers.offsets import BY_TOPIC_ID, find_topic
from aiokprod.testing.mock.transactions.offsets import CommittedOffset
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from aiokprod.wire.reader import ZERO_UUID

T = TypeVar("T")
SEVERAL_GROUPS: Final = 8
GROUP_CODE: Final = 2
"""The version from which a failure is told once; before, in every partition."""

_NOTHING: Final = CommittedOffset(-1)


@dataclass(frozen=True, slots=True)
class _Found:
    """One partition's answer."""

    partition: int
    offset: CommittedOffset
    code: int = 0


def offset_fetch(call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Answer every group."""
    if call.version >= SEVERAL_GROUPS:
        once = {asked.group_id: asked for asked in request.groups}
        return OffsetFetchResponse(groups=[_group(call, asked, request.require_stable) for asked in once.values()])
    code = _refusal(call, request.group_id)
    offsets = _Offsets(call, request.group_id, request.require_stable)
    if request.topics is None:
        wanted = [] if code else offsets.everything()
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in _once(request.topics, lambda each: each.name)]
    return OffsetFetchResponse(
        error_code=code if call.version >= GROUP_CODE else 0,
        topics=[
            OffsetFetchResponseTopic(
                name=name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=found.partition,
                        committed_offset=found.offset.offset,
                        committed_leader_epoch=found.offset.leader_epoch if call.version >= 5 else -1,
                        metadata=found.offset.metadata,
                        error_code=found.code,
                    )
                    for found in offsets.find(name, indexes, code)
                ],
            )
            for name, indexes in wanted
            if not code or call.version < GROUP_CODE
        ],
    )


def _group(call: Call, asked: OffsetFetchRequestGroup, stable: bool) -> OffsetFetchResponseGroup:
    code = _refusal(call, asked.group_id, asked.member_id, asked.member_epoch)
    answer = OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
    if code:
        return answer
    offsets = _Offsets(call, asked.group_id, stable)
    if asked.topics is None:
        topics = call.broker.state.topics
        wanted = [
            (name, topics[name].topic_id if name in topics else ZERO_UUID, indexes)
            for name, indexes in offsets.everything()
        ]
    else:
        once = _once(asked.topics, lambda topic: (topic.name, topic.topic_id))
        wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in once]
    for name, topic_id, indexes in wanted:
        by_id = call.version >= BY_TOPIC_ID
        topic = find_topic(call, name, topic_id)
        unknown = int(ErrorCode.UNKNOWN_TOPIC_ID) if by_id and topic is None else 0
        known_as = topic.name if topic else name
        answer.topics.append(
            OffsetFetchResponseTopics(
                name="" if by_id else name,
                topic_id=topic_id if by_id else ZERO_UUID,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=found.partition,
                        committed_offset=found.offset.offset,
                        committed_leader_epoch=found.offset.leader_epoch,
                        metadata=found.offset.metadata,
                        error_code=found.code,
                    )
                    for found in offsets.find(known_as, indexes, unknown)
                ],
            )
        )
    return answer


def _once(topics: Iterable[T], key: Callable[[T], object]) -> list[T]:
    """Return the topics of a request without those that are named again: an answer is no larger than what there is."""
    return list({key(topic): topic for topic in topics}.values())


def _refusal(call: Call, group: str, member_id: str | None = None, epoch: int = -1) -> int:
    try:
        call.refuse_by_script()
        call.broker.transactions.groups.check(group, call.broker.node_id)
        found = call.broker.groups.find(group)
        if isinstance(found, ConsumerGroup):
            found.check_fetch(member_id, epoch)
    except RefusalError as refusal:
        return int(refusal.code)
    return 0


class _Offsets:
    """The offsets of a group, as one request sees them."""

    def __init__(self, call: Call, group: str, stable: bool) -> None:
        offsets = call.broker.transactions.offsets
        self.committed = offsets.offsets(group)
        self.unstable = offsets.unstable(group) if stable else set[tuple[str, int]]()

    def everything(self) -> list[tuple[str, list[int]]]:
        """Return all partitions with an offset, by topic."""
        by_topic: dict[str, list[int]] = {}
        for name, index in sorted(self.committed):
            by_topic.setdefault(name, []).append(index)
        return list(by_topic.items())

    def find(self, name: str, indexes: Iterable[int], code: int) -> list[_Found]:
        """Return the answer for each partition of a topic, once, however often a request names it."""
        found: list[_Found] = []
        for index in dict.fromkeys(indexes):
            if code:
                found.append(_Found(index, _NOTHING, code))
            elif (name, index) in self.unstable:
                found.append(_Found(index, _NOTHING, int(ErrorCode.UNSTABLE_OFFSET_COMMIT)))  # KIP-447
            else:
                found.append(_Found(index, self.committed.get((name, index), _NOTHING)))
        return found
