"""The end of transactions on the mock: each ends once, whatever its partitions do at the same time."""

from __future__ import annotations

import asyncio
from random import Random

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual


def test_two_transactions_that_wait_for_one_leader_end_once_each() -> None:
    """The marker of one of them changes the partition while the new leader is told: the other one looks twice."""

    async def scenario(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            cluster.hold_markers()
            ends = []
            producers = []
            for name in ("one", "other"):
                producer = Producer(cluster.bootstrap_servers, transactional_id=name, dialer=network.dial)
                producers.append(await producer.start())
                producer.begin_transaction()
                await producer.send("t", name.encode(), partition=0)
                ends.append(asyncio.create_task(producer.commit_transaction()))
            await asyncio.sleep(1.0)
            cluster.move_leader("t", 0, None)
            cluster.release_markers()
            cluster.move_leader("t", 0, 1)
            await asyncio.gather(*ends)
            assert [record.value for record in cluster.records("t", committed=True)] == [b"one", b"other"]
            for producer in producers:
                await producer.close()

    run_virtual(scenario, seed=1)
