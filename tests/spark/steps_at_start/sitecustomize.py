"""The start-up module of Spark's Python workers in tests: ends, holds or fails a process at a step of an exactly-once write.

`AIOKPROD_TEST_STEPS` is a folder with `rules.json`: {sink id: [step, which time, action]}; the step "*" is any one. Actions:

    hold   make the file `<sink>.held`, and wait for `<sink>.release`
    raise  raise a RuntimeError
    kill   SIGKILL the JVM that this worker belongs to, and this process

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


def install(folder: Path) -> None:
    """Replace the function that every step passes."""
    from aiokprod.spark.exactly_once import requests

    rules = json.loads((folder / "rules.json").read_text())

    def reached(step: str, sink: str) -> None:
        rule = rules.get(sink) or rules.get("*")
        if rule is None or rule[0] not in (step, "*"):
            return
        if times(folder / (sink if sink in rules else "all")) != rule[1]:
            return
        if rule[2] == "raise":
            raise RuntimeError(f"{step} fails")
        (folder / f"{sink}.held").write_text(step)
        if rule[2] == "kill":
            kill()
        while not (folder / f"{sink}.release").exists():
            time.sleep(0.02)

    requests.reached = reached
    requests.AT_A_TIME = 1  # one EndTxn after the other, so that there is a time between them


if "AIOKPROD_TEST_STEPS" in os.environ:
    install(Path(os.environ["AIOKPROD_TEST_STEPS"]))
