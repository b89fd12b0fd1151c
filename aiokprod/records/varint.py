"""Zigzag varints of record format v2. Pure."""

from __future__ import annotations

from struct import unpack
from typing import Final

TABLE_FROM: Final = -4096
TABLE_TO: Final = 16384


def _encode(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _table(lowest: int, count: int) -> list[bytes]:
    """Encode `count` unsigned numbers, every second one from `lowest` (0 or 1) on. Runs at import, so `struct` cuts columns."""
    low_of_more = bytes(range(0x80 + lowest, 0x100, 2))
    table = [bytes((number,)) for number in range(lowest, 0x80, 2)]
    highs = [bytes((high,)) * len(low_of_more) for high in range(1, 0x80)]
    two = bytearray(2 * len(low_of_more) * len(highs))
    two[0::2] = low_of_more * len(highs)
    two[1::2] = b"".join(highs)
    table.extend(unpack("2s" * (len(two) // 2), two))
    if len(table) < count:
        middles = [bytes((middle | 0x80,)) * len(low_of_more) for middle in range(0x80)]
        three = bytearray(b"\1" * (3 * len(low_of_more) * len(middles)))
        three[0::3] = low_of_more * len(middles)
        three[1::3] = b"".join(middles)
        table.extend(unpack("3s" * (len(three) // 3), three))
    return table[:count]


# Lengths, offset deltas and timestamp deltas are nearly always in these tables: a look-up costs a fifth of the loop.
SMALL: Final[list[bytes]] = _table(0, TABLE_TO)
SMALL_NEGATIVE: Final[list[bytes]] = _table(1, -TABLE_FROM)
FIRST_OF_LENGTH: Final = (0, 0, 1 << 6, 1 << 13, 1 << 20)
"""The first number, from 0 on, whose encoding has 1, 2, 3 and 4 bytes."""


def _columns() -> tuple[bytes, bytes, bytes]:
    """Return the first, second and third bytes of `SMALL`, 0 where an encoding is shorter."""
    more = bytes(range(0x80, 0x100, 2))
    second = [bytes((high,)) * len(more) for high in (*range(0x80), *range(0x80, 0x100))]
    long = TABLE_TO - FIRST_OF_LENGTH[3]
    return (
        bytes(range(0, 0x80, 2)) + more * (TABLE_TO // len(more) - 1),
        b"".join(second),
        bytes(FIRST_OF_LENGTH[3]) + b"\1" * long,
    )


SMALL_COLUMNS: Final = _columns()
"""The same table by columns: the bytes of many numbers are a slice of each."""


def encode(value: int) -> bytes:
    """Encode a signed number of at most 64 bits as a zigzag varint."""
    if 0 <= value < TABLE_TO:
        return SMALL[value]
    if TABLE_FROM <= value < 0:
        return SMALL_NEGATIVE[-1 - value]
    return _encode(value)
