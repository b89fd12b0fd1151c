"""Encoding of record batch v2: the record section once, the 61-byte header when it is stamped. Pure.

    header (61) | record | record | ...         record: length, attributes, timestamp delta, offset delta, key, value, headers

`encode_records` is the hottest function after `send`: one pass, parts collected in a list and joined once. The section
is encoded before the sequence number is known, so it carries nothing that an attempt could change.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from aiokprod.records.crc import checksum
from aiokprod.records.varint import SMALL, TABLE_TO, encode, size

Headers = Sequence[tuple[str, bytes | None]]

MAGIC = 2
CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
HEADER_BYTES = 61
LENGTH_BEFORE = 12  # base offset and the length itself are not counted in the length
_BEFORE_CRC = Struct(">qiibI")
_AFTER_CRC = Struct(">hiqqqhii")

# length (5), attributes (1), timestamp delta (10 at most, 3 usual), offset delta (5 at most, 3 usual), two lengths (5 each)
FIXED_BOUND = 5 + 1 + 10 + 5 + 5 + 5 + 1
SMALL_FIXED_BOUND = 3 + 1 + 10 + 3 + 1 + 3 + 1  # no key, no headers, a value below 8 KiB, offsets below 2**20
SMALL_VALUE_BYTES = 8192


def record_size_bound(key_bytes: int, value_bytes: int, headers: Headers | None) -> int:
    """At least as many bytes as the record takes in a batch; -1 for a null key or value. Cheap: asked on every send."""
    if headers is None:
        if key_bytes < 0 and value_bytes < SMALL_VALUE_BYTES:
            return SMALL_FIXED_BOUND + (value_bytes if value_bytes > 0 else 0)
        return FIXED_BOUND + (key_bytes if key_bytes > 0 else 0) + (value_bytes if value_bytes > 0 else 0)
    bound = FIXED_BOUND + 5 + max(key_bytes, 0) + max(value_bytes, 0)
    for name, value in headers:
        bound += 10 + 4 * len(name) + (0 if value is None else len(value))
    return bound


def record_size(
    key_bytes: int, value_bytes: int, headers: Headers | None, timestamp_delta: int, offset_delta: int
) -> int:
    """Exactly the bytes of the record, its length field included."""
    body = 1 + size(timestamp_delta) + size(offset_delta)
    body += size(key_bytes) + max(key_bytes, 0) + size(value_bytes) + max(value_bytes, 0)
    body += size(len(headers or ()))
    for name, value in headers or ():
        name_bytes = len(name.encode())
        body += size(name_bytes) + name_bytes + size(-1 if value is None else len(value))
        body += 0 if value is None else len(value)
    return size(body) + body


def encode_records(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: list[Headers | None] | None,
    timestamp_deltas: list[int],
) -> bytes:
    """The record section of a batch, offset deltas from 0."""
    if keys is None and headers is None:
        return _encode_values(values, timestamp_deltas)
    parts: list[bytes] = []
    for index, value in enumerate(values):
        key = None if keys is None else keys[index]
        pairs = None if headers is None else headers[index]
        body = [
            b"\0", encode(timestamp_deltas[index]), encode(index),
            encode(-1 if key is None else len(key)), b"" if key is None else key,
            encode(-1 if value is None else len(value)), b"" if value is None else value,
        ]  # fmt: skip
        if pairs:
            body.append(encode(len(pairs)))
            for name, content in pairs:
                encoded = name.encode()
                body += [encode(len(encoded)), encoded]
                body += [b"\x01"] if content is None else [encode(len(content)), content]
        else:
            body.append(b"\0")
        record = b"".join(body)
        parts.append(encode(len(record)))
        parts.append(record)
    return b"".join(parts)


def _encode_values(values: list[bytes | None], timestamp_deltas: list[int]) -> bytes:
    """The usual section: values alone."""
    parts: list[bytes] = []
    add = parts.append
    small = SMALL
    for index, value in enumerate(values):
        delta = timestamp_deltas[index]
        timestamp = small[delta] if 0 <= delta < TABLE_TO else encode(delta)
        offset = small[index] if index < TABLE_TO else encode(index)
        if value is None:
            value = b""
            length = b"\x01"
        else:
            length = small[len(value)] if len(value) < TABLE_TO else encode(len(value))
        body = 3 + len(timestamp) + len(offset) + len(length) + len(value)
        add(small[body] if body < TABLE_TO else encode(body))
        add(b"\0")
        add(timestamp)
        add(offset)
        add(b"\x01")
        add(length)
        add(value)
        add(b"\0")
    return b"".join(parts)


def batch_header(
    section: bytes | bytearray,
    *,
    count: int,
    attributes: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """The header of a batch whose (compressed) records are `section`; made in the step that writes it."""
    after = _AFTER_CRC.pack(
        attributes, count - 1, base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, count
    )
    crc = checksum((after, section))
    return _BEFORE_CRC.pack(0, HEADER_BYTES - LENGTH_BEFORE + len(section), -1, MAGIC, crc) + after
