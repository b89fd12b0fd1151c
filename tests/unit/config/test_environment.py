"""Options from variables, among all that Kubernetes and broker images put there."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokprod.config import ProducerConfig
from aiokprod.errors import ConfigError

SERVICE_LINKS = {
    "KAFKA_SERVICE_HOST": "10.0.0.1",
    "KAFKA_SERVICE_PORT": "9092",
    "KAFKA_SERVICE_PORT_CLIENT": "9092",
    "KAFKA_PORT": "tcp://10.0.0.1:9092",
    "KAFKA_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    "KAFKA_PORT_9092_TCP_PROTO": "tcp",
    "KAFKA_PORT_9092_TCP_PORT": "9092",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
}
BROKER_IMAGE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
    "KAFKA_OPTS": "",
    "CLUSTER_ID": "x",
}
BASE = {"AIOKPROD_BOOTSTRAP_SERVERS": "ours:9092"}


def test_service_links_and_image_settings_mean_nothing() -> None:
    noisy = ProducerConfig.from_env({**SERVICE_LINKS, **BROKER_IMAGE, **BASE})
    assert noisy.bootstrap_addresses == (("ours", 9092),)
    assert noisy.replace(client_id="x") == ProducerConfig.from_env(BASE).replace(client_id="x")


def test_texts_become_the_options_types() -> None:
    config = ProducerConfig.from_env(
        {**BASE, "AIOKPROD_LINGER_MS": "7.5", "AIOKPROD_RETRIES": "3", "AIOKPROD_ALLOW_AUTO_CREATE_TOPICS": "true"}
    )
    assert (config.linger_ms, config.retries, config.allow_auto_create_topics) == (7.5, 3, True)


def test_an_alias_counts_and_our_own_name_wins() -> None:
    assert ProducerConfig.from_env({"KAFKA_BOOTSTRAP_SERVERS": "alias:1"}).bootstrap_addresses == (("alias", 1),)
    assert ProducerConfig.from_env({"KAFKA_BOOTSTRAP_SERVERS": "alias:1", **BASE}).bootstrap_addresses == (
        ("ours", 9092),
    )


def test_arguments_win_over_the_environment() -> None:
    assert ProducerConfig.from_env({**BASE, "AIOKPROD_LINGER_MS": "7"}, linger_ms=1).linger_ms == 1


def test_an_unknown_name_with_our_prefix_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="AIOKPROD_LINGER_MS"):
        ProducerConfig.from_env({**BASE, "AIOKPROD_LINGR_MS": "5"})


def test_a_secret_is_read_from_a_file_without_its_last_line_break(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\n")
    config = ProducerConfig.from_env(
        {
            **BASE,
            "AIOKPROD_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "AIOKPROD_SASL_MECHANISM": "SCRAM-SHA-512",
            "AIOKPROD_SASL_USERNAME": "me",
            "AIOKPROD_SASL_PASSWORD_FILE": str(file),
        }
    )
    assert config.sasl_password is not None
    assert not isinstance(config.sasl_password, str)
    assert config.sasl_password.reveal() == "from a file"


def test_a_secret_file_that_is_missing_is_an_error_that_names_the_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="AIOKPROD_SASL_PASSWORD_FILE"):
        ProducerConfig.from_env({**BASE, "AIOKPROD_SASL_PASSWORD_FILE": str(tmp_path / "none")})
