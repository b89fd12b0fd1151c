"""exactly_once with the consumers of aiokafka and confluent-kafka on the in-process cluster's groups, both protocols.

Two instances share a group. Brokers die, answers to EndTxn are lost, an instance is cancelled or its process killed (-9), each
at a request that is counted. The output is the image of the input: each value once, for readers of committed records.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "real"))

from group_consumers import CONSUMERS, command_of, copy

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.testing.faults import Rule

PARTITIONS, COUNT, BATCH = 4, 240, 10
SESSION_MS = 1000
TOPIC = "t"
DEADLINE_S = 60.0
QUICK = {
    "group.min.session.timeout.ms": 100,
    "group.consumer.session.timeout.ms": 1500,
    "group.consumer.heartbeat.interval.ms": 100,
}
GIVEN = [b"%d" % number for number in range(COUNT)]

pytestmark = [
    # A consumer of aiokafka that is cancelled while it starts leaves its connections to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def output(cluster: MockCluster) -> Counter[bytes | None]:
    return Counter(record.value for record in cluster.records(f"{TOPIC}-out", committed=True))


def committed(cluster: MockCluster) -> int:
    return sum(found.offset for found in cluster.committed_offsets(TOPIC).values())


async def fill(cluster: MockCluster) -> None:
    for name in (TOPIC, f"{TOPIC}-out"):
        cluster.create_topic(name, partitions=PARTITIONS)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number, value in enumerate(GIVEN):
            producer.send(TOPIC, value, partition=number % PARTITIONS)
        await producer.flush()


async def until_copied(cluster: MockCluster, *tasks: asyncio.Task[None]) -> None:
    """Wait until everything was copied and its offsets are committed."""
    while len(output(cluster)) < COUNT or committed(cluster) < COUNT:
        for task in tasks:
            assert not task.done(), task.exception()
        await asyncio.sleep(0.02)


def judged(cluster: MockCluster) -> None:
    found = output(cluster)
    assert {value: count for value, count in found.items() if count > 1} == {}
    assert sorted(found, key=lambda value: int(value or b"-1")) == GIVEN
    assert committed(cluster) == COUNT
    assert cluster.counters.crashes == []


def trouble(cluster: MockCluster) -> list[Rule]:
    """Let a broker die and come back, and answers be lost, as the transactions go on."""
    return [
        cluster.on_request("EndTxn", lambda: cluster.kill_broker(2), nth=3),
        cluster.on_request("TxnOffsetCommit", lambda: cluster.start_broker(2), nth=9),
        cluster.drop_answer("EndTxn", after_append=True, nth=5),
        cluster.drop_answer("TxnOffsetCommit", after_append=False, nth=12),
        cluster.on_request("TxnOffsetCommit", lambda: cluster.move_group_coordinator(TOPIC, 3), nth=14),
    ]


@pytest.mark.parametrize("version", [2, pytest.param(1, marks=pytest.mark.slow)], ids=["TV2", "TV1"])
@pytest.mark.parametrize("kind", CONSUMERS)
def test_the_output_is_the_image_of_the_input_though_an_instance_is_cancelled(kind: str, version: int) -> None:
    async def scenario() -> None:
        async with MockCluster(3, group_options=QUICK, transaction_version=version) as cluster:
            await fill(cluster)

            def start(name: str) -> asyncio.Task[None]:
                copying = copy(cluster.bootstrap_servers, TOPIC, name, kind, SESSION_MS, most=BATCH)
                return asyncio.create_task(copying, name=name)

            rules = trouble(cluster)
            ends = asyncio.Event()
            cluster.on_request("TxnOffsetCommit", ends.set, nth=7)
            running = {"a": start("a"), "b": start("b")}
            try:
                await ends.wait()
                running["a"].cancel()  # in the middle of the end of a transaction, of its own or the other's
                await asyncio.wait([running["a"]])
                running["a"] = start("a")
                await until_copied(cluster, *running.values())
            finally:  # before the cluster ends: without brokers a consumer may not end
                for task in running.values():
                    task.cancel()
                await asyncio.wait(running.values())
            assert all(rule.is_spent for rule in rules)
            judged(cluster)

    async def in_time() -> None:
        await asyncio.wait_for(scenario(), DEADLINE_S)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # aiokafka's own
        asyncio.run(in_time())


@pytest.mark.parametrize(
    "kind",
    [
        "aiokafka",
        pytest.param("confluent", marks=pytest.mark.slow),
        pytest.param("confluent KIP-848", marks=pytest.mark.slow),
    ],
)
def test_the_output_is_the_image_of_the_input_though_processes_are_killed(kind: str) -> None:
    async def scenario() -> None:
        async with MockCluster(3, group_options=QUICK) as cluster:
            await fill(cluster)
            job: dict[str, Any] = {"servers": cluster.bootstrap_servers, "topic": TOPIC, "kind": kind}
            job |= {"session_ms": SESSION_MS, "most": BATCH}
            running: dict[str, subprocess.Popen[bytes]] = {}

            def start(name: str) -> None:
                running[name] = subprocess.Popen(command_of(name=name, **job))

            def kill(name: str) -> None:
                running[name].kill()  # its consumer leaves no group, its transaction stays open
                running[name].wait()
                start(name)

            try:
                start("a")
                start("b")
                rules = [
                    cluster.on_request("EndTxn", lambda: kill("a"), nth=3),
                    cluster.on_request("TxnOffsetCommit", lambda: kill("b"), nth=8),
                    cluster.on_request("Produce", lambda: kill("a"), nth=16),
                ]
                await until_copied(cluster)
                assert all(rule.is_spent for rule in rules)
            finally:
                for process in running.values():
                    process.kill()
                    process.wait()
            judged(cluster)

    async def in_time() -> None:
        await asyncio.wait_for(scenario(), DEADLINE_S)

    asyncio.run(in_time())
