"""Batches that a program of aiokafka fills are one batch in the log; what no request holds is sent record by record."""

from __future__ import annotations

import asyncio

from drop_in_rig import run, started

from aiokprod.compat.aiokafka.batches import FilledBatch


def fill(batch: FilledBatch, size: int = 10) -> int:
    """Fill the batch; return how many records it has."""
    count = 0
    while batch.append(key=None, value=b"x" * size, timestamp=None) is not None:
        count += 1
    return count


def test_a_filled_batch_is_one_batch_whatever_is_sent_beside_it() -> None:
    async def scenario() -> None:
        async with started(linger_ms=20) as (cluster, producer):
            beside = await producer.send("t", b"beside", partition=1)
            batch = producer.create_batch()
            count = fill(batch)
            placed = await producer.send_batch(batch, "t", partition=1)
            behind = await producer.send("t", b"behind", partition=1)
            places = await asyncio.gather(beside, placed, behind)
            assert [place and place.offset for place in places] == [0, 1, count + 1]
            assert producer.aiokprod.metrics()["batches_sent"] == 3
            assert len(cluster.records("t", 1)) == count + 2

    run(scenario)


def test_a_batch_that_no_request_holds_is_sent_record_by_record() -> None:
    async def scenario() -> None:
        async with started(max_batch_size=50_000, max_request_size=5_000) as (cluster, producer):
            batch = producer.create_batch()
            count = fill(batch)
            await (await producer.send_batch(batch, "t", partition=0))
            assert len(cluster.records("t", 0)) == count

    run(scenario)
