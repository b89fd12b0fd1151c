"""Messages of the record formats 0 and 1, which topics have from before Kafka 0.11: for the reader. Pure.

    offset (8) | length (4) | checksum (4) | format (1) | attributes (1) | time (8, format 1 only) | key | value

A message with a codec is a wrapper: its value is a packed sequence of messages, and its offset that of the last one. Offsets
inside are those of the log in format 0, and count from 0 in format 1 (KIP-31). Kafka 4 writes neither format.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final
from zlib import crc32

from aiokprod.errors import ProtocolError
from aiokprod.records.batch import CODEC_MASK, LENGTH_BEFORE, MAGIC, TIMESTAMP_TYPE_BIT
from aiokprod.records.compression import CODEC_NAMES, decompress_in_pieces
from aiokprod.records.decoder import DEFAULT_LIMIT_BYTES, DecodedBatch, DecodedRecord, decode_batches

FORMAT_AT: Final = 16
CRC_AT: Final = 12
ATTRIBUTES_AT: Final = 17
TIME_AT: Final = 18
SHORTEST: Final = (14, 22)  # length of a message of each format with neither key nor value
NO_TIME_MS: Final = -1
PAUSE_EVERY: Final = 1_000  # messages of a wrapper that are looked at before a pause
LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_INT64: Final = Struct(">q")
_UINT32: Final = Struct(">I")
_INT32: Final = Struct(">i")


class OldMessage:
    """One message of format 0 or 1, as it was read."""

    __slots__ = ("attributes", "key", "offset", "record_format", "timestamp_ms", "value")

    def __init__(self, data: memoryview, check_crc: bool) -> None:
        """Take a message that is there as a whole.

        Raises:
            ProtocolError: it is malformed.
        """
        self.record_format = data[FORMAT_AT]
        if check_crc and crc32(data[FORMAT_AT:]) != _UINT32.unpack_from(data, CRC_AT)[0]:
            raise ProtocolError("the checksum of a message is wrong")
        self.offset: int = _INT64.unpack_from(data, 0)[0]
        self.attributes = data[ATTRIBUTES_AT]
        at = TIME_AT
        self.timestamp_ms = NO_TIME_MS
        if self.record_format == 1:
            self.timestamp_ms = _INT64.unpack_from(data, TIME_AT)[0]
            at = TIME_AT + 8
        self.key, at = _nullable(data, at)
        self.value, at = _nullable(data, at)
        if at != len(data):
            raise ProtocolError("a message does not fill its length")

    @property
    def codec(self) -> str:
        """The name of the codec; "none" for a single record."""
        number = self.attributes & CODEC_MASK
        name = CODEC_NAMES.get(number)
        if name is None or name == "zstd":
            raise ProtocolError(f"codec number {number} in record format {self.record_format}")
        return name

    @property
    def is_log_append_time(self) -> bool:
        return self.record_format == 1 and bool(self.attributes & TIMESTAMP_TYPE_BIT)

    def records(self, limit_bytes: int, record_limit_bytes: int) -> Iterator[DecodedRecord | None]:
        """Yield its record, or those that are packed in it; and a None at the start and after each step without a record.

        Args:
            limit_bytes: the largest unpacked value that is accepted.
            record_limit_bytes: the largest record that is accepted.

        Raises:
            ProtocolError: it is malformed or exceeds a limit.
        """
        yield None
        codec = self.codec
        if codec == "none":
            yield self._record(self.offset, self.timestamp_ms)
            return
        packed = self.value
        if packed is None:
            raise ProtocolError("a packed message without a value")
        if codec == "lz4" and self.record_format == 0:
            packed = with_right_checksum(packed)
        plain = bytearray()
        for piece in decompress_in_pieces(codec, packed, limit_bytes):
            plain += piece
            yield None
        view = memoryview(bytes(plain))
        del plain
        last = -1
        for number, (at, _) in enumerate(_places(view, record_limit_bytes), 1):
            last = _INT64.unpack_from(view, at)[0]
            if view[at + FORMAT_AT] != self.record_format:
                raise ProtocolError(f"a message of format {view[at + FORMAT_AT]} in one of format {self.record_format}")
            if number % PAUSE_EVERY == 0:
                yield None
        base = self.offset - last if self.record_format == 1 else 0
        for at, end in _places(view, record_limit_bytes):
            message = OldMessage(view[at:end], True)
            if message.attributes & CODEC_MASK:
                raise ProtocolError("a packed message in a packed message")
            time_ms = self.timestamp_ms if self.is_log_append_time else message.timestamp_ms
            yield message._record(base + message.offset, time_ms)

    def _record(self, offset: int, timestamp_ms: int) -> DecodedRecord:
        return DecodedRecord(offset, timestamp_ms, self.key, self.value, ())

    def __repr__(self) -> str:
        return f"<OldMessage {self.offset} of format {self.record_format}>"


def decode_entries(
    data: bytes | memoryview, *, limit_bytes: int = DEFAULT_LIMIT_BYTES, check_crc: bool = True
) -> Iterator[DecodedBatch | OldMessage]:
    """Yield batches, and messages of older formats, one after the other; an incomplete last one is dropped.

    Args:
        data: as a broker sent them; formats may be mixed.
        limit_bytes: the largest unpacked section of a batch that is accepted.
        check_crc: False leaves checksums unchecked.

    Raises:
        ProtocolError: something is malformed, or of a format that Kafka does not have.
    """
    view = memoryview(data)
    at = 0
    while len(view) - at > FORMAT_AT:
        if view[at + FORMAT_AT] >= MAGIC:
            batch = next(decode_batches(view[at:], limit_bytes=limit_bytes, check_crc=check_crc), None)
            if batch is None:
                return
            yield batch
            at += batch.size_bytes
            continue
        end = _end(view, at)
        if end > len(view):
            return
        yield OldMessage(view[at:end], check_crc)
        at = end


def with_right_checksum(packed: bytes) -> bytes:
    """Return an LZ4 frame of format 0 with the checksum of its descriptor as LZ4 has it.

    Kafka computed it with the frame's magic number until 0.10 (KAFKA-3160), so it is not looked at.

    Args:
        packed: the frame.
    """
    if not packed.startswith(LZ4_MAGIC) or len(packed) < len(LZ4_MAGIC) + 3:
        return packed
    flags = packed[4]
    end = 6 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)
    if len(packed) <= end:
        return packed
    return packed[:end] + bytes((_xxh32(packed[4:end]) >> 8 & 0xFF,)) + packed[end + 1 :]


def _xxh32(data: bytes) -> int:
    """Return the XXH32 of less than 16 bytes, with the seed 0."""
    value = 374761393 + len(data)
    at = 0
    while len(data) - at >= 4:
        value = value + int.from_bytes(data[at : at + 4], "little") * 3266489917 & 0xFFFFFFFF
        value = (value << 17 | value >> 15) * 668265263 & 0xFFFFFFFF
        at += 4
    for byte in data[at:]:
        value = value + byte * 374761393 & 0xFFFFFFFF
        value = (value << 11 | value >> 21) * 2654435761 & 0xFFFFFFFF
    value = (value ^ value >> 15) * 2246822519 & 0xFFFFFFFF
    value = (value ^ value >> 13) * 3266489917 & 0xFFFFFFFF
    return value ^ value >> 16


def _end(view: memoryview, at: int) -> int:
    """Return where the message at this position ends; it may be behind the end of the data."""
    length: int = _INT32.unpack_from(view, at + 8)[0]
    if length < SHORTEST[view[at + FORMAT_AT]]:
        raise ProtocolError(f"a message of {length} bytes")
    return at + LENGTH_BEFORE + length


def _places(view: memoryview, record_limit_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield where the messages of an unpacked value begin and end."""
    at = 0
    while at < len(view):
        if len(view) - at <= FORMAT_AT or view[at + FORMAT_AT] >= MAGIC:
            raise ProtocolError("a packed message does not hold messages")
        end = _end(view, at)
        if end > len(view):
            raise ProtocolError("a message is longer than what it is packed in")
        if end - at > record_limit_bytes:
            raise ProtocolError(f"a record of {end - at} bytes; at most {record_limit_bytes} are read")
        yield at, end
        at = end


def _nullable(data: memoryview, at: int) -> tuple[bytes | None, int]:
    if len(data) - at < 4:
        raise ProtocolError("a message ends early")
    length: int = _INT32.unpack_from(data, at)[0]
    at += 4
    if length == -1:
        return None, at
    if not 0 <= length <= len(data) - at:
        raise ProtocolError(f"the length {length} in a message")
    return bytes(data[at : at + length]), at + length
