"""Options of a command: the command line overrides the file, which overrides the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiokprod.config import command_line
from aiokprod.config.command_line import (
    START_TIMEOUT_MS,
    Problem,
    Setting,
    config_of,
    config_of_settings,
    divided,
    effective,
    fitting,
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
        config_of_settings(settings_of("kafka:9092", None, [pair], {}))
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


@pytest.mark.parametrize("pair", ["acks=5", "ssl.cafile=-----BEGIN CERTIFICATE-----", "linger.ms=soon"])
def test_an_option_is_told_without_its_type_as_all_that_is_typed_is_text(pair: str) -> None:
    name, _, value = pair.partition("=")
    variable = {f"AIOKPROD_{name.upper().replace('.', '_')}": value}
    for make in (
        lambda: config_of(given_options("kafka:9092", None, [pair])),
        lambda: config_of_settings(settings_of("kafka:9092", None, [pair], {})),
        lambda: config_of_settings(settings_of("kafka:9092", environ=variable)),
    ):
        with pytest.raises(ConfigError, match=": it must be") as raised:
            make()
        assert "(str)" not in raised.value.message


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


@pytest.mark.parametrize("name", ["ssl.keystore.location", "ssl.key", "ssl.key.pem.password"])
def test_an_option_that_another_one_replaces_is_told_with_that_one(name: str) -> None:
    with pytest.raises(ConfigError, match=r"has no meaning here: .*set ssl_"):
        config_of({"bootstrap.servers": "k:1", name: "x"})


MIXED = """\
=the-secret
[default]
linger.ms=7
acks=1
acks=all
sasl.jaas.config=org.x.Module required password="the-secret";
batch.size=1000
"""


def test_what_is_wrong_in_all_sources_is_found_at_once(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(MIXED)
    environ = {
        "AIOKPROD_RETRIES": "many",
        "AIOKPROD_MAX_BLOCK_MS": "-5",
        "AIOKPROD_LINGR_MS": "1",
        "AIOKPROD_DIALER": "x",
    }
    settings = settings_of("http://kafka:9092", file, ["nothing", "linger.ms=soon"], environ)
    found = [(each.setting.source, each.error.message) for each in problems_of(settings) if each.setting]
    source = f"--config {file}"
    says = [
        ("AIOKPROD_RETRIES", "AIOKPROD_RETRIES is 'many': it must be a whole number"),
        ("AIOKPROD_MAX_BLOCK_MS", "AIOKPROD_MAX_BLOCK_MS is -5: it must be a number from 0"),
        ("AIOKPROD_LINGR_MS", "did you mean 'AIOKPROD_LINGER_MS'"),
        ("AIOKPROD_DIALER", "is an object"),
        (source, "sasl.jaas.config must be"),
        (source, "line 1 has no name"),
        (source, "line 2 is a section"),
        (source, "'acks' has two values, in lines 4 and 5"),
        ("-X", "-X needs name=value"),
        ("-X", "linger.ms is 'soon': it must be a number"),
        ("-b", "begins with http://"),
    ]
    assert [where for where, _ in found] == [where for where, _ in says]
    assert [text for (_, text), (_, part) in zip(found, says, strict=True) if part not in text] == []
    assert "the-secret" not in str(found)
    right, wrong = divided(settings, problems_of(settings))
    assert [each.option for each in right] == ["batch_size"]
    assert {"sasl_username", "sasl_password", "acks", "linger_ms"} <= {each.option for each in wrong}


def test_what_is_overridden_is_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1\nacks=all\nlinger.ms=a\nsasl.jaas.config=nonsense\n")
    pairs = ["acks=1", "linger.ms=3", "sasl.username=me", "sasl.password=x", "security.protocol=SASL_SSL"]
    environ = {"AIOKPROD_LINGER_MS": "abc", "AIOKPROD_BOOTSTRAP_SERVERS": "http://x"}
    settings = settings_of("kafka:9092", file, [*pairs, "sasl.mechanism=PLAIN"], environ)
    assert problems_of(settings) == []
    assert config_of_settings(settings).linger_ms == 3
    half = [pair for pair in pairs if not pair.startswith("sasl.password")]
    [one] = problems_of(settings_of("kafka:9092", file, [*half, "sasl.mechanism=PLAIN"], environ))
    assert one.error.message.startswith("sasl.jaas.config must be")


def test_all_conflicts_are_found_and_none_with_an_option_that_is_wrong_by_itself() -> None:
    pairs = ["acks=1", "enable.idempotence=true", "sasl.username=me", "batch.size=5000000", "retry.backoff.ms=5000"]
    pairs += ["buffer.memory=300000", "retry.backoff.max.ms=100", "linger.ms=5"]
    pairs += ["compression_level=3", "delivery.timeout.ms=1"]
    found = [each.error.message for each in problems_of(settings_of("kafka:9092", None, pairs, {}))]
    begins = (
        "acks=1 and",
        "delivery_timeout_ms is 1",
        "retry_backoff_ms (",
        "batch_size (",
        "compression_level",
        "sasl_u",
    )
    assert len(found) == len(begins)
    assert all(text.startswith(begin) for text, begin in zip(found, begins, strict=True)), found
    with pytest.raises(ConfigError, match=r"There are 5 more problems"):
        config_of_settings(settings_of("kafka:9092", None, pairs, {}))
    [one] = problems_of(settings_of("k:1", None, ["security.protocol=SASL_SSLL", "sasl.username=me"], {}))
    assert one.setting is not None and one.setting.option == "security_protocol"
    tls = ["security.protocol=SSL", "ssl_cafile=a", "ssl_ca_pem=b", "ssl_certfile=c", "ssl_cert_pem=d"]
    assert len(problems_of(settings_of("k:1", None, tls, {}))) == 2


def test_settings_fit_without_those_that_conflicts_name() -> None:
    given = settings_of("k:1", None, ["acks=1", "enable.idempotence=true", "linger.ms=5"], {})
    assert {each.option for each in fitting(given)} == {"bootstrap_servers", "linger_ms"}


def test_a_conflict_that_names_no_setting_leaves_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Setting("bootstrap_servers", "bootstrap_servers", "k:1", "", -1)
    monkeypatch.setattr(command_line, "problems_of", lambda settings: [Problem(None, ConfigError("a riddle"))])
    assert fitting([server, *settings_of(None, None, ["acks=1"], {})]) == [server]


def test_the_variable_of_a_conflict_is_named() -> None:
    [one] = problems_of(settings_of("k:1", None, (), {"KAFKA_SASL_USERNAME": "me"}))
    assert one.error.message.endswith("(sasl_username was given as KAFKA_SASL_USERNAME)")


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("linger.ms=nan", "linger.ms is nan: it must be a number from 0"),
        ("queue.buffering.max.ms=-1", "queue.buffering.max.ms is -1: it must be a number from 0"),
        ("security.protocol=x", "security.protocol is 'X': it must be one of"),
    ],
)
def test_a_wrong_value_is_told_with_the_name_as_typed_and_no_type_of_python(pair: str, says: str) -> None:
    with pytest.raises(ConfigError) as told:
        config_of_settings(settings_of("kafka:9092", None, [pair], {}))
    assert told.value.message.startswith(says)


def test_a_level_of_a_codec_and_the_level_with_two_values(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("compression.type=gzip\ncompression.gzip.level=2\ncompression.level=3\n")
    [one] = problems_of(settings_of("kafka:9092", file, (), {}))
    assert one.setting is None and "are the same option (compression_level)" in one.error.message
