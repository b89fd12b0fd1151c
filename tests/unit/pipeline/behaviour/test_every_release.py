"""The whole producer against brokers of each release the mock knows, in the versions of requests which they take.

What the brokers themselves answer is compared with real ones in tests/conformance; our producer meets real ones of these
releases in tests/real.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rig import run, values

from aiokprod import BytesColumn, Persistence, Producer, Record
from aiokprod.errors import RecordTooLargeError
from aiokprod.pipeline.sending.hashes import murmur2_partition
from aiokprod.testing import MockCluster
from aiokprod.testing.mock.kafka_versions import RELEASES

VERSIONS = {"2.1": (7, 7, 1), "2.8": (9, 11, 4), "3.9": (11, 12, 5), "4.3": (13, 13, 5)}
"""Of Produce, Metadata and InitProducerId: the newest that both the release and we have."""

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5, "request_timeout_ms": 5_000,
}  # fmt: skip

of_each_release = pytest.mark.parametrize("release", VERSIONS)


@asynccontextmanager
async def started(
    release: str,
    *,
    partitions: int = 1,
    brokers: int = 3,
    cluster_options: dict[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[tuple[MockCluster, Producer]]:
    """Yield a cluster of this release with the topic "t", and a producer."""
    async with MockCluster(brokers, kafka_version=release, **(cluster_options or {})) as cluster:
        cluster.create_topic("t", partitions=partitions)
        async with Producer(cluster.bootstrap_servers, **QUICK, **options) as producer:
            yield cluster, producer
        assert not cluster.counters.crashes


def used(cluster: MockCluster, api: str) -> set[int]:
    """Return the versions in which the producer asked."""
    return {seen.version for seen in cluster.requests(api)}


def test_each_release_of_the_mock_is_here() -> None:
    assert set(VERSIONS) == set(RELEASES)


@of_each_release
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_shape_arrive_as_they_were_sent(release: str, codec: str) -> None:
    shapes: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (value, key, headers)
        for value in (b"value", b"", None, b"x" * 20_000)
        for key in (b"key", b"", None)
        for headers in ([], [("a", b"1"), ("a", None), ("ä", b"")])
    ]

    async def scenario() -> None:
        async with started(release, partitions=5, compression_type=codec) as (cluster, producer):
            deliveries = [
                producer.send("t", value, key, headers=headers, timestamp_ms=1_700_000_000_000 + number)
                for number, (value, key, headers) in enumerate(shapes)
            ]
            told = await asyncio.gather(*deliveries)
            stored = {(record.partition, record.offset): record for record in cluster.records("t")}
            assert len(stored) == len(shapes)
            for number, (metadata, (value, key, headers)) in enumerate(zip(told, shapes, strict=True)):
                assert metadata.offset is not None
                record = stored[metadata.partition, metadata.offset]
                assert (record.value, record.key, list(record.headers)) == (value, key, headers)
                assert record.timestamp_ms == metadata.timestamp == 1_700_000_000_000 + number
                if key is not None:
                    assert record.partition == murmur2_partition(key, 5)
            produce, metadata_version, identity = VERSIONS[release]
            assert used(cluster, "Produce") == {produce}
            assert used(cluster, "Metadata") == {metadata_version}
            assert used(cluster, "InitProducerId") == {identity}

    run(scenario())


@of_each_release
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_the_metadata_says_what_the_acknowledgement_told(release: str, acks: int | str) -> None:
    async def scenario() -> None:
        async with started(release, acks=acks, enable_idempotence=False) as (cluster, producer):
            told = [await producer.send("t", b"%d" % number) for number in range(3)]
            assert [metadata.offset for metadata in told] == ([None] * 3 if acks == 0 else [0, 1, 2])
            await producer.flush()
            await cluster.until_seen("Produce", 3)
            assert {record.producer_id for record in cluster.records("t")} <= {-1}
        assert values(cluster, "t") == [b"0", b"1", b"2"]

    run(scenario())


@of_each_release
def test_a_lost_answer_is_asked_for_again_and_makes_no_copy(release: str) -> None:
    async def scenario() -> None:
        async with started(release) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.drop_answer("Produce", after_append=True)
            delivery = producer.send("t", b"1")
            assert (await delivery).offset == 1
            assert delivery.attempts == 2
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=2)
            assert (await producer.send("t", b"2")).offset == 2
            stored = cluster.records("t")
            assert [(record.value, record.sequence) for record in stored] == [(b"0", 0), (b"1", 1), (b"2", 2)]

    run(scenario())


@of_each_release
def test_records_go_on_in_order_where_the_leader_moved_to(release: str) -> None:
    async def scenario() -> None:
        async with started(release, linger_ms=0, batch_size=500) as (cluster, producer):
            deliveries = []
            for number in range(400):
                deliveries.append(producer.send("t", b"%d" % number))
                if number % 100 == 50:
                    leader = cluster.leader("t")
                    assert leader is not None
                    cluster.move_leader("t", 0, leader % 3 + 1)
                await asyncio.sleep(0)
            told = await asyncio.gather(*deliveries)
            assert [metadata.offset for metadata in told] == list(range(400))
            assert values(cluster, "t") == [b"%d" % number for number in range(400)]

    run(scenario())


@of_each_release
def test_a_broker_that_is_killed_under_load_loses_nothing(release: str) -> None:
    async def scenario() -> None:
        async with started(release, partitions=3, linger_ms=0) as (cluster, producer):
            deliveries = []
            for number in range(300):
                deliveries.append(producer.send("t", b"%d" % number, partition=number % 3))
                if number == 100:
                    cluster.kill_broker(1)
                if number == 200:
                    cluster.start_broker(1)
                await asyncio.sleep(0)
            await asyncio.gather(*deliveries)
            for partition in range(3):
                assert values(cluster, "t", partition) == [b"%d" % number for number in range(partition, 300, 3)]

    run(scenario())


@of_each_release
def test_a_record_that_is_too_large_fails_and_the_rest_of_its_batch_arrives(release: str) -> None:
    async def scenario() -> None:
        async with started(release, linger_ms=50) as (cluster, producer):
            with pytest.raises(RecordTooLargeError) as early:
                producer.send("t", b"x" * 2_000_000)
            assert early.value.persistence is Persistence.NOT_PERSISTED
            cluster.alter_topic("t", **{"max.message.bytes": 2_000})
            sizes = (100, 100, 30_000, 100, 100)
            told = await asyncio.gather(*(producer.send("t", b"x" * size) for size in sizes), return_exceptions=True)
            assert [type(each) is RecordTooLargeError for each in told] == [False, False, True, False, False]
            assert [len(value or b"") for value in values(cluster, "t")] == [100] * 4
            assert (await producer.send("t", b"after")).offset == 4

    run(scenario())


@of_each_release
def test_a_broker_that_forgot_the_producer_and_a_topic_made_again_are_got_over(release: str) -> None:
    async def scenario() -> None:
        async with started(release) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.forget_producers("t")
            assert (await producer.send("t", b"1")).offset == 1
            cluster.recreate_topic("t")
            assert (await producer.send("t", b"2")).offset == 0

    run(scenario())


@of_each_release
def test_send_many_and_send_columns_arrive_and_are_told_with_their_offsets(release: str) -> None:
    async def scenario() -> None:
        async with started(release) as (cluster, producer):
            report = await producer.send_many("t", [b"0", Record(value=b"1", key=b"k"), b"2"])
            assert report.offsets == {("t", 0): (0, 2)}
            columns = await producer.send_columns("t", BytesColumn(array("i", range(4)), b"345"))
            assert (columns.partitions["t", 0].first_offset, columns.partitions["t", 0].last_offset) == (3, 5)
            assert values(cluster, "t") == [b"%d" % number for number in range(6)]

    run(scenario())
