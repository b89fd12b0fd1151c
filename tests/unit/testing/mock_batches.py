"""Batches for tests of the mock, made by hand: what a client would send."""

from __future__ import annotations

from aiokprod.records.batch import batch_header, encode_records


def batch(
    *values: bytes | None,
    keys: list[bytes | None] | None = None,
    pid: int = -1,
    epoch: int = -1,
    first: int = -1,
    timestamp_ms: int = 1_700_000_000_000,
    attributes: int = 0,
) -> bytes:
    """Return one v2 batch of these values."""
    body = bytes(encode_records(list(values), keys, None, [0] * len(values)))
    header = batch_header(
        body,
        count=len(values),
        attributes=attributes,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=first,
    )
    return bytes(header) + body


def idempotent(
    first: int, *values: bytes, pid: int = 7, epoch: int = 0, timestamp_ms: int = 1_700_000_000_000
) -> bytes:
    """Return one batch of an idempotent producer."""
    return batch(*(values or (b"v",)), pid=pid, epoch=epoch, first=first, timestamp_ms=timestamp_ms)
