"""The records of a batch, decoded one after the other out of pieces of its section: for the reader. Pure.

A batch of some kilobytes may stand for millions of records. No more of it is in memory than a piece, or the record that is
being decoded, and the caller may let its loop run between any two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiokprod.errors import ProtocolError
from aiokprod.records.compression import decompress_in_pieces
from aiokprod.records.decoder import DecodedBatch, DecodedRecord, decode_record

LENGTH_BYTES: Final = 5  # of a record's length at most


def records_in_pieces(batch: DecodedBatch, limit_bytes: int, record_limit_bytes: int) -> Iterator[DecodedRecord | None]:
    """Its records, and a None whenever there was work without one.

    Args:
        batch: as it was read; control batches are as any other.
        limit_bytes: what all of it may be, unpacked.
        record_limit_bytes: what one record may be.

    Raises:
        ProtocolError: it is not what it says.
    """
    if batch.count > batch.last_offset_delta + 1:
        raise ProtocolError(f"{batch.count} records in a batch of {batch.last_offset_delta + 1} offsets")
    source = decompress_in_pieces(batch.codec, batch.packed(), limit_bytes)
    data = b""
    at = 0
    last_delta = -1
    for _ in range(batch.count):
        while True:
            missing = _missing(data, at, record_limit_bytes)
            if missing <= 0:
                break
            parts = [data[at:]]
            data = b""
            while missing > 0:
                piece = next(source, None)
                if piece is None:
                    raise ProtocolError("a record ends early")
                parts.append(piece)
                missing -= len(piece)
                yield None
            data = b"".join(parts)
            parts.clear()  # a record may be megabytes: no more copies of them at a time than must be
            at = 0
        record, offset_delta, at = decode_record(batch, data, at)
        if not last_delta < offset_delta <= batch.last_offset_delta:
            raise ProtocolError(f"a record at {offset_delta} behind one at {last_delta} of {batch.last_offset_delta}")
        last_delta = offset_delta
        yield record
    left = len(data) - at
    for piece in source:  # empty ones may follow: those of an attacker are a million
        left += len(piece)
        if left:
            break
        yield None
    if left:
        raise ProtocolError("bytes after the last record")


def _missing(data: bytes, at: int, record_limit_bytes: int) -> int:
    """How many bytes more a whole record needs, as far as is known; 0 or less: it is there."""
    value = shift = 0
    for position in range(at, min(at + LENGTH_BYTES, len(data))):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            size = (value >> 1) ^ -(value & 1)
            if not 0 <= size <= record_limit_bytes:
                raise ProtocolError(f"a record of {size} bytes; at most {record_limit_bytes} are read")
            return position + 1 + size - len(data)
        shift += 7
    if len(data) - at >= LENGTH_BYTES:
        raise ProtocolError("the length of a record is broken")
    return 1
