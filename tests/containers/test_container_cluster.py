"""Three brokers in containers: small and functional. The image comes from `AIOKPROD_KAFKA_IMAGE`."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster import BrokerState, KafkaClusterError
from aiokprod.testing.kafka_cluster.containers import ContainerBroker

pytestmark = pytest.mark.containers


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, backend="containers", proxied=True, config={"log.retention.hours": "1"}) as started:
        yield started


def eventually(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.1)


def produce(cluster: KafkaCluster, topic: str, value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failures == []


@pytest.mark.slow
def test_a_client_of_another_make_writes_and_reads(cluster: KafkaCluster) -> None:
    cluster.create_topic("first", partitions=2)
    produce(cluster, "first", b"value")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "test"})
    consumer.assign([TopicPartition("first", 0, 0)])
    assert [message.value() for message in consumer.consume(1, timeout=30)] == [b"value"]
    consumer.close()
    cluster.delete_topic("first")


def test_a_lost_acknowledgement_makes_no_second_copy(cluster: KafkaCluster) -> None:
    cluster.create_topic("proxied")
    lost = cluster.proxy.drop_answer("Produce")
    produce(cluster, "proxied", b"value")
    assert lost.hits == 1
    assert cluster.end_offsets("proxied") == [1]


@pytest.mark.slow
def test_a_killed_broker_loses_its_leaders_and_comes_back(cluster: KafkaCluster) -> None:
    cluster.create_topic("killed", partitions=3)
    broker = cluster.broker(cluster.leaders("killed")[0])
    produce(cluster, "killed", b"before")
    broker.kill()
    assert broker.state is BrokerState.STOPPED
    with pytest.raises(KafkaClusterError, match="not running"):
        broker.pause()
    eventually(lambda: broker.node_id not in cluster.leaders("killed"))
    produce(cluster, "killed", b"meanwhile")
    broker.start()
    cluster.wait_all_in_sync("killed")
    cluster.move_leader("killed", 0, broker.node_id)
    assert cluster.end_offsets("killed")[0] == 2


def test_a_paused_broker_goes_on_where_it_was(cluster: KafkaCluster) -> None:
    broker = cluster.broker(2)
    broker.pause()
    assert broker.state is BrokerState.PAUSED
    broker.pause()
    with pytest.raises(KafkaClusterError, match="resume"):
        broker.start()
    broker.resume()
    assert broker.is_running
    cluster.wait_ready()


@pytest.mark.slow
def test_a_broker_restarts_in_order_on_the_same_port(cluster: KafkaCluster) -> None:
    broker = cluster.broker(3)
    port = broker.port
    broker.restart()
    assert broker.port == port
    assert "Transition from SHUTTING_DOWN to SHUTDOWN" in broker.log_tail(5000)


def test_brokers_are_published_on_this_host_only(cluster: KafkaCluster) -> None:
    for broker in cluster.brokers.values():
        assert isinstance(broker, ContainerBroker)
        published = [each for each in broker.container.ports.values() if each]
        assert [[address["HostIp"] for address in each] for each in published] == [["127.0.0.1"]]
        with socket.create_connection((broker.host, broker.port), timeout=5):
            pass


def test_listeners_with_tls_are_refused_by_name() -> None:
    with pytest.raises(KafkaClusterError, match="processes"):
        KafkaCluster(brokers=1, backend="containers", listeners=["SASL_PLAINTEXT"]).start()


def test_an_image_that_cannot_be_had_is_named() -> None:
    with pytest.raises(KafkaClusterError, match=r"no container of aiokprod\.invalid/none:0 could be started"):
        KafkaCluster(brokers=1, backend="containers", image="aiokprod.invalid/none:0").start()
