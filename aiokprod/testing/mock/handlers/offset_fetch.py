"""OffsetFetch, versions 1 to 10: where groups go on reading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

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
        return OffsetFetchResponse(groups=[_group(call, asked, request.require_stable) for asked in request.groups])
    code = _refusal(call, request.group_id)
    if request.topics is None:
        wanted = [] if code else _everything(call, request.group_id)
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
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
                    for found in _find(call, request.group_id, name, indexes, request.require_stable, code)
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
    if asked.topics is None:
        topics = call.broker.state.topics
        wanted = [
            (name, topics[name].topic_id if name in topics else ZERO_UUID, indexes)
            for name, indexes in _everything(call, asked.group_id)
        ]
    else:
        wanted = [(topic.name, topic.topic_id, topic.partition_indexes) for topic in asked.topics]
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
                    for found in _find(call, asked.group_id, known_as, indexes, stable, unknown)
                ],
            )
        )
    return answer


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


def _everything(call: Call, group: str) -> list[tuple[str, list[int]]]:
    by_topic: dict[str, list[int]] = {}
    for name, index in sorted(call.broker.transactions.offsets.offsets(group)):
        by_topic.setdefault(name, []).append(index)
    return list(by_topic.items())


def _find(call: Call, group: str, name: str, indexes: Iterable[int], stable: bool, code: int) -> list[_Found]:
    offsets = call.broker.transactions.offsets
    committed = offsets.offsets(group)
    found: list[_Found] = []
    for index in indexes:
        if code:
            found.append(_Found(index, _NOTHING, code))
        elif stable and offsets.is_unstable(group, (name, index)):
            found.append(_Found(index, _NOTHING, int(ErrorCode.UNSTABLE_OFFSET_COMMIT)))  # KIP-447
        else:
            found.append(_Found(index, committed.get((name, index), _NOTHING)))
    return found
