"""`GroupAsker`: one group, asked at its coordinator; each case has a group of its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from asker import Asker
from conformance_targets import Target
from transactor import Transactor

from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import offset_commit as committing
from aiokprod.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokprod.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from aiokprod.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from aiokprod.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

PATIENCE_S = 120.0
STARTING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
JOIN, SYNC, LEAVE, HEARTBEAT = 7, 5, 4, 4
"""The newest versions that 2.8 has."""


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata, version 0, for these topics."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class GroupAsker:
    """A group of the target and requests about it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.id = f"group-{uuid.uuid4().hex[:12]}"
        self._finder = Transactor(target)

    def connect(self) -> Asker:
        """Return a new connection to the coordinator: a join that waits takes all of a connection."""
        found = self._finder.find(self.id, kind=0)
        self._wait_until_loaded(found)
        return found

    def _wait_until_loaded(self, asker: Asker) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.beat(asker, "stranger", 1) in STARTING:
            assert time.monotonic() < deadline, f"{self.target} does not coordinate {self.id}"
            time.sleep(0.05)

    # ------------------------------------------------------------------ requests

    def join_request(self, member_id: str = "", **options: Any) -> JoinGroupRequest:
        protocols = options.pop("protocols", (("range", subscription("t")),))
        given: dict[str, Any] = {
            "group_id": self.id,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        }
        return JoinGroupRequest(member_id=member_id, **{**given, **options})

    def ask_join(self, asker: Asker, member_id: str = "", version: int = JOIN, **options: Any) -> JoinGroupResponse:
        return asker.ask(self.join_request(member_id, **options), JoinGroupResponse, version)

    def send_join(self, asker: Asker, member_id: str = "", version: int = JOIN, **options: Any) -> None:
        asker.send(self.join_request(member_id, **options), version)

    def joined(self, asker: Asker, version: int = JOIN) -> JoinGroupResponse:
        """Return the answer to a JoinGroup that was sent."""
        return asker.answer(JoinGroupResponse, JoinGroupRequest, version)

    def new_id(self, asker: Asker, **options: Any) -> str:
        """Return a member id that was given for a later join."""
        deadline = time.monotonic() + PATIENCE_S
        while (answer := self.ask_join(asker, **options)).error_code in STARTING:
            assert time.monotonic() < deadline, f"{self.target} does not coordinate {self.id}: {answer.error_code}"
            time.sleep(0.05)
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode(answer.error_code)
        return answer.member_id

    def sync_request(
        self, member_id: str, generation: int, assignments: dict[str, bytes] | None = None, **options: Any
    ) -> SyncGroupRequest:
        given: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range", **options}
        items = [
            SyncGroupRequestAssignment(member_id=one, assignment=data) for one, data in (assignments or {}).items()
        ]
        return SyncGroupRequest(
            group_id=self.id, generation_id=generation, member_id=member_id, assignments=items, **given
        )

    def sync(self, asker: Asker, *arguments: Any, **options: Any) -> SyncGroupResponse:
        return asker.ask(self.sync_request(*arguments, **options), SyncGroupResponse, SYNC)

    def beat(self, asker: Asker, member_id: str, generation: int, instance_id: str | None = None) -> int:
        request = HeartbeatRequest(
            group_id=self.id, generation_id=generation, member_id=member_id, group_instance_id=instance_id
        )
        return asker.ask(request, HeartbeatResponse, HEARTBEAT).error_code

    def leave(self, asker: Asker, *members: tuple[str, str | None]) -> tuple[int, list[int]]:
        asked = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        answer = asker.ask(LeaveGroupRequest(group_id=self.id, members=asked), LeaveGroupResponse, LEAVE)
        return answer.error_code, [each.error_code for each in answer.members]

    def commit(
        self, asker: Asker, topic: str, member_id: str, generation: int, version: int = 8, **options: Any
    ) -> int:
        one = committing.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        request = committing.OffsetCommitRequest(
            group_id=self.id,
            member_id=member_id,
            generation_id_or_member_epoch=generation,
            topics=[committing.OffsetCommitRequestTopic(name=topic, partitions=[one])],
            **options,
        )
        answer = asker.ask(request, committing.OffsetCommitResponse, version)
        return answer.topics[0].partitions[0].error_code

    # ------------------------------------------------------------------ scenes

    def alone(self, asker: Asker, assignment: bytes = b"all", **options: Any) -> str:
        """Make a stable group of one member, of generation 1; return its id."""
        member_id = "" if options.get("group_instance_id") else self.new_id(asker, **options)
        answer = self.ask_join(asker, member_id, **options)
        assert (answer.error_code, answer.generation_id) == (0, 1)
        name = options.get("protocols", (("range", b""),))[0][0]
        synced = self.sync(
            asker,
            answer.member_id,
            1,
            {answer.member_id: assignment},
            protocol_name=name,
            protocol_type=options.get("protocol_type", "consumer"),
            group_instance_id=options.get("group_instance_id"),
        )
        assert (synced.error_code, synced.assignment) == (0, assignment)
        return answer.member_id

    def until_rebalancing(self, asker: Asker, member_id: str, generation: int, instance_id: str | None = None) -> None:
        """Send heartbeats until one says that there is a rebalance."""
        deadline = time.monotonic() + PATIENCE_S
        while (code := self.beat(asker, member_id, generation, instance_id)) != ErrorCode.REBALANCE_IN_PROGRESS:
            assert code == 0 and time.monotonic() < deadline, f"{code}: no rebalance"
            time.sleep(0.02)

    def pair(self, first: Asker, second: Asker, **options: Any) -> tuple[str, str]:
        """Make a stable group of two members, of generation 2; the first one leads."""
        one = self.alone(first, **options)
        two = self.new_id(second, **options)
        self.send_join(second, two, **options)
        self.until_rebalancing(first, one, 1)
        assert self.ask_join(first, one, **options).generation_id == 2
        assert self.joined(second).generation_id == 2
        second.send(self.sync_request(two, 2), SYNC)
        assert self.sync(first, one, 2, {one: b"1", two: b"2"}).assignment == b"1"
        assert second.answer(SyncGroupResponse, SyncGroupRequest, SYNC).assignment == b"2"
        return one, two


def codes(answers: Sequence[Any]) -> list[int]:
    return [answer.error_code for answer in answers]
