"""The decoder: what it takes, what it refuses, and that damage is seen."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod.errors import ProtocolError
from aiokprod.records.batch import CONTROL_BIT, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT, batch_header, encode_records
from aiokprod.records.compression import CODEC_BITS, compress
from aiokprod.records.decoder import DecodedBatch, decode_batches, split_records
from aiokprod.records.headers import encode_headers
from aiokprod.records.varint import encode

QUICK = settings(deadline=None, derandomize=True, database=None)
SECTION = encode_records([b"value", None], [b"key", None], [encode_headers([("h", b"x")]), None], [0, 5])


def batch(section: bytes = SECTION, **changed: Any) -> bytes:
    arguments = {"count": 2, "attributes": 0, "base_timestamp_ms": 100, "max_timestamp_ms": 105, **changed}
    return batch_header(section, **arguments) + section


def only(data: bytes) -> DecodedBatch:
    (found,) = decode_batches(data)
    return found


# ---------------------------------------------------------------------- damage


def test_every_flipped_bit_behind_the_checksum_is_caught() -> None:
    data = batch()
    for at in range(17, len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(ProtocolError, match="the checksum of a record batch is wrong"):
                list(decode_batches(bytes(damaged)))


def test_the_checksum_can_be_left_to_others() -> None:
    data = bytearray(batch())
    data[17] ^= 1
    assert [len(found.records()) for found in decode_batches(bytes(data), check_crc=False)] == [2]


@given(st.binary(min_size=1, max_size=40), st.integers(0, 200))
@QUICK
def test_bytes_written_over_a_batch_never_pass_for_it(wrong: bytes, at: int) -> None:
    data = batch()
    damaged = data[:at] + wrong + data[at + len(wrong) :]
    try:
        found = [(each.base_offset, each.leader_epoch, each.records()) for each in decode_batches(damaged)]
    except ProtocolError:
        return
    for base_offset, leader_epoch, records in found:
        # The broker writes the first 16 bytes, so the checksum does not cover them; everything else is as it was.
        assert [(record.key, record.value, record.headers) for record in records] == [
            (b"key", b"value", (("h", b"x"),)),
            (None, None, ()),
        ]
        assert damaged[:8] == struct.pack(">q", base_offset)
        assert damaged[12:16] == struct.pack(">i", leader_epoch)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_packed_section_that_ends_early_never_loses_a_record(codec: str) -> None:
    """zstd alone does not say that its end is missing; the count of records does."""
    packed = compress(codec, None, SECTION)
    for size in range(len(packed)):
        cut = only(batch(packed[:size], attributes=CODEC_BITS[codec]))
        try:
            records = cut.records()
        except ProtocolError:
            continue
        assert codec == "zstd"
        assert [record.value for record in records] == [b"value", None]


# ---------------------------------------------------------------------- the sequence of batches


def test_an_incomplete_last_batch_is_dropped() -> None:
    data = batch()
    assert list(decode_batches(b"")) == []
    for size in range(len(data)):
        assert list(decode_batches(data[:size])) == []
        assert len(list(decode_batches(data + data[:size]))) == 1


@pytest.mark.parametrize("length", [48, 0, -1, -(2**31)])
def test_a_batch_shorter_than_its_header_is_refused(length: int) -> None:
    data = bytearray(batch())
    data[8:12] = struct.pack(">i", length)
    with pytest.raises(ProtocolError, match=f"a record batch of {length} bytes"):
        list(decode_batches(bytes(data)))


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_another_format_is_refused(magic: int) -> None:
    data = bytearray(batch())
    data[16] = magic
    with pytest.raises(ProtocolError, match=f"record format {magic}; only 2 is read"):
        list(decode_batches(bytes(data)))


def test_a_small_message_of_an_older_format_is_refused_by_its_format() -> None:
    """Shorter than the header of a batch, its length was refused, and the sentence about formats did not come."""
    message = struct.pack(">qiIbbq", 0, 22, 0, 1, 0, 5) + b"\xff" * 8
    with pytest.raises(ProtocolError, match="record format 1; only 2 is read"):
        list(decode_batches(message))


def test_good_batches_before_a_bad_one_are_given() -> None:
    found = decode_batches(batch() + b"\xff" * 61)
    assert len(next(found).records()) == 2
    with pytest.raises(ProtocolError):
        next(found)


# ---------------------------------------------------------------------- one batch


def test_attributes() -> None:
    plain, all_set = only(batch()), only(batch(attributes=TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT))
    assert not (plain.is_control or plain.is_transactional or plain.is_log_append_time)
    assert all_set.is_control and all_set.is_transactional and all_set.is_log_append_time


def test_offsets_and_timestamps_count_from_the_base() -> None:
    data = struct.pack(">q", 2**40) + batch()[8:]
    records = only(data).records()
    assert [(record.offset, record.timestamp_ms) for record in records] == [(2**40, 100), (2**40 + 1, 105)]
    assert repr(records[1]) == f"<DecodedRecord {2**40 + 1}>"


def test_with_append_time_all_records_have_the_time_of_the_batch() -> None:
    assert [record.timestamp_ms for record in only(batch(attributes=TIMESTAMP_TYPE_BIT)).records()] == [105, 105]


@pytest.mark.parametrize("bits", [5, 6, 7])
def test_an_unknown_codec_is_refused(bits: int) -> None:
    with pytest.raises(ProtocolError, match=f"codec number {bits}"):
        only(batch(attributes=bits)).records()


@pytest.mark.parametrize("count", [-1, 0])
def test_a_count_below_one_record_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError):
        only(batch(count=count)).records()


@pytest.mark.parametrize(
    ("count", "why"), [(1, "bytes after the last record"), (3, "a varint"), (2**31 - 1, "records in")]
)
def test_a_count_that_is_not_that_of_the_records_is_refused(count: int, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        only(batch(count=count)).records()


# ---------------------------------------------------------------------- one record


def record(body: bytes, length: int | None = None) -> bytes:
    return encode(len(body) if length is None else length) + body


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (record(b"\0\0\0\1\1\0", length=7), "longer than its batch"),
        (record(b"\0\0\0\1\1\0", length=-1), "longer than its batch"),
        (record(b"\0\0\0\1\1\0", length=5), "does not fill its length"),
        (record(b"\0\0\0\1\1\0\0"), "does not fill its length"),
        (record(b"\0\0\0" + encode(-2) + b"\1\0"), "the length -2 in a record"),
        (record(b"\0\0\0\1" + encode(50) + b"\0"), "a record ends early"),
        (record(b"\0\0\0\1\1" + encode(-1)), "a record with -1 headers"),
        (record(b"\0\0\0\1\1" + encode(2**31 - 1)), "a record with 2147483647 headers"),
        (record(b"\0\0\0\1\1\2" + b"\1\1"), "a header without a key"),
        (record(b"\0\0\0\1\1\2" + b"\2\xff\1"), "a header's key is not UTF-8"),
    ],
)
def test_a_broken_record_is_refused(section: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        split_records(section, 1)


def test_attributes_of_a_record_are_ignored() -> None:
    assert split_records(record(b"\xff\0\0\1\1\0"), 1) == ([None], None, None, [0])


def test_unused_columns_are_none() -> None:
    assert split_records(encode_records([b"a", b"b"], None, None, [0, 1]), 2) == ([b"a", b"b"], None, None, [0, 1])
    assert split_records(b"", 0) == ([], None, None, [])
