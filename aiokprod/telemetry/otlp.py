"""The bytes of OpenTelemetry's protocol for metrics (OTLP, protobuf), as far as client telemetry needs it. Pure.

Written by hand: the package with the generated classes is larger than this library.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

CUMULATIVE: Final = 2
DELTA: Final = 1
VARINT, FIXED64, LENGTH = 0, 1, 2  # wire types
_FIXED: Final = Struct("<Q")
_SIGNED: Final = Struct("<q")
_DOUBLE: Final = Struct("<d")


@dataclass(frozen=True, slots=True)
class Gauge:
    """A current value."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Sum:
    """A counter."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram: `counts[i]` values were at most `bounds[i]` and above the bound before; the last count has no bound."""

    name: str
    bounds: Sequence[float]
    counts: Sequence[int]
    total: float
    unit: str = ""


Figure = Gauge | Sum | Distribution


def varint(value: int) -> bytes:
    """Encode a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(field: int, content: bytes) -> bytes:
    """Encode a field that is a message, a text or packed numbers."""
    return varint(field << 3 | LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | VARINT) + varint(value)


def fixed(field: int, value: int) -> bytes:
    return varint(field << 3 | FIXED64) + _FIXED.pack(value)


def value_of(field_double: int, field_int: int, value: float) -> bytes:
    """Encode a value as a double, or as a whole number if it is one."""
    if isinstance(value, int):
        return varint(field_int << 3 | FIXED64) + _SIGNED.pack(value)
    return varint(field_double << 3 | FIXED64) + _DOUBLE.pack(value)


def attribute(field: int, name: str, value: str) -> bytes:
    """Encode a KeyValue with a text."""
    return message(field, text(1, name) + message(2, text(1, value)))


def encoded(
    figures: Iterable[Figure], attributes: dict[str, str], began_ns: int, now_ns: int, *, is_delta: bool
) -> bytes:
    """Encode a `MetricsData` with one resource and one scope.

    Args:
        figures: the metrics.
        attributes: of the resource.
        began_ns: when sums and histograms began to count, ns since 1970.
        now_ns: the current time, ns since 1970.
        is_delta: True: since the last push; False: since the start.
    """
    times = fixed(2, began_ns) + fixed(3, now_ns)
    temporality = number(2, DELTA if is_delta else CUMULATIVE)
    scope = message(1, text(1, "aiokprod"))
    metrics = [message(2, _metric(figure, times, now_ns, temporality)) for figure in figures]
    resource = message(1, b"".join(attribute(1, name, value) for name, value in attributes.items()))
    return message(1, resource + message(2, scope + b"".join(metrics)))


def _metric(figure: Figure, times: bytes, now_ns: int, temporality: bytes) -> bytes:
    head = text(1, figure.name) + (text(3, figure.unit) if figure.unit else b"")
    if isinstance(figure, Gauge):
        return head + message(5, message(1, fixed(3, now_ns) + value_of(4, 6, figure.value)))
    if isinstance(figure, Sum):
        return head + message(7, message(1, times + value_of(4, 6, figure.value)) + temporality + number(3, 1))
    counts = b"".join(_FIXED.pack(count) for count in figure.counts)
    bounds = b"".join(_DOUBLE.pack(bound) for bound in figure.bounds)
    point = times + fixed(4, sum(figure.counts)) + varint(5 << 3 | FIXED64) + _DOUBLE.pack(float(figure.total))
    point += message(6, counts) + message(7, bounds)
    return head + message(9, message(1, point) + temporality)
