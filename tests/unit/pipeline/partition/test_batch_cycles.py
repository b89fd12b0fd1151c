"""A batch and its encoded section are freed with its last record, and not when the garbage collector comes."""

from __future__ import annotations

import asyncio
import gc
from array import array
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from rig import run, started

from aiokprod import BytesColumn, Producer
from aiokprod.pipeline.partition.batch import Encoded, ProducerBatch

COUNT = 3_000


def batches() -> list[object]:
    return [thing for thing in gc.get_objects() if isinstance(thing, ProducerBatch | Encoded)]


async def single(producer: Producer) -> None:
    await asyncio.gather(*[producer.send("t", b"x" * 10) for _ in range(COUNT)])


async def many(producer: Producer) -> None:
    await producer.send_many("t", [b"x" * 10] * COUNT)


async def columns(producer: Producer) -> None:
    values = BytesColumn(array("i", range(0, 10 * COUNT + 1, 10)), b"x" * 10 * COUNT)
    await producer.send_columns("t", values)


@pytest.mark.parametrize("send", [single, many, columns])
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_nothing_of_a_finished_batch_is_left(send: Callable[[Producer], Coroutine[Any, Any, None]], codec: str) -> None:
    async def scenario() -> None:
        async with started("t", batch_size=2_000, compression_type=codec) as (_, producer):
            gc.collect()
            gc.disable()
            before = batches()  # of tests that kept theirs
            try:
                await send(producer)
                for _ in range(3):
                    await asyncio.sleep(0)
                left = [thing for thing in batches() if all(thing is not each for each in before)]
            finally:
                gc.enable()
            assert len(left) <= 2, "only the partition's last ones"

    run(scenario())
