"""Zigzag varints: the tables and the loop say the same, at every boundary."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial.writers import write_signed_varlong

from aiokprod.errors import ProtocolError
from aiokprod.records.decoder import split_records
from aiokprod.records.varint import FIRST_OF_LENGTH, SMALL, SMALL_COLUMNS, SMALL_NEGATIVE, TABLE_FROM, TABLE_TO, encode

EDGES = sorted(
    {
        sign * (1 << bits) + near
        for bits in range(63)
        for sign in (1, -1)
        for near in (-1, 0, 1)
    }
    | {TABLE_FROM - 1, TABLE_FROM, TABLE_TO - 1, TABLE_TO, -(2**63), 2**63 - 1}
)  # fmt: skip


def kio_varlong(value: int) -> bytes:
    buffer = io.BytesIO()
    write_signed_varlong(buffer, value)
    return buffer.getvalue()


@pytest.mark.parametrize("value", EDGES)
def test_a_boundary_is_encoded_as_kio_does(value: int) -> None:
    data = encode(value)
    assert data == kio_varlong(value)


@given(st.integers(-(2**63), 2**63 - 1))
@settings(deadline=None, derandomize=True, database=None)
def test_any_number_is_encoded_as_kio_does(value: int) -> None:
    assert encode(value) == kio_varlong(value)


def test_every_entry_of_the_tables() -> None:
    assert [kio_varlong(value) for value in range(TABLE_TO)] == SMALL
    assert [kio_varlong(-1 - value) for value in range(-TABLE_FROM)] == SMALL_NEGATIVE


@pytest.mark.parametrize(
    ("value", "length"), [(0, 1), (-1, 1), (63, 1), (-64, 1), (64, 2), (-65, 2), (8191, 2), (8192, 3)]
)
def test_sizes_change_where_they_must(value: int, length: int) -> None:
    assert len(encode(value)) == length


@pytest.mark.parametrize("value", EDGES)
def test_a_boundary_is_read_back(value: int) -> None:
    body = b"\0" + encode(value) + b"\0" + b"\1" + b"\1" + b"\0"
    assert split_records(encode(len(body)) + body, 1)[3] == [value]


@pytest.mark.parametrize("broken", [b"\x80", b"\xff" * 9, b"\xff" * 30])
def test_a_number_that_does_not_end_is_refused(broken: bytes) -> None:
    with pytest.raises(ProtocolError, match="a varint in a record is broken"):
        split_records(broken, 1)


@pytest.mark.parametrize("position", range(3))
def test_the_columns_of_the_table_have_its_bytes(position: int) -> None:
    assert SMALL_COLUMNS[position] == bytes(each[position] if position < len(each) else 0 for each in SMALL)


@pytest.mark.parametrize("length", [2, 3, 4])
def test_an_encoding_has_so_many_bytes_from_its_first_number_on(length: int) -> None:
    first = FIRST_OF_LENGTH[length]
    assert (len(encode(first - 1)), len(encode(first))) == (length - 1, length)
