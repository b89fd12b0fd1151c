"""Every coroutine a user awaits, cancelled in every turn: no exception stays the thread's current one, in either form."""

from __future__ import annotations

import asyncio
import sys
from array import array
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from rig import run

from aiokprod import BytesColumn, Producer
from aiokprod.testing import MockCluster

COLUMN = BytesColumn(array("i", [0, 1, 2, 3]), b"abc")

SMALL: Any = {"buffer_memory": 2_000, "max_request_size": 1_000, "batch_size": 1_000, "linger_ms": 20}


async def start(producer: Producer) -> None:
    other = Producer(producer.config)
    try:
        await other.start()
    finally:
        await other.close()


async def wait_for_record(producer: Producer) -> None:
    await producer.send("t", b"v")


async def flush(producer: Producer) -> None:
    producer.send("t", b"v")
    await producer.flush()


async def room(producer: Producer) -> None:
    while True:
        producer.send("t", b"v" * 400)
        await producer.ready()


async def send_many(producer: Producer) -> None:
    await producer.send_many("t", [b"v" * 400] * 10)


async def send_columns(producer: Producer) -> None:
    await producer.send_columns("t", COLUMN)


async def ask(producer: Producer) -> None:
    await producer.partitions_for("new")
    await producer.ping()


async def close(producer: Producer) -> None:
    producer.send("t", b"v")
    await producer.close(timeout=0.01)


@pytest.mark.parametrize(
    "work", [start, wait_for_record, flush, room, send_many, send_columns, ask, close], ids=lambda work: work.__name__
)
def test_a_cancel_in_any_turn_leaves_no_exception_behind(
    work: Callable[[Producer], Coroutine[Any, Any, None]],
) -> None:
    async def scenario() -> None:
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=1)
            ends = set()
            for turns in range(25):
                async with Producer(cluster.bootstrap_servers, **SMALL) as producer:
                    await producer.partitions_for("t")
                    task = asyncio.create_task(work(producer))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    task.cancel()
                    await asyncio.wait([task])
                    ends.add(task.cancelled())
                    assert sys.exc_info() == (None, None, None), turns
                assert sys.exc_info() == (None, None, None), turns
                if not task.cancelled():
                    break
            assert True in ends

    run(scenario())
