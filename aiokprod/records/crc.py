"""The checksum of a batch: CRC32C over the parts of it, without joining them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache


@cache
def load() -> Callable[[bytes | bytearray | memoryview, int], int]:
    """The function of the `crc32c` package, imported when it is first asked for.

    The package takes 10 ms to import, as it looks its own version up among all the installed packages: a program that
    imports us and sends nothing need not wait for it (`-X importtime`). A producer asks when it starts.
    """
    from crc32c import crc32c

    return crc32c


def checksum(parts: Sequence[bytes | bytearray | memoryview]) -> int:
    """CRC32C of the parts one after the other."""
    crc32c = load()
    value = 0
    for part in parts:
        value = crc32c(part, value)
    return value
