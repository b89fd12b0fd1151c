"""`retries`: a count, as an option."""

from __future__ import annotations

import asyncio

import pytest
from rig import run, started, values

from aiokprod import Persistence
from aiokprod.errors import BufferFullError, RetriesExhaustedError


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_record_is_sent_once_more_than_retries_and_then_fails(retries: int) -> None:
    async def scenario() -> None:
        async with started("t", retries=retries, acks="all") as (cluster, producer):
            assert producer.config.idempotent is (retries > 0)
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=retries + 1)
            with pytest.raises(RetriesExhaustedError, match="NOT_ENOUGH_REPLICAS") as failed:
                await producer.send("t", b"0")
            assert failed.value.attempts == retries + 1
            assert failed.value.persistence is Persistence.NOT_PERSISTED
            if retries:
                cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=retries)
            assert (await producer.send("t", b"1")).offset == 0
            assert values(cluster, "t") == [b"1"]

    run(scenario())


def test_what_may_be_in_the_log_when_retries_end_is_possibly_persisted_and_order_holds() -> None:
    async def scenario() -> None:
        async with started("t", retries=2, linger_ms=0, batch_size=100) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.drop_answer("Produce", after_append=True, times=None)
            deliveries = [producer.send("t", b"%d" % number + b"x" * 90) for number in range(1, 9)]
            await asyncio.wait(deliveries[:1])
            cluster.clear_faults()
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            failed = [outcome for outcome in outcomes if isinstance(outcome, RetriesExhaustedError)]
            assert failed
            assert failed[0].persistence is Persistence.POSSIBLY_PERSISTED
            found = [int(value[:1]) for value in values(cluster, "t") if value is not None]
            assert found == sorted(set(found))
            for number, outcome in enumerate(outcomes, start=1):
                if not isinstance(outcome, BaseException):
                    assert number in found
                elif isinstance(outcome, RetriesExhaustedError) and outcome.retriable:
                    assert number not in found
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_no_waiting_bytes_means_that_no_send_waits() -> None:
    async def scenario() -> None:
        options = {"buffer_memory": 200_000, "max_request_size": 100_000, "batch_size": 50_000, "max_waiting_bytes": 0}
        async with started("t", **options) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            taken = [producer.send("t", b"x" * 90_000), producer.send("t", b"x" * 90_000)]
            with pytest.raises(BufferFullError):
                producer.send("t", b"x" * 90_000)
            cluster.release(held)
            await asyncio.gather(*taken)

    run(scenario())
