"""`number_check`: a number that Avro would write as another one is refused, wherever it stands."""

from __future__ import annotations

import asyncio
from typing import Any

import fastavro
import pytest
from fake_registry import FakeRegistry
from numpy import int64

from aiokprod.errors import SerializationError
from aiokprod.integrations.schema_registry import value_serializer
from aiokprod.integrations.schema_registry.whole_numbers import number_check

TREE: dict[str, Any] = {
    "type": "record",
    "name": "Tree",
    "namespace": "shop",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "long", "type": "long", "default": 0},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "real", "type": "double"},
        {"name": "perhaps", "type": ["null", "int"]},
        {"name": "all", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
        {"name": "leaf", "type": {"type": "record", "name": "Leaf", "fields": [{"name": "n", "type": "int"}]}},
        {"name": "leaves", "type": {"type": "array", "items": "Leaf"}},
        {"name": "trees", "type": {"type": "array", "items": "Tree"}},
    ],
}


def found(data: Any, schema: Any = TREE) -> str:
    check = number_check(fastavro.parse_schema(schema))
    assert check is not None
    return check(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"n": 3.7}, "field shop.Tree.n takes int, and is float"),
        ({"n": True}, "field shop.Tree.n takes int, and is bool"),
        ({"n": 2**31}, "field shop.Tree.n takes int, and is beyond 32 bits"),
        ({"n": 1, "long": -(2**63) - 1}, "field shop.Tree.long takes long, and is beyond 64 bits"),
        ({"all": [{"a": 1}, {"b": 1.0}]}, "field shop.Tree.all takes long, and is float"),
        ({"leaf": {"n": 0.5}}, "field shop.Leaf.n takes int, and is float"),
        ({"leaves": [{"n": 1}, {"n": "1"}]}, "field shop.Leaf.n takes int, and is str"),
        ({"trees": [{"n": 1, "trees": [{"n": 2.0}]}]}, "field shop.Tree.n takes int, and is float"),
    ],
)
def test_a_number_that_would_become_another_is_found(data: Any, why: str) -> None:
    assert found(data) == why


@pytest.mark.parametrize(
    "data",
    [
        {"n": 2**31 - 1, "long": -(2**63), "real": 3.7, "all": [{"a": 1}], "leaf": {"n": int64(1)}, "trees": []},
        {"day": "of another type", "perhaps": 3.7},  # left to fastavro
        {"leaves": 7, "all": [7], "n": None},
        "no record",
    ],
)
def test_what_fits_or_is_for_fastavro_passes(data: Any) -> None:
    assert found(data) == ""


@pytest.mark.parametrize(
    "schema", ['"string"', {"type": "record", "name": "S", "fields": [{"name": "s", "type": "string"}]}]
)
def test_a_schema_without_whole_numbers_needs_no_check(schema: Any) -> None:
    assert number_check(fastavro.parse_schema(schema if isinstance(schema, dict) else "string")) is None


def test_a_schema_that_is_a_number_is_checked() -> None:
    assert found(3.7, "long") == "field (the whole) takes long, and is float"


def test_the_serializer_refuses_it_before_and_after_the_schema_is_known() -> None:
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}'

    async def work() -> None:
        with FakeRegistry() as registry:
            own = value_serializer(registry.url, schema)
            early: Any = own("orders", [], {"amount": 3.7})
            with pytest.raises(SerializationError, match=r"field Order\.amount takes int, and is float"):
                await early
            first: Any = own("orders", [], {"amount": 3})
            await first
            later: Any = own("orders", [], {"amount": 3.7})
            with pytest.raises(SerializationError, match=r"subject 'orders-value'"):
                await later
            await own.close()

    asyncio.run(work())
