"""exactly_once with the real consumers on a real Kafka: tasks are killed, partitions move, the output is the input's image.

Two instances share a group, each with a producer and a `transactional_id` of its own. One of them is cancelled every now and
then and started again, in the middle of what it does: so both rebalance. At the end each value of the input is in the output
once, for readers of committed records, and the group has committed the end of the input.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from group_consumers import CONSUMERS, command_of, copy

from aiokprod import Producer, Reader, exactly_once
from aiokprod.errors import UnknownTopicError
from aiokprod.testing import KafkaCluster

pytestmark = [
    pytest.mark.real,
    # A consumer of aiokafka that is cancelled while it starts leaves its connections to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

PARTITIONS = 4
COUNT = 2000
KILLS = 3
SESSION_MS = 6000
CLUSTERS = [
    pytest.param(("4.3.1", 2), id="4.3-TV2"),
    pytest.param(("4.3.1", 1), id="4.3-TV1", marks=pytest.mark.slow),
    pytest.param(("3.9.1", None), id="3.9", marks=pytest.mark.slow),
    pytest.param(("2.8.2", None), id="2.8", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    version, feature = request.param
    features = None if feature is None else {"transaction.version": feature}
    with KafkaCluster(brokers=1, version=version, features=features) as started:
        yield started


async def values_of(cluster: KafkaCluster, topic: str) -> list[bytes | None]:
    """Return what readers of committed records see."""
    async with Reader(cluster.bootstrap_servers) as reader:
        return [
            record.value
            for partition in range(PARTITIONS)
            async for record in reader.read(topic, partition, read_committed=True)
        ]


SLOW = ("confluent cooperative", "confluent aio")
PAIRS = [
    pytest.param(
        each.values[0], kind, id=f"{each.id}-{kind}", marks=[*each.marks, *[pytest.mark.slow] * (kind in SLOW)]
    )
    for each in CLUSTERS
    for kind in CONSUMERS
    if kind != "confluent KIP-848" or each.id.startswith("4")  # which brokers before Kafka 4 do not have
]


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(("cluster", "kind"), PAIRS, indirect=["cluster"])
def test_the_output_is_the_image_of_the_input(cluster: KafkaCluster, kafka_name: str, kind: str) -> None:
    topic = kafka_name
    for name in (topic, f"{topic}-out"):
        cluster.create_topic(name, partitions=PARTITIONS)
    given = [b"%d" % number for number in range(COUNT)]

    async def scenario() -> Counter[bytes | None]:
        done = asyncio.Event()

        def start(name: str) -> asyncio.Task[None]:
            return asyncio.create_task(copy(cluster.bootstrap_servers, topic, name, kind, SESSION_MS, done), name=name)

        tasks = {name: start(name) for name in ("a", "b")}
        each = COUNT // (KILLS + 1)
        async with Producer(cluster.bootstrap_servers) as producer:
            for number in range(KILLS):
                await producer.send_many(topic, given[number * each :][:each])
                await asyncio.sleep(random.uniform(0.5, 2.5))
                name = "ab"[number % 2]
                for task in tasks.values():
                    assert not task.done(), task
                tasks[name].cancel()
                await asyncio.gather(tasks[name], return_exceptions=True)
                tasks[name] = start(name)
            await producer.send_many(topic, given[KILLS * each :])

        for _ in range(200):
            for task in tasks.values():
                assert not task.done(), task.exception()
            if len(await values_of(cluster, f"{topic}-out")) >= COUNT:
                break
            await asyncio.sleep(0.3)
        for task in tasks.values():
            task.cancel()
        ends = await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
        return Counter(await values_of(cluster, f"{topic}-out"))

    copied = asyncio.run(scenario())
    doubled = {value: count for value, count in copied.items() if count > 1}
    lost = set(given) - set(copied)
    assert (len(lost), len(doubled)) == (0, 0)
    assert sum(copied.values()) == COUNT


# ---------------------------------------------------------------------- the topic of the output is deleted
def committed_offset(cluster: KafkaCluster, topic: str) -> int:
    """Return how many records of the topic the group of this name has committed."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
        return sum(max(0, found.offset) for found in consumer.committed(asked, timeout=60))  # negative: none
    finally:
        consumer.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_made_again", ["while it runs", "before it is run again"])
def test_an_output_topic_that_is_deleted_in_a_transaction_moves_no_position_and_doubles_nothing(
    cluster: KafkaCluster, kafka_name: str, is_made_again: str
) -> None:
    topic, output = kafka_name, f"{kafka_name}-out"
    for name in (topic, output):
        cluster.create_topic(name, partitions=PARTITIONS)
    given = [b"%d" % number for number in range(200)]
    options = {"delivery_timeout_ms": 6_000, "request_timeout_ms": 3_000, "max_block_ms": 4_000, "linger_ms": 5}
    if is_made_again == "while it runs":
        options["max_block_ms"] = 30_000  # longer than a busy cluster takes to make it: its records wait for that

    async def run(deletes: bool) -> int:
        """Copy until everything is committed; return how many batches that took."""
        count = 0

        async def stop_when_copied() -> None:
            while await asyncio.to_thread(committed_offset, cluster, topic) < len(given):
                await asyncio.sleep(0.2)
            batches.stop()

        async with (
            Producer(cluster.bootstrap_servers, transactional_id=topic, **options) as producer,
            CONSUMERS["aiokafka"](cluster.bootstrap_servers, topic, SESSION_MS) as consumer,
            exactly_once(consumer, producer, max_records=len(given), timeout=0.5) as batches,
        ):
            watch = asyncio.create_task(stop_when_copied())
            try:
                async for records in batches:
                    count += 1
                    half = len(records) // 2
                    for record in records[:half]:
                        producer.send(output, record.value)
                    if deletes and count == 1:
                        await producer.flush()
                        assert sum(cluster.end_offsets(output)) == half, "written, and not committed"
                        await asyncio.to_thread(cluster.delete_topic, output)
                    elif deletes and count == 2 and is_made_again == "while it runs":
                        assert await asyncio.to_thread(committed_offset, cluster, topic) == 0
                        await asyncio.to_thread(cluster.create_topic, output, partitions=PARTITIONS)
                    for record in records[half:]:
                        producer.send(output, record.value)
            finally:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
        return count

    async def scenario() -> list[bytes | None]:
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send_many(topic, given)
        async with asyncio.timeout(120):
            if is_made_again == "while it runs":
                assert await run(deletes=True) > 1, "the batch is run again"
            else:
                with pytest.raises(UnknownTopicError, match=f"topic '{output}' is not there after 4") as caught:
                    await run(deletes=True)
                assert "Create the topic" in caught.value.advice
                assert committed_offset(cluster, topic) == 0
                cluster.create_topic(output, partitions=PARTITIONS)
                await run(deletes=False)
            while len(values := await values_of(cluster, output)) < len(given):
                await asyncio.sleep(0.1)  # markers are written a little after the commit is answered (broker: 12.3)
        return values

    assert sorted(asyncio.run(scenario()), key=str) == sorted(given, key=str)
    assert committed_offset(cluster, topic) == len(given)


# ---------------------------------------------------------------------- processes and brokers that are killed
@pytest.fixture(scope="module")
def three_brokers() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["aiokafka", "confluent KIP-848"])
def test_the_output_is_the_image_though_processes_and_brokers_are_killed(
    three_brokers: KafkaCluster, kafka_name: str, kind: str
) -> None:
    cluster, topic = three_brokers, kafka_name
    for name in (topic, f"{topic}-out"):
        cluster.create_topic(name, partitions=PARTITIONS, replication_factor=3)
    given = [b"%d" % number for number in range(COUNT)]
    job = {"servers": cluster.bootstrap_servers, "topic": topic, "kind": kind, "session_ms": SESSION_MS, "most": 50}
    running: dict[str, subprocess.Popen[bytes]] = {}

    def start(name: str) -> None:
        running[name] = subprocess.Popen(command_of(name=name, **job))

    def kill(name: str) -> None:
        assert running[name].poll() is None, "it has ended by itself"
        running[name].kill()  # no member leaves the group, and the transaction stays open
        running[name].wait()

    async def until_copied(count: int) -> None:
        """Wait until so many values are read; without an end the test's own time limit tells."""
        while len(await values_of(cluster, f"{topic}-out")) < count:
            await asyncio.sleep(0.3)

    async def scenario() -> Counter[bytes | None]:
        async with Producer(cluster.bootstrap_servers) as producer:
            each = COUNT // 4
            await producer.send_many(topic, given[:each])
            await until_copied(each // 4)
            kill("a")
            start("a")
            await producer.send_many(topic, given[each : 2 * each])
            node = cluster.leaders(f"{topic}-out")[0]
            cluster.broker(node).kill()
            await producer.send_many(topic, given[2 * each : 3 * each])
            kill("b")
            start("b")
            await until_copied(each)
            cluster.broker(node).start()
            await producer.send_many(topic, given[3 * each :])
            await until_copied(COUNT)
        assert all(process.poll() is None for process in running.values())
        return Counter(await values_of(cluster, f"{topic}-out"))

    async def in_time() -> Counter[bytes | None]:
        return await asyncio.wait_for(scenario(), 180)

    try:
        start("a")
        start("b")
        copied = asyncio.run(in_time())
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    doubled = {value: count for value, count in copied.items() if count > 1}
    assert (len(set(given) - set(copied)), len(doubled)) == (0, 0)
