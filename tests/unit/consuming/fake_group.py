"""A consumer group whose members have the shapes of aiokafka's and confluent-kafka's consumers, in virtual time.

`FakeGroup` stands before a `MockCluster`: it checks the generation of offsets as a coordinator does, and the cluster keeps
them. The input is a list for each partition; the output and the offsets are on the cluster.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from aiokprod.testing import MockCluster
from aiokprod.transactions.coordinator import Coordinators
from aiokprod.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID = 22, 25
POLL_S = 0.01


class TopicPartition(NamedTuple):
    topic: str
    partition: int
    offset: int = -1001


class Assignment:
    """aiokafka's object of one assignment."""

    def __init__(self, tps: frozenset[TopicPartition]) -> None:
        self.tps = tps
        self.active = True


class FakeGroup:
    """One group that reads the topic "in"."""

    def __init__(self, cluster: MockCluster, partitions: int, each: int) -> None:
        self.cluster = cluster
        self.logs = {
            ("in", number): [
                SimpleNamespace(topic="in", partition=number, offset=at, key=None, value=b"%d:%d" % (number, at))
                for at in range(each)
            ]
            for number in range(partitions)
        }
        self.generation = 0
        self.members: list[FakeMember] = []
        self.owned: dict[str, frozenset[TopicPartition]] = {}  # by member
        self.is_mixed = False  # a poll takes a part of each partition, not all of the first one
        self.refused = 0
        self.unchecked = 0

    @property
    def input(self) -> list[bytes]:
        return sorted(record.value for log in self.logs.values() for record in log)

    def spread(self, step: int) -> None:
        """Leave out offsets between the records, as markers and compaction do."""
        for log in self.logs.values():
            for record in log:
                record.offset *= step

    def committed(self, where: tuple[str, int]) -> int:
        """Return what an OffsetFetch without require_stable gives; 0, the beginning, if there is nothing."""
        found = self.cluster.committed_offsets("g").get(where)
        return 0 if found is None else found.offset

    def join(self, member: FakeMember) -> None:
        self.members.append(member)
        self.rebalance()

    def leave(self, member: FakeMember) -> None:
        if member in self.members:
            self.members.remove(member)
            self.rebalance()

    def rebalance(self) -> None:
        """Give each member other partitions."""
        self.generation += 1
        all_of_it = sorted(self.logs)
        for number, member in enumerate(self.members):
            its = [tp for at, tp in enumerate(all_of_it) if (at + self.generation) % len(self.members) == number]
            self.owned[member.name] = frozenset(TopicPartition(*tp) for tp in its)
        for member in self.members:
            member.called_to_join()

    def code_of(self, request: TxnOffsetCommitRequest) -> int:
        """Return what the coordinator says to the offsets of this member."""
        if request.generation_id < 0 and not request.member_id:
            self.unchecked += 1  # a coordinator takes them
            return 0
        if request.member_id not in {member.name for member in self.members}:
            return UNKNOWN_MEMBER_ID
        return 0 if request.generation_id == self.generation else ILLEGAL_GENERATION

    @contextmanager
    def coordinating(self) -> Iterator[None]:
        """Check offsets before they come to the cluster, which has no members."""
        ask = Coordinators.ask

        async def checked(self_: Any, kind: Any, key: str, message: Any, highest: int) -> Any:
            if isinstance(message, TxnOffsetCommitRequest):
                code = self.code_of(message)
                if code:
                    self.refused += 1
                    return refusal(message, code)
                message.generation_id, message.member_id = -1, ""
            return await ask(self_, kind, key, message, highest)

        with mock.patch.object(Coordinators, "ask", checked):
            yield


def refusal(message: TxnOffsetCommitRequest, code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name, [TxnOffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions]
            )
            for topic in message.topics
        ]
    )


class FakeMember:
    """A member of the group with its positions in the input; the base of both shapes."""

    def __init__(self, group: FakeGroup, name: str) -> None:
        self.group = group
        self.name = name
        self.generation = -1
        self.positions: dict[tuple[str, int], int] = {}
        self.sought: list[tuple[str, int, int]] = []
        self.lookups = self.polls = 0

    def called_to_join(self) -> None:
        raise AssertionError("abstract")

    def take(self) -> None:
        """Take the assignment of the newest generation; it begins where the client's own look-up says."""
        self.generation = self.group.generation
        self.positions = {tp[:2]: self.group.committed(tp[:2]) for tp in sorted(self.group.owned[self.name])}

    def records(self, most: int) -> list[Any]:
        found: list[Any] = []
        for where, position in self.positions.items():
            share = max(1, most // len(self.positions)) if self.group.is_mixed else most
            rest = [record for record in self.group.logs[where] if record.offset >= position]
            new = rest[: min(share, most - len(found))]
            if new:
                self.positions[where] = new[-1].offset + 1
            found += new
        return found


class AiokafkaMember(FakeMember):
    """aiokafka: rebalances go on in the background."""

    join_s = 0.03

    def __init__(self, group: FakeGroup, name: str = "a", **options: Any) -> None:
        super().__init__(group, name)
        self._group_id = options.get("group_id", "g")
        self._enable_auto_commit = options.get("enable_auto_commit", False)
        self._isolation_level = options.get("isolation_level", "read_committed")
        self._coordinator: Any = SimpleNamespace(group_id=self._group_id, generation=-1, member_id="")
        self._current: Any = SimpleNamespace(assignment=None)
        self._subscription = SimpleNamespace(
            subscription=self._current, reassignment_in_progress=True, partitions_auto_assigned=lambda: True
        )
        self._joining: asyncio.Task[None] | None = None
        self._joined = asyncio.Event()

    def called_to_join(self) -> None:
        if self._joining is None:
            self._joining = asyncio.create_task(self._join())

    async def _join(self) -> None:
        while self.generation != self.group.generation:
            await asyncio.sleep(self.join_s)  # until the heartbeat tells
            self._subscription.reassignment_in_progress = True
            self._joined.clear()
            await asyncio.sleep(self.join_s)
            generation = self.group.generation
            self._coordinator.generation, self._coordinator.member_id = generation, self.name  # JoinGroup is answered
            await asyncio.sleep(self.join_s)
            if generation != self.group.generation:
                continue
            if self._current.assignment is not None:
                self._current.assignment.active = False
            self.take()
            self._current.assignment = Assignment(self.group.owned[self.name])
            self._subscription.reassignment_in_progress = False
            self._joined.set()
        self._joining = None

    def thrown_out(self) -> None:
        """Lose the membership: the coordinator does not know the member any more."""
        self._coordinator.generation, self._coordinator.member_id = -1, ""
        self.generation = -1
        self.group.rebalance()

    def assigned_by_hand(self) -> None:
        """Read all partitions, as a consumer with assign() does: the group has no members."""
        self.group.owned[self.name] = frozenset(TopicPartition(*where) for where in self.group.logs)
        self.take()
        self._current.assignment = Assignment(self.group.owned[self.name])
        self._subscription.reassignment_in_progress = False
        self._subscription.partitions_auto_assigned = lambda: False
        self._joined.set()

    async def stop(self) -> None:
        if self._joining is not None:
            self._joining.cancel()
        self.group.leave(self)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset() if self._current.assignment is None else self._current.assignment.tps

    def seek(self, tp: TopicPartition, offset: int) -> None:
        assert tp in self.assignment()
        self.sought.append((tp.topic, tp.partition, offset))
        self.positions[tp[:2]] = offset

    def seek_to_committed(self) -> None:
        raise AssertionError("reads offsets whose commit is not finished")

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        waited = 0.0
        self.polls += 1
        assert self.polls < 100_000, "a loop that leaves the event loop no turn"
        while True:
            if self._subscription.reassignment_in_progress:
                await self._joined.wait()
            found: dict[TopicPartition, list[Any]] = {}
            for record in self.records(max_records):
                found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
            if found or waited >= timeout_ms / 1000:
                return found
            await asyncio.sleep(POLL_S)
            waited += POLL_S


class KafkaError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(code)
        self._code = code

    def code(self) -> int:
        return self._code

    def name(self) -> str:
        return f"_{self._code}"

    def str(self) -> str:
        return "in a test"


class KafkaException(Exception):
    pass


class Message:
    """confluent-kafka's message: everything is a call."""

    def __init__(self, record: Any, error: KafkaError | None = None) -> None:
        self._record, self._error = record, error

    def error(self) -> KafkaError | None:
        return self._error

    def topic(self) -> str:
        return self._record.topic

    def partition(self) -> int:
        return self._record.partition

    def offset(self) -> int:
        return self._record.offset

    def leader_epoch(self) -> int:
        return 3

    def value(self) -> bytes:
        return self._record.value

    def key(self) -> None:
        return None


class ConfluentMember(FakeMember):
    """confluent-kafka: partitions change within `consume`; calls block, so they do not wait here."""

    def __init__(self, group: FakeGroup, name: str = "c", *, stores: bool = False, member: bool = True) -> None:
        super().__init__(group, name)
        self.stores = stores
        self.is_member = member
        self.events: list[KafkaError] = []
        self.not_yet = 0  # seeks that come before the partition is fetched
        self.paused: set[tuple[str, int]] = set()
        self.unstarted: set[tuple[str, int]] = set()  # partitions that are never fetched
        self.calls: list[str] = []

    def called_to_join(self) -> None:
        """Wait for the next `consume`."""

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        self.calls.append("consume")
        if not 0 <= num_messages <= 1_000_000:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        if self.events:
            return [Message(None, self.events.pop(0))]
        if self in self.group.members and self.generation != self.group.generation:
            self.take()
        if self.paused:
            return []  # a partition that is lost and given back stays paused
        return [Message(record) for record in self.records(num_messages)]

    def records(self, most: int) -> list[Any]:
        fetched = {where: at for where, at in self.positions.items() if where not in self.unstarted}
        others, self.positions = self.positions, fetched
        found = super().records(most)
        self.positions = {where: fetched.get(where, at) for where, at in others.items()}
        return found

    def pause(self, tps: list[TopicPartition]) -> None:
        self.paused |= {tp[:2] for tp in tps}

    def resume(self, tps: list[TopicPartition]) -> None:
        self.paused -= {tp[:2] for tp in tps}

    def consumer_group_metadata(self) -> bytes:
        is_in = self.is_member and self.generation > 0
        generation = (self.generation if is_in else -1).to_bytes(4, sys.byteorder, signed=True)
        return b"CGMDv2:" + generation + b"g\0" + (self.name.encode() if is_in else b"") + b"\0\1"

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*where) for where in self.positions]

    def store_offsets(self, *, offsets: list[TopicPartition]) -> None:
        if self.stores:
            raise KafkaException(KafkaError(-186))

    def seek(self, tp: TopicPartition) -> None:
        self.calls.append("seek")
        if self.not_yet or tp[:2] in self.unstarted:
            self.not_yet -= self.not_yet > 0
            raise KafkaException(KafkaError(-172))
        if tp[:2] not in self.positions:
            raise KafkaException(KafkaError(-190))
        self.sought.append(tuple(tp))
        self.positions[tp[:2]] = tp.offset

    async def stop(self) -> None:
        self.group.leave(self)


class AsyncConfluentMember(ConfluentMember):
    """confluent-kafka's AIOConsumer: each call runs in a thread, which goes on when the task is cancelled."""

    async def _called(self, name: str, *arguments: Any, **named: Any) -> Any:
        async def later() -> Any:
            await asyncio.sleep(POLL_S)
            return getattr(ConfluentMember, name)(self, *arguments, **named)

        return await asyncio.shield(asyncio.create_task(later()))

    async def consume(self, *arguments: Any) -> Any:  # type: ignore[override]
        return await self._called("consume", *arguments)

    async def consumer_group_metadata(self) -> Any:  # type: ignore[override]
        return await self._called("consumer_group_metadata")

    async def assignment(self) -> Any:  # type: ignore[override]
        return await self._called("assignment")

    async def store_offsets(self, **named: Any) -> Any:  # type: ignore[override]
        return await self._called("store_offsets", **named)

    async def pause(self, tps: list[TopicPartition]) -> Any:  # type: ignore[override]
        return await self._called("pause", tps)

    async def resume(self, tps: list[TopicPartition]) -> Any:  # type: ignore[override]
        return await self._called("resume", tps)

    async def seek(self, tp: TopicPartition) -> Any:  # type: ignore[override]
        return await self._called("seek", tp)
