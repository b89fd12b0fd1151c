"""Ways of sending that wait for each acknowledgement, the same for every asyncio client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import cycle

from child import Stopwatch
from job import Job

from aiokprod.testing.checker import StallMeter

Send = Callable[[bytes, bytes | None], Awaitable[object]]
"""Sends one record and returns when it is acknowledged."""


async def one_at_a_time(job: Job, stopwatch: Stopwatch, send: Send) -> None:
    """`await send(...)`, again and again."""
    value = job.value()
    with stopwatch.running():
        for _ in range(job.count):
            began = time.perf_counter()
            await send(value, None)
            stopwatch.latencies_s.append(time.perf_counter() - began)


async def tasks(job: Job, stopwatch: Stopwatch, send: Send) -> None:
    """`job.tasks` tasks, each awaiting its sends one after the other: a web application under load."""
    value, keys = job.value(), cycle(job.key_list() or [None])
    left = job.count

    async def one() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = time.perf_counter()
            await send(value, next(keys))
            stopwatch.latencies_s.append(time.perf_counter() - began)

    async with StallMeter() as meter:
        with stopwatch.running():
            await asyncio.gather(*(one() for _ in range(job.tasks)))
    stopwatch.worst_stall_s = meter.worst_s
