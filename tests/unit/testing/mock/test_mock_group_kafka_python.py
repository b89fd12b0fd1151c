"""Consumers of kafka-python in a group on the mock cluster: join, rebalance, offsets kept."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from importlib import import_module
from typing import Any

import pytest
from child_process import Child
from test_mock_group_clients import DEADLINE_S, PARTITIONS, assigned, fill, numbers, on_thread

from aiokprod.testing import MockCluster


def consumer(cluster: MockCluster) -> Any:
    kafka: Any = import_module("kafka")  # here, so that only the long suites need it
    return kafka.KafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=1000,
        heartbeat_interval_ms=100,
    )


def until_shared(*consumers: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        for each in consumers:
            each.poll(50)
        shares = [assigned(each) for each in consumers]
        if all(shares) and sorted(index for share in shares for index in share) == list(range(PARTITIONS)):
            return
        assert time.monotonic() < deadline, shares


def read(each: Any, count: int) -> list[bytes]:
    deadline = time.monotonic() + DEADLINE_S
    got: list[bytes] = []
    while len(got) < count and time.monotonic() < deadline:
        got += [message.value for messages in each.poll(100).values() for message in messages]
    return sorted(got, key=int)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own
def test_kafka_python_consumers_share_take_over_and_go_on_where_they_stopped() -> None:
    with on_thread() as cluster:
        asyncio.run(fill(cluster, 20))
        first = consumer(cluster)
        assert read(first, 20) == numbers(0, 20)
        first.commit()
        second = consumer(cluster)
        until_shared(first, second)
        second.close()
        until_shared(first)
        first.close()
        asyncio.run(fill(cluster, 12, first=20))
        again = consumer(cluster)
        assert read(again, 12) == numbers(20, 12)
        again.close()


KILLED = """
import sys, warnings
warnings.simplefilter("ignore")
from kafka import KafkaConsumer

consumer = KafkaConsumer("t", bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest",
                         enable_auto_commit=False, session_timeout_ms=1000, heartbeat_interval_ms=100)
while not consumer.assignment():
    consumer.poll(50)
print("assigned", flush=True)
while True:
    consumer.poll(50)
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own
def test_kafka_python_takes_over_from_a_process_that_was_killed() -> None:
    with on_thread() as cluster:
        first = consumer(cluster)
        until_shared(first)
        command = [sys.executable, "-c", KILLED, cluster.bootstrap_servers]
        with Child(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            deadline = time.monotonic() + DEADLINE_S
            while len(assigned(first)) != PARTITIONS // 2 and time.monotonic() < deadline:
                first.poll(50)
            assert process.stdout.readline() == "assigned\n"
        assert len(assigned(first)) == PARTITIONS // 2
        until_shared(first)
        first.close()
