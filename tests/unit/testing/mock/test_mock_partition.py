"""Replicas, leadership and the order of judgement of one partition."""

from __future__ import annotations

import pytest
from mock_batches import batch, idempotent

from aiokprod.testing.mock.cluster_state import ClusterState, Node, RefusalError
from aiokprod.testing.mock.partition import Appended, AppendOutcome, Partition, Refused

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def cluster(nodes: int = 3) -> ClusterState:
    state = ClusterState(seed=1)
    for node in range(1, nodes + 1):
        state.nodes[node] = Node(node, "127.0.0.1", 9000 + node)
    return state


def partition(nodes: int = 3, **options: object) -> Partition:
    return cluster(nodes).create_topic("t", options=options).partitions[0]


def put(p: Partition, data: bytes, *, node: int | None = None, acks: int = -1, version: int = 12) -> tuple[int, int]:
    """Append; return code and base offset, as Produce answers."""
    outcome = append(p, data, node=node, acks=acks, version=version)
    return (0, outcome.base_offset) if isinstance(outcome, Appended) else (int(outcome.code), -1)


def append(p: Partition, data: bytes, *, node: int | None = None, acks: int = -1, version: int = 12) -> AppendOutcome:
    return p.append(p.leader if node is None else node, data, acks=acks, version=version, now_ms=NOW_MS)


# ---------------------------------------------------------------------- judgement


def test_refusals_come_before_duplicates() -> None:  # broker: 2.11, 2.12
    state = cluster()
    topic = state.create_topic("t", options={"min.insync.replicas": 2})
    p = topic.partitions[0]
    sent = idempotent(0, b"a" * 50)
    assert put(p, sent) == (0, 0)
    p.set_isr([1])
    assert put(p, sent) == (19, -1)
    p.set_isr([1, 2, 3])
    topic.settings = topic.settings.altered({"max_message_bytes": 80})
    assert put(p, sent) == (10, -1)
    topic.settings = topic.settings.altered({"max_message_bytes": 10_000, "cleanup_policy": "compact"})
    assert put(p, sent) == (87, -1)
    topic.settings = topic.settings.altered({"cleanup_policy": "delete", "message_timestamp_before_max_ms": -1})
    assert put(p, sent) == (32, -1)
    topic.settings = topic.settings.altered({"message_timestamp_before_max_ms": 2**60})
    assert put(p, sent) == (0, 0)


def test_few_replicas_come_before_size_and_size_before_crc() -> None:
    p = partition(min_insync_replicas=2, max_message_bytes=10)
    broken = bytearray(batch(b"x" * 100))
    broken[17] ^= 1
    p.set_isr([1])
    assert put(p, bytes(broken)) == (19, -1)
    assert put(p, bytes(broken), acks=1) == (10, -1)
    assert put(p, bytes(broken), node=2) == (6, -1)


def test_a_batch_rejected_for_its_content_leaves_its_sequence_free() -> None:  # broker: 4.3
    p = partition(max_message_bytes=200)
    assert put(p, idempotent(0)) == (0, 0)
    assert put(p, idempotent(1, b"x" * 500)) == (10, -1)
    assert [put(p, idempotent(n))[0] for n in (2, 3, 4)] == [45, 45, 45]
    assert [put(p, idempotent(n))[0] for n in (1, 2, 3, 4)] == [0, 0, 0, 0]


@pytest.mark.parametrize(("code", "log_start"), [(10, -1), (2, -1), (6, -1), (19, 3), (45, 3)])  # broker: 4.1, 4.2, 4.4
def test_some_refusals_name_the_log_start_and_some_do_not(code: int, log_start: int) -> None:
    p = partition(min_insync_replicas=2, max_message_bytes=200)
    for n in range(4):
        put(p, idempotent(n))
    p.log.delete_before(3)
    broken = bytearray(idempotent(4))
    broken[-1] ^= 1
    if code == 19:
        p.set_isr([1])
    data = {10: idempotent(4, b"x" * 300), 2: bytes(broken), 45: idempotent(9)}.get(code, idempotent(4))
    outcome = append(p, data, node=3 if code == 6 else None)
    assert isinstance(outcome, Refused) and (outcome.code, outcome.log_start_offset) == (code, log_start)


def test_a_duplicate_answers_the_stored_timestamp_also_with_create_time() -> None:  # broker: 2.2
    p = partition()
    first, again = append(p, idempotent(0, timestamp_ms=77)), append(p, idempotent(0, b"other", timestamp_ms=99))
    assert isinstance(first, Appended) and first.timestamp_ms == -1
    assert isinstance(again, Appended) and again.is_duplicate and again.timestamp_ms == 77
    late = partition(message_timestamp_type="LogAppendTime")
    for _ in range(2):
        outcome = append(late, idempotent(0, timestamp_ms=77))
        assert isinstance(outcome, Appended) and outcome.timestamp_ms == NOW_MS


def test_delete_records_forgets_no_producer() -> None:  # broker: 1.8
    p = partition()
    for n in range(3):
        put(p, idempotent(n))
    p.log.delete_before(3)
    assert put(p, idempotent(1)) == (0, 1)  # below the log start
    assert put(p, idempotent(4)) == (45, -1)
    assert put(p, idempotent(3)) == (0, 3)
    assert put(p, idempotent(5, epoch=1)) == (45, -1)


def test_a_plain_batch_is_written_twice() -> None:  # broker: 6.2
    p = partition()
    assert [put(p, batch(b"a")) for _ in range(2)] == [(0, 0), (0, 1)]


# ---------------------------------------------------------------------- replication


def test_frozen_followers_hold_the_high_watermark_and_thaw_moves_it() -> None:  # broker: 6.1
    p = partition()
    woken: list[int] = []
    p.watchers.add(lambda: woken.append(p.high_watermark))
    p.freeze([2, 3], frozen=True)
    assert put(p, idempotent(0)) == (0, 0) and p.high_watermark == 0 and not woken
    assert put(p, idempotent(0)) == (0, 0)  # broker: 6.1b
    assert put(p, idempotent(1)) == (0, 1)  # broker: 6.1c
    p.freeze([2, 3], frozen=False)
    assert p.high_watermark == 2 and woken == [2]


def test_an_isr_below_min_insync_holds_the_high_watermark_for_acks_one_too() -> None:  # broker: 5.7, 6.3
    p = partition(min_insync_replicas=2)
    p.set_isr([1])
    assert put(p, batch(b"a"), acks=1) == (0, 0) and p.high_watermark == 0
    p.set_isr([1, 2])
    assert p.high_watermark == 1


def test_min_insync_is_never_more_than_there_are_replicas() -> None:
    p = partition(nodes=1, min_insync_replicas=2)
    assert put(p, batch(b"a")) == (0, 0) and p.high_watermark == 1


def test_a_follower_that_leads_remembers_all_five() -> None:  # broker: 2.7
    p = partition()
    for n in range(6):
        put(p, idempotent(n))
    p.node_down(1)
    assert p.leader == 2 and p.leader_epoch == 1 and p.isr == [2, 3] and p.offline_replicas == [1]
    assert [put(p, idempotent(n))[0] for n in range(6)] == [45, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("nodes", [1, 3])  # broker: 2.6, RF 1 and RF 3 with leadership given back
def test_a_restarted_leader_remembers_one(nodes: int) -> None:
    p = partition(nodes)
    for n in range(6):
        put(p, idempotent(n, timestamp_ms=NOW_MS))
    p.node_down(1)
    p.node_up(1, now_ms=NOW_MS, expiration_ms=DAY_MS)
    if p.leader != 1:
        p.elect(1)
    assert [put(p, idempotent(n))[0] for n in range(6)] == [45, 45, 45, 45, 45, 0]
    assert put(p, idempotent(6)) == (0, 6)


def test_a_restart_forgets_producers_with_old_records_at_once() -> None:  # broker: 1.13
    p = partition(1)
    put(p, idempotent(0, timestamp_ms=NOW_MS - 25 * 3_600_000))
    p.node_down(1)
    p.node_up(1, now_ms=NOW_MS, expiration_ms=DAY_MS)
    assert put(p, idempotent(0)) == (0, 1)


def test_acks_one_loss_leaves_the_follower_where_it_was() -> None:  # broker: 5.4
    p = partition()
    for n in range(5):
        put(p, idempotent(n))
    p.freeze([2, 3], frozen=True)
    for n in (5, 6, 7):
        assert put(p, idempotent(n), acks=1) == (0, n)
    p.node_down(1, lose_uncopied=True)
    assert p.leader == 2 and p.log.end_offset == 5
    assert [put(p, idempotent(n), acks=1) for n in (8, 7, 4, 5)] == [(45, -1), (45, -1), (0, 4), (0, 5)]
    p.freeze([2, 3], frozen=False)
    p.node_up(1, now_ms=NOW_MS, expiration_ms=DAY_MS)
    assert p.isr == [2, 3, 1] and p.high_watermark == 6


def test_a_follower_that_never_saw_the_producer_takes_a_hole() -> None:  # broker: 5.6
    p = partition()
    p.freeze([2, 3], frozen=True)
    for n in range(3):
        put(p, idempotent(n), acks=1)
    p.elect(2, lose_uncopied=True)
    assert put(p, idempotent(3), acks=1) == (0, 0)


def test_a_new_leader_has_what_waited_unless_it_is_lost() -> None:  # broker: 6.4
    p = partition()
    p.freeze([2, 3], frozen=True)
    put(p, idempotent(0))
    p.elect(2)
    assert put(p, idempotent(0)) == (0, 0) and p.log.end_offset == 1


def test_without_a_live_replica_no_broker_leads_until_the_last_one_is_back() -> None:  # broker: 7.8, 8.1b
    p = partition(1)
    p.node_down(1)
    assert (p.leader, p.leader_epoch, p.isr) == (-1, 1, [])  # broker: 8.1b
    p.node_up(1, now_ms=NOW_MS, expiration_ms=DAY_MS)
    assert (p.leader, p.leader_epoch) == (1, 2)


def test_an_unclean_leader_is_the_whole_isr() -> None:  # broker: 5.5
    p = partition()
    p.set_isr([1, 2])
    p.elect(3, lose_uncopied=True)
    assert p.isr == [3]
    with pytest.raises(ValueError, match="no subset"):
        p.set_isr([9])


def test_killing_without_election_leaves_the_leader_named() -> None:  # broker: 8.1b
    p = partition()
    p.node_down(1, elect=False)
    assert p.leader == 1 and p.isr == [2, 3]
    p.node_down(4)
    p.node_up(4, now_ms=NOW_MS, expiration_ms=DAY_MS)


# ---------------------------------------------------------------------- the cluster's state


def test_partitions_begin_at_node_p_and_topic_ids_are_never_used_again() -> None:
    state = cluster()
    topic = state.create_topic("t", partitions=5)
    assert [p.leader for p in topic.partitions] == [1, 2, 3, 1, 2]
    state.delete_topic(topic)
    again = state.create_topic("t", partitions=2, replication_factor=1)
    assert again.topic_id != topic.topic_id and list(state.topics_by_id) == [again.topic_id]
    state.add_partitions(again, 4)
    assert [list(p.replicas) for p in again.partitions] == [[1], [2], [3], [1]]


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("a/b", {}, 17),
        ("", {}, 17),
        (".", {}, 17),
        ("..", {}, 17),
        ("x" * 250, {}, 17),
        ("ü", {}, 17),
        ("a b", {}, 17),
        ("taken", {}, 36),
        ("t", {"partitions": 0}, 37),
        ("t", {"replication_factor": 4}, 38),
        ("t", {"assignment": {1: [1]}}, 39),
        ("t", {"assignment": {0: [1, 1]}}, 39),
        ("t", {"assignment": {0: [9]}}, 39),
        ("t", {"options": {"max.message.bytes": "x"}}, 40),
    ],
)  # broker: 8.6
def test_topics_that_cannot_be(name: str, arguments: dict[str, object], code: int) -> None:
    state = cluster()
    state.create_topic("taken")
    with pytest.raises(RefusalError) as refused:
        state.create_topic(name, **arguments)  # type: ignore[arg-type]
    assert refused.value.code == code and list(state.topics) == ["taken"]


def test_a_name_of_249_characters_is_fine_and_an_assignment_is_kept() -> None:  # broker: 8.6
    topic = cluster().create_topic("x" * 249, assignment={0: [2, 1], 1: [3]})
    assert [list(p.replicas) for p in topic.partitions] == [[2, 1], [3]]


def test_validating_creates_nothing_and_growing_must_grow() -> None:
    state = cluster()
    state.create_topic("t", validate_only=True)
    assert not state.topics
    with pytest.raises(RefusalError) as refused:
        state.add_partitions(state.create_topic("t", partitions=3), 3)
    assert refused.value.code == 37
    with pytest.raises(KeyError, match="no topic 'x' among"):
        state.topic("x")


def test_a_topic_created_while_a_node_is_down_is_led_by_another() -> None:
    state = cluster()
    state.node_down(1)
    p = state.create_topic("t").partitions[0]
    assert p.leader == 2 and p.isr == [2, 3] and state.controller_id == 2
    state.node_up(1, NOW_MS)
    assert sorted(p.isr) == [1, 2, 3] and len(state.live_nodes) == 3


def test_the_periodic_check_expires_producers_of_every_replica() -> None:  # broker: 1.12
    state = cluster()
    put(state.create_topic("t").partitions[0], idempotent(0, timestamp_ms=NOW_MS - 2 * DAY_MS))
    assert state.expire_producers(NOW_MS) == 3
    assert state.expire_producers(NOW_MS) == 0
