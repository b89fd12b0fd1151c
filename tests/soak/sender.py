"""The body of a workload process: producers one after another that send at a steady rate, and the pen that writes the book."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from book import write_all
from footprint import in_use_bytes
from profiles import BURST, BURST_EVERY_S, BURST_S, CYCLE, KEYS, Profile, draw_size
from values import value_of

from aiokprod import Delivery, Persistence, Producer
from aiokprod.errors import AiokprodError, ProducerClosedError
from aiokprod.testing.checker import Footprint

TICK_S = 0.02
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Pen:
    """The writer of the book: lines are gathered during a turn of the loop and written at its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines: list[bytes] = []
        self._out = sys.stdout.fileno()

    def write(self, line: str) -> None:
        """Write the line soon, together with others."""
        if not self._lines:
            self._loop.call_soon(self.flush)
        self._lines.append(line.encode())

    def flush(self) -> None:
        """Write all lines now."""
        if self._lines:
            lines, self._lines = self._lines, []
            write_all(self._out, b"\n".join(lines) + b"\n")


class Workload:
    """A sender at a steady rate with bursts, which churns if its profile says so."""

    def __init__(self, job: dict[str, Any], profile: Profile, pen: Pen) -> None:
        self.life = str(job["life"])
        self.topics = dict(profile.topics)
        self._profile = profile
        self._servers = job["servers"]
        self._security: dict[str, Any] = job["security"]  # not for the book: it has a password
        self._seed, self._turn = int(job["seed"]), int(job["turn"])
        self._rate = float(job["rate"])
        self._session_s = float(job["session_s"])
        self._draw = random.Random(f"{job['seed']}-{self.life}")
        self._pen = pen
        self._count = 0
        self._waited_s = 0.0  # for room in the buffer
        self._own: set[asyncio.Task[Any]] = set()
        self._producer: Producer | None = None
        self.draining = asyncio.Event()

    async def run(self) -> None:
        """Run one producer after another, until draining."""
        number = 0
        while not self.draining.is_set():
            await self._session(f"{self.life}/{number}")
            number += 1
        self._pen.write(f"E {time.monotonic():.4f}")

    async def _session(self, name: str) -> None:
        gc.collect()
        before = Footprint.take()
        settings = self._profile.settings(self._seed, self._turn)
        self._turn += 1
        self._pen.write(f"S {time.monotonic():.4f} {name} {json.dumps(settings)}")
        producer = Producer(self._servers, **settings, **self._security, **self._hooks())
        while True:
            try:
                await producer.start()
                break
            except AiokprodError as refused:  # every broker may be away at this moment
                print(f"{name}: not started: {refused!r}", file=sys.stderr)
                await asyncio.sleep(1.0)
        self._producer = producer
        until = time.monotonic() + self._session_s if self._profile.churns else float("inf")
        while not self.draining.is_set() and time.monotonic() < until:
            await self._tick(producer)
        hasty = self._profile.churns and not self.draining.is_set() and self._draw.random() < 0.3
        if not hasty:
            await self._end(producer)
        report = await producer.close(0.5 if hasty else self._profile.delivery_timeout_s + 10)
        self._producer = None
        await asyncio.gather(*self._own, return_exceptions=True)
        await asyncio.sleep(0.05)  # transports close their sockets a turn later
        gc.collect()
        leaks = [str(leak) for leak in Footprint.take().leaks_since(before)]
        left = {
            "hasty": hasty,
            "undelivered": report.count,
            "close_s": report.duration_s,
            "buffer_used_bytes": producer.metrics()["buffer_used_bytes"],
            "leaks": leaks,
        } | self._untold()
        self._pen.write(f"C {time.monotonic():.4f} {name} {json.dumps(left)}")

    def _hooks(self) -> dict[str, Any]:
        """Return those options of the next producer that are functions."""
        return {}

    async def _end(self, producer: Producer) -> None:
        """Let all records settle."""
        await producer.flush()

    def _untold(self) -> dict[str, Any]:
        """Return what a closed producer told of no record in particular."""
        return {}

    def _due_count(self) -> int:
        """Return how many records this tick sends."""
        is_burst = time.monotonic() % BURST_EVERY_S < BURST_S
        return int(self._rate * TICK_S * (BURST if is_burst else 1) + self._draw.random())

    def _announce(self, number: int, topic: str, partition: int | None, key: int | None, size: int, *more: str) -> None:
        """Book a record that is about to be sent."""
        places = [str(number), f"{time.monotonic():.4f}", topic]
        places += ["-" if each is None else str(each) for each in (partition, key)]
        self._pen.write(" ".join(["i", *places, str(size), *more]))

    async def _tick(self, producer: Producer) -> None:
        due = time.monotonic() + TICK_S
        records = [self._next() for _ in range(self._due_count())]
        for number, topic, partition, key, size in records:
            self._announce(number, topic, partition, key, size)
        self._pen.flush()  # in the keeper's pipe before anything is sent
        for number, topic, partition, key, size in records:
            self._send(producer, number, topic, partition, key, size)
        if self._profile.churns:
            self._churn(producer)
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        began = time.monotonic()
        await producer.ready()
        self._waited_s += time.monotonic() - began

    def _next(self) -> tuple[int, str, int | None, int | None, int]:
        number, self._count = self._count, self._count + 1
        topic = self._draw.choice(list(self.topics))
        how = self._draw.random()
        key = self._draw.randrange(KEYS) if how < 0.6 else None
        partition = self._draw.randrange(self.topics[topic]) if 0.6 <= how < 0.8 else None
        return number, topic, partition, key, draw_size(self._draw)

    def _send(
        self, producer: Producer, number: int, topic: str, partition: int | None, key: int | None, size: int
    ) -> None:
        key_bytes = None if key is None else b"key-%d" % key
        value = value_of(self.life, number, size, topic, key_bytes)
        try:
            delivery = producer.send(topic, value, key_bytes, partition=partition)
        except AiokprodError as refused:
            self._failed(number, refused)
            return
        delivery.add_done_callback(lambda done: self._settled(number, done))
        if self._profile.churns and (chance := self._draw.random()) < 0.06:
            if chance < 0.05:
                self._start(self._wait_briefly(delivery, self._draw.uniform(0.0, 0.05)))
            else:
                delivery.recall()

    def _settled(self, number: int, delivery: Delivery) -> None:
        if delivery.cancelled():
            self._pen.write(f"d {number} {time.monotonic():.4f}")
            return
        error = delivery.exception()
        if error is not None:
            self._failed(number, error)
            return
        metadata = delivery.result()
        offset = "-" if metadata.offset is None else metadata.offset
        self._pen.write(f"o {number} {time.monotonic():.4f} {metadata.partition} {offset}")

    def _failed(self, number: int, error: AiokprodError) -> None:
        letter = "n" if error.persistence is Persistence.NOT_PERSISTED else "p"
        self._pen.write(f"{letter} {number} {time.monotonic():.4f} {type(error).__name__}")

    # Churn.

    def _churn(self, producer: Producer) -> None:
        if self._draw.random() < TICK_S:  # about once a second
            for _ in range(3):
                self._start(producer.flush())
        if self._draw.random() < TICK_S / 5:
            self._start(producer.partitions_for(self._draw.choice([*self.topics, CYCLE]), timeout=5.0))

    async def _wait_briefly(self, delivery: Delivery, seconds: float) -> None:
        await asyncio.wait_for(delivery, seconds)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._own.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._own.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, AiokprodError | TimeoutError) or isinstance(error, ProducerClosedError):
            print(f"a task of the workload failed: {error!r}", file=sys.stderr)

    # What is seen from inside.

    def sample(self) -> dict[str, float]:
        """Return counters of the process and of its producer."""
        resident = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
        found: dict[str, float] = {
            "rss": resident,
            "in_use": in_use_bytes(),
            "cpu_s": time.process_time(),
            "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
            "tasks": len(asyncio.all_tasks()),
            "waited_s": self._waited_s,
        }
        if self._producer is not None:
            metrics = self._producer.metrics()
            for name in ("buffer_used_bytes", "batches_resent", "chaser_rounds", "epoch_bumps", "metadata_refreshes",
                         "connections_opened", "connections_lost", "connections_failed", "throttle_seconds"):  # fmt: skip
                found[name] = metrics[name]
        return found
