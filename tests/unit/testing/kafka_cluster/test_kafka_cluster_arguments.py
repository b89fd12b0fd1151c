"""`KafkaCluster` before it starts: contradictions are named at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster import KafkaClusterError


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"brokers": 0}, "at least one"),
        ({"listeners": ["TLS"]}, r"unknown listeners \['TLS'\]: choose from PLAINTEXT, SSL"),
        ({"listeners": []}, "at least one, each once"),
        ({"listeners": ["SSL", "SSL"]}, "at least one, each once"),
        ({"brokers": 3, "ports": [1, 2]}, "2 ports for 3 brokers"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KafkaCluster(**arguments)  # type: ignore[arg-type]


def test_a_cluster_that_is_not_started_says_so() -> None:
    cluster = KafkaCluster()
    assert repr(cluster) == "<KafkaCluster 4.3.1 not started>"
    cluster.stop()  # nothing to stop
    for use in (
        lambda: cluster.bootstrap_servers,
        lambda: cluster.broker(1),
        lambda: cluster.cluster_id,
        lambda: cluster.tls,
    ):
        with pytest.raises(KafkaClusterError, match="not started"):
            use()
    with pytest.raises(KafkaClusterError, match="proxied=True"):
        cluster.proxy


def test_processes_without_java_say_what_to_install_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    cluster = KafkaCluster(backend="processes", proxied=True)
    with pytest.raises(KafkaClusterError, match="install a Java runtime"):
        cluster.start()
    with pytest.raises(KafkaClusterError, match="not started"):
        cluster.broker(1)


def test_containers_cannot_have_tls_or_zookeeper() -> None:
    with pytest.raises(KafkaClusterError, match="processes"):
        KafkaCluster(backend="containers", listeners=["SASL_PLAINTEXT"]).start()
    with pytest.raises(KafkaClusterError, match=r"Kafka 2\.8\.2 needs ZooKeeper"):
        KafkaCluster(backend="containers", version="2.8.2").start()
