"""`SchemaRegistry.decode`: what serializers have written is read again, and damaged bytes are an error of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fake_registry import FakeRegistry
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.errors import SerializationError
from aiokprod.integrations.schema_registry import RegistryError, SchemaRegistry, key_serializer, value_serializer
from aiokprod.integrations.schema_registry.decoding import message_indexes

ORDER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}]}'
)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as started:
        yield started


def both_ways(registry: FakeRegistry, schema: Any, data: Any, **options: Any) -> Any:
    """Write a value and read it with another client."""

    async def work() -> Any:
        own = value_serializer(registry.url, schema, **options)
        headers: list[tuple[str, bytes | None]] = []
        written = own("orders", headers, data)
        assert written is not None and not isinstance(written, bytes)
        found = await written
        await own.close()
        reader = SchemaRegistry(registry.url)
        try:
            return await reader.decode(found, headers=headers)
        finally:
            await reader.close()

    return asyncio.run(work())


def decode(registry: FakeRegistry, data: bytes | None, **more: Any) -> Any:
    async def work() -> Any:
        reader = SchemaRegistry(registry.url, options={"max.retries": 0})
        try:
            return await reader.decode(data, **more)
        finally:
            await reader.close()

    return asyncio.run(work())


@pytest.mark.parametrize("place", ["prefix", "header"])
@pytest.mark.parametrize(
    ("schema", "format", "data"),
    [
        (ORDER, None, {"id": "a7", "n": 2**40}),
        ('"bytes"', None, b"\x00\xff"),
        ('{"type": "array", "items": "int"}', None, [1, 2]),
        ('{"title": "T", "type": "object"}', "json", {"a": [1, None, "x"]}),
    ],
)
def test_what_was_written_is_read(registry: FakeRegistry, place: Any, schema: str, format: Any, data: Any) -> None:
    assert both_ways(registry, schema, data, format=format, schema_id=place) == data


@pytest.mark.parametrize("place", ["prefix", "header"])
def test_protobuf_is_read_without_generated_classes(registry: FakeRegistry, place: Any) -> None:
    from google.protobuf.api_pb2 import Api, Method
    from google.protobuf.descriptor_pb2 import DescriptorProto
    from google.protobuf.struct_pb2 import Struct

    struct = Struct()
    struct.update({"id": "a7", "amounts": [1, 2.5]})
    assert both_ways(registry, Struct, struct, schema_id=place) == {"id": "a7", "amounts": [1.0, 2.5]}
    api = Api(name="shop", methods=[Method(name="buy")])  # its file imports others
    assert both_ways(registry, Api, api, schema_id=place) == {"name": "shop", "methods": [{"name": "buy"}]}
    inner = DescriptorProto.ExtensionRange(start=3, end=5)  # a message in a message
    assert both_ways(registry, DescriptorProto.ExtensionRange, inner, schema_id=place) == {"start": 3, "end": 5}


def test_protobuf_that_imports_a_registered_file_is_read(registry: FakeRegistry) -> None:
    from google.protobuf.api_pb2 import Api

    done = both_ways(registry, Api, Api(name="shop"), options={"skip.known.types": False})
    assert done == {"name": "shop"} and len(registry.subjects) > 1


def test_a_registry_that_has_protobuf_as_text_alone_is_told(registry: FakeRegistry) -> None:
    number = registry.add("x", 'syntax = "proto3"; message A {}', "PROTOBUF")
    with pytest.raises(SerializationError, match="as text alone"):
        decode(registry, b"\x00" + number.to_bytes(4, "big") + b"\x00")


def test_avro_with_references_is_read(registry: FakeRegistry) -> None:
    registry.add("money", '{"type": "record", "name": "Money", "fields": [{"name": "n", "type": "int"}]}')
    text = '{"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": "Money"}]}'
    references = [{"name": "Money", "subject": "money", "version": 1}]
    number = registry.add("bills", text, references=references)
    assert decode(registry, b"\x00" + number.to_bytes(4, "big") + b"\x0a") == {"sum": {"n": 5}}


def test_a_key_is_read_by_the_header_of_keys(registry: FakeRegistry) -> None:
    async def work() -> Any:
        own = key_serializer(registry.url, '"string"', schema_id="header")
        headers: list[tuple[str, bytes | None]] = []
        written: Any = own("orders", headers, "k")
        found = await written
        await own.close()
        reader = SchemaRegistry(registry.url)
        with pytest.raises(SerializationError):
            await reader.decode(found, headers=headers)
        read = await reader.decode(found, is_key=True, headers=headers)
        await reader.close()
        return read

    assert asyncio.run(work()) == "k"


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x00", b"{}", b"\x02\x00\x00\x00\x01x"])
def test_data_without_an_id_is_told(registry: FakeRegistry, data: bytes) -> None:
    with pytest.raises(SerializationError, match="id of a schema") as caught:
        decode(registry, data, topic="orders")
    assert caught.value.topic == "orders" and not registry.requests


def test_data_that_does_not_fit_is_told_without_its_contents(registry: FakeRegistry) -> None:
    number = registry.add("orders-value", ORDER)
    with pytest.raises(SerializationError, match=f"does not fit the schema with the id {number}") as caught:
        decode(registry, b"\x00" + number.to_bytes(4, "big") + b"\x50hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_schema_that_is_not_there_is_told(registry: FakeRegistry) -> None:
    with pytest.raises(RegistryError, match="does not have this schema") as caught:
        decode(registry, b"\x00\x00\x00\x00\x63x")
    assert not caught.value.retriable
    assert decode(registry, None) is None


def test_each_schema_is_asked_for_once(registry: FakeRegistry) -> None:
    number = registry.add("orders-value", '"string"')

    async def work() -> None:
        reader = SchemaRegistry(registry.url)
        for _ in range(3):
            assert await reader.decode(b"\x00" + number.to_bytes(4, "big") + b"\x02x") == "x"
        await reader.close()

    asyncio.run(work())
    assert registry.requests == ["GET /schemas/ids/1"]


@given(st.binary(max_size=12))
def test_the_indexes_of_any_bytes_end_well(data: bytes) -> None:
    try:
        found, at = message_indexes(data)
    except IndexError:
        return
    assert found and 0 < at <= len(data)


def test_a_number_without_an_end_is_refused_after_ten_bytes() -> None:
    with pytest.raises(IndexError, match="more than ten bytes"):
        message_indexes(b"\xff" * 1_000_000 + b"\x01")
    with pytest.raises(IndexError):
        message_indexes(b"\xff" * 5)
