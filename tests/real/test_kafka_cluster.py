"""A real cluster of three brokers under our hands: what a fault test may rely on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from child_process import Child
from confluent_kafka import Consumer, Producer, TopicPartition

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster import BrokerState, KafkaAdminError, KafkaClusterError
from aiokprod.testing.kafka_cluster.processes import ProcessBroker
from aiokprod.testing.kafka_cluster.spec import version_tuple

pytest_plugins = ["pytester"]
# Of the testing kit; the producer's own tests on real brokers are in every run.
pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(kafka_version: str) -> Iterator[KafkaCluster]:
    with KafkaCluster(brokers=3, version=kafka_version, backend="processes") as started:
        yield started


def eventually(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.1)


def produce(cluster: KafkaCluster, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    failures: list[object] = []
    for value in values:
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert failures == []


def consume(cluster: KafkaCluster, topic: str, count: int, partition: int = 0) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "test"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values = [message.value() for message in consumer.consume(count, timeout=30)]
    consumer.close()
    return values


def test_a_client_of_another_make_writes_and_reads(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=2)
    produce(cluster, kafka_name, [b"1", b"2", b"3"], partition=1)
    assert consume(cluster, kafka_name, 3, partition=1) == [b"1", b"2", b"3"]
    assert cluster.end_offsets(kafka_name) == [0, 3]


def test_topics_are_created_grown_altered_and_deleted(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=2, config={"retention.ms": "60000"})
    partitions = cluster.admin.topic(kafka_name)
    assert partitions is not None
    assert [len(each.replicas) for each in partitions] == [3, 3]
    cluster.alter_topic(kafka_name, {"retention.ms": "70000", "max.message.bytes": "1000"})
    with pytest.raises(AssertionError):
        produce(cluster, kafka_name, [b"x" * 2000])
    cluster.alter_topic(kafka_name, {"max.message.bytes": None})
    produce(cluster, kafka_name, [b"x" * 2000])
    cluster.add_partitions(kafka_name, 4)
    assert len(cluster.leaders(kafka_name)) == 4
    cluster.delete_topic(kafka_name)
    assert cluster.admin.topic(kafka_name) is None
    with pytest.raises(KafkaClusterError, match="no topic"):
        cluster.leaders(kafka_name)


def test_the_cluster_knows_its_id_and_every_broker_its_place(cluster: KafkaCluster) -> None:
    assert len(cluster.cluster_id) == 22
    assert [broker.node_id for broker in cluster.brokers.values()] == [1, 2, 3]
    assert cluster.bootstrap_servers == ",".join(f"127.0.0.1:{each.port}" for each in cluster.brokers.values())


def test_a_refusal_names_the_request_and_the_code(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name)
    with pytest.raises(KafkaAdminError, match=f"CreateTopics {kafka_name}: TOPIC_ALREADY_EXISTS"):
        cluster.create_topic(kafka_name)
    with pytest.raises(KafkaAdminError, match=r"INVALID_(CONFIG|REQUEST)"):  # the latter with ZooKeeper
        cluster.alter_topic(kafka_name, {"retention.ms": "soon"})
    with pytest.raises(KafkaAdminError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.delete_topic(kafka_name + "-not")


def test_a_leader_is_moved_among_replicas_and_to_a_new_one(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=2)
    for node in (1, 2, 3):
        cluster.move_leader(kafka_name, 1, node)
        assert cluster.leaders(kafka_name)[1] == node
    single = kafka_name + "-single"
    cluster.create_topic(single, replication_factor=1, config={"min.insync.replicas": "1"})
    produce(cluster, single, [b"before"])
    goal = cluster.leaders(single)[0] % 3 + 1
    cluster.move_leader(single, 0, goal)
    assert cluster.leaders(single) == [goal]
    assert consume(cluster, single, 1) == [b"before"]


def test_a_killed_broker_loses_its_leaders_and_comes_back_with_its_data(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=3)
    broker = cluster.broker(cluster.leaders(kafka_name)[0])
    produce(cluster, kafka_name, [b"before"])
    broker.kill()
    assert broker.state is BrokerState.STOPPED
    assert not broker.is_running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port)).close()
    eventually(lambda: broker.node_id not in cluster.leaders(kafka_name))
    produce(cluster, kafka_name, [b"meanwhile"])
    broker.start()
    assert broker.is_running
    cluster.wait_all_in_sync(kafka_name)
    cluster.move_leader(kafka_name, 0, broker.node_id)
    assert consume(cluster, kafka_name, 2) == [b"before", b"meanwhile"]


def test_the_active_controller_is_the_one_whose_end_makes_the_others_elect(
    cluster: KafkaCluster, kafka_version: str
) -> None:
    if version_tuple(kafka_version) < (3, 0):
        with pytest.raises(KafkaClusterError, match="only with KRaft"):
            cluster.active_controller()
        return
    first = cluster.active_controller()
    assert cluster.active_controller() == first
    cluster.broker(first).kill()
    second = cluster.active_controller()
    assert second != first
    cluster.broker(first).start()
    assert cluster.active_controller() == second, "a controller that comes back does not take it back"


def test_a_quota_slows_a_client_and_is_taken_off(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, config={"retention.ms": "3600000"})

    def seconds(client_id: str) -> float:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id, "linger.ms": 0})
        began = time.monotonic()
        for _ in range(14):
            producer.produce(kafka_name, b"x" * 50_000)
            assert producer.flush(60) == 0
        return time.monotonic() - began

    cluster.admin.alter_client_quota("slow", {"producer_byte_rate": 50_000.0})
    free_s = seconds("another")
    assert seconds("slow") > 2.0, "700 kB where 500 kB in ten seconds are granted"
    cluster.admin.alter_client_quota("slow", {"producer_byte_rate": None})
    eventually(lambda: seconds("slow") < 2.0 + free_s)


def test_a_paused_broker_keeps_its_sockets_and_answers_nothing(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=3)
    broker = cluster.broker(2)
    broker.pause()
    try:
        assert broker.state is BrokerState.PAUSED
        with socket.create_connection((broker.host, broker.port), timeout=0.3) as frozen:
            frozen.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")  # ApiVersions
            with pytest.raises(TimeoutError):
                frozen.recv(1)
        with pytest.raises(KafkaClusterError, match="paused"):
            broker.start()
        eventually(lambda: 2 not in cluster.leaders(kafka_name))
    finally:
        broker.resume()
    cluster.wait_ready()
    cluster.wait_all_in_sync(kafka_name)
    assert broker.is_running


def test_a_broker_stops_in_order_also_when_paused(cluster: KafkaCluster, kafka_version: str, kafka_name: str) -> None:
    cluster.create_topic(kafka_name, partitions=3)
    broker = cluster.broker(3)
    broker.pause()
    broker.stop()
    with_zookeeper = version_tuple(kafka_version) < (3, 0)
    last_words = "shut down completed" if with_zookeeper else "Transition from SHUTTING_DOWN to SHUTDOWN"
    assert last_words in broker.log_tail(200)
    with pytest.raises(KafkaClusterError, match="not running"):
        broker.pause()
    broker.restart()
    cluster.wait_all_in_sync(kafka_name)


def test_a_whole_cluster_can_be_killed_and_brought_back(cluster: KafkaCluster, kafka_name: str) -> None:
    cluster.create_topic(kafka_name)
    produce(cluster, kafka_name, [b"kept"])
    for broker in cluster.brokers.values():
        broker.kill()
    for broker in cluster.brokers.values():
        broker.start(wait=False)
    cluster.wait_ready()
    cluster.wait_all_in_sync(kafka_name)
    assert consume(cluster, kafka_name, 1) == [b"kept"]


def test_the_plugin_gives_each_test_a_topic_of_its_own_and_deletes_it(
    cluster: KafkaCluster, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKPROD_TEST_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile("def test_1(kafka_topic): print('=', kafka_topic)\ntest_2 = test_1")
    result = pytester.runpytest_subprocess("-p", "aiokprod.testing.plugin", "-s", "-W", "error")
    result.assert_outcomes(passed=2)
    names = [line.partition("= ")[2].rstrip(".") for line in result.outlines if "= test-" in line]
    assert len(set(names)) == 2
    assert [cluster.admin.topic(name) for name in names] == [None, None]


def test_stopping_leaves_neither_process_nor_file_and_the_cluster_can_start_again() -> None:
    cluster = KafkaCluster(brokers=1)
    for _ in range(2):
        with cluster:
            broker = cluster.broker(1)
            assert isinstance(broker, ProcessBroker)
            pid, directory = broker.pid, broker.process.log_file.parent.parent
            assert pid is not None
            assert directory.exists()
        assert not directory.exists()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with pytest.raises(KafkaClusterError, match="not started"):
        cluster.broker(1)


def test_a_taken_port_is_named_before_the_broker_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(KafkaClusterError, match=rf"broker 1: another program listens on port {port} \(PLAINTEXT\)"):
            KafkaCluster(brokers=1, ports=[port]).start()


def test_a_broker_that_cannot_start_shows_what_its_log_complains_of() -> None:
    with KafkaCluster(brokers=1, backend="processes") as cluster:
        broker = cluster.broker(1)
        assert isinstance(broker, ProcessBroker)
        broker.stop()
        (broker.process.log_file.parent / "data" / "meta.properties").write_text("version=no number\n")
        with pytest.raises(KafkaClusterError, match=r"(?s)broker 1 ended while starting.*meta\.properties"):
            broker.start()


def test_each_jvm_gets_the_options_that_are_given_and_the_quick_compiler_where_none_are() -> None:
    def command_line(**arguments: Any) -> str:
        with KafkaCluster(brokers=1, backend="processes", **arguments) as cluster:
            broker = cluster.broker(1)
            assert isinstance(broker, ProcessBroker) and broker.process.pid is not None
            shown = ["ps", "-ww", "-p", str(broker.process.pid), "-o", "args="]
            return subprocess.run(shown, capture_output=True, text=True, check=True).stdout

    assert "-XX:TieredStopAtLevel=1" in command_line()
    given = command_line(java_options=["-Dmine=here"])
    assert "-Dmine=here" in given and "TieredStopAtLevel" not in given


def test_a_setting_that_kafka_refuses_is_named() -> None:
    with pytest.raises(KafkaClusterError, match=r"(?s)formatting.*Invalid value many for .*log\.retention\.bytes"):
        KafkaCluster(brokers=1, config={"log.retention.bytes": "many"}).start()


def test_brokers_end_when_the_process_that_started_them_is_killed() -> None:
    program = (
        "import sys, time\n"
        "from aiokprod.testing import KafkaCluster\n"
        "cluster = KafkaCluster(brokers=1); cluster.start()\n"
        "print(cluster.broker(1).pid, cluster.broker(1).process.log_file, flush=True)\n"
        "time.sleep(60)\n"
    )
    with Child([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid, log_file = starter.stdout.readline().split()
    eventually(lambda: not Path(f"/proc/{pid}").exists() and not Path(log_file).parent.parent.exists())
