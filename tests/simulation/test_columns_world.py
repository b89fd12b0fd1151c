"""`send_columns` in worlds drawn from seeds: what reports say is compared with the log, row by row."""

from __future__ import annotations

import asyncio
from array import array
from importlib.util import find_spec
from itertools import accumulate
from random import Random

import pytest
from world import TOPIC, Run, World

import aiokprod
from aiokprod import BytesColumn, ColumnsReport, Delivery, Producer, SendColumnsError
from aiokprod.errors import AiokprodError
from aiokprod.pipeline.columns import column_encoder
from aiokprod.records.column_rows import Encoder, PlainEncoder
from aiokprod.testing.checker import Promise, log_of
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

SEEDS = 120 if aiokprod.compiled else 24  # the gate has both forms
PARTS = 4


def encoder_of(seed: int) -> Encoder:
    if seed % 2 or not (find_spec("numpy") and find_spec("pyarrow")):
        return PlainEncoder()
    from aiokprod.records.vectorised import VectorEncoder

    return VectorEncoder()


class Call:
    """One `send_columns`: its rows, and what was told of them."""

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.count = count
        self.report: ColumnsReport | None = None
        self.refused = False

    async def run(self, producer: Producer, random: Random, partitions: int) -> None:
        rows = [b"c %d %d " % (self.number, row) + b"x" * random.choice([0, 10, 80, 400]) for row in range(self.count)]
        values = column(rows)
        keys = column([b"%d" % random.randrange(50) for _ in rows]) if random.random() < 0.5 else None
        given = array("i", [random.randrange(partitions) for _ in rows]) if random.random() < 0.3 else None
        try:
            self.report = await producer.send_columns(TOPIC, values, keys, partitions=given)
        except SendColumnsError as failed:
            self.report = failed.report
        except AiokprodError:
            self.refused = True

    def wrongs(self, log: dict[int, list[tuple[int, int]]], *, exactly_once: bool) -> list[str]:
        """Return what is wrong. `log`: partition -> (offset, row) of the rows of this call."""
        found: list[str] = []
        call = f"call {self.number} of {self.count}"
        there = [row for rows in log.values() for _, row in rows]
        if self.report is None:
            if not self.refused:
                found.append(f"{call} has no outcome")
            return found + [f"{call} was refused and is in the log"] * bool(there)
        report = self.report
        if report.delivered + report.failed + report.untaken != self.count:
            found.append(f"{call}: {report} does not add up")
        if not exactly_once:
            return found
        if len(there) != len(set(there)):
            found.append(f"{call} has rows twice")
        for partition, rows in log.items():
            if [row for _, row in rows] != sorted(row for _, row in rows):
                found.append(f"{call}: partition {partition} is out of order")
            told = report.partitions.get((TOPIC, partition))
            if told is None or not told.count <= len(rows) <= told.count + told.failed:
                found.append(f"{call}: {len(rows)} are in partition {partition}, told was {told}")
        for (_, partition), told in report.partitions.items():
            rows = log.get(partition, [])
            if told.count > len(rows):
                found.append(f"{call}: {told} but {len(rows)} are in partition {partition}")
            offsets = [offset for offset, _ in rows]
            if not {told.first_offset, told.last_offset} <= {None, *offsets}:
                found.append(f"{call}: {told}, and the log has {offsets[:1]} to {offsets[-1:]}")
        return found


def column(rows: list[bytes]) -> BytesColumn:
    return BytesColumn(array("i", accumulate(map(len, rows), initial=0)), b"".join(rows))


class ColumnsWorld(World):
    """The producer is asked for columns, and for single sends between them."""

    calls: list[Call]

    async def _send_all(self, producer: Producer, delivery_s: float) -> list[Delivery]:
        random = self.random
        self.calls = []
        self.running: list[asyncio.Task[None]] = []
        waiting: list[Delivery] = []
        for number in range(random.choice([2, 8, 20])):
            call = Call(number, random.choice([1, 7, 150, 600]))
            self.calls.append(call)
            self.running.append(asyncio.create_task(call.run(producer, random, self.partitions)))
            draw = random.random()
            if draw < 0.3:
                waiting.append(self._send(producer, number, delivery_s))
            elif draw < 0.6:
                await asyncio.sleep(random.choice([0.0, 0.001, 0.05, 0.5]))
            elif draw < 0.7:
                await asyncio.wait([self.running[-1]])
            elif draw < 0.75:
                await producer.flush()
        return waiting

    def _forget(self) -> str:
        return "nothing"  # it may meet a producer that rests, and the rows of a call do not say when they were settled

    def _judge(self) -> None:
        wrongs = self.run.wrongs
        log: dict[int, dict[int, list[tuple[int, int]]]] = {call.number: {} for call in self.calls}
        others = []
        for partition in range(self.partitions):
            for record in self.cluster.records(TOPIC, partition):
                assert record.value is not None
                if record.value.startswith(b"c "):
                    _, number, row, _ = record.value.split(b" ", 3)
                    log[int(number)].setdefault(partition, []).append((record.offset, int(row)))
                else:
                    others.append(record)
        for call in self.calls:
            wrongs += call.wrongs(log[call.number], exactly_once=self.is_idempotent)
        promise = Promise.EXACTLY_ONCE if self.is_idempotent else Promise.AT_LEAST_ONCE
        wrongs += self.book.check(log_of(others), promise=promise, undelivered_keep_order=self.is_idempotent)
        if self.run.metrics["buffer_used_bytes"]:
            wrongs.append(f"{self.run.metrics['buffer_used_bytes']} bytes are still charged")
        if not all(task.done() for task in self.running):
            wrongs.append("a call still waits after close")


def explore(seed: int) -> tuple[Run, list[Call]]:
    run = Run(seed)
    worlds: list[ColumnsWorld] = []
    column_encoder.KNOWN[:] = [encoder_of(seed)]

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        worlds.append(ColumnsWorld(run, network, random))
        await worlds[0].play()

    try:
        run_virtual(scenario, seed=seed, shuffled=seed % 4 != 0)
    finally:
        column_encoder.KNOWN.clear()
    return run, worlds[0].calls


@pytest.mark.parametrize("part", range(PARTS))
def test_no_schedule_loses_repeats_or_reorders_a_row(part: int) -> None:
    delivered = failed = 0
    for seed in range(part, SEEDS, PARTS):
        run, calls = explore(seed)
        assert not run.wrongs, run.story
        for call in calls:
            if call.report is not None:
                delivered += call.report.delivered
                failed += call.report.failed + call.report.untaken
    assert delivered > failed > 0
