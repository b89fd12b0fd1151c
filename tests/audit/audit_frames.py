"""Rows of a made-up world as the two DataFrames of an audit, in the shapes that Spark's Kafka source and claims have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from audit_reference import ClaimRow, LogRow, hashed

from aiokprod.claims import HEADER, encode_identity
from aiokprod.claims.marker import name_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLAIMS = pa.schema(
    [
        ("run", pa.int64()), ("stream", pa.int64()), ("seq", pa.int64()), ("key_hash", pa.int64()),
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("status", pa.int8()),
        ("send_us", pa.int64()), ("ack_us", pa.int64()),
    ]
)  # fmt: skip
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LOG = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)  # fmt: skip


def claims_table(claims: list[ClaimRow]) -> pa.Table:
    rows = [
        {
            "run": c.run, "stream": c.stream, "seq": c.seq, "key_hash": hashed(c.key), "topic": c.topic,
            "partition": c.partition, "offset": c.offset, "status": int(c.status), "send_us": c.send_us,
            "ack_us": c.ack_us,
        }
        for c in claims
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=CLAIMS)


def log_table(log: list[LogRow], *, append_us: int | None = None) -> pa.Table:
    """Return the log as an Arrow table; `append_us`: the broker dated the records (LogAppendTime)."""
    rows = [
        {
            "key": r.key, "value": b"v", "topic": r.topic, "partition": r.partition, "offset": r.offset,
            "timestamp": append_us or 0, "timestampType": 0 if append_us is None else 1,
            "headers": _headers(r),
        }
        for r in log
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=LOG)


def _headers(record: LogRow) -> list[dict[str, object]] | None:
    if record.run is None:  # no headers, headers of others, or one that only looks like ours
        others: list[list[dict[str, object]] | None] = [
            None, [], [{"key": "a", "value": b"b"}], [{"key": HEADER, "value": b"short"}], [{"key": HEADER, "value": None}],
        ]  # fmt: skip
        return others[record.offset % len(others)]
    identity: dict[str, object] = {"key": HEADER, "value": encode_identity(record.run, record.stream, record.seq)}
    if record.seq % 3 == 1:
        return [{"key": "a", "value": None}, identity]
    if record.seq % 6 == 2:  # sent on with the headers it came with: the last identity is its own
        older: dict[str, object] = {"key": HEADER, "value": encode_identity(record.run, record.stream, record.seq + 1)}
        return [older, identity, {"key": "b", "value": b"x"}]
    return [identity, {"key": "b", "value": b"x"}] if record.seq % 3 == 2 else [identity]


def frames(spark: SparkSession, claims: list[ClaimRow], log: list[LogRow]) -> tuple[DataFrame, DataFrame]:
    return spark.createDataFrame(claims_table(claims)), spark.createDataFrame(log_table(log))


def mark(folder: Path, run: int, stream: int, *, rows: int = 1, token: str = "", **facts: object) -> Path:
    """Write a marker, as `Claims` writes it."""
    told = {"run": run, "stream": stream, "closed": True, "rows": rows, "dropped": 0, "files": 1} | facts
    path = folder / f"_run-{name_of(run, stream)}{token}.json"
    path.write_text(json.dumps(told))
    return path
