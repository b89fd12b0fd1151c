"""Every option of four clients, with its default and other values: what becomes of it here (`options_of_clients.txt`)."""

from __future__ import annotations

import importlib
import inspect
import warnings
from typing import Any

import pytest
from options_of_clients import (
    OBJECTS,
    Line,
    fate_of,
    lines,
    mapping_of,
    our_name,
    warnings_of_config,
)

from aiokprod.config import ProducerConfig
from aiokprod.config.foreign_names import IGNORED, REFUSED, REFUSED_STARTS, RENAMED, dotted, ignored, refused
from aiokprod.errors import ConfigError

LINES = lines()
CLIENTS = ("java", "librdkafka", "aiokafka", "kafka-python")


def text_of(value: Any) -> str | None:
    """Return a value as a file has it; None if it is no text, number or boolean."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) and value is not OBJECTS["$inf"] else None


@pytest.mark.parametrize("client", CLIENTS)
def test_each_line_is_taken_accepted_warned_of_or_refused_as_the_table_says(client: str) -> None:
    wrong: list[str] = []
    for line in (line for line in LINES if line.client == client):
        for value in (line.value, *([text] if (text := text_of(line.value)) is not None else [])):
            try:
                fate, told = fate_of(line, value)
            except ConfigError as error:
                fate, told = "refused", [error.message]
            if fate != line.fate:
                wrong.append(f"{line} as {type(value).__name__}: {fate} {told}, and not {line.fate}")
            if fate == "warned" and not (len(told) == 1 and repr(line.option) in told[0]):
                wrong.append(f"{line}: the warning does not name it: {told}")
            named = {line.option, line.ours or line.option}
            if fate == "refused" and not any(name in told[0] for name in named):
                wrong.append(f"{line}: the error does not name it: {told}")
    assert wrong == []


@pytest.mark.parametrize("client", CLIENTS)
def test_a_keyword_is_ours_or_an_error_that_says_what_to_do(client: str) -> None:
    wrong: list[str] = []
    for line in (line for line in LINES if line.client == client):
        keyword = line.option.replace(".", "_")
        beside = {str(our_name(name)): value for name, value in line.beside.items()}
        servers = {} if keyword == "bootstrap_servers" else {"bootstrap_servers": "kafka:9092"}
        try:
            config = ProducerConfig.of(**{**servers, **beside, keyword: line.value})
        except ConfigError as error:
            if keyword not in error.message:
                wrong.append(f"{line}: the error does not name it: {error}")
            if keyword not in ProducerConfig.names() and not error.message.split(": ", 1)[1].strip():
                wrong.append(f"{line}: the error says nothing: {error}")
        else:
            if keyword not in ProducerConfig.names():
                wrong.append(f"{line}: taken as {config}")
            if line.fate == "warned":
                wrong.append(f"{line}: a warning under from_mapping, nothing as a keyword")
    assert wrong == []


def test_the_default_of_another_client_is_never_refused_and_never_warned_of() -> None:
    defaults = [line for line in LINES if line.is_default]
    assert len(defaults) > 250
    assert [str(line) for line in defaults if not line.fate.startswith(("taken", "accepted"))] == []


def test_each_option_has_its_default_and_other_values() -> None:
    for client, option in {(line.client, line.option) for line in LINES}:
        of_option = [line for line in LINES if (line.client, line.option) == (client, option)]
        assert any(not line.is_default for line in of_option) or option == "loop", option
        assert sum(line.is_default for line in of_option) <= 1, option


def test_all_that_are_ignored_are_told_in_one_warning() -> None:
    last = {line.option: line for line in LINES if line.fate == "warned"}
    mapping = {line.option: line.value for line in last.values()}
    with warnings_of_config() as told:
        ProducerConfig.from_mapping({"bootstrap.servers": "kafka:9092", "partitioner": "crc32", **mapping})
    (warning,) = told
    assert [name for name in mapping if repr(name) not in warning] == []
    assert len(mapping) > 80


def test_the_table_has_every_name_of_the_code_and_the_code_every_name_of_the_table() -> None:
    in_table = {dotted(line.option) for line in LINES}
    older = {
        "api.version.auto.timeout.ms", "auto.include.jmx.reporter", "default.topic.config", "ssl.key.pem.password",
    }  # fmt: skip
    assert ({*RENAMED, *IGNORED, *REFUSED} - in_table) == older, "of older releases"
    for line in LINES:
        known = line.ours or ignored(line.option) or refused(line.option) or line.option == "client.rack"
        assert known, line.option
    assert all(start.endswith(".") for start in REFUSED_STARTS)


def defaults_of(client: str) -> dict[str, Any]:
    """Return the options of an installed client, with their defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module("kafka" if client == "kafka-python" else client)
    if client == "kafka-python":
        return dict(module.KafkaProducer.DEFAULT_CONFIG)
    parameters = inspect.signature(module.AIOKafkaProducer).parameters
    return {name: each.default for name, each in parameters.items()}


@pytest.mark.parametrize("client", ["aiokafka", "kafka-python"])
def test_the_table_has_every_option_of_the_installed_client_with_its_default(client: str) -> None:
    defaults = defaults_of(client)
    assert {line.option for line in LINES if line.client == client} == set(defaults), "a release has other options"
    of_table = {line.option: line.value for line in LINES if line.client == client and line.is_default}
    assert set(of_table) == set(defaults)
    for option, value in of_table.items():
        if not any(value is each for each in OBJECTS.values()):
            assert value == defaults[option], option


@pytest.mark.parametrize("client", ["aiokafka", "kafka-python"])
def test_all_defaults_of_the_installed_client_together_are_taken_without_a_word(client: str) -> None:
    with warnings_of_config() as told:
        config = ProducerConfig.from_mapping(defaults_of(client))
    assert told == []
    assert (config.bootstrap_addresses, config.partitioner) == ((("localhost", 9092),), "murmur2_random")
    assert (config.acks, config.linger_ms, config.sasl_mechanism) == (-1, 0, None)


def test_all_defaults_of_java_together_are_taken_without_a_word() -> None:
    defaults = {line.option: line.value for line in LINES if line.client == "java" and line.is_default}
    with warnings_of_config() as told:
        config = ProducerConfig.from_mapping({**defaults, "bootstrap.servers": "kafka:9092"})
    assert (told, config.idempotent, config.batch_size) == ([], True, 16_384)


def test_all_defaults_of_librdkafka_together_are_taken_but_for_two_that_others_overrule() -> None:
    defaults = {line.option: line.value for line in LINES if line.client == "librdkafka" and line.is_default}
    with warnings_of_config() as told:
        config = ProducerConfig.from_mapping({**defaults, "bootstrap.servers": "kafka:9092"})
    (warning,) = told
    assert warning.count("is given too, and counts") == 2
    assert "'socket.timeout.ms'" in warning and "'metadata.max.age.ms'" in warning
    assert (config.partitioner, config.request_timeout_ms, config.delivery_timeout_ms) == ("crc32", 30_000, 300_000)


def test_a_line_is_read_as_it_is_written() -> None:
    (line,) = (each for each in LINES if each.client == "java" and each.option == "linger.ms" and each.is_default)
    assert line == Line("java", "linger.ms", 5, True, "taken linger_ms=5", {})
    assert mapping_of(line, "5") == {"bootstrap_servers": "kafka:9092", "linger.ms": "5"}
