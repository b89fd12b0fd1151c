"""`ProducerConfig`: checked once, consistent, silent about secrets."""

from __future__ import annotations

import dataclasses
import pickle
import ssl
from typing import Any

import pytest

from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.errors import ConfigError

PASSWORD = "a-password-nobody-sees"
SASL: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "me",
    "sasl_password": PASSWORD,
}


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig.of(**{"bootstrap_servers": "kafka:9092", **options})


def test_the_keyword_arguments_are_the_fields() -> None:
    assert set(ProducerOptions.__annotations__) == {entry.name for entry in dataclasses.fields(ProducerConfig)}


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
        config(lingr_ms=5)


def test_servers_are_required() -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        ProducerConfig.of()


@pytest.mark.parametrize("acks", ["all", "-1", -1])
def test_acks_all_is_idempotent_by_default(acks: Any) -> None:
    assert config(acks=acks).acks == -1
    assert config(acks=acks).idempotent


@pytest.mark.parametrize("acks", [0, 1, "0", "1"])
def test_fewer_acks_turn_idempotence_off_unless_it_was_asked_for(acks: Any) -> None:
    assert not config(acks=acks).idempotent
    with pytest.raises(ConfigError, match="enable_idempotence"):
        config(acks=acks, enable_idempotence=True)


def test_idempotence_allows_five_requests_in_flight() -> None:
    with pytest.raises(ConfigError, match="max_in_flight"):
        config(max_in_flight_requests_per_connection=6)
    assert config(max_in_flight_requests_per_connection=6, enable_idempotence=False)


def test_a_delivery_timeout_left_out_gives_way_to_the_request_timeout() -> None:
    assert config(request_timeout_ms=200_000, linger_ms=5).delivery_timeout_ms == 200_005


def test_a_delivery_timeout_that_was_given_must_leave_time_for_a_request() -> None:
    with pytest.raises(ConfigError, match="delivery_timeout_ms"):
        config(request_timeout_ms=200_000, delivery_timeout_ms=120_000)


def test_a_timeout_raised_by_rule_is_derived_anew_by_replace() -> None:
    assert config(request_timeout_ms=200_000).replace(request_timeout_ms=1_000).delivery_timeout_ms == 120_000


def test_sizes_that_were_given_must_fit_into_each_other() -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        config(batch_size=2_000, max_request_size=1_000)
    with pytest.raises(ConfigError, match="max_request_size"):
        config(max_request_size=2_000, buffer_memory=1_000)


def test_sizes_left_out_give_way() -> None:
    small = config(buffer_memory=50_000)
    assert (small.max_request_size, small.batch_size) == (50_000, 50_000)


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 0), ("gzip", 10), ("lz4", 18), ("zstd", 23), ("snappy", 1), ("none", 1)]
)
def test_a_level_must_be_one_of_the_codec(codec: str, level: int) -> None:
    with pytest.raises(ConfigError, match="compression_level"):
        config(compression_type=codec, compression_level=level)


@pytest.mark.parametrize("option", ["linger_ms", "retries", "batch_size"])
def test_a_bool_is_no_number(option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        config(**{option: True})


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("kafka", [("kafka", 9092)]),
        ("kafka:1, kafka:1,kafka:2", [("kafka", 1), ("kafka", 2)]),
        (["a:1", "b:2"], [("a", 1), ("b", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
        ("kafka.example.:9092", [("kafka.example.", 9092)]),
    ],
)
def test_servers_are_read(servers: Any, addresses: list[tuple[str, int]]) -> None:
    assert list(ProducerConfig.of(bootstrap_servers=servers).bootstrap_addresses) == addresses


@pytest.mark.parametrize("servers", ["", [], "a:0", "a:65536", "a b", 5, b"a", ["a", 3], None])
def test_what_is_no_server_is_refused(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        ProducerConfig.of(bootstrap_servers=servers)


@pytest.mark.parametrize("missing", ["sasl_mechanism", "sasl_username", "sasl_password"])
def test_sasl_needs_mechanism_user_and_password(missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        config(**{name: value for name, value in SASL.items() if name != missing})


def test_tls_options_need_a_protocol_with_tls() -> None:
    with pytest.raises(ConfigError, match="ssl_cafile"):
        config(ssl_cafile="ca.pem")


def test_a_context_stands_alone() -> None:
    with pytest.raises(ConfigError, match="ssl_context"):
        config(security_protocol="SSL", ssl_context=ssl.create_default_context(), ssl_cafile="ca.pem")


def test_a_secret_survives_pickling_and_shows_nowhere() -> None:
    before = config(**SASL)
    after = pickle.loads(pickle.dumps(before))
    assert after == before
    assert hash(after) == hash(before)
    assert after.sasl_password.reveal() == PASSWORD
    for shown in (repr(before), str(before), str(dataclasses.asdict(before)), str(before.explain())):
        assert PASSWORD not in shown


def test_a_context_cannot_be_pickled_and_the_error_says_what_can() -> None:
    with pytest.raises(ConfigError, match="files or PEM"):
        pickle.dumps(config(security_protocol="SSL", ssl_context=ssl.create_default_context()))


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().linger_ms = 1  # type: ignore[misc]
