"""The options of the drop-in: what aiokafka's constructor takes, and what each is for the producer inside."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from typing import Any

import aiokafka.producer.producer
import pytest
from aiokafka.errors import IllegalStateError
from aiokafka.producer.producer import _missing

from aiokprod.compat.aiokafka import AIOKafkaProducer
from aiokprod.errors import ConfigError

REAL = aiokafka.producer.producer.AIOKafkaProducer


def config_of(**options: Any) -> Any:
    return AIOKafkaProducer(bootstrap_servers="localhost:9092", **options).aiokprod.config


def test_the_constructor_and_the_methods_have_the_parameters_of_aiokafka() -> None:
    assert list(inspect.signature(AIOKafkaProducer).parameters) == list(inspect.signature(REAL).parameters)
    own = [name for name, value in vars(REAL).items() if inspect.isfunction(value) and not name.startswith("__")]
    for name in own:
        theirs, ours = getattr(REAL, name), getattr(AIOKafkaProducer, name)
        assert ours is not theirs, f"{name} is still aiokafka's"
        assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), name
        assert inspect.iscoroutinefunction(ours) == inspect.iscoroutinefunction(theirs), name


def test_defaults_that_are_not_the_same_are_those_that_were_left_out() -> None:
    theirs, ours = (inspect.signature(kind).parameters for kind in (REAL, AIOKafkaProducer))
    differing = [name for name in theirs if ours[name].default != theirs[name].default]
    assert differing == ["partitioner", "enable_idempotence"]  # the first is another object of the same class


def test_what_was_left_out_is_stronger_and_what_was_given_stays() -> None:
    assert [config_of().acks, config_of().idempotent] == [-1, True]
    assert [config_of(acks=_missing).acks, config_of(acks=_missing).idempotent] == [-1, True]  # as FastStream gives it
    assert [config_of(acks=1).acks, config_of(acks=1).idempotent] == [1, False]
    assert config_of(acks=0).acks == 0
    assert [config_of(enable_idempotence=False).acks, config_of(enable_idempotence=False).idempotent] == [-1, False]
    assert config_of(acks="all").idempotent
    assert config_of(transactional_id="t", enable_idempotence=False).idempotent  # as in aiokafka


def test_a_record_has_a_deadline_in_any_case() -> None:
    assert config_of().delivery_timeout_ms == 40_000
    assert config_of(request_timeout_ms=5_000, linger_ms=100).delivery_timeout_ms == 5_100
    assert config_of(enable_idempotence=True).delivery_timeout_ms == 120_000
    assert config_of(enable_idempotence=True, request_timeout_ms=300_000).delivery_timeout_ms == 300_000
    assert config_of(transactional_id="t").delivery_timeout_ms == 120_000
    config = config_of(request_timeout_ms=5_000)
    assert [config.request_timeout_ms, config.max_block_ms, config.close_timeout_ms] == [5_000, 5_000, -1]


def test_memory_is_bounded_and_sizes_fit_each_other() -> None:
    config = config_of(max_batch_size=2_000_000, max_request_size=100_000_000)
    assert [config.batch_size, config.buffer_memory, config.max_waiting_bytes] == [2_000_000, 100_000_000, 0]
    config = config_of(max_request_size=1_000)
    assert [config.batch_size, config.buffer_memory] == [1_000, 33_554_432]


def test_each_other_option_has_its_meaning() -> None:
    context = ssl.create_default_context()
    config = config_of(
        client_id="name",
        metadata_max_age_ms=1_000,
        compression_type="gzip",
        linger_ms=7,
        retry_backoff_ms=2_000,
        connections_max_idle_ms=None,
        transactional_id="txn",
        transaction_timeout_ms=9_000,
        security_protocol="SASL_SSL",
        ssl_context=context,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="user",
        sasl_plain_password="secret",
    )
    assert [config.client_id, config.metadata_max_age_ms, config.compression_type] == ["name", 1_000, "gzip"]
    assert [config.linger_ms, config.retry_backoff_ms, config.retry_backoff_max_ms] == [7, 2_000, 2_000]
    assert [config.connections_max_idle_ms, config.transactional_id] == [-1, "txn"]
    assert config.transaction_timeout_ms == 9_000
    assert [config.ssl_context, config.sasl_mechanism, config.sasl_username] == [context, "SCRAM-SHA-256", "user"]
    assert config_of().partitioner == "murmur2_random"


def test_options_that_are_not_used_without_sasl_and_tls_are_taken() -> None:
    config = config_of(sasl_mechanism="GSSAPI", sasl_plain_username="user", ssl_context=ssl.create_default_context())
    assert [config.sasl_mechanism, config.ssl_context] == [None, None]


def test_kerberos_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="GSSAPI"):
        config_of(security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI")


@pytest.mark.parametrize("option", ["loop", "api_version"])
def test_a_deprecated_option_is_taken_with_the_warning_of_aiokafka(option: str) -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.warns(DeprecationWarning, match=option):
            config_of(**{option: loop if option == "loop" else "auto"})
    finally:
        loop.close()


def test_a_name_is_made_as_aiokafka_makes_it() -> None:
    first, second = config_of().client_id, config_of().client_id
    assert first.startswith("aiokafka-producer-") and first != second


def test_a_producer_is_one_of_aiokafkas_and_one_that_was_not_started_needs_no_stop() -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer()
        assert isinstance(producer, REAL) and producer._closed is False
        with pytest.raises(IllegalStateError):
            await producer.send("t", b"v")  # aiokafka waits for ever
        await producer.stop()
        assert producer._closed is True

    asyncio.run(scenario())
