"""A record that is recalled while its batch is with the compressing thread: the rest of the batch is delivered."""

from __future__ import annotations

import asyncio
from random import Random

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual


def test_a_recall_while_a_thread_compresses_spares_the_others() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            async with Producer(
                cluster.bootstrap_servers, dialer=network.dial, compression_type="gzip", batch_size=200_000, linger_ms=0
            ) as producer:
                await producer.send("t", b"warm")
                deliveries = [producer.send("t", b"%03d" % number + bytes(1_000)) for number in range(100)]
                for _ in range(random.randrange(6)):
                    await asyncio.sleep(random.choice([0, 0, 0.0005, 0.005]))
                chosen = random.randrange(100)
                was_recalled = deliveries[chosen].recall()
                await asyncio.gather(*(each for number, each in enumerate(deliveries) if number != chosen))
                if not was_recalled:
                    await deliveries[chosen]
        assert len(cluster.records("t")) == 101 - was_recalled

    for seed in range(40):
        run_virtual(scenario, seed=seed)
