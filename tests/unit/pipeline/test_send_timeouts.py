"""Per-send timeouts: due in order, forgotten when settled, and short of memory."""

from __future__ import annotations

import asyncio

import pytest
from rig import run, started, until

from aiokprod import Persistence
from aiokprod.errors import SendTimeoutError


def test_each_send_times_out_at_its_own_time_and_the_others_go_on() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            flying = producer.send("t", b"flying", timeout=0.5)
            await until(lambda: held.hits > 0)
            queued = [producer.send("unknown", b"v", timeout=timeout) for timeout in (0.05, 0.01, 0.05)]
            patient = producer.send("t", b"patient", timeout=20)
            with pytest.raises(SendTimeoutError) as late:
                await flying
            assert late.value.persistence is Persistence.POSSIBLY_PERSISTED
            for delivery in queued:
                with pytest.raises(SendTimeoutError) as early:
                    await delivery
                assert early.value.persistence is Persistence.NOT_PERSISTED
            assert not patient.done()
            cluster.release(held)
            assert (
                await patient
            ).offset == 2  # the one whose handle failed is in the log: that is what "possibly" means

    run(scenario())


def test_what_is_settled_is_not_kept_until_its_timeout() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            pipeline = producer._pipeline
            assert pipeline is not None
            timeouts = pipeline.entrance._timeouts
            for round_ in range(20):
                await asyncio.gather(*(producer.send("t", b"v", timeout=60 + round_ % 2) for _ in range(500)))
            assert len(timeouts) <= 1_500, "as many as are under way, not as many as were sent"

    run(scenario())
