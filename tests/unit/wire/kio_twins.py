"""Twins: the same values as one of our messages and as kio's, another implementation generated from Kafka's definitions.

kio gives some fields types of its own: error codes are an enum, milliseconds are timedeltas and datetimes (their names
lose `_ms`), a zero uuid and a datetime of -1 are None. The values below keep to what both can hold.
"""

from __future__ import annotations

import importlib
import io
import pkgutil
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from random import Random
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

import aiokprod.wire.messages
from aiokprod.wire.reader import ZERO_UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_DATETIME_MS = 95617584000000  # the year 5000; eighths of a second, because kio computes with floats
MODES = ("least", "null", "most", "any", "any", "any", "any", "any")
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TEXTS = ("", "orders", "größe-日本-\U0001f680", "a\0b", "x" * 127, "y" * 128, "é" * 200)
BLOBS = (b"", b"\0", bytes(range(256)), b"z" * 16384)


def all_messages() -> list[type[Any]]:
    """Return every generated request and response."""
    found: list[type[Any]] = []
    for info in pkgutil.iter_modules(aiokprod.wire.messages.__path__):
        module = importlib.import_module(f"aiokprod.wire.messages.{info.name}")
        found += [
            value
            for value in vars(module).values()
            if hasattr(value, "API_KEY") and value.__module__ == module.__name__
        ]
    return found


def kio_twin(message: type[Any], version: int) -> type[Any]:
    """Return kio's class; raises KioIndexError when it has none."""
    load = load_request_schema if message.__name__.endswith("Request") else load_response_schema
    return load(message.API_KEY, version)


def kio_encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_decode(kind: type[Any], data: bytes) -> Any:
    entity, size = entity_reader(kind)(data, 0)
    assert size == len(data)
    return entity


def twins(message: type[Any], kio: type[Any], mode: str, random: Random) -> tuple[Any, Any]:
    """Return the same values in both classes."""
    hints, kio_hints = get_type_hints(message), get_type_hints(kio)
    ours: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for item in fields(kio):
        name = our_name(message, item.name)
        ours[name], theirs[item.name] = _field(hints[name], kio_hints[item.name], item.metadata, mode, random)
    return message(**ours), kio(**theirs)


def valid_bodies(message: type[Any], version: int, seed: int) -> Iterator[bytes]:
    """Yield bodies of this message, from empty to rich."""
    kio = kio_twin(message, version)
    for count, mode in enumerate(MODES[:5]):
        yield kio_encode(twins(message, kio, mode, Random(f"{message.__name__} {version} {seed} {count}"))[1])


def our_name(message: type[Any], kio_name: str) -> str:
    names = {item.name for item in fields(message)}
    (name,) = names & {kio_name, f"{kio_name}_ms", f"{kio_name}_"}
    return name


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) not in (UnionType, Union):
        return hint, False
    inner = [each for each in get_args(hint) if each is not type(None)]
    return inner[0], len(inner) < len(get_args(hint))


def _field(hint: Any, kio_hint: Any, metadata: Any, mode: str, random: Random) -> tuple[Any, Any]:
    hint, nullable = _without_none(hint)
    kio_hint, kio_nullable = _without_none(kio_hint)
    kind = metadata.get("kafka_type")
    can_be_null = kio_nullable and (nullable or kind == "datetime_i64") and kind != "uuid"
    if can_be_null and (mode == "null" or (mode == "any" and random.random() < 0.2)):
        return -1 if kind == "datetime_i64" else None, None
    if get_origin(kio_hint) is tuple:
        (our_element,), kio_element = get_args(hint), get_args(kio_hint)[0]
        size = {"least": 0, "null": 1, "most": 2}.get(mode, random.choice((0, 1, 1, 2, 3)))
        if mode == "any" and kind is not None and random.random() < 0.05:
            size = 130  # a compact length of two bytes
        pairs = [_value(our_element, kio_element, kind, mode, random) for _ in range(size)]
        return [ours for ours, _ in pairs], tuple(theirs for _, theirs in pairs)
    return _value(hint, kio_hint, kind, mode, random)


def _value(hint: Any, kio_hint: Any, kind: str | None, mode: str, random: Random) -> tuple[Any, Any]:
    match kind:
        case None:
            return twins(hint, kio_hint, mode, random)
        case "bool":
            flag = {"least": False, "most": True}.get(mode, random.random() < 0.5)
            return flag, flag
        case "string":
            text = {"least": "", "most": TEXTS[-1]}.get(mode, random.choice(TEXTS))
            return text, text
        case "bytes" | "records":
            blob = {"least": b"", "most": BLOBS[-1]}.get(mode, random.choice(BLOBS))
            return blob, blob
        case "uuid":
            raw = {"least": ZERO_UUID, "most": b"\xff" * 16}.get(mode, random.choice((ZERO_UUID, random.randbytes(16))))
            return raw, None if raw == ZERO_UUID else UUID(bytes=raw)
        case "error_code":
            code = random.choice(list(KioErrorCode))
            return code.value, code
        case "float64":
            number = {"least": 0.0, "most": 1.7976931348623157e308}.get(mode, random.uniform(-1e9, 1e9))
            return number, number
        case "timedelta_i32" | "timedelta_i64":
            delta_ms = _int(32 if kind == "timedelta_i32" else 50, mode, random)
            return delta_ms, timedelta(milliseconds=delta_ms)
        case "datetime_i64":
            at_ms = {"least": 0, "most": LAST_DATETIME_MS}.get(mode, random.randrange(0, LAST_DATETIME_MS, 125))
            return at_ms, EPOCH + timedelta(milliseconds=at_ms)
        case "uint16":
            unsigned = {"least": 0, "most": 65535}.get(mode, random.randrange(65536))
            return unsigned, unsigned
        case _:
            number = _int(BITS[kind], mode, random)
            return number, number


def _int(bits: int, mode: str, random: Random) -> int:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return {"least": 0, "most": high, "null": low}.get(
        mode, random.choice((-1, 0, 1, low, high, random.randint(low, high)))
    )
