"""The assignors `uniform` and `range`: even shares, subscriptions, little movement."""

from __future__ import annotations

from random import Random

import pytest

from aiokprod.testing.mock.groups.assignors import ASSIGNORS, Assignment, Share, TopicPartition

T, U = b"t" * 16, b"u" * 16


def shares(
    *names: str, topics: frozenset[bytes] = frozenset({T, U}), before: Assignment | None = None
) -> dict[str, Share]:
    return {name: Share(name, topics, frozenset((before or {}).get(name, ()))) for name in names}


def sizes(assignment: Assignment) -> list[int]:
    return sorted(len(share) for share in assignment.values())


def everything(assignment: Assignment) -> list[TopicPartition]:
    return sorted(where for share in assignment.values() for where in share)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_each_partition_has_one_owner_that_subscribes(name: str) -> None:
    random = Random(1)
    for _ in range(200):
        counts = {T: random.randrange(8), U: random.randrange(8)}
        before: Assignment = {}
        members: dict[str, Share] = {}
        for number in range(random.randrange(1, 6)):
            topics = frozenset(topic for topic in (T, U) if random.random() < 0.7)
            members[f"m{number}"] = Share(f"m{number}", topics, frozenset())
        for _ in range(3):
            given = ASSIGNORS[name](members, counts)
            assert given.keys() == members.keys()
            wanted = {topic for share in members.values() for topic in share.topics}
            assert everything(given) == sorted((t, i) for t, n in counts.items() if t in wanted for i in range(n))
            assert all(topic in members[one].topics for one, share in given.items() for topic, _ in share)
            before = given
            members.pop(random.choice(list(members)))
            members = {one: Share(one, share.topics, frozenset(before[one])) for one, share in members.items()}
            if not members:
                break


def test_no_members_get_nothing() -> None:
    assert [assign({}, {T: 3}) for assign in ASSIGNORS.values()] == [{}, {}]


def test_uniform_is_even_over_all_topics() -> None:
    given = ASSIGNORS["uniform"](shares("a", "b", "c"), {T: 4, U: 4})
    assert sizes(given) == [2, 3, 3]


def test_uniform_moves_no_more_than_needed() -> None:
    first = ASSIGNORS["uniform"](shares("a", "b"), {T: 7})
    second = ASSIGNORS["uniform"](shares("a", "b", "c", before=first), {T: 7})
    assert sizes(second) == [2, 2, 3]
    assert all(second[name] <= first[name] for name in ("a", "b"))
    third = ASSIGNORS["uniform"](shares("a", "b", before=second), {T: 7})
    assert all(third[name] >= second[name] for name in ("a", "b")) and sizes(third) == [3, 4]


def test_range_gives_partitions_that_follow_each_other() -> None:
    given = ASSIGNORS["range"](shares("b", "a"), {T: 3, U: 2})
    assert given == {"a": {(T, 0), (T, 1), (U, 0)}, "b": {(T, 2), (U, 1)}}
