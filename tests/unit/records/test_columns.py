"""Columns: what they say of their rows, and what is refused when they are made."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy
import pyarrow as pa
import pytest

from aiokprod import BytesColumn, HeadersColumn, IntColumn
from aiokprod.errors import InvalidColumnError
from aiokprod.records.decoder import decode_headers

ROWS: list[bytes | None] = [b"one", None, b"", b"four", None, b"six" * 100, b"7", b"8", b"9", b"10"]


def bitmap(rows: list[Any], before: int = 0) -> bytes:
    bits = sum(1 << (before + at) for at, row in enumerate(rows) if row is not None)
    return bits.to_bytes((before + len(rows) + 7) // 8, "little")


def column(rows: list[bytes | None], code: str = "i") -> BytesColumn:
    data = [row or b"" for row in rows]
    offsets = array(code, accumulate(map(len, data), initial=0))
    return BytesColumn(offsets, b"".join(data), bitmap(rows))


# ---------------------------------------------------------------------- bytes
@pytest.mark.parametrize("code", ["i", "q"])
def test_rows_come_out_as_they_went_in(code: str) -> None:
    there = column(ROWS, code)
    assert len(there) == len(ROWS)
    for first in range(len(ROWS) + 1):
        for last in range(first, len(ROWS) + 1):
            assert there.slices(first, last) == ROWS[first:last]
            assert there.sizes(first, last) == [len(row or b"") for row in ROWS[first:last]]
    assert [there.is_null(row) for row in range(len(ROWS))] == [row is None for row in ROWS]


@pytest.mark.parametrize("form", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
@pytest.mark.parametrize("first", [0, 1, 3, 9, 10])
def test_an_arrow_array_is_taken_as_it_is_also_a_slice_of_one(form: Any, first: int) -> None:
    array_ = pa.array([None if row is None else row.decode() for row in ROWS], pa.string()).cast(form)
    there = BytesColumn.from_arrow(array_.slice(first))
    assert there.slices(0, len(there)) == ROWS[first:]


def test_the_data_of_an_arrow_array_are_not_copied() -> None:
    array_ = pa.array([b"x" * 100] * 10, pa.binary())
    there = BytesColumn.from_arrow(array_)
    assert numpy.frombuffer(there.data, numpy.uint8).ctypes.data == array_.buffers()[2].address


def test_an_empty_arrow_array_has_no_rows() -> None:
    assert len(BytesColumn.from_arrow(pa.array([], pa.binary()))) == 0
    assert len(HeadersColumn.from_arrow(pa.array([], HEADERS))) == 0
    assert len(IntColumn.from_arrow(pa.array([], pa.int32()))) == 0


@pytest.mark.parametrize("first", range(9))
@pytest.mark.parametrize("null", [None, 0, 7, 8, 20])
def test_a_bitmap_that_names_no_null_is_not_kept(first: int, null: int | None) -> None:
    bits = (1 << 40) - 1
    if null is not None:
        bits ^= 1 << (first + null)
    rows = BytesColumn(array("i", range(41)), b"x" * 40, bits.to_bytes(5, "little"), first, 21)
    assert (rows.validity is None) == (null is None)
    assert [row for row in range(21) if rows.is_null(row)] == ([] if null is None else [null])
    others = (1 << first) - 1 | ((1 << 19) - 1) << first + 21  # null, but not ours
    assert BytesColumn(array("i", range(41)), b"x" * 40, (bits & ~others).to_bytes(5, "little"), first, 21).is_null(
        20
    ) == (null == 20)


def test_a_piece_of_the_buffers_is_a_column() -> None:
    data = [row or b"" for row in ROWS]
    offsets = numpy.array(list(accumulate(map(len, data), initial=0)), dtype=numpy.int64)
    there = BytesColumn(offsets, b"".join(data), bitmap(ROWS), offset=3, length=4)
    assert there.slices(0, 4) == ROWS[3:7]


def test_later_changes_of_offsets_or_nulls_change_nothing() -> None:
    offsets, nulls = array("i", [0, 3, 6]), bytearray(b"\x03")
    there = BytesColumn(offsets, b"onetwo", nulls)
    offsets[1] = 1_000_000
    nulls[0] = 0
    assert there.slices(0, 2) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: BytesColumn(array("i", [0, 5]), b"four"), "offsets go from 0 to 5, outside of 0 to 4"),
        (lambda: BytesColumn(array("i", [-1, 2]), b"four"), "offsets go from -1 to 2"),
        (lambda: BytesColumn(array("i", [0, 3, 2, 4]), b"four"), "offsets descend behind row 1"),
        (lambda: BytesColumn(numpy.array([0, 4] * 999 + [4], "i"), b"four"), "offsets descend behind row 1"),
        (lambda: BytesColumn(array("h", [0, 4]), b"four"), "must be int32 or int64"),
        (lambda: BytesColumn(array("I", [0, 4]), b"four"), "must be int32 or int64"),
        (lambda: BytesColumn(array("d", [0, 4]), b"four"), "must be int32 or int64"),
        (lambda: BytesColumn(bytes(8), b"four"), "must be int32 or int64"),
        (lambda: BytesColumn([0, 4], b"four"), "offsets: memoryview"),
        (lambda: BytesColumn(array("i", [0, 4]), "four"), "data: memoryview"),
        (lambda: BytesColumn(numpy.arange(20, dtype="i")[::2], b"x" * 99), "one contiguous piece"),
        (lambda: BytesColumn(array("i", [0, 4]), b"four", b""), "validity has 0 bits for 1 rows"),
        (lambda: BytesColumn(array("i", [0, 4]), b"four", length=2), "2 rows from 0 on need more offsets"),
        (lambda: BytesColumn(array("i", [0, 4]), b"four", length=-1), "-1 rows"),
        (lambda: BytesColumn(array("i", [0, 4]), b"four", offset=-1), "the offset is -1"),
        (lambda: BytesColumn(array("i", [0, 4]), b"four", offset=2), "the offset is 2"),
        (lambda: BytesColumn(array("i", [0, 4]), b"four", offset="0"), "the offset must be an int, not str"),  # type: ignore[arg-type]
        (lambda: BytesColumn(array("i", [0, 4]), b"four", offset=True), "the offset must be an int, not bool"),
        (lambda: BytesColumn(array("i", [0, 4]), b"four", length=1.0), "the length must be an int, not float"),  # type: ignore[arg-type]
        (lambda: BytesColumn(array("i", [0, 1]), array("i", [1])), "data must be bytes, not format 'i'"),
        (lambda: BytesColumn(array("i", [0, 4]), b"four", numpy.array([True])), "validity must be bytes, not format '\\?'"),
        (lambda: IntColumn(array("i", [0]), offset=None), "the offset must be an int, not NoneType"),  # type: ignore[arg-type]
        (lambda: HeadersColumn.from_arrow(5), "structs, not int"),
        (lambda: BytesColumn.from_arrow(pa.array([1])), "binary or string is needed, not of int64"),
        (lambda: BytesColumn.from_arrow(pa.array(["a"]).dictionary_encode()), "cast it"),
        (lambda: BytesColumn.from_arrow(pa.chunked_array([["a"]])), "combine_chunks"),
        (lambda: BytesColumn.from_arrow([b"a"]), "is needed, not of list"),
        (lambda: IntColumn(array("b", [1])), "must be int32 or int64"),
        (lambda: IntColumn.from_arrow(pa.array([1.5])), "is needed, not of double"),
        (lambda: IntColumn.from_arrow(pa.array([1], pa.timestamp("us"))), r"not of timestamp\[us\]"),
        (lambda: HeadersColumn.from_arrow(pa.array([["a"]])), "list of"),
        (lambda: HeadersColumn.from_arrow(pa.array(["a"])), "list of"),
        (lambda: HeadersColumn.from_arrow(pa.array([[None]], HEADERS)), "a header is null"),
        (lambda: HeadersColumn.from_arrow(pa.array([[{"key": None, "value": b""}]], HEADERS)), "name of header 0 is null"),
        (
            lambda: HeadersColumn(array("i", [0, 2]), column([b"\xc3", b"\xa4"]), column([b"", b""])),
            "name of header 0 is not UTF-8",
        ),
        (lambda: HeadersColumn(array("i", [0, 2]), column([b"a"]), column([b"b"])), "outside of 0 to 1"),
        (lambda: HeadersColumn(array("i", [0, 1]), column([b"a"]), column([])), "1 names of headers and 0 values"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_when_it_is_made(make: Callable[[], object], text: str) -> None:
    with pytest.raises(InvalidColumnError, match=text):
        make()


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (None, "a header is null"),
        ({"key": None, "value": b""}, "the name of header 1 is null"),
        ({"key": b"\xff", "value": b""}, "the name of header 1 is not UTF-8"),
    ],
)
@pytest.mark.parametrize("first", range(4))
def test_a_header_that_does_not_fit_is_told_with_its_row(bad: object, text: str, first: int) -> None:
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    good = {"key": b"a", "value": b"1"}
    there = pa.array([[good], None, [], [good, bad, good], [good]], kind)
    with pytest.raises(InvalidColumnError, match=text) as caught:
        HeadersColumn.from_arrow(there.slice(first))
    assert caught.value.row == 3 - first
    assert len(HeadersColumn.from_arrow(there.slice(0, 3))) == 3
    assert len(HeadersColumn.from_arrow(there.slice(4))) == 1


# ---------------------------------------------------------------------- numbers and headers
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
PAIRS: list[Any] = [
    [{"key": "a", "value": b"1"}, {"key": "ä", "value": None}],
    None,
    [],
    [{"key": "", "value": b""}],
    [{"key": "a" * 200, "value": b"x" * 9000}],
]


@pytest.mark.parametrize("first", range(6))
def test_headers_of_an_arrow_array_stand_in_records_as_those_of_send(first: int) -> None:
    there = HeadersColumn.from_arrow(pa.array(PAIRS, HEADERS).slice(first))
    rows = there.encoded(0, len(there))
    wanted = [None if not pairs else tuple((pair["key"], pair["value"]) for pair in pairs) for pairs in PAIRS[first:]]
    assert [None if row is None else decode_headers(row) for row in rows] == wanted
    assert all(len(row or b"") <= bound for row, bound in zip(rows, there.bounds(0, len(there)), strict=True))


@pytest.mark.parametrize(
    "form",
    [
        pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())])),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.map_(pa.string(), pa.binary()),
    ],
)
def test_headers_come_in_several_forms(form: Any) -> None:
    rows = [[("a", b"1"), ("b", None)], None, [("c", b"2")]]
    of_structs = [None if row is None else [{"key": name, "value": value} for name, value in row] for row in rows]
    there = HeadersColumn.from_arrow(pa.array(rows if pa.types.is_map(form) else of_structs, form))
    wanted = [None if row is None else tuple(row) for row in rows]
    assert [None if row is None else decode_headers(row) for row in there.encoded(0, 3)] == wanted


@pytest.mark.parametrize("form", [pa.int32(), pa.int64(), pa.timestamp("ms")])
def test_numbers_of_an_arrow_array_come_out_as_they_went_in(form: Any) -> None:
    rows = [1, None, 3, None, 5, 6, 7, 8, None]
    there = IntColumn.of(pa.array(rows, form).slice(1))
    assert there.rows(0, 8) == rows[1:]
    assert there.rows(2, 5) == rows[3:6]


def test_numbers_of_a_buffer_have_no_nulls_unless_a_bitmap_says_so() -> None:
    assert IntColumn.of(array("i", [1, 2, 3])).rows(0, 3) == [1, 2, 3]
    assert IntColumn.of(numpy.array([1, 2, 3])).rows(1, 2) == [2]
    there = IntColumn(array("i", [1, 2, 3]), b"\x05")
    assert IntColumn.of(there) is there
    assert there.rows(0, 3) == [1, None, 3]


@pytest.mark.parametrize("given", [[0, 1], (0, 1), range(2)])
def test_numbers_that_are_no_buffer_are_told_with_the_argument(given: object) -> None:
    with pytest.raises(
        InvalidColumnError, match=r"^partitions must be a buffer of int32 or int64 .* not (list|tuple|range)"
    ):
        IntColumn.of(given, "partitions")
