"""The cost of choosing the partition of a key: `python bench/hashes.py`. A few seconds; the best of several runs."""

from __future__ import annotations

from collections.abc import Callable
from timeit import repeat

import aiokprod
from aiokprod.pipeline.sending.hashes import KeyCache, Murmur2Keys, crc32_partition, fnv1a_partition, murmur2_partition

SIZES = [8, 16, 36, 128, 1024]
PARTITIONS = 12
CALLS = 2000


def cost_us(partition: Callable[[bytes], int], keys: list[bytes]) -> float:
    """Measure one call."""

    def once() -> None:
        for key in keys:
            partition(key)

    def nothing() -> None:
        for _ in keys:
            pass

    best = min(repeat(once, number=1, repeat=25)) - min(repeat(nothing, number=1, repeat=25))
    return best / len(keys) * 1e6


def main() -> None:
    print("compiled" if aiokprod.compiled else "sources")
    head = ("murmur2 us", "by bytes us", "crc32 us", "fnv1a us", "cached us")
    print(f"{'key bytes':>9}" + "".join(f"{name:>13}" for name in head))
    for size in SIZES:
        keys = [(b"%d-" % at).ljust(size, b"k")[:size] for at in range(CALLS)]
        cache = KeyCache(murmur2_partition)
        cache.resize(PARTITIONS)
        computed = Murmur2Keys()
        computed.resize(PARTITIONS)
        murmur2 = cost_us(lambda key: murmur2_partition(key, PARTITIONS), keys)
        crc32 = cost_us(lambda key: crc32_partition(key, PARTITIONS), keys)
        fnv1a = cost_us(lambda key: fnv1a_partition(key, PARTITIONS), keys)
        cached = cost_us(cache.partition, keys)
        by_bytes = cost_us(computed.partition, keys)
        known = f"{cached:>13.3f}" if size <= 128 else f"{'(not kept)':>13}"
        print(f"{size:>9}{murmur2:>13.3f}{by_bytes:>13.3f}{crc32:>13.3f}{fnv1a:>13.3f}{known}")


if __name__ == "__main__":
    main()
