"""The encoder of OTLP, against a reader of its own and known bytes."""

from __future__ import annotations

import pytest
from otlp_reader import Read, read_metrics

from aiokprod.telemetry.otlp import Distribution, Gauge, Sum, encoded, varint


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (2**32, b"\x80\x80\x80\x80\x10")],
)
def test_numbers_have_as_many_bytes_as_they_need(value: int, data: bytes) -> None:
    assert varint(value) == data


def test_every_kind_of_metric_is_read_back() -> None:
    figures = [
        Gauge("g", 2.5, "By"),
        Gauge("whole", -3),
        Sum("s", 2**40, "s"),
        Distribution("h", (0.5, 1.0), (1, 0, 200), 7.25, "s"),
        Distribution("empty", (1.0,), (0, 0), 0),
    ]
    attributes, metrics = read_metrics(encoded(figures, {"transactional_id": "ü"}, 5, 2**62, is_delta=True))
    assert attributes == {"transactional_id": "ü"}
    assert metrics == {
        "g": Read("g", "By", "gauge", 2.5, at_ns=2**62),
        "whole": Read("whole", "", "gauge", -3, at_ns=2**62),
        "s": Read("s", "s", "sum", 2**40, True, True, 5, 2**62),
        "h": Read("h", "s", "histogram", ((0.5, 1.0), (1, 0, 200), 7.25), True, None, 5, 2**62),
        "empty": Read("empty", "", "histogram", ((1.0,), (0, 0), 0.0), True, None, 5, 2**62),
    }


def test_sums_since_the_start_say_so() -> None:
    _, metrics = read_metrics(encoded([Sum("s", 1)], {}, 5, 9, is_delta=False))
    assert metrics["s"].is_delta is False


def test_no_metrics_are_a_message_too() -> None:
    assert read_metrics(encoded([], {}, 1, 2, is_delta=True)) == ({}, {})


def test_the_bytes_of_a_sum_are_those_of_the_protocol() -> None:
    data = encoded([Sum("s", 1)], {}, 1, 2, is_delta=False)
    point = b"\x11" + bytes([1, 0, 0, 0, 0, 0, 0, 0]) + b"\x19" + bytes([2, 0, 0, 0, 0, 0, 0, 0])
    point += b"\x31" + bytes([1, 0, 0, 0, 0, 0, 0, 0])
    metric = b"\x0a\x01s" + b"\x3a\x21" + b"\x0a\x1b" + point + b"\x10\x02\x18\x01"
    scope = b"\x0a\x0a\x0a\x08aiokprod" + b"\x12" + bytes([len(metric)]) + metric
    whole = b"\x0a\x00" + b"\x12" + bytes([len(scope)]) + scope
    assert data == b"\x0a" + bytes([len(whole)]) + whole
