"""`Orphanage`: ends our JVMs if this process dies without ending them itself (SIGKILL, a test runner's time limit).

One per process cluster: a small shell that waits on a pipe from us. A line on the pipe is an orderly end and it does
nothing; the pipe's end without a line means we are gone: it kills every process whose id is noted in the directory and
removes the directory. An id is noted when its process starts and removed when it has been waited for, so it cannot have
passed to another process while we live.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

_WATCH = """\
read -r line && exit 0
for note in "$1"/pids/*; do [ -f "$note" ] && kill -9 "${note##*/}" 2>/dev/null; done
sleep 1
rm -rf "$1"
"""


class Orphanage:
    """Process ids to be ended when we are not there to do it."""

    def __init__(self, directory: Path) -> None:
        self._notes = directory / "pids"
        self._notes.mkdir()
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "aiokprod-orphanage", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, pid: int) -> None:
        """From now on this process ends with us."""
        (self._notes / str(pid)).touch()

    def remove(self, pid: int) -> None:
        """It has ended and has been waited for."""
        (self._notes / str(pid)).unlink(missing_ok=True)

    def close(self) -> None:
        """Everything has ended in order."""
        assert self._watcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._watcher.stdin.write(b"done\n")
            self._watcher.stdin.close()
        self._watcher.wait()
