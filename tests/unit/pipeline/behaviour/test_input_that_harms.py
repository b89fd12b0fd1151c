"""Inputs that harm more than their own record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rig import run, started, values

from aiokprod.errors import RecordTypeError, SerializationError, UsageError


def test_a_header_name_that_is_no_unicode_is_refused_and_costs_no_other_record() -> None:
    """faults: M12"""

    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            first = producer.send("t", b"0")
            with pytest.raises(RecordTypeError):
                producer.send("t", b"1", headers=[("\ud800", b"x")])
            assert (await first).offset == 0
            assert (await producer.send("t", b"2")).offset == 1
            assert values(cluster, "t") == [b"0", b"2"]

    run(scenario())


def test_a_serializer_whose_awaitable_is_cancelled_fails_its_record_alone() -> None:
    """faults: M12"""

    async def scenario() -> None:
        futures: list[asyncio.Future[bytes]] = []

        def serialize(data: Any) -> Any:
            futures.append(asyncio.get_running_loop().create_future())
            return futures[-1]

        async with started("t", value_serializer=serialize) as (_, producer):
            deliveries = [producer.send("t", number) for number in range(3)]
            await asyncio.sleep(0)
            futures[0].cancel()
            for future in futures[1:]:
                future.set_result(b"v")
            async with asyncio.timeout(60):
                outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            assert isinstance(outcomes[0], SerializationError)
            assert [outcome.offset for outcome in outcomes[1:]] == [0, 1]  # type: ignore[union-attr]

    run(scenario())


@pytest.mark.parametrize("topic", [["t"], {}, bytearray(b"t")])
def test_a_topic_that_cannot_be_hashed_is_a_usage_error(topic: Any) -> None:
    """faults: M16"""

    async def scenario() -> None:
        async with started("t") as (_, producer):
            with pytest.raises(UsageError):
                producer.send(topic, b"v")

    run(scenario())
