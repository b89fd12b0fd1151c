"""`FilledBatch`: what has room in a batch that a program fills."""

from __future__ import annotations

from aiokprod.pipeline.partition.batch import BATCH_OVERHEAD_BYTES
from aiokprod.pipeline.partition.filled_batch import FilledBatch
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES

PLENTY = 1_000_000


def added(batch: FilledBatch, size_bytes: int) -> bool:
    return batch.add(b"v", b"k", None, 5, size_bytes)


def test_records_have_room_up_to_the_limit_of_the_batch_with_its_header() -> None:
    batch = FilledBatch(BATCH_OVERHEAD_BYTES + 100, PLENTY)
    assert added(batch, 60) and not added(batch, 41) and added(batch, 40) and not added(batch, 1)
    assert batch.size_bytes == BATCH_OVERHEAD_BYTES + 100 and batch.sizes == [60, 40]
    assert batch.charge_bytes == 100 + 2 * RECORD_OVERHEAD_BYTES


def test_the_first_record_always_has_room() -> None:
    batch = FilledBatch(0, PLENTY)
    assert added(batch, 500) and not added(batch, 1)


def test_what_is_charged_for_the_batch_fits_into_the_buffer() -> None:
    batch = FilledBatch(PLENTY, 100 + 2 * RECORD_OVERHEAD_BYTES)
    assert added(batch, 60) and not added(batch, 41) and added(batch, 40)
