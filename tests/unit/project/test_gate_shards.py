"""Each long test belongs to one shard, and each commit plays one."""

from __future__ import annotations

from collections import Counter

import pytest
from gate.shards import Shard, shard_of_commit

TESTS = [
    f"tests/real/test_{file}.py::test_{name}[{release}]" for file in range(40) for name in range(10) for release in "ab"
]


@pytest.mark.parametrize("of", [1, 2, 12, 50])
def test_each_test_belongs_to_exactly_one_shard(of: int) -> None:
    shards = [Shard(number, of) for number in range(1, of + 1)]
    assert all(sum(shard.holds(test) for shard in shards) == 1 for test in TESTS)


def test_shards_are_of_like_size() -> None:
    counts = Counter(number for number in range(1, 13) for test in TESTS if Shard(number, 12).holds(test))
    assert len(counts) == 12
    assert max(counts.values()) < 2 * len(TESTS) / 12


def test_a_new_test_moves_no_other_one() -> None:
    assert [Shard(3, 12).holds(test) for test in TESTS] == [Shard(3, 12).holds(test) for test in [*TESTS, "new"][:-1]]
    # The same on every machine and in every process.
    assert [n for n in range(1, 13) if Shard(n, 12).holds("tests/real/test_a.py::test_b")] == [7]


def test_commits_draw_all_shards() -> None:
    drawn = {str(shard_of_commit(f"{number:040x}", 12)) for number in range(200)}
    assert drawn == {f"{number}/12" for number in range(1, 13)}


@pytest.mark.parametrize("text", ["", "3", "3/", "/12", "0/12", "13/12", "-1/12", "a/b", "1/0", "3/12/1"])
def test_what_names_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="shard"):
        Shard.parse(text)


def test_a_shard_is_read_as_it_is_written() -> None:
    assert Shard.parse("3/12") == Shard(3, 12)
    assert str(Shard(3, 12)) == "3/12"
