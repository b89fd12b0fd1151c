"""Control batches: the markers that end a transaction in a log. Pure."""

from __future__ import annotations

from struct import Struct
from typing import Final

from aiokprod.records.batch import batch_header, encode_records
from aiokprod.testing.mock.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT

_KEY: Final = Struct(">hh")
_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


def marker_batch(producer_id: int, epoch: int, *, commits: bool, now_ms: int, coordinator_epoch: int = 0) -> bytes:
    """Return the batch of one marker, with offset 0 as a client would send it."""
    key = _KEY.pack(0, _COMMIT if commits else _ABORT)
    body = bytes(encode_records([_VALUE.pack(0, coordinator_epoch)], [key], None, [0]))
    header = batch_header(
        body,
        count=1,
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=-1,
    )
    return bytes(header) + body
