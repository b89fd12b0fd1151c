"""`ClassicGroup`: joins, generations, sessions and static members, with the time as an argument."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pytest

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.groups.classic_group import ClassicGroup
from aiokprod.testing.mock.groups.classic_members import JoinAsk, Joined, Synced
from aiokprod.testing.mock.groups.classic_roster import GroupState
from aiokprod.testing.mock.groups.group import Committer
from aiokprod.testing.mock.groups.settings import MAX_GROUP_BYTES, GroupSettings

RANGE = (("range", b"r"),)


@dataclass
class Rig:
    """A group and its clock."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    now: float = 100.0

    def __post_init__(self) -> None:
        self.group = ClassicGroup("g", self.settings)
        self._ids = count(1)

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        known: bool = False,
        skips: bool = True,
    ) -> list[Joined]:
        """Send a JoinGroup: session 10 s, rebalance 60 s. The answer, once it has come, is the only item."""
        answers: list[Joined] = []
        ask = JoinAsk(
            member_id=member_id,
            instance_id=instance_id,
            client_id="c",
            client_host="/h",
            session_s=10.0,
            rebalance_s=60.0,
            protocol_type=protocol_type,
            protocols=protocols,
            new_member_id="" if member_id else f"m{next(self._ids)}",
            needs_known_id=known,
            skips_assignment=skips,
        )
        self.group.join(ask, self.now, answers.append)
        return answers

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        instance_id: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
        **assignments: bytes,
    ) -> list[Synced]:
        answers: list[Synced] = []
        generation = self.group.generation if generation is None else generation
        self.group.sync(member_id, instance_id, generation, protocol, assignments, self.now, answers.append)
        return answers

    def beat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> int:
        generation = self.group.generation if generation is None else generation
        return int(self.group.heartbeat(member_id, instance_id, generation, self.now))

    def after(self, seconds: float) -> None:
        """Let time pass, with a look at each deadline."""
        end = self.now + seconds
        while (deadline := self.group.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.group.tick(self.now)
        self.now = end

    def commit_code(self, member_id: str, generation: int, instance_id: str | None = None, *, txn: bool = False) -> int:
        try:
            self.group.check_commit(Committer(member_id, instance_id, generation), 9, self.now, in_transaction=txn)
        except RefusalError as refusal:
            return int(refusal.code)
        return 0

    def pair(self) -> Rig:
        """Make a stable group of m1, the leader, and m2."""
        self.join()
        self.sync("m1", m1=b"all")
        second = self.join()
        first = self.join("m1")
        assert (first[0].generation, second[0].generation, self.group.state) == (2, 2, GroupState.COMPLETING)
        follower = self.sync("m2")
        assert follower == []
        leader = self.sync("m1", m1=b"1", m2=b"2")
        assert (leader[0].assignment, follower[0].assignment) == (b"1", b"2")
        return self


def test_one_member_makes_a_generation_and_assigns_to_itself() -> None:
    rig = Rig()
    (joined,) = rig.join()
    assert joined == Joined(
        member_id="m1",
        generation=1,
        protocol_type="consumer",
        protocol="range",
        leader="m1",
        members=(("m1", None, b"r"),),
    )
    assert rig.group.state is GroupState.COMPLETING
    (synced,) = rig.sync("m1", m1=b"a", stranger=b"x")
    assert synced == Synced(protocol_type="consumer", protocol="range", assignment=b"a")
    assert rig.group.state is GroupState.STABLE and rig.beat("m1") == 0


def test_a_second_member_makes_a_rebalance_of_which_heartbeats_tell() -> None:
    rig = Rig()
    rig.join()
    rig.sync("m1", m1=b"all")
    second = rig.join()
    assert second == [] and rig.group.state is GroupState.PREPARING
    assert rig.beat("m1") == 27 and rig.sync("m1")[0].code == 27
    (first,) = rig.join("m1")
    assert [name for name, _, _ in first.members] == ["m1", "m2"]
    assert second[0].members == () and second[0].leader == "m1"


def test_a_member_that_does_not_join_again_is_left_out_after_the_rebalance_timeout() -> None:
    rig = Rig().pair()
    third = rig.join()
    rig.join("m2")
    for _ in range(59):
        rig.after(1)
        assert rig.beat("m1", 2) == 27 and third == []
    rig.after(1)
    assert sorted(rig.group.members) == ["m2", "m3"] and third[0].leader == "m2"
    assert rig.beat("m1", 2) == 25


def test_a_silent_member_is_out_after_its_session() -> None:
    rig = Rig().pair()
    rig.after(9)
    assert rig.beat("m1") == 0
    rig.after(1)
    assert list(rig.group.members) == ["m1"] and rig.group.state is GroupState.PREPARING
    assert rig.beat("m1") == 27 and rig.beat("m2") == 25
    assert rig.join("m1")[0].generation == 3


def test_a_member_that_waits_for_others_does_not_lose_its_session() -> None:
    rig = Rig().pair()
    third = rig.join()
    rig.after(8)
    assert rig.beat("m1") == 27 and rig.beat("m2") == 27
    first = rig.join("m1")
    rig.after(9)
    assert rig.beat("m2", 2) == 27
    rig.after(9)
    assert rig.beat("m2", 2) == 27 and first == [] and third == []
    rig.after(10)
    assert sorted(rig.group.members) == ["m1", "m3"] and first[0].generation == third[0].generation == 3


def test_members_that_do_not_sync_are_left_out() -> None:
    rig = Rig()
    rig.join()
    rig.sync("m1", m1=b"all")
    rig.join()
    rig.join("m1")
    waits = rig.sync("m1", m1=b"1", m2=b"2")
    assert waits[0].assignment == b"1" and rig.group.state is GroupState.STABLE
    for _ in range(11):
        rig.after(5)
        rig.beat("m1")
        rig.beat("m2")
    rig.after(5)
    assert list(rig.group.members) == ["m1"] and rig.group.state is GroupState.PREPARING


def test_a_leader_that_does_not_sync_costs_it_the_place() -> None:
    rig = Rig()
    rig.join()
    rig.sync("m1", m1=b"all")
    second = rig.join()
    rig.join("m1")
    waits = rig.sync("m2")
    rig.after(10)
    assert waits[0].code == 27 and second[0].generation == 2
    assert list(rig.group.members) == ["m2"] and rig.group.leader == "m2"


def test_generation_and_member_are_checked() -> None:
    rig = Rig().pair()
    assert rig.beat("m1", 1) == 22 and rig.beat("stranger") == 25
    assert rig.sync("m1", 1)[0].code == 22 and rig.sync("stranger")[0].code == 25
    assert rig.sync("m1", protocol=("consumer", "other"))[0].code == 23
    assert rig.sync("m1", protocol=("connect", "range"))[0].code == 23
    assert rig.sync("m1", protocol=("consumer", "range"))[0].assignment == b"1"
    assert rig.join("stranger")[0].code == 25


def test_commits_are_checked_against_the_group() -> None:
    rig = Rig()
    assert (
        rig.commit_code("", -1) == 0 and rig.commit_code("stranger", -1) == 0 and rig.commit_code("stranger", 3) == 25
    )
    rig.pair()
    assert [rig.commit_code("m1", 2), rig.commit_code("m1", 1), rig.commit_code("stranger", 2)] == [0, 22, 25]
    assert [rig.commit_code("", -1), rig.commit_code("m1", -1), rig.commit_code("stranger", -1)] == [25, 22, 25]
    assert [rig.commit_code("", -1, txn=True), rig.commit_code("m1", 1, txn=True)] == [0, 22]
    third = rig.join()
    assert rig.commit_code("m1", 2) == 0 and third == []  # a member commits before it joins again
    rig.join("m1")
    rig.join("m2")
    assert [rig.commit_code("m1", 3), rig.commit_code("m1", 3, txn=True)] == [27, 0]


def test_a_commit_keeps_a_session_alive() -> None:
    rig = Rig().pair()
    for _ in range(3):
        rig.after(6)
        assert rig.commit_code("m1", 2) == 0 and rig.beat("m2") == 0
    assert len(rig.group.members) == 2


def test_a_new_member_gets_an_id_first() -> None:
    rig = Rig()
    (told,) = rig.join(known=True)
    assert (told.code, told.member_id, told.generation) == (79, "m1", -1)
    assert rig.group.state is GroupState.EMPTY and not rig.group.is_empty
    (joined,) = rig.join("m1", known=True)
    assert (joined.code, joined.generation) == (0, 1)


def test_an_id_that_is_not_used_is_forgotten_and_delays_no_longer() -> None:
    rig = Rig()
    rig.join()
    rig.sync("m1", m1=b"")
    rig.join(known=True)
    second = rig.join()
    first = rig.join("m1")
    assert first == [] and second == []  # it waits for the id that was given
    rig.after(10)
    assert first[0].generation == 2 and second[0].generation == 2
    assert rig.join("m2")[0].code == 25


def test_the_last_member_leaves_an_empty_group_of_a_later_generation() -> None:
    rig = Rig().pair()
    assert rig.group.leave([("m2", None), ("stranger", None)], rig.now) == [0, 25]
    assert rig.group.state is GroupState.PREPARING
    assert rig.group.leave([("m1", None)], rig.now) == [0]
    assert (rig.group.state, rig.group.generation, rig.group.leader) == (GroupState.EMPTY, 3, None)
    assert rig.group.leave([("m1", None)], rig.now) == [25] and rig.group.next_deadline() is None
    assert rig.join()[0].generation == 4


def test_a_leave_that_is_refused_changes_nothing() -> None:
    rig = Rig().pair()
    assert rig.group.leave([("stranger", None)], rig.now) == [25] and rig.group.state is GroupState.STABLE


def test_protocols_must_be_shared() -> None:
    rig = Rig()
    assert rig.join(protocols=())[0].code == 23 and rig.join(protocol_type="")[0].code == 23
    rig.join(protocols=(("range", b""), ("sticky", b"")))
    assert rig.join(protocols=(("other", b""),))[0].code == 23
    assert rig.join(protocol_type="connect")[0].code == 23
    rig.sync("m3", m3=b"")
    assert len(rig.group.members) == 1
    second = rig.join(protocols=(("sticky", b"s"), ("new", b"")))
    rig.join(next(iter(rig.group.members)), protocols=(("range", b""), ("sticky", b"")))
    assert second[0].protocol == "sticky"


def test_a_static_member_takes_its_place_again_without_a_rebalance() -> None:
    rig = Rig()
    rig.join(instance_id="i")
    rig.sync("m1", instance_id="i", m1=b"mine")
    (again,) = rig.join(instance_id="i")
    assert (again.member_id, again.generation, again.leader, again.skips_assignment) == ("m2", 1, "m2", True)
    assert rig.group.state is GroupState.STABLE
    assert rig.beat("m1", instance_id="i") == 82 and rig.beat("m1") == 25 and rig.beat("m2", instance_id="other") == 25
    assert rig.commit_code("m1", 1, "i") == 82 and rig.commit_code("m2", 1, "i") == 0
    assert rig.sync("m2", instance_id="i")[0].assignment == b"mine"
    (older,) = rig.join(instance_id="i", skips=False)
    assert (older.member_id, older.leader, older.members, older.skips_assignment) == ("m3", "m2", (), False)


def test_a_static_member_that_changes_the_protocol_makes_a_rebalance() -> None:
    rig = Rig()
    rig.join(instance_id="i", protocols=(("range", b""), ("sticky", b"")))
    rig.sync("m1", instance_id="i", m1=b"mine")
    (again,) = rig.join(instance_id="i", protocols=(("sticky", b""),))
    assert (again.generation, again.protocol) == (2, "sticky")


def test_a_twin_of_a_static_member_that_waits_fences_it() -> None:
    rig = Rig().pair()
    first = rig.join(instance_id="i")
    second = rig.join(instance_id="i")
    assert first[0].code == 82 and second == []
    rig.join("m1")
    rig.join("m2")
    assert second[0].generation == 3 and len(rig.group.members) == 3


def test_a_static_member_stays_in_a_rebalance_that_it_misses() -> None:
    rig = Rig()
    rig.join(instance_id="i")
    rig.sync("m1", instance_id="i", m1=b"mine")
    second = rig.join()
    for _ in range(60):
        rig.after(1)
        rig.beat("m1", 1, "i")
    assert second[0].leader == "m2" and sorted(rig.group.members) == ["m1", "m2"]


def test_a_static_member_is_taken_out_by_its_instance() -> None:
    rig = Rig()
    rig.join(instance_id="i")
    assert rig.group.leave([("", "j"), ("m9", "i"), ("", "i")], rig.now) == [25, 82, 0]
    assert rig.group.state is GroupState.EMPTY


def test_the_first_rebalance_waits_for_others() -> None:  # broker: 21.14
    rig = Rig(GroupSettings(group_initial_rebalance_delay_ms=3000))
    first = rig.join()
    rig.after(2)
    second = rig.join()
    rig.after(2)
    assert first == []
    rig.after(2)
    assert first[0].generation == second[0].generation == 1 and len(first[0].members) == 2


def test_a_follower_may_ask_again_and_a_leader_makes_a_rebalance() -> None:
    rig = Rig().pair()
    (again,) = rig.join("m2")
    assert (again.generation, rig.group.state) == (2, GroupState.STABLE)
    waits = rig.join("m1")
    assert waits == [] and rig.group.state is GroupState.PREPARING
    rig.join("m2")
    (again,) = rig.join("m1")
    assert again.generation == 3 and len(again.members) == 2


def test_another_coordinator_knows_the_last_stable_generation() -> None:  # broker: 21.15
    rig = Rig().pair()
    third = rig.join()
    rig.group.reload(rig.now)
    assert third[0].code == 16 and rig.group.state is GroupState.STABLE
    assert rig.beat("m1", 2) == 0 and rig.sync("m2", 2)[0].assignment == b"2"
    empty = Rig()
    empty.join(known=True)
    empty.group.reload(empty.now)
    assert empty.group.is_empty


def test_members_and_their_metadata_are_limited() -> None:  # broker: 21.16
    rig = Rig(GroupSettings(group_max_size=2))
    rig.join(known=True)
    rig.join(known=True)
    (full,) = rig.join(known=True)
    assert (full.code, full.member_id) == (81, "")
    assert rig.join("m1")[0].code == 0
    large = Rig()
    assert large.join(protocols=(("range", bytes(MAX_GROUP_BYTES)),))[0].code == -1
    large.join()
    assert large.sync("m2", m2=bytes(MAX_GROUP_BYTES))[0].code == -1
    assert large.group.state is GroupState.PREPARING and large.join("m2")[0].generation == 2


def test_what_a_member_says_of_itself_counts_beside_its_metadata() -> None:
    rig = Rig()
    assert rig.join(protocols=(("range", b""),) * (MAX_GROUP_BYTES // 8))[0].code == -1
    assert rig.join(instance_id="i" * MAX_GROUP_BYTES)[0].code == -1
    assert rig.join(protocol_type="t" * MAX_GROUP_BYTES)[0].code == -1
    assert rig.group.is_empty


def test_a_dead_group_answers_that_there_is_no_coordinator() -> None:
    rig = Rig()
    rig.group.die()
    assert rig.join()[0].code == 15 and rig.sync("m")[0].code == 15 and rig.beat("m") == 15
    assert rig.commit_code("m", 1) == 15


@pytest.mark.parametrize("options", [{"group.max.sise": 1}, {"group.max.size": -1}, {"group.max.size": True}])
def test_options_are_checked(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"group\.max\.si"):
        GroupSettings.of(options)
