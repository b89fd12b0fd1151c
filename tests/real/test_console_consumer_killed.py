"""Kafka's console consumer with its default group on `aiokprod cluster`: killed, missed after its session, its place taken."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from child_process import Child
from confluent_kafka.admin import AdminClient

from aiokprod import Producer
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSION = "4.3.1"
QUICKLY = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m")
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
# With a group that it makes for itself the tool does not commit by default.
PROPERTIES = (
    "session.timeout.ms=6000", "heartbeat.interval.ms=300", "enable.auto.commit=true", "auto.commit.interval.ms=100",
)  # fmt: skip
LIMIT_S = 60.0


@contextmanager
def cluster() -> Iterator[str]:
    command = [sys.executable, "-m", "aiokprod", "cluster", "--port", "0", "--topic", "orders:3"]
    with Child(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"bootstrap\.servers=(\S+)", process.stdout.readline())
        assert found is not None
        yield found[1]


def console(servers: str, *arguments: str) -> subprocess.Popen[str]:
    command = [find_java(), *QUICKLY, "-cp", kafka_classpath(VERSION), CONSUMER, "--bootstrap-server", servers]
    command += ["--topic", "orders", "--from-beginning", *arguments]
    for each in PROPERTIES:
        command += ["--command-property", each]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


async def send(servers: str, numbers: Sequence[int]) -> None:
    async with Producer(servers) as producer:
        for number in numbers:
            producer.send("orders", b"%d" % number, partition=number % 3)
        await producer.flush()


def lines(process: subprocess.Popen[str], count: int) -> list[int]:
    assert process.stdout is not None
    return sorted(int(process.stdout.readline()) for _ in range(count))


def end(process: subprocess.Popen[str], how: str) -> None:
    getattr(process, how)()
    process.communicate()


def groups(admin: AdminClient) -> list[str]:
    return [each.group_id for each in admin.list_consumer_groups(request_timeout=10).result().valid]


def state_of(admin: AdminClient, group: str) -> tuple[str, int]:
    """Return the group's state, and how many members it has."""
    found = admin.describe_consumer_groups([group], request_timeout=10)[group].result()
    return found.state.name, len(found.members)


def offsets_of(admin: AdminClient, group: str) -> int:
    """Return the sum of the committed offsets."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return sum(each.offset for each in future.result().topic_partitions)


def until(wanted: object, look: object, *arguments: object) -> None:
    deadline = time.monotonic() + LIMIT_S
    while (found := look(*arguments)) != wanted:  # type: ignore[operator]
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def test_a_console_consumer_that_is_killed_is_missed_and_another_goes_on() -> None:
    with cluster() as servers:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        asyncio.run(send(servers, range(30)))
        first = console(servers)
        try:
            assert lines(first, 30) == list(range(30))
            (group,) = groups(admin)
            assert group.startswith("console-consumer-")
            until(30, offsets_of, admin, group)
            assert state_of(admin, group) == ("STABLE", 1)
        finally:
            end(first, "kill")
        assert state_of(admin, group) == ("STABLE", 1), "no request has told that it is gone"
        asyncio.run(send(servers, range(30, 42)))
        second = console(servers, "--group", group)
        try:
            assert lines(second, 12) == list(range(30, 42))  # once the session of the first is over
            assert state_of(admin, group) == ("STABLE", 1)
        finally:
            end(second, "terminate")
        until(("EMPTY", 0), state_of, admin, group)
