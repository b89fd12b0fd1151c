"""Losses that acks=1 allows, and leaders that break while their records are on the way."""

from __future__ import annotations

import asyncio

from rig import run, run_in_virtual_time, started, until, values

from aiokprod.testing import MockCluster


def test_acks_1_can_lose_what_was_acknowledged_and_keeps_the_order_of_what_survives() -> None:  # faults: P27
    async def scenario() -> None:
        async with started("t", acks=1, enable_idempotence=False, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.freeze_replicas("t", 0)
            leader = cluster.leader("t")
            assert leader is not None
            acknowledged = [await producer.send("t", b"%d" % number) for number in range(1, 4)]
            assert [metadata.offset for metadata in acknowledged] == [1, 2, 3]
            cluster.kill_broker(leader, lose_uncopied=True)
            cluster.thaw_replicas("t", 0)
            later = [producer.send("t", b"%d" % number) for number in range(4, 8)]
            await asyncio.gather(*later)
            found = [int(value) for value in values(cluster, "t") if value is not None]
            assert found == [0, 4, 5, 6, 7], "documented: acks=1 trusts the leader alone"

    run(scenario())


def test_a_log_directory_that_fails_sends_the_records_to_the_new_leader() -> None:  # faults: B10, P18
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            leader = cluster.leader("t")
            assert leader is not None
            cluster.fail_next("Produce", "KAFKA_STORAGE_ERROR", broker=leader, times=None)
            deliveries = [producer.send("t", b"%d" % number) for number in range(1, 6)]
            await until(lambda: producer.metrics()["chaser_rounds"] >= 2)
            cluster.move_leader("t", 0, 1 + leader % 3)
            assert [metadata.offset for metadata in await asyncio.gather(*deliveries)] == [1, 2, 3, 4, 5]
            assert values(cluster, "t") == [b"%d" % number for number in range(6)]

    run(scenario())


def test_what_is_handed_to_a_broker_that_leaves_goes_to_its_successor() -> None:  # faults: L26
    async def scenario() -> None:
        async with started("t", partitions=6, linger_ms=0, batch_size=200) as (cluster, producer):
            await asyncio.gather(*(producer.send("t", b"0", partition=number) for number in range(6)))
            for round_ in range(6):
                node = 1 + round_ % 3
                held = cluster.hold("Produce", broker=node)
                deliveries = [producer.send("t", b"%d" % n + b"x" * 90, partition=n % 6) for n in range(60)]
                await asyncio.sleep(0.01)
                cluster.kill_broker(node, lose_uncopied=False)
                cluster.release(held)
                await asyncio.gather(*deliveries)
                cluster.start_broker(node)
            assert producer.health().buffered_bytes == 0
            assert len(values(cluster, "t")) == 6 + 6 * 60

    run_in_virtual_time(scenario())


def test_batches_are_valid_for_brokers_of_different_versions() -> None:  # faults: B14
    async def scenario() -> None:
        async with started("t", partitions=3) as (cluster, producer):
            assert isinstance(cluster, MockCluster)
            for node, highest in ((1, 3), (2, 8), (3, 13)):
                cluster.cap_versions(node, "Produce", 3, highest)
                cluster.cap_versions(node, "Metadata", 0, 4 + node)
            cluster.close_connections()
            for number in range(3):
                cluster.move_leader("t", number, 1 + number)
            for value in range(3):
                await asyncio.gather(*(producer.send("t", b"%d" % value, partition=number) for number in range(3)))
            cluster.cap_versions(1, "Produce", 3, 13)  # upgraded
            cluster.cap_versions(3, "Produce", 3, 7)  # and another one downgraded
            cluster.close_connections()
            await asyncio.gather(*(producer.send("t", b"3", partition=number) for number in range(3)))
            for number in range(3):
                assert values(cluster, "t", number) == [b"0", b"1", b"2", b"3"]

    run(scenario())
