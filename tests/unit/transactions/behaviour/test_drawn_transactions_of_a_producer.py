"""Drawn transactions under drawn faults: readers of committed records see all of one or nothing, in order, as it was told."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from txn_rig import CLUSTERS, ID, producer_of

from aiokprod import Producer, TransactionOutcome
from aiokprod.errors import AiokprodError, TransactionAbortedError, TransactionOutcomeUnknownError
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

PARTITIONS = 3
TRANSACTIONS = 12
SEEDS = 25
APIS = ("Produce", "EndTxn", "AddPartitionsToTxn", "InitProducerId", "TxnOffsetCommit", "FindCoordinator")
CODES = {
    "Produce": (6, 7, 19, 20, 51, 45, 44, -1),
    "EndTxn": (14, 15, 16, 51, -1, 7),
    "AddPartitionsToTxn": (14, 15, 16, 51, 3, 29, -1),
    "InitProducerId": (14, 15, 16, 51, -1),
    "TxnOffsetCommit": (14, 15, 16, 3, 25),
    "FindCoordinator": (15, 14, -1),
}


def draw_fault(cluster: MockCluster, random: Random) -> None:
    """Let one thing go wrong."""
    api = random.choice(APIS)
    match random.randrange(9):
        case 0:
            cluster.drop_answer(api, after_append=random.random() < 0.8, reset=random.random() < 0.5)
        case 1:
            cluster.fail_next(api, random.choice(CODES[api]), times=random.randint(1, 3))
        case 2:
            cluster.delay_next(api, random.uniform(0.1, 4.0), before_serving=random.random() < 0.5)
        case 3:
            cluster.blackhole_next(api, before_serving=random.random() < 0.5)
        case 4:
            cluster.move_coordinator(ID, random.randint(1, 3))
        case 5:
            cluster.move_leader("t", random.randrange(PARTITIONS), random.randint(1, 3))
        case 6:
            cluster.close_connections(random.randint(1, 3), abort=random.random() < 0.5)
        case 7:
            node = random.randint(1, 3)
            cluster.kill_broker(node)
            asyncio.get_running_loop().call_later(random.uniform(0.5, 5.0), cluster.start_broker, node)
        case _:
            cluster.fail_next("Produce", 51, times=2)


async def one_transaction(producer: Producer, cluster: MockCluster, number: int, random: Random) -> TransactionOutcome:
    """Run one transaction with a fault somewhere in it, until its outcome is known."""
    transaction = producer.transaction()
    try:
        async with transaction:
            for index in range(random.randint(0, 12)):
                if random.random() < 0.08:
                    draw_fault(cluster, random)
                producer.send("t", b"%d:%d" % (number, index), partition=random.randrange(PARTITIONS))
                if random.random() < 0.2:
                    await asyncio.sleep(random.uniform(0.0, 0.2))
                if random.random() < 0.05:
                    await producer.flush()
            if random.random() < 0.3:
                await transaction.send_offsets({("in", 0): number}, "g")
            if random.random() < 0.2:
                raise KeyError
            if random.random() < 0.1:
                draw_fault(cluster, random)
                await producer.commit_transaction(timeout=random.uniform(0.001, 3.0))
    except KeyError:
        pass
    except (TransactionAbortedError, TransactionOutcomeUnknownError):
        pass
    except AiokprodError:
        if transaction.outcome is None:  # a commit in the long form was refused
            await producer.abort_transaction()
    while transaction.outcome in (None, TransactionOutcome.UNKNOWN):
        await (producer.commit_transaction() if random.random() < 0.5 else producer.abort_transaction())
    return transaction.outcome


def played(seed: int, version: str) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        options: dict[str, Any] = {"seed": seed, "now_ms": wall_ms, "auto_create_topics": False} | CLUSTERS[version]
        async with MockCluster(3, network=network, **options) as cluster:
            cluster.create_topic("t", partitions=PARTITIONS)
            cluster.create_topic("in")
            outcomes: list[TransactionOutcome] = []
            settings = {
                "request_timeout_ms": 3000,
                "delivery_timeout_ms": 15_000,
                "linger_ms": random.choice([0, 5, 50]),
            }
            async with producer_of(cluster, network, transaction_timeout_ms=900_000, **settings) as producer:
                async with asyncio.timeout(3000):
                    for number in range(TRANSACTIONS):
                        outcomes.append(await one_transaction(producer, cluster, number, random))
            cluster.clear_faults()
            await asyncio.sleep(30)
            judge(cluster, outcomes)

    run_virtual(whole, seed=seed)


def judge(cluster: MockCluster, outcomes: list[TransactionOutcome]) -> None:
    written: dict[int, set[bytes]] = {}
    for partition in range(PARTITIONS):
        every = [record.value or b"" for record in cluster.records("t", partition)]
        seen = [record.value or b"" for record in cluster.records("t", partition, committed=True)]
        places = [tuple(int(part) for part in value.split(b":")) for value in seen]
        assert places == sorted(places), "out of order, or written twice"
        assert len(set(places)) == len(places)
        for value in seen:
            number = int(value.split(b":")[0])
            assert outcomes[number] is TransactionOutcome.COMMITTED, f"{value!r} was told as aborted"
            written.setdefault(number, set()).add(value)
        for value in every:
            number = int(value.split(b":")[0])
            if outcomes[number] is TransactionOutcome.COMMITTED:
                assert value in seen, f"{value!r} was told as committed"
    for number, values in written.items():
        indices = sorted(int(value.split(b":")[1]) for value in values)
        assert indices == list(range(len(indices))), f"transaction {number} is torn"
    offsets = cluster.committed_offsets("g")
    if offsets:
        assert outcomes[offsets["in", 0].offset] is TransactionOutcome.COMMITTED


@pytest.mark.parametrize("version", list(CLUSTERS))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_drawn_transactions_are_all_or_nothing(seed: int, version: str) -> None:
    """faults: X2, X4, X5, X7, X8, X9, X12"""
    played(seed, version)
