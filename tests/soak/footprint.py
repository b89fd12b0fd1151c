"""How much memory the objects of this process take, which its resident size does not say: that never goes back.

What an outage of a minute had piled up is given back by the producer, not by the C library and Python, which keep it for the
next one; so resident memory is that of the worst outage so far, and goes on growing with each that is worse.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

BLOCK_BYTES: Final = 64
"""Of one of Python's own small blocks, about."""


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and later."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def in_use_bytes() -> int:
    """Return the bytes in use of the C library's heap and of Python's small blocks; without glibc only the latter."""
    small = BLOCK_BYTES * sys.getallocatedblocks()
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return small
    mallinfo2.restype = _MallInfo
    found = mallinfo2()
    return int(found.uordblks) + int(found.hblkhd) + small
