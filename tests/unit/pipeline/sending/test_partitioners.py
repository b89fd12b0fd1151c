"""Partitioners: where records go, when it changes, and what is passed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from aiokprod.config.producer_config import PARTITIONERS
from aiokprod.errors import ConfigError, PartitionerError
from aiokprod.pipeline.partition.batch_fill import BatchFill
from aiokprod.pipeline.sending.hashes import (
    crc32_partition,
    fnv1a_partition,
    fnv1a_reference_partition,
    murmur2_partition,
)
from aiokprod.pipeline.sending.partitioners import TopicPartitioner, make_partitioner

ALL = PARTITIONERS
HASHES = {
    "uniform_sticky": murmur2_partition,
    "sticky": murmur2_partition,
    "murmur2": murmur2_partition,
    "murmur2_random": murmur2_partition,
    "crc32": crc32_partition,
    "consistent": crc32_partition,
    "fnv1a": fnv1a_partition,
    "fnv1a_reference": fnv1a_reference_partition,
}
KEYS = [b"a", b"ab", b"orders-42", b"k" * 300, *(b"key-%d" % at for at in range(300))]


def partitioner(
    name: str | Callable[..., Any],
    count: int = 6,
    available: Sequence[int] | None = None,
    *,
    ignore_keys: bool = False,
    adaptive: bool = True,
    batch_size: int = 1000,
    seed: int = 1,
) -> TopicPartitioner:
    made = make_partitioner(
        name, ignore_keys=ignore_keys, adaptive=adaptive, fill=BatchFill(batch_size, batch_size), random=Random(seed)
    )
    made.update(count, list(range(count)) if available is None else list(available), 0.0)
    return made


def choices(made: TopicPartitioner, count: int, size_bytes: int = 1) -> list[int]:
    return [made.choose(None, size_bytes) for _ in range(count)]


def runs(chosen: list[int]) -> list[tuple[int, int]]:
    """Return (partition, how often in a row)."""
    found: list[tuple[int, int]] = []
    for partition in chosen:
        if found and found[-1][0] == partition:
            found[-1] = (partition, found[-1][1] + 1)
        else:
            found.append((partition, 1))
    return found


def even(counts: Counter[int], partitions: Sequence[int], tolerance: float = 0.15) -> bool:
    """Return whether all of the partitions are chosen about equally often, and no other."""
    mean = counts.total() / len(partitions)
    return set(counts) == set(partitions) and all(abs(each - mean) <= tolerance * mean for each in counts.values())


# ---------------------------------------------------------------------- keys


@pytest.mark.parametrize("name", HASHES)
@pytest.mark.parametrize("count", [1, 6, 97])
def test_keys_go_by_their_hash_over_all_partitions(name: str, count: int) -> None:
    made = partitioner(name, count, [0])  # also to those without a leader: a key does not move
    for _ in range(2):
        assert [made.choose(key, 10) for key in KEYS] == [HASHES[name](key, count) for key in KEYS]


@pytest.mark.parametrize("name", HASHES)
def test_keys_follow_a_topic_that_grew(name: str) -> None:
    made = partitioner(name, 6)
    before = [made.choose(key, 10) for key in KEYS]
    made.update(12, list(range(12)), 1.0)
    after = [made.choose(key, 10) for key in KEYS]
    assert after == [HASHES[name](key, 12) for key in KEYS] != before


@pytest.mark.parametrize("name", ["uniform_sticky", "sticky"])
def test_keys_can_be_ignored(name: str) -> None:
    made = partitioner(name, ignore_keys=True)
    assert len({made.choose(key, 1) for key in KEYS}) == 1


@pytest.mark.parametrize("name", ["round_robin", "random"])
def test_some_do_not_look_at_keys(name: str) -> None:
    made = partitioner(name)
    assert len({made.choose(b"one key", 1) for _ in range(100)}) == 6


@pytest.mark.parametrize(
    ("name", "of_none", "of_empty"),
    [
        ("consistent", 0, 0),
        ("murmur2", murmur2_partition(b"", 97), murmur2_partition(b"", 97)),
        ("murmur2_random", None, murmur2_partition(b"", 97)),
        ("fnv1a", None, fnv1a_partition(b"", 97)),
        ("fnv1a_reference", None, fnv1a_reference_partition(b"", 97)),
        ("crc32", None, None),  # librdkafka's consistent_random: any partition for an empty key too
        ("uniform_sticky", None, murmur2_partition(b"", 97)),
    ],
)
def test_no_key_and_an_empty_key(name: str, of_none: int | None, of_empty: int | None) -> None:
    for key, expected in ((None, of_none), (b"", of_empty)):
        made = partitioner(name, 97, batch_size=1)
        found = {made.choose(key, 1) for _ in range(200)}
        if expected is None:
            assert len(found) > 50
        else:
            assert found == {expected}


# ---------------------------------------------------------------------- records without a key


@pytest.mark.parametrize("name", ALL)
def test_every_choice_is_a_partition(name: str) -> None:
    made = partitioner(name, 7, [1, 3])
    for key in [None, b"", *KEYS]:
        assert 0 <= made.choose(key, 100) < 7


@pytest.mark.parametrize("name", ["uniform_sticky", "round_robin", "random", "murmur2_random", "crc32", "fnv1a"])
def test_the_distribution_is_even(name: str) -> None:
    made = partitioner(name, 8, batch_size=10)
    assert even(Counter(choices(made, 40_000, 5)), range(8))


@pytest.mark.parametrize("name", ["uniform_sticky", "round_robin", "random", "murmur2_random", "crc32", "fnv1a"])
def test_partitions_without_a_leader_are_passed_over(name: str) -> None:
    made = partitioner(name, 8, [1, 2, 5], batch_size=10)
    assert even(Counter(choices(made, 20_000, 5)), [1, 2, 5])


@pytest.mark.parametrize("name", ALL)
def test_without_any_leader_all_are_taken(name: str) -> None:
    made = partitioner(name, 4, [])
    assert made.available == [0, 1, 2, 3]
    assert made.choose(None, 1) in range(4)


@pytest.mark.parametrize("name", ALL)
def test_one_partition_gets_everything(name: str) -> None:
    made = partitioner(name, 1)
    assert set(choices(made, 50, 600)) == {0}
    made.on_new_batch(0)
    made.on_new_batch(0)
    made.update_load([50_000], [0])
    assert set(choices(made, 50, 600)) == {0}


@pytest.mark.parametrize("name", ["uniform_sticky", "sticky", "random"])
def test_the_seed_decides(name: str) -> None:
    made, again = partitioner(name, 50, seed=5, batch_size=3), partitioner(name, 50, seed=5, batch_size=3)
    assert choices(made, 100) == choices(again, 100)


def test_users_lists_are_not_kept() -> None:
    available = [0, 1]
    made = partitioner("random", 2)
    made.update(2, available, 0.0)
    available.clear()
    assert made.choose(None, 1) in (0, 1)


# ---------------------------------------------------------------------- uniform sticky


def test_a_partition_is_kept_for_a_batch_of_bytes() -> None:
    made = partitioner("uniform_sticky", 50, batch_size=1000)
    assert all(length % 10 == 0 for _, length in runs(choices(made, 1000, 100)))
    assert len(runs(choices(made, 1000, 100))) > 50


def test_records_of_any_size_share_evenly_by_bytes() -> None:
    made = partitioner("uniform_sticky", 5, batch_size=1000)
    sizes = Random(9)
    got: Counter[int] = Counter()
    for _ in range(100_000):
        size = sizes.choice((10, 10, 10, 900))
        got[made.choose(None, size)] += size
    assert even(got, range(5), 0.05)


def test_a_record_larger_than_a_batch_takes_its_turn_alone() -> None:
    made = partitioner("uniform_sticky", 50, batch_size=1000)
    assert all(length <= 3 for _, length in runs(choices(made, 300, 5000)))  # by chance the same one is drawn again


def test_a_partition_that_lost_its_leader_is_left_at_once_and_another_change_is_no_reason() -> None:
    made = partitioner("uniform_sticky", 10, batch_size=10**9)
    first = made.choose(None, 1)
    made.update(10, [first, (first + 1) % 10], 1.0)
    assert made.choose(None, 1) == first
    made.update(10, [(first + 1) % 10], 2.0)
    assert made.choose(None, 1) == (first + 1) % 10


def test_batches_opened_do_not_move_it() -> None:
    made = partitioner("uniform_sticky", 10, batch_size=10**9)
    first = made.choose(None, 1)
    for _ in range(5):
        made.on_new_batch(first)
    assert set(choices(made, 100)) == {first}


def test_partitions_with_less_waiting_are_drawn_more_often() -> None:
    made = partitioner("uniform_sticky", 3, batch_size=100)
    made.update_load([0, 200, 400], [])  # in batches 0, 2, 4: weights 5, 3, 1
    counts = Counter(choices(made, 90_000, 100))
    assert [round(counts[at] / 10_000, 1) for at in range(3)] == pytest.approx([5, 3, 1], abs=0.15)


def test_less_than_a_batch_waiting_does_not_count() -> None:
    made = partitioner("uniform_sticky", 4, batch_size=100)
    made.update_load([0, 99, 50, 1], [])
    assert even(Counter(choices(made, 20_000, 100)), range(4))


def test_load_that_is_gone_is_forgotten() -> None:
    made = partitioner("uniform_sticky", 4, batch_size=100)
    made.update_load([10_000, 0, 0, 0], [])
    assert Counter(choices(made, 20_000, 100))[0] < 200
    made.update_load([0, 0, 0, 0], [])
    assert even(Counter(choices(made, 20_000, 100)), range(4))


def test_partitions_that_do_not_drain_get_nothing() -> None:
    made = partitioner("uniform_sticky", 4, batch_size=100)
    made.update_load([0, 0, 0, 0], [1, 3])
    assert even(Counter(choices(made, 20_000, 100)), [0, 2])
    made.update_load([0, 0, 0, 0], [])
    assert even(Counter(choices(made, 20_000, 100)), range(4))


def test_the_current_partition_is_left_when_it_does_not_drain() -> None:
    made = partitioner("uniform_sticky", 4, batch_size=10**9)
    first = made.choose(None, 1)
    made.update_load([0, 0, 0, 0], [first])
    assert made.choose(None, 1) != first


def test_when_none_drains_all_are_taken() -> None:
    made = partitioner("uniform_sticky", 4, batch_size=100)
    made.update_load([300, 300, 300, 300], [0, 1, 2, 3])
    assert even(Counter(choices(made, 20_000, 100)), range(4))


def test_load_counts_only_where_there_is_a_leader() -> None:
    made = partitioner("uniform_sticky", 4, [1, 2], batch_size=100)
    made.update_load([0, 400, 0, 0], [])
    counts = Counter(choices(made, 60_000, 100))
    assert set(counts) == {1, 2}
    assert counts[2] / counts[1] == pytest.approx(5, rel=0.1)


def test_metadata_forgets_the_load_until_it_is_told_again() -> None:
    made = partitioner("uniform_sticky", 4, batch_size=100)
    made.update_load([10_000, 0, 0, 0], [])
    made.update(4, [0, 1, 2], 1.0)
    assert even(Counter(choices(made, 20_000, 100)), [0, 1, 2])


@pytest.mark.parametrize("waiting", [[], [1, 2, 3], [1] * 5])
def test_a_load_of_another_number_of_partitions_is_stale(waiting: list[int]) -> None:
    made = partitioner("uniform_sticky", 4, batch_size=100)
    made.update_load(waiting, [])
    assert even(Counter(choices(made, 20_000, 100)), range(4))


def test_it_can_be_told_not_to_adapt() -> None:
    made = partitioner("uniform_sticky", 4, batch_size=100, adaptive=False)
    made.update_load([10_000, 0, 0, 0], [1])
    assert even(Counter(choices(made, 20_000, 100)), range(4))


def test_records_stay_with_a_partition_for_as_many_bytes_as_a_batch_takes() -> None:
    fill = BatchFill(1_000, 8_000)
    made = make_partitioner("uniform_sticky", ignore_keys=False, adaptive=True, fill=fill, random=Random(1))
    made.update(50, list(range(50)), 0.0)
    assert {length % 10 for _, length in runs(choices(made, 200, 100))} == {0}
    for _ in range(100):
        fill.packed(8_000, 1, 0.0)
    choices(made, 200, 100)
    assert {length % 80 for _, length in runs(choices(made, 1_600, 100))[1:-1]} == {0}


@pytest.mark.parametrize("name", ALL)
def test_a_load_before_any_metadata_is_nothing(name: str) -> None:
    made = make_partitioner(name, ignore_keys=False, adaptive=True, fill=BatchFill(100, 100), random=Random(1))
    made.update_load([], [])
    made.update(2, [1], 0.0)
    assert made.choose(None, 1) in (0, 1)


# ---------------------------------------------------------------------- sticky


def test_sticky_moves_with_the_second_batch_of_its_partition() -> None:
    made = partitioner("sticky", 10)
    first = made.choose(None, 1)
    made.on_new_batch(first)  # the one it was drawn for
    assert set(choices(made, 100, 10**6)) == {first}
    made.on_new_batch((first + 1) % 10)  # of a record with a key
    assert made.choose(None, 1) == first
    made.on_new_batch(first)
    assert made.choose(None, 1) != first


def test_sticky_shares_evenly_by_batches() -> None:
    made = partitioner("sticky", 5)
    counts: Counter[int] = Counter()
    for _ in range(20_000):
        partition = made.choose(None, 1)
        counts[partition] += 1
        made.on_new_batch(partition)
    assert even(counts, range(5), 0.1)


def test_sticky_draws_each_of_the_others_alike_whichever_it_leaves() -> None:
    made = partitioner("sticky", 10, [7, 2, 9, 4])
    followed: dict[int, Counter[int]] = {at: Counter() for at in (7, 2, 9, 4)}
    before = -1
    for _ in range(40_000):
        partition = made.choose(None, 1)
        if partition != before and before >= 0:
            followed[before][partition] += 1
        before = partition
        made.on_new_batch(partition)
    for left, drawn in followed.items():
        assert even(drawn, [at for at in (7, 2, 9, 4) if at != left], 0.1)


def test_sticky_leaves_a_partition_that_lost_its_leader_and_begins_again() -> None:
    made = partitioner("sticky", 10)
    first = made.choose(None, 1)
    made.on_new_batch(first)
    made.update(10, [at for at in range(10) if at != first], 1.0)
    second = made.choose(None, 1)
    assert second != first
    made.on_new_batch(second)  # the one it was drawn for, although the one before was opened elsewhere
    assert set(choices(made, 10)) == {second}
    made.on_new_batch(second)
    assert made.choose(None, 1) not in (first, second)


def test_sticky_stays_when_metadata_changes_elsewhere() -> None:
    made = partitioner("sticky", 10)
    first = made.choose(None, 1)
    made.update(20, [first, 15], 1.0)
    assert made.choose(None, 1) == first


# ---------------------------------------------------------------------- round robin


def test_round_robin_goes_round() -> None:
    made = partitioner("round_robin", 5)
    chosen = choices(made, 20)
    assert [(after - before) % 5 for before, after in pairwise(chosen)] == [1] * 19


def test_round_robin_starts_anywhere() -> None:
    assert {partitioner("round_robin", 5, seed=seed).choose(None, 1) for seed in range(60)} == set(range(5))


def test_round_robin_passes_over_and_survives_a_change() -> None:
    made = partitioner("round_robin", 9)
    choices(made, 7)
    made.update(9, [2, 4, 6], 1.0)
    assert sorted(choices(made, 3)) == [2, 4, 6]
    made.update(9, [8], 2.0)
    assert choices(made, 3) == [8, 8, 8]


# ---------------------------------------------------------------------- a function of the user


def test_a_function_is_given_the_key_all_partitions_and_those_with_a_leader() -> None:
    asked: list[tuple[bytes | None, list[int], list[int]]] = []

    def mine(key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        asked.append((key, list(every), list(available)))
        return available[-1]

    made = partitioner(mine, 4, [0, 2])
    assert [made.choose(b"k", 1), made.choose(None, 1)] == [2, 2]
    assert asked == [(b"k", [0, 1, 2, 3], [0, 2]), (None, [0, 1, 2, 3], [0, 2])]


def test_a_function_cannot_change_what_the_next_call_is_given() -> None:
    def greedy(key: bytes | None, every: Sequence[int], available: Any) -> int:
        if hasattr(available, "pop"):
            available.pop()
        return int(available[0])

    made = partitioner(greedy, 3)
    assert [made.choose(None, 1) for _ in range(5)] == [0] * 5
    assert made.available == [0, 1, 2]


@pytest.mark.parametrize("returned", [4, -1, 10**6])
def test_a_partition_that_does_not_exist_is_refused(returned: int) -> None:
    with pytest.raises(PartitionerError, match=f"returned {returned}; the topic has partitions 0 to 3"):
        partitioner(lambda *_: returned, 4).choose(None, 1)


@pytest.mark.parametrize("returned", [None, "1", 1.0, True])
def test_a_return_that_is_no_number_is_refused(returned: Any) -> None:
    with pytest.raises(PartitionerError, match="not an int"):
        partitioner(lambda *_: returned, 4).choose(None, 1)


def test_a_function_that_raises_is_named_with_its_cause() -> None:
    def broken(*_: object) -> int:
        raise KeyError("customer")

    with pytest.raises(PartitionerError, match="the partitioner raised KeyError") as caught:
        partitioner(broken).choose(None, 1)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="partitioner 'best' is unknown"):
        partitioner("best")


def test_the_base_chooses_nothing() -> None:
    with pytest.raises(AssertionError, match="abstract"):
        TopicPartitioner(Random(1)).choose(None, 1)
