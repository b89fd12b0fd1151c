"""One question to the registry for all records that wait for the same schema, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from random import Random
from typing import Any
from uuid import UUID

import pytest

from aiokprod.errors import SerializationError
from aiokprod.integrations.schema_registry import RegistryError, SchemaRegistry, value_serializer
from aiokprod.testing.virtual import VirtualNetwork, run_virtual

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "amount", "type": "int"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)


class SlowClient:
    """The client of a registry that is away: each question of it takes 7 s, as it tries again."""

    def __init__(self, fails_first: int = 1_000) -> None:
        self.asked: list[str] = []
        self._fails = fails_first

    @classmethod
    def new_client(cls, options: object) -> SlowClient:
        raise AssertionError("replaced by each test")

    def config(self) -> dict[str, object]:
        return {}

    async def aclose(self) -> None:
        """Close nothing."""

    async def register_schema_full_response(self, subject: str, schema: Any, normalize_schemas: bool = False) -> Any:
        from confluent_kafka.schema_registry import RegisteredSchema

        self.asked.append(subject)
        await asyncio.sleep(7)
        if len(self.asked) <= self._fails:
            raise ConnectionRefusedError(f"attempt {len(self.asked)}")
        return RegisteredSchema(schema_id=1, guid=str(UUID(int=1)), subject=subject, version=1, schema=schema)


def away(monkeypatch: pytest.MonkeyPatch, client: SlowClient) -> SchemaRegistry:
    monkeypatch.setattr(SlowClient, "new_client", lambda options: client)
    monkeypatch.setattr("aiokprod.integrations.schema_registry.registry.CLIENT", SlowClient)
    return SchemaRegistry("http://registry:8081")


def run_in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    async def whole(network: VirtualNetwork, random: Random) -> None:
        await scenario

    run_virtual(whole, seed=1)


async def outcome(result: Any) -> Any:
    try:
        return await result
    except RegistryError as error:
        return error


def test_records_that_wait_for_one_schema_share_the_question_and_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asked by itself, one after the other: most of them were over max_block_ms before their turn."""
    client = SlowClient()
    own = value_serializer(away(monkeypatch, client), ORDER)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        good, began = {"id": "a", "amount": 1}, loop.time()
        sent = [own("orders", [], good) for _ in range(20)]
        found = [await outcome(each) for each in sent]  # one after the other, as the line of a topic does
        assert client.asked == ["orders-value"] and loop.time() - began == pytest.approx(7)
        assert all(isinstance(each, RegistryError) and each.retriable for each in found)
        assert len(set(map(id, found))) == 20  # each record has an error of its own
        assert {each.message for each in found} == {
            "the schema registry at http://registry:8081 cannot be reached: attempt 1 (subject 'orders-value')"
        }
        later = [own("orders", [], good), own("bills", [], good)]  # sent later: the registry is asked again
        found = await asyncio.gather(*map(outcome, later))
        assert sorted(client.asked[1:]) == ["bills-value", "orders-value"]
        assert "attempt 2" in found[0].message or "attempt 3" in found[0].message
        await own.close()

    run_in_virtual_time(work())


def test_a_question_outlives_the_record_that_asked_it_and_ends_with_the_serializer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SlowClient(fails_first=0)
    own = value_serializer(away(monkeypatch, client), ORDER)

    async def work() -> None:
        good = {"id": "a", "amount": 1}
        first, second, third = (own("orders", [], good) for _ in range(3))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await first
        data = await second
        assert isinstance(data, bytes) and data == await third == own("orders", [], good)
        assert client.asked == ["orders-value"]
        other = asyncio.ensure_future(own("bills", [], good))
        await asyncio.sleep(1)
        other.cancel()
        await own.close()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_virtual_time(work())


def test_a_record_that_does_not_fit_is_no_failure_of_the_others_that_wait_for_the_schema(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SlowClient(fails_first=0)
    own = value_serializer(away(monkeypatch, client), ORDER)

    async def work() -> None:
        bad, good = own("orders", [], {"id": 5}), own("orders", [], {"id": "a", "amount": 1})
        with pytest.raises(SerializationError, match="id takes string, and is int"):
            await bad
        assert await good
        assert client.asked == ["orders-value"]
        await own.close()

    run_in_virtual_time(work())
