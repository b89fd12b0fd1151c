"""The output of an audit: one folder with a JSON summary, Parquet of everything named and measured, and a page.

    summary.json        the verdict, its counts, the first identities of each finding
    findings.parquet    every named record: identity, findings, acknowledged place, places in the log
    latencies.parquet   quantiles by topic, partition and minute
    index.html          the same for people, with plots

All of it is small and written by the driver, into a folder of its machine.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokprod.audit.latency import quantiles_us
from aiokprod.audit.page import page
from aiokprod.audit.verdict import Verdict, names_of

if TYPE_CHECKING:
    import pyarrow


FILES: Final = ("summary.json", "findings.parquet", "latencies.parquet", "index.html")


def write(verdict: Verdict, folder: str | Path) -> None:
    """Write the folder; files of an earlier audit in it are replaced.

    Raises:
        OSError: the folder cannot be written to.
    """
    import pyarrow.parquet as pq

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    summary, findings, latencies, index = (folder / name for name in FILES)
    summary.write_text(json.dumps(verdict.as_json(), indent=2) + "\n")
    pq.write_table(findings_table(verdict), findings)
    pq.write_table(latencies_table(verdict), latencies)
    index.write_text(page(verdict), encoding="utf-8")


def check(folder: str | Path) -> None:
    """Check that `write` can make its files in a folder, which need not exist; nothing of the check is left.

    Raises:
        OSError: it cannot.
    """
    folder = Path(folder)
    for path in (folder / name for name in FILES):
        if path.exists():  # of an earlier audit: replaced, if it may be written to
            with path.open("ab"):
                pass
    there = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        error.filename = str(folder)
        raise


def findings_table(verdict: Verdict) -> pyarrow.Table:
    """Make a table with a row per named record, the late ones last (only these have a `depth`)."""
    import pyarrow as pa

    place = pa.struct([("partition", pa.int32()), ("offset", pa.int64())])
    schema = pa.schema(
        [
            ("run", pa.int64()), ("stream", pa.int64()), ("seq", pa.int64()), ("topic", pa.string()),
            ("findings", pa.string()), ("status", pa.string()), ("told", place), ("places", pa.list_(place)),
            ("copies", pa.int64()), ("depth", pa.int64()),
        ]
    )  # fmt: skip
    rows: list[dict[str, object]] = [
        {
            "run": record.run,
            "stream": record.stream,
            "seq": record.seq,
            "topic": record.topic,
            "findings": names_of(record.findings),
            "status": None if record.status is None else record.status.name.lower(),
            "told": None if record.told is None else _place(*record.told),
            "places": [_place(*where) for where in record.places],
            "copies": record.copies,
            "depth": None,
        }
        for record in verdict.named
    ]
    rows.extend(
        {
            "run": late.run,
            "stream": late.stream,
            "seq": late.seq,
            "topic": late.topic,
            "findings": "reordered",
            "status": None,
            "told": None,
            "places": [_place(late.partition, late.offset)],
            "copies": None,
            "depth": late.depth,
        }
        for late in verdict.named_late
    )
    return pa.Table.from_pylist(rows, schema=schema)


def _place(partition: int, offset: int) -> dict[str, int]:
    return {"partition": partition, "offset": offset}


def latencies_table(verdict: Verdict) -> pyarrow.Table:
    """Make a table with a row per kind, topic, partition and minute, in microseconds."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("kind", pa.string()), ("topic", pa.string()), ("partition", pa.int32()),
            ("minute", pa.timestamp("s", "UTC")), ("records", pa.int64()),
            *((name, pa.float64()) for name in ("p50", "p90", "p99", "p99.9", "max")),
        ]
    )  # fmt: skip
    rows = [
        {
            "kind": each.kind,
            "topic": each.topic,
            "partition": each.partition,
            "minute": each.minute * 60,
            "records": sum(each.buckets.values()),
            **quantiles_us(each.buckets),
        }
        for each in verdict.latencies
    ]
    return pa.Table.from_pylist(rows, schema=schema)
