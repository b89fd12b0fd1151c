"""Patterns of clients: RE2's syntax, bounds, and what is said without the package."""

from __future__ import annotations

import sys

import pytest

from aiokprod.testing.mock.name_pattern import NamePattern

NAMES = ["", "a", "b", "ab", "Ab", "a.b", "a-b", "orders", "orders-1", "ä"]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("", [""]),
        ("a|b", ["a", "b"]),
        ("(?i)ab", ["ab", "Ab"]),
        ("orders(-[0-9]+)?", ["orders", "orders-1"]),
        ("rders", []),
        (r"a\Q.\Eb", ["a.b"]),
        (r"[[:alpha:]]{2}", ["ab", "Ab"]),
        (r"\p{L}", ["a", "b", "ä"]),
    ],
)
def test_the_whole_name_matches(pattern: str, matched: list[str]) -> None:  # broker: 22.15
    compiled = NamePattern(pattern)
    assert [name for name in NAMES if compiled.matches(name)] == matched
    assert repr(compiled) == f"<NamePattern {pattern!r}>"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing"),
        (r"(a)\1", "invalid escape"),
        ("(?=a)", "invalid perl operator"),
        ("a{1001}", "invalid repetition"),
        ("(.{0,500}){2}b", "too large"),
        ("x" * 1001, "longer than 1000 characters"),
    ],
)
def test_patterns_that_are_refused(pattern: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        NamePattern(pattern)


def test_a_pattern_that_python_would_match_for_years_is_matched() -> None:
    assert not NamePattern("(a+)+b").matches("a" * 249)
    assert not NamePattern("(.*.*.*.*.*.*.*.*)*b").matches("a" * 249)


def test_without_the_package_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(ValueError, match="pip install google-re2"):
        NamePattern("a")
