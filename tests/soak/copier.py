"""A copier of a soak: consumes, transforms and produces in transactions, in a process of its own, until told to drain (W2).

    python copier.py '{"life": "copy-0", "profile": "copy", "servers": ..., "inside": ..., "seed": ..., ...}' | keeper

Each record of `SIX` becomes one of `COPY`, in the same partition, whose value says from where it is. Offsets are part of the
transaction. The consumer is librdkafka's: a member of a group, and so rebalanced when a copier is killed, stopped or blocked.
The book has a line for each transaction: `o time records` committed, `a time records` aborted, `u time records` not known at
first. Commands come on standard input: `block S`, `resolve ADDRESS`, `drain`; `topic` is for others.
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

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from names import NamingLoop
from profiles import SIX
from sender import Pen

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import (
    AiokprodError,
    ProducerFailedError,
    TransactionOutcomeUnknownError,
)
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
        self.draining = asyncio.Event()

    async def run(self) -> None:
        """Open a consumer and a producer, and copy; open them again whenever the id was taken or is lost."""
        while not self.draining.is_set():
            consumer = Consumer(
                {
                    "bootstrap.servers": self._job["inside"],
                    "group.id": GROUP,
                    "client.id": self._job["profile"],
                    "isolation.level": "read_committed",  # and so committed offsets are those of ended transactions
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "session.timeout.ms": 6_000,
                    "log_level": 0,
                }
            )
            consumer.subscribe([SIX])
            try:
                await self._copy(consumer)
            finally:
                await asyncio.to_thread(consumer.close)

    async def _copy(self, consumer: Consumer) -> None:
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
            while not self.draining.is_set():
                read = await asyncio.to_thread(consumer.consume, MOST_RECORDS, POLL_S)
                messages = [message for message in read if message.error() is None]
                if messages and not await self._transact(producer, consumer, messages):
                    rewind(consumer, messages)
        except ProducerFailedError as lost:
            print(f"lost: {lost!r}", file=sys.stderr)
        finally:
            await producer.close()

    async def _transact(self, producer: Producer, consumer: Consumer, messages: list[Message]) -> bool:
        """Copy these records in one transaction; return whether it was committed."""
        transaction = producer.transaction()
        try:
            async with transaction:
                after: dict[tuple[str, int], int] = {}
                for message in messages:
                    partition, offset = cast("int", message.partition()), cast("int", message.offset())
                    producer.send(COPY, b"%d %d" % (partition, offset), partition=partition)
                    after[SIX, partition] = offset + 1
                if self._draw.random() < ABORTED_SHARE:
                    raise OnPurposeError
                await transaction.send_offsets(after, consumer)
        except OnPurposeError:
            pass
        except TransactionOutcomeUnknownError:
            self._note("u", len(messages))
        except ProducerFailedError:
            raise
        except AiokprodError as error:
            print(f"aborted: {error!r}, because of {error.__cause__!r}", file=sys.stderr)
        await self._until_known(producer, transaction)
        is_committed = transaction.outcome is TransactionOutcome.COMMITTED
        self._note("o" if is_committed else "a", len(messages))
        return is_committed

    @staticmethod
    async def _until_known(producer: Producer, transaction: Transaction) -> None:
        while transaction.outcome in (None, TransactionOutcome.UNKNOWN):
            try:
                await producer.commit_transaction()
            except ProducerFailedError:
                raise
            except AiokprodError:
                await asyncio.sleep(0.2)

    def _note(self, kind: str, records: int) -> None:
        self._pen.write(f"{kind} {time.monotonic():.4f} {records}")


def rewind(consumer: Consumer, messages: list[Message]) -> None:
    """Let the consumer read these records again."""
    first: dict[int, int] = {}
    for message in messages:
        first.setdefault(cast("int", message.partition()), cast("int", message.offset()))
    for partition, offset in first.items():
        try:
            consumer.seek(TopicPartition(SIX, partition, offset))
        except KafkaException as lost:  # another copier has the partition by now, from the committed offset on
            print(f"not rewound: {lost!r}", file=sys.stderr)


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
                    copier.draining.set()
                case _:
                    pass
    finally:
        transport.close()
    if not copier.draining.is_set():
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
