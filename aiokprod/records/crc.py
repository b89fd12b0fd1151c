"""The checksum of a batch: CRC32C over its parts, without joining them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache


@cache
def load() -> Callable[[bytes | bytearray | memoryview, int], int]:
    """Return the function of the `crc32c` package, imported on the first call.

    The package takes 10 ms to import, as it looks up its own version among all installed packages (`-X importtime`). A
    program that imports aiokprod and sends nothing need not wait for it; a producer calls this when it starts.
    """
    from crc32c import crc32c

    return crc32c


def checksum(parts: Sequence[bytes | bytearray | memoryview]) -> int:
    """Return the CRC32C of the parts one after the other."""
    crc32c = load()
    value = 0
    for part in parts:
        value = crc32c(part, value)
    return value
