"""The patterns of a group's members: each topic is compared once, and no heartbeat looks at too much."""

from __future__ import annotations

import pytest

from aiokprod.testing.mock.groups.patterns import MAX_PATTERNS, MOST_CHARACTERS, GroupPatterns
from aiokprod.testing.mock.name_pattern import NamePattern


def test_a_group_compares_each_topic_once_and_keeps_its_work_within_bounds() -> None:
    patterns = GroupPatterns()
    text = "a+[0-9]+b"
    names = {f"{'a' * 200}{number}b" for number in range(200)}
    patterns.look({text}, names)
    at_first = len(patterns.found(text))
    assert MOST_CHARACTERS // 205 <= at_first < 200, "the rest is looked at later"
    patterns.look({text}, names)
    patterns.look({text}, names)
    assert len(patterns.found(text)) == 200
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NamePattern, "matches", lambda _pattern, _name: pytest.fail("compared again"))
        patterns.look({text}, names)
    patterns.look({text}, names - {f"{'a' * 200}7b"} | {"a1b"})
    assert len(patterns.found(text)) == 200 and "a1b" in patterns.found(text)
    patterns.look({"b"}, {"b", "c"})
    assert (patterns.found("b"), patterns.found(text)) == ({"b"}, frozenset())
    assert repr(patterns) == "<GroupPatterns ['b']>"


def test_the_patterns_of_a_group_are_bounded() -> None:
    patterns = GroupPatterns()
    patterns.look({f"x{number}" for number in range(MAX_PATTERNS)}, {"x1"})
    patterns.check("x7")
    with pytest.raises(ValueError, match="at most"):
        patterns.check("y")
    with pytest.raises(ValueError, match="missing"):
        GroupPatterns().check("(")
