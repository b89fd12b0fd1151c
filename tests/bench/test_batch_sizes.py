"""bench/batch_sizes.py: with a codec a batch is full by what it will weigh, so fewer batches and requests are sent. Counted."""

from __future__ import annotations

import pytest
from batch_sizes import KINDS, Counted, counted

TOTAL_BYTES = 12_000_000
PACKING = ["gzip", "snappy", "lz4", "zstd"]
FEWER = {
    ("log lines", "gzip"): 3.5, ("log lines", "zstd"): 3.5, ("log lines", "lz4"): 2.4, ("log lines", "snappy"): 2.3,
    ("JSON", "gzip"): 3.2, ("JSON", "zstd"): 3.2, ("JSON", "lz4"): 2.2, ("JSON", "snappy"): 2.1,
    ("metrics", "gzip"): 6.5, ("metrics", "zstd"): 6.5, ("metrics", "lz4"): 5.0, ("metrics", "snappy"): 4.5,
}  # fmt: skip
"""Of batches. lz4 and snappy pack log lines and JSON to a third, so their batches cannot be three times as large."""
VALUES: dict[str, list[bytes]] = {}
PLAIN: dict[tuple[str, int], Counted] = {}


def counted_of(kind: str, codec: str, partitions: int) -> tuple[Counted, Counted]:
    """Return the counts without a codec, where a batch is full at `batch_size` of records, and with this one."""
    if kind not in VALUES:
        VALUES[kind] = KINDS[kind](TOTAL_BYTES)
    if (kind, partitions) not in PLAIN:
        PLAIN[kind, partitions] = counted("none", VALUES[kind], partitions=partitions)
    return PLAIN[kind, partitions], counted(codec, VALUES[kind], partitions=partitions)


@pytest.mark.slow_after(2)
@pytest.mark.parametrize(("kind", "codec"), FEWER)
def test_data_that_pack_take_fewer_batches(kind: str, codec: str) -> None:
    plain, packed = counted_of(kind, codec, 3)
    assert plain.batches >= FEWER[kind, codec] * packed.batches
    assert packed.requests <= packed.batches
    assert packed.packed_bytes <= 65_536 * packed.batches
    assert packed.packed_bytes < plain.packed_bytes / 2


@pytest.mark.parametrize(("kind", "codec"), [("log lines", "gzip"), ("JSON", "zstd"), ("metrics", "lz4")])
def test_data_that_pack_take_a_third_of_the_requests(kind: str, codec: str) -> None:
    """One partition: a request holds one batch of it."""
    plain, packed = counted_of(kind, codec, 1)
    assert plain.requests >= max(3, FEWER[kind, codec]) * packed.requests


@pytest.mark.parametrize("codec", PACKING)
def test_data_that_do_not_pack_take_as_many_batches_as_without_a_codec(codec: str) -> None:
    plain, packed = counted_of("random", codec, 3)
    assert packed.batches == plain.batches
