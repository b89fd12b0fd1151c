"""Groups of the consumer protocol (KIP-848): heartbeats, epochs, assignments and their refusals. broker: 22"""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from asker import Asker
from conformance_targets import Target
from group_asker import GroupAsker
from transactor import Transactor

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import consumer_group_describe as describing
from aiokprod.wire.messages import consumer_group_heartbeat as beating
from aiokprod.wire.messages import create_partitions as growth
from aiokprod.wire.messages import offset_commit as committing
from aiokprod.wire.messages import offset_fetch as fetching
from aiokprod.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from aiokprod.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from aiokprod.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

PATIENCE_S = 120.0
VERSION = 1


class Beater:
    """One member of a group, which does what a broker says, on a connection of its own."""

    def __init__(self, group: GroupAsker, *topics: str, member_id: str | None = None, **options: Any) -> None:
        self.group = group
        self.broker = group.connect()
        self.id = uuid.uuid4().hex if member_id is None else member_id
        self.epoch = 0
        self.partitions: list[int] = []
        self._ids: dict[str, bytes] = {}
        self._topics = list(topics)
        self._options = options

    def topic_id(self, name: str) -> bytes:
        if name not in self._ids:
            wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
            (found,) = self.broker.ask(wanted, MetadataResponse, 10).topics
            self._ids[name] = found.topic_id
        return self._ids[name]

    def owned(self, partitions: list[int]) -> list[beating.TopicPartitions]:
        if not partitions:
            return []
        return [beating.TopicPartitions(topic_id=self.topic_id(self._topics[0]), partitions=partitions)]

    def ask(self, epoch: int | None = None, **options: Any) -> beating.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat that says only what the options say."""
        given: dict[str, Any] = {"group_id": self.group.id, "member_id": self.id, **options}
        request = beating.ConsumerGroupHeartbeatRequest(member_epoch=self.epoch if epoch is None else epoch, **given)
        return self.broker.ask(request, beating.ConsumerGroupHeartbeatResponse, VERSION)

    def join_options(self, **options: Any) -> dict[str, Any]:
        given: dict[str, Any] = {
            "rebalance_timeout_ms": 120_000,
            "subscribed_topic_names": self._topics,
            "topic_partitions": [],
        }
        return {**given, **self._options, **options}

    def join(self, **options: Any) -> beating.ConsumerGroupHeartbeatResponse:
        return self._take(self.ask(0, **self.join_options(**options)))

    def beat(self, **options: Any) -> beating.ConsumerGroupHeartbeatResponse:
        return self._take(self.ask(**options))

    def own(self) -> beating.ConsumerGroupHeartbeatResponse:
        """Send a heartbeat that says which partitions it has."""
        return self.beat(topic_partitions=self.owned(self.partitions))

    def _take(self, answer: beating.ConsumerGroupHeartbeatResponse) -> beating.ConsumerGroupHeartbeatResponse:
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.partitions = sorted(
                    index for topic in answer.assignment.topic_partitions for index in topic.partitions
                )
        return answer


def until_shared(count: int, *members: Beater) -> None:
    """Let all members beat until they have all partitions, none has none, and no epoch changes."""
    deadline = time.monotonic() + PATIENCE_S
    calm = 0
    while calm < 3:
        before = [member.epoch for member in members]
        for member in members:
            assert member.own().error_code == 0
        shares = [member.partitions for member in members]
        is_shared = all(shares) and sorted(index for share in shares for index in share) == list(range(count))
        is_calm = is_shared and before == [member.epoch for member in members] and len(set(before)) == 1
        calm = calm + 1 if is_calm else 0
        assert time.monotonic() < deadline, (shares, before)
        time.sleep(0.05)


def one(three: Target, partitions: int = 4, **options: Any) -> tuple[GroupAsker, str, Beater]:
    """Return a group, its topic, and its only member, which has all partitions."""
    group = GroupAsker(three)
    topic = three.new_topic(partitions=partitions)
    member = Beater(group, topic, **options)
    assert member.join().error_code == 0
    until_shared(partitions, member)
    return group, topic, member


def test_a_member_joins_and_is_given_everything(three: Target) -> None:  # broker: 22.1
    group = GroupAsker(three)
    topic = three.new_topic(partitions=3)
    member = Beater(group, topic)
    answer = member.join()
    assert (answer.error_code, answer.error_message, answer.member_id) == (0, None, member.id)
    assert answer.heartbeat_interval_ms == 5000 and answer.assignment is not None
    until_shared(3, member)
    assert member.partitions == [0, 1, 2]
    quiet = member.beat()
    assert (quiet.error_code, quiet.assignment, quiet.member_epoch) == (0, None, member.epoch)
    full = member.beat(**member.join_options(topic_partitions=member.owned([0, 1, 2])))
    assert full.assignment is not None and member.partitions == [0, 1, 2]


def test_heartbeats_that_make_no_sense(three: Target) -> None:  # broker: 22.2
    group = GroupAsker(three)
    member = Beater(group, three.new_topic())
    join = member.join_options()

    def refused(epoch: int, **options: Any) -> tuple[int, str | None]:
        answer = member.ask(epoch, **options)
        return answer.error_code, answer.error_message

    wrong = E.INVALID_REQUEST
    assert refused(0, **{**join, "member_id": ""}) == (wrong, "MemberId can't be empty.")
    assert refused(0, **{**join, "group_id": ""}) == (wrong, "GroupId can't be empty.")
    assert refused(0, **{**join, "instance_id": ""}) == (wrong, "InstanceId can't be empty.")
    assert refused(0, **{**join, "rack_id": ""}) == (wrong, "RackId can't be empty.")
    assert refused(0, **{**join, "rebalance_timeout_ms": -1}) == (
        wrong,
        "RebalanceTimeoutMs must be provided in first request.",
    )
    assert refused(0, **{**join, "topic_partitions": None}) == (
        wrong,
        "TopicPartitions must be empty when (re-)joining.",
    )
    assert refused(0, **{**join, "subscribed_topic_names": None}) == (
        wrong,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )
    assert refused(-2) == (wrong, "InstanceId can't be null.")
    assert refused(-3) == (wrong, "MemberEpoch is invalid.")
    code, text = refused(0, **{**join, "server_assignor": "mine"})
    assert (
        code == E.UNSUPPORTED_ASSIGNOR and text is not None and text.startswith("ServerAssignor mine is not supported.")
    )
    assert refused(0, **{**join, "subscribed_topic_regex": "(", "subscribed_topic_names": None})[0] == (
        E.INVALID_REGULAR_EXPRESSION
    )
    assert refused(5) == (E.GROUP_ID_NOT_FOUND, f"Consumer group {group.id} not found.")
    assert refused(-1) == (E.GROUP_ID_NOT_FOUND, f"Group {group.id} not found.")


def test_epochs_are_checked(three: Target) -> None:  # broker: 22.3
    _, _, member = one(three)
    assert member.ask(member.epoch + 1).error_code == E.FENCED_MEMBER_EPOCH
    assert member.ask(member.epoch + 1).member_epoch == 0
    second = Beater(member.group, *member._topics)
    assert second.ask(1).error_code == E.UNKNOWN_MEMBER_ID
    assert second.join().error_code == 0
    until_shared(4, member, second)
    assert member.ask(member.epoch - 1, topic_partitions=None).error_code == E.FENCED_MEMBER_EPOCH
    assert member.beat().error_code == 0, "a refusal changes nothing"


def test_partitions_are_given_back_before_they_are_given_on(three: Target) -> None:  # broker: 22.4
    _, topic, first = one(three)
    second = Beater(first.group, topic)
    second.join()
    deadline = time.monotonic() + PATIENCE_S
    before = first.epoch
    while len(first.partitions) > 2:  # told to give two back
        first.beat()
        second.beat()
        assert second.partitions == [] and time.monotonic() < deadline
        time.sleep(0.05)
    assert first.epoch == before, "it has not given them back yet"
    assert second.beat().error_code == 0 and second.partitions == []
    first.beat()
    assert first.epoch == before, "it does not say what it has"
    first.own()
    assert first.epoch > before
    until_shared(4, first, second)
    assert [len(first.partitions), len(second.partitions)] == [2, 2]


def test_a_member_leaves_and_the_other_takes_over(three: Target) -> None:  # broker: 22.5
    group, topic, first = one(three)
    second = Beater(group, topic)
    second.join()
    until_shared(4, first, second)
    left = second.ask(-1)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, second.id, -1)
    assert second.ask().error_code == E.UNKNOWN_MEMBER_ID
    assert second.ask(-1).error_code == E.UNKNOWN_MEMBER_ID
    until_shared(4, first)


def test_a_static_member_keeps_its_place(three: Target) -> None:  # broker: 22.6
    group, topic, member = one(three, instance_id="i")
    twin = Beater(group, topic, instance_id="i")
    assert twin.join().error_code == E.UNRELEASED_INSTANCE_ID
    assert member.ask(-2, instance_id="j").error_code == E.UNKNOWN_MEMBER_ID
    away = member.ask(-2, instance_id="i")
    assert (away.error_code, away.member_epoch) == (0, -2)
    again = twin.join()
    assert again.error_code == 0 and twin.partitions == [0, 1, 2, 3]
    assert member.ask(instance_id="i").error_code == E.FENCED_INSTANCE_ID
    assert twin.ask(twin.epoch, instance_id="i").error_code == 0
    assert twin.ask(-1, instance_id="i").error_code == 0
    assert twin.ask(twin.epoch, instance_id="i").error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_assignor_is_the_members_choice(three: Target, assignor: str) -> None:  # broker: 22.7
    group, topic, first = one(three, partitions=5, server_assignor=assignor)
    second = Beater(group, topic, server_assignor=assignor)
    second.join()
    until_shared(5, first, second)
    assert sorted([len(first.partitions), len(second.partitions)]) == [2, 3]
    if assignor == "range":
        for share in (first.partitions, second.partitions):
            assert share == list(range(share[0], share[0] + len(share)))
    assert describe(first.broker, group.id).assignor_name == assignor


def test_a_topic_that_grows_is_shared_again(three: Target) -> None:  # broker: 22.8
    _, topic, member = one(three, partitions=1)
    grown = growth.CreatePartitionsTopic(name=topic, count=3, assignments=None)
    asker = three.connect(three.controller())
    asker.ask(growth.CreatePartitionsRequest(topics=[grown], timeout_ms=10_000), growth.CreatePartitionsResponse, 2)
    until_shared(3, member)


def test_a_subscription_by_a_regular_expression(three: Target) -> None:  # broker: 22.8
    group = GroupAsker(three)
    topic = three.new_topic(partitions=2)
    member = Beater(group, topic)
    member.join(subscribed_topic_names=None, subscribed_topic_regex=topic[:-1] + "[a-f0-9]")
    until_shared(2, member)


# ---------------------------------------------------------------------- offsets


def test_commits_are_checked_against_epochs(three: Target) -> None:  # broker: 22.9
    group, topic, member = one(three)
    broker = member.broker

    def commit(member_id: str, epoch: int, version: int = 9) -> int:
        return group.commit(broker, topic, member_id, epoch, version)

    assert commit(member.id, member.epoch) == 0
    assert commit(member.id, member.epoch, version=8) == E.UNSUPPORTED_VERSION
    assert commit(member.id, member.epoch + 1) == E.STALE_MEMBER_EPOCH
    assert commit("stranger", member.epoch) == E.UNKNOWN_MEMBER_ID
    assert commit("", -1) == E.UNKNOWN_MEMBER_ID

    def fetch(member_id: str | None, epoch: int) -> tuple[int, int]:
        asked = fetching.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
        wanted = fetching.OffsetFetchRequestGroup(
            group_id=group.id, member_id=member_id, member_epoch=epoch, topics=[asked]
        )
        (found,) = broker.ask(fetching.OffsetFetchRequest(groups=[wanted]), fetching.OffsetFetchResponse, 9).groups
        return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1

    assert fetch(member.id, member.epoch) == (0, 3)
    assert fetch(None, -1) == (0, 3)
    assert fetch(member.id, member.epoch + 1) == (E.STALE_MEMBER_EPOCH, -1)
    assert fetch("stranger", member.epoch) == (E.UNKNOWN_MEMBER_ID, -1)


def test_commits_in_a_transaction_are_checked_against_epochs(three: Target) -> None:  # broker: 22.9
    group, topic, member = one(three)
    it = Transactor(three).begin()
    assert it.add_offsets(group.id) == 0

    def commit(member_id: str, epoch: int) -> int:
        return it.commit_offset(group.id, topic, 1, member_id=member_id, generation_id=epoch)

    assert [commit(member.id, member.epoch), commit("", -1)] == [0, 0]
    assert commit(member.id, member.epoch + 1) == E.ILLEGAL_GENERATION
    assert commit("stranger", member.epoch) == E.UNKNOWN_MEMBER_ID
    it.finish(True)


def test_an_older_epoch_may_commit_what_it_has_had_since_then(three: Target) -> None:  # broker: 22.13
    group, topic, first = one(three)
    before = first.epoch
    second = Beater(group, topic)
    second.join()
    until_shared(4, first, second)
    assert first.epoch > before
    codes = {}
    for index in range(4):
        partition = committing.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        request = committing.OffsetCommitRequest(
            group_id=group.id,
            member_id=first.id,
            generation_id_or_member_epoch=before,
            topics=[committing.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        answer = first.broker.ask(request, committing.OffsetCommitResponse, 9)
        codes[index] = answer.topics[0].partitions[0].error_code
    assert codes == {index: 0 if index in first.partitions else E.STALE_MEMBER_EPOCH for index in range(4)}


# ---------------------------------------------------------------------- tools


def describe(broker: Asker, group_id: str) -> describing.DescribedGroup:
    request = describing.ConsumerGroupDescribeRequest(group_ids=[group_id])
    (found,) = broker.ask(request, describing.ConsumerGroupDescribeResponse, 1).groups
    return found


def test_a_group_is_described_and_listed(three: Target) -> None:  # broker: 22.10
    group, topic, member = one(three)
    found = describe(member.broker, group.id)
    assert (found.error_code, found.group_state, found.assignor_name) == (0, "Stable", "uniform")
    assert found.group_epoch == found.assignment_epoch == member.epoch
    (told,) = found.members
    assert (told.member_id, told.instance_id, told.rack_id) == (member.id, None, None)
    assert (told.member_epoch, told.client_id, told.member_type) == (member.epoch, "conformance", 1)
    assert told.subscribed_topic_names == [topic] and not told.subscribed_topic_regex
    for assignment in (told.assignment, told.target_assignment):
        (by_topic,) = assignment.topic_partitions
        assert (by_topic.topic_name, by_topic.topic_id, sorted(by_topic.partitions)) == (
            topic,
            member.topic_id(topic),
            [0, 1, 2, 3],
        )
    listed = member.broker.ask(ListGroupsRequest(types_filter=["consumer"]), ListGroupsResponse, 5).groups
    assert [
        (each.protocol_type, each.group_state, each.group_type) for each in listed if each.group_id == group.id
    ] == [("consumer", "Stable", "consumer")]
    (classic,) = member.broker.ask(DescribeGroupsRequest(groups=[group.id]), DescribeGroupsResponse, 6).groups
    assert (classic.error_code, classic.group_state) == (E.GROUP_ID_NOT_FOUND, "Dead")
    assert classic.error_message == f"Group {group.id} is not a classic group."
    (deleted,) = member.broker.ask(DeleteGroupsRequest(groups_names=[group.id]), DeleteGroupsResponse, 2).results
    assert deleted.error_code == E.NON_EMPTY_GROUP
    assert member.ask(-1).error_code == 0
    assert describe(member.broker, group.id).group_state == "Empty"
    (deleted,) = member.broker.ask(DeleteGroupsRequest(groups_names=[group.id]), DeleteGroupsResponse, 2).results
    assert deleted.error_code == 0
    gone = describe(member.broker, group.id)
    assert (gone.error_code, gone.error_message) == (E.GROUP_ID_NOT_FOUND, f"Group {group.id} not found.")


def test_an_empty_group_changes_its_protocol(three: Target) -> None:  # broker: 22.11
    group, topic, member = one(three)
    assert group.commit(member.broker, topic, member.id, member.epoch, 9) == 0
    assert group.beat(member.broker, member.id, member.epoch) == E.UNKNOWN_MEMBER_ID
    assert member.ask(-1).error_code == 0
    classic = group.alone(member.broker)
    found = describe(member.broker, group.id)
    assert (found.error_code, found.error_message) == (
        E.GROUP_ID_NOT_FOUND,
        f"Group {group.id} is not a consumer group.",
    )
    assert group.leave(member.broker, (classic, None)) == (0, [0])
    assert member.join().error_code == 0
