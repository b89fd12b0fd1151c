"""`ConsumerGroup`: epochs, giving back before giving on, static members, sessions; the time and the topics are arguments."""

from __future__ import annotations

from typing import Any

import pytest

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.assignors import TopicPartition
from aiokprod.testing.mock.groups.consumer_group import ConsumerGroup
from aiokprod.testing.mock.groups.consumer_members import HeartbeatAsk, HeartbeatTold
from aiokprod.testing.mock.groups.group import Committer
from aiokprod.testing.mock.groups.settings import MAX_GROUP_BYTES, GroupSettings

T = b"t" * 16


class Rig:
    """A group, its clock and its topics."""

    def __init__(self, partitions: int = 4, **settings: int) -> None:
        self.group = ConsumerGroup("g", GroupSettings(**settings))
        self.topics = {"t": (T, partitions)}
        self.now = 100.0

    def beat(self, member_id: str, epoch: int, **options: Any) -> HeartbeatTold:
        given: dict[str, Any] = {
            "instance_id": None,
            "rack_id": None,
            "client_id": "c",
            "client_host": "/h",
            "rebalance_s": None,
            "topics": None,
            "regex": None,
            "assignor": None,
            "owned": None,
        }
        ask = HeartbeatAsk(member_id=member_id, epoch=epoch, **{**given, **options})
        return self.group.heartbeat(ask, self.topics, self.now)

    def join(self, member_id: str, **options: Any) -> HeartbeatTold:
        given: dict[str, Any] = {"rebalance_s": 10.0, "topics": frozenset({"t"}), "owned": frozenset()}
        return self.beat(member_id, 0, **{**given, **options})

    def code(self, member_id: str, epoch: int, **options: Any) -> int:
        try:
            self.beat(member_id, epoch, **options)
        except RefusalError as refusal:
            return int(refusal.code)
        return 0

    def after(self, seconds: float) -> None:
        self.now += seconds
        while (deadline := self.group.next_deadline()) is not None and deadline <= self.now:
            self.group.tick(self.now)

    def commit_code(self, who: Committer, *, index: int = 0, version: int = 9, txn: bool = False) -> int:
        try:
            self.group.check_commit(who, version, self.now, in_transaction=txn)
            self.group.check_commit_of(who, T, index, in_transaction=txn)
        except RefusalError as refusal:
            return int(refusal.code)
        return 0


def owned(*indexes: int) -> frozenset[TopicPartition]:
    return frozenset((T, index) for index in indexes)


def test_one_member_has_everything() -> None:
    rig = Rig()
    assert rig.join("a") == HeartbeatTold(member_id="a", epoch=1, assignment=owned(0, 1, 2, 3))
    assert rig.beat("a", 1) == HeartbeatTold(member_id="a", epoch=1)
    assert rig.group.state_name == "Stable" and rig.group.subscribed() == {"t"}


def test_partitions_are_given_back_before_they_are_given_on() -> None:
    rig = Rig()
    rig.join("a")
    assert rig.join("b") == HeartbeatTold(member_id="b", epoch=2, assignment=frozenset())
    assert rig.group.state_name == "Reconciling"
    told = rig.beat("a", 1)
    assert (told.epoch, told.assignment) == (1, owned(0, 1))
    assert rig.beat("b", 2).assignment is None
    assert rig.beat("a", 1, owned=owned(0, 1, 2)).epoch == 1
    assert rig.beat("a", 1, owned=owned(0, 1)) == HeartbeatTold(member_id="a", epoch=2)
    assert rig.beat("b", 2) == HeartbeatTold(member_id="b", epoch=2, assignment=owned(2, 3))
    assert rig.group.state_name == "Stable"


def test_a_member_that_does_not_give_back_in_time_is_out() -> None:
    rig = Rig()
    rig.join("a")
    rig.join("b")
    rig.beat("a", 1)
    rig.after(9)
    rig.beat("a", 1, owned=owned(0, 1, 2, 3))
    rig.after(1)
    assert list(rig.group.members) == ["b"] and rig.code("a", 1) == 25
    assert rig.beat("b", 2) == HeartbeatTold(member_id="b", epoch=3, assignment=owned(0, 1, 2, 3))


def test_a_silent_member_is_out_after_its_session() -> None:  # broker: 22.12
    rig = Rig(group_consumer_session_timeout_ms=5000)
    rig.join("a")
    rig.join("b")
    rig.after(4)
    rig.beat("b", 2)
    rig.after(1)
    assert list(rig.group.members) == ["b"] and rig.group.state_name == "Assigning"
    assert rig.beat("b", 2).assignment == owned(0, 1, 2, 3)


def test_epochs_are_checked() -> None:
    rig = Rig()
    assert rig.code("a", 1) == 25
    rig.join("a")
    rig.join("b")
    rig.beat("a", 1)
    rig.beat("a", 1, owned=owned(0, 1))
    assert [rig.code("a", 3), rig.code("a", 1), rig.code("a", 1, owned=owned(0, 1, 2))] == [110, 110, 110]
    assert rig.code("a", 1, owned=owned(0, 1)) == 0, "it may have missed the answer"
    assert rig.join("a").assignment == owned(0, 1), "it may join again"


def test_members_leave() -> None:
    rig = Rig()
    rig.join("a")
    rig.join("b")
    rig.group.leave("b", None, -1)
    with pytest.raises(RefusalError, match="not a member"):
        rig.group.leave("b", None, -1)
    assert rig.beat("a", 1).epoch == 3
    rig.group.leave("a", None, -1)
    assert rig.group.state_name == "Empty" and rig.group.is_empty and rig.group.next_deadline() is None


def test_a_static_member_keeps_its_place_while_it_is_away() -> None:
    rig = Rig(group_consumer_session_timeout_ms=5000)
    rig.join("a", instance_id="i")
    with pytest.raises(RefusalError, match="in use by member a") as refused:
        rig.join("b", instance_id="i")
    assert refused.value.code == 111
    rig.group.leave("a", "i", -2)
    assert rig.join("b", instance_id="i") == HeartbeatTold(member_id="b", epoch=1, assignment=owned(0, 1, 2, 3))
    assert [rig.code("a", 1, instance_id="i"), rig.code("a", 1, instance_id="j"), rig.code("a", 1)] == [82, 25, 25]
    rig.group.leave("b", "i", -2)
    rig.after(5)
    assert rig.group.is_empty
    with pytest.raises(RefusalError) as refused:
        rig.group.leave("b", "i", -2)
    assert refused.value.code == 25


def test_a_topic_that_grows_or_goes_is_shared_again() -> None:
    rig = Rig(1)
    rig.join("a")
    rig.topics["t"] = (T, 3)
    assert rig.beat("a", 1) == HeartbeatTold(member_id="a", epoch=2, assignment=owned(0, 1, 2))
    rig.topics.clear()
    assert rig.beat("a", 2).assignment == frozenset()
    assert rig.beat("a", 2, owned=frozenset()).epoch == 3


def test_a_subscription_may_be_a_pattern() -> None:
    rig = Rig()
    assert rig.join("a", topics=None, regex="t|u").assignment == owned(0, 1, 2, 3)
    assert rig.beat("a", 1, regex="x", owned=owned(0, 1, 2, 3)).assignment == frozenset()
    assert [rig.code("a", 1, regex="("), rig.code("a", 1, regex="x" * 1001)] == [128, 128]


def test_the_assignor_is_the_choice_of_most() -> None:
    rig = Rig()
    rig.join("a")
    assert rig.group.assignor == "uniform"
    rig.join("b", assignor="range")
    assert rig.group.assignor == "range"


def test_commits_are_checked_against_epochs() -> None:  # broker: 22.13
    rig = Rig()
    stranger = Committer("", None, -1)
    assert rig.commit_code(stranger) == 0
    rig.join("a")
    rig.join("b")
    rig.beat("a", 1)
    rig.beat("a", 1, owned=owned(0, 1))
    assert rig.commit_code(Committer("a", None, 2)) == 0
    assert rig.commit_code(Committer("a", None, 1)) == 0, "the partition is its own since epoch 1"
    assert [rig.commit_code(Committer("a", None, 1), index=3), rig.commit_code(Committer("a", None, 3))] == [113, 113]
    assert rig.commit_code(Committer("a", None, 3), txn=True) == 22
    assert rig.commit_code(Committer("a", None, 2), version=8) == 35
    assert [rig.commit_code(stranger), rig.commit_code(Committer("x", None, 2))] == [25, 25]
    assert rig.commit_code(stranger, txn=True) == 0
    rig.group.check_fetch(None, -1)
    rig.group.check_fetch("a", 2)
    for name, epoch, code in (("a", 1, 113), ("x", 2, 25)):
        with pytest.raises(RefusalError) as refused:
            rig.group.check_fetch(name, epoch)
        assert refused.value.code == code


def test_members_and_their_subscriptions_are_limited() -> None:  # broker: 22.17
    rig = Rig(group_consumer_max_size=1)
    rig.join("a")
    with pytest.raises(RefusalError) as refused:
        rig.join("b")
    assert refused.value.code == 81 and list(rig.group.members) == ["a"]
    assert rig.code("a", 1, topics=frozenset({"x" * (MAX_GROUP_BYTES + 1)})) == -1
    assert rig.code("a", 1, topics=frozenset(map(str, range(MAX_GROUP_BYTES // 8)))) == -1


def test_another_coordinator_begins_the_sessions_again() -> None:
    rig = Rig(group_consumer_session_timeout_ms=5000)
    rig.join("a")
    rig.join("b")
    rig.beat("a", 1)
    rig.now += 4
    rig.group.reload(rig.now)
    rig.after(4)
    assert len(rig.group.members) == 2 and rig.beat("b", 2).epoch == 2
    rig.after(1)
    assert list(rig.group.members) == ["b"]
    rig.group.die()
    assert rig.group.is_empty and not rig.group.refuses_deletion_of_offsets
