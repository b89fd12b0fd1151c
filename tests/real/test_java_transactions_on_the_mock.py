"""Kafka's own Java client writes in transactions to the in-process cluster, and reads what is committed.

It is the client that speaks both versions of the protocol, and chooses by the cluster's finalized features.
"""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from aiokprod.testing import MockCluster
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSION = "4.3.1"
LIMIT_S = 60.0
QUICKLY = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RECORDS = 2000


def tool(cluster: MockCluster, main: str, *arguments: str) -> str:
    """Return what the tool prints."""
    command = [find_java(), *QUICKLY, "-cp", kafka_classpath(VERSION), main]
    command += ["--bootstrap-server", cluster.bootstrap_servers, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("options", "produce", "end_txn", "adds_partitions"),
    [
        ({"transaction_version": 2, "transaction_completion_ms": 2}, 13, 5, False),
        ({"transaction_version": 1, "transaction_completion_ms": 2}, 11, 4, True),
        ({"transaction_version": 0}, 11, 4, True),
        ({"kafka_version": "3.9"}, 11, 4, True),
        ({"kafka_version": "2.8"}, 9, 3, True),
        ({"kafka_version": "2.1"}, 7, 1, True),
    ],
)
def test_the_java_producer_commits_in_the_version_of_the_cluster(
    options: dict[str, Any], produce: int, end_txn: int, adds_partitions: bool
) -> None:
    with MockCluster(3, validate_records=True, **options) as cluster:
        cluster.create_topic("t", partitions=3)
        asked = ("--topic", "t", "--num-records", str(RECORDS), "--record-size", "20", "--throughput", "4000")
        tool(cluster, PERFORMANCE, *asked, "--transactional-id", "tx", "--transaction-duration-ms", "50")
        assert cluster.counters.crashes == []
        assert {seen.version for seen in cluster.requests("Produce")} == {produce}
        assert {seen.version for seen in cluster.requests("EndTxn")} == {end_txn}
        assert bool(cluster.requests_seen("AddPartitionsToTxn")) == adds_partitions
        assert cluster.requests_seen("EndTxn") >= 3
        committed = cluster.records("t", committed=True)
        assert len(committed) == RECORDS == len(cluster.records("t"))
        if "kafka_version" not in options:
            assert "CompleteCommit" in tool(cluster, TRANSACTIONS, "list")


def test_the_java_consumer_reads_what_is_committed() -> None:
    with MockCluster(1, kafka_version="4.3") as cluster:
        cluster.create_topic("t")
        asked = ("--topic", "t", "--num-records", "500", "--record-size", "20", "--throughput", "-1")
        tool(cluster, PERFORMANCE, *asked, "--transactional-id", "tx", "--transaction-duration-ms", "1000")
        cluster.hold_markers()
        tool(cluster, PERFORMANCE, *asked, "--transactional-id", "other", "--transaction-duration-ms", "1000")
        patience = ("--timeout-ms", "10000")  # its start counts, too
        read = ("--topic", "t", "--partition", "0", "--offset", "earliest", *patience)
        said = [
            tool(cluster, CONSOLE_CONSUMER, *read, "--isolation-level", level).split()
            for level in ("read_committed", "read_uncommitted")
        ]
        assert [sum(len(word) == 20 for word in words) for words in said] == [500, 1000]
