"""Requests, bytes and attempts of batches that are larger than their topic takes, counted on the `MockCluster`."""

from __future__ import annotations

import asyncio
from math import log2
from random import Random
from typing import Any, NamedTuple

import pytest
from column_rig import column, nothing_is_held
from test_costs import assert_linear
from virtual_rig import log, run, started

from aiokprod import Delivery, Record
from aiokprod.errors import AiokprodError
from aiokprod.model import Persistence
from aiokprod.pipeline.partition.size_limit import SHARE
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork


class Sizes(NamedTuple):
    """A number of records of one size, for batches of one size, on a topic with a limit."""

    records: int
    record_bytes: int
    batch_bytes: int
    limit_bytes: int
    codec: str = "none"
    is_warm: bool = False  # some batches are in flight when the first of them is refused


class Cost(NamedTuple):
    requests: int
    wire_bytes: int
    most_attempts: int


def cost_of(sizes: Sizes, seed: int = 1) -> Cost:
    """Send the records, all in the log in their order at the end, and count."""
    found: list[Cost] = []

    async def scenario(network: VirtualNetwork) -> None:
        options = {"batch_size": sizes.batch_bytes, "max_request_size": 20_000_000, "buffer_memory": 60_000_000}
        async with started(network, linger_ms=20, compression_type=sizes.codec, **options) as (cluster, producer):
            random = Random(seed)
            sent = [b"%06d" % number + random.randbytes(sizes.record_bytes - 6) for number in range(sizes.records)]
            first: list[bytes | None] = []
            if sizes.is_warm:
                await producer.send("t", b"0")
                first = [b"0"]
            cluster.alter_topic("t", max_message_bytes=sizes.limit_bytes)
            before = totals(cluster)
            deliveries = [producer.send("t", value) for value in sent]
            await producer.flush()
            assert [delivery.result().offset for delivery in deliveries] == list(
                range(len(first), len(first) + sizes.records)
            )
            assert log(cluster) == first + sent
            requests, wire_bytes = totals(cluster)
            most = max(delivery.attempts or 0 for delivery in deliveries)
            found.append(Cost(requests - before[0], wire_bytes - before[1], most))
            assert producer.metrics()["epoch_bumps"] == 0

    run(scenario, seed)
    return found[0]


def totals(cluster: MockCluster) -> tuple[int, int]:
    seen = cluster.requests("Produce")
    return len(seen), sum(request.size_bytes for request in seen)


BATCHES: dict[str, Any] = {"batch_size": 500_000, "max_request_size": 1_000_000, "linger_ms": 20}
LARGE = Sizes(6_000, 1_000, 6_300_000, 48_000)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize(
    "sizes",
    [
        LARGE,
        LARGE._replace(limit_bytes=250_000),
        LARGE._replace(limit_bytes=1_000_000),
        LARGE._replace(limit_bytes=5_000_000),
        LARGE._replace(records=18_000, is_warm=True),
        LARGE._replace(codec="gzip"),
        LARGE._replace(codec="zstd", is_warm=True),
        Sizes(60_000, 100, 6_300_000, 48_000),
        Sizes(200, 20_000, 4_000_000, 48_000),
        Sizes(1_000, 1_000, 64_000, 48_000, is_warm=True),
    ],
    ids=str,
)
def test_a_batch_too_large_costs_its_bytes_once_more(sizes: Sizes) -> None:
    cost = cost_of(sizes)
    batch_bytes = min(sizes.batch_bytes, sizes.records * sizes.record_bytes)
    refused = batch_bytes / sizes.limit_bytes
    fewest = sizes.records * sizes.record_bytes / sizes.limit_bytes
    assert cost.most_attempts <= log2(refused) + 2
    assert cost.wire_bytes <= 2.15 * sizes.records * (sizes.record_bytes + 20)
    assert cost.requests <= 2.2 * fewest + 5 * SHARE, (
        "parts of half of what the topic takes, at least, and the way there"
    )


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("seed", range(8))
def test_drawn_sizes_cost_as_little(seed: int) -> None:
    draw = Random(seed)
    record_bytes = draw.choice([50, 300, 2_000])
    batch_bytes = draw.choice([30_000, 200_000, 1_000_000])
    limit_bytes = max(3 * (record_bytes + 100), int(batch_bytes / draw.uniform(1.1, 60)))
    sizes = Sizes(
        draw.randint(1, 4) * batch_bytes // record_bytes,
        record_bytes,
        batch_bytes,
        limit_bytes,
        draw.choice(["none", "none", "lz4", "gzip"]),
        draw.random() < 0.5,
    )
    cost = cost_of(sizes, seed)
    assert cost.most_attempts <= log2(batch_bytes / limit_bytes) + 2, sizes
    # Beside the records: some 100 bytes of each request, and 15 of each record.
    assert cost.wire_bytes - 120 * cost.requests <= 2.15 * sizes.records * (record_bytes + 15), sizes


def test_a_record_costs_the_same_however_many_parts_its_batch_is_sent_in() -> None:
    assert_linear("records_of_a_batch_in_parts")


def test_later_batches_are_not_refused_again() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **BATCHES) as (cluster, producer):
            cluster.alter_topic("t", max_message_bytes=48_000)
            attempts: list[set[int | None]] = []
            refused: list[int] = []
            for _ in range(5):
                deliveries = [producer.send("t", b"x" * 1_000) for _ in range(400)]
                await producer.flush()
                attempts.append({delivery.attempts for delivery in deliveries})
                refused.append(sum(cluster.counters.refusals.values()))
            assert 2 in attempts[0]
            assert attempts[-1] == {1}
            # One more: the size that parts doubled to when enough of them had been accepted.
            assert refused[-1] <= refused[0] + 1

    run(scenario)


def test_a_part_of_a_batch_with_a_codec_is_recalled_or_arrives() -> None:
    """Records of a batch that was never sent, and is cut while a thread compresses its part."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, compression_type="lz4", **BATCHES) as (cluster, producer):
            cluster.alter_topic("t", max_message_bytes=48_000)
            random = Random(3)
            values = [b"%04d" % number + random.randbytes(1_000) for number in range(2_000)]
            deliveries = [producer.send("t", value) for value in values]
            recalled = set[int]()
            while not all(delivery.done() for delivery in deliveries):
                await asyncio.sleep(0.002)
                number = random.randrange(2_000)
                if not deliveries[number].done() and deliveries[number].recall():
                    recalled.add(number)
            assert recalled
            there = [number for number in range(2_000) if number not in recalled]
            assert log(cluster) == [values[number] for number in there]
            assert [deliveries[number].result().offset for number in there] == list(range(len(there)))

    run(scenario)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_send_many_and_columns_cost_no_more(codec: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, compression_type=codec, **BATCHES) as (cluster, producer):
            cluster.alter_topic("t", max_message_bytes=48_000)
            random = Random(5)
            values = [b"%04d" % number + random.randbytes(996) for number in range(2_000)]
            report = await producer.send_many("t", [Record(value=value) for value in values])
            assert report.delivered == 2_000
            columns = await producer.send_columns("t", column(values))
            assert columns.delivered == 2_000
            assert log(cluster) == values + values
            assert totals(cluster)[1] <= 1.3 * 2 * 2_000 * 1_020

    run(scenario)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("seed", range(12))
def test_parts_among_faults_arrive_once_and_in_order(seed: int) -> None:
    """Lost answers, broken connections, changes of the limit, records recalled and records with a timeout of their own."""

    async def scenario(network: VirtualNetwork) -> None:
        draw = Random(seed)
        codec = draw.choice(["none", "lz4"])
        async with started(network, brokers=2, compression_type=codec, **BATCHES) as (cluster, producer):
            sent: list[tuple[bytes, Delivery]] = []
            told: dict[bytes, object] = {}
            for _ in range(15):
                match draw.randrange(6):
                    case 0:
                        cluster.drop_answer("Produce", after_append=draw.random() < 0.5, nth=draw.randint(1, 8))
                    case 1:
                        cluster.close_connections(abort=draw.random() < 0.5)
                    case 2:
                        cluster.move_leader("t", 0, 1 + draw.randrange(2))
                    case _:
                        cluster.alter_topic("t", max_message_bytes=draw.choice([1_500, 20_000, 100_000, 1_000_000]))
                for _ in range(draw.choice([10, 200, 600])):
                    value = b"%05d" % len(sent) + draw.randbytes(draw.choice([10, 1_000]))
                    timeout = 0.05 if draw.random() < 0.05 else None
                    sent.append((value, producer.send("t", value, timeout=timeout)))
                await asyncio.sleep(draw.choice([0, 0.001, 0.03, 0.3]))
                for _ in range(5):
                    value, delivery = draw.choice(sent)
                    if not delivery.done() and delivery.recall():
                        told[value] = None
            await producer.flush()
            there = log(cluster)
            assert len(set(there)) == len(there), "twice"
            assert there == sorted(there, key=lambda value: value or b"")
            for value, delivery in sent:
                error = delivery.exception()
                if error is None:
                    assert there[delivery.result().offset or 0] == value or delivery.result().offset is None
                    assert value in there
                elif isinstance(error, AiokprodError) and error.persistence is Persistence.NOT_PERSISTED:
                    assert value not in there
            assert not set(told) & set(there)
            nothing_is_held(producer)

    run(scenario, seed)
