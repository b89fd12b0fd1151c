"""Groups as tools see them: described, listed, deleted, and their offsets deleted. broker: 21"""

from __future__ import annotations

import time
from typing import Any

from asker import Asker
from conformance_targets import Target
from group_asker import PATIENCE_S, GroupAsker, subscription

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import offset_delete as without
from aiokprod.wire.messages import offset_fetch as fetching
from aiokprod.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from aiokprod.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from aiokprod.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def describe(broker: Asker, group: str, version: int = 4, **options: Any) -> DescribedGroup:
    (found,) = broker.ask(DescribeGroupsRequest(groups=[group], **options), DescribeGroupsResponse, version).groups
    return found


def told(found: DescribedGroup) -> tuple[int, str, str, str, int]:
    return found.error_code, found.group_state, found.protocol_type, found.protocol_data, len(found.members)


def test_a_group_is_described_in_each_state(target: Target) -> None:  # broker: 21.12
    group = GroupAsker(target)
    first, second = group.connect(), group.connect()
    assert told(describe(first, group.id)) == (0, "Dead", "", "", 0)
    one = group.alone(first)
    stable = describe(first, group.id)
    assert told(stable) == (0, "Stable", "consumer", "range", 1)
    (member,) = stable.members
    assert (member.member_id, member.group_instance_id, member.client_id) == (one, None, "conformance")
    assert member.client_host.startswith("/")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"all")
    group.send_join(second, group.new_id(second))
    group.until_rebalancing(first, one, 1)
    preparing = describe(first, group.id)
    assert told(preparing) == (0, "PreparingRebalance", "consumer", "", 2)
    assert {each.member_metadata for each in preparing.members} == {b""}
    before = sorted(each.member_assignment for each in preparing.members)
    assert before == target.by_version({(2, 8): [b"", b""], (4, 0): [b"", b"all"]})
    joined = group.ask_join(first, one)
    two = next(each.member_id for each in joined.members if each.member_id != one)
    assert told(describe(first, group.id)) == (0, "CompletingRebalance", "consumer", "", 2)
    assert group.leave(first, (one, None), (two, None)) == (0, [0, 0])
    assert told(describe(first, group.id)) == (0, "Empty", "consumer", "", 0)


def test_what_a_client_may_do_with_a_group(target: Target) -> None:  # broker: 21.12
    group = GroupAsker(target)
    broker = group.connect()
    group.alone(broker)
    assert describe(broker, group.id).authorized_operations == -(2**31)
    everything = describe(broker, group.id, include_authorized_operations=True).authorized_operations
    read_delete_describe = 1 << 3 | 1 << 6 | 1 << 8
    configs = 1 << 10 | 1 << 11
    assert everything == target.by_version({(2, 8): read_delete_describe, (4, 0): read_delete_describe | configs})


def test_a_group_that_is_not_there(target: Target) -> None:  # broker: 21.12
    group = GroupAsker(target)
    broker = group.connect()
    version = target.by_version({(2, 8): 5, (4, 0): 6})
    found = describe(broker, group.id, version)
    assert told(found) == (E.GROUP_ID_NOT_FOUND if version >= 6 else 0, "Dead", "", "", 0)
    assert found.error_message == (f"Group {group.id} not found." if version >= 6 else None)


def test_groups_are_listed_by_state_and_type(target: Target) -> None:  # broker: 21.12
    group = GroupAsker(target)
    broker = group.connect()
    newest = target.by_version({(2, 8): 4, (3, 9): 5})
    group.alone(broker)

    def listed(version: int = newest, **filters: Any) -> list[tuple[str, str, str]]:
        answer = broker.ask(ListGroupsRequest(**filters), ListGroupsResponse, version)
        assert answer.error_code == 0
        return [
            (each.protocol_type, each.group_state, each.group_type)
            for each in answer.groups
            if each.group_id == group.id
        ]

    # Before 4.0 a broker answers the sync inside the group's lock, a step before the group is stable. Listing takes no lock.
    assert told(describe(broker, group.id))[1] == "Stable"
    kind = "classic" if newest >= 5 else ""
    assert listed() == [("consumer", "Stable", kind)]
    assert listed(3) == [("consumer", "", "")]
    assert listed(states_filter=["Stable"]) == [("consumer", "Stable", kind)]
    assert [listed(states_filter=[state]) for state in ("Empty", "nonsense")] == [[], []]
    if newest >= 5:
        assert listed(types_filter=["classic"]) and not listed(types_filter=["consumer"])


def test_groups_are_deleted(target: Target) -> None:  # broker: 21.13
    group = GroupAsker(target)
    broker = group.connect()
    topic = target.new_topic()

    def delete() -> int:
        (result,) = broker.ask(DeleteGroupsRequest(groups_names=[group.id]), DeleteGroupsResponse, 2).results
        return result.error_code

    assert delete() == E.GROUP_ID_NOT_FOUND
    one = group.alone(broker)
    assert delete() == E.NON_EMPTY_GROUP
    assert group.commit(broker, topic, one, 1) == 0
    assert group.leave(broker, (one, None)) == (0, [0])
    assert delete() == 0
    assert delete() == E.GROUP_ID_NOT_FOUND
    assert told(describe(broker, group.id)) == (0, "Dead", "", "", 0)
    assert group.commit(broker, topic, "", -1) == 0
    assert told(describe(broker, group.id)) == (0, "Empty", "", "", 0)
    assert delete() == 0


def test_offsets_are_deleted_that_have_no_subscriber(target: Target) -> None:  # broker: 21.13
    group = GroupAsker(target)
    broker = group.connect()
    mine, other = target.new_topic(), target.new_topic()

    def delete(*topics: str) -> tuple[int, dict[str, int]]:
        wanted = [without.OffsetDeleteRequestPartition(partition_index=0)]
        request = without.OffsetDeleteRequest(
            group_id=group.id,
            topics=[without.OffsetDeleteRequestTopic(name=topic, partitions=wanted) for topic in topics],
        )
        answer = broker.ask(request, without.OffsetDeleteResponse, 0)
        return answer.error_code, {topic.name: topic.partitions[0].error_code for topic in answer.topics}

    assert delete(mine) == (E.GROUP_ID_NOT_FOUND, {})
    one = group.alone(broker, protocols=(("range", subscription(mine)),))
    assert group.commit(broker, other, one, 1) == 0
    assert delete(mine, other, "nothing-of-this-name") == (
        0,
        {mine: E.GROUP_SUBSCRIBED_TO_TOPIC, other: 0, "nothing-of-this-name": E.UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert group.leave(broker, (one, None)) == (0, [0])
    assert delete(mine) == (0, {mine: 0})
    stranger = GroupAsker(target)
    broker = stranger.connect()
    group = stranger
    stranger.alone(broker, protocols=(("range", b"?"),), protocol_type="connect")
    assert delete(mine) == (E.NON_EMPTY_GROUP, {})


def test_the_offsets_of_a_topic_go_with_it(target: Target) -> None:  # broker: 21.18
    group = GroupAsker(target)
    broker = group.connect()
    mine, other = target.new_topic(), target.new_topic()

    def committed(topic: str) -> int:
        asked = fetching.OffsetFetchRequestTopic(name=topic, partition_indexes=[0])
        request = fetching.OffsetFetchRequest(group_id=group.id, topics=[asked])
        (found,) = broker.ask(request, fetching.OffsetFetchResponse, 7).topics[0].partitions
        assert found.error_code == 0
        return found.committed_offset

    one = group.alone(broker, protocols=(("range", subscription(mine)),))
    assert [group.commit(broker, topic, one, 1) for topic in (mine, other)] == [0, 0]
    assert (committed(mine), committed(other)) == (3, 3)
    target.delete(mine)
    deadline = time.monotonic() + PATIENCE_S
    while committed(mine) != -1 and time.monotonic() < deadline:
        time.sleep(0.02)
    target.create(mine, 1, 1, {})
    assert (committed(mine), committed(other)) == (-1, 3)
    assert told(describe(broker, group.id))[:2] == (0, "Stable")
    target.delete(other)
    while committed(other) != -1 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert committed(other) == -1
    assert group.leave(broker, (one, None)) == (0, [0])
    assert told(describe(broker, group.id))[:2] == (0, "Empty")  # the group is there without them
