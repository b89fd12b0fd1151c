"""Counters of the instructions that this process runs in user mode: the processor's own, or callgrind's.

`PerfCounter` asks the kernel (perf_event_open). Where that is not allowed (containers, virtual machines) the process
runs under callgrind, and `CallgrindCounter` only marks where sections begin and end. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from typing import Final

PERF_EVENT_OPEN: Final = {"x86_64": 298, "aarch64": 241}
HARDWARE, INSTRUCTIONS = 0, 1
ATTRIBUTE_BYTES: Final = 112  # PERF_ATTR_SIZE_VER5
DISABLED, EXCLUDE_KERNEL, EXCLUDE_HYPERVISOR = 1 << 0, 1 << 5, 1 << 6
ENABLE: Final = 0x2400
MARKER: Final = "getpgid"
"""The C function behind `os.getpgid`, which nothing else here calls: callgrind dumps its counts when it is entered."""


class Counter:
    """Return the counts of the sections, in order: (name, instructions)."""

    def __init__(self) -> None:
        self.counts: list[tuple[str, int]] = []

    def mark(self) -> int:
        """Return the instructions counted so far, or what stands for them."""
        raise AssertionError("abstract")

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        before = self.mark()
        yield
        self.counts.append((name, self.mark() - before))


class PerfCounter(Counter):
    """The processor's counter for this thread."""

    def __init__(self) -> None:
        super().__init__()
        self._descriptor = open_counter()

    def mark(self) -> int:
        return int(struct.unpack("q", os.read(self._descriptor, 8))[0])


class CallgrindCounter(Counter):
    """Marks for callgrind: in place of each count the number of the dump that holds it (see `dumped`)."""

    def __init__(self) -> None:
        super().__init__()
        self._marks = 0

    def mark(self) -> int:
        os.getpgid(0)
        self._marks += 1
        return self._marks

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.mark()
        yield
        self.counts.append((name, self.mark()))


def open_counter() -> int:
    """Open a descriptor whose eight bytes are the instructions of this thread in user mode.

    Raises:
        OSError: this machine does not allow it.
    """
    attribute = bytearray(ATTRIBUTE_BYTES)
    struct.pack_into("IIQ", attribute, 0, HARDWARE, ATTRIBUTE_BYTES, INSTRUCTIONS)
    struct.pack_into("Q", attribute, 40, DISABLED | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR)
    call = ctypes.CDLL(None, use_errno=True).syscall
    number = PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        raise OSError(f"perf_event_open on {platform.machine()} is not known here")
    buffer = (ctypes.c_char * ATTRIBUTE_BYTES).from_buffer(attribute)
    descriptor = call(ctypes.c_long(number), buffer, 0, -1, ctypes.c_int(-1), ctypes.c_ulong(0))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    ioctl(descriptor, ENABLE, 0)
    return int(descriptor)


def may_use_perf() -> bool:
    """Return whether this machine allows counting, and whether the counter moves."""
    try:
        descriptor = open_counter()
    except OSError:
        return False
    counted = os.read(descriptor, 8)
    os.close(descriptor)
    return counted != bytes(8)


def dumped(sections: list[tuple[str, int]], folder: Path) -> list[tuple[str, int]]:
    """Return the counts of the sections whose dumps have these numbers: a dump covers the time since the previous mark."""
    counts = []
    for name, number in sections:
        text = (folder / f"callgrind.out.{number}").read_text()
        total = next(line for line in text.splitlines() if line.startswith(("totals:", "summary:")))
        counts.append((name, int(total.split()[1])))
    return counts
