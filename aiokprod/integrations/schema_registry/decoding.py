"""`Decoder`: from the bytes that a serializer of any language has written to plain values."""

from __future__ import annotations

import base64
import io
import json
from importlib import import_module
from typing import Any, Final, cast
from uuid import UUID

from aiokprod.errors import SerializationError

MAGIC: Final = 0
MAGIC_OF_GUID: Final = 1
LONGEST_SHIFT: Final = 63
"""bits in front of the last byte of a varint"""
OF_KEY: Final = "__key_schema_id"
OF_VALUE: Final = "__value_schema_id"
NO_ID: Final = "the data does not begin with the id of a schema (byte 0 and four bytes), nor is one in a header"


class Decoder:
    """Reads keys and values; asks the registry once for each schema."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._known: dict[int | str, Any] = {}

    async def decode(self, data: bytes, is_key: bool, headers: list[tuple[str, bytes | None]]) -> Any:
        """Return the value of these bytes.

        Args:
            data: the bytes.
            is_key: True for a key.
            headers: of the record.

        Raises:
            SerializationError: they have no id, or do not fit their schema.
        """
        name, payload = identity_of(data, is_key, headers)
        read = self._known.get(name)
        if read is None:
            read = self._known[name] = await self._reader(name)
        try:
            return read(payload)
        except SerializationError:
            raise
        except Exception as broken:  # its text may have contents of the record
            what = f"the data does not fit the schema with the id {name}: {type(broken).__name__}"
            raise SerializationError(what) from None

    async def _reader(self, name: int | str) -> Any:
        """Return the function that reads the data of a schema."""
        if isinstance(name, int):
            schema = await self._client.get_schema(name)
        else:
            schema = await self._client.get_schema_by_guid(name)
        kind = schema.schema_type or "AVRO"
        if kind == "PROTOBUF":
            await (
                self._client.clear_caches()
            )  # else it gives the text of the .proto file again, and not the descriptors
            asked = self._client.get_schema if isinstance(name, int) else self._client.get_schema_by_guid
            schema = await asked(name, fmt="serialized")
            return await self._protobuf_reader(name, schema.schema_str, schema.references)
        if kind == "AVRO":
            return await self._avro_reader(schema)
        if kind == "JSON":
            return json.loads
        raise SerializationError(f"the schema with the id {name} is of the type {kind}, which is not known here")

    async def _avro_reader(self, schema: Any) -> Any:
        fastavro: Any = import_module("fastavro")
        named: dict[str, Any] = {}

        async def add(references: Any) -> None:
            for each in references or ():
                found = await self._client.get_version(each.subject, each.version, True)
                await add(found.schema.references)
                fastavro.parse_schema(json.loads(found.schema.schema_str), named_schemas=named)

        await add(schema.references)
        text = schema.schema_str.strip()
        parsed = fastavro.parse_schema(json.loads(text) if text[:1] in '{["' else text, named_schemas=named)
        of_dict = as_dict(parsed)
        plain_bytes = parsed == "bytes" or (of_dict.get("type") == "bytes" and not of_dict.get("logicalType"))

        def read(payload: bytes) -> Any:
            if plain_bytes:
                return payload  # as confluent's serializers write it, without its length
            return fastavro.schemaless_reader(io.BytesIO(payload), parsed, None)

        return read

    async def _protobuf_reader(self, name: int | str, text: str, references: Any) -> Any:
        descriptors: Any = import_module("google.protobuf.descriptor_pb2")
        pool: Any = import_module("google.protobuf.descriptor_pool").DescriptorPool()
        factory: Any = import_module("google.protobuf.message_factory")
        as_json: Any = import_module("google.protobuf.json_format")
        seen: set[str] = set()

        def add_known(file: Any) -> None:
            """Add a file that comes with the packages of others, after those that it imports."""
            if file.name not in seen:
                seen.add(file.name)
                for each in file.dependencies:
                    add_known(each)
                made = descriptors.FileDescriptorProto()
                file.CopyToProto(made)
                pool.Add(made)

        def file_of(file_name: str, encoded: str) -> Any:
            file = descriptors.FileDescriptorProto()
            try:
                file.ParseFromString(base64.standard_b64decode(encoded.encode("ascii")))
            except Exception:
                raise SerializationError(
                    f"the registry gives the Protobuf schema with the id {name} as text alone, which cannot be read here"
                ) from None
            file.name = file_name
            return file

        async def add(found: Any) -> None:
            for each in found or ():
                if each.name in seen:
                    continue
                seen.add(each.name)
                version = await self._client.get_version(each.subject, each.version, True, "serialized")
                await add(version.schema.references)
                add_own(file_of(each.name, version.schema.schema_str))

        def add_own(file: Any) -> None:
            for each in file.dependency:
                if each not in seen:
                    add_known(known_file(each))
            pool.Add(file)

        await add(references)
        add_own(file_of("default", text))
        descriptor = pool.FindFileByName("default")

        def read(payload: bytes) -> Any:
            indexes, at = message_indexes(payload)
            kind = list(descriptor.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                kind = kind.nested_types[index]
            message = factory.GetMessageClass(kind)()
            message.ParseFromString(payload[at:])
            return as_json.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)

        return read


def as_dict(found: Any) -> dict[str, Any]:
    """Return a dict as it is, and an empty one for anything else.

    Args:
        found: of a schema.
    """
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def identity_of(data: bytes, is_key: bool, headers: list[tuple[str, bytes | None]]) -> tuple[int | str, bytes]:
    """Return the id or GUID of the schema, and what is behind it.

    Args:
        data: the bytes of a key or value.
        is_key: True for a key.
        headers: of the record.

    Raises:
        SerializationError: there is none.
    """
    wanted = OF_KEY if is_key else OF_VALUE
    for name, value in headers:
        if name == wanted and value is not None:
            return identity_of(value + data, is_key, [])  # the indexes of a message are in the header, too
    if len(data) >= 5 and data[0] == MAGIC:
        return int.from_bytes(data[1:5], "big"), data[5:]
    if len(data) >= 17 and data[0] == MAGIC_OF_GUID:
        return str(UUID(bytes=data[1:17])), data[17:]
    raise SerializationError(NO_ID)


def known_file(name: str) -> Any:
    """Return the descriptor of a file that needs no reference, as google/protobuf/timestamp.proto.

    Args:
        name: of the file.

    Raises:
        SerializationError: it is not known here.
    """
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if module.startswith("confluent."):
        module = f"confluent_kafka.schema_registry.{module}"
    try:
        if not module.startswith(("google.", "confluent_kafka.")):
            raise ModuleNotFoundError
        return import_module(module).DESCRIPTOR
    except ModuleNotFoundError:
        raise SerializationError(f"the schema imports {name!r}, and the registry has no reference to it") from None


def message_indexes(payload: bytes) -> tuple[list[int], int]:
    """Return which message of its file it is (outermost first), and where it begins.

    Args:
        payload: the bytes behind the id.

    Raises:
        IndexError: they end too early.
    """
    count, at = zigzag(payload, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= len(payload):
        raise IndexError("more message indexes than bytes")
    found: list[int] = []
    for _ in range(count):
        index, at = zigzag(payload, at)
        found.append(index)
    return found, at


def zigzag(data: bytes, at: int) -> tuple[int, int]:
    """Return the zigzag varint at a place, and the place behind it.

    Args:
        data: the bytes.
        at: where it begins.

    Raises:
        IndexError: the data ends in it, or it is longer than any number of 64 bits.
    """
    value = shift = 0
    while True:
        if shift > LONGEST_SHIFT:
            raise IndexError("a number of more than ten bytes")  # a megabyte of them would take minutes to add up
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
