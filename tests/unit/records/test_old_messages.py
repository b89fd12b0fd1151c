"""Messages of formats 0 and 1, as aiokafka's builder writes them: records, packed or not; what is malformed is refused."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.errors import ProtocolError
from aiokprod.records.batch import TIMESTAMP_TYPE_BIT, batch_header, encode_records
from aiokprod.records.compression import CODEC_BITS, compress
from aiokprod.records.decoder import DecodedBatch, DecodedRecord
from aiokprod.records.old_messages import OldMessage, decode_entries, with_right_checksum

LIMIT = 1_000_000
PAIRS: list[tuple[bytes | None, bytes | None]] = [(b"k", b"v"), (None, b""), (b"", None), (None, b"x" * 5_000)]
Flat = list[tuple[int, int, bytes | None, bytes | None]]


def built(record_format: Any, codec: str = "none", pairs: Sequence[tuple[bytes | None, bytes | None]] = PAIRS) -> bytes:
    """Return messages from offset 0 on, with the times 100, 101, ... The leader numbers them: see `at`."""
    builder = LegacyRecordBatchBuilder(record_format, CODEC_BITS[codec], LIMIT)
    for number, (key, value) in enumerate(pairs):
        assert builder.append(number, 100 + number, key, value) is not None
    return bytes(builder.build())


def message(
    record_format: int, value: bytes | None, *, offset: int = 0, attributes: int = 0, time_ms: int = 0
) -> bytes:
    """Return one message, as the documentation of Kafka's protocol has it."""
    times = struct.pack(">q", time_ms) if record_format else b""
    data = b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value
    body = struct.pack(">bb", record_format, attributes) + times + struct.pack(">i", -1) + data
    return struct.pack(">qiI", offset, len(body) + 4, crc32(body)) + body


def at(data: bytes, offset: int) -> bytes:
    return struct.pack(">q", offset) + data[8:]


def flat(data: bytes, limit: int = LIMIT) -> Flat:
    found: Flat = []
    for entry in decode_entries(data):
        records: list[DecodedRecord | None] = []
        records += entry.records(limit, limit) if isinstance(entry, OldMessage) else entry.records()
        for record in records:
            if record is not None:
                assert record.headers == ()
                found.append((record.offset, record.timestamp_ms, record.key, record.value))
    return found


def expected(record_format: int, first: int = 0) -> Flat:
    return [
        (first + number, 100 + number if record_format else -1, key, value) for number, (key, value) in enumerate(PAIRS)
    ]


# ---------------------------------------------------------------------- records
@pytest.mark.parametrize("record_format", [0, 1])
def test_messages_without_a_codec_are_records(record_format: int) -> None:
    assert flat(built(record_format)) == expected(record_format)
    assert flat(message(record_format, b"v", offset=2**40, time_ms=7)) == [
        (2**40, 7 if record_format else -1, None, b"v")
    ]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_a_packed_message_of_format_1_counts_back_from_its_own_offset(codec: str) -> None:
    assert flat(at(built(1, codec), 1_003)) == expected(1, 1_000)


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_a_packed_message_of_format_0_has_the_offsets_of_the_log_inside(codec: str) -> None:
    assert flat(at(built(0, codec), 3)) == expected(0)


def test_an_lz4_frame_of_format_0_has_the_checksum_of_old_clients() -> None:
    """KAFKA-3160: it was computed with the magic number of the frame."""
    frame = bytearray(compress("lz4", None, built(0)))
    assert with_right_checksum(bytes(frame)) == frame
    end = 6 + (8 if frame[4] & 8 else 0)
    for wrong in range(256):
        broken = frame[:end] + bytes([wrong]) + frame[end + 1 :]
        assert with_right_checksum(bytes(broken)) == frame
    frame[end] ^= 0xFF
    assert flat(message(0, bytes(frame), offset=3, attributes=3)) == expected(0)
    with pytest.raises(ProtocolError):
        flat(message(1, bytes(frame), offset=3, attributes=3))  # format 1 has the right one
    for cut in range(8):
        with_right_checksum(bytes(frame[:cut]))


def test_with_log_append_time_all_packed_records_have_the_time_of_the_leader() -> None:
    packed = compress("gzip", None, built(1))
    found = flat(message(1, packed, offset=3, attributes=1 | TIMESTAMP_TYPE_BIT, time_ms=999))
    assert [time_ms for _, time_ms, _, _ in found] == [999] * len(PAIRS)


def test_formats_may_follow_each_other_in_any_order() -> None:
    section = encode_records([b"two"], None, None, None)
    header = batch_header(
        section, count=1, attributes=0, base_timestamp_ms=5, max_timestamp_ms=5, producer_id=-1, producer_epoch=-1,
        base_sequence=-1,
    )  # fmt: skip
    new = bytes(header) + bytes(section)
    data = message(0, b"zero") + new + message(1, b"one", offset=1) + new
    kinds = [type(entry) for entry in decode_entries(data * 400)]
    assert kinds == [OldMessage, DecodedBatch, OldMessage, DecodedBatch] * 400
    assert [value for _, _, _, value in flat(data)] == [b"zero", b"two", b"one", b"two"]


def test_an_incomplete_last_message_is_dropped() -> None:
    whole = message(1, b"first") + message(1, b"last", offset=1)
    length = len(message(1, b"first"))
    for size in range(length, len(whole)):
        assert [value for *_, value in flat(whole[:size])] == [b"first"]


# ---------------------------------------------------------------------- what is malformed
@pytest.mark.parametrize(
    "data",
    [
        message(1, b"v")[:-1] + b"w",  # the checksum
        message(1, b"v", attributes=4),  # zstd came with format 2
        message(1, b"v", attributes=7),
        message(1, None, attributes=1),
        message(1, b"v", attributes=1),
        message(1, compress("gzip", None, message(0, b"v")), attributes=1),
        message(1, compress("gzip", None, message(1, b"v")[:-1]), attributes=1),
        message(1, compress("gzip", None, message(1, b"v") + b"x"), attributes=1),
        message(
            1, compress("gzip", None, message(1, compress("gzip", None, message(1, b"v")), attributes=1)), attributes=1
        ),
        struct.pack(">qi", 0, 13) + message(0, b"v")[12:],
        struct.pack(">qi", 0, -1) + message(0, b"v")[12:],
    ],
)
def test_what_is_malformed_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        flat(data)


def test_a_value_that_unpacks_to_too_much_is_refused() -> None:
    packed = message(1, compress("gzip", None, message(1, b"x" * 50_000)), attributes=1)
    assert len(flat(packed)) == 1
    with pytest.raises(ProtocolError, match="more than 10000 bytes"):
        flat(packed, 10_000)


@given(st.data())
def test_damaged_messages_raise_nothing_but_protocol_errors(data: st.DataObject) -> None:
    codec = data.draw(st.sampled_from(["none", "gzip", "snappy", "lz4"]))
    sound = built(1, codec)
    place = data.draw(st.integers(0, len(sound) - 1))
    damaged = bytearray(sound)
    damaged[place] = data.draw(st.integers(0, 255))
    try:
        for entry in decode_entries(bytes(damaged), check_crc=False):
            if isinstance(entry, OldMessage):
                list(entry.records(LIMIT, LIMIT))
    except ProtocolError:
        pass
