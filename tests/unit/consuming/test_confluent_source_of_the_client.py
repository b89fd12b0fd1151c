"""confluent-kafka's own consumers on the in-process cluster's groups: what a fake one cannot show."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "real"))

from group_consumers import CONSUMERS, value_of

from aiokprod import Producer, exactly_once
from aiokprod.testing import MockCluster
from aiokprod.transactions.offsets import GroupMetadata

TOPIC, COUNT = "t", 6
SESSION_MS = 2000
DEADLINE_S = 60.0
QUICK = {
    "group.min.session.timeout.ms": 100,
    "group.consumer.session.timeout.ms": 2000,
    "group.consumer.heartbeat.interval.ms": 100,
}
CLASSIC = ["confluent", "confluent cooperative", "confluent aio"]


@asynccontextmanager
async def filled(partitions: int = 1) -> AsyncIterator[MockCluster]:
    async with MockCluster(1, group_options=QUICK) as cluster:
        for name in (TOPIC, f"{TOPIC}-out"):
            cluster.create_topic(name, partitions=partitions)
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(COUNT):
                await producer.send(TOPIC, b"%d" % number, partition=number % partitions)
        yield cluster


def played(scenario: Callable[[], Any]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(scenario(), DEADLINE_S)

    asyncio.run(in_time())


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something that the client's own threads do."""
    while not await condition():
        await asyncio.sleep(0.02)


async def called(consumer: Any, name: str) -> Any:
    found = await asyncio.to_thread(getattr(consumer, name))
    return await found if asyncio.iscoroutine(found) else found


async def copy(cluster: MockCluster, consumer: Any, producer: Producer) -> None:
    async with exactly_once(consumer, producer, max_records=3, timeout=0.3) as batches:
        async for records in batches:
            for record in records:
                producer.send(f"{TOPIC}-out", value_of(record))
            if any(record.offset() == COUNT - 1 for record in records):
                batches.stop()


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", CLASSIC)  # a member of KIP-848 keeps its epoch until it has joined again
def test_a_member_that_lost_its_session_during_the_body_is_taken_for_the_next_loop(kind: str) -> None:
    async def scenario() -> None:
        async with filled() as cluster, CONSUMERS[kind](cluster.bootstrap_servers, TOPIC, SESSION_MS) as consumer:

            async def is_out() -> bool:
                member = GroupMetadata.of(await called(consumer, "consumer_group_metadata"))
                return member.generation_id <= 0 or not member.member_id

            async with Producer(cluster.bootstrap_servers, transactional_id="tx") as producer:
                with pytest.raises(ValueError, match="slow"):
                    async with exactly_once(consumer, producer, max_records=3, timeout=0.3) as batches:
                        async for _ in batches:
                            cluster.fail_next("Heartbeat", "UNKNOWN_MEMBER_ID")
                            await until(is_out)
                            raise ValueError("the database was slow")
                await copy(cluster, consumer, producer)
            output = sorted(record.value or b"" for record in cluster.records(f"{TOPIC}-out", committed=True))
            assert output == [b"%d" % number for number in range(COUNT)]

    played(scenario)


class Noted:
    """A consumer whose calls note the thread in which they run."""

    def __init__(self, consumer: Any) -> None:
        self.threads: set[threading.Thread] = set()
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:
        def noted(*arguments: Any, **named: Any) -> Any:
            self.threads.add(threading.current_thread())
            return getattr(self._consumer, name)(*arguments, **named)

        return noted


@pytest.mark.parametrize("end", [asyncio.CancelledError, ValueError, None], ids=["cancelled", "raises", "stopped"])
def test_a_consumer_has_a_thread_of_its_own_which_ends_with_the_loop(end: type[BaseException] | None) -> None:
    async def scenario() -> None:
        async with (
            filled() as cluster,
            CONSUMERS["confluent"](cluster.bootstrap_servers, TOPIC, SESSION_MS) as consumer,
        ):
            noted = Noted(consumer)

            async def loop() -> None:
                async with (
                    Producer(cluster.bootstrap_servers, transactional_id="tx") as producer,
                    exactly_once(noted, producer, max_records=3, timeout=30) as batches,
                ):
                    async for records in batches:
                        if end is ValueError:
                            raise ValueError
                        if records[-1].offset() == COUNT - 1:
                            if end is None:
                                batches.stop()
                            else:  # in the wait for records that do not come
                                asyncio.get_running_loop().call_later(0.1, task.cancel)

            task = asyncio.create_task(loop())
            await asyncio.wait([task], timeout=20)
            assert task.done(), "the wait for records was not ended"
            with suppress(*[end] if end else []):
                await task
            (thread,) = noted.threads
            assert thread.name.startswith("aiokprod-confluent-consumer")  # not one of the loop's executor
            thread.join(10)
            assert not thread.is_alive()

    played(scenario)
