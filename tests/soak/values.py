"""What is in a record of a soak: who sent it, and a checksum over all of it. Pure."""

from __future__ import annotations

import zlib

DAMAGED = "damaged"
FILLER = bytes((index * index * 7 + index // 3) % 61 + 48 for index in range(1 << 20))  # compresses, not to nothing


def value_of(life: str, number: int, size: int) -> bytes:
    """About `size` bytes: identity, checksum, filler."""
    identity = b"%s:%d" % (life.encode(), number)
    start = number * 131 % 65_536
    filler = FILLER[start : start + max(0, size - len(identity) - 10)]
    return b"%s %08x %s" % (identity, zlib.crc32(filler, zlib.crc32(identity)), filler)


def identity_of(value: bytes | None) -> bytes | None:
    """Whose record it is; None: it is damaged, or none of ours."""
    parts = (value or b"").split(b" ", 2)
    if len(parts) != 3:
        return None
    identity, checksum, filler = parts
    return identity if b"%08x" % zlib.crc32(filler, zlib.crc32(identity)) == checksum else None
