"""Groups of the classic protocol: joins, syncs, heartbeats and leaves, and their answers. broker: 21"""

from __future__ import annotations

import time
from typing import Any

import pytest
from conformance_targets import Target
from group_asker import SYNC, GroupAsker, codes, subscription
from test_every_version import versions_of
from transactor import Transactor

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from aiokprod.wire.messages.join_group import JoinGroupRequest
from aiokprod.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from aiokprod.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def test_a_new_member_is_given_an_id_first(target: Target) -> None:  # broker: 21.1
    group = GroupAsker(target)
    broker = group.connect()
    told = group.ask_join(broker)
    assert (told.error_code, told.generation_id, told.leader) == (E.MEMBER_ID_REQUIRED, -1, "")
    assert (told.protocol_type, told.protocol_name, told.members) == (None, None, [])
    assert told.member_id.startswith("conformance-") and len(told.member_id) == len("conformance-") + 36
    joined = group.ask_join(broker, told.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, told.member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert [(each.member_id, each.group_instance_id, each.metadata) for each in joined.members] == [
        (told.member_id, None, subscription("t"))
    ]


def test_before_version_4_a_new_member_joins_at_once(target: Target) -> None:  # broker: 21.1
    group = GroupAsker(target)
    broker = group.connect()
    joined = group.ask_join(broker, version=3)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, joined.member_id)
    refused = group.ask_join(broker, "stranger", version=3)
    assert (refused.error_code, refused.member_id, refused.protocol_name) == (E.UNKNOWN_MEMBER_ID, "stranger", "")


def test_joins_that_are_refused(target: Target) -> None:  # broker: 21.2
    group = GroupAsker(target)
    broker = group.connect()

    def refused(member_id: str = "", **options: Any) -> tuple[int, int, str]:
        answer = group.ask_join(broker, member_id, **options)
        return answer.error_code, answer.generation_id, answer.member_id

    assert refused("stranger") == (E.UNKNOWN_MEMBER_ID, -1, "stranger")
    assert refused(session_timeout_ms=5_999) == (E.INVALID_SESSION_TIMEOUT, -1, "")
    assert refused(session_timeout_ms=1_800_001) == (E.INVALID_SESSION_TIMEOUT, -1, "")
    assert refused(group_id="") == (E.INVALID_GROUP_ID, -1, "")
    assert refused(protocols=()) == (E.INCONSISTENT_GROUP_PROTOCOL, -1, "")
    assert refused(protocol_type="") == (E.INCONSISTENT_GROUP_PROTOCOL, -1, "")
    group.alone(broker)
    assert refused("stranger") == (E.UNKNOWN_MEMBER_ID, -1, "stranger")
    assert refused(protocols=(("other", b""),)) == (E.INCONSISTENT_GROUP_PROTOCOL, -1, "")
    assert refused(protocol_type="connect") == (E.INCONSISTENT_GROUP_PROTOCOL, -1, "")


def test_two_members_share_a_generation(target: Target) -> None:  # broker: 21.3
    group = GroupAsker(target)
    first, second = group.connect(), group.connect()
    one, two = group.pair(first, second)
    assert [group.beat(first, one, 2), group.beat(second, two, 2)] == [0, 0]
    assert [group.beat(first, one, 1), group.beat(first, one, 3)] == [E.ILLEGAL_GENERATION] * 2
    assert group.beat(first, "stranger", 2) == E.UNKNOWN_MEMBER_ID
    assert group.sync(first, one, 2).assignment == b"1", "an assignment may be asked for again"


def test_syncs_that_are_refused(target: Target) -> None:  # broker: 21.4
    group = GroupAsker(target)
    broker = group.connect()
    assert group.sync(broker, "stranger", 1).error_code == E.UNKNOWN_MEMBER_ID
    one = group.alone(broker)
    answers = [
        group.sync(broker, "stranger", 1),
        group.sync(broker, one, 2),
        group.sync(broker, one, 1, protocol_name="other"),
        group.sync(broker, one, 1, protocol_type="connect"),
        group.sync(broker, one, 1, protocol_type=None),
        group.sync(broker, one, 1),
    ]
    inconsistent = E.INCONSISTENT_GROUP_PROTOCOL
    assert codes(answers) == [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, inconsistent, inconsistent, inconsistent, 0]
    assert [(each.protocol_type, each.protocol_name) for each in answers[-2:]] == [(None, None), ("consumer", "range")]


def test_while_a_rebalance_is_prepared(target: Target) -> None:  # broker: 21.5
    group = GroupAsker(target)
    first, second = group.connect(), group.connect()
    topic = target.new_topic()
    one = group.alone(first)
    two = group.new_id(second)
    group.send_join(second, two)
    group.until_rebalancing(first, one, 1)
    assert group.sync(first, one, 1).error_code == E.REBALANCE_IN_PROGRESS
    assert [group.beat(first, one, 2), group.beat(first, "stranger", 1)] == [E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID]
    assert group.commit(first, topic, one, 1) == 0, "a member commits before it joins again"
    joined = group.ask_join(first, one)
    assert sorted(each.member_id for each in joined.members) == sorted([one, two])
    follower = group.joined(second)
    assert (follower.leader, follower.members, follower.member_id) == (one, [], two)


def test_while_an_assignment_is_awaited(target: Target) -> None:  # broker: 21.6
    group = GroupAsker(target)
    broker = group.connect()
    topic = target.new_topic()
    one = group.new_id(broker)
    assert group.ask_join(broker, one).error_code == 0
    assert group.beat(broker, one, 1) == 0
    assert group.commit(broker, topic, one, 1) == E.REBALANCE_IN_PROGRESS
    again = group.ask_join(broker, one)
    assert (again.error_code, again.generation_id, len(again.members)) == (0, 1, 1)
    other = group.ask_join(broker, one, protocols=(("range", b"other"),))
    assert (other.error_code, other.generation_id) == (0, 2)
    assert group.sync(broker, one, 1).error_code == E.ILLEGAL_GENERATION


def test_a_sync_that_waits_is_told_of_the_next_rebalance(target: Target) -> None:  # broker: 21.6
    group = GroupAsker(target)
    first, second, third = group.connect(), group.connect(), group.connect()
    one = group.alone(first)
    two = group.new_id(second)
    group.send_join(second, two)
    group.until_rebalancing(first, one, 1)
    group.ask_join(first, one)
    group.joined(second)
    second.send(group.sync_request(two, 2), SYNC)
    time.sleep(0.2)
    group.send_join(third, group.new_id(third))
    waited = second.answer(SyncGroupResponse, SyncGroupRequest, SYNC)
    assert (waited.error_code, waited.assignment) == (E.REBALANCE_IN_PROGRESS, b"")


def test_a_follower_asks_again_and_a_leader_makes_a_rebalance(target: Target) -> None:  # broker: 21.7
    group = GroupAsker(target)
    first, second = group.connect(), group.connect()
    one, two = group.pair(first, second)
    again = group.ask_join(second, two)
    assert (again.error_code, again.generation_id, again.members, again.leader) == (0, 2, [], one)
    group.send_join(first, one)
    group.until_rebalancing(second, two, 2)
    assert group.ask_join(second, two).generation_id == 3
    assert group.joined(first).generation_id == 3


def test_members_leave(target: Target) -> None:  # broker: 21.8
    group = GroupAsker(target)
    first, second = group.connect(), group.connect()
    assert group.leave(first, ("stranger", None)) == (0, [E.UNKNOWN_MEMBER_ID])
    one, two = group.pair(first, second)
    assert group.leave(second, ("stranger", None), (two, None), ("", "no-instance")) == (
        0,
        [E.UNKNOWN_MEMBER_ID, 0, E.UNKNOWN_MEMBER_ID],
    )
    assert group.beat(first, one, 2) == E.REBALANCE_IN_PROGRESS
    assert group.beat(second, two, 2) == E.UNKNOWN_MEMBER_ID
    assert group.ask_join(first, one).generation_id == 3
    old = first.ask(LeaveGroupRequest(group_id=group.id, member_id=one), LeaveGroupResponse, 2)
    assert (old.error_code, group.beat(first, one, 3)) == (0, E.UNKNOWN_MEMBER_ID)
    old = first.ask(LeaveGroupRequest(group_id=group.id, member_id=one), LeaveGroupResponse, 2)
    assert old.error_code == E.UNKNOWN_MEMBER_ID
    three = group.new_id(first)
    assert group.leave(first, (three, None)) == (0, [0]), "an id that was only given"
    assert group.ask_join(first, three).error_code == E.UNKNOWN_MEMBER_ID
    assert group.ask_join(first, group.new_id(first)).generation_id == 5, "the empty group was a generation"


@pytest.mark.slow
def test_a_silent_member_is_out_after_its_session(target: Target) -> None:  # broker: 21.9
    group = GroupAsker(target)
    broker = group.connect()
    one = group.alone(broker, session_timeout_ms=6_000)
    time.sleep(4)
    assert group.beat(broker, one, 1) == 0
    time.sleep(4)
    assert group.beat(broker, one, 1) == 0
    time.sleep(7)
    assert group.beat(broker, one, 1) == E.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_join_again_is_left_out(target: Target) -> None:  # broker: 21.9
    group = GroupAsker(target)
    first, second = group.connect(), group.connect()
    one = group.alone(first, rebalance_timeout_ms=1_000)
    two = group.new_id(second, rebalance_timeout_ms=1_000)
    group.send_join(second, two, rebalance_timeout_ms=1_000)
    joined = group.joined(second)
    assert (joined.generation_id, joined.leader, len(joined.members)) == (2, two, 1)
    assert group.beat(first, one, 1) == E.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------------- static members


def test_a_static_member_takes_its_place_again(target: Target) -> None:  # broker: 21.10
    group = GroupAsker(target)
    broker = group.connect()
    one = group.alone(broker, group_instance_id="i")
    again = group.ask_join(broker, group_instance_id="i")
    assert again.member_id.startswith("i-") and again.member_id != one
    assert (again.error_code, again.generation_id, again.members) == (0, 1, [])
    assert again.leader == one, "so that it does not take itself for the leader"
    two = again.member_id
    assert group.sync(broker, two, 1, group_instance_id="i").assignment == b"all"
    assert [group.beat(broker, one, 1, "i"), group.beat(broker, one, 1)] == [E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID]
    assert group.beat(broker, two, 1, "i") == 0
    assert group.ask_join(broker, one, group_instance_id="i").error_code == E.FENCED_INSTANCE_ID
    assert group.sync(broker, one, 1, group_instance_id="i").error_code == E.FENCED_INSTANCE_ID
    topic = target.new_topic()
    assert group.commit(broker, topic, one, 1, group_instance_id="i") == E.FENCED_INSTANCE_ID
    assert group.commit(broker, topic, two, 1, group_instance_id="i") == 0
    assert group.leave(broker, (one, "i"), ("", "j"), ("", "i")) == (0, [E.FENCED_INSTANCE_ID, E.UNKNOWN_MEMBER_ID, 0])


def test_a_static_leader_may_be_told_not_to_assign(target: Target) -> None:  # broker: 21.10
    if target.version < (3, 9):
        return  # JoinGroup v9 is newer
    group = GroupAsker(target)
    broker = group.connect()
    group.alone(broker, group_instance_id="i")
    again = group.ask_join(broker, group_instance_id="i", version=9)
    assert (again.error_code, again.generation_id, again.skip_assignment) == (0, 1, True)
    assert again.leader == again.member_id and len(again.members) == 1


def test_a_twin_fences_a_static_member_that_waits(target: Target) -> None:  # broker: 21.10
    group = GroupAsker(target)
    first, second, third = group.connect(), group.connect(), group.connect()
    one = group.alone(first)
    group.send_join(second, group_instance_id="i")
    group.until_rebalancing(first, one, 1)
    group.send_join(third, group_instance_id="i")
    fenced = group.joined(second)
    assert (fenced.error_code, fenced.generation_id) == (E.FENCED_INSTANCE_ID, -1)
    assert group.ask_join(first, one).generation_id == 2
    assert group.joined(third).generation_id == 2


def test_an_instance_that_is_not_known(since_3_9: Target) -> None:  # broker: 21.10
    group = GroupAsker(since_3_9)
    broker = group.connect()
    one = group.alone(broker)
    assert group.beat(broker, one, 1, "i") == E.UNKNOWN_MEMBER_ID
    assert group.commit(broker, since_3_9.new_topic(), one, 1, group_instance_id="i") == E.UNKNOWN_MEMBER_ID


# ---------------------------------------------------------------------- offsets


@pytest.mark.parametrize("version", [8, 9])
def test_commits_are_checked_against_the_group(target: Target, version: int) -> None:  # broker: 21.11
    if version > target.by_version({(2, 8): 8, (3, 9): 9}):
        return
    group = GroupAsker(target)
    broker = group.connect()
    topic = target.new_topic()

    def commit(member_id: str, generation: int, **options: Any) -> int:
        return group.commit(broker, topic, member_id, generation, version, **options)

    knows_no_group = version >= 9 and target.version >= (4, 0)
    assert commit("stranger", 1) == (E.GROUP_ID_NOT_FOUND if knows_no_group else E.ILLEGAL_GENERATION)
    one = group.alone(broker)
    assert [commit(one, 1), commit(one, 2), commit(one, 0), commit("stranger", 1)] == [
        0,
        E.ILLEGAL_GENERATION,
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
    ]
    assert [commit("", -1), commit(one, -1), commit("stranger", -1)] == [
        E.UNKNOWN_MEMBER_ID,
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
    ]
    assert group.leave(broker, (one, None)) == (0, [0])
    assert [commit("", -1), commit("stranger", -1), commit(one, 1), commit(one, 2)] == [
        0,
        0,
        E.UNKNOWN_MEMBER_ID,
        E.UNKNOWN_MEMBER_ID,
    ]


def test_commits_in_a_transaction_are_checked_against_the_group(target: Target) -> None:  # broker: 21.11
    group = GroupAsker(target)
    broker = group.connect()
    topic = target.new_topic()
    it = Transactor(target).begin()
    assert it.add_offsets(group.id) == 0

    def commit(member_id: str, generation: int, instance_id: str | None = None) -> int:
        return it.commit_offset(
            group.id, topic, 1, member_id=member_id, generation_id=generation, group_instance_id=instance_id
        )

    assert commit("stranger", 1) == target.by_version({(2, 8): E.UNKNOWN_MEMBER_ID, (4, 0): E.ILLEGAL_GENERATION})
    one = group.alone(broker, group_instance_id="i")
    assert [commit(one, 1, "i"), commit(one, 2, "i"), commit("stranger", 1), commit("stranger", 1, "i")] == [
        0,
        E.ILLEGAL_GENERATION,
        E.UNKNOWN_MEMBER_ID,
        E.FENCED_INSTANCE_ID,
    ]
    assert commit("", -1) == 0, "nothing is said of a member"
    it.finish(True)


def test_every_version_of_a_group_is_answered(target: Target) -> None:  # broker: 18.1, 21.1
    newest = {api: versions_of(target, api)[-1] for api in (SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest)}
    for version in versions_of(target, JoinGroupRequest):
        group = GroupAsker(target)
        broker = group.connect()
        joined = group.ask_join(broker, version=version)
        if version >= 4:
            joined = group.ask_join(broker, joined.member_id, version=version)
        assert (joined.error_code, joined.generation_id) == (0, 1)
        name = joined.member_id
        sync_version = min(version, newest[SyncGroupRequest])
        names = {} if sync_version >= 5 else {"protocol_type": None, "protocol_name": None}
        request = group.sync_request(name, 1, {name: b"mine"}, **names)
        assert broker.ask(request, SyncGroupResponse, sync_version).assignment == b"mine"
        beat = HeartbeatRequest(group_id=group.id, generation_id=1, member_id=name)
        assert broker.ask(beat, HeartbeatResponse, min(version, newest[HeartbeatRequest])).error_code == 0
        leave_version = min(version, newest[LeaveGroupRequest])
        leave = LeaveGroupRequest(group_id=group.id, member_id="" if leave_version >= 3 else name)
        if leave_version >= 3:
            leave.members = [MemberIdentity(member_id=name)]
        assert broker.ask(leave, LeaveGroupResponse, leave_version).error_code == 0
        assert group.beat(broker, name, 1) == E.UNKNOWN_MEMBER_ID
