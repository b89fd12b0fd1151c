"""Rows of the fault catalogue that only real brokers can show: killed, frozen, rolled, unreachable, moved.

Durations are scaled down; `nox -s rows` runs them as the catalogue has them.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterator

import pytest
from delivery_check import DELIVERED, Told, judge, read_log
from sending import scaled, send_numbered, under_load

from aiokprod import Producer
from aiokprod.errors import AiokprodError, DeliveryTimeoutError, UnknownTopicError
from aiokprod.testing import KafkaCluster

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, version=kafka_version, proxied=True) as started:
        yield started


@pytest.fixture(autouse=True)
def healed(cluster: KafkaCluster) -> Iterator[None]:
    yield
    cluster.proxy.clear_faults()
    for node, broker in cluster.brokers.items():
        cluster.proxy.allow_connections(node)
        broker.start(wait=False) if not broker.is_running else None
    cluster.wait_ready()


def all_delivered(told: list[Told]) -> bool:
    return all(record.outcome == DELIVERED for record in told)


# ---------------------------------------------------------------------- brokers
@pytest.mark.slow
def test_a_rolling_clean_restart_is_invisible(cluster: KafkaCluster, kafka_name: str) -> None:  # faults: B2, B3
    def roll() -> None:
        for _ in range(int(scaled(1, 5))):
            for broker in cluster.brokers.values():
                broker.restart()
                cluster.wait_all_in_sync(kafka_name)

    findings, told, _ = under_load(cluster, kafka_name, roll)
    assert not findings, findings
    assert all_delivered(told)


@pytest.mark.slow
def test_killing_each_broker_in_turn_loses_nothing(cluster: KafkaCluster, kafka_name: str) -> None:
    # faults: B1, B4, B11: one of the three is the active controller
    def kill() -> None:
        for _ in range(int(scaled(1, 5))):
            for broker in cluster.brokers.values():
                broker.kill()
                time.sleep(0.5)
                broker.start()
                cluster.wait_all_in_sync(kafka_name)

    findings, told, _ = under_load(cluster, kafka_name, kill)
    assert not findings, findings
    assert all_delivered(told)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("frozen_s", [scaled(1.0, 5.0), scaled(3.0, 40.0)], ids=["briefly", "past the request timeout"])
def test_a_frozen_leader_answers_late_and_nothing_is_written_twice(
    cluster: KafkaCluster, kafka_name: str, frozen_s: float
) -> None:  # faults: B5
    def freeze() -> None:
        cluster.broker(cluster.leaders(kafka_name)[0]).pause()
        time.sleep(frozen_s)
        for broker in cluster.brokers.values():
            broker.resume()

    cluster.create_topic(kafka_name, partitions=6)
    findings, told, _ = under_load(cluster, kafka_name, freeze, request_timeout_ms=2_000)
    assert not findings, findings
    assert all_delivered(told)


@pytest.mark.slow
def test_a_majority_that_freezes_again_and_again_loses_nothing_that_was_acknowledged(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: B6
    def freeze() -> None:
        for _ in range(int(scaled(2, 20))):
            for node in (1, 2):
                cluster.broker(node).pause()
            time.sleep(scaled(5, 45))
            for node in (1, 2):
                cluster.broker(node).resume()
            time.sleep(scaled(2, 20))

    findings, told, _ = under_load(
        cluster, kafka_name, freeze, rate=300, delivery_timeout_ms=scaled(3_000, 30_000), request_timeout_ms=2_000
    )
    assert not findings, findings
    assert any(record.outcome == DELIVERED for record in told)
    assert not all_delivered(told), "the budget was shorter than the frost"


@pytest.mark.slow
def test_a_cluster_that_was_down_as_a_whole_is_found_again_without_a_storm(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: B7
    before = cluster.proxy.connections()
    down_s = scaled(4, 60)

    def down() -> None:
        for broker in cluster.brokers.values():
            broker.kill()
        time.sleep(down_s)
        for broker in cluster.brokers.values():
            broker.start(wait=False)
        cluster.wait_ready()
        cluster.wait_all_in_sync(kafka_name)

    findings, told, metrics = under_load(cluster, kafka_name, down, rate=200, delivery_timeout_ms=600_000)
    assert not findings, findings
    assert all_delivered(told)
    # Each broker is dialled for two purposes, at most once a second after a few quick ones.
    assert cluster.proxy.connections() - before < 3 * 2 * (20 + 5 * (down_s + 30)), metrics


@pytest.mark.slow
def test_leaders_that_move_all_the_time_keep_the_order(cluster: KafkaCluster, kafka_name: str) -> None:  # faults: B9
    def move() -> None:
        draw = random.Random(5)
        until = time.monotonic() + scaled(5, 300)
        while time.monotonic() < until:
            for partition in range(6):
                cluster.move_leader(kafka_name, partition, draw.randrange(1, 4))
            time.sleep(scaled(0.1, 2))

    findings, told, metrics = under_load(cluster, kafka_name, move)
    assert not findings, findings
    assert all_delivered(told)
    assert metrics["chaser_rounds"] > 0


# ---------------------------------------------------------------------- network
@pytest.mark.slow
def test_a_slow_and_jittery_network_causes_no_retries(cluster: KafkaCluster, kafka_name: str) -> None:  # faults: N13
    cluster.create_topic(kafka_name, partitions=6)

    def slow() -> None:
        for delay_s in (0.05, 0.1, 0.15):
            cluster.proxy.delay_next(None, delay_s, before_serving=True, times=None, chance=0.5, seed=3)
        time.sleep(scaled(3, 60))
        cluster.proxy.clear_faults()

    findings, told, metrics = under_load(cluster, kafka_name, slow)
    assert not findings, findings
    assert all_delivered(told)
    assert metrics["batches_resent"] == 0


@pytest.mark.slow
def test_one_broker_out_of_reach_keeps_only_its_own_records(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: N14
    cluster.create_topic(kafka_name, partitions=6)
    leaders = cluster.leaders(kafka_name)

    async def scenario() -> list[Told]:
        told: list[Told] = []
        options = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 1_000, "linger_ms": 0}
        async with Producer(cluster.bootstrap_servers, **options) as producer:  # type: ignore[arg-type]
            for partition in range(6):
                await producer.send(kafka_name, b"%d first" % (1000 + partition), partition=partition)
            cluster.proxy.refuse_connections(3)
            cluster.proxy.close_connections(3)
            deliveries = []
            for number in range(60):
                record = Told(number % 6, number)
                told.append(record)
                deliveries.append(send_numbered(producer, kafka_name, record))
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            for number, outcome in enumerate(outcomes):
                expected = DeliveryTimeoutError if leaders[number % 6] == 3 else None
                assert type(outcome) is expected if expected else not isinstance(outcome, BaseException), outcome
            cluster.proxy.allow_connections(3)
            after = [Told(partition, 100 + partition) for partition in range(6)]
            told += after
            await asyncio.gather(*(send_numbered(producer, kafka_name, record) for record in after))
        return told

    told = asyncio.run(scenario())
    findings = judge(told, read_log(cluster.bootstrap_servers, kafka_name, cluster.end_offsets(kafka_name)))
    assert not findings, findings


@pytest.mark.slow
def test_connections_that_are_reset_all_the_time_lose_nothing(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: N15, N19
    cluster.create_topic(kafka_name, partitions=6)
    before = cluster.proxy.connections()
    lasts_s = scaled(6, 600)

    def reset() -> None:
        draw = random.Random(9)
        until = time.monotonic() + lasts_s
        while time.monotonic() < until:
            time.sleep(draw.uniform(0.2, 1.0))
            cluster.proxy.close_connections(abort=True)

    findings, told, metrics = under_load(cluster, kafka_name, reset)
    assert not findings, findings
    assert all_delivered(told)
    assert metrics["connections_lost"] > 5
    assert cluster.proxy.connections() - before < 3 * 2 * 5 * (lasts_s + 20), "at most five dials a second and broker"


@pytest.mark.slow
def test_a_connection_that_goes_silent_is_found_at_the_request_timeout(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: N7
    def silence() -> None:
        for before_serving in (True, False):
            rule = cluster.proxy.blackhole_next("Produce", before_serving=before_serving)
            rule.wait_hit()
            time.sleep(scaled(2, 30))

    findings, told, metrics = under_load(cluster, kafka_name, silence, request_timeout_ms=1_000)
    assert not findings, findings
    assert all_delivered(told)
    assert metrics["connections_lost"] >= 2


@pytest.mark.slow
def test_a_cluster_out_of_reach_is_logged_in_moderation(
    cluster: KafkaCluster, kafka_name: str, caplog: pytest.LogCaptureFixture
) -> None:  # faults: N16
    lasts_s = scaled(5, 600)

    def refuse() -> None:
        for node in cluster.brokers:
            cluster.proxy.refuse_connections(node)
        cluster.proxy.close_connections()
        time.sleep(lasts_s)
        for node in cluster.brokers:
            cluster.proxy.allow_connections(node)

    with caplog.at_level(logging.INFO, logger="aiokprod"):
        findings, told, _ = under_load(cluster, kafka_name, refuse, rate=100, delivery_timeout_ms=900_000)
    assert not findings, findings
    assert all_delivered(told)
    assert 0 < len(caplog.records) < 60 + 3 * lasts_s


# ---------------------------------------------------------------------- topics
def test_sends_to_a_topic_that_is_made_later_arrive_in_order(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: T1
    async def scenario() -> list[int | None]:
        async with Producer(cluster.bootstrap_servers) as producer:
            deliveries = [producer.send(kafka_name, b"%d" % number, partition=0) for number in range(100)]
            await asyncio.sleep(scaled(1, 5))
            await asyncio.to_thread(cluster.create_topic, kafka_name)
            return [metadata.offset for metadata in await asyncio.gather(*deliveries)]

    assert asyncio.run(scenario()) == list(range(100))
    assert [n for _, n in read_log(cluster.bootstrap_servers, kafka_name, [100])[0]] == list(range(100))


def test_a_topic_that_never_comes_fails_at_max_block_and_frees_its_bytes(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: T2
    async def scenario() -> None:
        async with Producer(cluster.bootstrap_servers, max_block_ms=1_500) as producer:
            before = cluster.proxy.requests_seen("Metadata")
            outcomes = await asyncio.gather(
                *(producer.send(kafka_name, b"v") for _ in range(1_000)), return_exceptions=True
            )
            assert {type(outcome) for outcome in outcomes} == {UnknownTopicError}
            assert "UNKNOWN_TOPIC_OR_PARTITION" in str(outcomes[0])
            assert producer.health().buffered_bytes == 0
            assert cluster.proxy.requests_seen("Metadata") - before <= 20

    asyncio.run(scenario())


@pytest.mark.slow
def test_records_without_a_key_go_to_partitions_that_have_a_leader(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: T20
    # Brokers before 3.7 want two replicas in sync of a partition that has only one.
    cluster.create_topic(kafka_name, partitions=6, replication_factor=1, config={"min.insync.replicas": "1"})
    leaders = cluster.leaders(kafka_name)
    down = leaders[0]

    async def scenario() -> set[int]:
        async with Producer(cluster.bootstrap_servers, metadata_max_age_ms=500, batch_size=2_000) as producer:
            await producer.send(kafka_name, b"0")
            await asyncio.to_thread(cluster.broker(down).kill)
            while 0 in await asyncio.to_thread(_led, cluster, kafka_name):
                await asyncio.sleep(0.1)
            known = (
                producer.metrics()["metadata_refreshes"] + 4
            )  # the broker that is asked may be the last to hear of it
            while producer.metrics()["metadata_refreshes"] < known:
                await asyncio.sleep(0.1)
            sent = await asyncio.gather(*(producer.send(kafka_name, b"x" * 100) for _ in range(500)))
            return {metadata.partition for metadata in sent}

    used = asyncio.run(scenario())
    assert used
    assert used <= {partition for partition, leader in enumerate(leaders) if leader != down}


def _led(cluster: KafkaCluster, topic: str) -> set[int]:
    return {partition for partition, leader in enumerate(cluster.leaders(topic)) if leader >= 0}


# ---------------------------------------------------------------------- asyncio
@pytest.mark.slow
def test_sends_that_nothing_waits_for_any_more_leave_no_trace_while_a_broker_dies(
    cluster: KafkaCluster, kafka_name: str
) -> None:  # faults: L6
    cluster.create_topic(kafka_name, partitions=6)

    async def scenario() -> list[Told]:
        told: list[Told] = []
        async with Producer(cluster.bootstrap_servers, request_timeout_ms=4_000) as producer:

            async def impatient(number: int) -> None:
                record = Told(number % 6, number)
                told.append(record)
                delivery = send_numbered(producer, kafka_name, record)
                try:
                    async with asyncio.timeout(0.01):
                        await delivery
                except TimeoutError:
                    pass
                except AiokprodError as error:
                    raise AssertionError("nothing fails here") from error

            killing = asyncio.create_task(asyncio.to_thread(_kill_and_restart, cluster))
            for start in range(0, int(scaled(5_000, 100_000)), 100):
                await asyncio.gather(*(impatient(number) for number in range(start, start + 100)))
            await killing
            await producer.flush()
            assert producer.health().buffered_bytes == 0
        return told

    told = asyncio.run(scenario())
    cluster.wait_all_in_sync(kafka_name)
    findings = judge(told, read_log(cluster.bootstrap_servers, kafka_name, cluster.end_offsets(kafka_name)))
    assert not findings, findings
    assert all_delivered(told)


def _kill_and_restart(cluster: KafkaCluster) -> None:
    cluster.broker(2).kill()
    time.sleep(1.0)
    cluster.broker(2).start()
