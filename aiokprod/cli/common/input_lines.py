"""Lines of files and of standard input, read on a thread of their own, so that a slow source holds nothing up.

The thread reads descriptors directly: Python cannot end while another thread is inside a buffered read of standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

CHUNK_BYTES: Final = 256 * 1024
AHEAD: Final = 4
"""chunks that may wait for the loop"""
STDIN: Final = "-"


class InputLines:
    """The lines of several files, one after another; `-` is standard input.

    Args:
        paths: names of files; none is standard input.
        longest: bytes of the longest line that is taken.

    Attributes:
        read_bytes: how much was read so far.
        total_bytes: of all files; None if one of them is a pipe or a terminal.
    """

    def __init__(self, paths: Sequence[str], longest: int) -> None:
        self._paths = paths or [STDIN]
        self._longest = longest
        self.read_bytes = 0
        self.total_bytes = self._total()

    @property
    def is_typed(self) -> bool:
        """True if a person types the lines, on a terminal."""
        return STDIN in self._paths and sys.stdin.isatty()

    def _total(self) -> int | None:
        total = 0
        for path in self._paths:
            try:
                found = os.fstat(0) if path == STDIN else Path(path).stat()
            except OSError:
                return None
            if not stat.S_ISREG(found.st_mode):
                return None
            total += found.st_size
        return total

    async def lines(self) -> AsyncIterator[list[bytes]]:
        """Yield the lines as they come, several at a time, each without its end.

        Raises:
            OSError: a file cannot be read.
            ValueError: a line is longer than `longest`.

        Cancellation: the thread is left behind if it waits for standard input; it ends with the process.
        """
        rest = b""
        async for chunk in self._chunks():
            if chunk is None:  # the end of a file ends a line
                if rest:
                    yield [rest.removesuffix(b"\r")]
                rest = b""
                continue
            self.read_bytes += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            if lines:
                yield [line.removesuffix(b"\r") for line in lines]
            if len(rest) > self._longest:
                raise ValueError(
                    f"a line is longer than {self._longest} bytes: raise max.request.size (-X), or send a file that has no"
                    " lines with --whole"
                )

    async def contents(self) -> AsyncIterator[bytes]:
        """Yield each file as a whole.

        Raises:
            OSError: a file cannot be read.
            ValueError: a file is longer than `longest`.

        Cancellation: as for `lines`.
        """
        content = bytearray()
        async for chunk in self._chunks():
            if chunk is None:
                yield bytes(content)
                content = bytearray()
                continue
            self.read_bytes += len(chunk)
            content += chunk
            if len(content) > self._longest:
                raise ValueError(f"a file is longer than {self._longest} bytes: raise max.request.size (-X)")

    async def _chunks(self) -> AsyncIterator[bytes | None]:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        room = threading.Semaphore(AHEAD)
        stopped = threading.Event()
        ended = object()

        def put(item: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(queue.put_nowait, item)

        def read_all() -> None:
            try:
                for path in self._paths:
                    with _opened(path) as read:
                        while not stopped.is_set() and (chunk := read(CHUNK_BYTES)):
                            put(chunk)
                            room.acquire()
                    put(None)
                    if stopped.is_set():
                        return
            except BaseException as error:  # told on the loop
                put(error)
            else:
                put(ended)

        threading.Thread(target=read_all, name="aiokprod-input", daemon=True).start()
        try:
            while (item := await queue.get()) is not cast("Any", ended):
                if isinstance(item, BaseException):
                    raise item
                yield item
                if item is not None:
                    room.release()
        finally:
            stopped.set()
            room.release()


@contextlib.contextmanager
def _opened(path: str) -> Generator[Callable[[int], bytes]]:
    """Yield a function that reads what is there, at most so many bytes; b"" at the end."""
    if path != STDIN:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            yield file.read
        return
    stream = sys.stdin.buffer
    descriptor = _descriptor(stream)
    if descriptor is None:  # in a test
        yield stream.read
    else:
        yield lambda size: os.read(descriptor, size)


def _descriptor(stream: BinaryIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, AttributeError, ValueError):
        return None
