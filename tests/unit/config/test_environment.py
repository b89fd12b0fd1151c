"""Options from variables, among all that Kubernetes and broker images put there."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokprod.config import ProducerConfig
from aiokprod.config.environment import NOT_TEXTS, SERVICE_LINK, read_environment
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
OUR_SERVICE_LINKS = {
    "AIOKPROD_SERVICE_HOST": "10.0.0.1",
    "AIOKPROD_SERVICE_PORT": "9092",
    "AIOKPROD_SERVICE_PORT_KAFKA": "9092",
    "AIOKPROD_PORT": "tcp://10.0.0.1:9092",
    "AIOKPROD_PORT_9092_TCP": "tcp://10.0.0.1:9092",
    "AIOKPROD_PORT_9092_TCP_PROTO": "tcp",
    "AIOKPROD_PORT_9092_TCP_PORT": "9092",
    "AIOKPROD_PORT_9092_TCP_ADDR": "10.0.0.1",
    "AIOKPROD_PORT_53_UDP_ADDR": "10.0.0.1",
    "AIOKPROD_MY_APP_SERVICE_HOST": "10.0.0.1",
    "AIOKPROD_MY_APP_PORT": "tcp://10.0.0.1:80",
    "AIOKPROD_MY_APP_PORT_80_TCP_ADDR": "10.0.0.1",
}
BASE = {"AIOKPROD_BOOTSTRAP_SERVERS": "ours:9092"}


def test_service_links_and_image_settings_mean_nothing() -> None:
    noisy = ProducerConfig.from_env({**SERVICE_LINKS, **OUR_SERVICE_LINKS, **BROKER_IMAGE, **BASE})
    assert noisy.bootstrap_addresses == (("ours", 9092),)
    assert noisy == ProducerConfig.from_env(BASE)


def test_no_option_looks_like_a_service_link() -> None:
    assert [name for name in ProducerConfig.names() if SERVICE_LINK.fullmatch(f"AIOKPROD_{name.upper()}")] == []


@pytest.mark.parametrize("variable", ["AIOKPROD_PORTS", "AIOKPROD_SERVICE", "AIOKPROD_HOST", "AIOKPROD_PORT_X_TCP"])
def test_what_only_begins_like_a_service_link_is_an_unknown_option(variable: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        ProducerConfig.from_env({**BASE, variable: "x"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("on", True), ("yes", True), ("1", True), ("true", True), ("True", True), (" TRUE ", True),
     ("off", False), ("no", False), ("0", False), ("false", False), ("OFF", False)],
)  # fmt: skip
def test_booleans_are_read_as_people_write_them(text: str, value: bool) -> None:
    config = ProducerConfig.from_env({**BASE, "AIOKPROD_PARTITIONER_IGNORE_KEYS": text})
    assert config.partitioner_ignore_keys is value


@pytest.mark.parametrize("text", ["maybe", "2", "y", "enabled"])
def test_what_is_no_boolean_names_the_variable_and_what_is_one(text: str) -> None:
    with pytest.raises(ConfigError, match=r"AIOKPROD_PARTITIONER_IGNORE_KEYS is .*true, yes, on, 1, false"):
        ProducerConfig.from_env({**BASE, "AIOKPROD_PARTITIONER_IGNORE_KEYS": text})


def test_an_empty_variable_is_as_good_as_none() -> None:
    empty = {"AIOKPROD_LINGER_MS": "", "KAFKA_CLIENT_ID": "", "AIOKPROD_SSL_CAFILE": "", "AIOKPROD_NONSENSE": ""}
    assert ProducerConfig.from_env({**BASE, **empty}) == ProducerConfig.from_env(BASE)


@pytest.mark.parametrize("secret", ["SASL_PASSWORD", "SSL_KEY_PASSWORD", "SSL_KEY_PEM"])
def test_a_secret_and_its_file_are_not_both_set(secret: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("canary")
    both = {f"AIOKPROD_{secret}": "canary", f"AIOKPROD_{secret}_FILE": str(file)}
    for variables in (both, dict(reversed(both.items()))):
        with pytest.raises(ConfigError, match="both set") as raised:
            ProducerConfig.from_env({**BASE, **variables})
        assert f"AIOKPROD_{secret} " in f"{raised.value} "
        assert f"AIOKPROD_{secret}_FILE" in str(raised.value)
        assert "canary" not in str(raised.value)


@pytest.mark.parametrize("option", sorted(NOT_TEXTS))
def test_an_object_cannot_be_said_by_a_text(option: str) -> None:
    with pytest.raises(ConfigError, match=f"AIOKPROD_{option.upper()}.*pass it as an argument"):
        ProducerConfig.from_env({**BASE, f"AIOKPROD_{option.upper()}": "x"})


def test_a_wrong_value_names_the_variable() -> None:
    for variables, named in (
        ({"AIOKPROD_LINGER_MS": "inf"}, "AIOKPROD_LINGER_MS"),
        ({"AIOKPROD_RETRIES": "many"}, "AIOKPROD_RETRIES"),
        ({"KAFKA_SECURITY_PROTOCOL": "TLS"}, "KAFKA_SECURITY_PROTOCOL"),
        ({"AIOKPROD_BOOTSTRAP_SERVERS": "a:x"}, "AIOKPROD_BOOTSTRAP_SERVERS"),
    ):
        with pytest.raises(ConfigError, match=named):
            ProducerConfig.from_env({**BASE, **variables})


def test_an_argument_that_is_wrong_does_not_blame_the_variable_it_replaces() -> None:
    with pytest.raises(ConfigError) as raised:
        ProducerConfig.from_env({**BASE, "AIOKPROD_LINGER_MS": "5"}, linger_ms=-5)
    assert "AIOKPROD" not in str(raised.value)


def test_without_servers_the_variable_to_set_is_named() -> None:
    with pytest.raises(ConfigError, match="AIOKPROD_BOOTSTRAP_SERVERS is not set"):
        ProducerConfig.from_env({})
    assert ProducerConfig.from_env({}, bootstrap_servers="given:1").bootstrap_addresses == (("given", 1),)


def test_texts_become_the_options_types() -> None:
    config = ProducerConfig.from_env(
        {**BASE, "AIOKPROD_LINGER_MS": "7.5", "AIOKPROD_RETRIES": "3", "AIOKPROD_ALLOW_AUTO_CREATE_TOPICS": "false"}
    )
    assert (config.linger_ms, config.retries, config.allow_auto_create_topics) == (7.5, 3, False)


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


@pytest.mark.parametrize("given", ["HUSH", "HUSH\0", "/HUSH/" + "x" * 5000])
def test_a_secret_given_as_the_name_of_its_file_is_not_echoed(given: str) -> None:
    says = r"AIOKPROD_SASL_PASSWORD_FILE (names|does not name) .* may be the secret itself"
    with pytest.raises(ConfigError, match=says) as raised:
        ProducerConfig.from_env({**BASE, "AIOKPROD_SASL_PASSWORD_FILE": given})
    assert "HUSH" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe"])
def test_a_secret_file_without_a_text_is_an_error_that_names_the_variable(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match="AIOKPROD_SSL_KEY_PEM_FILE"):
        ProducerConfig.from_env({**BASE, "AIOKPROD_SSL_KEY_PEM_FILE": str(file)})


def test_a_secret_file_of_windows_ends_without_its_line_break_too(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b" canary \r\n")
    found, _ = read_environment({"AIOKPROD_SASL_PASSWORD_FILE": str(file)}, {"sasl_password": "str"})
    assert found == {"sasl_password": " canary "}


@pytest.mark.parametrize(
    "variable",
    [
        "AIOKPROD_PURE",
        "AIOKPROD_EXPECT_COMPILED",
        "AIOKPROD_TEST_SEEDS",
        "AIOKPROD_TEST_BOOTSTRAP_SERVERS",
        "AIOKPROD_KAFKA_IMAGE",
    ],
)
def test_what_builds_and_tests_are_told_is_no_option(variable: str) -> None:
    assert ProducerConfig.from_env({**BASE, variable: "x"}) == ProducerConfig.from_env(BASE)


def test_the_environment_may_choose_oauthbearer_for_a_program_that_has_the_provider() -> None:
    variables = {**BASE, "AIOKPROD_SECURITY_PROTOCOL": "SASL_SSL", "AIOKPROD_SASL_MECHANISM": "OAUTHBEARER"}
    config = ProducerConfig.from_env(variables, sasl_oauth_token_provider=lambda: "token")
    assert config.sasl_mechanism == "OAUTHBEARER"
    with pytest.raises(ConfigError, match="needs sasl_oauth_token_provider: set it to a function"):
        ProducerConfig.from_env(variables)
