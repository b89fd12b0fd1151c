"""Headers: the fast way and the slow way make the same bytes, and the fast way leaves what is not plain to the slow one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod.records.decoder import decode_headers
from aiokprod.records.headers import KEPT_NAMES, _names, encode_headers, encode_plain

QUICK = settings(deadline=None, derandomize=True, database=None)
pairs = st.lists(st.tuples(st.text(max_size=200), st.none() | st.binary(max_size=300)), max_size=6)


@given(pairs)
@QUICK
def test_pairs_come_back(headers: list[tuple[str, bytes | None]]) -> None:
    assert decode_headers(encode_headers(headers)) == tuple(headers)


@given(pairs)
@QUICK
def test_both_ways_make_the_same_bytes(headers: list[tuple[str, bytes | None]]) -> None:
    expected = encode_headers(headers)  # it keeps the names now, but for long ones
    if any(not name.isascii() and name not in _names for name, _ in headers):
        assert encode_plain(headers) is encode_plain(tuple(headers)) is None  # left to the slow way
    else:
        assert encode_plain(headers) == encode_plain(tuple(headers)) == expected


@pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 16383, 16384, 100_000])
def test_lengths_at_the_boundaries(size: int) -> None:
    headers = [("n" * (size or 1), b"v" * size)]
    assert decode_headers(encode_headers(headers)) == tuple(headers)
    assert encode_plain(headers) == encode_headers(headers)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "other",
    [
        {"a": b"b"}, "ab", b"ab", 7, iter([("a", b"b")]), [["a", b"b"]], [("a",)], [("a", b"b", b"c")], [(b"a", b"b")],
        [(None, b"b")], [("a", "b")], [("a", bytearray(b"b"))], [("a", memoryview(b"b"))], [None], [("\ud800", b"")],
    ],
)  # fmt: skip
def test_what_is_not_plain_is_left_to_the_slow_way(other: Any) -> None:
    assert encode_plain(other) is None


def test_a_name_that_was_not_seen_is_taken_if_it_is_ascii() -> None:
    assert encode_plain([("never-seen-before", b"x")]) == encode_headers([("never-seen-before", b"x")])
    assert encode_plain([("n\u00e9ver seen", b"x")]) is None
    assert encode_plain([(Text("a subclass"), b"x")]) == encode_headers([("a subclass", b"x")])


def test_remembering_names_is_bounded() -> None:
    before = dict(_names)
    try:
        for number in range(KEPT_NAMES + 50):
            encode_headers([(f"a-name-{number}", None)])
        encode_headers([("long" * 100, None)])
        assert len(_names) == KEPT_NAMES
        assert "long" * 100 not in _names
        assert decode_headers(encode_headers([("one more", b"x")])) == (("one more", b"x"),)
    finally:
        _names.clear()
        _names.update(before)
