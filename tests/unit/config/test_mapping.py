"""Names of Java, librdkafka and aiokafka."""

from __future__ import annotations

from typing import Any

import pytest

from aiokprod import Producer
from aiokprod.config import ProducerConfig
from aiokprod.config.foreign_names import CODEC_LEVELS, IGNORED, REFUSED, REFUSED_STARTS, RENAMED
from aiokprod.config.secret import Secret
from aiokprod.errors import ConfigError
from aiokprod.testing import MemoryProducer

SSL = {"security.protocol": "SSL"}


def from_mapping(**options: Any) -> ProducerConfig:
    return ProducerConfig.from_mapping({"bootstrap.servers": "kafka:9092", **options})


def refused(*says: str, **options: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        from_mapping(**options)
    for text in says:
        assert text in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("mapping", "option", "value"),
    [
        ({"linger.ms": "5"}, "linger_ms", 5),
        ({"delivery.timeout.ms": 60_000}, "delivery_timeout_ms", 60_000),
        ({"queue.buffering.max.ms": "7.5"}, "linger_ms", 7.5),
        ({"message.timeout.ms": "60000"}, "delivery_timeout_ms", 60_000),
        ({"message.timeout.ms": "0"}, "delivery_timeout_ms", 2**31 - 1),
        ({"retries": float("inf")}, "retries", 2**31 - 1),
        ({"metadata.recovery.strategy": "NONE"}, "metadata_recovery_strategy", "none"),
        ({"bootstrap_timeout_ms": 2_000}, "start_timeout_ms", 2_000),
        ({"queue.buffering.max.kbytes": "64000"}, "buffer_memory", 65_536_000),
        ({"request.required.acks": "1"}, "acks", 1),
        ({"acks": "ALL"}, "acks", -1),
        ({"partitioner": "consistent_random"}, "partitioner", "crc32"),
        (
            {"partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
            "partitioner",
            "round_robin",
        ),
        ({"max_batch_size": 1000}, "batch_size", 1000),
        ({"enable.idempotence": "off"}, "enable_idempotence", False),
        ({"enable.idempotence": "ON"}, "enable_idempotence", True),
        ({"topic.metadata.refresh.interval.ms": "-1"}, "metadata_max_age_ms", -1),
        ({"connections.max.idle.ms": 0}, "connections_max_idle_ms", -1),
        ({"send.buffer.bytes": -1}, "send_buffer_bytes", None),
        ({"receive.buffer.bytes": "-1"}, "receive_buffer_bytes", None),
        ({"socket.send.buffer.bytes": 0}, "send_buffer_bytes", None),
        ({"send.buffer.bytes": "131072"}, "send_buffer_bytes", 131_072),
        ({"compression.type": None}, "compression_type", "none"),
        ({"compression_type": None}, "compression_type", "none"),
        ({"compression.codec": "inherit"}, "compression_type", "none"),
        ({"compression.codec": "lz4"}, "compression_type", "lz4"),
        ({"linger.ms": None}, "linger_ms", 5),
        ({"security.protocol": "ssl"}, "security_protocol", "SSL"),
        ({"ssl.endpoint.identification.algorithm": "https"}, "ssl_check_hostname", True),
        ({**SSL, "ssl.endpoint.identification.algorithm": "HTTPS"}, "ssl_check_hostname", True),
        ({**SSL, "ssl.endpoint.identification.algorithm": ""}, "ssl_check_hostname", False),
        ({**SSL, "ssl.endpoint.identification.algorithm": "none"}, "ssl_check_hostname", False),
        ({**SSL, "ssl.endpoint.identification.algorithm": None}, "ssl_check_hostname", True),
    ],
)
def test_a_foreign_name_becomes_ours_with_its_unit(mapping: dict[str, Any], option: str, value: object) -> None:
    found = getattr(from_mapping(**mapping), option)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("mapping", "level"),
    [
        ({"compression.type": "gzip", "compression.gzip.level": "6"}, 6),
        ({"compression.gzip.level": 6, "compression.type": "gzip"}, 6),
        ({"compression.type": "gzip", "compression.gzip.level": -1}, None),
        ({"compression.type": "lz4", "compression.lz4.level": 9, "compression.gzip.level": 1}, 9),
        ({"compression.type": "zstd", "compression.zstd.level": -1}, -1),
        ({"compression.type": "zstd", "compression.level": "-1"}, None),
        ({"compression.type": "zstd", "compression.level": "5", "compression.zstd.level": 5}, 5),
        ({"compression.type": "snappy", "compression.zstd.level": 3}, None),
        ({"compression.zstd.level": 3}, None),
        ({"compression.type": "zstd", "compression.zstd.level": None}, None),
    ],
)
def test_the_level_of_the_codec_in_use_counts(mapping: dict[str, Any], level: int | None) -> None:
    assert from_mapping(**mapping).compression_level == level


def test_a_level_that_is_wrong_names_the_option_that_was_written() -> None:
    refused("compression.zstd.level", "'high'", **{"compression.zstd.level": "high"})
    refused("compression.lz4.level", "1 to 17", **{"compression.type": "lz4", "compression.lz4.level": 18})
    refused("compression.level", "compression.lz4.level", **{
        "compression.type": "lz4", "compression.lz4.level": 5, "compression.level": 6,
    })  # fmt: skip


def test_the_codec_of_a_keyword_is_the_one_in_use() -> None:
    levels = {"bootstrap.servers": "kafka", "compression.gzip.level": 6, "compression.zstd.level": 3}
    assert ProducerConfig.from_mapping(levels, compression_type="gzip").compression_level == 6
    other = {**levels, "compression.type": "zstd"}
    assert ProducerConfig.from_mapping(other, compression_type="gzip").compression_level == 6
    assert ProducerConfig.from_mapping(levels).compression_level is None


@pytest.mark.parametrize("codec", [{}, {"compression.type": "none"}, {"compression.codec": "snappy"}])
def test_librdkafkas_level_without_a_codec_that_has_levels_is_ignored(
    codec: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert from_mapping(**codec, **{"compression.level": "5"}, partitioner="crc32").compression_level is None
    (warning,) = caplog.records
    assert "'compression.level' (compression_type" in warning.getMessage()
    refused("has no levels", **codec, compression_level=5)


@pytest.mark.parametrize(
    ("weaker", "stronger", "option"),
    [
        ("socket.timeout.ms", "request.timeout.ms", "request_timeout_ms"),
        ("metadata.max.age.ms", "topic.metadata.refresh.interval.ms", "metadata_max_age_ms"),
    ],
)
def test_of_two_options_of_librdkafka_that_are_one_here_one_counts(
    weaker: str, stronger: str, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    for options in ({weaker: 60_000, stronger: 20_000}, {stronger: "20000", weaker: "60000"}):
        caplog.clear()
        assert getattr(from_mapping(**options, partitioner="crc32"), option) == 20_000
        (warning,) = caplog.records
        assert f"{weaker!r} ({stronger} is given too, and counts)" in warning.getMessage()


def test_a_host_name_check_is_one_of_three_words() -> None:
    refused("ssl.endpoint.identification.algorithm", "'https'", **{"ssl.endpoint.identification.algorithm": "ldaps"})


def test_two_names_of_one_option_may_agree_and_may_not_differ() -> None:
    assert from_mapping(**{"linger.ms": 5, "queue.buffering.max.ms": 5}).linger_ms == 5
    refused("same", "'linger.ms'", "'queue.buffering.max.ms'", **{"linger.ms": 5, "queue.buffering.max.ms": 6})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("dr_cb", "on_delivery_error"),
        ("dr_msg_cb", "add_done_callback"),
        ("on_delivery", "add_done_callback"),
        ("oauth_cb", "in milliseconds, not in seconds"),
        ("oauthbearer_token_refresh_cb", "sasl_oauth_token_provider"),
        ("sasl.oauthbearer.token.endpoint.url", "sasl_oauth_token_provider"),
        ("sasl.oauthbearer.method", "sasl_oauth_token_provider"),
        ("sasl.login.callback.handler.class", "sasl_oauth_token_provider"),
        ("sasl.client.callback.handler.class", "sasl_oauth_token_provider"),
        ("enable.sasl.oauthbearer.unsecure.jwt", "sasl_oauth_token_provider"),
        ("key.serializer", "key_serializer"),
        ("ssl.keystore.location", "ssl_certfile"),
        ("socks5_proxy", "dialer"),
    ],
)
def test_a_name_we_cannot_honour_says_what_to_use_instead(name: str, says: str) -> None:
    refused(repr(name), says, **{name: "1"})
    assert from_mapping(**{name: None}) == from_mapping()


@pytest.mark.parametrize("name", sorted(IGNORED))
def test_a_name_without_a_meaning_is_ignored_with_one_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert from_mapping(partitioner="uniform_sticky", **{name: "a-value"}) == from_mapping()
    [warning] = caplog.records
    assert warning.levelname == "WARNING"
    assert name in warning.getMessage()
    assert IGNORED[name].advice in warning.getMessage()
    assert "a-value" not in warning.getMessage()


def test_one_warning_tells_of_all_names_that_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    options = {
        "debug": "all",
        "log_level": 7,
        "statistics.interval.ms": 5,
        "stats_cb": print,
        "group.id": "g",
        "acks": 1,
    }
    assert from_mapping(**options, partitioner="uniform_sticky") == from_mapping(acks=1)
    (warning,) = caplog.records
    assert warning.getMessage() == (
        "options are ignored, as they have no meaning for a producer here: "
        "'debug', 'log_level' (set levels on logging.getLogger('aiokprod')); "
        "'statistics.interval.ms' (there are no reports at intervals: read producer.metrics() instead); "
        "'stats_cb' (read producer.metrics() instead); 'group.id' (options of consumers)"
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "GSSAPI"])
def test_the_default_mechanism_of_another_client_is_left_out_where_nothing_uses_it(mechanism: str) -> None:
    for options in (
        {},
        {"security.protocol": "plaintext"},
        {"security.protocol": "SSL"},
        {"bootstrap.servers": "SSL://a:1"},
    ):
        assert from_mapping(**{**options, "sasl.mechanism": mechanism}) == from_mapping(**options)
    refused("does not authenticate", **{"sasl.mechanism": "SCRAM-SHA-512"})
    refused("sasl_mechanism is set", **{"sasl.mechanism": "PLAIN", "sasl.username": "me"})
    for options in ({"security.protocol": "SASL_SSL"}, {"bootstrap.servers": "SASL_SSL://a:1"}):
        refused("sasl_mechanism", **{**options, "sasl.mechanism": mechanism})


@pytest.mark.parametrize(
    "mapping",
    [
        {"socket.keepalive.enable": "true"},
        {"statistics.interval.ms": 0},
        {"statistics.interval.ms": "0"},
        {"enable.ssl.certificate.verification": "true"},
        {"debug": ""},
        {"api_version": "auto"},
        {"debug": None},
        {"interceptor.classes": []},
        {"ssl.truststore.type": "PEM"},
    ],
)
def test_what_we_do_anyway_is_neither_refused_nor_told(
    mapping: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert from_mapping(partitioner="uniform_sticky", **mapping) == from_mapping()
    assert caplog.records == []


def test_what_the_user_may_count_on_is_refused() -> None:
    refused("ssl.SSLContext", **{"enable.ssl.certificate.verification": False})


def test_an_unknown_name_is_an_error_with_the_nearest_in_the_same_spelling() -> None:
    refused("'linger.sm'", "'linger.ms'", **{"linger.sm": 1})
    refused("'linger_sm'", "'linger_ms'", linger_sm=1)
    refused("'linger.sm'", **{"linger.sm": None})


@pytest.mark.parametrize("name", [b"linger.ms", 5, None, ("linger", "ms")])
def test_a_name_is_a_text(name: Any) -> None:
    with pytest.raises(ConfigError, match="must be a str"):
        ProducerConfig.from_mapping({"bootstrap.servers": "kafka", name: 1})


@pytest.mark.parametrize("mapping", [None, "linger.ms=5", [("linger.ms", 5)], 5])
def test_a_mapping_is_a_mapping(mapping: Any) -> None:
    with pytest.raises(ConfigError, match="needs a mapping"):
        ProducerConfig.from_mapping(mapping)


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ({"linger.ms": "soon"}, ("linger.ms", "'soon'", "a number")),
        ({"retries": "1.5"}, ("retries", "'1.5'", "a whole number")),
        ({"enable.idempotence": "maybe"}, ("enable.idempotence", "'maybe'", "true, yes, on, 1")),
        ({"queue.buffering.max.ms": "inf"}, ("linger_ms was given as queue.buffering.max.ms",)),
        ({"message.timeout.ms": -1}, ("delivery_timeout_ms was given as message.timeout.ms",)),
        (
            {"max.in.flight": 6, "enable.idempotence": True},
            ("max_in_flight_requests_per_connection was given as max.in.flight",),
        ),
        ({"queue.buffering.max.kbytes": "much"}, ("queue.buffering.max.kbytes", "'much'")),
        ({"queue.buffering.max.kbytes": 1.5}, ("buffer_memory was given as queue.buffering.max.kbytes",)),
        ({"sasl.password": "canary"}, ("sasl_password was given as sasl.password",)),
    ],
)
def test_a_wrong_value_names_what_was_written(mapping: dict[str, Any], says: tuple[str, ...]) -> None:
    assert "canary" not in refused(*says, **mapping)


def test_the_tables_speak_of_each_name_once() -> None:
    tables = (RENAMED, CODEC_LEVELS, IGNORED, REFUSED)
    names = [name for table in tables for name in table]
    assert len(names) == len(set(names))
    assert not [name for name in names if "_" in name]
    assert not [name for name in RENAMED if name.startswith(tuple(REFUSED_STARTS))]
    assert set(RENAMED.values()) <= set(ProducerConfig.names())


@pytest.mark.parametrize("make", [Producer, MemoryProducer])
def test_a_producer_takes_a_mapping_as_other_clients_do(make: Any) -> None:
    given = {
        "bootstrap.servers": "kafka:9092", "security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN",
        "sasl.username": "me", "sasl.password": "HUSH", "linger.ms": "7", "client.id": "mapped",
    }  # fmt: skip
    producer = make(given, linger_ms=9, acks=1)
    assert producer.config == ProducerConfig.from_mapping(given, linger_ms=9, acks=1)
    assert (producer.config.linger_ms, producer.config.acks, producer.config.sasl_username) == (9, 1, "me")
    assert make({"linger.ms": 7}, bootstrap_servers="kafka").config.linger_ms == 7
    for wrong in ({**given, "sasl.mechanism": "HUSH-1"}, {**given, "lingerms": 5}, {**given, 5: "HUSH"}):
        with pytest.raises(ConfigError) as raised:
            make(wrong)
        assert "'HUSH'" not in str(raised.value)
    with pytest.raises(ConfigError, match=r"bootstrap_servers is a mapping: .*from_mapping"):
        make(bootstrap_servers=given)


CLOUD_OF_CONFLUENT = {  # the template for Python, as its page gives it
    "bootstrap.servers": "pkc-12345.eu-central-1.aws.confluent.cloud:9092", "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "PLAIN", "sasl.username": "KEY", "sasl.password": "SECRET", "session.timeout.ms": "45000",
    "client.id": "ccloud-python-client",
}  # fmt: skip
CLOUD_OF_JAVA = {
    "bootstrap.servers": "pkc-12345.eu-central-1.aws.confluent.cloud:9092", "security.protocol": "SASL_SSL",
    "sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required username='KEY' password='SECRET';"
    ),
    "sasl.mechanism": "PLAIN", "client.dns.lookup": "use_all_dns_ips", "session.timeout.ms": "45000", "acks": "all",
    "schema.registry.url": "https://registry", "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": "SR_KEY:SR_SECRET",
}  # fmt: skip


@pytest.mark.parametrize("template", [CLOUD_OF_CONFLUENT, CLOUD_OF_JAVA])
def test_the_templates_of_confluent_cloud_are_taken_as_they_are(template: dict[str, str]) -> None:
    config = ProducerConfig.from_mapping(template)
    assert (config.security_protocol, config.sasl_mechanism, config.sasl_username) == ("SASL_SSL", "PLAIN", "KEY")
    assert isinstance(config.sasl_password, Secret) and config.sasl_password.reveal() == "SECRET"


def test_options_of_consumers_are_ignored_with_one_warning_that_lists_them(caplog: pytest.LogCaptureFixture) -> None:
    options = {
        "session.timeout.ms": 45_000,
        "group_id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": None,
    }
    from_mapping(**options)
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    message = warning.getMessage()
    assert "'session.timeout.ms', 'group_id', 'auto.offset.reset'" in message and "consumers" in message
    assert "enable.auto.commit" not in message  # None: not set


def test_a_keyword_that_is_an_option_of_consumers_stays_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'group_id' .* consumers, and this is a producer: leave it out"):
        ProducerConfig.of(bootstrap_servers="kafka", group_id="g")  # type: ignore[call-arg]


def test_a_login_module_gives_user_and_password_and_must_agree_with_them() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    assert from_mapping(**sasl).sasl_username == "u"
    assert from_mapping(**sasl, sasl_username="u").sasl_username == "u"
    assert "p'" not in refused("sasl_username", "same option", **sasl, sasl_username="v")
    refused("sasl.jaas.config must be", **{**sasl, "sasl.jaas.config": "Krb5LoginModule required;"})


@pytest.mark.parametrize("name", ["queue.buffering.max.ms", "message.timeout.ms", "statistics.interval.ms"])
def test_keys_that_land_in_other_partitions_than_with_librdkafka_are_told_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {name: 0 if name.startswith("statistics") else 130_000, "request.required.acks": "all"}
    from_mapping(**options)
    (line,) = caplog.records
    assert line.levelname == "WARNING"  # at INFO, which is off by default, keys moved without a word
    assert all(word in line.getMessage() for word in (name, "CRC-32", "partitioner='crc32'", "murmur2"))


@pytest.mark.parametrize(
    "options",
    [
        {"linger.ms": 5, "acks": "all"},  # Java's names as well
        {"queue_buffering_max_ms": 5},
        {"queue.buffering.max.ms": 5, "partitioner": "consistent_random"},
        {"queue.buffering.max.ms": 5, "partitioner": "uniform_sticky"},
    ],
)
def test_nothing_is_told_of_partitions_where_it_is_known_what_is_meant(
    options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aiokprod.config")
    from_mapping(**options)
    assert caplog.records == []


def test_a_keyword_that_says_the_partitioner_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "aiokprod.config")
    ProducerConfig.from_mapping({"metadata.broker.list": "kafka:9092"}, partitioner="crc32")
    assert caplog.records == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("queue.time", "'queue.buffering.max.ms', which is 'linger_ms' here"),
        ("queue.buffering.ms", "'queue.buffering.max.ms', which is 'linger_ms' here"),
        ("queue_buffering_kbytes", "'queue_buffering_max_kbytes', which is 'buffer_memory' here"),
        ("message.timeout", "'message.timeout.ms', which is 'delivery_timeout_ms' here"),
        ("request.timeout", "'request.timeout.ms'?"),
        ("lingr.ms", "'linger.ms'?"),
    ],
)
def test_a_slip_is_answered_with_the_nearest_name_of_any_client(name: str, near: str) -> None:
    refused(f"did you mean {near}", **{name: "1"})


@pytest.mark.parametrize("name", ["this", "value", "option", "topic", "nosuchoptionatall", "no.such.option"])
def test_a_word_that_is_far_from_every_name_is_answered_with_none(name: str) -> None:
    refused(f"unknown option {name!r}: leave it out", **{name: "1"})


def test_all_options_that_are_refused_are_told_at_once() -> None:
    options = {"queuing.strategy": "lifo", "acks": "all", "lingr.ms": 5, "retries": "many"}
    with pytest.raises(ConfigError) as told:
        from_mapping(**options)
    strategy, lingr, retries = told.value.message.split("; ")
    assert strategy.startswith("option 'queuing.strategy' has no meaning here: ")
    assert lingr == "unknown option 'lingr.ms': did you mean 'linger.ms'?"
    assert retries == "retries is 'many': it must be a whole number"


class TokenProvider:
    """As aiokafka has it."""

    async def token(self) -> str:
        return "canary"


@pytest.mark.parametrize("name", ["sasl_oauth_token_provider", "sasl.oauth.token.provider"])
def test_a_provider_of_tokens_of_another_client_is_taken_as_it_is(name: str) -> None:
    provider = TokenProvider()
    config = from_mapping(**{
        "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "default",
        "enable.sasl.oauthbearer.unsecure.jwt": "false", name: provider,
    })  # fmt: skip
    assert config.sasl_oauth_token_provider is provider


@pytest.mark.parametrize("name", ["sasl_oauth_token_provider", "sasl.oauth.token.provider"])
def test_a_token_in_the_place_of_its_provider_is_not_shown(name: str) -> None:
    refused("function without arguments", **{name: "canary"})
