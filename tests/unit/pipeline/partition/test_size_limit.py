"""`SizeLimit` against brokers with a limit: what it finds, and what that costs."""

from __future__ import annotations

import random

import pytest

from aiokprod.pipeline.partition.size_limit import MEMORY_S, SHARE, SizeLimit


def settle(limit: SizeLimit, size: int, broker: int, now: float = 0.0) -> list[int]:
    """Send so many bytes, part by part, to a broker that takes batches of `broker` bytes. Return what it refused."""
    refused: list[int] = []
    left = size
    while left:
        part = min(left, limit.batch_bytes or left)
        if part > broker:
            refused.append(part)
            limit.refused(part, now)
        else:
            left -= part
            if limit.batch_bytes:
                limit.accepted(part, now)
    return refused


@pytest.mark.parametrize("seed", range(200))
def test_the_limit_is_found_and_costs_a_tenth_of_the_refused_batch(seed: int) -> None:
    draw = random.Random(seed)
    size = int(10 ** draw.uniform(3.5, 8))
    broker = max(50, int(size / 2 ** draw.uniform(0.01, 12)))
    limit = SizeLimit()
    refused = settle(limit, size, broker)
    assert refused[0] == size
    assert sum(refused[1:]) <= size / 10 + 2
    more = sum(sum(settle(limit, size, broker)) for _ in range(2 * SHARE))
    assert more <= 2 * SHARE * size / 10
    assert broker / 2.2 < limit.batch_bytes <= broker
    assert settle(limit, size, broker) == []


def test_a_limit_that_was_lowered_is_found_by_halving() -> None:
    limit = SizeLimit()
    settle(limit, 1_000_000, 100_000)
    for _ in range(20):
        settle(limit, 1_000_000, 100_000)
    found = limit.batch_bytes
    refused = settle(limit, 1_000_000, 10_000)
    assert refused == [found // 2**halved for halved in range(len(refused))]
    assert 5_000 <= limit.batch_bytes <= 10_000


def test_a_limit_that_was_raised_is_found_when_the_refusal_is_old() -> None:
    limit = SizeLimit()
    settle(limit, 1_000_000, 20_000)
    assert limit.batch_bytes <= 20_000
    settle(limit, 1_000_000, 2_000_000, MEMORY_S - 1)
    assert limit.batch_bytes <= 40_000
    for _ in range(2 * SHARE):
        settle(limit, 1_000_000, 2_000_000, MEMORY_S)
    assert limit.batch_bytes >= 1_000_000


def test_a_small_batch_shows_no_more_than_its_own_size() -> None:
    limit = SizeLimit()
    limit.refused(3_200, 0.0)
    assert limit.batch_bytes == 100
    limit.accepted(10, 0.0)
    assert (limit.accepted_bytes, limit.batch_bytes) == (10, 100)
    limit.accepted(90, 0.0)
    assert (limit.accepted_bytes, limit.batch_bytes) == (100, 200)


def test_a_larger_batch_that_is_refused_too_shows_nothing_new() -> None:
    limit = SizeLimit()
    limit.refused(3_200, 0.0)
    limit.refused(6_400, 0.0)
    assert limit.batch_bytes == 100
    settle(limit, 100_000, 3_000)
    found = limit.batch_bytes
    limit.refused(6_400, 0.0)
    assert limit.batch_bytes == found
    assert settle(limit, 100_000, 3_000) == []


def test_a_record_larger_than_the_limit_raises_it() -> None:
    limit = SizeLimit()
    limit.refused(3_200, 0.0)
    limit.accepted(1_000, 0.0)
    assert (limit.accepted_bytes, limit.batch_bytes) == (1_000, 1_000)
