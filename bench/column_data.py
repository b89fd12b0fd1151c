"""The records of a job as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import pyarrow as pa
from job import Job, Row

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


def columns_of(job: Job) -> tuple[Any, Any, Any]:
    """Return values, keys and headers; None for what the records do not have."""
    size = len(job.value())
    data = job.value() * job.count
    form = pa.int64() if len(data) >= 2**31 else pa.int32()
    ends = pa.array(range(0, size * (job.count + 1), size), form)
    kind = pa.large_binary() if form == pa.int64() else pa.binary()
    values = pa.Array.from_buffers(kind, job.count, [None, ends.buffers()[1], pa.py_buffer(data)])
    keys = headers = None
    if job.keys:
        distinct = pa.array(job.key_list(), pa.binary())
        keys = distinct.take(pa.array([number % job.keys for number in range(job.count)], pa.int32()))
    if job.headers:
        one = pa.array([[{"key": name, "value": value} for name, value in job.header_list()]], pa.list_(PAIR))
        headers = one.take(pa.array([0] * job.count, pa.int32()))
    return values, keys, headers


def rows_of(values: Any, keys: Any, headers: Any) -> Iterator[Row]:
    """Return the records as Python objects, by `to_pylist()`."""
    of_keys = repeat(None) if keys is None else keys.to_pylist()
    pairs = repeat(None) if headers is None else map(header_pairs, headers.to_pylist())
    return zip(values.to_pylist(), of_keys, pairs, strict=False)


def header_pairs(headers: Any) -> list[tuple[str, bytes]]:
    return [(header["key"], header["value"]) for header in headers]
