"""The memory that a producer takes: `python bench/memory_child.py fill|million|steady JSON`. A child of `memory.py`.

Prints `pause` or `resume`, and waits for a line, when the broker must stop or go on answering (`pending.py`); the last
line is JSON: the number of acknowledged records, and the figures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from pending import MIB, Pending, ask
from startup_child import resident_mb

from aiokprod import Delivery, Producer
from aiokprod.testing.checker import StallMeter

ROUND = 500


async def fill(servers: str, topic: str, size: int) -> tuple[int, dict[str, float]]:
    """Send, while nothing is answered, until buffer_memory is full, and keep every Delivery."""
    value = bytes(size)
    async with Producer(servers) as producer:
        await producer.send(topic, value)
        limit = producer.config.buffer_memory
        gc.collect()
        idle_mb = resident_mb()
        ask("pause")
        deliveries: list[Delivery] = []
        gate = producer.metrics
        while gate()["buffer_used_bytes"] < limit - ROUND * (size + 250):
            deliveries.extend(producer.send(topic, os.urandom(size)) for _ in range(ROUND))
            await asyncio.sleep(0)
        full_mb, count = resident_mb(), len(deliveries)
        used = producer.metrics()["buffer_used_bytes"]
        ask("resume")
        await producer.flush()
        acknowledged = 1 + sum(delivery.exception() is None for delivery in deliveries)
    return acknowledged, {
        "idle_mb": round(idle_mb, 1),
        "full_mb": round(full_mb, 1),
        "records": count,
        "charged_mb": round(used / MIB, 1),
        "above_idle_to_buffer_memory": round((full_mb - idle_mb) * MIB / limit, 2),
        "bytes_per_record": round((full_mb - idle_mb) * MIB / count, 1),
    }


async def million(servers: str, topic: str, count: int, is_kept: bool = True) -> tuple[int, dict[str, float]]:
    """Measure what many pending records, and Deliveries that are kept, cost the garbage collector and the loop."""
    failures: list[Exception] = []
    options: dict[str, Any] = {
        "on_delivery_error": failures.append,
        "buffer_memory": 4 * 2**30,
        "delivery_timeout_ms": 600_000,
        "request_timeout_ms": 300_000,
    }
    async with Producer(servers, **options) as producer:
        await producer.send(topic, b"first")
        with Pending() as pending:
            deliveries: list[Delivery] = []
            async with StallMeter() as sending:
                for _ in range(count // ROUND):
                    sent = [producer.send(topic, os.urandom(100)) for _ in range(ROUND)]
                    if is_kept:
                        deliveries += sent
                    await asyncio.sleep(0)
        async with StallMeter() as settling:
            await producer.flush()
        figures = pending.figures(count)
        if is_kept:
            acknowledged = 1 + sum(delivery.exception() is None for delivery in deliveries)
    if not is_kept:  # a failure may be reported some seconds later, and is when the producer closes
        acknowledged = 1 + count - len(failures)
    return acknowledged, figures | {
        "stall_ms_sending": round(sending.worst_s * 1e3, 1),
        "stall_ms_settling": round(settling.worst_s * 1e3, 1),
    }


async def steady(servers: str, topic: str, rate: int, minutes: float) -> tuple[int, list[tuple[float, float]]]:
    """Return (seconds, MiB resident) for every few seconds of an even load; every hundredth record is awaited."""
    series: list[tuple[float, float]] = []
    value, tick_s = bytes(100), 0.01
    per_tick = int(rate * tick_s)
    async with Producer(servers) as producer:
        began = time.perf_counter()
        due, look = began, began
        sent = 0
        while (now := time.perf_counter()) - began < minutes * 60:
            deliveries = [producer.send(topic, value) for _ in range(per_tick)]
            await deliveries[-1]
            sent += per_tick
            if now >= look:
                series.append((round(now - began, 1), round(resident_mb(), 3)))
                look += max(1.0, minutes * 60 / 600)
            due += tick_s
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
    assert producer.metrics()["records_delivered"] == sent
    return sent, series


WAYS: dict[str, Callable[..., Coroutine[Any, Any, object]]] = {"fill": fill, "million": million, "steady": steady}

if __name__ == "__main__":
    arguments = json.loads(sys.argv[2])
    if (core := arguments.pop("core")) is not None:
        os.sched_setaffinity(0, {core})
    print(json.dumps(asyncio.run(WAYS[sys.argv[1]](**arguments))), flush=True)
