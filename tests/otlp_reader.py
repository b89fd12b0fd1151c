"""A reader of OTLP metrics, written from the protocol's definition alone: it shares nothing with the encoder."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass
class Read:
    """One metric."""

    name: str
    unit: str
    kind: str
    value: Any
    """a number; of a histogram (bounds, counts, sum)"""
    is_delta: bool | None = None
    is_monotonic: bool | None = None
    began_ns: int = 0
    at_ns: int = 0


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            yield number, varint()
        elif wire == 1:
            yield number, data[at : at + 8]
            at += 8
        else:
            assert wire == 2, wire
            size = varint()
            assert at + size <= len(data)
            yield number, data[at : at + size]
            at += size


def only(data: bytes, number: int, default: Any = None) -> Any:
    found = [value for field, value in fields(data) if field == number]
    assert len(found) <= 1
    return found[0] if found else default


def doubles(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 8}d", data)


def fixed(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 8}Q", data)


def number_of(point: bytes) -> float:
    whole = only(point, 6)
    if whole is not None:
        return int(struct.unpack("<q", whole)[0])
    return doubles(only(point, 4))[0]


def read_metric(data: bytes) -> Read:
    read = Read(only(data, 1).decode(), only(data, 3, b"").decode(), "", None)
    for field, kind in ((5, "gauge"), (7, "sum"), (9, "histogram")):
        content = only(data, field)
        if content is None:
            continue
        read.kind = kind
        point = only(content, 1)
        read.at_ns = fixed(only(point, 3))[0]
        if kind != "gauge":
            read.began_ns = fixed(only(point, 2))[0]
            read.is_delta = only(content, 2) == 1
        if kind == "sum":
            read.is_monotonic = bool(only(content, 3))
        if kind == "histogram":
            counts = fixed(only(point, 6))
            assert fixed(only(point, 4)) == (sum(counts),)
            read.value = doubles(only(point, 7)), counts, doubles(only(point, 5))[0]
        else:
            read.value = number_of(point)
    assert read.kind
    return read


def read_metrics(data: bytes) -> tuple[dict[str, str], dict[str, Read]]:
    """Return the attributes of the resource, and the metrics by name."""
    of_resource = only(data, 1)
    attributes = {}
    for field, pair in fields(only(of_resource, 1)):
        assert field == 1
        attributes[only(pair, 1).decode()] = only(only(pair, 2), 1).decode()
    of_scope = only(of_resource, 2)
    assert only(only(of_scope, 1), 1) == b"aiokprod"
    metrics = [read_metric(value) for field, value in fields(of_scope) if field == 2]
    assert len({metric.name for metric in metrics}) == len(metrics)
    return attributes, {metric.name: metric for metric in metrics}
