"""Refused values of one option: each error names the option, shows the value, and says what it must be."""

from __future__ import annotations

import dataclasses
import inspect
import ssl
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiokprod import ProducerInterceptor
from aiokprod.config import ProducerConfig, Secret
from aiokprod.config.option_checks import CALLS, HOOKS, MAX_INT, Choice, Number, Text
from aiokprod.errors import ConfigError
from aiokprod.serializers import JsonSerializer, StringSerializer

NUMBERS = [item for item in dataclasses.fields(ProducerConfig) if isinstance(item.metadata["check"], Number)]
TEXTS = [item.name for item in dataclasses.fields(ProducerConfig) if isinstance(item.metadata["check"], Text)]
FLAGS = [item.name for item in dataclasses.fields(ProducerConfig) if str(item.type).startswith("bool")]
SECRETS = ("sasl_password", "ssl_key_password", "ssl_key_pem")


def config(option: str, value: object) -> ProducerConfig:
    options: dict[str, Any] = {"bootstrap_servers": "kafka:9092", option: value}
    return ProducerConfig.of(**options)


def refused(option: str, value: object) -> str:
    with pytest.raises(ConfigError) as raised:
        config(option, value)
    assert option in str(raised.value)
    return str(raised.value)


def accepted(option: str, value: object) -> object:
    return getattr(config(option, value), option)


def test_every_option_has_a_check() -> None:
    assert [item.name for item in dataclasses.fields(ProducerConfig) if "check" not in item.metadata] == []


@pytest.mark.parametrize("option", [item.name for item in NUMBERS])
@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        float("-inf"),
        float("nan"),
        True,
        False,
        "5",
        b"5",
        [],
        1j,
        Decimal(5),
        -0.5,
        -1.5,
        -2,
        10**30,
        10**400,
        10**5000,
    ],
    ids=lambda value: f"{value:.0e}" if isinstance(value, int) and value < 10**300 else type(value).__name__,
)
def test_what_is_no_number_of_the_range_is_refused(option: str, value: object) -> None:
    if option == "compression_level" and value == -2:
        value = -1_000_000
    assert "it must be" in refused(option, value)


@pytest.mark.parametrize("option", [item.name for item in NUMBERS if item.metadata["check"].whole])
def test_a_whole_number_has_no_fraction(option: str) -> None:
    assert "whole number" in refused(option, 300.0)


@pytest.mark.parametrize("option", [item.name for item in NUMBERS if item.default is not None])
def test_none_is_no_number_of_an_option_that_has_a_default(option: str) -> None:
    refused(option, None)


def test_minus_one_is_special_where_it_says_so_and_only_there() -> None:
    special = {item.name: item.metadata["check"].meaning for item in NUMBERS if item.metadata["check"].special == -1}
    assert special == {
        "connections_max_idle_ms": "never", "metadata_max_age_ms": "never", "start_timeout_ms": "no bound",
        "close_timeout_ms": "no bound", "connections_keepalive_ms": "as the system has it",
    }  # fmt: skip
    for option, meaning in special.items():
        assert accepted(option, -1) == -1
        assert f"or -1 ({meaning})" in refused(option, -0.5)
    for item in NUMBERS:
        if item.name not in special and item.name != "compression_level":
            refused(item.name, -1)


def test_milliseconds_end_where_those_of_kafka_end() -> None:
    assert accepted("linger_ms", MAX_INT) == MAX_INT
    assert str(MAX_INT) in refused("linger_ms", MAX_INT + 1)


@pytest.mark.parametrize("acks", [1.0, 0.0, -1.0, True, False, "1.0", "ALL", "two", "", 2, -2, b"all", [1]])
def test_acks_are_one_of_four(acks: object) -> None:
    assert "'all', -1, 0 or 1" in refused("acks", acks)


@pytest.mark.parametrize("option", FLAGS)
@pytest.mark.parametrize("value", [0, 1, "true", "", 1.0, []])
def test_a_flag_is_true_or_false(option: str, value: object) -> None:
    assert "True or False" in refused(option, value)


@pytest.mark.parametrize("option", TEXTS)
@pytest.mark.parametrize("value", [b"x", 5, "", ["x"], True])
def test_a_text_is_a_str_that_is_not_empty(option: str, value: object) -> None:
    assert "must be a str" in refused(option, value)


@pytest.mark.parametrize("option", SECRETS)
@pytest.mark.parametrize("value", [b"canary", 31337, ["canary"], "", Secret("")])
def test_a_secret_is_a_text_and_shows_in_no_error(option: str, value: object) -> None:
    text = refused(option, value)
    assert "canary" not in text
    assert "31337" not in text
    assert "a str or a Secret" in text


@pytest.mark.parametrize("option", [*SECRETS, "sasl_username", "ssl_ca_pem", "ssl_cert_pem"])
@pytest.mark.parametrize("value", ["canary\udcff", "\ud800canary", Secret("canary\udcff")])
def test_a_text_that_is_not_utf_8_is_refused_and_shows_in_no_error(option: str, value: object) -> None:  # faults: S18
    """As `os.environ` has it where a variable holds other bytes: its UnicodeEncodeError would show the whole."""
    if option not in SECRETS and isinstance(value, Secret):
        value = value.reveal()
    with pytest.raises(ConfigError, match=f"{option} cannot be encoded in UTF-8") as raised:
        config(option, value)
    error: BaseException | None = raised.value
    while error is not None:
        assert "canary" not in f"{error!r}{error}"
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("value", ["x" * 32_768, "ü" * 16_384, "\udc80", b"me", 5])
def test_a_client_id_fits_on_the_wire(value: object) -> None:
    refused("client_id", value)


def test_a_long_value_is_not_shown_whole() -> None:
    assert len(refused("compression_type", "x" * 100_000)) < 300


@pytest.mark.parametrize(
    "option", ["compression_type", "metadata_recovery_strategy", "client_dns_lookup", "security_protocol"]
)
@pytest.mark.parametrize("value", [None, "", "nonsense", 5, True, b"none", ["none"]])
def test_a_choice_is_one_of_some_texts(option: str, value: object) -> None:
    assert "one of" in refused(option, value)


@pytest.mark.parametrize("value", ["x", True, 5, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext])
def test_a_context_is_one_of_a_client(value: object) -> None:
    assert "ssl.create_default_context()" in refused("ssl_context", value)


async def coroutine_function(*_: object) -> int:
    return 0


class AwaitedCall:
    async def __call__(self, *_: object) -> int:
        return 0


@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
def test_a_serializer_can_be_called(option: str) -> None:
    wrong: object
    for wrong in ("json", b"json", 5, JsonSerializer, StringSerializer, str, object(), []):
        assert "not its class" in refused(option, wrong)
    for right in (str.encode, JsonSerializer(), coroutine_function, lambda data: data, bytes):
        assert accepted(option, right) is right


def test_a_partitioner_is_a_name_or_a_plain_function() -> None:
    for wrong in ("murmur3", "", 5, None, coroutine_function, AwaitedCall(), (), AwaitedCall):
        assert "plain function" in refused("partitioner", wrong)
    assert accepted("partitioner", "murmur2") == "murmur2"
    assert accepted("partitioner", max) is max


class Half:
    def on_send(self, record: object) -> object:
        return record


def test_interceptors_are_a_list_of_objects_with_all_hooks() -> None:
    one = ProducerInterceptor()
    wrong: object
    for wrong in (one, "x", b"x", [ProducerInterceptor], [Half()], [None], iter([one]), {one}, None, 5):
        assert "ProducerInterceptor" in refused("interceptors", wrong)
    assert accepted("interceptors", [one]) == (one,)


def test_on_delivery_error_is_a_plain_function() -> None:
    for wrong in ("log", 5, coroutine_function, AwaitedCall()):
        assert "not a coroutine function" in refused("on_delivery_error", wrong)
    assert accepted("on_delivery_error", print) is print


def test_a_dialer_can_be_called() -> None:
    wrong: object
    for wrong in ("proxy:1080", 5, AwaitedCall):
        refused("dialer", wrong)
    assert accepted("dialer", coroutine_function) is coroutine_function


@pytest.mark.parametrize(
    "servers", [5, b"a", bytearray(b"a:1"), ["a", 3], None, {"a:1"}, {"a": 1}, iter(["a:1"]), [b"a:1"]]
)
def test_servers_are_a_text_or_a_list_of_texts(servers: Any) -> None:
    refused("bootstrap_servers", servers)


# ---------------------------------------------------------------------- what may be a secret shows nowhere
PEM = "-----BEGIN PRIVATE KEY-----\nHUSH\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize("option", [item.name for item in dataclasses.fields(ProducerConfig)])
@pytest.mark.parametrize(
    "value",
    [PEM, PEM.encode(), [PEM], {"sasl.password": "HUSH"}, {"HUSH": 1}],
    ids=["text", "bytes", "list", "mapping", "key of a mapping"],
)
@pytest.mark.parametrize("by", ["argument", "mapping"])
def test_no_option_echoes_a_pem_text_or_a_mapping(option: str, value: Any, by: str) -> None:
    options = {"bootstrap_servers": "kafka:9092", option: value}
    try:
        made = ProducerConfig.of(**options) if by == "argument" else ProducerConfig.from_mapping(options)
    except ConfigError as error:
        assert "HUSH" not in f"{error!r} {error} {error.__cause__} {error.__context__}"
    else:
        assert "HUSH" not in f"{made!r} {made} {made.explain()}"


@pytest.mark.parametrize("option", ["ssl_cafile", "ssl_certfile", "ssl_keyfile"])
def test_a_file_is_named_by_a_text_or_a_path_and_never_given_as_its_content(option: str) -> None:
    for path in ("key.pem", Path("key.pem")):
        options: Any = {"ssl_certfile": "own.pem", "security_protocol": "SSL", option: path}
        assert getattr(ProducerConfig(bootstrap_servers="kafka:9092", **options), option) == "key.pem"
    assert "is a PEM text (str): it must be the path of a file" in refused(option, PEM)


def test_a_password_before_an_address_is_not_echoed() -> None:
    for servers in ("me:HUSH@kafka:9092x", "kafka://me:HUSH@kafka:9092", ["me:HUSH@ka fka"]):
        assert "HUSH" not in refused("bootstrap_servers", servers)


@pytest.mark.parametrize("hook", ["configure", "on_send", "on_acknowledgement", "on_outcome"])
def test_an_interceptor_whose_hook_is_a_coroutine_function_is_refused(hook: str) -> None:
    async def later(*_: Any) -> None:
        """Return nothing; a hook like this would never be awaited."""

    kind = type("Async", (ProducerInterceptor,), {hook: later})
    assert "plain functions as methods" in refused("interceptors", [kind()])
    allowed = type("AsyncClose", (ProducerInterceptor,), {"close": later})()
    assert accepted("interceptors", [allowed]) == (allowed,)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_ack", "did you mean on_acknowledgement?"),
        ("on_batch_send", "did you mean on_batch_sent?"),
        ("on_x", "no hook"),
    ],
)
def test_an_interceptor_with_a_misspelt_hook_is_refused_with_the_right_name(name: str, meant: str) -> None:
    kind = type("Own", (ProducerInterceptor,), {name: lambda *_: None})
    told = refused("interceptors", [ProducerInterceptor(), kind()])
    assert f"Own.{name} is no hook" in told and meant in told


def test_every_hook_of_an_interceptor_is_known_and_other_names_are_the_programs() -> None:
    assert set(HOOKS) == {name for name in vars(ProducerInterceptor) if name.startswith("on_")}
    own = type(
        "Own", (ProducerInterceptor,), {"reset": lambda self: None, "_on_x": lambda self: None, "on_off": True}
    )()
    assert accepted("interceptors", [own]) == (own,)


def test_a_function_that_cannot_be_called_as_it_will_be_is_refused() -> None:
    for wrong in (lambda: b"", lambda one, two: b"", lambda one, two, three, four: b""):
        assert "(topic, headers, data)" in refused("value_serializer", wrong)
    for wrong in (lambda: 0, lambda key: 0, lambda key, partitions: 0, lambda topic, key, every, available: 0):
        assert "(key, all_partitions, available_partitions)" in refused("partitioner", wrong)
    for right in (
        lambda data: data,
        lambda topic, headers, data: data,
        lambda data, more=b"": data,
        lambda *a: b"",
        bytes,
    ):
        ProducerConfig.of(bootstrap_servers="a:1", value_serializer=right)


@pytest.mark.parametrize(
    ("protocol", "meant"),
    [
        ("TLS", "SSL"),
        ("SASL_TLS", "SASL_SSL"),
        ("sasl_ssl", "SASL_SSL"),
        ("SASL-SSL", "SASL_SSL"),
        ("HTTP", ""),
        (7, ""),
    ],
)
def test_a_choice_that_was_perhaps_meant_is_told(protocol: object, meant: str) -> None:
    with pytest.raises(ConfigError) as told:
        Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")).refuse("security_protocol", protocol)
    assert str(told.value).endswith(f" (did you mean {meant!r}?)" if meant else "'SASL_SSL'")


@pytest.mark.parametrize(
    ("option", "wrong", "parts"),
    [
        ("on_delivery_error", lambda: None, ("(error)", "this one takes ()")),
        ("on_delivery_error", lambda record, error: None, ("(error)", "this one takes (record, error)")),
        ("on_delivery_error", lambda *, error: None, ("(error)", "this one takes (*, error)")),
        ("on_delivery_error", AwaitedCall, ("(error)",)),
        ("dialer", lambda host, port: None, ("(host, port, ssl_context, protocol_factory)", "takes (host, port)")),
        ("partitioner", lambda key, password="HUSH": 0, ("(key, all_partitions, ", "takes (key, password=...)")),
        ("value_serializer", lambda one, two: b"", ("(data) or (topic, headers, data)", "takes (one, two)")),
        ("sasl_oauth_token_provider", lambda config: "", ("without arguments", "takes (config)")),
    ],
)
def test_the_error_of_a_function_with_other_arguments_shows_which_it_needs_and_which_it_takes(
    option: str, wrong: object, parts: tuple[str, ...]
) -> None:
    told = refused(option, wrong)
    assert all(part in told for part in parts) and "HUSH" not in told, told


def test_functions_that_can_be_called_as_they_will_be_are_taken() -> None:
    failures: list[object] = []
    for right in (failures.append, print, lambda error, log=None: None, lambda *errors: None, partial(print, "lost")):
        assert accepted("on_delivery_error", right) is right


@pytest.mark.parametrize("hook", [name for name in CALLS if name != "close"])
def test_an_interceptor_whose_hook_takes_other_arguments_is_refused(hook: str) -> None:
    """Each call of it was an error in the log, and the hook never ran."""
    kind = type("Own", (ProducerInterceptor,), {hook: lambda self, one, two, three, four: None})
    told = refused("interceptors", [ProducerInterceptor(), kind()])
    assert f"Own.{hook} is called as {hook}({CALLS[hook]}), and takes (one, two, three, four)" in told
    right = type("Own", (ProducerInterceptor,), {hook: lambda self, *_: None})()
    assert accepted("interceptors", [right]) == (right,)


def test_the_calls_of_hooks_are_those_of_the_base_class() -> None:
    functions = {name: value for name, value in vars(ProducerInterceptor).items() if inspect.isfunction(value)}
    assert {name: ", ".join(list(inspect.signature(each).parameters)[1:]) for name, each in functions.items()} == CALLS
