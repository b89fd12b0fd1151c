"""`health()`: what it says, and after how long, in virtual time. docs/health.md has the thresholds."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path

import pytest
from virtual_rig import outcomes, room, run, started

from aiokprod import Producer
from aiokprod.model import Health, ProducerState
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork
from aiokprod.transactions.machine_actions import State

READY, DEGRADED = ProducerState.READY, ProducerState.DEGRADED


def judged(health: Health) -> tuple[ProducerState, bool]:
    return health.state, health.ready


async def seconds_until(producer: Producer, state: ProducerState, within_s: float = 60.0) -> float:
    """Return the seconds until health reports the state."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while producer.health().state is not state:
        assert loop.time() - began < within_s, producer.health()
        await asyncio.sleep(0.01)
    return loop.time() - began


@pytest.mark.parametrize("has_sent", [True, False], ids=["has sent", "has sent nothing"])
def test_an_idle_producer_whose_brokers_die_is_degraded_after_5_s_and_ready_when_they_are_back(has_sent: bool) -> None:
    # faults: B7
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=3) as (cluster, producer):
            if has_sent:
                await producer.send("t", b"v")
            await asyncio.sleep(100)
            assert judged(producer.health()) == (READY, True)
            for node in cluster.broker_ids:
                cluster.kill_broker(node)
            assert 5 <= await seconds_until(producer, DEGRADED) < 6.5
            health = producer.health()
            assert not health.ready and health.live and health.brokers_connected == 0
            assert "no broker can be reached" in str(health.last_error)
            assert 0 <= wall_s() - health.since < 2  # when this state began, on the wall clock
            await asyncio.sleep(1_000)
            assert judged(producer.health()) == (DEGRADED, False)
            for node in cluster.broker_ids:
                cluster.start_broker(node)
            assert await seconds_until(producer, READY) < 3
            assert producer.health().ready

    run(scenario)


def test_idle_brokers_that_fall_silent_are_noticed_when_the_metadata_is_renewed() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=3, metadata_max_age_ms=60_000) as (cluster, producer):
            await producer.send("t", b"v")
            for node in cluster.broker_ids:
                cluster.freeze_broker(node)
            assert await seconds_until(producer, DEGRADED, 90.0) < 60 + 5 + 5 + 1
            for node in cluster.broker_ids:
                cluster.thaw_broker(node)
            assert await seconds_until(producer, READY) < 30

    run(scenario)


def test_one_broker_of_three_that_dies_degrades_nothing() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=3, partitions=3) as (cluster, producer):
            await asyncio.gather(*(producer.send("t", b"v", partition=partition) for partition in range(3)))
            cluster.kill_broker(2)
            for _ in range(600):
                await asyncio.sleep(0.1)
                assert judged(producer.health()) == (READY, True)

    run(scenario)


def test_a_send_that_fails_for_10_s_degrades() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            sent = producer.send("t", b"w")
            assert 10 <= await seconds_until(producer, DEGRADED) < 10.1
            assert not producer.health().ready
            assert producer.health().oldest_record_s == pytest.approx(10, abs=0.2)
            refusing.cancel()
            await sent
            assert judged(producer.health()) == (READY, True)

    run(scenario)


def test_linger_is_no_delay_and_a_short_request_timeout_is_the_threshold() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options = {"linger_ms": 20_000, "request_timeout_ms": 3_000}
        async with started(network, **options) as (cluster, producer):
            held = cluster.hold("Produce")
            sent = producer.send("t", b"w")
            sent.add_done_callback(lambda _: None)
            assert 23 <= await seconds_until(producer, DEGRADED) < 23.1
            cluster.release(held)
            await sent

    run(scenario)


def test_records_that_wait_for_an_unknown_topic_are_told_and_degrade() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (_, producer):
            sent = [producer.send("unknown", b"x" * 1_000) for _ in range(3)]
            await asyncio.sleep(2)
            health = producer.health()
            assert judged(health) == (READY, True)
            assert health.oldest_record_s == pytest.approx(2, abs=0.01)
            assert health.buffered_bytes > 3_000
            assert "does not know topic 'unknown'" in str(health.last_error)
            await asyncio.sleep(8.1)
            assert judged(producer.health()) == (DEGRADED, False)
            await outcomes(sent)
            assert judged(producer.health()) == (READY, True)
            assert producer.health().oldest_record_s is None

    run(scenario)


def test_records_that_wait_for_room_make_it_not_ready_at_once() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **room(10_000), linger_ms=0) as (cluster, producer):
            held = cluster.hold("Produce")
            sent = [producer.send("t", b"x" * 4_000) for _ in range(4)]
            await asyncio.sleep(1)
            assert judged(producer.health()) == (READY, False)
            cluster.release(held)
            await outcomes(sent)
            assert judged(producer.health()) == (READY, True)

    run(scenario)


def test_brokers_connected_counts_brokers_with_a_connection_of_any_kind() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with (
            MockCluster(brokers=3, network=network, seed=1) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial) as producer,
        ):
            await asyncio.sleep(1)
            first = producer.health().brokers_connected
            assert first >= 1
            assert first <= producer.metrics()["connections_open"]
            cluster.create_topic("t", partitions=3)
            await asyncio.gather(*(producer.send("t", b"v", partition=partition) for partition in range(3)))
            assert producer.health().brokers_connected == 3
            cluster.kill_broker(cluster.leader("t", 0) or 0)
            await asyncio.sleep(1)
            assert producer.health().brokers_connected == 2

    run(scenario)


def test_before_there_was_a_cluster_it_is_degraded() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network) as cluster:
            servers = cluster.bootstrap_servers
            cluster.kill_broker(1)
            producer = Producer(servers, dialer=network.dial)
            await producer.start(wait=False)
            assert judged(producer.health()) == (DEGRADED, False)
            cluster.start_broker(1)
            assert await seconds_until(producer, READY) < 3
            await producer.close()

    run(scenario)


def test_the_page_has_every_field_and_every_state_of_a_transactional_id() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "health.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE))
    assert {field.name for field in dataclasses.fields(Health)} <= set(rows)
    assert set(re.findall(r"`([a-z]+)`", rows["transaction"])) == {state.value for state in State}


def test_a_producer_that_is_ready_and_takes_no_record_says_why() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, **room(10_000)) as (cluster, producer):
            held = cluster.hold("Produce")
            sent = [producer.send("t", b"x" * 4_000) for _ in range(4)]
            await asyncio.sleep(1)
            health = producer.health()
            assert (health.state, health.ready) == (READY, False)
            assert health.reason is not None and health.reason.startswith("the buffer is full: ")
            assert "the buffer is full" in str(producer.explain())
            cluster.release(held)
            await outcomes(sent)
            assert (producer.health().ready, producer.health().reason) == (True, None)

    run(scenario)
