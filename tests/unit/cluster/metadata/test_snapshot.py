"""Merging Metadata answers and leader hints: pure."""

from __future__ import annotations

import gc
import sys

import pytest
from answers import ID_A, ID_B, NO_ID, answer, brokers, topic
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.cluster.metadata.snapshot import (
    LEADER_NOT_AVAILABLE,
    MAX_BROKERS,
    REWINDS_BELIEVED,
    BrokerNode,
    ClusterSnapshot,
    LeaderHint,
    believable_brokers,
    merge_answer,
)
from aiokprod.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponsePartition

EMPTY = ClusterSnapshot()


def take(old: ClusterSnapshot, response: MetadataResponse, *names: str) -> ClusterSnapshot:
    names = names or ("t",)
    return merge_answer(old, response, asked=names, keep=names)


def leaders(snapshot: ClusterSnapshot, name: str = "t") -> list[tuple[int, int]]:
    return [(partition.leader_id, partition.leader_epoch) for partition in snapshot.topics[name].partitions]


def test_an_answer_becomes_a_snapshot() -> None:
    snapshot = take(EMPTY, answer(topic("t", [(1, 4), (2, 7)])))
    assert snapshot.version == 1
    assert snapshot.cluster_id == "ours"
    assert snapshot.controller_id == 1
    assert snapshot.brokers[2] == BrokerNode(id=2, host="host2", port=9002)
    known = snapshot.topics["t"]
    assert (known.name, known.topic_id, known.error_code, known.is_usable, known.is_settled) == (
        "t",
        ID_A,
        0,
        True,
        True,
    )
    assert leaders(snapshot) == [(1, 4), (2, 7)]
    assert [partition.partition for partition in known.partitions] == [0, 1]


def test_a_snapshot_cannot_be_changed() -> None:
    snapshot = take(EMPTY, answer(topic("t")))
    with pytest.raises(TypeError):
        snapshot.topics["x"] = snapshot.topics["t"]  # type: ignore[index]
    with pytest.raises(TypeError):
        del snapshot.brokers[1]  # type: ignore[attr-defined]


def test_what_did_not_change_is_the_same_object() -> None:
    first = take(EMPTY, answer(topic("t", [(1, 0), (2, 0)]), topic("u")), "t", "u")
    second = take(first, answer(topic("t", [(1, 0), (3, 1)]), topic("u")), "t", "u")
    assert second.topics["u"] is first.topics["u"]
    assert second.topics["t"] is not first.topics["t"]
    assert second.topics["t"].partitions[0] is first.topics["t"].partitions[0]
    assert second.brokers[1] is first.brokers[1]


def test_a_partial_answer_leaves_other_topics_alone() -> None:
    first = take(EMPTY, answer(topic("t"), topic("u")), "t", "u")
    second = merge_answer(first, answer(topic("v")), asked=["v"], keep=["t", "u", "v"])
    assert set(second.topics) == {"t", "u", "v"}
    assert second.topics["t"] is first.topics["t"]


def test_topics_out_of_use_leave_and_come_back_harmlessly() -> None:  # faults: I21
    first = take(EMPTY, answer(topic("t", [(1, 5)])))
    gone = merge_answer(first, answer(), asked=[], keep=[])
    assert gone.topics == {}
    again = take(gone, answer(topic("t", [(1, 5)])))
    assert again.topics["t"] == first.topics["t"]


def test_topics_that_were_not_asked_for_are_ignored() -> None:  # faults: H11
    assert set(take(EMPTY, answer(topic("t"), topic("stranger"))).topics) == {"t"}


def test_of_a_topic_that_comes_twice_the_first_counts() -> None:  # faults: H10
    assert leaders(take(EMPTY, answer(topic("t", [(1, 1)]), topic("t", [(2, 2)])))) == [(1, 1)]


def test_a_topic_without_a_name_is_ignored() -> None:
    nameless = topic("t")
    nameless.name = None
    assert take(EMPTY, answer(nameless)).topics == {}


# ---------------------------------------------------------------------- epochs and incarnations


def test_an_older_leader_epoch_never_replaces_a_newer_one() -> None:  # faults: T10
    first = take(EMPTY, answer(topic("t", [(1, 5), (1, 5)])))
    second = take(first, answer(topic("t", [(2, 4), (2, 6)])))
    assert leaders(second) == [(1, 5), (2, 6)]


def test_the_same_epoch_may_tell_another_leader() -> None:
    first = take(EMPTY, answer(topic("t", [(9, 5)])))
    assert leaders(first) == [(-1, 5)]
    assert leaders(take(first, answer(topic("t", [(9, 5)]), brokers=brokers(1, 9)))) == [(9, 5)]


def test_a_new_topic_id_replaces_the_topic_whole() -> None:  # faults: T6
    first = take(EMPTY, answer(topic("t", [(1, 50), (1, 50), (1, 50)])))
    second = take(first, answer(topic("t", [(2, 0)], topic_id=ID_B)))
    assert leaders(second) == [(2, 0)]
    assert second.topics["t"].topic_id == ID_B


def test_a_replaced_topic_id_never_comes_back() -> None:
    first = take(EMPTY, answer(topic("t", [(1, 50)])))
    second = take(first, answer(topic("t", [(2, 0)], topic_id=ID_B)))
    lagging = take(second, answer(topic("t", [(1, 51)], topic_id=ID_A)))
    assert lagging.topics["t"] is second.topics["t"]


def test_former_topic_ids_are_bounded() -> None:
    snapshot = EMPTY
    for number in range(50):
        snapshot = take(snapshot, answer(topic("t", topic_id=bytes([number + 1]) * 16)))
    assert len(snapshot.topics["t"].former_ids) == 8


def test_partitions_of_one_incarnation_never_vanish() -> None:  # faults: T8
    first = take(EMPTY, answer(topic("t", [(1, 0)] * 4)))
    second = take(first, answer(topic("t", [(2, 1)] * 3)))
    assert leaders(second) == [(2, 1), (2, 1), (2, 1), (1, 0)]
    assert leaders(take(second, answer(topic("t", [(3, 2)] * 5)))) == [(3, 2)] * 5


def test_without_topic_ids_a_rewind_is_believed_when_it_is_told_often_enough() -> None:
    snapshot = take(EMPTY, answer(topic("t", [(1, 9), (1, 9)], topic_id=NO_ID)))
    recreated = answer(topic("t", [(2, 0)], topic_id=NO_ID))
    for _ in range(REWINDS_BELIEVED - 1):
        snapshot = take(snapshot, recreated)
        assert leaders(snapshot) == [(1, 9), (1, 9)]
    assert leaders(take(snapshot, recreated)) == [(2, 0)]


def test_without_topic_ids_one_good_answer_ends_a_row_of_rewinds() -> None:
    good, lagging = (answer(topic("t", [(1, epoch)], topic_id=NO_ID)) for epoch in (9, 3))
    snapshot = take(EMPTY, good)
    for _ in range(3 * REWINDS_BELIEVED):
        for response in (lagging,) * (REWINDS_BELIEVED - 1) + (good,):
            snapshot = take(snapshot, response)
            assert leaders(snapshot) == [(1, 9)]


def test_a_topic_id_is_learned_from_the_first_broker_that_has_one_and_kept() -> None:
    snapshot = take(EMPTY, answer(topic("t", [(1, 1)], topic_id=NO_ID)))
    snapshot = take(snapshot, answer(topic("t", [(1, 1)], topic_id=ID_A)))
    assert snapshot.topics["t"].topic_id == ID_A
    assert take(snapshot, answer(topic("t", [(1, 1)], topic_id=NO_ID))).topics["t"].topic_id == ID_A


@pytest.mark.parametrize("again", [[(2, 0)], [(2, 0), (2, 0)], [(2, 0), (1, 12)]], ids=str)
def test_a_topic_made_again_while_brokers_begin_to_tell_ids_is_believed_as_without_ids(
    again: list[tuple[int, int]],
) -> None:
    """With fewer partitions, or lower leader epochs, and an id from the first answer on: 2.7, then 2.8. (faults: T6)"""
    snapshot = take(EMPTY, answer(topic("t", [(1, 9), (1, 9)], topic_id=NO_ID)))
    recreated = answer(topic("t", again, topic_id=ID_B))
    for _ in range(REWINDS_BELIEVED - 1):
        snapshot = take(snapshot, recreated)
        assert len(leaders(snapshot)) == 2 and snapshot.topics["t"].incarnation == 0
    snapshot = take(snapshot, recreated)
    assert leaders(snapshot) == again
    assert (snapshot.topics["t"].topic_id, snapshot.topics["t"].incarnation) == (ID_B, 1)
    assert take(snapshot, recreated).topics["t"] is snapshot.topics["t"]


def test_a_first_id_from_a_broker_that_lags_behind_takes_nothing_away() -> None:  # faults: T8, T10
    snapshot = take(EMPTY, answer(topic("t", [(1, 9), (1, 9)], topic_id=NO_ID)))
    good, lagging = answer(topic("t", [(1, 9), (1, 9)])), answer(topic("t", [(1, 3)]))
    for _ in range(REWINDS_BELIEVED - 1):
        snapshot = take(snapshot, lagging)
    snapshot = take(snapshot, good)
    assert (snapshot.topics["t"].topic_id, snapshot.topics["t"].incarnation) == (ID_A, 0)
    for _ in range(3 * REWINDS_BELIEVED):  # from then on the id says which topic it is
        snapshot = take(snapshot, lagging)
    assert leaders(snapshot) == [(1, 9), (1, 9)]


def test_a_first_id_with_another_leader_of_the_same_epoch_is_that_of_another_topic() -> None:  # faults: T6
    snapshot = take(EMPTY, answer(topic("t", [(1, 3), (1, 3)], topic_id=NO_ID)))
    snapshot = take(snapshot, answer(topic("t", [(1, 3), (2, 3)], topic_id=ID_B)))
    assert leaders(snapshot) == [(1, 3), (2, 3)]
    assert (snapshot.topics["t"].topic_id, snapshot.topics["t"].incarnation) == (ID_B, 1)
    older = answer(topic("t", [(1, 3), (1, 3)], topic_id=NO_ID))  # a broker that lags behind
    assert take(snapshot, older).topics["t"].incarnation == 1


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize("code", [3, 17, 29, 999])
def test_an_error_of_a_topic_is_kept_with_it(code: int) -> None:
    known = take(EMPTY, answer(topic("t", [], error_code=code))).topics["t"]
    assert (known.error_code, known.is_usable, known.is_settled) == (code, False, code in (17, 29))


def test_an_error_leaves_partitions_and_id_as_they_were_known() -> None:  # faults: T13, I21
    snapshot = take(EMPTY, answer(topic("t", [(1, 5), (2, 6)])))
    for _ in range(1000):
        broken = take(snapshot, answer(topic("t", [], error_code=3)))
        assert not broken.topics["t"].is_usable
        assert leaders(broken) == [(1, 5), (2, 6)]
        snapshot = take(broken, answer(topic("t", [(1, 5), (2, 6)])))
        assert snapshot.topics["t"].is_usable
    assert snapshot.topics["t"].topic_id == ID_A
    assert snapshot.version == 2001


def test_a_topic_without_partitions_is_not_usable_and_asked_for_again() -> None:  # faults: T9
    snapshot = take(EMPTY, answer(topic("t", [])))
    known = snapshot.topics["t"]
    assert (known.error_code, known.is_usable, known.is_settled) == (LEADER_NOT_AVAILABLE, False, False)
    assert take(snapshot, answer(topic("t", [(1, 0)]))).topics["t"].is_usable


def test_unsettled_topics_are_those_another_answer_may_mend() -> None:  # faults: T11
    names = ("fine", "leaderless", "unknown", "refused", "missing")
    snapshot = take(
        EMPTY,
        answer(
            topic("fine"),
            topic("leaderless", [(1, 0), (-1, 1)]),
            topic("unknown", [], error_code=3),
            topic("refused", [], error_code=29),
        ),
        *names,
    )
    assert snapshot.unsettled(names) == ["leaderless", "unknown", "missing"]
    assert snapshot.topics["leaderless"].is_usable


# ---------------------------------------------------------------------- brokers


def test_a_leader_that_is_not_in_the_broker_list_is_no_leader() -> None:  # faults: T12
    snapshot = take(EMPTY, answer(topic("t", [(7, 3)])))
    assert leaders(snapshot) == [(-1, 3)]
    assert not snapshot.topics["t"].is_settled


def test_partitions_of_brokers_that_left_have_no_leader() -> None:  # faults: B13
    first = take(EMPTY, answer(topic("t", [(1, 3), (2, 3)])))
    second = merge_answer(first, answer(brokers=brokers(2)), asked=[], keep=["t"])
    assert leaders(second) == [(-1, 3), (2, 3)]
    assert set(second.brokers) == {2}


def test_two_brokers_may_share_an_address() -> None:  # faults: B15
    shared = [MetadataResponseBroker(node_id=id, host="h", port=9) for id in (1, 2)]
    snapshot = take(EMPTY, answer(topic("t", [(1, 0), (2, 0)]), brokers=shared))
    assert leaders(snapshot) == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    "broken",
    [
        MetadataResponseBroker(node_id=5, host="h", port=-1),
        MetadataResponseBroker(node_id=5, host="h", port=0),
        MetadataResponseBroker(node_id=5, host="h", port=70_000),
        MetadataResponseBroker(node_id=5, host="", port=9092),
        MetadataResponseBroker(node_id=5, host=" ", port=9092),
        MetadataResponseBroker(node_id=5, host="h\0", port=9092),
        MetadataResponseBroker(node_id=5, host="h\nERROR forged\x1b[2J", port=9092),
        MetadataResponseBroker(node_id=5, host="h" * 5_000_000, port=9092),
        MetadataResponseBroker(node_id=-5, host="h", port=9092),
    ],
)
def test_brokers_that_cannot_be_are_dropped(broken: MetadataResponseBroker) -> None:  # faults: H16
    assert set(take(EMPTY, answer(brokers=[*brokers(1), broken])).brokers) == {1}


def test_of_two_brokers_with_one_id_the_first_counts() -> None:
    given_twice = [*brokers(1), MetadataResponseBroker(node_id=1, host="elsewhere", port=1)]
    assert take(EMPTY, answer(brokers=given_twice)).brokers[1].host == "host1"


def test_a_list_of_a_million_brokers_is_cut() -> None:  # faults: H16
    endless = (MetadataResponseBroker(node_id=id, host="h", port=9) for id in range(1_000_000))
    assert len(believable_brokers(endless)) == MAX_BROKERS


@pytest.mark.parametrize("index", [-1, -(2**31), 2**31 - 1, 1_000_000])
def test_partitions_that_cannot_be_are_dropped(index: int) -> None:  # faults: H16
    assert leaders(take(EMPTY, answer(topic("t", {0: (1, 0), index: (2, 0), 1: (3, 0)})))) == [(1, 0), (3, 0)]


def test_of_a_partition_that_comes_twice_the_first_counts() -> None:  # faults: H16
    doubled = topic("t", [(1, 1), (2, 1)])
    doubled.partitions.append(MetadataResponsePartition(partition_index=0, leader_id=3, leader_epoch=9))
    assert leaders(take(EMPTY, answer(doubled))) == [(1, 1), (2, 1)]


def test_a_list_with_a_gap_gives_no_count_of_partitions() -> None:
    gapped = answer(topic("t", {0: (1, 1), 2: (1, 1)}))
    assert not take(EMPTY, gapped).topics["t"].is_usable
    known = take(EMPTY, answer(topic("t", [(2, 0)] * 2)))
    assert leaders(take(known, gapped)) == [(1, 1), (2, 0)]
    assert leaders(take(known, answer(topic("t", {0: (1, 1), 5000: (1, 1)})))) == [(1, 1), (2, 0)]


def test_twenty_thousand_partitions_cost_ten_times_as_much_as_two_thousand() -> None:  # faults: T19
    def calls(count: int) -> int:
        snapshot = take(EMPTY, answer(topic("t", [(1, 1)] * count)))
        moved = answer(topic("t", [(2, 2)] * count))
        made = 0

        def counted(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        gc.disable()  # what other tests left would be finalized here, by calls that are counted
        sys.setprofile(counted)
        try:
            take(snapshot, moved)
        finally:
            sys.setprofile(None)
            gc.enable()
        return made

    assert 2_000 < calls(2_000) < calls(20_000) < 10.1 * calls(2_000)


# ---------------------------------------------------------------------- leader hints (KIP-951)

KNOWN = take(EMPTY, answer(topic("t", [(1, 5), (2, 5)])))


def hint(
    snapshot: ClusterSnapshot, name: str, partition: int, leader: int, epoch: int, endpoint: BrokerNode | None
) -> ClusterSnapshot:
    return snapshot.with_hints([LeaderHint(name, partition, leader, epoch, endpoint)])


def test_all_hints_of_an_answer_are_one_change() -> None:
    address = BrokerNode(id=9, host="new", port=1234)
    hints = [LeaderHint("t", 0, 2, 6, None), LeaderHint("t", 1, 9, 6, address), LeaderHint("t", 0, 1, 7, None)]
    hinted = KNOWN.with_hints([*hints, LeaderHint("t", 1, 1, 5, None), LeaderHint("u", 0, 1, 9, None)])
    assert hinted.version == KNOWN.version + 1
    assert leaders(hinted) == [(1, 7), (9, 6)]
    assert hinted.brokers[9] == address


def test_a_hint_at_a_broker_that_is_known_leaves_the_brokers_as_they_are() -> None:
    assert hint(KNOWN, "t", 0, 2, 6, KNOWN.brokers[2]).brokers is KNOWN.brokers
    assert hint(KNOWN, "t", 0, 2, 6, None).brokers is KNOWN.brokers
    assert hint(KNOWN, "t", 0, -1, 6, None).brokers is KNOWN.brokers


def test_a_newer_leader_is_taken_from_a_hint() -> None:  # faults: P7
    hinted = hint(KNOWN, "t", 0, 2, 6, None)
    assert hinted.version == KNOWN.version + 1
    assert leaders(hinted) == [(2, 6), (2, 5)]
    assert hinted.topics["t"].partitions[1] is KNOWN.topics["t"].partitions[1]
    assert leaders(KNOWN) == [(1, 5), (2, 5)]


@pytest.mark.parametrize(
    ("name", "partition", "leader", "epoch"),
    [
        ("t", 0, 2, 5),  # no newer epoch
        ("t", 0, 2, 4),
        ("t", 0, -1, -1),
        ("t", 0, -1, 5),
        ("t", 0, 9, 6),  # the address of broker 9 is not known
        ("t", 2, 2, 6),
        ("t", -1, 2, 6),
        ("unknown", 0, 2, 6),
    ],
)
def test_a_hint_that_says_nothing_new_changes_nothing(name: str, partition: int, leader: int, epoch: int) -> None:
    assert hint(KNOWN, name, partition, leader, epoch, None) is KNOWN


def test_a_hint_may_bring_the_address_of_its_broker() -> None:
    hinted = hint(KNOWN, "t", 0, 9, 6, BrokerNode(id=9, host="new", port=1234))
    assert leaders(hinted)[0] == (9, 6)
    assert hinted.brokers[9].host == "new"
    assert set(KNOWN.brokers) == {1, 2, 3}


@pytest.mark.parametrize(
    "endpoint",
    [
        BrokerNode(id=8, host="h", port=1),
        BrokerNode(id=9, host="", port=1),
        BrokerNode(id=9, host="h", port=0),
        BrokerNode(id=9, host="h\0", port=1),
        BrokerNode(id=9, host="h" * 5_000_000, port=1),
    ],
    ids=["another", "empty", "port", "nul", "long"],
)
def test_an_address_that_cannot_be_is_no_address(endpoint: BrokerNode) -> None:
    assert hint(KNOWN, "t", 0, 9, 6, endpoint) is KNOWN


def test_a_rack_of_megabytes_is_not_kept() -> None:  # faults: H16
    racks = [MetadataResponseBroker(node_id=1, host="h", port=9, rack="r" * 1_000_000)]
    snapshot = take(EMPTY, answer(topic("t", [(1, 0)]), brokers=racks))
    assert snapshot.brokers[1].rack is None
    hinted = hint(snapshot, "t", 0, 9, 6, BrokerNode(id=9, host="new", port=1, rack="r" * 1_000_000))
    assert hinted.brokers[9].rack is None
    kept = hint(snapshot, "t", 0, 9, 6, BrokerNode(id=9, host="new", port=1, rack="eu-west-1a"))
    assert kept.brokers[9].rack == "eu-west-1a"


def test_a_hint_may_say_that_no_broker_leads() -> None:  # broker: 7.8
    hinted = hint(KNOWN, "t", 0, -1, 6, None)
    assert leaders(hinted)[0] == (-1, 6)
    assert hinted.unsettled(["t"]) == ["t"]


def test_a_hint_names_the_leader_of_an_epoch_whose_leader_was_not_known() -> None:
    leaderless = take(EMPTY, answer(topic("t", [(9, 5)])))
    assert leaders(hint(leaderless, "t", 0, 9, 5, BrokerNode(id=9, host="h", port=1))) == [(9, 5)]


def test_metadata_of_a_lagging_broker_does_not_undo_a_hint() -> None:
    hinted = hint(KNOWN, "t", 0, 2, 6, None)
    assert leaders(take(hinted, answer(topic("t", [(1, 5), (2, 5)])))) == [(2, 6), (2, 5)]


# ---------------------------------------------------------------------- whatever comes

INT32 = st.integers(-(2**31), 2**31 - 1)
NEAR = st.one_of(st.integers(-2, 6), INT32)
PARTITIONS = st.lists(st.tuples(NEAR, NEAR, NEAR), max_size=8)
TOPICS = st.lists(
    st.tuples(st.sampled_from(["t", "u"]), st.sampled_from([ID_A, ID_B, NO_ID]), st.integers(-1, 5), PARTITIONS),
    max_size=3,
)
BROKERS = st.lists(st.tuples(NEAR, st.sampled_from(["", "h"]), NEAR), max_size=4)


@given(st.lists(st.tuples(BROKERS, TOPICS), max_size=6))
def test_whatever_comes_the_snapshot_stays_sound(history: list[tuple[list, list]]) -> None:
    snapshot = EMPTY
    for broker_list, topic_list in history:
        response = answer(brokers=[MetadataResponseBroker(node_id=i, host=h, port=p) for i, h, p in broker_list])
        for name, topic_id, code, partitions in topic_list:
            entry = topic(name, [], topic_id=topic_id, error_code=code)
            entry.partitions = [
                MetadataResponsePartition(partition_index=i, leader_id=leader, leader_epoch=epoch)
                for i, leader, epoch in partitions
            ]
            response.topics.append(entry)
        before, snapshot = snapshot, take(snapshot, response, "t", "u")
        for name, known in snapshot.topics.items():
            assert [partition.partition for partition in known.partitions] == list(range(len(known.partitions)))
            assert known.partitions or known.error_code
            for partition in known.partitions:
                assert partition.leader_id == -1 or partition.leader_id in snapshot.brokers
            old = before.topics.get(name)
            if old is not None and old.topic_id == known.topic_id != NO_ID:
                for was, now in zip(old.partitions, known.partitions, strict=False):
                    assert now.leader_epoch >= was.leader_epoch
