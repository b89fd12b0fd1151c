"""docs/migrating.md: the names of ours that it promises are there, and what it says of other names is what happens."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from aiokprod import Producer, ProducerConfig, RecordMetadata, errors
from aiokprod.testing import MemoryProducer

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "migrating.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))] for line in lines]


@pytest.mark.parametrize("client", ["aiokafka", "confluent-kafka", "kafka-python"])
def test_every_method_of_ours_in_a_table_is_one_of_a_producer(client: str) -> None:
    ours = [cell for row in rows(client) for cell in row[1:]]
    called = {name for cell in ours for name in re.findall(r"producer\.(\w+)\(", cell)}
    assert len(called) >= 4
    assert {name for name in called if not callable(getattr(Producer, name, None))} == set()


def test_every_error_of_ours_in_a_table_is_there() -> None:
    named = {name for row in rows("kafka-python") for name in re.findall(r"`(\w+Error)`", row[-1])}
    assert named and all(hasattr(errors, name) for name in named)


def test_the_partitioners_of_librdkafka_are_called_as_the_table_says() -> None:
    table = {theirs: ours for theirs, ours in rows("confluent-kafka") if ours.startswith('`"')}
    assert len(table) == 6
    for theirs, ours in table.items():
        (name,) = re.findall(r"`(\w+)`", theirs)
        config = ProducerConfig.from_mapping({"bootstrap.servers": "kafka", "partitioner": name})
        assert f'`"{config.partitioner}"`' == ours


def test_the_second_await_of_aiokafka_is_a_type_error() -> None:
    async def scenario() -> None:
        async with MemoryProducer() as producer:
            future = await producer.send("orders", b"value")
            assert isinstance(future, RecordMetadata)
            with pytest.raises(TypeError, match="can't be used in 'await' expression"):
                await future  # type: ignore[misc]

    asyncio.run(scenario())
