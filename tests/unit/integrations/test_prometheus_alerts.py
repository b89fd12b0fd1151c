"""Each alert of docs/prometheus.md fires in its outage, and none fires in calm: on a cluster and a server in virtual time."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_server import SCRAPED_EVERY_S, Alert, PromqlError, Server, span_s

from aiokprod import Producer
from aiokprod.errors import AiokprodError, ProducerFencedError, TransactionOutcomeUnknownError
from aiokprod.integrations.prometheus import PrometheusMetrics
from aiokprod.pipeline.broker_backend import BrokerBackend
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

PAGE = Path(__file__).resolve().parents[3] / "docs" / "prometheus.md"
FIRES_S = 600.0
"""so long an outage may last until its alert fires"""


def alerts() -> dict[str, Alert]:
    """Return the alerts of the page by their metric, in its order."""
    page = PAGE.read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| when \| query \| for \|\n\|---\|---\|---\|\n((?:\|.*\|\n)+)", page, re.MULTILINE)
    found: dict[str, Alert] = {}
    for query, duration in re.findall(r"^\| .* \| `(.*)` \| (\d+[smh]) \|$", table, re.MULTILINE):
        (name,) = re.findall(r"\baiokprod_(\w+)", query)
        assert name not in found
        found[name] = Alert(query, span_s(duration))
    assert len(found) == table.count("\n")
    return found


# ---------------------------------------------------------------------- the server
def server_of(samples: dict[str, list[float]]) -> Server:
    """Return a server that has scraped these values, by the names of series without labels."""
    server = Server(CollectorRegistry(), [])
    for number in range(max(map(len, samples.values()))):
        server.now = 1_000.0 + number * SCRAPED_EVERY_S
        for name, values in samples.items():
            if number < len(values):
                server.add(name, (), values[number])
    return server


def test_a_rate_is_extrapolated_and_survives_a_reset() -> None:
    server = server_of({"steady": [float(n * 15) for n in range(41)], "reset": [0, 30, 60, 15, 45], "one": [1]})
    assert server.evaluate("rate(steady[5m]) > 0") == {(): pytest.approx(1.0)}
    assert server.evaluate("increase(steady[5m]) >= 300") == {(): pytest.approx(300.0)}
    assert server_of({"reset": [0, 30, 60, 15, 45]}).evaluate("increase(reset[1m]) > 0") == {(): pytest.approx(105.0)}
    assert server_of({"one": [1]}).evaluate("rate(one[5m]) >= 0") == {}


def test_a_quantile_lies_within_its_bucket() -> None:
    server = Server(CollectorRegistry(), [])
    for at in (0.0, 15.0, 30.0):
        server.now = at
        for bound, count in (("1.0", 5), ("2.0", 10), ("+Inf", 10)):
            server.add("s_bucket", (("broker", "1"), ("le", bound)), count * at)
    query = "histogram_quantile({}, sum by (le, broker) (rate(s_bucket[5m]))) > 0"
    assert server.evaluate(query.format("0.5")) == {(("broker", "1"),): pytest.approx(1.0)}
    assert server.evaluate(query.format("0.75")) == {(("broker", "1"),): pytest.approx(1.5)}
    assert server.evaluate("max by (le) (s_bucket) == 150") == {(("le", "1.0"),): 150}
    assert server.evaluate("sum(s_bucket) < 1") == {}


@pytest.mark.parametrize(
    "query",
    [
        "avg(a) > 0",
        "sum(a)",
        "sum(a) > 0 and sum(b) > 0",
        'sum(a{client_id="x"}) > 0',
        "rate(a) > 0",
        "sum without (x) (a) > 0",
        "a > b",
        "histogram_quantile(0.9, a) > 1",
        "rate(a[5m:1m]) > 0",
        "",
    ],
)
def test_a_form_that_the_server_does_not_know_is_refused(query: str) -> None:
    with pytest.raises(PromqlError):
        server_of({"a": [1, 2]}).evaluate(query)


def test_an_alert_fires_after_the_time_for_which_it_holds() -> None:
    alert = Alert("a > 0", 30.0)
    states: list[bool] = []
    server = Server(CollectorRegistry(), [])
    for number, value in enumerate([0, 1, 1, 0, 1, 1, 1, 0]):
        server.now = number * 15.0
        server.add("a", (), value)
        alert.evaluate(server)
        states.append(alert.is_firing)
    assert states == [False] * 6 + [True, False]
    assert alert.fired_at == 90.0


# ---------------------------------------------------------------------- outages
class World:
    """A cluster of two brokers, a producer that sends a record per second to each, and a server that scrapes it."""

    def __init__(self, network: VirtualNetwork, cluster: MockCluster, producer: Producer, server: Server) -> None:
        self.network = network
        self.cluster = cluster
        self.producer = producer
        self.server = server

    async def scrape(self) -> None:
        """Scrape for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self.server.scrape(loop.time())
            await asyncio.sleep(SCRAPED_EVERY_S)

    async def send(self) -> None:
        """Send for ever."""
        number = 0
        while True:
            for partition in range(2):
                try:
                    self.producer.send("t", b"%d" % number, partition=partition)
                except AiokprodError:
                    pass  # the buffer is full
            number += 1
            await asyncio.sleep(1)


Scenario = Callable[[World], Awaitable[None]]


@asynccontextmanager
async def world(network: VirtualNetwork, some: list[Alert], **options: Any) -> AsyncIterator[World]:
    registry = CollectorRegistry()
    async with MockCluster(brokers=2, network=network, seed=1, auto_create_topics=False) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=2)
        options = {"dialer": network.dial, "client_id": "shop", "interceptors": [PrometheusMetrics(registry)]} | options
        producer = Producer(cluster.bootstrap_servers, **options)
        await producer.start()
        server = Server(registry, some)
        here = World(network, cluster, producer, server)
        tasks = [asyncio.ensure_future(here.scrape())]
        if "transactional_id" not in options:
            tasks.append(asyncio.ensure_future(here.send()))
        try:
            yield here
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            await producer.close(1.0)
        assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends


def other(cluster: MockCluster, partition: int = 0) -> int:
    return next(node for node in cluster.broker_ids if node != cluster.leader("t", partition))


async def refused(here: World) -> None:
    here.cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)


async def unanswered(here: World) -> None:
    here.cluster.hold("Produce", times=None)


async def few_replicas(here: World) -> None:
    here.cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)


async def slow(here: World) -> None:
    here.cluster.delay_next("Produce", 8.0, times=None)


async def one_slow(here: World) -> None:
    here.cluster.delay_next("Produce", 8.0, times=None, broker=2)


async def away(here: World) -> None:
    for node in here.cluster.broker_ids:
        here.cluster.kill_broker(node, elect=False)


async def lost_tail(here: World) -> None:
    here.cluster.freeze_replicas("t", 0)
    await asyncio.sleep(10)
    here.cluster.move_leader("t", 0, other(here.cluster), lose_uncopied=True)
    here.cluster.thaw_replicas("t", 0)


async def fenced(here: World) -> None:
    here.cluster.create_topic("u")
    async with (
        Producer(
            here.cluster.bootstrap_servers, dialer=here.network.dial, transactional_id="shop", client_id="other"
        ) as other_one,
        other_one.transaction(),
    ):
        other_one.send("u", b"v")
    with pytest.raises(ProducerFencedError):
        async with here.producer.transaction():
            await here.producer.send("u", b"v")


async def lost_end(here: World) -> None:
    here.cluster.create_topic("u")
    here.cluster.swallow_next("EndTxn", times=None)
    with pytest.raises(TransactionOutcomeUnknownError):
        async with here.producer.transaction():
            here.producer.send("u", b"v")
            await here.producer.commit_transaction(timeout=5)


async def defect(here: World) -> None:
    """Take a call away that a broker's flusher waits for, as a defect of ours would: the watch puts it back."""
    pipeline = here.producer._pipeline
    assert pipeline is not None and isinstance(pipeline.backend, BrokerBackend)
    await asyncio.sleep(0.5)  # between two sends
    for flusher in pipeline.backend.brokers.flushers.values():
        flusher._look.handle = asyncio.Handle(list, (), asyncio.get_running_loop())


OUTAGES: dict[str, tuple[Scenario, dict[str, Any]]] = {
    "records_failed_total": (refused, {}),
    "buffer_full_errors_total": (
        unanswered,
        {"buffer_memory": 2_000, "batch_size": 1_000, "max_request_size": 2_000, "max_block_ms": 2_000},
    ),
    "oldest_record_seconds": (few_replicas, {}),
    "failed_producers": (fenced, {"transactional_id": "shop"}),
    "degraded_producers": (few_replicas, {}),
    "attempts_failed_total": (few_replicas, {}),
    "delivery_seconds_bucket": (slow, {}),
    "broker_request_seconds_bucket": (one_slow, {}),
    "connections_open": (away, {}),
    "acknowledged_records_lost_total": (lost_tail, {"acks": 1, "enable_idempotence": False}),
    "transactions_unknown_total": (lost_end, {"transactional_id": "shop"}),
    "stalls_healed_total": (defect, {}),
}


def run_in_virtual_time(scenario: Callable[[VirtualNetwork], Awaitable[None]]) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        await scenario(network)

    run_virtual(whole, seed=1)


def test_each_alert_has_its_outage() -> None:
    assert list(alerts()) == list(OUTAGES)


@pytest.mark.parametrize("name", list(OUTAGES))
def test_an_alert_fires_in_its_outage_and_not_before(name: str, heals: list[str]) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        begin, options = OUTAGES[name]
        alert = alerts()[name]
        async with world(network, [alert], **options) as here:
            await asyncio.sleep(120)
            assert alert.fired_at is None
            await begin(here)
            async with asyncio.timeout(FIRES_S):
                while not alert.is_firing:
                    await asyncio.sleep(SCRAPED_EVERY_S)
            here.cluster.clear_faults()
        assert bool(heals) == (name == "stalls_healed_total")

    run_in_virtual_time(scenario)


def test_no_alert_fires_in_calm_where_leaders_move_brokers_restart_and_records_are_rare() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        every = alerts()
        async with world(network, list(every.values())) as here:
            for _ in range(2):
                await asyncio.sleep(300)
                here.cluster.move_leader("t", 0, other(here.cluster))
                await asyncio.sleep(300)
                for node in here.cluster.broker_ids:
                    here.cluster.stop_broker(node)
                    await asyncio.sleep(20)
                    here.cluster.start_broker(node)
                    await asyncio.sleep(60)
            assert here.producer.metrics()["records_delivered"] > 2_000
        idle = alerts()
        async with world(network, list(idle.values()), transactional_id="idle") as here:
            here.cluster.create_topic("u")
            async with here.producer.transaction():
                here.producer.send("u", b"v")
            await asyncio.sleep(2_400)
        for some in (every, idle):
            assert {name: alert.fired_at for name, alert in some.items() if alert.fired_at is not None} == {}

    run_in_virtual_time(scenario)
