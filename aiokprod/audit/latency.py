"""Latencies as counts in exponential buckets, and quantiles computed from them. Pure.

A bucket is 1/16 of an octave wide and stands for its middle, so a quantile is within 2.3 % of the true one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BUCKETS_PER_OCTAVE: Final = 16
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)


def bucket_middle_us(bucket: int) -> float:
    """Return the latency that a bucket stands for, in microseconds; 0.0 for the bucket of negative ones."""
    return float(2 ** ((bucket + 0.5) / BUCKETS_PER_OCTAVE)) if bucket >= 0 else 0.0


def quantiles_us(counts: Mapping[int, int]) -> dict[str, float]:
    """Return `{"p50": ..., "p90": ..., "p99": ..., "p99.9": ..., "max": ...}` in microseconds; empty if nothing was counted."""
    total = sum(counts.values())
    if not total:
        return {}
    told: dict[str, float] = {}
    wanted = list(QUANTILES)
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        while wanted and seen >= wanted[0] * total:
            told[f"p{100 * wanted.pop(0):g}"] = bucket_middle_us(bucket)
    told["max"] = bucket_middle_us(max(counts))
    return told
