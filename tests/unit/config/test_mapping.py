"""Names of Java, librdkafka and aiokafka."""

from __future__ import annotations

from typing import Any

import pytest

from aiokprod.config import ProducerConfig
from aiokprod.errors import ConfigError


def from_mapping(**dashed: Any) -> ProducerConfig:
    return ProducerConfig.from_mapping({"bootstrap.servers": "kafka:9092", **dashed})


@pytest.mark.parametrize(
    ("mapping", "option", "value"),
    [
        ({"linger.ms": "5"}, "linger_ms", 5),
        ({"delivery.timeout.ms": 60_000}, "delivery_timeout_ms", 60_000),
        ({"queue.buffering.max.ms": "7.5"}, "linger_ms", 7.5),
        ({"message.timeout.ms": "60000"}, "delivery_timeout_ms", 60_000),
        ({"queue.buffering.max.kbytes": "64000"}, "buffer_memory", 65_536_000),
        ({"request.required.acks": "1"}, "acks", 1),
        ({"partitioner": "consistent_random"}, "partitioner", "crc32"),
        ({"max_batch_size": 1000}, "batch_size", 1000),
    ],
)
def test_a_foreign_name_becomes_ours_with_its_unit(mapping: dict[str, Any], option: str, value: object) -> None:
    assert getattr(from_mapping(**mapping), option) == value


def test_two_names_of_one_option_may_agree_and_may_not_differ() -> None:
    assert from_mapping(**{"linger.ms": 5, "queue.buffering.max.ms": 5}).linger_ms == 5
    with pytest.raises(ConfigError, match="same"):
        from_mapping(**{"linger.ms": 5, "queue.buffering.max.ms": 6})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("statistics.interval.ms", "metrics"),
        ("transactional.id", "transactions"),
        ("queue.buffering.max.messages", "buffer_memory"),
        ("sasl.jaas.config", "sasl_username"),
    ],
)
def test_a_name_we_cannot_honour_says_why(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        from_mapping(**{name: "1"})


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"linger\.sm"):
        from_mapping(**{"linger.sm": 1})
