"""Faults of a cluster in virtual time: each kind happens, a correct producer survives it, and it is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from random import Random

import pytest

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.testing.virtual.nemesis import LONGEST_S, MOST_SWALLOWED, Nemesis

WORDS = {
    "answers": ["instead of an answer to a Produce", "never answered", "leaves t-", "takes", "answer to a Metadata"],
    "brokers": ["stops", "is killed"],
    "errors": [" x ", "which is appended", "throttled", "InitProducerId"],
    "leaders": ["leads t-", "owes answers", "has no leader", "fall behind"],
    "network": ["nothing passes", "connections are reset", "the brokers close"],
}


def befall(seed: int, kinds: Collection[str] = Nemesis.KINDS, brokers: int = 3, *, waits: bool = False) -> list[str]:
    """Thirty records through it, all of them delivered, once, in order; what happened.

    Args:
        waits: let the nemesis come to its end, and see that all is well; else it is ended with the records.
    """

    async def scenario(network: VirtualNetwork, random: Random) -> list[str]:
        async with MockCluster(brokers, network=network, seed=1) as cluster:
            cluster.create_topic("t", partitions=2)
            nemesis = Nemesis(cluster, network, random, kinds)
            running = asyncio.create_task(nemesis.run())
            async with Producer(cluster.bootstrap_servers) as producer:
                deliveries = []
                for number in range(30):
                    deliveries.append(producer.send("t", b"%d" % number, partition=number % 2))
                    await asyncio.sleep(0.001)
                await asyncio.gather(*deliveries)
            if waits:
                async with asyncio.timeout(LONGEST_S + 1.0):
                    await running
            else:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                nemesis.heal()
            assert_well(cluster)
        return nemesis.story

    return run_virtual(scenario, seed=seed)


def assert_well(cluster: MockCluster) -> None:
    for partition in range(2):
        values = [record.value for record in cluster.records("t", partition)]
        assert values == [b"%d" % number for number in range(30) if number % 2 == partition]
        assert cluster.leader("t", partition) in cluster.partition("t", partition).isr
    assert all(node.is_up for node in cluster._state.nodes.values())
    assert all(rule.is_spent for rule in cluster._faults._rules)


@pytest.mark.parametrize("kind", Nemesis.KINDS)
def test_each_kind_happens_and_is_survived_and_nothing_else_happens(kind: str) -> None:
    told = "\n".join(step for seed in range(60) for step in befall(seed, [kind]))
    for word in WORDS[kind]:
        assert word in told, word
    for other in set(WORDS) - {kind}:
        assert not [word for word in WORDS[other] if word in told and word not in (" x ", "leads t-", "takes")], other


def test_all_of_it_together_is_survived_and_over_in_time() -> None:
    stories = [befall(seed, waits=True) for seed in range(60)]
    assert max(map(len, stories)) >= 10
    assert all(sum("never answered" in step for step in story) <= MOST_SWALLOWED for story in stories)


def test_the_only_broker_there_is_comes_and_goes() -> None:
    assert any("broker 1" in step for seed in range(20) for step in befall(seed, ["brokers", "leaders"], brokers=1))


def test_a_cluster_without_topics_and_kinds_there_are_not() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> list[str]:
        async with MockCluster(network=network) as cluster:
            with pytest.raises(ValueError, match="no such faults: gremlins; there are answers, brokers"):
                Nemesis(cluster, network, random, ["gremlins", "errors"])
            nemesis = Nemesis(cluster, network, random, ["leaders"])
            await nemesis.run()
            await Nemesis(cluster, network, random, []).run()
            return nemesis.story

    for seed in range(5):
        assert run_virtual(scenario, seed=seed) == []


def test_a_topic_may_go_while_it_is_without_a_leader() -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(network=network, seed=1) as cluster:
            for number in range(20):
                cluster.create_topic("t", partitions=2)
                running = asyncio.create_task(Nemesis(cluster, network, random, ["leaders"]).run(), name=f"{number}")
                await asyncio.sleep(random.choice([0.0, 0.1]))
                cluster.delete_topic("t")
                await running

    for seed in range(5):
        run_virtual(scenario, seed=seed)


def test_the_same_seed_is_the_same_story() -> None:
    for seed in range(10):
        assert befall(seed) == befall(seed)
