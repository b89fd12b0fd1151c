"""Logs, batch headers, the rules about records, settings: the pure half of a partition."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest
from mock_batches import batch, idempotent

from aiokprod.records.compression import compress
from aiokprod.testing.mock.batch_header import (
    BadBatch,
    BatchHeader,
    check_crc,
    check_fields,
    check_size,
    read_header,
    stored_bytes,
)
from aiokprod.testing.mock.log import PartitionLog, StoredBatch, TopicSettings
from aiokprod.testing.mock.record_rules import BadRecords, judge_records
from aiokprod.testing.mock.stored_records import BatchTrouble, decode_records, stored_records

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PLAIN = TopicSettings({})


def header_of(data: bytes) -> BatchHeader:
    header = read_header(data)
    assert isinstance(header, BatchHeader)
    return header


def stored(base_offset: int, *values: bytes, timestamp_ms: int = NOW_MS) -> StoredBatch:
    data = batch(*values, timestamp_ms=timestamp_ms)
    header = header_of(data)
    return StoredBatch.of(header, stored_bytes(data, header, base_offset, 3, None), base_offset, 3, None)


def patched(data: bytes, at: int, code: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(code, changed, at, value)
    return bytes(changed)


def refusal(data: bytes, *, version: int = 12, max_bytes: int = 10**6) -> int:
    """Return the code that a broker finds in these bytes, 0 if none."""
    header = read_header(data)
    if isinstance(header, BadBatch):
        return int(header.code)
    bad = check_size(header, max_bytes) or check_crc(data, header) or check_fields(header, version)
    return int(bad.code) if bad else 0


# ---------------------------------------------------------------------- headers


def test_a_good_batch_is_read_field_by_field() -> None:
    header = header_of(batch(b"a", b"b", pid=5, epoch=2, first=9))
    assert (header.count, header.producer_id, header.producer_epoch, header.base_sequence) == (2, 5, 2, 9)
    assert header.sequenced(base_offset=4).last_sequence == 10
    assert refusal(batch(b"a")) == 0


GOOD = batch(b"one", b"two")
ROWS = {
    "wrong crc": (patched(GOOD, 17, ">I", 1), 2),  # broker: 13.3
    "magic 3": (patched(GOOD, 16, ">b", 3), 2),
    "magic -1": (patched(GOOD, 16, ">b", -1), 2),
    "length 0": (patched(GOOD, 8, ">i", 0), 2),
    "length -1": (patched(GOOD, 8, ">i", -1), 2),
    "length below the header": (patched(GOOD, 8, ">i", 40), 2),
    "length a little short": (patched(GOOD, 8, ">i", len(GOOD) - 12 - 3), 2),
    "magic 0": (patched(GOOD, 16, ">b", 0), 87),  # broker: 13.4
    "magic 1": (patched(GOOD, 16, ">b", 1), 87),
    "length too long": (patched(GOOD, 8, ">i", len(GOOD)), 87),
    "truncated": (GOOD[:-1], 87),
    "only a few bytes": (GOOD[:16], 87),
    "two batches": (GOOD + GOOD, 87),
    "empty": (b"", 87),
    "no records": (batch(), 87),
    "no records, idempotent": (batch(pid=1, epoch=0, first=0), 87),
    "base offset not 0": (patched(GOOD, 0, ">q", 1), 87),
    "control bit": (batch(b"a", attributes=0x20), 87),
    "producer without sequence": (batch(b"a", pid=4, epoch=0, first=-1), 87),  # broker: 1.10
    "producer without epoch": (batch(b"a", pid=4, epoch=-1, first=0), 0),
    "sequence without producer": (batch(b"a", pid=-1, epoch=0, first=0), 0),
    "length 2^31-1": (patched(GOOD, 8, ">i", 2**31 - 1), -1),  # broker: 13.5
    "codec 5": (batch(b"a", attributes=5), -1),
    "bytes behind": (GOOD + b"12345", 0),  # broker: 13.5c
    "partition leader epoch 77": (patched(GOOD, 12, ">i", 77), 0),
    "attribute bit 0x4000": (batch(b"a", attributes=0x4000), 0),
}


@pytest.mark.parametrize(("data", "code"), ROWS.values(), ids=ROWS.keys())
def test_bad_bytes_get_the_code_a_broker_gave(data: bytes, code: int) -> None:
    assert refusal(data) == code


def test_a_count_that_does_not_fit_the_last_offset_is_invalid() -> None:  # broker: 13.4
    header = header_of(GOOD)
    for wrong in (replace(header, count=3), replace(header, last_offset_delta=5), replace(header, count=-1)):
        bad = check_fields(wrong, 12)
        assert bad is not None and bad.code == 87


def test_the_size_limit_counts_the_whole_batch_and_comes_before_the_crc() -> None:  # broker: 13.1
    assert refusal(GOOD, max_bytes=len(GOOD)) == 0
    assert refusal(GOOD, max_bytes=len(GOOD) - 1) == 10
    assert refusal(patched(GOOD, 17, ">I", 1), max_bytes=len(GOOD) - 1) == 10


@pytest.mark.parametrize(("version", "code"), [(3, 76), (6, 76), (7, 0), (12, 0)])  # broker: 13.9
def test_zstd_needs_produce_7(version: int, code: int) -> None:
    assert refusal(batch(b"a", attributes=4), version=version) == code


def test_random_bytes_are_judged_never_raised() -> None:
    chance = random.Random(4)
    for _ in range(3000):
        data = bytearray(GOOD)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        cut = bytes(data[: chance.randrange(len(data) + 1)])
        refusal(cut)
        decode_records(cut)
        header = read_header(cut)
        if isinstance(header, BatchHeader):
            judge_records(cut, header, PLAIN, NOW_MS, topic="t", partition=0, always=True)


def test_storing_sets_offset_and_epoch_and_keeps_the_crc_valid() -> None:
    data = batch(b"a", b"b") + b"tail"
    header = header_of(data)
    kept = stored_bytes(data, header, 41, 6, None)
    assert len(kept) == header.size_bytes
    assert struct.unpack_from(">qii", kept) == (41, header.size_bytes - 12, 6)
    assert check_crc(kept, header_of(patched(kept, 0, ">q", 0))) is None


def test_log_append_time_is_written_into_the_batch_with_a_new_crc() -> None:  # broker: 13.8
    data = batch(b"a", timestamp_ms=5)
    header = header_of(data)
    kept = stored_bytes(data, header, 0, 0, NOW_MS)
    again = header_of(kept)
    assert again.max_timestamp_ms == NOW_MS and again.attributes & 0x08 and check_crc(kept, again) is None
    one = StoredBatch.of(header, kept, 0, 0, NOW_MS)
    assert [record.timestamp_ms for record in stored_records("t", 0, [one])] == [NOW_MS]


def test_the_clients_timestamp_type_bit_is_cleared_on_a_create_time_topic() -> None:  # broker: 13.5c
    data = batch(b"a", attributes=0x08, timestamp_ms=5)
    header = header_of(data)
    again = header_of(stored_bytes(data, header, 0, 0, None))
    assert not again.attributes & 0x08 and again.max_timestamp_ms == 5


# ---------------------------------------------------------------------- records


def test_a_compacted_topic_names_every_record_without_key() -> None:  # broker: 4.10
    data = batch(*[b"v"] * 5, keys=[b"k", None, b"k", None, None])
    settings = TopicSettings({"cleanup.policy": "compact,delete"})
    bad = judge_records(data, header_of(data), settings, NOW_MS, topic="t", partition=2)
    assert isinstance(bad, BadRecords) and bad.code == 87
    assert [index for index, _ in bad.record_errors] == [1, 3, 4]
    assert "t-2" in bad.record_errors[0][1] and bad.message is not None and bad.message.count("t-2") == 3


@pytest.mark.parametrize(
    ("timestamp_ms", "code"),
    [
        (-1, 0),
        (-2, 0),
        (0, 0),
        (NOW_MS - 31 * 365 * 24 * HOUR_MS, 0),
        (NOW_MS + HOUR_MS - 10_000, 0),
        (NOW_MS + HOUR_MS + 10_000, 32),
        (2**62, 32),
    ],
)  # broker: 13.7
def test_timestamps_may_be_an_hour_ahead_and_as_old_as_they_like(timestamp_ms: int, code: int) -> None:
    data = batch(b"a", b"b", timestamp_ms=timestamp_ms)
    bad = judge_records(data, header_of(data), PLAIN, NOW_MS, topic="t", partition=0)
    assert (bad.code if bad else 0) == code
    if bad:
        assert len(bad.record_errors) == 2  # broker: 4.10


def test_the_past_may_be_limited_and_log_append_time_asks_no_client() -> None:  # broker: 13.8
    old, ahead = batch(b"a", timestamp_ms=NOW_MS - 2000), batch(b"a", timestamp_ms=2**62)
    limited = TopicSettings({"message.timestamp.before.max.ms": "1000"})
    bad = judge_records(old, header_of(old), limited, NOW_MS, topic="t", partition=0)
    assert bad is not None and bad.code == 32
    appended = TopicSettings({"message.timestamp.type": "LogAppendTime"})
    assert judge_records(ahead, header_of(ahead), appended, NOW_MS, topic="t", partition=0) is None


@pytest.mark.parametrize(("attributes", "code"), [(0, 87), (1, -1)])  # broker: 13.4, 13.5
def test_garbage_records_are_found_only_where_records_are_looked_at(attributes: int, code: int) -> None:
    good = batch(b"a", attributes=attributes)
    data = good[:61] + b"\xff" * (len(good) - 61)
    header = header_of(data)
    assert judge_records(data, header, PLAIN, NOW_MS, topic="t", partition=0) is None
    bad = judge_records(data, header, PLAIN, NOW_MS, topic="t", partition=0, always=True)
    assert bad is not None and bad.code == code


def test_compressed_records_are_decoded_with_offsets_and_sequences() -> None:
    plain = batch(b"a", b"b", keys=[b"k", None], pid=3, epoch=1, first=2**31 - 1)
    section = compress("gzip", None, plain[61:])
    data = bytearray(plain[:61] + section)
    data[21:23] = b"\0\x01"
    struct.pack_into(">i", data, 8, len(data) - 12)
    header = header_of(bytes(data))
    one = StoredBatch.of(header, stored_bytes(bytes(data), header, 10, 0, None), 10, 0, None)
    found = list(stored_records("t", 1, [one]))
    assert [(r.offset, r.key, r.value, r.sequence) for r in found] == [(10, b"k", b"a", 2**31 - 1), (11, None, b"b", 0)]
    assert isinstance(decode_records(b""), BatchTrouble)


# ---------------------------------------------------------------------- the log


def filled(*sizes: int) -> PartitionLog:
    log = PartitionLog()
    for size in sizes:
        log.append(stored(log.end_offset, *[b"v"] * size))
    return log


def test_batches_follow_each_other_without_holes() -> None:
    log = filled(2, 3, 1)
    assert [one.base_offset for one in log.batches] == [0, 2, 5] and log.end_offset == 6
    with pytest.raises(AssertionError):
        log.append(stored(9, b"v"))


def test_reading_gives_whole_batches_from_the_one_that_holds_the_offset() -> None:
    log = filled(2, 3, 1)
    a, b, c = (one.data for one in log.batches)
    assert log.read(0, 6, 10**6) == a + b + c
    assert log.read(3, 6, 10**6) == b + c
    assert log.read(3, 5, 10**6) == b  # the high watermark cuts between batches
    assert log.read(0, 6, 1) == a  # at least one, however small the limit
    assert log.read(0, 6, len(a + b)) == a + b
    assert log.read(6, 6, 10**6) == b""


def test_truncating_drops_what_reaches_beyond() -> None:
    log = filled(2, 3, 1)
    log.truncate(5)
    assert log.end_offset == 5 and len(log.batches) == 2
    log.truncate(0)
    assert (log.end_offset, log.size_bytes, log.batches) == (0, 0, ())


def test_deleting_records_moves_the_start_and_drops_whole_batches_only() -> None:
    log = filled(2, 3, 1)
    log.delete_before(3)
    assert log.start_offset == 3 and [one.base_offset for one in log.batches] == [2, 5]
    log.delete_before(99)
    assert log.start_offset == log.end_offset == 6 and log.size_bytes == 0
    log.delete_before(1)
    assert log.start_offset == 6


def test_retention_by_size_spares_what_is_not_replicated() -> None:
    log = filled(1, 1, 1, 1)
    log.retain(0, up_to=2)
    assert log.start_offset == 2 and [one.base_offset for one in log.batches] == [2, 3]


def test_times_are_found_by_batch() -> None:
    log = PartitionLog()
    for timestamp_ms in (100, 300, 200):
        log.append(stored(log.end_offset, b"v", timestamp_ms=timestamp_ms))
    found = log.first_since_time(150, 3)
    assert found is not None and found.base_offset == 1
    assert log.first_since_time(150, 1) is None and log.first_since_time(301, 3) is None
    newest = log.newest(3)
    assert newest is not None and newest.base_offset == 1
    assert log.newest(0) is None


def test_settings_take_kafkas_names_in_both_spellings_and_reject_nonsense() -> None:
    settings = TopicSettings.of({"max_message_bytes": 100, "cleanup.policy": "compact", "unclean_x": True})
    assert settings.max_message_bytes == 100 and settings.is_compacted and settings.options["unclean.x"] == "true"
    assert settings.altered({"max.message.bytes": 7}).max_message_bytes == 7
    assert PLAIN.max_message_bytes == 1_048_588 and PLAIN.min_insync_replicas == 1 and not PLAIN.is_log_append_time
    for wrong in ({"max_message_bytes": "much"}, {"message_timestamp_type": "Never"}):
        with pytest.raises(ValueError, match="Invalid value"):
            TopicSettings.of(wrong).check()


def test_a_stored_batch_knows_its_producer() -> None:
    data = idempotent(4, b"a", b"b")
    header = header_of(data)
    one = StoredBatch.of(header, stored_bytes(data, header, 8, 0, None), 8, 0, None)
    assert (one.sequenced.first_sequence, one.sequenced.last_sequence, one.sequenced.base_offset) == (4, 5, 8)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("max.message.bytes", "3000000000", "Not a number of type INT"),
        ("min.insync.replicas", "0", "Value must be at least 1"),
        ("cleanup.policy", "weird", "String must be one of: compact, delete"),
        ("compression.type", "zip", "String must be one of: uncompressed"),
        ("message.timestamp.type", "createtime", "String must be one of: CreateTime, LogAppendTime"),
        ("preallocate", "maybe", "Expected value to be either true or false"),
    ],
)
def test_a_value_that_an_option_does_not_have_is_refused_in_kafkas_words(option: str, value: str, says: str) -> None:
    with pytest.raises(ValueError, match=f"^Invalid value {value} for configuration {option}: {says}"):
        TopicSettings.of({option: value}).check()


def test_values_that_kafka_takes_are_taken() -> None:
    options = {
        "cleanup.policy": "compact,delete",
        "retention.ms": "-1",
        "preallocate": "TRUE",
        "compression.type": "zstd",
    }
    TopicSettings.of({**options, "min.cleanable.dirty.ratio": "0.5", "segment.bytes": " 1048576 "}).check()
