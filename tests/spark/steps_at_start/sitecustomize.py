"""The start-up module of Spark's Python workers in tests: ends, holds or fails a process at a step of an exactly-once write.

`AIOKPROD_TEST_STEPS` is a folder with `rules.json`: {sink id: [[step, which time, action], ...]}; the step "*" is any one, the
sink "*" all of them together. Actions:

    hold   make the file `<sink>.held`, which names the step, and wait for `<sink>.release`; then remove both
    raise  raise a RuntimeError
    kill   make the file `<sink>.killed`, then SIGKILL the JVM that this worker belongs to, and this process

Times are counted in files, as any process of the driver may serve the next batch.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import NoReturn


def java_above() -> int:
    """Return the process id of the JVM that has started this worker."""
    pid = os.getpid()
    while True:
        status = Path(f"/proc/{pid}/status").read_text()
        pid = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid"))
        if "java" in Path(f"/proc/{pid}/comm").read_text():
            return pid


def kill() -> NoReturn:
    os.kill(java_above(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def times(path: Path) -> int:
    """Count one more."""
    with path.open("ab", buffering=0) as counted:
        counted.write(b".")
        return counted.tell()  # behind the own byte: others may have added theirs


def tell(path: Path, text: str) -> None:
    """Make a file that has its text from the beginning."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.rename(path)


def install(folder: Path) -> None:
    """Replace the function that every step passes."""
    from aiokprod.spark.exactly_once import requests

    rules = json.loads((folder / "rules.json").read_text())

    def reached(step: str, sink: str) -> None:
        counted = sink if sink in rules else "*"
        for number, (name, time_of_it, action) in enumerate(rules.get(counted, ())):
            if name in (step, "*") and times(folder / f"{counted}.{number}.times") == time_of_it:
                act(action, step, sink)

    def act(action: str, step: str, sink: str) -> None:
        if action == "raise":
            raise RuntimeError(f"{step} fails")
        tell(folder / f"{sink}.{'killed' if action == 'kill' else 'held'}", step)
        if action == "kill":
            kill()
        release = folder / f"{sink}.release"
        while not release.exists():
            time.sleep(0.02)
        (folder / f"{sink}.held").unlink()
        release.unlink()

    requests.reached = reached
    requests.AT_A_TIME = 1  # one EndTxn after the other, so that there is a time between them


if "AIOKPROD_TEST_STEPS" in os.environ:
    install(Path(os.environ["AIOKPROD_TEST_STEPS"]))
