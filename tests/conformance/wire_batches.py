"""Batches of the conformance cases: good ones, and good ones with one thing wrong."""

from __future__ import annotations

import struct
import time

from crc32c import crc32c

from aiokprod.records.batch import batch_header, encode_records

HEADER_BYTES = 61

# Where the header's fields are, and how they are packed.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "partition_leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def plain(*values: bytes | None, keys: list[bytes | None] | None = None, timestamp_ms: int | None = None) -> bytes:
    """Return a batch without a producer id."""
    return batch(*(values or (b"v",)), keys=keys, timestamp_ms=timestamp_ms)


def sequenced(
    pid: int, first: int, count: int = 1, *, epoch: int = 0, value: bytes = b"v", timestamp_ms: int | None = None
) -> bytes:
    """Return a batch of an idempotent producer."""
    return batch(*([value] * count), pid=pid, epoch=epoch, first=first, timestamp_ms=timestamp_ms)


def batch(
    *values: bytes | None,
    keys: list[bytes | None] | None = None,
    pid: int = -1,
    epoch: int = -1,
    first: int = -1,
    timestamp_ms: int | None = None,
    attributes: int = 0,
) -> bytes:
    at = now_ms() if timestamp_ms is None else timestamp_ms
    section = bytes(encode_records(list(values), keys, None, [0] * len(values)))
    return around(section, len(values), pid=pid, epoch=epoch, first=first, timestamp_ms=at, attributes=attributes)


def around(
    section: bytes,
    count: int,
    *,
    pid: int = -1,
    epoch: int = -1,
    first: int = -1,
    timestamp_ms: int | None = None,
    attributes: int = 0,
) -> bytes:
    """Return a header around any bytes at all."""
    at = now_ms() if timestamp_ms is None else timestamp_ms
    header = batch_header(
        section,
        count=count,
        attributes=attributes,
        base_timestamp_ms=at,
        max_timestamp_ms=at,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=first,
    )
    return bytes(header) + section


def of_size(size: int, pid: int = -1, epoch: int = -1, first: int = -1) -> bytes:
    """Return a batch of one record that is exactly so many bytes, header included."""
    value = size - HEADER_BYTES
    while True:
        made = batch(bytes(value), pid=pid, epoch=epoch, first=first)
        if len(made) == size:
            return made
        value -= max(1, len(made) - size)


def with_field(data: bytes, **fields: int) -> bytes:
    """Return the batch with header fields overwritten and the CRC corrected."""
    changed = bytearray(data)
    for name, value in fields.items():
        at, layout = FIELDS[name]
        struct.pack_into(layout, changed, at, value)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def with_wrong_crc(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])
