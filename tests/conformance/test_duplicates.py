"""Duplicates that a broker recognises, and its answers to them. broker: 2"""

from __future__ import annotations

import pytest
from asker import Asker, Written
from conformance_targets import Target
from wire_batches import now_ms, of_size, sequenced, with_field

from aiokprod.wire.codes import ErrorCode as E

OUT_OF_ORDER = Written(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
HOUR_MS = 3_600_000


def write_batches(broker: Asker, topic: str, pid: int, count: int, records: int = 1) -> None:
    for number in range(count):
        batch = sequenced(pid, number * records, records)
        assert broker.produce(topic, batch) == (0, number * records)


def test_the_last_five_batches_are_recognised_and_older_ones_are_out_of_order(
    target: Target,
) -> None:  # broker: 2.1, 2.3
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    write_batches(broker, topic, pid, 8, records=2)
    again = [broker.produce(topic, sequenced(pid, 2 * number, 2)) for number in range(8)]
    assert again == [OUT_OF_ORDER] * 3 + [(0, 6), (0, 8), (0, 10), (0, 12), (0, 14)]
    assert broker.produce(topic, sequenced(pid, 16)) == (0, 16)
    assert target.end_offset(topic) == 17


def test_a_duplicate_is_answered_with_the_stored_timestamp_on_create_time_topics(target: Target) -> None:  # broker: 2.2
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    at = now_ms() - 5000
    first = broker.produce_fully(topic, sequenced(pid, 0, timestamp_ms=at))
    again = broker.produce_fully(topic, sequenced(pid, 0, timestamp_ms=at))
    assert (first.log_append_time_ms, first.log_start_offset) == (-1, 0)
    assert (again.log_append_time_ms, again.log_start_offset) == (at, 0)
    assert again.base_offset == first.base_offset == 0


def test_a_duplicate_is_answered_with_the_append_time_on_log_append_time_topics(target: Target) -> None:  # broker: 2.2
    topic = target.new_topic(message_timestamp_type="LogAppendTime")
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    before = now_ms()
    first = broker.produce_fully(topic, sequenced(pid, 0, timestamp_ms=1234))
    again = broker.produce_fully(topic, sequenced(pid, 0, timestamp_ms=1234))
    assert before - 100 <= first.log_append_time_ms <= now_ms() + 100
    assert again.log_append_time_ms == first.log_append_time_ms


def test_the_bytes_of_a_duplicate_are_not_compared(target: Target) -> None:  # broker: 2.4
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    write_batches(broker, topic, pid, 2, records=3)
    other = sequenced(pid, 3, 3, value=b"another value", timestamp_ms=now_ms() - 99)
    assert broker.produce(topic, other) == (0, 3)


@pytest.mark.parametrize(
    ("first", "count"),
    [(3, 2), (4, 2), (0, 6), (3, 6), (5, 3), (0, 1)],
    ids=["head", "tail", "two merged", "last and new ones", "half old half new", "child of an old one"],
)
def test_other_cuts_of_written_batches_are_out_of_order(target: Target, first: int, count: int) -> None:  # broker: 2.5
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    write_batches(broker, topic, pid, 2, records=3)
    assert broker.produce(topic, sequenced(pid, first, count)) == OUT_OF_ORDER
    assert broker.produce(topic, sequenced(pid, 6)) == (0, 6)


def test_a_batch_across_the_end_of_the_sequence_numbers_is_recognised(target: Target) -> None:  # broker: 2.9
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    across = sequenced(pid, 2**31 - 2, 4)
    assert broker.produce(topic, across) == (0, 0)
    assert broker.produce(topic, across) == (0, 0)
    assert broker.produce(topic, sequenced(pid, 2)) == (0, 4)


def test_refusals_of_size_come_before_duplicates(target: Target) -> None:  # broker: 2.12
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    batch = of_size(3000, pid, 0, 0)
    assert broker.produce(topic, batch) == (0, 0)
    target.alter(topic, max_message_bytes="2000")
    assert broker.produce(topic, batch) == (E.MESSAGE_TOO_LARGE, -1)
    assert broker.produce(topic, sequenced(pid, 0)) == (0, 0)  # small enough, and the same sequence numbers


def test_refusals_of_records_come_before_duplicates(target: Target) -> None:  # broker: 2.12
    topic = target.new_topic(**target.an_hour_ahead)
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0)) == (0, 0)
    late = sequenced(pid, 0, timestamp_ms=now_ms() + 2 * HOUR_MS)
    assert broker.produce(topic, late) == (E.INVALID_TIMESTAMP, -1)
    target.alter(topic, cleanup_policy="compact")
    assert broker.produce(topic, sequenced(pid, 0)) == (E.INVALID_RECORD, -1)


def test_a_duplicate_may_have_other_attributes(target: Target) -> None:  # broker: 2.4
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, sequenced(pid, 0)) == (0, 0)
    assert broker.produce(topic, with_field(sequenced(pid, 0), attributes=0x4000)) == (0, 0)
    assert target.end_offset(topic) == 1
