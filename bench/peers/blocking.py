"""Ways of sending without an event loop, the same for every client with callbacks: as `waiting`, but blocking."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from functools import partial

from child import Stopwatch
from job import Job

from peers.waiting import SHARE, TRIAL, TRIAL_S

Told = Callable[[object, object], None]
"""A callback: takes an error or None, and what the client reports about the record."""


def one_at_a_time(job: Job, stopwatch: Stopwatch, send: Callable[[bytes], object]) -> None:
    """Send one record after the other; `send` returns when its record is acknowledged."""
    value = job.value()
    with stopwatch.running():
        for _ in range(job.count):
            began = time.perf_counter()
            send(value)
            stopwatch.latencies_s.append(time.perf_counter() - began)


def open_loop(
    job: Job,
    stopwatch: Stopwatch,
    submit: Callable[[Told], object],
    wait: Callable[[float], object],
    flush: Callable[[], object],
) -> None:
    """Send as `waiting.open_loop` does; `wait(seconds)` lets the client call back."""
    clock = time.perf_counter
    latencies = array("d")

    def tell(intended: float, error: object, _: object) -> None:
        assert error is None, error
        latencies.append(clock() - intended)

    began, sent = clock(), 0
    while sent < TRIAL or clock() - began < TRIAL_S:
        for _ in range(500):
            submit(partial(tell, clock()))
        sent += 500
        wait(0)
    flush()
    rate = SHARE * sent / (clock() - began)
    stopwatch.offered, stopwatch.before = rate, sent
    stopwatch.sent = records = int(rate * job.seconds)
    latencies = stopwatch.latencies_s
    with stopwatch.running():
        began, sent = clock(), 0
        while sent < records:
            now = clock()
            while sent < records and (intended := began + sent / rate) <= now:
                submit(partial(tell, intended))
                sent += 1
            wait(max(0.0, min(0.001, began + sent / rate - clock())))
        flush()
    assert len(latencies) == records, len(latencies)
