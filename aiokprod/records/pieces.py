"""The records of a batch, decoded one by one from pieces of its section: for the reader. Pure.

A batch of some kilobytes may unpack to millions of records. Only one piece, or the record that is being decoded, is in
memory at a time, and the caller may let its loop run between any two of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Final

from aiokprod.errors import ProtocolError
from aiokprod.records.compression import decompress_in_pieces
from aiokprod.records.decoder import DecodedBatch, DecodedRecord, decode_record

LENGTH_BYTES: Final = 5  # the most bytes of a record's length


def records_in_pieces(batch: DecodedBatch, limit_bytes: int, record_limit_bytes: int) -> Iterator[DecodedRecord | None]:
    """Yield the records of a batch, and a None at the start and after each step of work that completed no record.

    Args:
        batch: as it was read; control batches are treated like others.
        limit_bytes: the largest unpacked section that is accepted.
        record_limit_bytes: the largest record that is accepted.

    Raises:
        ProtocolError: the batch is malformed or exceeds a limit.
    """
    if batch.count > batch.last_offset_delta + 1:
        raise ProtocolError(f"{batch.count} records in a batch of {batch.last_offset_delta + 1} offsets")
    yield None  # there may be 137,000 batches with nothing in them
    source = decompress_in_pieces(batch.codec, batch.packed(), limit_bytes)
    data = b""
    at = 0
    last_delta = -1
    for _ in range(batch.count):
        while True:
            missing = _missing(data, at, record_limit_bytes)
            if missing <= 0:
                break
            joined = BytesIO()  # as they come: a million pieces of two bytes each take twenty times their bytes
            joined.write(data[at:])
            data = b""
            while missing > 0:
                piece = next(source, None)
                if piece is None:
                    raise ProtocolError("a record ends early")
                joined.write(piece)
                missing -= len(piece)
                yield None
            data = joined.getvalue()
            del joined  # a record may be megabytes: keep as few copies as possible
            at = 0
        record, offset_delta, at = decode_record(batch, data, at)
        if not last_delta < offset_delta <= batch.last_offset_delta:
            raise ProtocolError(f"a record at {offset_delta} behind one at {last_delta} of {batch.last_offset_delta}")
        last_delta = offset_delta
        yield record
    left = len(data) - at
    for piece in source:  # empty pieces may follow; an attacker can send a million of them
        left += len(piece)
        if left:
            break
        yield None
    if left:
        raise ProtocolError("bytes after the last record")


def _missing(data: bytes, at: int, record_limit_bytes: int) -> int:
    """Return how many more bytes a whole record needs, as far as known; 0 or less if it is complete."""
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
