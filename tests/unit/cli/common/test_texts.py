"""Bytes as text: what is shown is one printable line, and can be read back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.cli.common.texts import escaped, printable, printable_json, unescaped


@given(st.none() | st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_what_is_shown_is_one_printable_line_and_can_be_read_back(data: bytes | None) -> None:
    text = escaped(data)
    assert text.isprintable()
    assert unescaped(text.encode()) == data


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"plain", "plain"), ("Ünïcödé 日本".encode(), "Ünïcödé 日本"), (b"", ""), (None, "\\N"), (b"\\N", "\\\\N"),
        (b"a\nb\tc\rd", "a\\nb\\tc\\rd"), (b"\x1b[31m", "\\x1b[31m"), (b"\xff\x00", "\\xff\\x00"),
        ("\u2028".encode(), "\\xe2\\x80\\xa8"), ("\x85".encode(), "\\xc2\\x85"),
    ],
)  # fmt: skip
def test_how_bytes_are_shown(data: bytes | None, text: str) -> None:
    assert escaped(data) == text


@pytest.mark.parametrize("line", [b"a\\", b"\\q", b"\\x1", b"\\xzz"])
def test_a_backslash_that_begins_no_escape_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError, match="is no escape"):
        unescaped(line)


@given(st.text())
def test_json_is_printable_and_means_the_same(text: str) -> None:
    line = printable_json(json.dumps(text, ensure_ascii=False))
    assert line.isprintable()
    assert json.loads(line) == text


@pytest.mark.parametrize(
    ("text", "line"), [("\udcff", "\\xff"), (repr("a\udc80"), "'a\\x80'"), ("é\x1b", "é\\x1b"), ("\ud800", "\\ud800")]
)
def test_bytes_that_are_not_utf8_are_shown_as_bytes(text: str, line: str) -> None:
    assert printable(text) == line
