"""Calls of transactions from where a producer does not take them: another loop, another thread, a forked child."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokprod import Producer, Reader
from aiokprod.errors import UsageError, WrongLoopError
from aiokprod.testing import MockCluster


def test_calls_from_another_loop_and_thread_are_refused_and_change_nothing() -> None:
    """faults: L17"""
    caught: list[BaseException] = []

    async def told(call: Callable[[], Awaitable[Any]]) -> None:
        try:
            await call()
        except Exception as error:
            caught.append(error)

    async def elsewhere(producer: Producer) -> None:
        async def begin() -> None:
            producer.begin_transaction()

        async def block() -> None:
            async with producer.transaction():
                pass

        for call in (
            begin, block, producer.commit_transaction, producer.abort_transaction, producer.prepare_transaction,
            lambda: producer.send_offsets_to_transaction({("t", 0): 1}, "g"),
        ):  # fmt: skip
            await told(call)

    async def scenario() -> None:
        async with (
            MockCluster(1, auto_create_topics=False) as cluster,
            Producer(cluster.bootstrap_servers, transactional_id="tx") as producer,
        ):
            cluster.create_topic("t", partitions=3)
            for is_open in (False, True):
                if is_open:
                    producer.begin_transaction()
                    await producer.send("t", b"v", partition=0)
                seen = len(cluster.requests("EndTxn")), producer.health().transaction
                worker = threading.Thread(target=lambda: asyncio.run(elsewhere(producer)))
                worker.start()
                await asyncio.to_thread(worker.join)
                assert [type(error) for error in caught] == [WrongLoopError] * 6
                caught.clear()
                assert seen == (len(cluster.requests("EndTxn")), "open" if is_open else "ready")
            await producer.commit_transaction()
            assert [record.value for record in cluster.records("t")] == [b"v"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_records_of_other_threads_are_part_of_the_transaction() -> None:
    async def scenario() -> None:
        async with (
            MockCluster(1, auto_create_topics=False) as cluster,
            Producer(cluster.bootstrap_servers, transactional_id="tx") as producer,
        ):
            cluster.create_topic("t")

            def send(value: bytes) -> int | None:
                return producer.send_threadsafe("t", value).result(timeout=30).offset

            with pytest.raises(KeyError):
                async with producer.transaction():
                    assert await asyncio.to_thread(send, b"aborted") == 0
                    raise KeyError
            async with producer.transaction():
                assert await asyncio.to_thread(send, b"committed") == 2
            with pytest.raises(UsageError, match="no transaction is open"):
                await asyncio.to_thread(send, b"outside")
            assert [record.value for record in cluster.records("t")] == [b"aborted", b"committed"]
            async with Reader(cluster.bootstrap_servers) as reader:
                seen = [record.value async for record in reader.read("t", 0, read_committed=True)]
            assert seen == [b"committed"]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_forked_child_ends_no_transaction_of_its_parent() -> None:
    """faults: L16"""
    program = """
import asyncio, os
from aiokprod import Producer
from aiokprod.errors import ForkedError
from aiokprod.testing import MockCluster

async def child(producer):
    calls = [producer.commit_transaction, producer.abort_transaction, producer.prepare_transaction]
    for call in calls:
        try:
            await call()
        except ForkedError:
            continue
        return 1
    try:
        producer.begin_transaction()
    except ForkedError:
        return 7
    return 2

async def main():
    with MockCluster() as cluster:
        cluster.create_topic("t")
        async with Producer(cluster.bootstrap_servers, transactional_id="tx") as producer:
            async with producer.transaction():
                await producer.send("t", b"0")
                pid = os.fork()
                if pid == 0:
                    os._exit(await child(producer))
                _, status = os.waitpid(pid, 0)
                assert os.waitstatus_to_exitcode(status) == 7, status
                await producer.send("t", b"1")
        assert len(cluster.requests("EndTxn")) == 1

asyncio.run(main())
print("clean")
"""
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("clean\n", 0), done.stderr
