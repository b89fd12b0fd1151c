"""`loss_check`: a number that Avro would write as another one, or a field that it would drop, is refused wherever it stands."""

from __future__ import annotations

import asyncio
from typing import Any

import fastavro
import pytest
from fake_registry import FakeRegistry
from numpy import int64

from aiokprod.errors import SerializationError
from aiokprod.integrations.schema_registry import value_serializer
from aiokprod.integrations.schema_registry.losses import loss_check

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
    check = loss_check(fastavro.parse_schema(schema))
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


@pytest.mark.parametrize("schema", ["string", {"type": "array", "items": "string"}, ["null", "long"]])
def test_a_schema_without_records_and_whole_numbers_needs_no_check(schema: Any) -> None:
    assert loss_check(fastavro.parse_schema(schema)) is None


OPTIONAL: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "string"},
        {
            "name": "leaf",
            "type": ["null", {"type": "record", "name": "Leaf", "fields": [{"name": "n", "type": "int"}]}],
        },
        {"name": "other", "type": ["null", "Leaf", "string"], "default": None},
        {"name": "count", "type": ["null", "int"], "default": None},
    ],
}


@pytest.mark.parametrize(
    ("data", "schema", "why"),
    [
        (
            {"id": "a", "HUSH": 1},
            OPTIONAL,
            "the record Order has a field that the schema lacks: it has id, leaf, other, count",
        ),
        (
            {"HUSH": 1, "SHH": 2},
            OPTIONAL,
            "the record Order has 2 fields that the schema lacks: it has id, leaf, other, count",
        ),
        (
            {"id": "a", "leaf": {"n": 1, "HUSH": 2}},
            OPTIONAL,
            "the record Leaf has a field that the schema lacks: it has n",
        ),
        ({"id": "a", "leaf": {"n": 0.5}}, OPTIONAL, "field Leaf.n takes int, and is float"),
        (
            {"n": 1, "leaves": [{"n": 1}, {"m": 1}]},
            TREE,
            "the record shop.Leaf has a field that the schema lacks: it has n",
        ),
    ],
)
def test_a_field_that_the_schema_lacks_is_found_and_not_named(data: Any, schema: Any, why: str) -> None:
    """fastavro drops it without a word."""
    assert found(data, schema) == why


@pytest.mark.parametrize(
    "data",
    [
        {"id": "a", "leaf": None},
        {"id": "a", "leaf": {"-type": "Leaf", "n": 1}},
        {"id": "a", "other": {"n": 1, "left": "to fastavro"}, "count": 0.5},
        {},
    ],
)
def test_a_record_with_fields_of_its_schema_passes(data: Any) -> None:
    assert found(data, OPTIONAL) == ""


def test_a_schema_with_many_fields_is_not_told_whole() -> None:
    fields = [{"name": f"field_{number}", "type": "string"} for number in range(500)]
    told = found({"more": 1}, {"type": "record", "name": "Wide", "fields": fields})
    assert "field_0, field_1" in told and len(told) < 300


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
