"""server.properties: what a node is told, and how it is written down."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiokprod.testing.kafka_cluster.properties import (
    common_properties,
    process_properties,
    protocol_map,
    to_environment,
    to_text,
)
from aiokprod.testing.kafka_cluster.spec import ClusterSpec, NodeSpec, version_tuple

NODES = tuple(
    NodeSpec(
        node_id=node_id,
        bound={"CONTROLLER": 100 + node_id, "INTERNAL": 200 + node_id, "PLAINTEXT": 300 + node_id},
        advertised={"CONTROLLER": 100 + node_id, "INTERNAL": 200 + node_id, "PLAINTEXT": 400 + node_id},
    )
    for node_id in (1, 2, 3)
)
SPEC = ClusterSpec(version="4.3.1", cluster_id="id", nodes=NODES)


def test_a_node_listens_on_its_own_ports_and_advertises_the_proxy_to_clients_only() -> None:
    properties = process_properties(SPEC, NODES[1], "/data")
    assert properties["listeners"] == ("CONTROLLER://127.0.0.1:102,INTERNAL://127.0.0.1:202,PLAINTEXT://127.0.0.1:302")
    assert properties["advertised.listeners"] == "INTERNAL://127.0.0.1:202,PLAINTEXT://127.0.0.1:402"
    assert properties["inter.broker.listener.name"] == "INTERNAL"


def test_all_three_nodes_are_voters() -> None:
    properties = process_properties(SPEC, NODES[0], "/data")
    assert properties["controller.quorum.voters"] == "1@127.0.0.1:101,2@127.0.0.1:102,3@127.0.0.1:103"
    assert properties["process.roles"] == "broker,controller"


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2")])
def test_a_cluster_replicates_as_far_as_it_goes_and_one_broker_may_be_down(
    nodes: int, replicas: str, in_sync: str
) -> None:
    properties = common_properties(replace(SPEC, nodes=NODES[:nodes]))
    assert properties["default.replication.factor"] == replicas
    assert properties["min.insync.replicas"] == in_sync
    assert properties["transaction.state.log.min.isr"] == in_sync


def test_the_users_own_settings_come_last() -> None:
    spec = replace(SPEC, config={"auto.create.topics.enable": "true", "inter.broker.listener.name": "PLAINTEXT"})
    properties = process_properties(spec, NODES[0], "/data")
    assert properties["auto.create.topics.enable"] == "true"
    assert properties["inter.broker.listener.name"] == "PLAINTEXT"


def test_an_old_broker_has_zookeeper_and_no_controller_listener() -> None:
    spec = replace(SPEC, version="2.8.2", zookeeper_port=2181)
    properties = process_properties(spec, NODES[0], "/data")
    assert properties["zookeeper.connect"] == "127.0.0.1:2181"
    assert properties["broker.id"] == "1"
    assert "CONTROLLER" not in properties["listeners"] + protocol_map(spec)
    assert not [name for name in properties if name.startswith(("controller.quorum", "process.", "node.", "share."))]


@pytest.mark.parametrize(("version", "has_share_groups"), [("3.9.1", False), ("4.0.0", True)])
def test_settings_come_only_to_versions_that_know_them(version: str, has_share_groups: bool) -> None:
    properties = common_properties(replace(SPEC, version=version))
    assert any(name.startswith("share.") for name in properties) is has_share_groups


def test_listeners_of_clients_are_called_after_their_protocol() -> None:
    spec = replace(SPEC, listeners=("SASL_SSL", "PLAINTEXT"))
    assert protocol_map(spec) == ("CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT")


def test_a_properties_file_is_ascii_and_a_value_stays_on_its_line() -> None:
    assert to_text({"a": "b\\c\nd", "e": "é😀"}) == "a=b\\\\c\\nd\ne=\\u00e9\\ud83d\\ude00\n"


def test_environment_names_follow_the_contract_of_the_image() -> None:
    assert to_environment({"a.b_c-d": "1", "node.id": "2"}) == {"KAFKA_A_B__C___D": "1", "KAFKA_NODE_ID": "2"}


@pytest.mark.parametrize(("version", "expected"), [("4.3.1", (4, 3)), ("2.8.2", (2, 8)), ("3.10.0", (3, 10))])
def test_versions_are_compared_as_numbers(version: str, expected: tuple[int, int]) -> None:
    assert version_tuple(version) == expected
