"""`walk_records`: looks at every record of an unpacked section as a broker does, without making an object of any. Pure.

Called for each batch that a mock broker validates, so it is one function with no calls for lengths of one byte.
"""

from __future__ import annotations

from aiokprod.errors import ProtocolError


def walk_records(section: bytes, count: int) -> tuple[int, int]:
    """Return the least and the greatest timestamp delta.

    Raises:
        ProtocolError: the records are nonsense, or not so many, or do not end where the section does.
    """
    try:
        return _walk(section, count)
    except IndexError:
        raise ProtocolError("a record ends early") from None
    except UnicodeDecodeError:
        raise ProtocolError("a header's key is not UTF-8") from None


def _walk(section: bytes, count: int) -> tuple[int, int]:
    least = greatest = 0
    at, size = 0, len(section)
    if count > size:
        raise ProtocolError(f"{count} records in {size} bytes")
    for number in range(count):
        byte = section[at]
        at += 1
        if byte & 0x80:
            byte, at = _longer(section, at, byte)
        end = at + (byte >> 1)
        if byte & 1 or end > size:
            raise ProtocolError("a record is longer than its batch")
        byte = section[at + 1]  # behind the attributes
        at += 2
        if byte & 0x80:
            byte, at = _longer(section, at, byte)
        delta = (byte >> 1) ^ -(byte & 1)
        if number == 0:
            least = greatest = delta
        elif delta < least:
            least = delta
        elif delta > greatest:
            greatest = delta
        byte = section[at]  # the offset delta: a broker counts by itself (broker: 13.5c)
        at += 1
        if byte & 0x80:
            byte, at = _longer(section, at, byte)
        for _ in (0, 1):  # key, value
            byte = section[at]
            at += 1
            if byte & 0x80:
                byte, at = _longer(section, at, byte)
            if byte & 1:
                if byte != 1:
                    raise ProtocolError(f"the length {-(byte >> 1) - 1} in a record")
            else:
                at += byte >> 1
        if section[at]:
            at = _headers(section, at, end)
        else:
            at += 1
        if at != end:
            raise ProtocolError("a record does not fill its length")
    if at != size:
        raise ProtocolError(f"{size - at} bytes after the last record")
    return least, greatest


def _headers(section: bytes, at: int, end: int) -> int:
    """Return the position behind the headers whose count is here."""
    count, at = _varint(section, at)
    if not 0 <= count <= end - at:
        raise ProtocolError(f"a record with {count} headers")
    for _ in range(count):
        length, at = _varint(section, at)
        if length < 0:
            raise ProtocolError("a header without a key")
        if at + length > end:
            raise ProtocolError("a record ends early")
        section[at : at + length].decode()
        at += length
        length, at = _varint(section, at)
        if length < -1:
            raise ProtocolError(f"the length {length} in a record")
        at += max(length, 0)
    return at


def _varint(section: bytes, at: int) -> tuple[int, int]:
    byte = section[at]
    at += 1
    if byte & 0x80:
        byte, at = _longer(section, at, byte)
    return (byte >> 1) ^ -(byte & 1), at


def _longer(section: bytes, at: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint of several bytes; returns its value, still zigzag, and the position behind it."""
    value, shift = first & 0x7F, 7
    while True:
        if shift > 63:
            raise ProtocolError("a varint in a record is broken")
        byte = section[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
