"""Helpers of the tests of `send_columns`: columns of rows, and the two ways to encode them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import accumulate

import pytest

from aiokprod import BytesColumn, ColumnsReport, HeadersColumn, Producer
from aiokprod.pipeline.columns import column_encoder
from aiokprod.records.column_rows import Encoder, PlainEncoder
from aiokprod.testing import MockCluster

ENCODERS = ["plain", *(["vectorised"] if find_spec("pyarrow") and find_spec("numpy") else [])]


@pytest.fixture(params=ENCODERS, autouse=True)
def encoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with each way of encoding columns."""
    one: Encoder = PlainEncoder()
    if request.param == "vectorised":
        from aiokprod.records.vectorised import VectorEncoder

        one = VectorEncoder()
    monkeypatch.setattr(column_encoder, "KNOWN", [one])


NUMBERS = [b"%d" % number for number in range(5_000)]


def column(rows: Sequence[bytes | None]) -> BytesColumn:
    data = [row or b"" for row in rows]
    bits = sum(1 << at for at, row in enumerate(rows) if row is not None)
    nulls = bits.to_bytes((len(rows) + 7) // 8, "little") if None in rows else None
    return BytesColumn(array("i", accumulate(map(len, data), initial=0)), b"".join(data), nulls)


def headers_column(rows: Sequence[Sequence[tuple[bytes, bytes | None]]]) -> HeadersColumn:
    pairs = [pair for row in rows for pair in row]
    offsets = array("i", accumulate(map(len, rows), initial=0))
    return HeadersColumn(offsets, column([name for name, _ in pairs]), column([value for _, value in pairs]))


def told(report: ColumnsReport, cluster: MockCluster, topic: str = "t") -> None:
    """Check that the report agrees with the log."""
    for (name, number), partition in report.partitions.items():
        assert name == topic
        offsets = [record.offset for record in cluster.records(topic, number)]
        assert partition.count == len(offsets)
        assert (partition.first_offset, partition.last_offset) == (offsets[0], offsets[-1])
        assert partition.bytes > 0
        assert not partition.failed
    assert report.delivered == sum(partition.count for partition in report.partitions.values())


def room(size: int) -> dict[str, int]:
    """Return options for a buffer of so many bytes."""
    return {"buffer_memory": size, "max_request_size": size}


def nothing_is_held(producer: Producer) -> None:
    assert producer.metrics()["buffer_used_bytes"] == 0
