"""Options of a Spark write: what each becomes, and the error that says what is wrong with it."""

from __future__ import annotations

import pickle

import pytest

from aiokprod.config import ProducerConfig
from aiokprod.errors import ConfigError
from aiokprod.spark.options import SinkOptions, in_spark_names

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
CANARY = "canary-7d1f"


def refusal(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        SinkOptions.read(SERVERS | {name.replace("__", "."): value for name, value in options.items()})
    return str(caught.value)


def test_properties_of_the_producer_have_kafkas_names_and_units() -> None:
    options = SinkOptions.read(
        SERVERS
        | {"kafka.linger.ms": "20", "kafka.compression.type": "gzip", "kafka.batch.size": "1000", "kafka.acks": "1"}
    )
    assert (options.config.linger_ms, options.config.compression_type, options.config.batch_size) == (20, "gzip", 1000)
    assert options.config.required_acks == 1


def test_batches_are_larger_than_the_cores_unless_the_option_is_given() -> None:
    assert SinkOptions.read(SERVERS).config.batch_size == 524_288
    assert SinkOptions.read(SERVERS | {"kafka.max.batch.size": "65536"}).config.batch_size == 65_536
    assert SinkOptions.read(SERVERS | {"kafka.max.request.size": "100000"}).config.batch_size == 65_536


def test_options_of_the_sink_are_found_in_any_case() -> None:
    options = SinkOptions.read(
        SERVERS
        | {"topic": "a", "MAXINFLIGHTBYTES": "100000", "idletimeoutms": "1500", "claims.path": "/c", "BatchId": "4"}
    )
    assert (options.topic, options.max_in_flight_bytes, options.idle_timeout_s) == ("a", 100_000, 1.5)
    assert (options.claims_path, options.batch_id) == ("/c", 4)
    plain = SinkOptions.read(SERVERS)
    assert (plain.topic, plain.max_in_flight_bytes, plain.idle_timeout_s) == (None, 33_554_432, 30)
    assert (plain.claims_path, plain.batch_id) == (None, None)


def test_what_spark_passes_to_every_sink_is_let_through() -> None:
    given = {"checkpointLocation": "/x", "queryName": "q", "includeHeaders": "true"}
    assert SinkOptions.read(SERVERS | given) == SinkOptions.read(SERVERS)


def test_an_unknown_option_names_the_nearest() -> None:
    assert refusal(topics="a") == "unknown option 'topics': did you mean 'topic'?"
    assert "did you mean 'maxInFlightBytes'?" in refusal(maxInflightByte="1")
    assert "did you mean 'kafka.linger.ms'?" in refusal(kafka__linger_m="1")
    assert "did you mean 'kafka.linger.ms'?" in refusal(linger__ms="1")
    assert "did you mean 'kafka.bootstrap.servers'?" in refusal(bootstrap__servers="h")
    assert "docs/spark.md lists the options" in refusal(xyzzy="1")


def test_what_cannot_be_is_refused_with_the_reason() -> None:
    assert "set delivery to exactly_once" in refusal(kafka__transactional__id="x")
    assert "cast the column 'key'" in refusal(kafka__key__serializer="org.apache.kafka.X")
    assert "cast the column 'value'" in refusal(kafka__value__serializer="org.apache.kafka.X")
    assert "Java classes cannot run here" in refusal(kafka__interceptor__classes="org.X")
    assert "kafka.partitioner" in refusal(kafka__partitioner__class="org.example.Mine")
    assert "name the topic" in refusal(path="/x")
    assert "brokers would not acknowledge any" in refusal(kafka__acks="0")
    assert "is empty" in refusal(topic=" ")
    for name in ("kafka.start.timeout.ms", "kafka.start_timeout_ms"):
        assert "a task waits for the cluster for kafka.max.block.ms" in refusal(**{name: "5"})
    for name in ("kafka.close.timeout.ms", "kafka.close_timeout_ms"):
        assert "there is nothing to wait for" in refusal(**{name: "5"})
    assert "no task could connect" in refusal(kafka__max__block__ms="0")


def test_an_option_can_be_given_under_the_name_that_texts_have() -> None:
    unknown: list[str] = []
    for name in filter(lambda name: "_" in name, ProducerConfig.names()):
        try:
            SinkOptions.read(SERVERS | {in_spark_names(name): "?"})
        except ConfigError as refused:
            if "unknown option" in str(refused):
                unknown.append(name)
    assert unknown == []


def test_only_whole_names_of_the_core_are_renamed() -> None:
    same = "my_max_block_ms, max_block_msx, kafka.max_block_ms, acks, retries"
    assert in_spark_names(same) == same
    assert in_spark_names("(see max_block_ms), 'ssl_cafile'.") == "(see kafka.max.block.ms), 'kafka.ssl.cafile'."
    assert "set kafka.ssl.cafile, kafka.ssl.certfile" in refusal(kafka__ssl__truststore__location="/x")


def test_a_bad_value_is_named_as_it_was_written() -> None:
    assert refusal(kafka__linger__ms="soon").startswith("kafka.linger.ms is 'soon'")
    assert (
        refusal(maxInFlightBytes="1k") == "maxInFlightBytes is '1k': it must be a whole number from 65536 to 1073741824"
    )
    assert (
        refusal(maxInFlightBytes="1") == "maxInFlightBytes is '1': it must be a whole number from 65536 to 1073741824"
    )
    assert refusal(includeHeaders="maybe") == "includeHeaders is 'maybe': it must be true or false"


def test_the_servers_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"'kafka\.bootstrap\.servers' is missing"):
        SinkOptions.read({"topic": "a"})


def test_secrets_travel_and_show_nowhere() -> None:
    secret = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    secret |= {"kafka.sasl.username": "u", "kafka.sasl.password": CANARY}
    options = pickle.loads(pickle.dumps(SinkOptions.read(SERVERS | secret)))
    assert options.config.sasl_password.reveal() == CANARY
    assert CANARY not in f"{options!r} {options} {options.config!r}"
    for broken in ({"kafka.sasl.mechanism": "NONE"}, {"kafka.linger.ms": "x"}, {"kafka.sasl.passwort": CANARY}):
        with pytest.raises(ConfigError) as caught:
            SinkOptions.read(SERVERS | secret | broken)
        assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "jaas",
    [
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="user" password="{CANARY}";',
        f"kafkashaded.org.apache.kafka.common.security.scram.ScramLoginModule required\n  username=user password='{CANARY}' ;",
        f'PlainLoginModule required serviceName="x" password="{CANARY}" username="us\\er"',
    ],
)
def test_credentials_are_found_where_java_has_them(jaas: str) -> None:
    plain = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    config = SinkOptions.read(SERVERS | plain | {"kafka.sasl.jaas.config": jaas}).config
    assert (config.sasl_username, config.sasl_password.reveal()) == ("user", CANARY)


@pytest.mark.parametrize(
    "jaas",
    [
        f'PlainLoginModule required password="{CANARY}";',
        f'com.sun.security.auth.module.Krb5LoginModule required username="u" password="{CANARY}";',
        f"{CANARY}",
    ],
)
def test_other_login_modules_are_refused_and_not_shown(jaas: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.jaas\.config must be") as caught:
        SinkOptions.read(SERVERS | {"kafka.sasl.jaas.config": jaas})
    assert CANARY not in str(caught.value)


def test_exactly_once_makes_the_producer_transactional() -> None:
    given = {"delivery": "exactly_once", "sinkId": "orders", "topic": "t"}
    options = SinkOptions.read(SERVERS | given, is_stream=True)
    assert options.exactly_once is not None
    assert options.config.transactional_id == "orders"
    assert options.config.transaction_timeout_ms == 900_000
    shorter = SinkOptions.read(SERVERS | given | {"kafka.transaction.timeout.ms": "60000"}, is_stream=True)
    assert shorter.config.transaction_timeout_ms == 60_000
    assert pickle.loads(pickle.dumps(options)) == options
    assert SinkOptions.read(SERVERS).config.transactional_id is None
    with pytest.raises(ConfigError, match="acks"):
        SinkOptions.read(SERVERS | given | {"kafka.acks": "1"}, is_stream=True)
    with pytest.raises(ConfigError, match="did you mean 'sinkId'"):
        SinkOptions.read(SERVERS | {"sinkIds": "x"})


@pytest.mark.parametrize("name", ["kafka.sasl.mechanism", "kafka.sasl.mechanisms", "kafka.sasl_mechanism"])
@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "AWS_MSK_IAM"])
def test_mechanisms_with_tokens_are_refused_and_the_way_out_is_told(name: str, mechanism: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} cannot be {mechanism} here: .*foreachPartition"):
        SinkOptions.read(SERVERS | {"kafka.security.protocol": "SASL_SSL", name: mechanism})


@pytest.mark.parametrize("name", ["kafka.sasl_oauth_token_provider", "kafka.sasl.oauth.token.provider"])
def test_a_provider_of_tokens_is_no_option_of_a_sink(name: str) -> None:
    with pytest.raises(ConfigError, match="tokens come from a Python function") as raised:
        SinkOptions.read(SERVERS | {name: CANARY})
    assert CANARY not in str(raised.value)
