"""Zigzag varints of record format v2. Pure."""

from __future__ import annotations

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


# Lengths, offset deltas and timestamp deltas are nearly always here: a look-up costs a fifth of the loop.
SMALL: Final[list[bytes]] = [_encode(value) for value in range(TABLE_TO)]
SMALL_NEGATIVE: Final[list[bytes]] = [_encode(-1 - value) for value in range(-TABLE_FROM)]


def encode(value: int) -> bytes:
    """A signed number of at most 64 bits as zigzag varint."""
    if 0 <= value < TABLE_TO:
        return SMALL[value]
    if TABLE_FROM <= value < 0:
        return SMALL_NEGATIVE[-1 - value]
    return _encode(value)
