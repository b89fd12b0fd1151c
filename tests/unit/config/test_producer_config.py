"""`ProducerConfig`: checked once, consistent, silent about secrets."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
import ssl
import textwrap
from pathlib import Path
from typing import Any

import pytest

import aiokprod
from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.errors import ConfigError
from aiokprod.serializers import JsonSerializer

PASSWORD = "a-password-never-shown"
SASL: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "me",
    "sasl_password": PASSWORD,
}


def config(**options: Any) -> ProducerConfig:
    return ProducerConfig.of(**{"bootstrap_servers": "kafka:9092", **options})


def attributes_in(program: str) -> set[str]:
    return {node.attr for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Attribute)}


def test_the_keyword_arguments_are_the_fields() -> None:
    """An option is a field of `ProducerConfig` and a keyword of `Producer`, for type checkers (aiokprod/config/options.py)."""
    fields = {entry.name for entry in dataclasses.fields(ProducerConfig)}
    keywords = set(ProducerOptions.__annotations__)
    assert not keywords - fields, "ProducerOptions names options that ProducerConfig does not have"
    assert not fields - keywords, "add these options to ProducerOptions in aiokprod/config/options.py"


def test_each_option_is_read_by_the_library() -> None:
    """An option that only aiokprod/config knows has no effect. Some are read by properties of `ProducerConfig`."""
    package = Path(aiokprod.__file__).parent
    files = [path for path in package.rglob("*.py") if not path.is_relative_to(package / "config")]
    read = set().union(*(attributes_in(path.read_text(encoding="utf-8")) for path in files))
    for name, value in vars(ProducerConfig).items():
        if name in read and isinstance(value, property):
            read |= attributes_in(textwrap.dedent(inspect.getsource(value.fget)))  # type: ignore[arg-type]
    assert not {entry.name for entry in dataclasses.fields(ProducerConfig)} - read


@pytest.mark.parametrize("make", [ProducerConfig, ProducerConfig.of, ProducerConfig(bootstrap_servers="a:1").replace])
def test_an_unknown_option_names_the_nearest(make: Any) -> None:
    for unknown in ({"lingr_ms": 5}, {"LINGER_MS": 5}):
        with pytest.raises(ConfigError, match="did you mean 'linger_ms'"):
            make(bootstrap_servers="kafka:9092", **unknown)
    with pytest.raises(ConfigError, match="'brokers': it is called 'bootstrap_servers' here"):
        make(bootstrap_servers="kafka:9092", brokers="a:1")
    with pytest.raises(ConfigError, match="unknown option 'zzzzzz'"):
        make(bootstrap_servers="kafka:9092", zzzzzz=1)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("max_batch_size", "'batch_size'"),
        ("sasl_plain_username", "'sasl_username'"),
        ("linger.ms", "'linger_ms'"),
        ("group_id", "consumers"),
        ("api_version", "negotiated"),
        ("compression_zstd_level", "'compression_level'"),
    ],
)
def test_an_option_of_another_client_says_what_it_is_here(option: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config(**{option: 1})


def test_servers_are_required() -> None:
    for make in (ProducerConfig, ProducerConfig.of):
        with pytest.raises(ConfigError, match="bootstrap_servers is missing"):
            make()  # type: ignore[call-arg, unused-ignore]


@pytest.mark.parametrize("acks", ["all", "-1", -1])
def test_acks_all_is_idempotent_by_default(acks: Any) -> None:
    assert config(acks=acks).acks == -1
    assert config(acks=acks).idempotent


@pytest.mark.parametrize("acks", [0, 1, "0", "1"])
def test_fewer_acks_turn_idempotence_off_unless_it_was_asked_for(acks: Any) -> None:
    assert not config(acks=acks).idempotent
    with pytest.raises(ConfigError, match="enable_idempotence"):
        config(acks=acks, enable_idempotence=True)


def test_what_the_pipeline_reads_is_in_its_own_units() -> None:
    one = config(acks="all", delivery_timeout_ms=45_500)
    assert (one.required_acks, one.delivery_timeout) == (-1, 45.5)


def test_more_than_five_requests_in_flight_turn_idempotence_off_unless_it_was_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not config(max_in_flight_requests_per_connection=6).idempotent
    (line,) = caplog.records
    assert (line.levelname, "max_in_flight_requests_per_connection=6" in line.getMessage()) == ("WARNING", True)
    assert config(max_in_flight_requests_per_connection=5).idempotent
    assert config(max_in_flight_requests_per_connection=6, enable_idempotence=False)
    for options in ({"enable_idempotence": True}, {"transactional_id": "t"}):
        with pytest.raises(ConfigError, match="max_in_flight"):
            config(max_in_flight_requests_per_connection=6, **options)


def test_a_delivery_timeout_left_out_gives_way_to_the_request_timeout() -> None:
    assert config(request_timeout_ms=200_000, linger_ms=5).delivery_timeout_ms == 200_005


def test_a_delivery_timeout_that_was_given_must_leave_time_for_a_request() -> None:
    with pytest.raises(ConfigError, match="delivery_timeout_ms"):
        config(request_timeout_ms=200_000, delivery_timeout_ms=120_000)
    with pytest.raises(ConfigError, match="delivery_timeout_ms"):
        config(linger_ms=1_000, delivery_timeout_ms=1_000)
    assert config(request_timeout_ms=1_000, delivery_timeout_ms=1_000, linger_ms=0)


@pytest.mark.parametrize(
    ("options", "linger", "request_timeout"),
    [
        ({"delivery_timeout_ms": 10_000}, 5, 9_995),
        ({"delivery_timeout_ms": 10_000, "linger_ms": 9_000}, 9_000, 1_000),
        ({"delivery_timeout_ms": 10_000, "request_timeout_ms": 9_998}, 2, 9_998),
        ({"delivery_timeout_ms": 10_000, "request_timeout_ms": 10_000}, 0, 10_000),
        ({"delivery_timeout_ms": 4}, 3, 1),
        ({"delivery_timeout_ms": 1}, 0, 1),
        ({"delivery_timeout_ms": 40_000}, 5, 30_000),
    ],
)
def test_timeouts_left_out_give_way_to_a_delivery_timeout(
    options: dict[str, Any], linger: float, request_timeout: float
) -> None:
    one = config(**options)
    assert (one.linger_ms, one.request_timeout_ms) == (linger, request_timeout)
    assert one.delivery_timeout_ms == options["delivery_timeout_ms"]


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, "60 s (max_block_ms)"),
        ({"max_block_ms": 0}, "0 s (max_block_ms)"),
        ({"delivery_timeout_ms": 45_500, "request_timeout_ms": 9_000}, "45.5 s (delivery_timeout_ms)"),
        ({"delivery_timeout_ms": 60_000, "request_timeout_ms": 9_000}, "60 s (max_block_ms)"),
    ],
)
def test_the_bound_of_a_wait_is_told_with_the_option_that_sets_it(options: dict[str, Any], bound: str) -> None:
    assert config(**options).longest_block == bound


def test_a_timeout_raised_by_rule_is_derived_again_by_replace() -> None:
    assert config(request_timeout_ms=200_000).replace(request_timeout_ms=1_000).delivery_timeout_ms == 120_000


def test_sizes_that_were_given_must_fit_into_each_other() -> None:
    with pytest.raises(ConfigError, match="batch_size"):
        config(batch_size=2_000, max_request_size=1_000)
    with pytest.raises(ConfigError, match="max_request_size"):
        config(max_request_size=2_000, buffer_memory=1_000)

    with pytest.raises(ConfigError, match=r"batch_size \(2000\) is above buffer_memory \(1000\)"):
        config(batch_size=2_000, buffer_memory=1_000)


@pytest.mark.parametrize(
    ("options", "batch", "most", "memory"),
    [
        ({"max_request_size": 50_000}, 50_000, 50_000, 33_554_432),
        ({"max_request_size": 100_000_000}, 65_536, 100_000_000, 100_000_000),
        ({"buffer_memory": 500_000}, 65_536, 500_000, 500_000),
        ({"buffer_memory": 50_000}, 50_000, 50_000, 50_000),
        ({"buffer_memory": 50_000, "max_request_size": 20_000}, 20_000, 20_000, 50_000),
        ({"batch_size": 2_000_000}, 2_000_000, 2_000_000, 33_554_432),
        ({"batch_size": 50_000_000}, 50_000_000, 50_000_000, 50_000_000),
        ({"batch_size": 2_000_000, "buffer_memory": 3_000_000}, 2_000_000, 2_000_000, 3_000_000),
        ({"batch_size": 20_000, "buffer_memory": 30_000}, 20_000, 30_000, 30_000),
        ({}, 65_536, 1_048_576, 33_554_432),
    ],
)
def test_sizes_left_out_give_way_to_those_that_were_given(
    options: dict[str, Any], batch: int, most: int, memory: int
) -> None:
    one = config(**options)
    assert (one.batch_size, one.max_request_size, one.buffer_memory) == (batch, most, memory)


def test_what_gave_way_is_fitted_again_by_replace_and_explained() -> None:
    one = config(max_request_size=50_000)
    assert "batch_size = 50000 (derived from other options)" in one.explain()
    assert "buffer_memory = 33554432 (default)" in one.explain()
    assert one.replace(max_request_size=60_000).batch_size == 60_000
    assert one.replace(max_request_size=1_048_576).batch_size == 65_536


@pytest.mark.parametrize(
    ("base", "most"),
    [
        ("retry_backoff_ms", "retry_backoff_max_ms"),
        ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"),
    ],
)
def test_a_base_above_its_maximum_is_refused_if_both_were_given(base: str, most: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(**{base: 90_000, most: 80_000})
    assert f"{base} (90000)" in str(raised.value)
    assert f"{most} (80000)" in str(raised.value)
    assert getattr(config(**{base: 90_000}), most) == 90_000
    assert getattr(config(**{most: 1}), base) == 1
    assert getattr(config(**{base: 90_000, most: 90_000}), most) == 90_000


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 0), ("gzip", 10), ("lz4", 18), ("zstd", 23), ("snappy", 1), ("none", 1)]
)
def test_a_level_must_be_one_of_the_codec(codec: str, level: int) -> None:
    with pytest.raises(ConfigError, match="compression_level"):
        config(compression_type=codec, compression_level=level)


@pytest.mark.parametrize("servers", ["", [], "a:0", "a:65536", "a b", 5, b"a", ["a", 3], None])
def test_what_is_no_server_is_refused(servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        ProducerConfig.of(bootstrap_servers=servers)


def test_the_same_options_in_another_form_are_equal_and_have_one_hash() -> None:
    for one, other in (
        ({}, {}),
        ({"bootstrap_servers": ["a:1", "b:2"]}, {"bootstrap_servers": "a:1, b:2,A:1"}),
        ({"linger_ms": 5, "batch_size": 65536, "acks": "all"}, {"acks": -1}),
        ({"delivery_timeout_ms": 120_000}, {"client_id": ""}),
        ({"interceptors": []}, {"interceptors": ()}),
        ({"client_id": "me"}, {"client_id": "me"}),
    ):
        assert config(**one) == config(**other)
        assert len({config(**one), config(**other)}) == 1


def test_other_options_are_not_equal() -> None:
    assert config() != config(client_id="me")
    assert config(client_id=config().client_id) != config()
    assert config(linger_ms=6) != config()
    assert config(bootstrap_servers="a:1,b:2") != config(bootstrap_servers="b:2,a:1")
    assert config() != 5


def test_a_client_id_that_is_made_up_is_another_for_each_config() -> None:
    assert config().client_id != config().client_id
    assert config(client_id="me").client_id == "me"


def test_a_config_with_objects_that_have_no_hash_has_one() -> None:
    class Unhashable(JsonSerializer):
        __hash__ = None  # type: ignore[assignment]

    serializer = Unhashable()
    one, other = config(value_serializer=serializer), config(value_serializer=serializer)
    assert one == other
    assert hash(one) == hash(other)


def test_a_list_that_changes_later_changes_nothing() -> None:
    servers = ["a:1"]
    one = config(bootstrap_servers=servers)
    servers.append("b:2")
    assert one.bootstrap_servers == ("a:1",)
    assert one.replace(linger_ms=1).bootstrap_addresses == (("a", 1),)


def test_pickling_keeps_everything() -> None:
    before = config(
        bootstrap_servers=["a:1", "b:2"], request_timeout_ms=200_000, value_serializer=str.encode, acks=1, **SASL
    )
    after = pickle.loads(pickle.dumps(before))
    assert after == before
    assert (after.client_id, after.delivery_timeout_ms, after.idempotent) == (before.client_id, 200_005, False)
    assert after.value_serializer is str.encode
    assert after.explain() == before.explain()
    assert after.replace(request_timeout_ms=1_000, client_id="x") == before.replace(
        request_timeout_ms=1_000, client_id="x"
    )


def test_a_copy_is_the_config_itself_since_nothing_can_change_it() -> None:
    one = config(security_protocol="SSL", ssl_context=ssl.create_default_context())
    assert copy.copy(one) is one
    assert copy.deepcopy(one) is one


def test_the_standard_librarys_replace_works() -> None:
    assert dataclasses.replace(config(client_id="me"), linger_ms=1) == config(client_id="me", linger_ms=1)
    assert config().__replace__(linger_ms=1) == config(linger_ms=1)


def test_replace_can_take_an_option_back() -> None:
    assert config(delivery_timeout_ms=50_000).replace(delivery_timeout_ms=None).delivery_timeout_ms == 120_000


@pytest.mark.parametrize(
    ("options", "because"),
    [({"acks": 1}, "acks=1"), ({"retries": 0}, "retries=0"), ({"acks": 0, "retries": 0}, "acks=0")],
)
def test_idempotence_that_goes_off_is_told_once(
    options: dict[str, Any], because: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "aiokprod.config")
    one = config(**options)
    one.replace(linger_ms=1).replace(client_id="x")
    pickle.loads(pickle.dumps(one))
    assert caplog.text.count("idempotence is off") == 1
    assert because in caplog.text


def test_idempotence_that_a_change_turns_off_is_told_and_one_that_was_turned_off_by_name_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "aiokprod.config")
    config(enable_idempotence=False, acks=1).replace(linger_ms=1)
    assert caplog.text == ""
    config().replace(acks=1)
    assert caplog.text.count("idempotence is off") == 1


def test_explain_tells_what_was_given_from_what_was_not() -> None:
    lines = config(linger_ms=5).explain()
    assert "linger_ms = 5 (given)" in lines
    assert "batch_size = 65536 (default)" in lines


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


def test_configs_of_one_server_in_two_spellings_are_equal() -> None:
    for one, other in (
        ("Kafka:1", "kafka:1"),
        ("a", ["a:9092"]),
        ("a:1,A:1", "a:1"),
        ("[::1]:1", "[0:0:0:0:0:0:0:1]:1"),
    ):
        first, second = (ProducerConfig.of(bootstrap_servers=servers) for servers in (one, other))
        assert first == second and hash(first) == hash(second)
