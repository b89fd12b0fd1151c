"""Ports and names of a cluster's nodes: what is bound, and what clients are told."""

from __future__ import annotations

from itertools import count

import pytest

from aiokprod.testing import KafkaCluster
from aiokprod.testing.kafka_cluster.layout import nodes_of
from aiokprod.testing.kafka_cluster.properties import process_properties
from aiokprod.testing.kafka_cluster.spec import ClusterSpec, NodeSpec

TWO = ("PLAINTEXT", "SASL_PLAINTEXT")


def nodes(
    *proxied: str, listeners: tuple[str, ...] = TWO, ports: tuple[int, ...] | None = None
) -> tuple[NodeSpec, ...]:
    numbers = count(1)
    return nodes_of(2, listeners, proxied=proxied, ports=ports, host="kafka.test", reserve=lambda: next(numbers))


def test_only_a_listener_with_a_proxy_is_advertised_elsewhere() -> None:
    for node in nodes():
        assert node.advertised == node.bound
    for node in nodes("SASL_PLAINTEXT"):
        assert {name for name in node.bound if node.bound[name] != node.advertised[name]} == {"SASL_PLAINTEXT"}
    both = nodes(*TWO)
    taken = [port for node in both for port in {*node.bound.values(), *node.advertised.values()}]
    assert len(set(taken)) == len(taken) == 2 * 6


@pytest.mark.parametrize("proxied", [(), ("PLAINTEXT",)])
def test_the_users_ports_are_those_that_clients_know(proxied: tuple[str, ...]) -> None:
    given = nodes(*proxied, ports=(901, 902))
    assert [node.advertised["PLAINTEXT"] for node in given] == [901, 902]
    assert ([node.bound["PLAINTEXT"] for node in given] == [901, 902]) == (not proxied)


def test_clients_are_told_the_name_and_brokers_the_address() -> None:
    made = nodes(listeners=("PLAINTEXT",))
    properties = process_properties(ClusterSpec(version="4.3.1", cluster_id="id", nodes=made), made[0], "/data")
    internal, plaintext = made[0].bound["INTERNAL"], made[0].bound["PLAINTEXT"]
    assert properties["advertised.listeners"] == f"INTERNAL://127.0.0.1:{internal},PLAINTEXT://kafka.test:{plaintext}"
    assert f"PLAINTEXT://127.0.0.1:{plaintext}" in properties["listeners"]


def test_a_proxy_before_a_listener_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\['SSL'\] are no listeners"):
        KafkaCluster(listeners=["PLAINTEXT"], proxied=["SSL"])
