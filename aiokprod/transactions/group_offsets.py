"""`stable_offsets`: the offsets that a consumer group has committed, read when no transaction is about to change them.

    OffsetFetch, require_stable ──> offsets                                  (KIP-447; Kafka 2.5 and later)
         ^      UNSTABLE_OFFSET_COMMIT: a transaction with offsets of the group has not ended yet
         └──── after a pause: also for a coordinator that moves, is loading, or does not answer

A consumer that begins at an offset whose commit is not finished reads records again that the commit covers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Final

from aiokprod.errors import BrokerAnswerError, ProtocolError, UnsupportedVersionError
from aiokprod.transactions.coordinator import CoordinatorKind, Coordinators, NoAnswer, RetryPace, codes_of
from aiokprod.transactions.machine_actions import Partition
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

VERSION: Final = 7
"""The first version with require_stable, and the last one that names topics and carries one group; all brokers since 2.5 have
it."""
NO_OFFSET: Final = -1
"""The offset of a partition for which the group has committed nothing."""
PASSING: Final = frozenset(
    {
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes after which the same request may be answered."""
WITHOUT_OFFSET: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Codes of a partition that mean: nothing is committed for it."""

Waits = Callable[[str], None]


async def stable_offsets(
    coordinators: Coordinators, pace: RetryPace, group: str, partitions: Collection[Partition], waits: Waits
) -> dict[Partition, int]:
    """Return the offset that the group reads next, for each of these partitions that has one.

    Args:
        coordinators: send the request.
        pace: of the attempts.
        group: id of the group.
        partitions: (topic, partition) pairs.
        waits: called with the reason each time that it has to be asked again.

    Raises:
        BrokerAnswerError: the offsets are refused for good: the group may not be read, for example.
        UnsupportedVersionError: the broker is older than 2.5.
        ProtocolError: the answer lacks a partition, or has an offset that cannot be one.

    Cancellation: stops asking.
    """
    if not partitions:
        return {}
    attempt = 0
    while True:
        answer = await coordinators.ask(CoordinatorKind.GROUP, group, _request(group, partitions), VERSION)
        passing = _passing(group, answer)
        if passing is None:
            return _offsets(answer, partitions)
        waits(passing)
        attempt += 1
        await asyncio.sleep(pace.usual_s(attempt))


def _request(group: str, partitions: Collection[Partition]) -> OffsetFetchRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    asked = [OffsetFetchRequestTopic(topic, numbers) for topic, numbers in topics.items()]
    return OffsetFetchRequest(group_id=group, topics=asked, require_stable=True)


def _passing(group: str, answer: Any) -> str | None:
    """Return why it is asked again; None: it was answered. What cannot pass is raised."""
    if isinstance(answer, NoAnswer):
        if answer.code is None:
            return answer.error.message
        if answer.code == ErrorCode.UNSUPPORTED_VERSION:
            raise UnsupportedVersionError(
                "the committed offsets can be read safely from Kafka 2.5 or later (OffsetFetch version 7): this broker is older"
            ) from answer.error
        raise answer.error
    codes = set(codes_of(answer)) - {ErrorCode.NONE} - WITHOUT_OFFSET
    refused = sorted(codes - PASSING)
    if refused:
        text = f"the committed offsets of the group {group!r} cannot be read: {name_of(refused[0])}"
        raise BrokerAnswerError(text, code=refused[0])
    return ", ".join(name_of(code) for code in sorted(codes)) or None


def _offsets(answer: OffsetFetchResponse, partitions: Collection[Partition]) -> dict[Partition, int]:
    told = {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }
    for where in partitions:
        if told.get(where, NO_OFFSET - 1) < NO_OFFSET:
            raise ProtocolError(f"the answer to OffsetFetch has no offset for {where}: {told.get(where)}")
    return {where: told[where] for where in partitions if told[where] != NO_OFFSET}
