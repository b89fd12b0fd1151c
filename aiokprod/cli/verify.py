"""`aiokprod verify`: sends records, reads them back, and says whether each is there once and in order."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

import click

from aiokprod.cli.check import Verdict, judge_log
from aiokprod.cli.common.connection import Connection, connection_options
from aiokprod.cli.common.parameter import Text
from aiokprod.cli.common.printing import print_json, styled
from aiokprod.cli.common.running import line_of, run, tell
from aiokprod.cli.common.statuses import DONE, NOT_GOOD
from aiokprod.cli.common.topic_admin import TopicAdmin, check_topics
from aiokprod.config import ProducerConfig
from aiokprod.delivery_type import Delivery
from aiokprod.errors import AiokprodError, BufferFullError, PartitionOutOfRangeError, UnknownTopicError
from aiokprod.producer import Producer
from aiokprod.reader import Reader

HEADER: Final = "aiokprod-verify"
"""the header by which the records of a run are known in a topic that has others"""
PARTITIONS: Final = 6
UNTIL_KNOWN_S: Final = 0.1


class Sent:
    """The records of one run."""

    def __init__(self) -> None:
        self.run_id = uuid.uuid4().hex
        self.in_order: list[tuple[int, bytes]] = []
        """(partition, value) of the acknowledged, in the order of their sends"""
        self.failures: list[AiokprodError] = []
        self.seconds = 0.0


def values_of(count: int, size: int, seed: int) -> list[bytes]:
    """Return values that are all different, of `size` bytes, or as many as a number needs."""
    draw = random.Random(seed)
    filler = draw.randbytes(max(0, size))
    return [(b"%d " % number + filler)[: max(size, len(b"%d " % number))] for number in range(count)]


@click.command()
@click.argument("topic", required=False, type=Text())
@click.option(
    "-n", "--records", metavar="N", type=click.IntRange(1), default=10_000, show_default=True, help="Number of records."
)
@click.option(
    "--size", metavar="N", type=click.IntRange(0, 10_000_000), default=100, show_default=True, help="Bytes of a value."
)
@click.option("--keep", is_flag=True, help="Do not delete the topic that was made for this.")
@click.option("-j", "--json", "as_json", is_flag=True, help="The verdict as JSON.")
@connection_options
def verify(topic: str | None, records: int, size: int, keep: bool, as_json: bool, connection: Connection) -> None:
    """Send records, read them back, and compare.

    Without TOPIC a topic is made and deleted afterwards. In a TOPIC the records stay, with a header `aiokprod-verify`; records
    of others are left alone. Each acknowledged record must be in the log once, in its partition, in the order it was sent in.

    \b
    Examples:
      aiokprod verify -b kafka.example:9092 -X compression.type=gzip

    Exit status: 0 all are there; 1 some are lost, twice or out of order, or were not acknowledged; 2 no verdict.
    """  # fmt: skip

    async def work() -> int:
        config = connection.config_to_send()
        name = topic or f"aiokprod-verify-{uuid.uuid4().hex[:8]}"
        async with AsyncExitStack() as stack:
            if topic is None:
                admin = await stack.enter_async_context(TopicAdmin(config, connection.timeout_s))
                await admin.create(name, PARTITIONS, -1, {})
                if not keep:
                    stack.push_async_callback(admin.delete, name)
            else:
                await check_topics(config, [topic], connection.timeout_s, "READ and WRITE")
            reader = await stack.enter_async_context(Reader(config, timeout=connection.timeout_s))
            begins = await _ends(reader, name, connection.timeout_s)
            sent = await _send(config, name, sorted(begins), values_of(records, size, 1))
            found = await _read(reader, name, begins, sent.run_id)
            verdict = judge_log(sent.in_order, found)
            _tell(name, records, sent, verdict, as_json)  # also if the topic cannot be deleted
        return DONE if verdict.is_clean and not sent.failures else NOT_GOOD

    run(work)


async def _ends(reader: Reader, topic: str, timeout_s: float) -> dict[int, int]:
    """Return the end of each partition. Brokers learn of a new topic one after another."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout_s
    while True:
        try:
            return {number: await reader.latest(topic, number) for number in await reader.partitions(topic)}
        except (UnknownTopicError, PartitionOutOfRangeError):
            if clock() >= deadline:
                raise
            await asyncio.sleep(UNTIL_KNOWN_S)


async def _send(config: ProducerConfig, topic: str, partitions: Sequence[int], values: Sequence[bytes]) -> Sent:
    """Send all; note what was acknowledged."""
    sent = Sent()
    headers = ((HEADER, sent.run_id.encode()),)
    deliveries: list[tuple[int, bytes, Delivery]] = []
    began = time.perf_counter()
    async with Producer(config) as producer:
        for number, value in enumerate(values):
            partition = partitions[number % len(partitions)]
            while True:
                try:
                    delivery = producer.send(topic, value, partition=partition, headers=headers)
                    break
                except BufferFullError:
                    await producer.ready()
            deliveries.append((partition, value, delivery))
            if number % 500 == 499:
                await producer.ready()
                await asyncio.sleep(0)
        for partition, value, delivery in deliveries:
            await asyncio.wait([delivery])
            error = delivery.exception()
            if error is None:
                sent.in_order.append((partition, value))
            else:
                sent.failures.append(error)
        sent.seconds = time.perf_counter() - began
    return sent


async def _read(reader: Reader, topic: str, begins: dict[int, int], run_id: str) -> dict[int, list[bytes]]:
    mark = (HEADER, run_id.encode())
    found: dict[int, list[bytes]] = {}
    for partition, begin in begins.items():
        # A log that begins later has lost records: they count as lost, and are no error of the reading.
        start = max(begin, await reader.earliest(topic, partition))
        records = reader.read(topic, partition, start)
        found[partition] = [record.value or b"" async for record in records if mark in record.headers]
    return found


def _tell(topic: str, records: int, sent: Sent, verdict: Verdict, as_json: bool) -> None:
    is_good = verdict.is_clean and not sent.failures
    if as_json:
        print_json(
            {
                "topic": topic,
                "sent": records,
                "acknowledged": len(sent.in_order),
                "failed": len(sent.failures),
                "lost": verdict.lost,
                "duplicated": verdict.duplicated,
                "reordered": verdict.reordered,
                "seconds": round(sent.seconds, 3),
                "is_good": is_good,
            }
        )
    else:
        click.echo(
            f"topic {topic}: {records:,} sent, {len(sent.in_order):,} acknowledged, {len(sent.failures):,} failed"
        )
        click.echo(styled(verdict.line, fg="green" if is_good else "red", bold=True))
    if sent.failures:
        tell(f"the first failure: {line_of(sent.failures[0])}")
