"""Records that wait for metadata, for a partition or for room reach their partition in the order of the `send` calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from column_rig import column
from virtual_rig import kinds, log, outcomes, room, run, started, waits_for

from aiokprod import Producer
from aiokprod.explanation import WaitsFor
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork


@pytest.mark.parametrize("bad", ["out of range", "the partitioner raises"])
def test_the_room_of_a_record_that_metadata_fails_goes_to_no_record_before_older_ones(bad: str) -> None:
    """The topic is not known yet, the buffer is full, and the first record is a bad one."""

    def choose(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        if key == b"bad":
            raise RuntimeError("no")
        return 0

    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=1)
            options = room(10_000, max_waiting_bytes=1_000_000, partitioner=choose, dialer=network.dial)
            async with Producer(cluster.bootstrap_servers, **options) as producer:
                first = producer.send("t", b"x" * 2_000, b"bad", partition=7 if bad == "out of range" else None)
                values = [b"%03d" % number + b"x" * 300 for number in range(60)]
                deliveries = [producer.send("t", value) for value in values]
                assert (waits_for(deliveries[0]), waits_for(deliveries[-1])) == (
                    WaitsFor.METADATA,
                    WaitsFor.ROOM,
                )
                results = await outcomes([first, *deliveries])
                assert kinds(results[:1]) == [
                    "PartitionOutOfRangeError" if bad == "out of range" else "PartitionerError"
                ]
                assert set(kinds(results[1:])) == {"RecordMetadata"}
                assert log(cluster) == values
                assert producer.health().buffered_bytes == 0

    run(scenario)


def test_a_record_that_waits_for_its_partition_is_not_overtaken_by_one_that_waits_for_the_topic() -> None:

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            await producer.send("t", b"0", partition=0)
            await asyncio.sleep(1)
            cluster.add_partitions("t", 2)
            rule = cluster.fail_next("Metadata", "LEADER_NOT_AVAILABLE", topic="t", times=2)
            first = producer.send("t", b"A", partition=1)
            assert waits_for(first) is WaitsFor.PARTITION
            while not rule.hits:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            second = producer.send("t", b"B", partition=1)
            assert waits_for(second) is WaitsFor.METADATA
            assert set(kinds(await outcomes([first, second]))) == {"RecordMetadata"}
            assert log(cluster, 1) == [b"A", b"B"]

    run(scenario)


def test_columns_that_wait_for_room_while_a_record_of_their_topic_is_refused_meet_the_same_partition() -> None:
    """The dispatcher was forgotten in their hands, and the next record met a second queue, with
    sequence numbers from 0 on: the broker took it for the batch of the columns, and it was lost in silence."""

    async def scenario(network: VirtualNetwork) -> None:
        options = room(100_000, max_waiting_bytes=1_000_000, linger_ms=0)
        async with started(network, **options) as (cluster, producer):
            cluster.create_topic("u")
            await producer.send("u", b"0")
            held = cluster.hold("Produce")
            fill = [producer.send("u", b"f" * 49_000) for _ in range(2)]
            await asyncio.sleep(0.05)
            refused = producer.send("t", b"x", partition=9)
            columns = asyncio.create_task(producer.send_columns("t", column([b"columns"])))
            assert kinds(await outcomes([refused])) == ["PartitionOutOfRangeError"]
            assert not columns.done()
            cluster.release(held)
            assert kinds(await outcomes([columns, *fill])) == ["ColumnsReport", "RecordMetadata", "RecordMetadata"]
            metadata = await producer.send("t", b"record")
            assert metadata.offset == 1
            assert log(cluster) == [b"columns", b"record"]

    run(scenario)
