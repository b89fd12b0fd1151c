"""close() while start() waits for the transactional id: both end at once, whatever the coordinator does."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from txn_rig import CLUSTERS, ID, producer_of

from aiokprod.errors import ProducerClosedError
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual


@pytest.mark.parametrize("wait_s", [None, 30.0], ids=["for ever", "30 s"])
@pytest.mark.parametrize("bound_s", [0, 10])
def test_a_close_ends_a_start_whose_id_is_not_given(wait_s: float | None, bound_s: float) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        loop = asyncio.get_running_loop()
        async with MockCluster(1, network=network, seed=1, now_ms=wall_ms, **CLUSTERS["TV2"]) as cluster:
            cluster.load_coordinator(ID)
            producer = producer_of(cluster, network)
            starting = asyncio.create_task(producer.start(wait_s))
            await asyncio.sleep(1)
            began = loop.time()
            async with asyncio.timeout(20):
                report = await producer.close(bound_s)
            assert loop.time() - began < 0.1
            assert report.is_clean
            with pytest.raises(ProducerClosedError, match="while the producer was being started"):
                await starting
            cluster.load_coordinator(ID, False)
            await producer.start()  # it can be started again
            await producer.close()

    run_virtual(whole, seed=1)
