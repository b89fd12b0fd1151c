"""Ways of sending that wait for each acknowledgement, the same for every asyncio client."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import cycle

from child import Stopwatch
from job import Job

from aiokprod.testing.checker import StallMeter

Send = Callable[[bytes, bytes | None], Awaitable[object]]
"""Sends one record and returns when it is acknowledged."""


Told = Callable[[object], None]
"""A callback: called when the record is acknowledged, with the argument that the client gives."""
TRIAL, TRIAL_S = 50_000, 1.0  # at least so many records, and at least so long
SHARE = 0.5


async def nothing() -> None:
    """Return at once: this client waits for room in its send."""


async def one_at_a_time(job: Job, stopwatch: Stopwatch, send: Send) -> None:
    """Call `await send(...)` repeatedly."""
    value = job.value()
    with stopwatch.running():
        for _ in range(job.count):
            began = time.perf_counter()
            await send(value, None)
            stopwatch.latencies_s.append(time.perf_counter() - began)


async def tasks(job: Job, stopwatch: Stopwatch, send: Send) -> None:
    """Run `job.tasks` tasks, each awaiting its sends one after the other, like a web application under load."""
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


async def open_loop(
    job: Job,
    stopwatch: Stopwatch,
    submit: Callable[[Told], Awaitable[None]],
    room: Callable[[], Awaitable[object]],
) -> None:
    """Send records at fixed times, at half the client's maximum rate, without regard to earlier records.

    Latency counts from when a record was due, not from when it was sent, so that a client that stalls is charged for
    every record that was due meanwhile (coordinated omission).
    """
    sent_before, capacity = await _capacity(submit, room)
    rate = SHARE * capacity
    stopwatch.offered, stopwatch.before = rate, sent_before
    stopwatch.sent = records = int(rate * job.seconds)
    latencies, clock = stopwatch.latencies_s, time.perf_counter

    def tell(intended: float, _: object) -> None:
        latencies.append(clock() - intended)

    async with StallMeter() as meter:
        with stopwatch.running():
            began, sent = clock(), 0
            while sent < records:
                now = clock()
                while sent < records and (intended := began + sent / rate) <= now:
                    await submit(partial(tell, intended))
                    sent += 1
                    if sent % 500 == 0:  # a late task catches up as fast as room allows; the delay counts as latency
                        await room()
                        await asyncio.sleep(0)  # let other tasks run, as every asyncio program must
                await asyncio.sleep(max(0.0, began + sent / rate - clock()))
            while len(latencies) < records:
                await asyncio.sleep(0.001)
    stopwatch.worst_stall_s = meter.worst_s


async def _capacity(
    submit: Callable[[Told], Awaitable[None]], room: Callable[[], Awaitable[object]]
) -> tuple[int, float]:
    """Send at full speed for a while, with a callback for each record as in the measured part.

    Returns:
        The number of records, and how many of them there were in a second.
    """
    latencies, clock = array("d"), time.perf_counter

    def tell(intended: float, _: object) -> None:
        latencies.append(clock() - intended)

    began, sent = clock(), 0
    while sent < TRIAL or clock() - began < TRIAL_S:
        for _ in range(500):
            await submit(partial(tell, clock()))
        sent += 500
        await room()
        await asyncio.sleep(0)
    while len(latencies) < sent:
        await asyncio.sleep(0.001)
    return sent, sent / (clock() - began)
