"""The writer of primitives: what it writes the reader reads, and kio writes the same."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import writers as kio

from aiokprod.errors import UnsupportedVersionError
from aiokprod.wire.reader import Reader
from aiokprod.wire.writer import Writer, cannot

QUICK = settings(deadline=None, derandomize=True, database=None)


def both(ours: Callable[[Writer], None], theirs: Callable[[io.BytesIO], None]) -> Reader:
    """Return a reader of the bytes, which must be the same from both writers."""
    writer, buffer = Writer(), io.BytesIO()
    ours(writer)
    theirs(buffer)
    assert bytes(writer.out) == buffer.getvalue()
    return Reader(writer.out)


@pytest.mark.parametrize(("kind", "bits"), [("int8", 8), ("int16", 16), ("int32", 32), ("int64", 64)])
def test_signed_numbers(kind: str, bits: int) -> None:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    for value in (low, -1, 0, 1, high):
        reader = both(
            lambda writer, value=value: getattr(writer, kind)(value),
            lambda buffer, value=value: getattr(kio, f"write_{kind}")(buffer, value),
        )
        assert getattr(reader, kind)() == value
    for value in (low - 1, high + 1):
        with pytest.raises(struct.error):
            getattr(Writer(), kind)(value)


@pytest.mark.parametrize(("kind", "bits"), [("uint16", 16), ("uint32", 32)])
def test_unsigned_numbers(kind: str, bits: int) -> None:
    for value in (0, 1, (1 << bits) - 1):
        reader = both(
            lambda writer, value=value: getattr(writer, kind)(value),
            lambda buffer, value=value: getattr(kio, f"write_{kind}")(buffer, value),
        )
        assert getattr(reader, kind)() == value


@given(st.integers(0, 2**32 - 1))
@QUICK
def test_varints(value: int) -> None:
    reader = both(lambda w: w.unsigned_varint(value), lambda b: kio.write_unsigned_varint(b, value))
    assert reader.unsigned_varint() == value


@given(st.text(max_size=300) | st.none())
@QUICK
def test_strings(text: str | None) -> None:
    reader = both(lambda w: w.nullable_string(text, False), lambda b: kio.write_nullable_legacy_string(b, text))
    assert reader.nullable_string(False) == text
    reader = both(lambda w: w.nullable_string(text, True), lambda b: kio.write_nullable_compact_string(b, text))
    assert reader.nullable_string(True) == text


@given(st.binary(max_size=300) | st.none())
@QUICK
def test_bytes(data: bytes | None) -> None:
    reader = both(lambda w: w.nullable_bytes(data, False), lambda b: kio.write_nullable_legacy_bytes(b, data))
    assert reader.nullable_bytes(False) == data
    reader = both(lambda w: w.nullable_bytes(data, True), lambda b: kio.write_nullable_compact_string(b, data))
    assert reader.nullable_bytes(True) == data


@pytest.mark.parametrize("count", [-1, 0, 1, 126, 127, 128, 20_000])
def test_counts(count: int) -> None:
    both(lambda w: w.nullable_count(count, False), lambda b: kio.write_legacy_array_length(b, count))
    both(
        lambda w: w.nullable_count(count, True),
        lambda b: kio.write_compact_array_length(b, None if count < 0 else count),
    )


def test_booleans_floats_and_uuids() -> None:
    raw = bytes(range(16))

    def ours(writer: Writer) -> None:
        writer.boolean(True)
        writer.boolean(False)
        writer.float64(-0.1)
        writer.uuid(raw)

    def theirs(buffer: Any) -> None:
        kio.write_boolean(buffer, True)
        kio.write_boolean(buffer, False)
        kio.write_float64(buffer, -0.1)
        kio.write_uuid(buffer, UUID(bytes=raw))

    reader = both(ours, theirs)
    assert [reader.boolean(), reader.boolean(), reader.float64(), reader.uuid()] == [True, False, -0.1, raw]


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_uuid_has_16_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Writer().uuid(bytes(size))


def test_a_tagged_field_is_its_tag_its_size_and_its_content() -> None:
    content = Writer()
    content.string("x" * 200, True)
    reader = both(
        lambda w: w.field(300, content),
        lambda b: kio.write_tagged_field(b, 300, kio.write_compact_string, "x" * 200),
    )
    assert reader.unsigned_varint() == 300
    assert reader.field(reader.unsigned_varint()).string(True) == "x" * 200
    reader.finish()


def test_a_value_that_a_version_cannot_carry_is_named() -> None:
    assert isinstance(cannot("GroupId", 2), UnsupportedVersionError)
    assert "version 2 has no field GroupId, but it is set" in str(cannot("GroupId", 2))
