"""The encoder: what goes in comes out, and its sizes are what it says."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aiokprod.records.batch import (
    HEADER_BYTES,
    SMALL_VALUE_BYTES,
    batch_header,
    encode_records,
    record_size_bound,
    value_size_of,
)
from aiokprod.records.compression import CODEC_BITS, compress
from aiokprod.records.decoder import decode_batches, split_records
from aiokprod.records.headers import encode_headers
from aiokprod.records.varint import encode

QUICK = settings(deadline=None, derandomize=True, database=None)

nullable_bytes = st.none() | st.binary(max_size=300)
header_pairs = st.lists(st.tuples(st.text(max_size=20), nullable_bytes), max_size=4)
deltas = st.integers(-(2**62), 2**62) | st.integers(-70, 20_000)
rows = st.lists(st.tuples(nullable_bytes, nullable_bytes, st.none() | header_pairs, deltas), min_size=1, max_size=30)


def columns(each: list[Any]) -> tuple[list[Any], list[Any], list[Any], list[int]]:
    values, keys, headers, timestamp_deltas = (list(column) for column in zip(*each, strict=True))
    return values, keys, headers, timestamp_deltas


def encoded(headers: list[Any]) -> list[bytes | None]:
    return [encode_headers(pairs) if pairs else None for pairs in headers]


@given(rows)
@QUICK
def test_columns_come_back(each: list[Any]) -> None:
    values, keys, headers, timestamp_deltas = columns(each)
    section = encode_records(values, keys, encoded(headers), timestamp_deltas)
    found_values, found_keys, found_headers, found_deltas = split_records(section, len(values))
    assert found_values == values
    assert (found_keys or [None] * len(keys)) == keys
    assert (found_headers or [None] * len(headers)) == [tuple(pairs) if pairs else None for pairs in headers]
    assert found_deltas == timestamp_deltas


@given(rows, st.sampled_from(sorted(CODEC_BITS)), st.integers(-1, 2**63 - 1), st.integers(0, 2**31 - 1))
@QUICK
def test_batches_come_back_through_every_codec(each: list[Any], codec: str, producer_id: int, sequence: int) -> None:
    values, keys, headers, timestamp_deltas = columns(each)
    packed = compress(codec, None, encode_records(values, keys, encoded(headers), timestamp_deltas))
    header = batch_header(
        packed, count=len(values), attributes=CODEC_BITS[codec], base_timestamp_ms=1000,
        max_timestamp_ms=1000 + max(timestamp_deltas), producer_id=producer_id, producer_epoch=5, base_sequence=sequence,
    )  # fmt: skip
    assert len(header) == HEADER_BYTES
    two = list(decode_batches(header + packed + header + packed))
    assert len(two) == 2
    for batch in two:
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (producer_id, 5, sequence)
        found = batch.records()
        assert [record.value for record in found] == values
        assert [record.key for record in found] == keys
        assert [record.timestamp_ms for record in found] == [1000 + delta for delta in timestamp_deltas]


@given(st.lists(st.tuples(nullable_bytes, deltas), min_size=1, max_size=30))
@QUICK
def test_values_alone_are_encoded_as_with_empty_columns(each: list[tuple[bytes | None, int]]) -> None:
    values, timestamp_deltas = [value for value, _ in each], [delta for _, delta in each]
    alone = encode_records(values, None, None, timestamp_deltas)
    assert alone == encode_records(values, [None] * len(values), None, timestamp_deltas)
    assert alone == encode_records(values, None, [None] * len(values), timestamp_deltas)
    assert alone == encode_records(values, None, [encode_headers([]) for _ in values], timestamp_deltas)


def test_no_records_are_no_bytes() -> None:
    assert encode_records([], None, None, []) == b""
    assert encode_records([], [], [], []) == b""


@pytest.mark.parametrize("size", [0, 1, 56, 57, 58, 63, 64, 8183, 8184, 8191, 8192, 16383, 16384, 16385, 1_100_000])
@pytest.mark.parametrize("key", [None, b"", b"k"])
def test_lengths_at_the_boundaries_of_varints_and_tables(size: int, key: bytes | None) -> None:
    values: list[bytes | None] = [b"v" * size, None]
    keys = None if key is None else [key, None]
    section = encode_records(values, keys, None, [0, 0])
    assert split_records(section, 2)[:2] == (values, keys)


def test_offset_deltas_beyond_the_tables() -> None:
    count = 17_000
    values: list[bytes | None] = [None] * count
    section = encode_records(values, None, None, [0] * count)
    header = batch_header(section, count=count, attributes=0, base_timestamp_ms=0, max_timestamp_ms=0)
    (batch,) = decode_batches(header + section)
    assert [record.offset for record in batch.records()] == list(range(count))
    assert encode_records(values, values, None, [0] * count) == section


def stamps(kind: str, count: int) -> list[int] | None:
    """Return the timestamp deltas of so many records."""
    if kind == "none":
        return None
    if kind == "in runs":
        return [delta for delta in (0, 1, 70, -3, 20_000, 2**40) for _ in range(-(-count // 6))][:count]
    return list(range(count)) if kind == "all different" else [0] * count


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63, 64, 65, 700, 8191, 8192, 8193, 16_384, 16_385])
@pytest.mark.parametrize("kind", ["none", "zero", "in runs", "all different"])
@pytest.mark.parametrize("size", [0, 1, 50, 57, 58, 63, 64, 100])
def test_values_of_one_size_are_encoded_as_any_others(count: int, kind: str, size: int) -> None:
    values: list[bytes | None] = [(b"%d" % number * size)[:size] for number in range(count)]
    timestamp_deltas = stamps(kind, count)
    one_by_one = encode_records(values, [None] * count, None, timestamp_deltas)
    assert encode_records(values, None, None, timestamp_deltas) == one_by_one


@pytest.mark.parametrize("kind", ["none", "zero", "in runs"])
@pytest.mark.parametrize(
    "places", [[0], [63], [64], [65], [200], [8191], [8192], [8999], [0, 1, 2], [62, 64, 66, 8998, 8999]]
)
@pytest.mark.parametrize("pairs", [[], [("traceparent", b"0" * 55)], [("h", None), ("long", b"x" * 9_000)]])
def test_values_of_one_size_of_which_few_have_headers_are_encoded_as_any_others(
    places: list[int], kind: str, pairs: list[tuple[str, bytes | None]]
) -> None:
    count = 9_000
    values: list[bytes | None] = [b"%04d" % number for number in range(count)]
    headers: list[bytes | None] = [None] * count
    for place in places:
        headers[place] = encode_headers(pairs)
    timestamp_deltas = stamps(kind, count)
    one_by_one = encode_records(values, [None] * count, headers, timestamp_deltas)
    assert encode_records(values, None, headers, timestamp_deltas) == one_by_one


@given(st.data())
@QUICK
def test_any_values_of_which_few_have_headers_are_encoded_as_any_others(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 150))
    size = data.draw(st.integers(1, 70))
    values: list[bytes | None] = [b"%070d" % number for number in range(count)]
    values = [value and value[:size] for value in values]
    headers: list[bytes | None] = [None] * count
    for place in data.draw(st.lists(st.integers(0, count - 1), max_size=6)):
        headers[place] = encode_headers(data.draw(header_pairs))
    timestamp_deltas = data.draw(
        st.none() | st.lists(st.sampled_from([0, 0, 0, 5, -1]), min_size=count, max_size=count)
    )
    one_by_one = encode_records(values, [None] * count, headers, timestamp_deltas)
    assert encode_records(values, None, headers, timestamp_deltas) == one_by_one


@pytest.mark.parametrize("size", [1023, 1024, 9000])
def test_large_values_of_one_size_are_encoded_as_any_others(size: int) -> None:
    values: list[bytes | None] = [bytes([number]) * size for number in range(40)]
    assert encode_records(values, None, None, None) == encode_records(values, [None] * 40, None, [0] * 40)


@pytest.mark.parametrize("other", [None, b"", b"x", b"four."])
@pytest.mark.parametrize("at", [0, 30, 59])
def test_one_value_of_another_size_is_not_taken_for_one_of_theirs(other: bytes | None, at: int) -> None:
    values: list[bytes | None] = [b"four"] * 60
    values[at] = other
    assert split_records(encode_records(values, None, None, None), 60)[0] == values


# ---------------------------------------------------------------------- sizes


@given(nullable_bytes, nullable_bytes, st.none() | header_pairs, deltas, st.integers(0, 2**20 - 1))
@example(None, b"v" * (SMALL_VALUE_BYTES - 1), None, -(2**63), 2**20 - 1)
@example(None, b"v" * SMALL_VALUE_BYTES, None, -(2**63), 2**20 - 1)
@example(None, None, None, 0, 0)
@example(None, b"", None, 0, 0)
@example(b"", None, [("n", b"v")], 0, 0)
@example(b"k" * 70_000, b"v" * 70_000, [("n" * 70_000, b"v" * 70_000)], 2**63 - 1, 2**20 - 1)
@example(b"k", b"v", [("\U0001f680" * 100, None)] * 100, 0, 0)
@QUICK
def test_a_record_is_not_larger_than_its_bound(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]] | None,
    timestamp_delta: int,
    offset_delta: int,
) -> None:
    key_bytes = -1 if key is None else len(key)
    value_bytes = -1 if value is None else len(value)
    pairs = encode_headers(headers) if headers else None
    bound = record_size_bound(key_bytes, value_bytes, 0 if pairs is None else len(pairs))
    assert value_size_of(bound, key_bytes, 0 if pairs is None else len(pairs)) == value_bytes
    alone = encode_records([value], [key], [pairs], [timestamp_delta])
    later = len(alone) - len(encode(0)) + len(encode(offset_delta))  # its length field may need some more bytes
    assert bound >= later + len(encode(later)) - len(encode(len(alone)))


@pytest.mark.parametrize("value_bytes", [-1, 0, 1, 57, 8191, 8192, 100_000])
def test_the_bound_is_close(value_bytes: int) -> None:
    assert record_size_bound(-1, value_bytes, 0) <= max(value_bytes, 0) + 32
    assert record_size_bound(5, value_bytes, 0) <= max(value_bytes, 0) + 5 + 32


# ---------------------------------------------------------------------- the header


def test_the_header_is_laid_out_as_kafka_does() -> None:
    section = b"s" * 100
    header = batch_header(
        section, count=3, attributes=0x14, base_timestamp_ms=10, max_timestamp_ms=12, producer_id=2**63 - 1,
        producer_epoch=32767, base_sequence=2**31 - 1,
    )  # fmt: skip
    fields = struct.unpack(">qiibIhiqqqhii", header)
    assert fields[:4] == (0, 49 + 100, -1, 2)
    assert fields[5:] == (0x14, 2, 10, 12, 2**63 - 1, 32767, 2**31 - 1, 3)


def test_only_the_stamp_differs_between_two_attempts() -> None:
    section = encode_records([b"v"], None, None, [0])
    first, second = (
        batch_header(section, count=1, attributes=0, base_timestamp_ms=1, max_timestamp_ms=1, base_sequence=sequence)
        for sequence in (7, 8)
    )
    differing = {at for at in range(HEADER_BYTES) if first[at] != second[at]}
    assert differing <= {17, 18, 19, 20, 56}
    assert 56 in differing


def test_a_bytearray_is_a_section_too() -> None:
    arguments = {"count": 1, "attributes": 0, "base_timestamp_ms": 0, "max_timestamp_ms": 0}
    assert batch_header(b"abc", **arguments) == batch_header(bytearray(b"abc"), **arguments)
