"""Random worlds of one loop: slow bodies, errors, time limits, tasks that are left over, outages; one broker or three.

Afterwards all is well again, and a last loop has to copy what is left: the output is the image of the input, each value once,
for readers of committed records.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from consuming_rig import Rig, run, value_of
from fake_group import AiokafkaMember, AsyncConfluentMember, ConfluentMember

from aiokprod import Producer, exactly_once
from aiokprod.errors import AiokprodError, UsageError

SHAPES: tuple[Any, ...] = (AiokafkaMember, ConfluentMember, AsyncConfluentMember)
SEEDS = int(os.environ.get("AIOKPROD_TEST_SEEDS", "24"))
FIRST = int(os.environ.get("AIOKPROD_TEST_FIRST_SEED", "0"))
ROUNDS = 30


class BodyError(Exception):
    """An error of a body."""


class World:
    """A loop that fails and begins again, and the faults around it."""

    def __init__(self, rig: Rig, brokers: int) -> None:
        self.rig = rig
        self.random = rig.random
        self.brokers = brokers
        self.dead: set[int] = set()
        self.left_over: list[asyncio.Task[None]] = []
        self.batches = 0

    # ------------------------------------------------------------------ the loop
    async def body(self, producer: Producer, batch: Any) -> None:
        random = self.random
        style = random.randrange(6)
        values = [value_of(record) for record in batch]
        if random.random() < 0.1:
            task = asyncio.create_task(self.late(batch if random.random() < 0.5 else producer, random.random() * 3))
            self.left_over.append(task)
        if random.random() < 0.6:
            await asyncio.sleep(random.choice([0.01, 0.05, 0.2, 1.5, 4.0]))  # transaction_timeout_ms is 3 s
        if style == 0:
            await batch.send_many("out", values)
        elif style == 1:
            await asyncio.gather(*(batch.send("out", value) for value in values))
        elif style == 2:
            for value in values:
                producer.send("out", value)
                await asyncio.sleep(0.02)
        else:
            for value in values:
                (batch if style == 3 else producer).send("out", value)
        if random.random() < 0.05:
            raise BodyError

    async def late(self, sends: Any, delay_s: float) -> None:
        """Send after the batch, mostly. Within it the record would be of an input that has none."""
        batches = self.batches
        await asyncio.sleep(delay_s)
        if self.batches != batches:
            with pytest.raises((UsageError, AiokprodError)):
                sends.send("out", b"left over")

    async def loop(self, consumer: Any, producer: Producer) -> None:
        random = self.random
        try:
            async with asyncio.timeout(random.choice([None, None, 0.3, 2.0, 5.0])) as limit:
                async with exactly_once(
                    consumer, producer, max_records=random.randint(1, 5), timeout=random.choice([0.1, 1.0])
                ) as batches:
                    async for batch in batches:
                        self.batches += 1
                        with batch if random.random() < 0.7 else nullcontext():
                            await self.body(producer, batch)
                        if random.random() < 0.03:
                            break
                        if random.random() < 0.05:
                            batches.stop()
                    self.batches += 1
        except (BodyError, TimeoutError, AiokprodError):
            pass
        finally:
            self.batches += 1
            when = limit.when()
            assert when is None or asyncio.get_running_loop().time() < when + 1.0, "the time limit was not kept"

    async def rounds(self, consumer: Any, producer: Producer) -> None:
        """Begin again and again, until cancelled."""
        while True:
            await self.loop(consumer, producer)
            await asyncio.sleep(0.05)

    # ------------------------------------------------------------------ the world
    def trouble(self) -> None:
        random, cluster = self.random, self.rig.cluster
        match random.randrange(8):
            case 0 | 1:
                broker = random.randint(1, self.brokers)
                if broker not in self.dead:
                    cluster.kill_broker(broker)
                    self.dead.add(broker)
            case 2:
                self.back()
            case 3:
                self.rig.group.rebalance()
            case 4:
                cluster.drop_answer(random.choice(["EndTxn", "TxnOffsetCommit", "OffsetFetch", "Produce"]))
            case 5:
                api = random.choice(["EndTxn", "TxnOffsetCommit", "Produce"])
                cluster.fail_next(api, "TRANSACTION_ABORTABLE", times=random.randint(1, 3))
            case 6:
                cluster.fail_next("TxnOffsetCommit", random.choice([14, 16, 22, 25, 27]))
            case _:
                cluster.fail_next("Produce", 7, times=random.randint(1, 40))

    def back(self) -> None:
        for broker in self.dead:
            self.rig.cluster.start_broker(broker)
        self.dead.clear()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
def test_the_output_is_the_image_of_the_input_and_a_last_loop_commits(seed: int) -> None:
    brokers = 1 if seed % 3 == 0 else 3

    async def scenario(rig: Rig) -> None:
        world = World(rig, brokers)
        rig.group.is_mixed = rig.random.random() < 0.5
        consumer = rig.random.choice(SHAPES)(rig.group, "a")
        rig.group.join(consumer)
        options: dict[str, Any] = {
            "transaction_timeout_ms": 3000,
            "delivery_timeout_ms": 3000,
            "request_timeout_ms": 1000,
            "max_block_ms": 2000,
            "linger_ms": rig.random.choice([0, 5]),
        }
        async with rig.producer(**options) as producer:
            running = asyncio.create_task(world.rounds(consumer, producer))
            for _ in range(ROUNDS):
                await asyncio.sleep(rig.random.choice([0.01, 0.1, 0.5, 2.0]))
                world.trouble()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            rig.cluster.clear_faults()
            world.back()
            async with asyncio.timeout(120):
                await last_loop(rig, consumer, producer)
        await asyncio.gather(*world.left_over)
        assert rig.group.unchecked == 0
        assert await rig.output() == rig.group.input
        await consumer.stop()

    run(scenario, each=40, partitions=3, seed=seed, brokers=brokers, transaction_check_interval_ms=100)


async def last_loop(rig: Rig, consumer: Any, producer: Producer) -> None:
    """Copy what is left; one more batch is committed if nothing is."""
    for number, log in enumerate(rig.group.logs.values()):
        log.append(type(log[0])(topic="in", partition=number, offset=len(log), key=None, value=b"last %d" % number))
    end = {where: len(log) for where, log in rig.group.logs.items()}
    while await rig.offsets() != end:
        async with exactly_once(consumer, producer, timeout=0.1) as batches:
            asyncio.get_running_loop().call_later(1, batches.stop)
            async for batch in batches:
                for record in batch:
                    batch.send("out", value_of(record))
