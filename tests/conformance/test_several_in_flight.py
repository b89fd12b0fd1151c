"""Gaps, and what becomes of the batches behind one that is refused. broker: 3, 4"""

from __future__ import annotations

import time

import pytest
from asker import Asker, Written, produce_request
from conformance_targets import Target
from wire_batches import batch, now_ms, of_size, plain, sequenced, with_wrong_crc

from aiokprod.wire.codes import ErrorCode as E

OUT_OF_ORDER = Written(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
TWO_HOURS_MS = 7_200_000

BAD = {
    "too large": E.MESSAGE_TOO_LARGE,
    "wrong crc": E.CORRUPT_MESSAGE,
    "from the future": E.INVALID_TIMESTAMP,
    "without key": E.INVALID_RECORD,
}


def bad_batch(kind: str, pid: int, first: int) -> bytes:
    match kind:
        case "too large":
            return of_size(5000, pid, 0, first)
        case "wrong crc":
            return with_wrong_crc(keyed(pid, first))
        case "from the future":
            return batch(b"v", keys=[b"k"], pid=pid, epoch=0, first=first, timestamp_ms=now_ms() + TWO_HOURS_MS)
        case _:
            return sequenced(pid, first)


def keyed(pid: int, first: int) -> bytes:
    return batch(b"v", keys=[b"k"], pid=pid, epoch=0, first=first)


def pipelined(broker: Asker, topic: str, batches: list[bytes]) -> list[Written]:
    for each in batches:
        broker.send_produce(topic, each)
    return [broker.next_written() for _ in batches]


@pytest.mark.parametrize("distance", [1, 1000])
def test_a_gap_is_refused_and_changes_nothing(target: Target, distance: int) -> None:  # broker: 3.1
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    for number in range(3):
        assert broker.produce(topic, sequenced(pid, number)) == (0, number)
    assert broker.produce(topic, sequenced(pid, 3 + distance)) == OUT_OF_ORDER
    assert broker.produce(topic, sequenced(pid, 1)) == (0, 1)
    assert broker.produce(topic, sequenced(pid, 3)) == (0, 3)


@pytest.mark.parametrize("kind", BAD)
def test_behind_a_refused_batch_of_a_known_producer_all_are_out_of_order_and_may_be_sent_again(
    target: Target, kind: str
) -> None:  # broker: 4.1, 4.2, 4.3, 4.8
    topic = target.new_topic(max_message_bytes="2000", cleanup_policy="compact", **target.an_hour_ahead)
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, keyed(pid, 0)) == (0, 0)
    got = pipelined(broker, topic, [bad_batch(kind, pid, 1), *(keyed(pid, number) for number in range(2, 6))])
    assert got == [(BAD[kind], -1)] + [OUT_OF_ORDER] * 4
    got = pipelined(broker, topic, [keyed(pid, number) for number in range(1, 6)])
    assert got == [(0, number) for number in range(1, 6)]


@pytest.mark.parametrize("kind", BAD)
def test_behind_a_refused_first_batch_all_are_taken_and_it_is_lost(
    target: Target, kind: str
) -> None:  # broker: 4.1, 4.3
    topic = target.new_topic(max_message_bytes="2000", cleanup_policy="compact", **target.an_hour_ahead)
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    got = pipelined(broker, topic, [bad_batch(kind, pid, 0), *(keyed(pid, number) for number in range(1, 5))])
    assert got == [(BAD[kind], -1), (0, 0), (0, 1), (0, 2), (0, 3)]
    assert broker.produce(topic, keyed(pid, 0)) == OUT_OF_ORDER


def test_what_a_refusal_says(target: Target) -> None:  # broker: 4.1, 4.2, 4.3, 4.10, 4.11
    topic = target.new_topic(max_message_bytes="2000", cleanup_policy="compact", **target.an_hour_ahead)
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    said = {kind: broker.produce_fully(topic, bad_batch(kind, pid, 0)) for kind in BAD}
    log_starts = {kind: answer.log_start_offset for kind, answer in said.items()}
    assert log_starts == {"too large": -1, "wrong crc": -1, "from the future": 0, "without key": 0}
    errors = {kind: [each.batch_index for each in answer.record_errors] for kind, answer in said.items()}
    assert errors == {"too large": [], "wrong crc": [], "from the future": [0], "without key": [0]}
    texts = {kind: answer.error_message is not None for kind, answer in said.items()}
    assert texts == {"too large": False, "wrong crc": False, "from the future": True, "without key": True}
    assert broker.produce(topic, keyed(pid, 0)) == (0, 0)
    gap = broker.produce_fully(topic, keyed(pid, 9))
    assert (gap.record_errors, gap.error_message, gap.log_start_offset) == ([], None, 0)


def test_every_bad_record_of_a_batch_is_named(since_3_9: Target) -> None:  # broker: 4.10
    topic = since_3_9.new_topic(cleanup_policy="compact", **since_3_9.an_hour_ahead)
    broker = since_3_9.connect_to_leader(topic)
    keyless = broker.produce_fully(topic, plain(*[b"v"] * 5, keys=[b"k", None, None, None, None]))
    assert [each.batch_index for each in keyless.record_errors] == [1, 2, 3, 4]
    text = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    assert {each.batch_index_error_message for each in keyless.record_errors} == {text}
    named = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index in (1, 2, 3))
    assert keyless.error_message == (
        "One or more records have been rejected due to 4 record errors in total, "
        f"and only showing the first three errors at most: [{named}]"
    )
    future = now_ms() + TWO_HOURS_MS
    late = broker.produce_fully(topic, plain(b"v", b"v", keys=[b"k", b"k"], timestamp_ms=future))
    assert [each.batch_index for each in late.record_errors] == [0, 1]


@pytest.mark.parametrize("version", [3, 5, 7])
def test_before_version_8_a_refusal_is_only_a_code(target: Target, version: int) -> None:  # broker: 4.10
    topic = target.new_topic(cleanup_policy="compact", **target.an_hour_ahead)
    answer = target.connect_to_leader(topic).produce_fully(topic, plain(b"v"), version=version)
    assert (answer.error_code, answer.base_offset) == (E.INVALID_RECORD, -1)
    assert (answer.record_errors, answer.error_message) == ([], None)


def test_each_partition_of_a_request_has_its_own_answer(target: Target) -> None:  # broker: 4.9
    topics = sorted(target.new_topic(partitions=2) for _ in range(2))
    broker = target.connect()
    batches: dict[tuple[str | bytes, int], bytes | None] = {
        (topics[0], 0): plain(),
        (topics[0], 7): plain(),
        (topics[1], 0): with_wrong_crc(plain()),
        ("conform-no-such-topic", 0): plain(),
    }
    led = {topic: target.state(topic).leader for topic in topics}
    broker.send(produce_request(batches), broker.produce_version)
    answer = broker.produce_answer()
    codes = {(t.name, p.index): p.error_code for t in answer.responses for p in t.partition_responses}
    assert codes == {
        (topics[0], 0): 0 if led[topics[0]] == 1 else E.NOT_LEADER_OR_FOLLOWER,
        (topics[0], 7): E.UNKNOWN_TOPIC_OR_PARTITION,
        (topics[1], 0): E.CORRUPT_MESSAGE if led[topics[1]] == 1 else E.NOT_LEADER_OR_FOLLOWER,
        ("conform-no-such-topic", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_topics_are_answered_in_the_same_order_whatever_was_asked(target: Target) -> None:  # broker: 4.9
    topics = [target.new_topic() for _ in range(4)]
    broker = target.connect()
    orders = []
    for asked in (topics, topics[::-1], sorted(topics)):
        broker.send(produce_request({(topic, 0): plain() for topic in asked}), broker.produce_version)
        orders.append([topic.name for topic in broker.produce_answer().responses])
    assert orders[0] == orders[1] == orders[2]
    assert sorted(orders[0]) == sorted(topics)


def test_one_request_of_a_connection_is_served_at_a_time(three: Target) -> None:  # broker: 4.5, 4.6, 4.12
    stuck, free = three.new_topic(replicas=2, min_insync_replicas="1"), three.new_topic()
    three.move_leader(free, three.state(stuck).leader)
    broker, other = three.connect_to_leader(stuck), three.connect_to_leader(free)
    assert broker.produce(stuck, plain()) == (0, 0)
    with three.frozen(stuck):
        began = time.monotonic()
        broker.send_produce(stuck, plain(), timeout_ms=500)
        broker.send_produce(stuck, plain(), timeout_ms=500)
        broker.send_produce(free, plain())
        assert other.produce(free, plain()) == (0, 0)
        assert time.monotonic() - began < 1.0, "another connection is not held up"
        assert broker.next_written() == (E.REQUEST_TIMED_OUT, 1)
        assert broker.next_written() == (E.REQUEST_TIMED_OUT, 2)
        assert 1.0 <= time.monotonic() - began < 5.0
        assert broker.next_written() == (0, 1)


def test_batches_that_share_a_request_share_its_slowest_partition(three: Target) -> None:  # broker: 4.7
    stuck, free = three.new_topic(replicas=2, min_insync_replicas="1"), three.new_topic()
    three.move_leader(free, three.state(stuck).leader)
    broker = three.connect_to_leader(stuck)
    assert broker.produce(stuck, plain()) == (0, 0)
    with three.frozen(stuck):
        began = time.monotonic()
        both = produce_request({(stuck, 0): plain(), (free, 0): plain()}, timeout_ms=400)
        broker.send(both, broker.produce_version)
        answer = broker.produce_answer()
        assert 0.4 <= time.monotonic() - began < 5.0
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {stuck: E.REQUEST_TIMED_OUT, free: 0}
