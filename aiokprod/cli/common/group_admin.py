"""`GroupAdmin`: what the commands ask about consumer groups: which there are, their members, and how far they have read.

groups   ──> every broker: ListGroups
describe ──> the coordinator of the group: ConsumerGroupDescribe (KIP-848), or DescribeGroups; OffsetFetch
             the leaders: ListOffsets
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Final, Self

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    BrokerAnswerError,
    ClusterError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
    advise,
)
from aiokprod.metrics import Metrics
from aiokprod.transactions.coordinator import FIND_BY_KEY, FIND_BY_KIND
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages import consumer_group_describe as new
from aiokprod.wire.messages import describe_groups as classic
from aiokprod.wire.messages import list_offsets as ends
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokprod.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from aiokprod.wire.reader import Reader as WireReader

PAUSE_S: Final = 0.2
LATEST: Final = -1
CONSUMER_ID: Final = -1
LATER: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
"""codes after which the same question is asked again"""
ONE_GROUP: Final = 7
"""the last version of OffsetFetch that carries one group and names topics"""
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list; type and state are empty where brokers do not report them."""

    group: str
    type: str
    state: str
    protocol: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, and what it reads."""

    member: str
    instance: str | None
    client: str
    host: str
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group has read a partition; `lag` is None if nothing is committed, or the end is unknown."""

    topic: str
    partition: int
    offset: int | None
    end: int | None
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        """Records that are not read yet."""
        return None if self.offset is None or self.end is None else max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group with its members and its progress."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    partitions: tuple[Progress, ...] = field(default=())

    @property
    def lag(self) -> int:
        """Records of all partitions that are not read yet."""
        return sum(each.lag or 0 for each in self.partitions)


class GroupAdmin:
    """A client that asks about consumer groups.

    Args:
        config: of the connection.
        timeout_s: bound of each question, in seconds.
    """

    def __init__(self, config: ProducerConfig, timeout_s: float) -> None:
        self._config = config
        self._client = ClusterClient(config.replace(allow_auto_create_topics=False), Metrics(), SilentListener())
        self._timeout_s = timeout_s

    async def __aenter__(self) -> Self:
        await self._client.start(self._config.start_timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def groups(self) -> list[ListedGroup]:
        """Return the groups of all coordinators, by name.

        Raises:
            ClusterError, BrokerAnswerError: a broker does not tell them.
        """
        found: list[ListedGroup] = []
        for node_id in sorted(self._client.snapshot.brokers):

            async def ask(node_id: int = node_id) -> tuple[int, Any]:
                answer: ListGroupsResponse = await self._client.request(
                    ListGroupsRequest(), node_id=node_id, timeout_s=self._timeout_s
                )
                return answer.error_code, answer

            answer = await self._patiently(ask, f"the groups of broker {node_id} are not told", "")
            found += [
                ListedGroup(each.group_id, each.group_type, each.group_state, each.protocol_type, node_id)
                for each in answer.groups
            ]
        return sorted(found, key=lambda each: each.group)

    async def describe(self, group: str) -> GroupDescription:
        """Return a group with its members, what it has committed, and where its partitions end.

        Args:
            group: its id.

        Raises:
            ClusterError, BrokerAnswerError: there is no such group, or it is not told.
        """
        described = await self._new(group) or await self._classic(group)
        if described is None:
            raise await self._missing(group)
        owners = {partition: member for member in described.members for partition in member.partitions}
        offsets = await self._offsets(group)
        keys = sorted({*owners, *offsets})
        found = await self._ends(keys)
        progress = [Progress(*key, offsets.get(key), found.get(key), owners.get(key)) for key in keys]
        return GroupDescription(
            described.group, described.type, described.state, described.assignor, described.coordinator,
            described.members, tuple(progress),
        )  # fmt: skip

    # ------------------------------------------------------------------ the group
    async def _new(self, group: str) -> GroupDescription | None:
        """Return a group of the new protocol; None: it is another one, or these brokers have no such groups."""
        request = new.ConsumerGroupDescribeRequest(group_ids=[group])
        try:
            node_id, answer = await self._coordinated(
                group,
                request,
                request.MAX_VERSION,
                lambda found: found.groups[0].error_code,
                (ErrorCode.GROUP_ID_NOT_FOUND,),
            )
        except UnsupportedVersionError:
            return None
        told: new.DescribedGroup = answer.groups[0]
        if told.error_code:
            return None
        members = tuple(
            GroupMember(
                each.member_id, each.instance_id, each.client_id, each.client_host.lstrip("/"),
                tuple((one.topic_name, number) for one in each.assignment.topic_partitions for number in one.partitions),
            )
            for each in told.members
        )  # fmt: skip
        return GroupDescription(group, CONSUMER, told.group_state, told.assignor_name, node_id, members)

    async def _classic(self, group: str) -> GroupDescription | None:
        """Return a group of the classic protocol; None: there is none of this name."""
        request = classic.DescribeGroupsRequest(groups=[group])
        node_id, answer = await self._coordinated(
            group,
            request,
            request.MAX_VERSION,
            lambda found: found.groups[0].error_code,
            (ErrorCode.GROUP_ID_NOT_FOUND,),
        )
        told: classic.DescribedGroup = answer.groups[0]
        if told.error_code or told.group_state == DEAD:
            return None
        members = tuple(
            GroupMember(
                each.member_id, each.group_instance_id, each.client_id, each.client_host.lstrip("/"),
                assignment_of(each.member_assignment) if told.protocol_type == CONSUMER else (),
            )
            for each in told.members
        )  # fmt: skip
        return GroupDescription(group, "classic", told.group_state, told.protocol_data, node_id, members)

    async def _offsets(self, group: str) -> dict[Partition, int]:
        """Return what a group has committed."""
        request = OffsetFetchRequest(group_id=group, topics=None)
        answer: OffsetFetchResponse
        _, answer = await self._coordinated(group, request, ONE_GROUP, lambda found: found.error_code)
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code and each.committed_offset >= 0
        }

    async def _ends(self, keys: list[Partition]) -> dict[Partition, int]:
        """Return where partitions end; those that do not exist any more, or have no leader, are left out."""
        if not keys:
            return {}
        names = list(dict.fromkeys(topic for topic, _ in keys))
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
        known: MetadataResponse = await self._client.request(request, timeout_s=self._timeout_s)
        leaders = {
            (topic.name or "", each.partition_index): each.leader_id
            for topic in known.topics
            for each in topic.partitions
        }
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic, partition in keys:
            leader = leaders.get((topic, partition), -1)
            if leader >= 0:
                by_leader.setdefault(leader, {}).setdefault(topic, []).append(partition)
        found: dict[Partition, int] = {}
        for leader, wanted in by_leader.items():
            asked = [
                ends.ListOffsetsTopic(topic, [ends.ListOffsetsPartition(each, timestamp=LATEST) for each in numbers])
                for topic, numbers in wanted.items()
            ]
            answer: ends.ListOffsetsResponse = await self._client.request(
                ends.ListOffsetsRequest(replica_id=CONSUMER_ID, topics=asked), node_id=leader, timeout_s=self._timeout_s
            )
            for told in answer.topics:
                for each in told.partitions:
                    if not each.error_code:  # a leader that moves: the line says "-"
                        found[told.name, each.partition_index] = each.offset
        return found

    async def _missing(self, group: str) -> BrokerAnswerError:
        """Return the error of a group that does not exist; it names the one that was perhaps meant."""
        error = BrokerAnswerError(f"group {group!r} does not exist", code=int(ErrorCode.GROUP_ID_NOT_FOUND))
        try:
            names = {each.group.lower(): each.group for each in await self.groups()}
        except ClusterError:
            names = {}
        near = get_close_matches(group.lower(), names, 1)
        advise(error, f"Did you mean {names[near[0]]!r}?" if near else "`aiokprod groups list` shows the groups.")
        return error

    # ------------------------------------------------------------------ asking
    async def _coordinated(
        self, group: str, message: Any, highest: int, code_of: Callable[[Any], int], allowed: tuple[int, ...] = ()
    ) -> tuple[int, Any]:
        """Ask the coordinator of a group; return its node id and its answer."""

        async def ask() -> tuple[int, Any]:
            node_id, code = await self._coordinator(group)
            if code:
                return code, None
            connection = await self._client.control_connection(node_id)
            version = connection.versions.pick(message.API_KEY, message.MIN_VERSION, highest)
            answer = await connection.request(message, timeout_s=self._timeout_s, version=version)
            found = code_of(answer)
            return (0 if found in allowed else found), (node_id, answer)

        answered: tuple[int, Any] = await self._patiently(ask, f"group {group!r} is not told", group)
        return answered

    async def _coordinator(self, group: str) -> tuple[int, int]:
        """Return the node id of a group's coordinator, and the code of the answer."""
        connection = await self._client.control_connection(None)
        request = FindCoordinatorRequest(key=group, key_type=0)
        version = connection.versions.pick(request.API_KEY, FIND_BY_KIND, FIND_BY_KEY)
        answer: FindCoordinatorResponse = await connection.request(request, timeout_s=self._timeout_s, version=version)
        return answer.node_id, answer.error_code

    async def _patiently(self, ask: Callable[[], Any], text: str, group: str) -> Any:
        """Ask until the answer's code is not one that passes.

        Raises:
            BrokerAnswerError: the answer is a refusal.
            RequestTimeoutError: there is none in time.
        """
        code = 0
        scope = asyncio.timeout(self._timeout_s)
        try:
            async with scope:
                while True:
                    code, answer = await ask()
                    if code not in LATER:
                        break
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError:
            if not scope.expired():
                raise
            why = f": {name_of(code)}" if code else ""
            raise RequestTimeoutError(f"{text}{why} (no answer within {self._timeout_s:g} s)") from None
        if code:
            error = BrokerAnswerError(f"{text}: {name_of(code)}", code=code)
            if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                advise(error, f"Grant this principal DESCRIBE on group {group!r}.")
            elif code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                advise(error, "Grant this principal DESCRIBE on the cluster.")
            raise error
        return answer


def assignment_of(data: bytes) -> tuple[Partition, ...]:
    """Return the partitions that a member of a classic group reads; what is none of a consumer gives none.

    Args:
        data: the assignment, as the group's leader has written it.
    """
    if not data:
        return ()
    reader = WireReader(data)
    try:
        reader.int16()
        return tuple(
            (topic, reader.int32())
            for topic in (reader.string(False) for _ in range(reader.int32()))
            for _ in range(reader.int32())
        )
    except ProtocolError:
        return ()
