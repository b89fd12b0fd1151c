"""Encoding of record batch v2: the record section once, the 61-byte header when the batch is stamped. Pure.

    header (61) | record | record | ...         record: length, attributes, timestamp delta, offset delta, key, value, headers

`encode_records` is the hottest function after `send`: one pass, parts collected in a list and joined once; or, where values
are of one size, one join with all that stands between two values. The section is encoded before the sequence number is
known, so it holds nothing that could change with an attempt.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, cast

from aiokprod.records.crc import load
from aiokprod.records.headers import NO_HEADERS, NULL
from aiokprod.records.varint import FIRST_OF_LENGTH, SMALL, SMALL_COLUMNS, TABLE_TO, encode

NO_ATTRIBUTES: Final = b"\0"
MAGIC = 2
CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
HEADER_BYTES = 61
LENGTH_BEFORE = 12  # the base offset and the length field itself are not counted in the length
_pack_before_crc: Final = Struct(">qiibI").pack
_pack_after_crc: Final = Struct(">hiqqqhii").pack

# length (5), attributes (1), timestamp delta (10 at most, 3 usual), offset delta (5 at most, 3 usual), two lengths (5 each)
FIXED_BOUND: Final = 5 + 1 + 10 + 5 + 5 + 5 + 1
SMALL_FIXED_BOUND: Final = 3 + 1 + 10 + 3 + 1 + 3 + 1  # no key, no headers, a value below 8 KiB, offsets below 2**20
SMALL_VALUE_BYTES: Final = 8192
LARGE_VALUE_BYTES: Final = 1024  # such values are copied as rarely as can be: `_encode_rows` does it once more
LONG_RUN: Final = (
    8  # records of one timestamp, as a mean; a block of `_encode_rows` costs as much as some records alone
)


def record_size_bound(key_bytes: int, value_bytes: int, header_bytes: int) -> int:
    """Return an upper bound of the record's bytes in a batch. Cheap: called on every send.

    Args:
        key_bytes, value_bytes: the sizes; -1 for null.
        header_bytes: the size of the encoded headers; 0 if there are none.
    """
    # -1 for a null value is counted as it is: its length needs one byte. So the bound tells it from an empty one.
    if key_bytes < 0 and header_bytes == 0 and value_bytes < SMALL_VALUE_BYTES:
        return SMALL_FIXED_BOUND + value_bytes
    return FIXED_BOUND + header_bytes + (key_bytes if key_bytes > 0 else 0) + value_bytes


def value_size_of(bound_bytes: int, key_bytes: int, header_bytes: int) -> int:
    """Return the size of a value by `record_size_bound` of its record, or -1 for null.

    Args:
        bound_bytes: the bound.
        key_bytes, header_bytes: as for `record_size_bound`.
    """
    if key_bytes < 0 and header_bytes == 0 and bound_bytes < FIXED_BOUND + SMALL_VALUE_BYTES:
        return bound_bytes - SMALL_FIXED_BOUND
    return bound_bytes - FIXED_BOUND - header_bytes - (key_bytes if key_bytes > 0 else 0)


def encode_records(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    headers: list[bytes | None] | None,
    timestamp_deltas: list[int] | None,
) -> bytes:
    """Encode the record section of a batch, with offset deltas from 0.

    Most records resemble the one before: the bytes of a length that has not changed are used again.

    Args:
        values: one for each record.
        keys: as many; None: no record has one.
        headers: as many, encoded; None: no record has any.
        timestamp_deltas: as many, in milliseconds; None: all are 0.
    """
    # Counted for records without keys only: to compare an object with None costs as much as a tenth of its encoding.
    with_headers = 0 if headers is None or keys is not None else len(headers) - headers.count(None)
    if keys is None and with_headers * LONG_RUN <= len(values):
        value_bytes = _size_of_each(values)
        if 0 < value_bytes < LARGE_VALUE_BYTES and len(values) <= TABLE_TO:
            ends = [len(values)] if timestamp_deltas is None else _ends_of_runs(timestamp_deltas)
            if headers is not None and with_headers:
                ends = _with_runs_of_one(ends, headers)
            if len(ends) * LONG_RUN <= len(values):
                return _encode_rows(values, value_bytes, headers, timestamp_deltas, ends)
        if not with_headers:
            return _encode_values(values, timestamp_deltas)
    small = SMALL
    parts: list[bytes] = []
    stamped_delta = 0
    stamp = NO_ATTRIBUTES + small[0]  # attributes and timestamp delta
    key_size = value_size = -1
    key_length = value_length = NULL
    for index, value in enumerate(values):
        delta = 0 if timestamp_deltas is None else timestamp_deltas[index]
        if delta != stamped_delta:
            stamped_delta = delta
            stamp = NO_ATTRIBUTES + encode(delta)
        offset = small[index] if index < TABLE_TO else encode(index)
        key = None if keys is None else keys[index]
        size = -1 if key is None else len(key)
        if size != key_size:
            key_size = size
            key_length = encode(size)
        size = -1 if value is None else len(value)
        if size != value_size:
            value_size = size
            value_length = encode(size)
        pairs = None if headers is None else headers[index]
        if pairs is None:
            pairs = NO_HEADERS
        body = len(stamp) + len(offset) + len(key_length) + len(value_length) + len(pairs)
        if key_size > 0:
            body += key_size
        if value_size > 0:
            body += value_size
        parts.append(small[body] if body < TABLE_TO else encode(body))
        parts.append(stamp)
        parts.append(offset)
        parts.append(key_length)
        if key is not None:
            parts.append(key)
        parts.append(value_length)
        if value is not None:
            parts.append(value)
        parts.append(pairs)
    return b"".join(parts)


def _size_of_each(values: list[bytes | None]) -> int:
    """Return the size of each value, if all are of one size; else, or if there are few, -1."""
    if len(values) < LONG_RUN:
        return -1
    first = values[0]
    if first is None:
        return -1
    size = len(first)
    for value in values:
        if value is None or len(value) != size:
            return -1
    return size


def _ends_of_runs(timestamp_deltas: list[int]) -> list[int]:
    """Return where runs of equal deltas end."""
    ends: list[int] = []
    before = timestamp_deltas[0]
    for index, delta in enumerate(timestamp_deltas):
        if delta != before:
            before = delta
            ends.append(index)
    ends.append(len(timestamp_deltas))
    return ends


def _with_runs_of_one(ends: list[int], headers: list[bytes | None]) -> list[int]:
    """Return where runs end if each record with headers is a run of its own."""
    cuts = set(ends)
    for index, pairs in enumerate(headers):
        if pairs is not None:
            cuts.add(index)
            cuts.add(index + 1)
    cuts.discard(0)
    return sorted(cuts)


def _encode_rows(
    values: list[bytes | None],
    value_bytes: int,
    headers: list[bytes | None] | None,
    timestamp_deltas: list[int] | None,
    ends: list[int],
) -> bytes:
    """Encode values of one size, without keys, of which few have headers (a share of the records is traced, for example).

    Such records are rows of a table in which only offset deltas and values differ, while timestamp and length of the offset
    delta stay the same. Values are joined with all that stands between two of them, then offset deltas are filled in, column
    by column.

    Args:
        values: none is null.
        value_bytes: the size of each.
        headers: as many, encoded; a record that has some is a run of its own. None: no record has any.
        timestamp_deltas: one for each; None: all are 0.
        ends: where runs of equal timestamp deltas end.
    """
    plain = cast("list[bytes]", values)
    value_length = NULL + encode(value_bytes)  # of the key and of the value
    section = bytearray()
    first = 0
    for end in ends:
        stamp = NO_ATTRIBUTES + encode(0 if timestamp_deltas is None else timestamp_deltas[first])
        pairs = None if headers is None else headers[first]
        tail = NO_HEADERS if pairs is None else pairs
        while first < end:
            offset_bytes = len(encode(first))
            last = min(end, FIRST_OF_LENGTH[offset_bytes + 1])
            body = len(stamp) + offset_bytes + len(value_length) + value_bytes + len(tail)
            begin = encode(body) + stamp
            row = begin + bytes(offset_bytes) + value_length
            at = len(section) + len(begin)
            section += row
            section += (tail + row).join(plain[first:last])
            section += tail
            row_bytes = len(row) + value_bytes + len(tail)
            for position in range(offset_bytes):
                section[at + position :: row_bytes] = SMALL_COLUMNS[position][first:last]
            first = last
    return bytes(section)


def _encode_values(values: list[bytes | None], timestamp_deltas: list[int] | None) -> bytes:
    """Encode the usual section, values alone.

    A record is four parts: the bytes before its offset delta, the offset delta, the bytes before its value, the value. The
    "no headers" byte at its end is written together with the beginning of the next record.
    """
    if not values:
        return b""
    small = SMALL
    parts: list[bytes] = []
    stamped_delta = 0
    stamp = NO_ATTRIBUTES + small[0]
    value_size = -1
    value_length = NULL + NULL  # of the key and of the value
    body = before_body = 0
    before = b""
    for index, value in enumerate(values):
        delta = 0 if timestamp_deltas is None else timestamp_deltas[index]
        if delta != stamped_delta:
            stamped_delta = delta
            stamp = NO_ATTRIBUTES + encode(delta)
            before_body = 0
        offset = small[index] if index < TABLE_TO else encode(index)
        size = -1 if value is None else len(value)
        if size != value_size:
            value_size = size
            value_length = NULL + encode(size)
        body = len(stamp) + len(offset) + len(value_length) + len(NO_HEADERS)
        if size > 0:
            body += size
        if body != before_body:
            before_body = body
            before = NO_HEADERS + encode(body) + stamp
        parts.append(before)
        parts.append(offset)
        parts.append(value_length)
        if value is not None:
            parts.append(value)
    parts[0] = parts[0][1:]  # the first record has no predecessor to end with "no headers"
    parts.append(NO_HEADERS)
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
    """Make the header of a batch whose (compressed) records are `section`, in the step that writes the batch."""
    after = _pack_after_crc(
        attributes, count - 1, base_timestamp_ms, max_timestamp_ms, producer_id, producer_epoch, base_sequence, count
    )
    crc32c = load()
    crc = crc32c(section, crc32c(after, 0))
    # Base offset 0 and leader epoch -1: the broker sets both, and the CRC does not cover them.
    return _pack_before_crc(0, HEADER_BYTES - LENGTH_BEFORE + len(section), -1, MAGIC, crc) + after
