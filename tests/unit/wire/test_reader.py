"""The reader of primitives: every kind, its edges, and nothing but ProtocolError."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import readers as kio

from aiokprod.errors import ProtocolError
from aiokprod.wire.reader import MAX_TAGS, ZERO_UUID, Budget, Reader
from aiokprod.wire.writer import Writer

QUICK = settings(deadline=None, derandomize=True, database=None)


@pytest.mark.parametrize(
    ("read", "data", "value"),
    [
        (Reader.int8, b"\x7f", 127),
        (Reader.int8, b"\x80", -128),
        (Reader.int8, b"\xff", -1),
        (Reader.boolean, b"\0", False),
        (Reader.boolean, b"\1", True),
        (Reader.boolean, b"\x02", True),
        (Reader.int16, b"\x80\0", -(2**15)),
        (Reader.int16, b"\x7f\xff", 2**15 - 1),
        (Reader.uint16, b"\xff\xff", 65535),
        (Reader.int32, b"\x80\0\0\0", -(2**31)),
        (Reader.int32, b"\x7f\xff\xff\xff", 2**31 - 1),
        (Reader.uint32, b"\xff\xff\xff\xff", 2**32 - 1),
        (Reader.int64, b"\x80" + bytes(7), -(2**63)),
        (Reader.int64, b"\x7f" + b"\xff" * 7, 2**63 - 1),
        (Reader.float64, struct.pack(">d", -1.5), -1.5),
        (Reader.float64, struct.pack(">d", math.inf), math.inf),
        (Reader.uuid, bytes(range(16)), bytes(range(16))),
        (Reader.uuid, bytes(16), ZERO_UUID),
        (Reader.unsigned_varint, b"\0", 0),
        (Reader.unsigned_varint, b"\x7f", 127),
        (Reader.unsigned_varint, b"\x80\x01", 128),
        (Reader.unsigned_varint, b"\xff\xff\xff\xff\x0f", 2**32 - 1),
        (Reader.unsigned_varint, b"\x80\x80\x80\x80\x00", 0),
    ],
)
def test_a_number_is_read_whole_or_refused(read: Callable[[Reader], Any], data: bytes, value: object) -> None:
    reader = Reader(data)
    assert read(reader) == value
    assert reader.left == 0
    reader.finish()
    for size in range(len(data)):
        with pytest.raises(ProtocolError, match="bytes expected, but only"):
            read(Reader(data[:size]))


def test_it_reads_bytes_bytearrays_and_views_from_front_to_back() -> None:
    for data in (b"\0\1\2\3\4\5\6", bytearray(b"\0\1\2\3\4\5\6"), memoryview(b"\0\1\2\3\4\5\6")):
        reader = Reader(data)
        assert [reader.int16(), reader.int8(), reader.left, reader.int32()] == [1, 2, 4, 0x03040506]


@pytest.mark.parametrize("data", [b"\x80" * 5, b"\xff" * 5, b"\x80" * 4 + b"\x90\x00"])
def test_a_varint_of_more_than_five_bytes_is_refused(data: bytes) -> None:  # faults: H5
    with pytest.raises(ProtocolError, match="longer than five bytes"):
        Reader(data).unsigned_varint()


@pytest.mark.parametrize("last", [0x10, 0x1F, 0x7F])
def test_a_varint_above_32_bits_is_refused(last: int) -> None:
    with pytest.raises(ProtocolError, match="above 32 bits"):
        Reader(b"\xff\xff\xff\xff" + bytes([last])).unsigned_varint()


@given(st.integers(0, 2**31 - 1))
@QUICK
def test_varints_are_those_of_kio(value: int) -> None:
    data = bytearray()
    left = value
    while left > 0x7F:
        data.append(left & 0x7F | 0x80)
        left >>= 7
    data.append(left)
    assert Reader(data).unsigned_varint() == kio.read_unsigned_varint(bytes(data), 0)[0] == value


# ---------------------------------------------------------------------- strings and bytes

TEXT = "größe-日本"
RAW = TEXT.encode()


@pytest.mark.parametrize(
    ("data", "flexible", "value"),
    [
        (struct.pack(">h", len(RAW)) + RAW, False, TEXT),
        (b"\0\0", False, ""),
        (b"\xff\xff", False, None),
        (bytes([len(RAW) + 1]) + RAW, True, TEXT),
        (b"\1", True, ""),
        (b"\0", True, None),
        (b"\xc9\x01" + b"x" * 200, True, "x" * 200),
    ],
)
def test_strings(data: bytes, flexible: bool, value: str | None) -> None:
    assert Reader(data).nullable_string(flexible) == value
    if value is None:
        with pytest.raises(ProtocolError, match="a string is null, which is not allowed there"):
            Reader(data).string(flexible)
    else:
        assert Reader(data).string(flexible) == value
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            Reader(data[:size]).nullable_string(flexible)


@pytest.mark.parametrize(
    ("data", "flexible", "value"),
    [
        (struct.pack(">i", 3) + b"\xff\0\1", False, b"\xff\0\1"),
        (bytes(4), False, b""),
        (b"\xff\xff\xff\xff", False, None),
        (b"\x04\xff\0\1", True, b"\xff\0\1"),
        (b"\1", True, b""),
        (b"\0", True, None),
    ],
)
def test_bytes(data: bytes, flexible: bool, value: bytes | None) -> None:
    assert Reader(data).nullable_bytes(flexible) == value
    if value is None:
        with pytest.raises(ProtocolError, match="bytes are null, which is not allowed there"):
            Reader(data).bytes_(flexible)
    else:
        assert Reader(data).bytes_(flexible) == value


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_a_string_that_is_not_utf8_is_refused(bad: bytes) -> None:  # faults: H7
    with pytest.raises(ProtocolError, match="not UTF-8"):
        Reader(bytes([len(bad) + 1]) + bad).string(True)


@pytest.mark.parametrize("length", [-2, -(2**15)])
def test_a_negative_length_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"the length {length}"):
        Reader(struct.pack(">h", length) + bytes(50)).nullable_string(False)
    with pytest.raises(ProtocolError, match=f"the length {length}"):
        Reader(struct.pack(">i", length) + bytes(50)).nullable_bytes(False)


# ---------------------------------------------------------------------- arrays and tags


def test_counts() -> None:
    assert Reader(b"\0\0\0\2ab").count(False) == 2
    assert Reader(b"\3ab").count(True) == 2
    assert Reader(b"\1").count(True) == 0
    assert Reader(b"\0").nullable_count(True) == -1
    assert Reader(b"\xff\xff\xff\xff").nullable_count(False) == -1


@pytest.mark.parametrize(("data", "flexible"), [(b"\0", True), (b"\xff\xff\xff\xff", False)])
def test_a_null_array_is_refused_where_it_cannot_be(data: bytes, flexible: bool) -> None:  # faults: H6
    with pytest.raises(ProtocolError, match="an array is null, which is not allowed there"):
        Reader(data).count(flexible)


@pytest.mark.parametrize(
    ("data", "flexible"),
    [
        (b"\x7f\xff\xff\xff" + bytes(100), False),
        (b"\xff\xff\xff\xff\x0f" + bytes(100), True),
        (b"\0\0\0\3ab", False),
        (b"\4ab", True),
    ],
)
def test_a_count_above_the_bytes_left_is_refused(data: bytes, flexible: bool) -> None:  # faults: H4
    with pytest.raises(ProtocolError, match=r"an array of \d+ elements, but only \d+ bytes are left"):
        Reader(data).count(flexible)


def test_tags_are_skipped_and_read_in_fields_of_their_own() -> None:  # faults: H5
    data = b"\x02" + b"\x00\x03abc" + b"\x80\x01\x00" + b"rest"
    reader = Reader(data)
    reader.skip_tags()
    assert reader.left == 4
    reader = Reader(data)
    assert (reader.tag_count(), reader.unsigned_varint()) == (2, 0)
    content = reader.field(reader.unsigned_varint())
    assert content.left == 3
    content.skip(3)
    content.finish()
    assert reader.unsigned_varint() == 128


@pytest.mark.parametrize("data", [b"\x02\0\0\0", b"\xff\xff\xff\xff\x0f", b"\x01\0\x05abc"])
def test_tags_that_do_not_fit_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        Reader(data).skip_tags()


def test_a_field_ends_where_it_says() -> None:
    content = Reader(b"abcdef").field(2)
    with pytest.raises(ProtocolError, match="4 bytes expected, but only 2 are left"):
        content.int32()
    content.skip(1)
    with pytest.raises(ProtocolError, match="1 bytes after the end"):
        content.finish()


def test_nothing_is_skipped_backwards() -> None:
    reader = Reader(b"abc")
    reader.skip(2)
    with pytest.raises(ProtocolError):
        reader.skip(-1)
    assert reader.left == 1


# ---------------------------------------------------------------------- budgets


def test_a_budget_covers_all_arrays_of_a_message_and_its_tagged_fields() -> None:  # faults: H25
    reader = Reader(b"\x03ab" + b"\x00\x02\x03cd" + b"\x04efg", budget=Budget(6))
    assert reader.count(True) == 2
    reader.skip(2)
    reader.unsigned_varint()
    content = reader.field(reader.unsigned_varint() + 1)
    assert content.count(True) == 2
    with pytest.raises(ProtocolError, match="an array of 3 elements; at most 2 are accepted"):
        reader.count(True)


def test_null_and_empty_arrays_cost_nothing() -> None:
    reader = Reader(b"\x00\x01\x00", budget=Budget(0))
    assert (reader.nullable_count(True), reader.count(True)) == (-1, 0)


def test_more_tagged_fields_than_any_struct_has_are_refused() -> None:  # faults: H25
    writer = Writer()
    writer.unsigned_varint(MAX_TAGS + 1)
    with pytest.raises(ProtocolError, match="tagged fields; at most 1000 are accepted"):
        Reader(bytes(writer.out) + b"\x01\x00" * (MAX_TAGS + 1)).tag_count()


def test_a_budget_covers_the_tagged_fields_of_all_structs() -> None:  # faults: H25
    """A struct of nothing but a thousand unknown tags is two kilobytes: eight megabytes of them were a second."""
    tags = b"\x02" + 2 * b"\x63\x00"
    budget = Budget(6)
    reader = Reader(b"\x03ab" + tags + b"\x00" + tags + tags, budget=budget, tags=budget)
    assert reader.count(True) == 2
    reader.skip(2)
    reader.skip_tags()
    reader.skip_tags()  # none
    assert reader.field(5).tag_count() == 2
    with pytest.raises(ProtocolError, match="2 tagged fields; at most 0 are accepted"):
        reader.skip_tags()


INDEXED: list[list[tuple[int, str | None]]] = [
    [],
    [(0, "no"), (1, "no"), (2, "yes"), (-1, None), (2**31 - 1, ""), (7, "no")],
    [(number, f"record {number}") for number in range(200)],
    [(1, "x" * 126), (2, "x" * 127), (3, "gr\u00f6\u00dfe"), (4, "y" * 30_000), (5, "y" * 30_000)],
]


@pytest.mark.parametrize("flexible", [True, False])
@pytest.mark.parametrize("texts", INDEXED, ids=["none", "mixed", "many", "long"])
@pytest.mark.parametrize("tags", [b"\0", b"\1\x07\2ab"], ids=["no tags", "tags"])
def test_indexed_texts_are_read_as_one_by_one(texts: list[tuple[int, str | None]], flexible: bool, tags: bytes) -> None:
    writer = Writer()
    for index, text in texts:
        writer.int32(index)
        writer.nullable_string(text, flexible)
        if flexible:
            writer.out += tags
    data = bytes(writer.out)
    reader = Reader(data)
    assert reader.indexed_texts(len(texts), flexible) == texts
    reader.finish()
    for size in range(min(len(data), 300)):
        with pytest.raises(ProtocolError):
            Reader(data[:size]).indexed_texts(len(texts), flexible)


def test_an_indexed_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        Reader(b"\0\0\0\1\3\xff\xfe\0").indexed_texts(1, True)
