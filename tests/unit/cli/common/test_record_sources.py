"""Records of lines: values with keys, CSV."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.cli.common.record_lines import LineError, Outgoing
from aiokprod.cli.common.record_sources import Csv, HeadError, Json, Source, Values


def taken(source: Source, text: str | bytes) -> list[Outgoing]:
    data = text.encode() if isinstance(text, str) else text
    found = [record for line in data.split(b"\n") for record in source.take(line)]
    source.end()
    return found


def values(
    key_separator: str | None = None,
    key_field: str | None = None,
    null: str | None = None,
    is_escaped: bool = False,
    skips_empty: bool = False,
) -> Values:
    return Values(key_separator, key_field, null, is_escaped, skips_empty)


def test_a_line_is_a_value() -> None:
    assert taken(values(), b"a\n\n\xff") == [Outgoing(b"a"), Outgoing(b""), Outgoing(b"\xff")]
    assert taken(values(skips_empty=True), "a\n\nb") == [Outgoing(b"a"), Outgoing(b"b")]
    assert taken(values(null="NULL"), "a\nNULL") == [Outgoing(b"a"), Outgoing(None)]


def test_a_line_is_a_key_and_a_value() -> None:
    assert taken(values(":", null=""), "k:v:w\n:x\nk:") == [
        Outgoing(b"v:w", b"k"),
        Outgoing(b"x", None),
        Outgoing(None, b"k"),
    ]
    with pytest.raises(LineError, match="no ':'"):
        taken(values(":"), "v")


def test_the_key_is_a_field_of_the_value() -> None:
    lines = '{"id": 7}\n{"id": "a"}\n{"id": null}'
    assert [record.key for record in taken(values(key_field="id"), lines)] == [b"7", b"a", None]
    with pytest.raises(LineError, match="no field 'id'"):
        taken(values(key_field="id"), "{}")


def test_lines_are_read_as_they_are_printed() -> None:
    assert taken(values("\t", is_escaped=True), "\\N\ta\\nb\nk\t\\xff") == [Outgoing(b"a\nb"), Outgoing(b"\xff", b"k")]
    with pytest.raises(LineError, match="is no escape"):
        taken(values(is_escaped=True), "\\q")


def test_a_partition_of_a_line_may_be_left_to_the_partitioner() -> None:
    line = '{"value": "v", "partition": 3}\n'
    assert [record.partition for record in taken(Json(True), line)] == [3]
    assert [record.partition for record in taken(Json(False), line)] == [None]


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=8)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=8))
def test_csv_is_what_pythons_csv_writes(rows: list[list[str]]) -> None:
    written = io.StringIO()
    csv.writer(written, lineterminator="\n").writerows([["a", "b"], *rows])
    found = taken(Csv(",", "a", None, None), written.getvalue())
    assert [json.loads(record.value or b"") for record in found] == [{"a": a, "b": b} for a, b in rows]
    assert [record.key for record in found] == [a.encode() for a, _ in rows]


def test_csv_with_a_column_as_value_and_nulls() -> None:
    found = taken(Csv(";", "id", "name", "NULL"), "\ufeffid;name\n1;x\nNULL;NULL")
    assert found == [Outgoing(b"x", b"1"), Outgoing(None, None)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a,b\n1", "1 field where the first row has 2"), ('a,b\n"1,2', "a quote"), ('a,b\n"x"y,2', "not CSV"),
        ("a,b\n" + '"\n' + "\n" * 10_001, "a quote"), (b"a,b\n\xff,1", "not UTF-8"),
    ],
)  # fmt: skip
def test_a_row_that_is_none_says_why(text: str | bytes, why: str) -> None:
    with pytest.raises(LineError, match=why):
        taken(Csv(",", None, None, None), text)


def test_a_column_that_is_asked_for_must_be_there() -> None:
    with pytest.raises(HeadError, match="no column 'id'; it has 'a', 'b'"):
        taken(Csv(",", "id", None, None), "a,b\n1,2")


def test_a_column_that_is_used_may_not_come_twice() -> None:
    for key, value in ((None, None), ("b", None), ("a", "b"), ("b", "a")):
        with pytest.raises(HeadError, match="the column 'a' more than once"):
            taken(Csv(",", key, value, None), "a,a,b\n1,2,3")
    assert taken(Csv(",", "b", "c", None), "a,a,b,c\n1,2,3,4") == [Outgoing(b"4", b"3")]


def test_texts_of_options_may_be_bytes_that_are_not_utf_8() -> None:
    assert taken(values("\udcfe", null="\udcff"), b"k\xfev\nk\xfe\xff") == [Outgoing(b"v", b"k"), Outgoing(None, b"k")]
    with pytest.raises(LineError, match=r"no '\\xfe' "):
        taken(values("\udcfe"), "v")
