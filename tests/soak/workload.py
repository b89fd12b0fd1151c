"""A workload of a soak: producers one after another in a process of its own, until told to drain.

    python workload.py '{"life": "five-0", "profile": "five", "servers": ..., "rate": ..., ...}' | keeper

One per life of a client process; the nemesis stops and kills it from outside. What it does and is told goes into the
book, through standard output. Commands come on standard input, a line each: `block S` stops the loop for S seconds,
`topic NAME N` adds a topic (that need not exist yet), `resolve ADDRESS` moves the brokers' name, `drain` ends in order.
If standard input ends, so do we.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import time
from dataclasses import replace
from typing import Any, cast

from mixture import Mixture
from names import NamingLoop
from profiles import PROFILES
from sender import Pen, Workload

LATE_S = 0.05  # a turn of the loop later than this is noted


class Watch:
    """A watch that looks at the loop every 10 ms, and at everything else every second."""

    def __init__(self, workload: Workload, pen: Pen) -> None:
        self._workload = workload
        self._pen = pen
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time()
        self._cpu_s = time.thread_time()
        self._sample_at = self._due
        self._turn()

    def _turn(self) -> None:
        now, cpu_s = time.monotonic(), time.thread_time()
        late_s = now - self._due
        if late_s > LATE_S:
            self._pen.write(f"l {now:.4f} {late_s:.4f} {cpu_s - self._cpu_s:.4f}")
        if now >= self._sample_at:
            self._sample_at = now + 1.0
            self._pen.write(f"m {now:.4f} {json.dumps(self._workload.sample())}")
        self._cpu_s = cpu_s
        self._due = now + 0.01
        self._loop.call_at(self._due, self._turn)


async def obey(workload: Workload) -> None:
    """Take commands until there are no more."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        await _obey(workload, reader)
    finally:
        transport.close()
    if not workload.draining.is_set():
        os._exit(3)  # the process that runs us is gone


async def _obey(workload: Workload, reader: asyncio.StreamReader) -> None:
    while line := await reader.readline():
        match line.decode().split():
            case ["block", seconds]:
                time.sleep(float(seconds))
            case ["topic", name, partitions]:
                workload.topics[name] = int(partitions)
            case ["resolve", address]:
                loop = asyncio.get_running_loop()
                assert isinstance(loop, NamingLoop)
                loop.address = address
            case ["drain"]:
                workload.draining.set()
            case other:
                raise ValueError(f"no command of ours: {other}")


async def main(job: dict[str, Any]) -> None:
    pen = Pen(asyncio.get_running_loop())
    profile = next(each for each in PROFILES if each.name == job["profile"])
    kind = Mixture if profile.mixes else Workload
    workload = kind(job, replace(profile, options=job["options"]), pen)
    commands = asyncio.create_task(obey(workload))
    await asyncio.sleep(0)
    Watch(workload, pen)
    await workload.run()
    commands.cancel()
    await asyncio.gather(commands, return_exceptions=True)
    await asyncio.sleep(0.01)  # the pipe of the commands closes a turn later
    pen.flush()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    given = json.loads(sys.argv[1])
    with asyncio.Runner(loop_factory=NamingLoop) as runner:
        cast("NamingLoop", runner.get_loop()).address = given["address"]
        runner.run(main(given))
    gc.collect()
