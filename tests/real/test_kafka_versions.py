"""Older Kafka: 3.9 with KRaft, 2.8 with ZooKeeper; one broker each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kafka_versions import OLDER, ON_OLDER

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster import BrokerState

pytestmark = pytest.mark.real


@pytest.mark.slow
@pytest.mark.parametrize("version", OLDER)
def test_an_older_broker_starts_and_comes_back_after_a_kill(version: str) -> None:
    with KafkaCluster(brokers=1, version=version) as cluster:
        cluster.create_topic("orders", partitions=2, config={"retention.ms": "60000"})
        cluster.alter_topic("orders", {"retention.ms": None})
        cluster.add_partitions("orders", 3)
        assert cluster.leaders("orders") == [1, 1, 1]
        broker = cluster.broker(1)
        broker.kill()
        assert broker.state is BrokerState.STOPPED
        broker.start()
        cluster.wait_all_in_sync("orders")
        assert cluster.end_offsets("orders") == [0, 0, 0]
        cluster.delete_topic("orders")
        assert cluster.admin.topic("orders") is None


def test_each_test_that_is_to_run_on_older_brokers_is_there() -> None:
    here = Path(__file__).parent
    names = {name for file in here.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)}
    assert names >= ON_OLDER
