"""`ProcessReaper`: ends our JVMs if this process dies without ending them itself (SIGKILL, a test runner's time limit).

One per process cluster: a small shell that waits on a pipe from this process. After a line on the pipe, an orderly end,
it does nothing. If the pipe ends without a line, this process has died: the shell kills every process whose id is noted in
the directory, and removes the directory. An id is noted when its process starts and removed when it has been waited for,
so it cannot have passed to another process meanwhile.
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


class ProcessReaper:
    """A watcher that ends processes when this process cannot."""

    def __init__(self, directory: Path) -> None:
        self._notes = directory / "pids"
        self._notes.mkdir()
        self._watcher = subprocess.Popen(
            ["/bin/sh", "-c", _WATCH, "aiokprod-reaper", str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, pid: int) -> None:
        """Note a process that has to end with this one."""
        (self._notes / str(pid)).touch()

    def remove(self, pid: int) -> None:
        """Forget a process that has ended and has been waited for."""
        (self._notes / str(pid)).unlink(missing_ok=True)

    def close(self) -> None:
        """End the watching shell: all processes have ended in order."""
        assert self._watcher.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._watcher.stdin.write(b"done\n")
            self._watcher.stdin.close()
        self._watcher.wait()
