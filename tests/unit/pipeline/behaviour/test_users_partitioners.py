"""A partitioner of the user that takes five arguments: what it sees of each record, and what it may answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from column_rig import column
from virtual_rig import outcomes, run, started

from aiokprod import Record
from aiokprod.errors import PartitionerError
from aiokprod.testing import MemoryProducer
from aiokprod.testing.virtual import VirtualNetwork

Call = tuple[str, bytes | None, bytes | None, list[int], list[int]]


class Full:
    """A partitioner of the full form, which keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, every: Sequence[int], available: Sequence[int]
    ) -> int:
        self.calls.append((topic, key, value, list(every), list(available)))
        return len(value or b"") % len(every)


def test_it_sees_topic_key_and_value_of_each_record_as_they_are_written_and_the_partitions() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        full = Full()
        options: dict[str, Any] = {"partitioner": full, "value_serializer": lambda data: data and data + b"!"}
        async with started(network, partitions=3, **options) as (cluster, producer):
            sent = [producer.send("t", b"", b"k"), producer.send("t", None), producer.send("t", b"v", partition=2)]
            parked = producer.send("later", b"parked", b"key")
            assert len(full.calls) == 2
            cluster.create_topic("later", partitions=2)
            results = await outcomes([*sent, parked])
            assert [each.partition for each in results] == [0, 0, 2, 1]  # type: ignore[attr-defined]
            assert full.calls == [
                ("t", b"k", b"", [0, 1, 2], [0, 1, 2]),
                ("t", None, None, [0, 1, 2], [0, 1, 2]),
                ("later", b"key", b"parked!", [0, 1], [0, 1]),
            ]

    run(scenario)


def test_records_of_send_many_and_rows_of_columns_are_seen_too() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        full = Full()
        async with started(network, partitions=3, partitioner=full) as (cluster, producer):
            await producer.send_many("t", [b"", Record(value=b"abc", key=b"k"), b"ab"])
            rows: list[bytes | None] = [b"xx", None, b"xxx"]
            await producer.send_columns("t", column(rows), keys=column([b"k", None, b"l"]))
            seen = [(key, value) for _, key, value, _, _ in full.calls]
            assert seen == [
                (None, b""),
                (b"k", b"abc"),
                (None, b"ab"),
                (b"k", b"xx"),
                (None, None),
                (b"l", b"xxx"),
            ]
            assert [record.value for record in cluster.records("t", 2)] == [b"ab", b"xx"]

    run(scenario)


def test_what_it_raises_or_answers_wrongly_fails_its_record_alone() -> None:
    def choose(topic: str, key: object, value: object, every: Sequence[int], available: Sequence[int]) -> Any:
        if value == b"raises":
            raise RuntimeError("no")
        return {b"outside": 9, b"text": "0"}.get(value, 0)  # type: ignore[call-overload]

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitioner=choose) as (_, producer):
            for value in (b"raises", b"outside", b"text"):
                with pytest.raises(PartitionerError):
                    producer.send("t", value)
            assert (await producer.send("t", b"v")).offset == 0

    run(scenario)


def test_a_producer_in_memory_calls_it_too() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        full = Full()
        async with MemoryProducer(topics={"t": 2}, partitioner=full) as producer:
            assert (await producer.send("t", b"v")).partition == 1
            assert full.calls == [("t", None, b"v", [0, 1], [0, 1])]

    run(scenario)
