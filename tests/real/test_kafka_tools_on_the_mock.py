"""Kafka's own command-line tools on the in-process cluster: topics, options, producing, consuming, measuring.

They run Kafka's Java clients, so this is the mock before the clients that define the protocol. One Java process a tool.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator

import pytest

from aiokprod.testing import MockCluster
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSION = "4.3.1"
LIMIT_S = 60.0
QUICKLY = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
TOPICS, CONFIGS = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PERFORMANCE, OFFSETS = "org.apache.kafka.tools.ProducerPerformance", "org.apache.kafka.tools.GetOffsetShell"


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(3, validate_records=True) as started:
        yield started
        assert started.counters.crashes == []


def tool(cluster: MockCluster, main: str, *arguments: str, given: str = "", status: int = 0) -> str:
    """Return what the tool prints."""
    command = [find_java(), *QUICKLY, "-cp", kafka_classpath(VERSION), main]
    command += ["--bootstrap-server", cluster.bootstrap_servers, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_kafka_topics_creates_lists_describes_grows_and_deletes(cluster: MockCluster) -> None:
    options = ("--partitions", "3", "--replication-factor", "2", "--config", "max.message.bytes=2000")
    assert "Created topic orders." in tool(cluster, TOPICS, "--create", "--topic", "orders", *options)
    assert tool(cluster, TOPICS, "--list").split() == ["orders"]
    described = tool(cluster, TOPICS, "--describe", "--topic", "orders")
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 2\s+Configs: max.message.bytes=2000", described)
    leaders = re.findall(r"Partition: (\d)\s+Leader: (\d)", described)
    assert leaders == [(str(index), str(cluster.leader("orders", index))) for index in range(3)]
    tool(cluster, TOPICS, "--alter", "--topic", "orders", "--partitions", "4")
    assert len(cluster._state.topic("orders").partitions) == 4
    tool(cluster, TOPICS, "--create", "--topic", "orders", status=1)
    tool(cluster, TOPICS, "--delete", "--topic", "orders")
    assert not cluster._state.topics


def test_kafka_configs_alters_and_describes(cluster: MockCluster) -> None:
    cluster.create_topic("orders")
    entity = ("--entity-type", "topics", "--entity-name", "orders")
    tool(cluster, CONFIGS, *entity, "--alter", "--add-config", "retention.ms=1000,max.message.bytes=77")
    assert cluster._state.topic("orders").settings.max_message_bytes == 77
    described = tool(cluster, CONFIGS, *entity, "--describe")
    assert "retention.ms=1000" in described and "max.message.bytes=77" in described


def test_the_console_producer_and_consumer(cluster: MockCluster) -> None:
    cluster.create_topic("orders", partitions=2)
    sent = [(b"k%d" % (number % 5), b"v%d" % number) for number in range(100)]
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    lines = "".join(f"{key.decode()}:{value.decode()}\n" for key, value in sent)
    tool(cluster, CONSOLE_PRODUCER, "--topic", "orders", *keyed, given=lines)
    stored = cluster.records("orders")
    assert Counter((record.key, record.value) for record in stored) == Counter(sent)
    assert all(record.producer_id >= 0 for record in stored)  # idempotent, as it is by default

    logs = [cluster.records("orders", partition) for partition in range(2)]
    assert tool(cluster, OFFSETS, "--topic", "orders").split() == [
        f"orders:{partition}:{len(log)}" for partition, log in enumerate(logs)
    ]
    for partition, log in enumerate(logs):
        assert log
        count = ("--max-messages", str(len(log)), "--timeout-ms", "20000")
        read = tool(
            cluster,
            CONSOLE_CONSUMER,
            "--topic",
            "orders",
            "--partition",
            str(partition),
            "--offset",
            "earliest",
            *count,
        )
        assert read.split() == [(record.value or b"").decode() for record in log]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_consumer_in_a_group(cluster: MockCluster, protocol: str) -> None:
    cluster.create_topic("orders", partitions=3)
    first = "".join(f"{number}\n" for number in range(30))
    tool(cluster, CONSOLE_PRODUCER, "--topic", "orders", given=first)
    properties = ("--command-property", f"group.protocol={protocol}")

    def read(count: int, *group: str) -> list[int]:
        wanted = ("--topic", "orders", "--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
        return sorted(map(int, tool(cluster, CONSOLE_CONSUMER, *wanted, *properties, *group).split()))

    assert read(30) == list(range(30))  # with the group that the tool makes for itself
    assert read(30, "--group", "g") == list(range(30))
    tool(cluster, CONSOLE_PRODUCER, "--topic", "orders", given="".join(f"{number}\n" for number in range(30, 42)))
    assert read(12, "--group", "g") == list(range(30, 42))  # it goes on where it stopped
    assert sum(found.offset for found in cluster.committed_offsets("g").values()) == 42
    groups = tool(cluster, GROUPS, "--list").split()
    assert "g" in groups and len(groups) == 2
    described = tool(cluster, GROUPS, "--describe", "--group", "g")
    lags = [line.split()[2:6] for line in described.splitlines() if line.startswith("g ")]
    assert len(lags) == 3 and all(offset == end and lag == "0" for _, offset, end, lag in lags), described
    tool(cluster, GROUPS, "--delete", "--group", "g")
    assert cluster.committed_offsets("g") == {}


def test_the_performance_tool_survives_the_faults_of_a_producer(cluster: MockCluster) -> None:
    cluster.create_topic("orders", partitions=3)
    # Not the first batch of a partition: without it a broker takes the second one for the first (broker: 1.1), and this
    # client then sends the first for ever.
    cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", topic="orders", partition=0, nth=6)
    cluster.drop_answer("Produce", after_append=True, topic="orders", partition=0, nth=12)
    cluster.on_request("Produce", lambda: cluster.move_leader("orders", 0, 2), topic="orders", partition=0, nth=18)
    options = (
        "--num-records",
        "3000",
        "--record-size",
        "100",
        "--throughput",
        "-1",
        "--command-property",
        "batch.size=2000",
    )
    said = tool(cluster, PERFORMANCE, "--topic", "orders", *options)
    assert "3000 records sent" in said
    assert len(cluster.records("orders")) == 3000
    assert cluster.counters.refusals[6] >= 1 and cluster.leader("orders", 0) == 2
