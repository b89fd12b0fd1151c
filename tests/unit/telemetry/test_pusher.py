"""Telemetry of a whole producer against the in-process cluster, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
from otlp_reader import read_metrics

from aiokprod import Producer
from aiokprod.telemetry.pusher import LAST_PUSH_S
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

ASK, PUSH = "GetTelemetrySubscriptions", "PushTelemetry"


def run(scenario: Callable[[VirtualNetwork], Awaitable[None]]) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        await scenario(network)

    run_virtual(whole, seed=1)


@asynccontextmanager
async def cluster_of(network: VirtualNetwork, **asked: Any) -> AsyncIterator[MockCluster]:
    async with MockCluster(brokers=2, network=network, seed=1) as cluster:
        cluster.create_topic("t")
        if asked.pop("is_asked", True):
            cluster.ask_for_telemetry(**asked)
        yield cluster
        assert not cluster.counters.crashes


def producer_of(cluster: MockCluster, network: VirtualNetwork, **options: Any) -> Producer:
    return Producer(cluster.bootstrap_servers, dialer=network.dial, **options)


def test_metrics_are_pushed_to_a_broker_that_asks_and_a_last_time_at_close() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with cluster_of(network, push_interval_ms=10_000) as cluster:
            async with producer_of(cluster, network, transactional_id="me") as producer:
                async with producer.transaction():
                    await producer.send("t", b"v")
                await asyncio.sleep(36)
                assert 3 <= len(cluster.telemetry_pushes()) <= 4
            *pushes, last = cluster.telemetry_pushes()
            assert last.is_last and not any(push.is_last for push in pushes)
            assert {push.client_instance_id for push in (*pushes, last)} == {last.client_instance_id} != {bytes(16)}
            assert last.compression == "zstd"
            assert (cluster.requests_seen(ASK), cluster.requests_seen(PUSH)) == (1, len(pushes) + 1)
            found = [read_metrics(push.metrics) for push in (*pushes, last)]
            assert [attributes for attributes, _ in found] == [{"transactional_id": "me"}] * len(found)
            name = "aiokprod.producer.records.delivered"
            delivered = [metrics[name] for _, metrics in found]
            assert [metric.value for metric in delivered] == [1] + [0] * (len(found) - 1)  # differences
            assert all(metric.is_delta for metric in delivered)
            assert [metric.began_ns for metric in delivered][1:] == [metric.at_ns for metric in delivered][:-1]

    run(scenario)


@pytest.mark.parametrize("delta", [True, False])
def test_what_was_before_the_first_broker_asked_is_in_the_first_push(delta: bool) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with cluster_of(network, metrics=["*"], delta=delta) as cluster:
            producer = producer_of(cluster, network)
            for start in (1, 2):
                before = producer.metrics()["connections_opened"]
                async with producer:
                    await producer.send("t", b"v")
                    await asyncio.sleep(2)
                    opened = producer.metrics()["connections_opened"] - before
                    first = next(push for push in cluster.telemetry_pushes() if push.client_instance_id[-1] == start)
                    metrics = read_metrics(first.metrics)[1]
                    assert metrics["aiokprod.producer.records.delivered"].value == 1
                    total = metrics["org.apache.kafka.producer.connection.creation.total"]
                    assert 1 <= total.value <= opened and total.began_ns < total.at_ns

    run(scenario)


def test_sums_since_the_start_and_only_what_is_asked_for() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        asked = ["org.apache.kafka.producer.connection.", "aiokprod.producer.records.delivered"]
        async with cluster_of(network, metrics=asked, delta=False, compression_types=()) as cluster:
            async with producer_of(cluster, network) as producer:
                await producer.send("t", b"v")
                await asyncio.sleep(5)
            found = [read_metrics(push.metrics)[1] for push in cluster.telemetry_pushes()]
            assert len(found) >= 4
            for metrics in found:
                assert set(metrics) == {
                    "org.apache.kafka.producer.connection.creation.rate",
                    "org.apache.kafka.producer.connection.creation.total", asked[1],
                }  # fmt: skip
                assert metrics[asked[1]].value == 1 and metrics[asked[1]].is_delta is False
            assert {push.compression for push in cluster.telemetry_pushes()} == {"none"}

    run(scenario)


@pytest.mark.parametrize("way", ["brokers without it", "turned off", "nothing asked for"])
def test_no_metrics_are_pushed(way: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        asked: dict[str, Any] = {"metrics": ()} if way == "nothing asked for" else {}
        async with cluster_of(network, is_asked=way != "brokers without it", **asked) as cluster:
            options = {"enable_metrics_push": False} if way == "turned off" else {}
            async with producer_of(cluster, network, **options) as producer:
                await producer.send("t", b"v")
                names = {task.get_name() for task in asyncio.all_tasks()}
                assert ("aiokprod-telemetry" in names) == (way == "nothing asked for")
                await asyncio.sleep(10)
            assert cluster.requests_seen(PUSH) == 0
            assert (cluster.requests_seen(ASK) > 1) == (way == "nothing asked for")

    run(scenario)


def test_a_broker_that_asks_for_something_else_gets_that() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with cluster_of(network) as cluster:
            async with producer_of(cluster, network) as producer:
                await producer.send("t", b"v")
                await asyncio.sleep(5)
                cluster.ask_for_telemetry(["aiokprod.producer.buffer."])
                await asyncio.sleep(5)
            assert cluster.requests_seen(ASK) == 2
            metrics = read_metrics(cluster.telemetry_pushes()[-1].metrics)[1]
            assert metrics and all(name.startswith("aiokprod.producer.buffer.") for name in metrics)
            assert len({push.subscription_id for push in cluster.telemetry_pushes()}) == 2

    run(scenario)


def test_too_many_bytes_are_cut_to_kafkas_metrics_or_not_pushed() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        for most, names in ((600, 5), (10, 0)):
            async with cluster_of(network, max_bytes=most, compression_types=()) as cluster:
                async with producer_of(cluster, network) as producer:
                    await producer.send("t", b"v")
                    await asyncio.sleep(5)
                assert (cluster.requests_seen(PUSH) > 0) == bool(names)
                for push in cluster.telemetry_pushes():
                    assert len(push.metrics) <= most and len(read_metrics(push.metrics)[1]) == names

    run(scenario)


def test_an_error_that_lasts_ends_the_telemetry_and_not_the_producer(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with cluster_of(network) as cluster:
            cluster.fail_next(PUSH, "INVALID_RECORD")
            async with producer_of(cluster, network) as producer:
                await producer.send("t", b"v")
                await asyncio.sleep(20)
                assert (await producer.send("t", b"v")).offset == 1
            assert (cluster.requests_seen(PUSH), cluster.telemetry_pushes()) == (1, [])

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert [record.levelname for record in caplog.records if "INVALID_RECORD" in record.getMessage()] == ["WARNING"]


def test_lost_answers_and_brokers_that_stop_are_survived() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with cluster_of(network, push_interval_ms=5_000) as cluster:
            cluster.drop_answer(ASK)
            async with producer_of(cluster, network, request_timeout_ms=2_000, delivery_timeout_ms=100_000) as producer:
                await producer.send("t", b"v")
                await asyncio.sleep(320)
                cluster.kill_broker(1)
                await asyncio.sleep(30)
                cluster.start_broker(1)
                cluster.drop_answer(PUSH)
                await asyncio.sleep(30)
                assert (await producer.send("t", b"v")).offset == 1
            assert len(cluster.telemetry_pushes()) >= 5 and cluster.telemetry_pushes()[-1].is_last

    run(scenario)


def test_a_last_push_without_an_answer_delays_the_close_by_a_second() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with cluster_of(network) as cluster:
            producer = producer_of(cluster, network)
            await producer.start()
            await producer.send("t", b"v")
            await asyncio.sleep(5)
            held = cluster.hold(PUSH)
            began = asyncio.get_running_loop().time()
            report = await producer.close()
            assert report.is_clean
            assert LAST_PUSH_S <= asyncio.get_running_loop().time() - began < LAST_PUSH_S + 1.5
            cluster.release(held)

    run(scenario)


def test_a_push_that_is_under_way_at_the_close_is_not_pushed_again() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with cluster_of(network, metrics=["aiokprod.producer.records.delivered"]) as cluster:
            producer = producer_of(cluster, network)
            await producer.start()
            await producer.send_many("t", [b"v"] * 7)
            cluster.delay_next(PUSH, 0.5)
            while not cluster.requests_seen(PUSH):
                await asyncio.sleep(0.1)
            await producer.send("t", b"v")
            await producer.close()
            pushes = cluster.telemetry_pushes()
            delivered = [read_metrics(push.metrics)[1]["aiokprod.producer.records.delivered"].value for push in pushes]
            assert delivered == [7, 1] and pushes[-1].is_last

    run(scenario)


def test_a_close_without_time_does_not_push() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with cluster_of(network) as cluster:
            producer = producer_of(cluster, network)
            await producer.start()
            await producer.send("t", b"v")
            await asyncio.sleep(5)
            held = cluster.hold(PUSH)
            began = asyncio.get_running_loop().time()
            await producer.close(0)
            assert asyncio.get_running_loop().time() - began < 0.5
            cluster.release(held)

    run(scenario)
