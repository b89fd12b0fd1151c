"""Decoding of record batches v2: for the reader, tools, tests, and for a batch that must be taken apart again. Pure.

Everything is checked against the bytes that are left; any malformed data raises `ProtocolError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from aiokprod.errors import ProtocolError
from aiokprod.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_BEFORE,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from aiokprod.records.compression import CODEC_NAMES, decompress
from aiokprod.records.crc import checksum

DEFAULT_LIMIT_BYTES = 64 * 1024 * 1024
FORMAT_AT = 16
CRC_AT = 17
HEADERS_LIMIT = 30_000
"""the most headers of a record that a reader accepts: two hostile bytes become a tuple each"""
_HEADER = Struct(">qiibIhiqqqhii")

HeaderPairs = tuple[tuple[str, bytes | None], ...]
Columns = tuple[list[bytes | None], list[bytes | None] | None, "list[HeaderPairs | None] | None", list[int]]


class DecodedRecord:
    """One record as a reader gets it."""

    __slots__ = ("headers", "key", "offset", "timestamp_ms", "value")

    def __init__(
        self, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: HeaderPairs
    ) -> None:
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    def __repr__(self) -> str:
        return f"<DecodedRecord {self.offset}>"


class DecodedBatch:
    """A decoded batch: its header, and its records on request."""

    __slots__ = (
        "_section", "attributes", "base_offset", "base_sequence", "base_timestamp_ms", "count", "last_offset_delta",
        "leader_epoch", "limit_bytes", "max_timestamp_ms", "producer_epoch", "producer_id", "size_bytes",
    )  # fmt: skip

    def __init__(self, header: memoryview, section: memoryview, limit_bytes: int) -> None:
        (
            self.base_offset, length, self.leader_epoch, _magic, _crc, self.attributes, self.last_offset_delta,
            self.base_timestamp_ms, self.max_timestamp_ms, self.producer_id, self.producer_epoch, self.base_sequence,
            self.count,
        ) = _HEADER.unpack(header)  # fmt: skip
        self.size_bytes: int = length + LENGTH_BEFORE
        self.limit_bytes = limit_bytes
        self._section = section

    @property
    def codec(self) -> str:
        name = CODEC_NAMES.get(self.attributes & CODEC_MASK)
        if name is None:
            raise ProtocolError(f"codec number {self.attributes & CODEC_MASK}")
        return name

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    def section(self) -> bytes:
        """Return the record section, unpacked."""
        return decompress(self.codec, self._section, self.limit_bytes)

    def packed(self) -> memoryview:
        """Return the record section as it was read."""
        return self._section

    def records(self) -> list[DecodedRecord]:
        """Return all records of the batch."""
        at_append = (
            self.is_log_append_time
        )  # the broker then sets max_timestamp alone; the deltas stay the client's (KIP-32)
        return [
            DecodedRecord(
                self.base_offset + offset_delta,
                self.max_timestamp_ms if at_append else self.base_timestamp_ms + timestamp_delta,
                key, value, headers,
            )
            for timestamp_delta, offset_delta, key, value, headers in _records(self.section(), self.count)
        ]  # fmt: skip


def decode_batches(
    data: bytes | memoryview, *, limit_bytes: int = DEFAULT_LIMIT_BYTES, check_crc: bool = True
) -> Iterator[DecodedBatch]:
    """Yield the batches one after the other; an incomplete last one is dropped (a broker cuts its answer there)."""
    view = memoryview(data)
    at = 0
    while len(view) - at >= LENGTH_BEFORE:
        length = int.from_bytes(view[at + 8 : at + 12], "big", signed=True)
        # First, as messages of older formats are shorter than the header of a batch; at the same place in all formats.
        if len(view) - at > FORMAT_AT and view[at + FORMAT_AT] != MAGIC:
            raise ProtocolError(f"record format {view[at + FORMAT_AT]}; only {MAGIC} is read")
        if length < HEADER_BYTES - LENGTH_BEFORE:
            raise ProtocolError(f"a record batch of {length} bytes")
        end = at + LENGTH_BEFORE + length
        if end > len(view):
            return
        if check_crc and checksum((view[at + CRC_AT + 4 : end],)) != int.from_bytes(
            view[at + CRC_AT : at + CRC_AT + 4], "big"
        ):
            raise ProtocolError("the checksum of a record batch is wrong")
        batch = DecodedBatch(view[at : at + HEADER_BYTES], view[at + HEADER_BYTES : end], limit_bytes)
        if batch.count < 0 or batch.last_offset_delta < 0:
            raise ProtocolError(f"a record batch of {batch.count} records")
        yield batch
        at = end


def split_records(section: bytes, count: int) -> Columns:
    """Split an unpacked record section into columns again: values, keys, headers, timestamp deltas."""
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    headers: list[HeaderPairs | None] = []
    deltas: list[int] = []
    for timestamp_delta, _, key, value, pairs in _records(section, count):
        values.append(value)
        keys.append(key)
        headers.append(pairs or None)
        deltas.append(timestamp_delta)
    return (
        values,
        keys if any(key is not None for key in keys) else None,
        headers if any(pairs for pairs in headers) else None,
        deltas,
    )


def record_sizes(section: bytes, count: int) -> tuple[list[int], list[int]]:
    """Return the size and the timestamp delta of each record in an unpacked section."""
    sizes: list[int] = []
    deltas: list[int] = []
    cursor = _Cursor(section)
    for _ in range(count):
        begin = cursor.at
        length = cursor.varint()
        end = cursor.at + length
        cursor.skip(1)
        deltas.append(cursor.varint())
        cursor.skip(end - cursor.at)
        sizes.append(end - begin)
    return sizes, deltas


def decode_record(batch: DecodedBatch, data: bytes, at: int) -> tuple[DecodedRecord, int, int]:
    """Decode the record at `at`, which is there as a whole.

    Returns:
        The record, its offset in the batch, and the position after it.

    Raises:
        ProtocolError: the bytes are not a record, or it has more than `HEADERS_LIMIT` headers.
    """
    cursor = _Cursor(data)
    cursor.at = at
    length = cursor.varint()
    end = cursor.at + length
    cursor.skip(1)  # attributes, unused
    timestamp_delta, offset_delta = cursor.varint(), cursor.varint()
    key, value = cursor.nullable(), cursor.nullable()
    headers = _headers(cursor, HEADERS_LIMIT)
    if cursor.at != end:
        raise ProtocolError("a record does not fill its length")
    timestamp_ms = batch.max_timestamp_ms if batch.is_log_append_time else batch.base_timestamp_ms + timestamp_delta
    return DecodedRecord(batch.base_offset + offset_delta, timestamp_ms, key, value, headers), offset_delta, end


def _records(section: bytes, count: int) -> Iterator[tuple[int, int, bytes | None, bytes | None, HeaderPairs]]:
    if count > len(section):
        raise ProtocolError(f"{count} records in {len(section)} bytes")
    cursor = _Cursor(section)
    for _ in range(count):
        length = cursor.varint()
        end = cursor.at + length
        if length < 0 or end > len(section):
            raise ProtocolError("a record is longer than its batch")
        cursor.skip(1)  # attributes, unused
        timestamp_delta, offset_delta = cursor.varint(), cursor.varint()
        key, value = cursor.nullable(), cursor.nullable()
        headers = _headers(cursor)
        if cursor.at != end:
            raise ProtocolError("a record does not fill its length")
        yield timestamp_delta, offset_delta, key, value, headers
    if cursor.at != len(section):
        raise ProtocolError(f"{len(section) - cursor.at} bytes after the last record")


def decode_headers(section: bytes) -> HeaderPairs:
    """Decode what `encode_headers` made."""
    return _headers(_Cursor(section))


def _headers(cursor: _Cursor, limit: int = -1) -> HeaderPairs:
    count = cursor.varint()
    if not 0 <= count <= len(cursor.data) - cursor.at or 0 <= limit < count:
        raise ProtocolError(f"a record with {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name = cursor.nullable()
        if name is None:
            raise ProtocolError("a header without a key")
        try:
            headers.append((name.decode(), cursor.nullable()))
        except UnicodeDecodeError:
            raise ProtocolError("a header's key is not UTF-8") from None
    return tuple(headers)


class _Cursor:
    """A position in a section."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def varint(self) -> int:
        value = shift = 0
        data = self.data
        while True:
            if self.at >= len(data) or shift > 63:
                raise ProtocolError("a varint in a record is broken")
            byte = data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise ProtocolError("a record ends early")
        self.at += size

    def nullable(self) -> bytes | None:
        length = self.varint()
        if length == -1:
            return None
        start = self.at
        if length < 0:
            raise ProtocolError(f"the length {length} in a record")
        self.skip(length)
        return self.data[start : self.at]
