"""`KafkaCluster(proxied=True)`: clients reach real brokers through the fault proxy, brokers each other past it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

import aiokprod
from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster.spec import version_tuple
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.metadata import MetadataResponse

# Of the testing kit; the producer's own tests on real brokers are in every run.
pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, version=kafka_version, proxied=True) as started:
        yield started


@pytest.fixture(autouse=True)
def calm(cluster: KafkaCluster) -> Iterator[None]:
    yield
    cluster.proxy.clear_faults()


def produce(cluster: KafkaCluster, topic: str, *, idempotent: bool) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": idempotent})
    producer.produce(topic, b"value", partition=0)
    assert producer.flush(30) == 0


def test_clients_go_through_the_proxy_and_brokers_past_it(cluster: KafkaCluster, kafka_name: str) -> None:
    before = cluster.proxy.requests_seen("Produce")
    cluster.create_topic(kafka_name)
    produce(cluster, kafka_name, idempotent=True)
    assert cluster.proxy.requests_seen("Produce", broker=cluster.leaders(kafka_name)[0]) >= 1
    assert cluster.proxy.requests_seen("Produce") == before + 1
    assert cluster.proxy.requests_seen("Fetch") == 0  # followers fetch past it
    assert cluster.bootstrap_servers == cluster.proxy.bootstrap_servers


@pytest.mark.parametrize(("idempotent", "copies"), [(True, 1), (False, 2)])
def test_a_lost_acknowledgement_makes_a_copy_only_without_idempotence(
    cluster: KafkaCluster, kafka_name: str, idempotent: bool, copies: int
) -> None:
    cluster.create_topic(kafka_name)
    lost = cluster.proxy.drop_answer("Produce")
    produce(cluster, kafka_name, idempotent=idempotent)
    assert lost.hits == 1
    assert cluster.end_offsets(kafka_name) == [copies]


def test_a_request_cut_on_its_way_makes_no_copy(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name)
    cut = cluster.proxy.drop_answer("Produce", after_append=False)
    produce(cluster, kafka_name, idempotent=False)
    assert cut.hits == 1
    assert cluster.end_offsets(kafka_name) == [1]


def test_an_answer_can_be_changed_in_its_own_version(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name)

    def not_yet(answer: object, version: int) -> object:
        assert isinstance(answer, MetadataResponse)
        for topic in answer.topics:
            topic.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        return answer

    changed = cluster.proxy.rewrite_answer("Metadata", not_yet)
    produce(cluster, kafka_name, idempotent=True)
    assert changed.hits == 1
    assert cluster.end_offsets(kafka_name) == [1]


def test_one_partition_fails_before_or_after_its_append_or_is_left_out(
    cluster: KafkaCluster, kafka_version: str, kafka_name: str
) -> None:
    cluster.create_topic(kafka_name, partitions=4)
    proxy = cluster.proxy
    before = proxy.fail_next("Produce", "NOT_ENOUGH_REPLICAS", topic=kafka_name, partition=0)
    after = proxy.fail_next("Produce", "REQUEST_TIMED_OUT", topic=kafka_name, partition=1, after_append=True)
    left_out = proxy.omit_partition("Produce", kafka_name, 2, after_append=False)
    throttled = proxy.throttle_next("Produce", 300, topic=kafka_name, partition=3)

    async def scenario() -> list[tuple[int | None, int | None]]:
        async with aiokprod.Producer(cluster.bootstrap_servers, request_timeout_ms=2_000) as producer:
            deliveries = [producer.send(kafka_name, b"value", partition=partition) for partition in range(4)]
            return [((await delivery).offset, delivery.attempts) for delivery in deliveries]

    told = asyncio.run(scenario())
    assert [offset for offset, _ in told] == [0, 0, 0, 0]
    assert [attempts for _, attempts in told[:3]] == [2, 2, 2]
    assert [rule.hits for rule in (before, after, left_out, throttled)] == [1, 1, 1, 1]
    assert cluster.end_offsets(kafka_name) == [1, 1, 1, 1]
    by_id = any(frame.version >= 13 for frame in proxy.frames("Produce"))
    assert by_id == (version_tuple(kafka_version) >= (4, 0)), "how topics are named in Produce"


def test_a_proxied_broker_comes_back_behind_the_same_address(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name)
    broker = cluster.broker(cluster.leaders(kafka_name)[0])
    broker.restart()
    cluster.wait_all_in_sync(kafka_name)
    cluster.move_leader(kafka_name, 0, broker.node_id)
    produce(cluster, kafka_name, idempotent=True)
    assert cluster.end_offsets(kafka_name) == [1]
