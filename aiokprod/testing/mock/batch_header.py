"""The 61 bytes before the records: reading, checking in the broker's order, and rewriting what a broker may rewrite.

Called by `Partition.append` for every batch; pure. A batch is judged by its header and its CRC here, and
then by its records in `record_rules.py`.

Invariant: whatever the bytes, the outcome is a `BatchHeader` or a `BadBatch` with the broker's code (broker: 13.3 to
13.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from crc32c import crc32c

from aiokprod.testing.mock.producer_state import Sequenced
from aiokprod.wire.codes import ErrorCode

HEADER_BYTES: Final = 61
LENGTH_END: Final = 12
"""The length field counts what follows it: base offset and length itself are 12 bytes."""

_CRC_FROM: Final = 21
_MAGIC_END: Final = 17
_ATTRIBUTES_LOW: Final = 22
_SMALLEST_RECORD: Final = 14
"""A length below a v0 record's overhead is corrupt before anything else is looked at (broker: 13.3)."""

_FIRST: Final = Struct(">qiib")
_HEADER: Final = Struct(">qiibIhiqqqhii")
_PREFIX: Final = Struct(">qii")
_CODECS: Final = 5

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
ZSTD: Final = 4


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """A batch header as the client sent it; `size_bytes` includes the 12 bytes before the length counts."""

    size_bytes: int
    base_offset: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def is_transactional(self) -> bool:
        """Return whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    def sequenced(self, base_offset: int = -1, max_timestamp_ms: int | None = None) -> Sequenced:
        """Return the producer's half, for `ProducerStates`."""
        return Sequenced(
            producer_id=self.producer_id,
            epoch=self.producer_epoch,
            first_sequence=self.base_sequence,
            count=self.count,
            max_timestamp_ms=self.max_timestamp_ms if max_timestamp_ms is None else max_timestamp_ms,
            base_offset=base_offset,
        )


@dataclass(frozen=True, slots=True)
class BadBatch:
    """The refusal of a batch for its content."""

    code: ErrorCode
    message: str | None = None


HeaderVerdict: TypeAlias = BatchHeader | BadBatch

_INVALID: Final = BadBatch(ErrorCode.INVALID_RECORD)


def read_header(records: bytes | memoryview) -> HeaderVerdict:
    """Take exactly one v2 batch out of the records of one partition; no CRC yet, no look at the records."""
    magic = _magic_at(records, 0)
    if isinstance(magic, BadBatch):
        return magic
    if magic is None or magic < 2:
        return _INVALID  # broker: 13.4 - empty, truncated, too long, an old format
    size_bytes = _size_at(records, 0)
    second = _magic_at(records, size_bytes)  # a few bytes behind are no batch and are taken. broker: 13.5c
    if isinstance(second, BadBatch):
        return BadBatch(second.code)
    if second is not None:
        return _INVALID  # broker: 13.4
    if size_bytes < HEADER_BYTES:
        return BadBatch(ErrorCode.CORRUPT_MESSAGE)  # broker: 13.3
    base_offset, _, _, _, *fields = _HEADER.unpack_from(records)
    return BatchHeader(size_bytes, base_offset, *fields)


def _size_at(records: bytes | memoryview, start: int) -> int:
    return int.from_bytes(records[start + 8 : start + LENGTH_END], "big", signed=True) + LENGTH_END


def _magic_at(records: bytes | memoryview, start: int) -> int | BadBatch | None:
    """Return the magic of the batch that begins here, or None if no whole batch does."""
    if len(records) - start < _MAGIC_END:
        return None
    _, length, _, magic = _FIRST.unpack_from(records, start)
    if length < _SMALLEST_RECORD:
        message = f"Record size {length} is less than the minimum record overhead ({_SMALLEST_RECORD})"
        return BadBatch(ErrorCode.CORRUPT_MESSAGE, message)  # broker: 13.3
    if not 0 <= magic <= 2:
        return BadBatch(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")  # broker: 13.3
    if length > 2**31 - 1 - LENGTH_END:
        return BadBatch(ErrorCode.UNKNOWN_SERVER_ERROR)  # broker: 13.5
    if len(records) - start < length + LENGTH_END:
        return None
    return int(magic)


def first_look(records: bytes | memoryview) -> bool | BadBatch:
    """Return whether the batch belongs to a transaction; an error here fails the whole request (broker: 13)."""
    magic = _magic_at(records, 0)
    if isinstance(magic, BadBatch):
        return magic
    return magic == 2 and bool(records[_ATTRIBUTES_LOW] & TRANSACTIONAL_BIT)


def check_size(header: BatchHeader, max_message_bytes: int) -> BadBatch | None:
    """Check max.message.bytes, which counts the whole batch with its header (broker: 13.1)."""
    if header.base_offset != 0:
        return _INVALID  # broker: 13.4
    if header.size_bytes > max_message_bytes:
        return BadBatch(ErrorCode.MESSAGE_TOO_LARGE)
    return None


def check_crc(records: bytes | memoryview, header: BatchHeader) -> BadBatch | None:
    """Check the CRC, which covers everything from the attributes on."""
    if crc32c(memoryview(records)[_CRC_FROM : header.size_bytes]) != header.crc:
        return BadBatch(ErrorCode.CORRUPT_MESSAGE)  # broker: 13.3
    return None


def check_fields(header: BatchHeader, produce_version: int) -> BadBatch | None:
    """Return the error of a header that is refused by its fields alone, after the CRC; None if it is not."""
    if header.count <= 0 or header.count != header.last_offset_delta + 1 or header.attributes & CONTROL_BIT:
        return _INVALID  # broker: 13.4
    if header.producer_id >= 0 and header.base_sequence < 0:
        return _INVALID  # broker: 1.10
    codec = header.attributes & CODEC_MASK
    if codec >= _CODECS:
        return BadBatch(ErrorCode.UNKNOWN_SERVER_ERROR)  # broker: 13.5
    if codec == ZSTD and produce_version < 7:
        return BadBatch(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)  # broker: 13.9
    return None


def stored_bytes(
    records: bytes | memoryview, header: BatchHeader, base_offset: int, leader_epoch: int, append_time_ms: int | None
) -> bytes:
    """Return the batch as the log keeps it: offset and leader epoch are outside the CRC, the append time is inside.

    Args:
        append_time_ms: the append time of a LogAppendTime topic; None on a CreateTime topic, whose own flag wins over
            what the client wrote into the attributes.
    """
    view = memoryview(records)
    prefix = _PREFIX.pack(base_offset, header.size_bytes - LENGTH_END, leader_epoch)
    marked = bool(header.attributes & LOG_APPEND_TIME_BIT)
    if append_time_ms is None and not marked:
        return b"".join((prefix, view[len(prefix) : header.size_bytes]))
    batch = bytearray(view[: header.size_bytes])
    batch[: len(prefix)] = prefix
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT & 0xFFFF
    if append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        batch[35:43] = append_time_ms.to_bytes(8, "big", signed=True)
    batch[21:23] = attributes.to_bytes(2, "big")
    batch[17:21] = crc32c(memoryview(batch)[_CRC_FROM:]).to_bytes(4, "big")
    return bytes(batch)
