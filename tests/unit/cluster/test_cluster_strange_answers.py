"""Answers from another cluster: for good, for a while, or at one address only. Whole producers, virtual time."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from aiokprod import Delivery, Producer
from aiokprod.errors import ClusterIdMismatchError, DeliveryTimeoutError, ProducerFailedError
from aiokprod.model import Persistence, ProducerState
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

BROKERS = (1, 2, 3)
BOOTSTRAP = [f"kafka-{node}:9092" for node in BROKERS]


class Names:
    """Names of brokers, and which cluster each leads to. Both clusters announce the same names."""

    def __init__(self, network: VirtualNetwork, ours: MockCluster, theirs: MockCluster) -> None:
        self._network = network
        self._ports = {id(one): {node: one.broker(node).port for node in BROKERS} for one in (ours, theirs)}
        self.leads_to = {f"kafka-{node}": ours for node in BROKERS} | {"elsewhere": ours}
        self.unreachable: set[str] = set()
        self._open: list[tuple[str, asyncio.Transport]] = []
        for one in (ours, theirs):
            one.create_topic("t", partitions=3, replication_factor=3)
            for node in BROKERS:
                one.advertise(node, f"kafka-{node}", 9092)

    async def dial(
        self, host: str, port: int, context: ssl.SSLContext | None, factory: Callable[[], asyncio.Protocol]
    ) -> asyncio.Transport:
        if host in self.unreachable:
            raise ConnectionRefusedError(host)
        node = int(host[-1]) if host[-1].isdigit() else 1
        transport = await self._network.dial(host, self._ports[id(self.leads_to[host])][node], context, factory)
        self._open.append((host, transport))
        return transport

    def move(self, hosts: Sequence[str], cluster: MockCluster) -> None:
        """Lead these names to another address from now on, and reset their connections."""
        self.leads_to.update(dict.fromkeys(hosts, cluster))
        self.reset(hosts)

    def take_down(self, hosts: Sequence[str]) -> None:
        self.unreachable.update(hosts)
        self.reset(hosts)

    def reset(self, hosts: Sequence[str]) -> None:
        for host, transport in self._open:
            if host in hosts:
                transport.abort()


Play = Callable[[Producer, Names, MockCluster, MockCluster], Awaitable[None]]
EVERY_NAME = [f"kafka-{node}" for node in BROKERS]


def scene(play: Play, bootstrap: Sequence[str] = BOOTSTRAP, **options: float) -> None:
    async def scenario(network: VirtualNetwork, random: Random) -> None:
        async with MockCluster(brokers=3, network=network) as ours, MockCluster(brokers=3, network=network) as theirs:
            names = Names(network, ours, theirs)
            async with Producer(list(bootstrap), dialer=names.dial, **options) as producer:  # type: ignore[arg-type]
                await asyncio.gather(*send_everywhere(producer))
                await play(producer, names, ours, theirs)

    for seed in range(3):
        run_virtual(scenario, seed=seed)


def send_everywhere(producer: Producer) -> list[Delivery]:
    return [producer.send("t", b"v", partition=partition) for partition in range(3)]


def count(cluster: MockCluster) -> int:
    return sum(len(cluster.records("t", partition)) for partition in range(3))


def test_a_cluster_rebuilt_under_the_same_names_fails_the_producer_in_the_request_timeout() -> None:  # faults: T22
    async def play(producer: Producer, names: Names, ours: MockCluster, theirs: MockCluster) -> None:
        loop = asyncio.get_running_loop()
        names.move(EVERY_NAME, theirs)
        began = loop.time()
        sent = send_everywhere(producer)
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert 30 <= loop.time() - began <= 35
        for error in results:
            assert isinstance(error, ProducerFailedError)
            assert isinstance(error.__cause__, ClusterIdMismatchError)
            assert error.persistence is Persistence.NOT_PERSISTED
        health = producer.health()
        assert (health.state, health.live, health.ready) == (ProducerState.FAILED, False, False)
        assert "another cluster has answered for 3" in str(health.last_error)
        assert count(theirs) == 0
        with pytest.raises(ProducerFailedError, match="another cluster"):
            producer.send("t", b"v")
        await producer.close()
        await producer.start()
        await asyncio.gather(*send_everywhere(producer))
        assert count(theirs) == 3

    scene(play)


def test_an_idle_producer_whose_cluster_was_rebuilt_fails_when_its_metadata_is_renewed() -> None:  # faults: T22
    async def play(producer: Producer, names: Names, ours: MockCluster, theirs: MockCluster) -> None:
        names.move(EVERY_NAME, theirs)
        await asyncio.sleep(60 + 31)
        assert not producer.health().live

    scene(play, metadata_max_age_ms=60_000)


def test_names_that_lead_to_another_cluster_for_a_while_cost_nothing() -> None:  # faults: T18
    async def play(producer: Producer, names: Names, ours: MockCluster, theirs: MockCluster) -> None:
        names.move(EVERY_NAME, theirs)
        sent = send_everywhere(producer)
        await asyncio.sleep(20)
        assert producer.health().live
        assert "belongs to cluster" in str(producer.health().last_error)
        names.move(EVERY_NAME, ours)
        await asyncio.gather(*sent)
        assert (count(ours), count(theirs)) == (6, 0)
        names.move(EVERY_NAME, theirs)  # the time begins again
        sent = send_everywhere(producer)
        await asyncio.sleep(20)
        names.move(EVERY_NAME, ours)
        await asyncio.gather(*sent)

    scene(play)


@pytest.mark.parametrize("bootstrap", [BOOTSTRAP, BOOTSTRAP[:1]], ids=["three servers", "one server"])
def test_one_name_that_leads_to_another_cluster_fails_no_more_than_its_partitions(bootstrap: list[str]) -> None:
    # faults: T18
    async def play(producer: Producer, names: Names, ours: MockCluster, theirs: MockCluster) -> None:
        leader = {ours.leader("t", partition): partition for partition in range(3)}
        names.move(EVERY_NAME[:1], theirs)
        results = await asyncio.gather(*send_everywhere(producer), return_exceptions=True)
        for node, partition in leader.items():
            assert isinstance(results[partition], DeliveryTimeoutError) == (node == 1)
        assert producer.health().live
        ours.move_leader("t", leader[1], 2)
        await asyncio.gather(*send_everywhere(producer))

    scene(play, bootstrap)


def test_brokers_elsewhere_are_found_when_their_old_names_lead_to_another_cluster() -> None:  # faults: T18
    async def play(producer: Producer, names: Names, ours: MockCluster, theirs: MockCluster) -> None:
        for node in BROKERS:
            ours.advertise(node, f"moved-{node}", 9092)
        names.leads_to |= {f"moved-{node}": ours for node in BROKERS}
        names.move(EVERY_NAME, theirs)
        async with asyncio.timeout(10):
            await asyncio.gather(*send_everywhere(producer))
        assert count(theirs) == 0

    scene(play, ["kafka-1:9092", "elsewhere:9092"])


def test_an_outage_with_a_server_of_another_cluster_in_the_list_is_an_outage_until_the_rebootstrap_time() -> None:
    # faults: T18
    async def play(producer: Producer, names: Names, ours: MockCluster, theirs: MockCluster) -> None:
        names.take_down(EVERY_NAME)
        names.move(["elsewhere"], theirs)
        sent = send_everywhere(producer)
        await asyncio.sleep(100)
        assert producer.health().live
        names.unreachable.clear()
        await asyncio.gather(*sent)
        names.take_down(EVERY_NAME)
        sent = send_everywhere(producer)
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert all(isinstance(error, DeliveryTimeoutError) for error in results)
        await asyncio.sleep(200)
        assert not producer.health().live

    scene(play, [*BOOTSTRAP, "elsewhere:9092"])
