"""A whole producer in virtual time while its frames are cut, doubled, spoilt and lost: every record is in the log once."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from aiokprod import Producer
from aiokprod.testing import Fault, MockCluster
from aiokprod.testing.faults import (
    Blackhole,
    Close,
    Corrupt,
    Delay,
    Drip,
    Drop,
    Duplicate,
    Effect,
    HugeLength,
    Rechunk,
    Swallow,
    Truncate,
    WrongCorrelation,
)
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

SEEDS, SLOW_SEEDS = 12, 1_000
RECORDS, PARTITIONS = 60, 3
VALUE = b"%03d" + b"x" * 40

EITHER_WAY: list[Effect] = [
    Drop(), Drop(reset=True), Swallow(), Blackhole(), Delay(0.4), Delay(3.0), Truncate(0), Truncate(3), Truncate(30),
    Rechunk(), Rechunk(9), Drip(100.0), Drip(5_000.0), Duplicate(), WrongCorrelation(), HugeLength(), HugeLength(-1),
]  # fmt: skip
IN_THE_RECORDS = Corrupt(offset=-20)  # where the CRC finds it; no broker and no client could find it elsewhere


async def told(network: VirtualNetwork, random: Random, script: list[Fault]) -> int:
    """Send everything under these faults; how often they acted."""
    async with MockCluster(brokers=3, network=network, seed=1) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS)
        rules = [cluster.add_fault(fault) for fault in script]
        options: dict[str, Any] = {
            "request_timeout_ms": 1_000, "socket_connection_setup_timeout_ms": 1_000,
            "socket_connection_setup_timeout_max_ms": 2_000, "retry_backoff_ms": 5, "reconnect_backoff_ms": 5,
            "batch_size": 200, "linger_ms": 0,
        }  # fmt: skip
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            deliveries = []
            for number in range(RECORDS):
                deliveries.append(producer.send("t", VALUE % number, partition=number % PARTITIONS))
                if random.random() < 0.3:
                    await asyncio.sleep(random.choice([0.0, 0.01, 0.5]))
            offsets = [(await delivery).offset for delivery in deliveries]
        assert offsets == [number // PARTITIONS for number in range(RECORDS)]
        for partition in range(PARTITIONS):
            log = [record.value for record in cluster.records("t", partition)]
            assert log == [VALUE % number for number in range(partition, RECORDS, PARTITIONS)]
        assert not cluster.counters.crashes
        return sum(rule.hits for rule in rules)


@pytest.mark.parametrize("before_serving", [True, False], ids=["request", "answer"])
@pytest.mark.parametrize("effect", EITHER_WAY, ids=repr)
def test_one_kind_of_fault_loses_and_doubles_nothing(effect: Effect, before_serving: bool) -> None:
    script = [Fault(effect=effect, api="Produce", nth=3, times=4, before_serving=before_serving)]
    hits = run_virtual(lambda network, random: told(network, random, script), seed=1)
    assert hits == 4 or isinstance(effect, Blackhole)


def test_a_spoilt_record_is_sent_again_whole() -> None:
    script = [Fault(effect=IN_THE_RECORDS, api="Produce", times=6, nth=2, before_serving=True)]
    assert run_virtual(lambda network, random: told(network, random, script), seed=2) == 6


def drawn(draw: Random) -> Fault:
    effect = draw.choice([*EITHER_WAY, IN_THE_RECORDS, Close()])
    return Fault(
        effect=effect,
        api="Produce"
        if effect is IN_THE_RECORDS
        else draw.choice(["Produce", "Produce", "Metadata", "InitProducerId", None]),
        broker=draw.choice([None, None, 1, 2]),
        nth=draw.randint(1, 5),
        times=draw.randint(1, 5),
        before_serving=effect is IN_THE_RECORDS or (effect != Close() and draw.random() < 0.5),
        chance=draw.choice([0.1, 0.3, 1.0]),
        seed=draw.randrange(1_000),
    )


def play(seed: int) -> None:
    draw = Random(seed)
    script = [drawn(draw) for _ in range(6)]
    run_virtual(lambda network, random: told(network, random, script), seed=seed)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_many_kinds_at_once_lose_and_double_nothing(seed: int) -> None:
    play(seed)


@pytest.mark.slow
def test_many_more_scripts_lose_and_double_nothing() -> None:
    for seed in range(SEEDS, SLOW_SEEDS):
        try:
            play(seed)
        except Exception as wrong:
            raise AssertionError(f"seed {seed}") from wrong
