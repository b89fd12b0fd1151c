"""The cost of compression, and the size from which a worker thread pays: `python bench/codecs.py`. About ten seconds.

Record sections of JSON-like values; the best of several runs, because only the best is free of other work of the machine.
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import perf_counter

from aiokprod.records.batch import encode_records
from aiokprod.records.compression import OFFLOAD_BYTES, compress, decompress

SIZES = [4096, 16384, 32768, 131072, 1048576]
RUNS = 15
HOPS = 400


def section(size: int) -> bytes:
    """Return a record section of about this size."""
    random = Random(size)
    values: list[bytes | None] = []
    total = 0
    while total < size:
        order = {"id": len(values), "customer": random.randrange(10**6), "total": random.random(), "state": "shipped"}
        value = json.dumps(order).encode()
        values.append(value)
        total += len(value) + 9
    return encode_records(values, None, None, [at // 10 for at in range(len(values))])


async def hop_us() -> float:
    """Measure a hop into a worker thread and back, with nothing to do there."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        await loop.run_in_executor(pool, int)
        best = 1e9
        for _ in range(RUNS):
            began = perf_counter()
            for _ in range(HOPS):
                await loop.run_in_executor(pool, int)
            best = min(best, perf_counter() - began)
    return best / HOPS * 1e6


def best_us(codec: str, data: bytes, *, packing: bool) -> float:
    best = 1e9
    for _ in range(RUNS):
        began = perf_counter()
        if packing:
            compress(codec, None, data)
        else:
            decompress(codec, data, 1 << 26)
        best = min(best, perf_counter() - began)
    return best * 1e6


def main() -> None:
    print(f"a hop into a worker thread and back: {asyncio.run(hop_us()):.0f} us; OFFLOAD_BYTES = {OFFLOAD_BYTES}\n")
    print(f"{'codec':<8}{'bytes':>9}{'packed':>9}{'ratio':>7}{'pack us':>10}{'MB/s':>7}{'unpack us':>11}")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        for size in SIZES:
            data = section(size)
            packed = compress(codec, None, data)
            packing, unpacking = best_us(codec, data, packing=True), best_us(codec, packed, packing=False)
            print(
                f"{codec:<8}{len(data):>9}{len(packed):>9}{len(data) / len(packed):>7.1f}"
                f"{packing:>10.0f}{len(data) / packing:>7.0f}{unpacking:>11.0f}"
            )


if __name__ == "__main__":
    main()
