"""The hot paths, walked between marks; prints the counts as JSON: `python bench/hot_paths.py perf|callgrind`.

A child of `instructions.py`. No sockets, no running clock, no randomness: each round is the same work.

    send         the calls of `send`, nothing else: a record goes into the columns of an open batch
    seal         from there until the requests are written: batches are encoded, stamped, framed
    acknowledge  from the bytes of the answers until every record has its outcome
    keyed ...    the same with a key (1,000 of them, seen before) and two headers
    no SDK ...   the first three and awaited again, by a producer with `open_telemetry()` in a program that has no SDK
    awaited      `await send(...)`, one at a time, everything that happens, the loop's turns too
    tasks        many tasks, each of which awaits its sends one at a time, everything
    gather       `asyncio.gather` over the Deliveries of many sends, everything
    windows      many sends, each of which is awaited afterwards in their order, everything
    callbacks    sends with a done callback each, which reads the offset, everything
    counting callbacks    sends with a done callback each, which counts, in a context without variables, everything
    send_many    one call with a list, everything
    send_many of an iterator    one call with an iterator, whose values come one by one, everything
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Callable, Sequence
from contextvars import Context
from itertools import repeat
from random import Random
from time import monotonic
from typing import Any

from counting import CallgrindCounter, Counter, PerfCounter
from quiet_broker import HOST, PORT, QuietBroker, deliver

import aiokprod
from aiokprod import Delivery, Producer
from aiokprod.integrations.opentelemetry import open_telemetry
from aiokprod.pipeline import wall_clock
from aiokprod.randomness import seeded

MANY, ONE = "many-partitions", "one-partition"
RECORDS = 2_000  # records of one round: a few full batches of 64 KiB, which all fit into the window of requests
AWAITED = 300
TASKS, OF_EACH = 500, 4
WITHOUT_SDK = "no SDK "
NO_KEYS: tuple[None, ...] = (None,) * RECORDS
RECORDS_OF = {
    "send": RECORDS,
    "seal": RECORDS,
    "acknowledge": RECORDS,
    "keyed send": RECORDS,
    "keyed seal": RECORDS,
    "keyed acknowledge": RECORDS,
    **{f"{WITHOUT_SDK}{path}": RECORDS for path in ("send", "seal", "acknowledge")},
    f"{WITHOUT_SDK}awaited": AWAITED,
    "awaited": AWAITED,
    "tasks": TASKS * OF_EACH,
    "gather": RECORDS,
    "windows": RECORDS,
    "callbacks": RECORDS,
    "counting callbacks": RECORDS,
    "send_many": RECORDS,
    "send_many of an iterator": RECORDS,
}
KEYS = 1_000
ROUNDS = {"perf": 20, "callgrind": 2}
TURNS = 12  # turns of the loop until everything that can be written is written
VALUE = bytes(range(100))
HEADERS = [("header-0", b"0123456789abcdef"), ("header-1", b"0123456789abcdef")]


class StillLoop(asyncio.SelectorEventLoop):
    """asyncio's loop with a clock that can stand still: on a slow machine, too, no timer fires."""

    _monotonic: Callable[[], float] = monotonic

    def time(self) -> float:  # a Python call that calls C, as asyncio's own
        return self._monotonic()

    def stand_still(self) -> None:
        self._monotonic = repeat(monotonic()).__next__

    def go_on(self) -> None:
        self._monotonic = monotonic


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class Walk:
    """One producer connected to a quiet broker, and the paths through it."""

    def __init__(self, counter: Counter, producer: Producer, broker: QuietBroker) -> None:
        self.counter = counter
        self.producer = producer
        self.broker = broker
        self.keys = [b"%012d" % number for number in range(KEYS)]
        self.in_pieces = 0
        """The number of rounds in which an answer came before everything was written."""

    async def in_three_steps(
        self, prefix: str, keys: Sequence[bytes | None], headers: Sequence[tuple[str, bytes]]
    ) -> None:
        """Measure send, seal and acknowledge."""
        producer, counter, broker = self.producer, self.counter, self.broker
        send = producer.send
        gc.collect()
        with counter.section(f"{prefix}send"):
            for key in keys:
                send(MANY, VALUE, key, headers=headers)
        gc.collect()
        with counter.section(f"{prefix}seal"):
            flushed = asyncio.ensure_future(producer.flush())
            await turns()
        answers = broker.answers()
        gc.collect()
        with counter.section(f"{prefix}acknowledge"):
            deliver(answers)
            await turns()
        self.in_pieces += not flushed.done()
        while not flushed.done():
            deliver(broker.answers())
            await turns()

    async def keyed(self) -> None:
        keys = (self.keys * (RECORDS // KEYS + 1))[:RECORDS]
        await self.in_three_steps("keyed ", keys, HEADERS)

    async def awaited(self, prefix: str = "") -> None:
        send = self.producer.send
        gc.collect()
        with self.counter.section(f"{prefix}awaited"):
            for _ in repeat(None, AWAITED):
                await send(ONE, VALUE)

    async def in_tasks(self) -> None:
        send = self.producer.send

        async def one() -> None:
            for _ in repeat(None, OF_EACH):
                await send(ONE, VALUE)

        gc.collect()
        with self.counter.section("tasks"):
            await asyncio.gather(*(one() for _ in range(TASKS)))

    async def gathered(self) -> None:
        send = self.producer.send
        gc.collect()
        with self.counter.section("gather"):
            await asyncio.gather(*[send(ONE, VALUE) for _ in range(RECORDS)])

    async def in_windows(self) -> None:
        send = self.producer.send
        gc.collect()
        with self.counter.section("windows"):
            for delivery in [send(ONE, VALUE) for _ in range(RECORDS)]:
                await delivery

    async def called_back(self) -> None:
        send, offsets = self.producer.send, list[int | None]()

        def heard(delivery: Delivery) -> None:
            if delivery.exception() is None:
                offsets.append(delivery.result().offset)

        gc.collect()
        with self.counter.section("callbacks"):
            for _ in repeat(None, RECORDS):
                send(ONE, VALUE).add_done_callback(heard)
            while len(offsets) < RECORDS:
                await asyncio.sleep(0)

    async def counted(self) -> None:
        send, count = self.producer.send, 0

        def heard(_: Delivery) -> None:
            nonlocal count
            count += 1

        gc.collect()
        with self.counter.section("counting callbacks"):
            for _ in repeat(None, RECORDS):
                send(ONE, VALUE).add_done_callback(heard)
            while count < RECORDS:
                await asyncio.sleep(0)

    async def in_one_call(self) -> None:
        gc.collect()
        with self.counter.section("send_many"):
            await self.producer.send_many(ONE, [VALUE] * RECORDS)
        gc.collect()
        with self.counter.section("send_many of an iterator"):
            await self.producer.send_many(ONE, repeat(VALUE, RECORDS))

    async def one_round(self) -> None:
        await self.in_three_steps("", NO_KEYS, ())
        await self.keyed()
        self.broker.template = await self.learn_answer()
        await self.awaited()
        await self.in_tasks()
        await self.gathered()
        await self.in_windows()
        await self.called_back()
        await asyncio.create_task(self.counted(), context=Context())
        await self.in_one_call()
        self.broker.template = None

    async def alone(self, prefix: str) -> None:
        """Walk only `awaited`."""
        self.broker.template = await self.learn_answer()
        await self.awaited(prefix)
        self.broker.template = None

    async def learn_answer(self) -> bytes:
        """Return the answer to a request with one batch of the one partition."""
        delivery = self.producer.send(ONE, VALUE)
        flushed = asyncio.ensure_future(self.producer.flush())
        await turns()
        answers = self.broker.answers()
        deliver(answers)
        await flushed
        await delivery
        ((_, frame),) = answers
        return frame


async def walk(counter: Counter, rounds: int) -> None:
    topics = {MANY: 6, ONE: 1}
    broker, another = QuietBroker(topics), QuietBroker(topics)
    async with producer_of(broker) as plain, producer_of(another, interceptors=open_telemetry()) as traced:
        for topic in topics:
            await plain.partitions_for(topic)
            await traced.partitions_for(topic)
        paths, without_sdk = Walk(counter, plain, broker), Walk(counter, traced, another)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, StillLoop)
        loop.stand_still()
        await paths.one_round()
        await without_sdk.keyed()
        await without_sdk.alone(WITHOUT_SDK)
        counter.counts.clear()
        paths.in_pieces = without_sdk.in_pieces = 0  # the first batch of each partition travels alone
        gc.freeze()
        for _ in range(rounds):
            await paths.one_round()
            await without_sdk.in_three_steps(WITHOUT_SDK, NO_KEYS, ())
            await without_sdk.alone(WITHOUT_SDK)
        loop.go_on()
        assert not paths.in_pieces + without_sdk.in_pieces, "a round must fit into the window of requests"


def producer_of(broker: QuietBroker, **options: Any) -> Producer:
    return Producer(
        f"{HOST}:{PORT}",
        dialer=broker.dial,
        linger_ms=600_000,
        request_timeout_ms=600_000,
        delivery_timeout_ms=3_600_000,
        **options,
    )


def main() -> None:
    kind = sys.argv[1]
    counter: Counter = PerfCounter() if kind == "perf" else CallgrindCounter()
    still = wall_clock.on(repeat(1_700_000_000.0).__next__)
    with seeded(Random(1)), still, asyncio.Runner(loop_factory=StillLoop) as runner:
        runner.run(walk(counter, ROUNDS[kind]))
    print(json.dumps({"compiled": aiokprod.compiled, "counts": counter.counts}))


if __name__ == "__main__":
    main()
