"""A copier of a soak: consumes, transforms and produces in transactions, in a process of its own, until told to drain (W2).

    python copier.py '{"life": "copy-0", "profile": "copy", "servers": ..., "inside": ..., "seed": ..., ...}' | keeper

Each record of `SIX` becomes one of `COPY`, in the same partition, whose value says from where it is, by `exactly_once`. The
consumer is librdkafka's: a member of a group, and so rebalanced when a copier is killed, stopped or blocked. The book has a
line for each transaction: `o time records` committed, `a time records` aborted, `u time records` not known. Commands come on
standard input: `block S`, `resolve ADDRESS`, `drain`; `topic` is for others. With `"plant": "commits"` in the job the offsets
are also committed by themselves, before the transaction is: a defect for the judge.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import random
import sys
import time
from typing import Any, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition
from names import NamingLoop
from profiles import SIX
from sender import Pen

from aiokprod import Producer, TransactionOutcome, exactly_once
from aiokprod.consuming.exactly_once import ExactlyOnceBatches
from aiokprod.errors import AiokprodError
from aiokprod.transactions.transaction import Transaction

GROUP, COPY = "soak-copiers", "soak-copy"
MOST_RECORDS = 300
POLL_S = 0.3
ABORTED_SHARE = 0.05  # of transactions, by the copier itself
OPTIONS = {
    "transaction_timeout_ms": 30_000,
    "request_timeout_ms": 4_000,
    "delivery_timeout_ms": 20_000,
    "max_block_ms": 20_000,
}


class OnPurposeError(Exception):
    """The copier's own reason to abort."""


class Copier:
    """Copies until it is told to drain."""

    def __init__(self, job: dict[str, Any], pen: Pen) -> None:
        self._job = job
        self._pen = pen
        self._draw = random.Random(f"{job['seed']} {job['life']}")
        self._draining = asyncio.Event()
        self._batches: ExactlyOnceBatches | None = None
        self._last: tuple[Transaction, int] | None = None  # the last transaction that was begun, and its records

    def drain(self) -> None:
        """End after the batch at hand."""
        self._draining.set()
        if self._batches is not None:
            self._batches.stop()

    @property
    def is_draining(self) -> bool:
        """Return whether it was told to end."""
        return self._draining.is_set()

    async def run(self) -> None:
        """Open a consumer and a producer, and copy; open them again whenever the id was taken or is lost."""
        while not self.is_draining:
            consumer = Consumer(
                {
                    "bootstrap.servers": self._job["inside"],
                    "group.id": GROUP,
                    "client.id": self._job["profile"],
                    "isolation.level": "read_committed",  # and so committed offsets are those of ended transactions
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 6_000,
                    "log_level": 0,
                }
            )
            consumer.subscribe([SIX])
            try:
                await self._with_producer(consumer)
            except (AiokprodError, KafkaException) as lost:
                print(f"lost: {lost!r}", file=sys.stderr)
            finally:
                await asyncio.to_thread(consumer.close)

    async def _with_producer(self, consumer: Consumer) -> None:
        settings = OPTIONS | {"transactional_id": self._job["profile"], "client_id": self._job["profile"]}
        producer = Producer(self._job["servers"], **settings, **self._job["security"], **self._job["options"])
        while True:
            try:
                await producer.start()
                break
            except AiokprodError as refused:  # every broker may be away at this moment
                print(f"not started: {refused!r}", file=sys.stderr)
                await asyncio.sleep(1.0)
        try:
            while not self.is_draining:
                try:
                    await self._copy(consumer, producer)
                except OnPurposeError:
                    pass
                finally:
                    self._note()
        finally:
            await producer.close()

    async def _copy(self, consumer: Consumer, producer: Producer) -> None:
        """Copy batch after batch, until one is aborted on purpose or it drains."""
        async with exactly_once(consumer, producer, max_records=MOST_RECORDS, timeout=POLL_S) as batches:
            self._batches = batches
            if self.is_draining:
                return
            async for records in batches:
                self._note()
                batch = batches._batch  # pyright: ignore[reportPrivateUsage] - only to count how each ends
                assert batch is not None
                self._last = batch.transaction, len(records)
                for message in records:
                    partition, offset = message.partition(), message.offset()
                    producer.send(COPY, b"%d %d" % (partition, offset), partition=partition)
                if self._job.get("plant") == "commits":
                    ahead = {message.partition(): message.offset() + 1 for message in records}
                    places = [TopicPartition(SIX, partition, offset) for partition, offset in ahead.items()]
                    await asyncio.to_thread(consumer.commit, offsets=places, asynchronous=False)
                if self._draw.random() < ABORTED_SHARE:
                    raise OnPurposeError

    def _note(self) -> None:
        """Write down how the last transaction ended."""
        if self._last is None:
            return
        (transaction, records), self._last = self._last, None
        kind = {TransactionOutcome.COMMITTED: "o", TransactionOutcome.ABORTED: "a"}.get(
            transaction.outcome or TransactionOutcome.UNKNOWN, "u"
        )
        self._pen.write(f"{kind} {time.monotonic():.4f} {records}")


async def obey(copier: Copier) -> None:
    """Take commands until there are no more."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        while line := await reader.readline():
            match line.decode().split():
                case ["block", seconds]:
                    time.sleep(float(seconds))
                case ["resolve", address]:
                    cast("NamingLoop", asyncio.get_running_loop()).address = address
                case ["drain"]:
                    copier.drain()
                case _:
                    pass
    finally:
        transport.close()
    if not copier.is_draining:
        os._exit(3)  # the process that runs us is gone


async def main(job: dict[str, Any]) -> None:
    pen = Pen(asyncio.get_running_loop())
    copier = Copier(job, pen)
    commands = asyncio.create_task(obey(copier))
    await copier.run()
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
