"""One job, run in this process; prints what it measured: `python bench/child.py JOB`. Called by `run.py`.

It prints `begin` when the client is connected and warm, so that the broker's share can be measured from there.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module

from job import Job, Measured, quantile_ms


class Stopwatch:
    """The stopwatch of a client module: what it measures itself with.

    Attributes:
        sent: records in the measured part, if not `job.count`.
        before: records sent before the measured part, besides the one that every client begins with.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.latencies_s = array("d")  # of a list of millions the garbage collector looks at each, for 20 ms
        self.worst_stall_s: float | None = None
        self.offered: float | None = None
        self.sent: int | None = None
        self.before = 0
        self.measured: Measured | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measure the block: from the first send to the last acknowledgement."""
        gc.collect()
        print("begin", flush=True)
        cpu_s, began = time.process_time(), time.perf_counter()
        yield
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
        print("end", flush=True)
        self.measured = Measured(seconds, cpu_s, self.job.count if self.sent is None else self.sent)

    def result(self) -> Measured:
        assert self.measured is not None, "the client did not measure"
        if self.latencies_s:
            ordered = sorted(self.latencies_s)
            self.measured.p50_ms, self.measured.p99_ms = quantile_ms(ordered, 0.5), quantile_ms(ordered, 0.99)
            self.measured.p999_ms, self.measured.worst_ms = quantile_ms(ordered, 0.999), ordered[-1] * 1e3
        if self.worst_stall_s is not None:
            self.measured.stall_ms = self.worst_stall_s * 1e3
        self.measured.offered = self.offered
        return self.measured


def main() -> None:
    job = Job.from_json(sys.argv[1])
    if job.core is not None:
        os.sched_setaffinity(0, {job.core})
    stopwatch = Stopwatch(job)
    done = import_module(f"peers.{job.client}").WAYS[job.way](job, stopwatch)
    if done is not None:
        asyncio.run(done)
    print(json.dumps({"before": stopwatch.before, "measured": asdict(stopwatch.result())}), flush=True)


if __name__ == "__main__":
    main()
