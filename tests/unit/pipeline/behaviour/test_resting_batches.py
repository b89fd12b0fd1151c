"""Batches behind many others keep their records out of the garbage collector's sight, and lose nothing by it."""

from __future__ import annotations

import gc

import pytest
from virtual_rig import kinds, log, outcomes, run, started

from aiokprod import Delivery
from aiokprod.testing.virtual import VirtualNetwork

COUNT, SIZE = 600, 100


def value(number: int) -> bytes:
    return b"%05d" % number * (SIZE // 5)


def cells_seen() -> int:
    """Count the values of the test that a list or a tuple holds which the collector tracks."""
    gc.collect()
    columns = (each for each in gc.get_objects() if type(each) in (list, tuple))
    return sum(sum(type(cell) is bytes and len(cell) == SIZE for cell in column) for column in columns)


@pytest.mark.parametrize("key", [None, b"key"])
def test_records_behind_many_batches_are_not_walked_by_the_collector_and_go_on_as_any_others(key: bytes | None) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, batch_size=1_500, linger_ms=1_000) as (cluster, producer):
            held = cluster.hold("Produce")
            told: list[Delivery] = []
            deliveries = [producer.send("t", value(number), key) for number in range(COUNT)]
            for delivery in deliveries:
                delivery.add_done_callback(told.append)
            assert cells_seen() < COUNT / 2  # those of the first batches, which do not rest
            assert deliveries[COUNT - 100].recall()
            assert deliveries[-1].size_bytes > SIZE
            cluster.release(held)
            results = await outcomes(deliveries)
            assert kinds(results[COUNT - 100 : COUNT - 99]) == ["RecordRecalledError"]
            assert kinds(results).count("RecordMetadata") == COUNT - 1
            assert log(cluster) == [value(number) for number in range(COUNT) if number != COUNT - 100]
            assert sorted(map(id, told)) == sorted(map(id, deliveries))

    run(scenario)
