"""Transactions of a job, for every client alike: how many records go into each, and in what portions they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

from job import Job

PORTION = 500


def transactions(job: Job) -> Iterator[Iterator[int]]:
    """Yield the transactions, each as the sizes of its portions. Use up one before the next is asked for."""
    left = job.count

    def portions() -> Iterator[int]:
        nonlocal left
        inside, until = 0, perf_counter() + job.transaction_ms / 1000
        while left and (inside < job.per_transaction if job.per_transaction else perf_counter() < until):
            size = min(PORTION, left, job.per_transaction - inside if job.per_transaction else PORTION)
            yield size
            inside += size
            left -= size

    while left:
        yield portions()
