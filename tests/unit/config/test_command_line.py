"""Options of a command: the command line overrides the file, which overrides the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokprod.config.command_line import (
    START_TIMEOUT_MS,
    config_of,
    config_of_settings,
    effective,
    given_options,
    our_name,
    problems_of,
    settings_of,
)
from aiokprod.errors import ConfigError

ENVIRON = {
    "AIOKPROD_BOOTSTRAP_SERVERS": "env:1",
    "AIOKPROD_LINGER_MS": "1",
    "KAFKA_CLIENT_ID": "env",
    "AIOKPROD_ACKS": "",
}


def test_a_command_waits_five_seconds_for_a_cluster_unless_it_is_told_otherwise() -> None:
    assert config_of(given_options("kafka:9092")).start_timeout_ms == START_TIMEOUT_MS == 5_000
    assert config_of(given_options("kafka:9092", None, ["start_timeout_ms=7000"])).start_timeout_ms == 7_000
    patient = {"AIOKPROD_START_TIMEOUT_MS": "8000"}
    assert config_of_settings(settings_of("kafka:9092", environ=patient)).start_timeout_ms == 8_000


def test_each_layer_overrides_those_below_it_in_any_spelling(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("queue.buffering.max.ms=2\nmetadata.broker.list=file:2\nbatch.size=1000\n")
    only_env = config_of_settings(settings_of(None, environ=ENVIRON))
    assert (only_env.bootstrap_servers, only_env.linger_ms, only_env.client_id) == ("env:1", 1, "env")
    with_file = config_of_settings(settings_of(None, file, environ=ENVIRON))
    assert (with_file.bootstrap_servers, with_file.linger_ms, with_file.batch_size) == ("file:2", 2, 1000)
    pairs = ["linger_ms=3", "linger.ms=4", "bootstrap.servers=pair:3"]
    with_pairs = config_of_settings(settings_of(None, file, pairs, ENVIRON))
    assert (with_pairs.bootstrap_servers, with_pairs.linger_ms, with_pairs.client_id) == ("pair:3", 4, "env")
    assert config_of_settings(settings_of("b:4", file, pairs, ENVIRON)).bootstrap_servers == "b:4"


def test_the_sources_are_known(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("linger.ms=2\n")
    settings = settings_of("b:4", file, ["linger.ms=3"], ENVIRON)
    assert [each.source for each in settings if each.option == "linger_ms"] == [
        "AIOKPROD_LINGER_MS", f"--config {file}", "-X",
    ]  # fmt: skip
    assert {each.option: each.source for each in effective(settings)} == {
        "linger_ms": "-X", "bootstrap_servers": "-b", "client_id": "KAFKA_CLIENT_ID",
    }  # fmt: skip


def test_a_password_of_a_jaas_text_stays_when_the_name_is_overridden(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="alice" password="the-password";\n'
    )
    settings = settings_of("kafka:9092", file, ["sasl.username=bob"], {})
    made = config_of_settings(settings)
    assert made.sasl_username == "bob"
    assert made.sasl_password is not None and not isinstance(made.sasl_password, str)
    assert made.sasl_password.reveal() == "the-password"
    assert "the-password" not in repr(settings)


def test_one_option_twice_in_a_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("linger.ms=2\nqueue.buffering.max.ms=3\n")
    with pytest.raises(ConfigError, match="the same option"):
        config_of_settings(settings_of("kafka:9092", file, (), {}))


def test_without_a_server_the_ways_to_name_one_are_told() -> None:
    with pytest.raises(
        ConfigError, match=r"add -b HOST:PORT, or set AIOKPROD_BOOTSTRAP_SERVERS, or bootstrap\.servers"
    ):
        config_of_settings(settings_of(None, environ={}))


@pytest.mark.parametrize("pair", ["secret-of-mine", "=secret-of-mine"])
def test_a_pair_that_is_none_is_told_without_its_text(pair: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_of("kafka:9092", None, [pair], {})
    assert "secret-of-mine" not in str(raised.value)


def test_names_of_other_clients_are_ours() -> None:
    assert [our_name(name) for name in ("linger.ms", "queue.buffering.max.ms", "compression.gzip.level", "nonsense")] == [
        "linger_ms", "linger_ms", "compression_level", "",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl_mechanism", "sasl.mechanisms"])
def test_a_command_has_no_function_for_tokens_and_says_what_it_can_use(name: str) -> None:
    pairs = ["security.protocol=SASL_SSL", f"{name}=OAUTHBEARER"]
    with pytest.raises(ConfigError, match=rf"^{name}: a command cannot use OAUTHBEARER.*PLAIN, SCRAM or client cert"):
        config_of_settings(settings_of("kafka:9092", None, pairs, {}))
    with pytest.raises(ConfigError, match="a command cannot use OAUTHBEARER"):
        config_of(given_options("kafka:9092", None, pairs))


def test_a_provider_given_to_a_command_as_text_is_not_shown() -> None:
    with pytest.raises(ConfigError, match="come from a function of a program") as raised:
        config_of_settings(settings_of("kafka:9092", None, ["sasl.oauth.token.provider=canary"], {}))
    assert "canary" not in str(raised.value)


def test_the_mechanism_of_the_environment_is_refused_by_its_variable() -> None:
    environ = {"AIOKPROD_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "OAUTHBEARER"}
    with pytest.raises(ConfigError, match="a command cannot use OAUTHBEARER"):
        config_of_settings(settings_of("kafka:9092", None, (), environ))


JAVA = """\
bootstrap.servers=kafka:9092
key.serializer=org.apache.kafka.common.serialization.StringSerializer
security.protocol=SSL
ssl.truststore.location=/etc/kafka/trust.jks
linger.ms=soon
retries=-5
lingr.ms=5
client.dns.lookup=use_all_dns_ips
"""


def test_all_that_is_wrong_with_a_file_is_found_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "client.properties"
    file.write_text(JAVA)
    settings = settings_of(None, file, ["acks=2"], {})
    found = problems_of(settings)
    assert [each.setting and each.setting.written for each in found] == [
        "key.serializer", "ssl.truststore.location", "linger.ms", "retries", "lingr.ms", "acks",
    ]  # fmt: skip
    assert [each.setting and each.setting.source for each in found][-2:] == [f"--config {file}", "-X"]
    with pytest.raises(ConfigError, match=r"'key.serializer'.*There are 5 more problems: `aiokprod config explain`"):
        config_of_settings(settings)
    assert problems_of(settings_of("kafka:9092", None, ["acks=1"], {})) == []


def test_what_does_not_fit_together_is_a_problem_of_no_single_option() -> None:
    [one] = problems_of(settings_of("kafka:9092", None, ["sasl.username=me"], {}))
    assert one.setting is None and "sasl_username is set" in one.error.message
    first, second = problems_of(settings_of("kafka:9092", None, ["sasl.username=me", "acks=7"], {}))
    assert first.setting is not None and second.setting is None


@pytest.mark.parametrize(
    "name", ["key.serializer", "value.serializer", "interceptor.classes", "ssl.cipher.suites", "dr_cb", "socket.cb"]
)
def test_an_option_of_programs_is_to_be_deleted(name: str) -> None:
    for make in (lambda: config_of({"bootstrap.servers": "k:1", name: "x"}),
                 lambda: config_of_settings(settings_of("k:1", None, [f"{name}=x"], {}))):  # fmt: skip
        with pytest.raises(ConfigError, match="a command does not use it: delete its line") as told:
            make()
        assert "Python" not in str(told.value) and "pass" not in str(told.value)


@pytest.mark.parametrize("name", ["ssl.keystore.location", "queue.buffering.max.messages", "ssl.key.pem.password"])
def test_an_option_that_another_one_replaces_is_told_with_that_one(name: str) -> None:
    with pytest.raises(ConfigError, match=r"has no meaning here: .*set (ssl_|buffer_memory)"):
        config_of({"bootstrap.servers": "k:1", name: "x"})
