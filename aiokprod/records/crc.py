"""The checksum of a batch: CRC32C over the parts of it, without joining them."""

from __future__ import annotations

from collections.abc import Sequence

from crc32c import crc32c


def checksum(parts: Sequence[bytes | bytearray | memoryview]) -> int:
    """CRC32C of the parts one after the other."""
    value = 0
    for part in parts:
        value = crc32c(part, value)
    return value
