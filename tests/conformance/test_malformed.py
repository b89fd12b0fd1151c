"""Record validation, size limits, and bytes that are no good request. broker: 13"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import pytest
from asker import Asker, produce_request
from conformance_targets import Target
from wire_batches import around, batch, now_ms, of_size, plain, sequenced, with_field, with_wrong_crc

from aiokprod.records.batch import encode_records
from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.produce import ProduceRequest

HOUR_MS = 3_600_000
TAKEN = 0
ZSTD_FROM = 7


class Refusal(NamedTuple):
    code: int
    log_start: int
    message: str | None = None


INVALID = Refusal(E.INVALID_RECORD, 0)
INVALID_EARLY = Refusal(E.INVALID_RECORD, -1)


def too_small(length: int) -> Refusal:
    return Refusal(E.CORRUPT_MESSAGE, -1, f"Record size {length} is less than the minimum record overhead (14)")


def good() -> bytes:
    return plain(b"value", b"another")


def record_section(*values: bytes) -> bytes:
    return bytes(encode_records(list(values), None, None, [0] * len(values)))


def with_record_length(length: int) -> bytes:
    """Return a batch of one record whose own length field is wrong."""
    section = bytearray(record_section(b"v"))
    section[0] = (length << 1) & 0x7F
    return around(bytes(section), 1)


def with_header_count(count_byte: int) -> bytes:
    section = bytearray(record_section(b"v"))
    section[-1] = count_byte
    return around(bytes(section), 1)


MALFORMED = {
    "wrong crc": (with_wrong_crc(good()), Refusal(E.CORRUPT_MESSAGE, -1)),
    "magic 3": (with_field(good(), magic=3), Refusal(E.CORRUPT_MESSAGE, -1, "Invalid magic found in record: 3")),
    "magic -1": (with_field(good(), magic=-1), Refusal(E.CORRUPT_MESSAGE, -1, "Invalid magic found in record: -1")),
    "length too short": (with_field(good(), length=20), Refusal(E.CORRUPT_MESSAGE, -1)),
    "length 40": (with_field(good(), length=40), Refusal(E.CORRUPT_MESSAGE, -1)),
    "length 10": (with_field(good(), length=10), too_small(10)),
    "length 0": (with_field(good(), length=0), too_small(0)),
    "length -1": (with_field(good(), length=-1), too_small(-1)),
    "length 2^31-1": (with_field(good(), length=2**31 - 1), Refusal(E.UNKNOWN_SERVER_ERROR, -1)),
    "length too long": (with_field(good(), length=len(good()) - 12 + 1), INVALID_EARLY),
    "magic 0": (with_field(good(), magic=0), INVALID_EARLY),
    "magic 1": (with_field(good(), magic=1), INVALID_EARLY),
    "truncated": (good()[:-1], INVALID_EARLY),
    "two batches": (good() + good(), INVALID_EARLY),
    "empty": (b"", INVALID_EARLY),
    "no records": (around(b"", 0), INVALID),
    "no records, idempotent": (around(b"", 0, pid=5, epoch=0, first=0), INVALID),
    "count too high": (with_field(good(), count=3), INVALID),
    "count too low": (with_field(good(), count=1), INVALID),
    "last offset delta wrong": (with_field(good(), last_offset_delta=7), INVALID),
    "both wrong": (with_field(good(), count=3, last_offset_delta=2), INVALID),
    "base offset 1": (with_field(good(), base_offset=1), INVALID),
    "control bit": (with_field(good(), attributes=0x20), INVALID),
    "record longer than the batch": (with_record_length(60), INVALID),
    "negative header count": (with_header_count(0x01), INVALID),
    "codec 5": (with_field(good(), attributes=5), Refusal(E.UNKNOWN_SERVER_ERROR, 0)),
    "garbage as gzip": (around(b"garbage garbage", 1, attributes=1), Refusal(E.UNKNOWN_SERVER_ERROR, 0)),
    "garbage as zstd": (around(b"garbage garbage", 1, attributes=4), Refusal(E.UNKNOWN_SERVER_ERROR, 0)),
}

TOLERATED = {
    "five bytes behind": good() + b"12345",
    "leader epoch 77": with_field(good(), partition_leader_epoch=77),
    "unknown attribute": with_field(good(), attributes=0x4000),
    "wrong max timestamp": with_field(good(), max_timestamp=5),
    "offset deltas from 1": around(record_section(b"a", b"b")[len(record_section(b"a")) :], 1),
    "a null value": plain(None),
    "an empty value": plain(b""),
}


def refusal_of(broker: Asker, topic: str, data: bytes) -> Refusal:
    answer = broker.produce_fully(topic, data)
    assert answer.base_offset == -1
    assert answer.record_errors == []
    return Refusal(answer.error_code, answer.log_start_offset, answer.error_message)


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_batch_is_refused_and_leaves_no_trace(
    target: Target, kind: str
) -> None:  # broker: 13.3, 13.4, 13.5
    data, expected = MALFORMED[kind]
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert refusal_of(broker, topic, data) == expected
    assert broker.produce(topic, good()) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "spreads"),
    [
        ("magic 3", True),
        ("length 0", True),
        ("length 2^31-1", True),
        ("length too short", False),
        ("magic 1", False),
        ("wrong crc", False),
        ("empty", False),
    ],
)
def test_a_first_look_that_fails_fails_the_whole_request(
    target: Target, kind: str, spreads: bool
) -> None:  # broker: 13.3b
    data, expected = MALFORMED[kind]
    fine, bad = target.new_topic(), target.new_topic()
    leader = target.state(fine).leader
    target.move_leader(bad, leader)
    broker = target.connect(leader)
    broker.send(produce_request({(fine, 0): good(), (bad, 0): data}), broker.produce_version)
    answers = {topic.name: topic.partition_responses[0] for topic in broker.produce_answer().responses}
    assert answers[bad].error_code == expected.code
    assert answers[fine].error_code == (expected.code if spreads else 0)
    assert answers[fine].error_message == (expected.message if spreads else None)
    assert target.end_offset(fine) == (0 if spreads else 2)


@pytest.mark.parametrize("kind", TOLERATED)
def test_what_looks_odd_is_taken(target: Target, kind: str) -> None:  # broker: 13.5c
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert broker.produce(topic, TOLERATED[kind]) == (0, 0)


def test_the_timestamp_type_is_the_topics(since_3_9: Target) -> None:  # broker: 13.5c
    topic = since_3_9.new_topic()
    assert since_3_9.connect_to_leader(topic).produce(topic, with_field(good(), attributes=0x08)) == (0, 0)


def test_null_records_are_never_answered(since_3_9: Target) -> None:  # broker: 13.5b
    topic = since_3_9.new_topic()
    broker = since_3_9.connect_to_leader(topic)
    broker.send_produce(topic, None)
    broker.send(MetadataRequest(topics=[]), 9)
    assert broker.says_nothing_for(0.3)


def test_the_size_limit_counts_the_whole_batch(target: Target) -> None:  # broker: 13.1
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    assert refusal_of(broker, topic, of_size(1_048_589)) == (E.MESSAGE_TOO_LARGE, -1, None)
    assert broker.produce(topic, of_size(1_048_588)) == (0, 0)


@pytest.mark.parametrize("away_ms", [-31 * 366 * 24 * HOUR_MS, HOUR_MS - 10_000])
def test_timestamps_within_bounds_are_taken(target: Target, away_ms: int) -> None:  # broker: 13.7
    topic = target.new_topic()
    assert target.connect_to_leader(topic).produce(topic, plain(timestamp_ms=now_ms() + away_ms)) == (0, 0)


@pytest.mark.parametrize("timestamp_ms", [-1, 0])
def test_timestamps_of_no_meaning_are_taken(target: Target, timestamp_ms: int) -> None:  # broker: 13.7
    topic = target.new_topic()
    assert target.connect_to_leader(topic).produce(topic, plain(timestamp_ms=timestamp_ms)) == (0, 0)


def test_a_timestamp_of_minus_two(target: Target) -> None:  # broker: 13.7
    topic = target.new_topic()
    assert target.connect_to_leader(topic).produce(topic, plain(timestamp_ms=-2)) == (0, 0)


@pytest.mark.parametrize("ahead_ms", [HOUR_MS + 10_000, 2**62])
def test_timestamps_from_the_future_are_refused(target: Target, ahead_ms: int) -> None:  # broker: 13.7
    topic = target.new_topic(**target.an_hour_ahead)
    at = now_ms() + ahead_ms
    answer = target.connect_to_leader(topic).produce_fully(topic, plain(b"a", b"b", timestamp_ms=at))
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (E.INVALID_TIMESTAMP, -1, 0)
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    assert [error.batch_index for error in answer.record_errors] == [0, 1]
    text = answer.record_errors[1].batch_index_error_message or ""
    assert text.startswith(f"Timestamp {at} of message with offset 1 is out of range. The timestamp should be within [")


def test_the_future_is_limited_by_default_since_4_0(target: Target) -> None:  # broker: 13.7
    topic = target.new_topic()
    expected = target.by_version({(2, 8): 0, (4, 0): E.INVALID_TIMESTAMP})
    assert target.connect_to_leader(topic).produce(topic, plain(timestamp_ms=now_ms() + 2 * HOUR_MS)).code == expected


def test_the_bounds_of_timestamps_are_the_topics(since_3_9: Target) -> None:  # broker: 13.7
    topic = since_3_9.new_topic(message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="120000")
    broker = since_3_9.connect_to_leader(topic)
    codes = [
        broker.produce(topic, plain(timestamp_ms=now_ms() + away)).code for away in (-90_000, -30_000, 90_000, 150_000)
    ]
    assert codes == [E.INVALID_TIMESTAMP, 0, 0, E.INVALID_TIMESTAMP]


def test_on_log_append_time_topics_the_clients_timestamp_is_free(target: Target) -> None:  # broker: 13.8
    topic = target.new_topic(message_timestamp_type="LogAppendTime")
    before = now_ms()
    answer = target.connect_to_leader(topic).produce_fully(topic, plain(timestamp_ms=2**62))
    assert answer.error_code == 0
    assert before - 100 <= answer.log_append_time_ms <= now_ms() + 100


@pytest.mark.parametrize("version", [3, 6, ZSTD_FROM])
def test_zstd_needs_version_7(target: Target, version: int) -> None:  # broker: 13.9
    import zstandard

    topic = target.new_topic()
    data = around(zstandard.compress(record_section(b"v")), 1, attributes=4)
    expected = (0, 0) if version >= ZSTD_FROM else (E.UNSUPPORTED_COMPRESSION_TYPE, -1)
    assert target.connect_to_leader(topic).produce(topic, data, version=version) == expected


def test_a_compressed_batch_is_judged_by_its_records(target: Target) -> None:  # broker: 13.4
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    section = record_section(b"a", b"b")
    compress = zlib.compressobj(wbits=31)
    zipped = compress.compress(section) + compress.flush()
    assert broker.produce(topic, around(zipped, 3, attributes=1)).code == E.INVALID_RECORD
    assert broker.produce(topic, around(zipped, 2, attributes=1)) == (0, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_old_produce_is_advertised_and_closes_the_connection(three: Target, version: int) -> None:  # broker: 13.6
    broker = three.connect()
    broker.send_body(0, version, struct.pack(">hii", 1, 1000, 0), flexible=False)
    assert broker.is_closed()


def test_a_produce_version_of_the_future_closes_the_connection(target: Target) -> None:  # broker: 13.6
    broker = target.connect()
    broker.send_body(0, 99, produce_request({}).encode(9), flexible=True)
    assert broker.is_closed()


def test_a_body_cut_short_closes_the_connection(target: Target) -> None:  # broker: 13.6
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    body = produce_request({(topic, 0): plain()}).encode(9)
    broker.send_body(0, 9, body[:-20], flexible=True)
    assert broker.is_closed()


def test_bytes_behind_the_body_are_not_looked_at(target: Target) -> None:  # broker: 13.6b
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    broker.send(produce_request({(topic, 0): plain()}), broker.produce_version, behind=b"12345")
    assert broker.next_written() == (0, 0)


def test_a_request_of_nothing_is_answered_with_nothing(target: Target) -> None:  # broker: 13.6b
    broker = target.connect()
    broker.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[]), broker.produce_version)
    assert broker.produce_answer().responses == []


@pytest.mark.parametrize("length", [-1, 0, 104_857_601])
def test_a_frame_of_a_forbidden_length_closes_the_connection_after_the_answers(
    target: Target, length: int
) -> None:  # broker: 13.2
    broker = target.connect()
    broker.send(MetadataRequest(topics=[]), 9)
    broker.send_bytes(struct.pack(">i", length) + b"abcd")
    broker.answer(MetadataResponse, MetadataRequest, 9)
    assert broker.is_closed()


def test_an_unknown_api_closes_the_connection(target: Target) -> None:  # broker: 18.4
    broker = target.connect()
    broker.send_body(999, 0, b"", flexible=False)
    assert broker.is_closed()


def test_a_refused_idempotent_batch_leaves_its_sequence_free(target: Target) -> None:  # broker: 4.3
    topic = target.new_topic()
    broker = target.connect_to_leader(topic)
    pid = broker.new_producer_id()
    assert broker.produce(topic, with_field(sequenced(pid, 0), count=9)) == (E.INVALID_RECORD, -1)
    assert broker.produce(topic, batch(b"v", pid=pid, epoch=0, first=0)) == (0, 0)
    assert broker.produce(topic, sequenced(pid, 1)) == (0, 1)
