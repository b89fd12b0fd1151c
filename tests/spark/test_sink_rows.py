"""From record batches to rows of one topic and bounded bytes."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from aiokprod.spark.errors import RowError
from aiokprod.spark.fingerprint import row_hash
from aiokprod.spark.rows import pieces
from aiokprod.spark.schema import ColumnPlan

MANY = 1_000_000


def batch(**columns: pa.Array) -> tuple[pa.RecordBatch, ColumnPlan]:
    plan = ColumnPlan(**{name: place for place, name in enumerate(columns)})
    return pa.record_batch(list(columns.values()), list(columns)), plan


def test_rows_of_one_topic_are_not_copied() -> None:
    values, plan = batch(value=pa.array([b"a", b"b"]))
    (rows,) = pieces(values, plan, "t", 5, MANY)
    assert (rows.topic, len(rows), rows.keys, rows.headers, rows.partitions, rows.timestamps) == (
        "t",
        2,
        None,
        None,
        None,
        None,
    )
    assert rows.values.buffers()[2].address == values.column(0).buffers()[2].address
    assert [rows.position(row) for row in range(2)] == [5, 6]


def test_rows_of_several_topics_keep_their_order_and_know_where_they_stood() -> None:
    topics = pa.array(["b", "a", "b", "a", "c"])
    values, plan = batch(
        value=pa.array([b"0", b"1", b"2", b"3", b"4"]), topic=topics, partition=pa.array([0, None, 2, 3, 4], pa.int32())
    )
    found = {rows.topic: rows for rows in pieces(values, plan, None, 10, MANY)}
    assert {topic: rows.values.to_pylist() for topic, rows in found.items()} == {
        "a": [b"1", b"3"],
        "b": [b"0", b"2"],
        "c": [b"4"],
    }
    assert found["a"].partitions.to_pylist() == [None, 3]
    assert [found["a"].position(row) for row in range(2)] == [11, 13]
    assert found["c"].position(0) == 14


def test_one_topic_in_the_column_is_as_good_as_the_option() -> None:
    values, plan = batch(value=pa.array([b"0", b"1"]), topic=pa.array(["a", "a"]))
    (rows,) = pieces(values, plan, None, 0, MANY)
    assert rows.values.buffers()[2].address == values.column(0).buffers()[2].address


def test_a_row_without_a_topic_is_named() -> None:
    values, plan = batch(value=pa.array([b"0", b"1", b"2"]), topic=pa.array(["a", "a", None]))
    with pytest.raises(RowError, match="the topic of row 102 of this task is null") as caught:
        list(pieces(values, plan, None, 100, MANY))
    assert caught.value.row == 102


def test_a_large_batch_goes_in_parts_and_a_large_row_alone() -> None:
    values, plan = batch(value=pa.array([b"x" * 1000] * 10))
    parts = list(pieces(values, plan, "t", 0, 2100))
    assert [len(part) for part in parts] == [2, 2, 2, 2, 2]
    assert [part.position(0) for part in parts] == [0, 2, 4, 6, 8]
    assert [len(part) for part in pieces(values, plan, "t", 0, 10)] == [1] * 10


def test_times_are_milliseconds_and_a_row_without_one_is_dated_now() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_999, tzinfo=UTC)
    times = pa.array([moment, None], pa.timestamp("us", "UTC"))
    values, plan = batch(value=pa.array([b"", b""]), timestamp=times)
    (rows,) = pieces(values, plan, "t", 0, MANY)
    told, now = rows.timestamps.to_pylist()
    assert told == 1767323045678
    assert 0 <= datetime.now(UTC).timestamp() * 1000 - now < 60_000


def test_a_column_without_a_single_value_is_none() -> None:
    nothing = pa.nulls(2, pa.binary())
    times, numbers = pa.nulls(2, pa.timestamp("us", "UTC")), pa.nulls(2, pa.int32())
    values, plan = batch(value=nothing, key=nothing, timestamp=times, partition=numbers)
    (rows,) = pieces(values, plan, "t", 0, MANY)
    assert (rows.keys, rows.partitions, rows.timestamps) == (None, None, None)
    assert rows.values.to_pylist() == [None, None]


def test_the_fingerprints_are_those_of_the_rows() -> None:
    values, plan = batch(value=pa.array([b"a", b"b"]), key=pa.array(["k", None]))
    (rows,) = pieces(values, plan, "t", 0, MANY)
    assert rows.fingerprints().tolist() == [row_hash(b"a", b"k"), row_hash(b"b", None)]
