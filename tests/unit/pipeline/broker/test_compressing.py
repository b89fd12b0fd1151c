"""Batches that a thread compresses: records that leave meanwhile are in the batch, or not in it, never half."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rig import run

from aiokprod import Delivery, Producer
from aiokprod.errors import RecordRecalledError
from aiokprod.records.compression import OFFLOAD_BYTES
from aiokprod.testing import MockCluster

COUNT = 100
VALUE = b"%05d" + b"x" * 500
OPTIONS: dict[str, Any] = {"compression_type": "gzip", "linger_ms": 0}


def test_the_batches_of_these_tests_are_given_to_a_thread() -> None:
    assert COUNT * len(VALUE % 0) > OFFLOAD_BYTES


@pytest.mark.parametrize("turns", range(4))
@pytest.mark.parametrize("recalled", [[50], [0], [99], [10, 11, 50], list(range(99))])
def test_a_record_recalled_around_the_start_of_the_thread_costs_no_other_one(turns: int, recalled: list[int]) -> None:
    """The header counted 99 records and the section held 100, and a broker refuses all of that."""

    async def scenario() -> None:
        async with MockCluster(brokers=1, validate_records=True) as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, **OPTIONS) as producer:
                await producer.send("t", b"first")
                deliveries: list[Delivery] = [producer.send("t", VALUE % number) for number in range(COUNT)]
                for _ in range(turns):
                    await asyncio.sleep(0)
                taken_back = [number for number in recalled if deliveries[number].recall()]
                results = await asyncio.gather(*deliveries, return_exceptions=True)
                failed = [number for number, result in enumerate(results) if isinstance(result, BaseException)]
                assert failed == taken_back
                assert {type(results[number]) for number in failed} <= {RecordRecalledError}
                if turns <= 1:
                    assert taken_back == recalled
                written = [record.value for record in cluster.records("t")]
                assert written == [b"first"] + [VALUE % n for n in range(COUNT) if n not in taken_back]
                assert producer.health().buffered_bytes == 0

    run(scenario())


def test_a_record_whose_send_times_out_before_the_thread_begins_costs_no_other_one() -> None:
    """`timeout=` does the same as `recall`."""

    async def scenario() -> None:
        async with MockCluster(brokers=1, validate_records=True) as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, **OPTIONS) as producer:
                await producer.send("t", b"first")
                pipeline = producer._pipeline
                assert pipeline is not None
                deliveries = [producer.send("t", VALUE % number, timeout=50.0) for number in range(COUNT)]
                await asyncio.sleep(0)
                pipeline.parking._send_timed_out(deliveries[50])
                results = await asyncio.gather(*deliveries, return_exceptions=True)
                assert [n for n, result in enumerate(results) if isinstance(result, BaseException)] == [50]
                assert len(cluster.records("t")) == COUNT

    run(scenario())


@pytest.mark.parametrize("ends", ["before", "in between"])
def test_when_the_program_has_ended_batches_are_compressed_without_a_thread(
    ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []

    def has_ended() -> bool:
        asked.append(None)
        return ends == "before" or len(asked) > 1

    async def no_thread(*_: object, **__: object) -> bytes:
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        async with MockCluster(brokers=1, validate_records=True) as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, **OPTIONS) as producer:
                await producer.send("t", b"first")
                await asyncio.gather(*[producer.send("t", VALUE % number) for number in range(COUNT)])
                assert len(cluster.records("t")) == COUNT + 1

    monkeypatch.setattr("aiokprod.pipeline.broker.compressing.has_ended", has_ended)
    monkeypatch.setattr("anyio.to_thread.run_sync", no_thread)
    run(scenario())
    assert asked
