"""A topic is made again with fewer partitions while records for the last of them are queued or unanswered."""

from __future__ import annotations

import asyncio

import pytest
from rig import backend_of, run_in_virtual_time, started, until

from aiokprod.errors import DeliveryError, DeliveryTimeoutError, PartitionOutOfRangeError
from aiokprod.model import Persistence


@pytest.mark.parametrize("appended", [False, True])
def test_records_of_a_partition_that_went_away_fail_long_before_their_deadline(appended: bool) -> None:
    # faults: T6
    async def scenario() -> None:
        async with started("t", partitions=3, metadata_max_age_ms=100) as (cluster, producer):
            for partition in range(3):
                await producer.send("t", b"0", partition=partition)
            held = cluster.hold("Produce", broker=cluster.leader("t", 2), before_serving=not appended)
            flying = producer.send("t", b"flying", partition=2)
            await until(lambda: held.hits == 1)
            queued = [producer.send("t", b"queued", partition=2) for _ in range(3)]
            cluster.recreate_topic("t", partitions=1)
            cluster.close_connections()
            cluster.release(held)
            while await producer.partitions_for("t") != [0]:
                await asyncio.sleep(0.01)
            seen = cluster.requests_seen("Produce")
            _, pending = await asyncio.wait([flying, *queued], timeout=60.0)  # delivery_timeout_ms is 120,000
            asked = cluster.requests_seen("Produce") - seen
            states = [repr(delivery) for delivery in pending]
            for delivery in pending:
                delivery.cancel()
            await producer.close(timeout=0.1)
            assert not pending, f"{states}; {asked} more requests with the old topic id"
            for delivery in (flying, *queued):
                error = delivery.exception()
                assert isinstance(error, DeliveryError) and not isinstance(error, DeliveryTimeoutError)
            assert {delivery.exception().persistence for delivery in queued} == {Persistence.NOT_PERSISTED}  # type: ignore[union-attr]

    run_in_virtual_time(scenario())


def test_many_records_of_a_partition_that_went_away_fail_in_parts_and_those_that_come_when_it_is_back_do_not() -> None:
    # faults: T6
    async def scenario() -> None:
        async with started("t", partitions=3, metadata_max_age_ms=100, batch_size=0, linger_ms=0) as (
            cluster,
            producer,
        ):
            for partition in range(3):
                await producer.send("t", b"0", partition=partition)
            cluster.freeze_broker(cluster.leader("t", 2))
            queued = [producer.send("t", b"queued", partition=2) for _ in range(1_000)]
            queue = next(queue for queue in backend_of(producer).partitions if queue.partition == 2)
            queue.left_out(1, bytes(range(16)), 0)
            done = [sum(delivery.done() for delivery in queued)]
            queue.led_by(queue.node, 7, bytes(range(16)))
            later = producer.send("t", b"later", partition=2)
            for _ in range(5):
                await asyncio.sleep(0)
                done.append(sum(delivery.done() for delivery in queued))
            assert done == [200, 400, 600, 800, 1_000, 1_000]
            for delivery in queued:
                assert isinstance(delivery.exception(), PartitionOutOfRangeError)
            assert not later.done()
            later.recall()
            await producer.close(timeout=0.1)

    run_in_virtual_time(scenario())
