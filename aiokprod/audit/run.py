"""`run`: an audit, from its two inputs to its verdict.

claims, log -> cells (kept for as long as the audit runs) -> totals, latencies, named records
log         -> order pass, if requested
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiokprod.audit.findings import WRONG, Finding
from aiokprod.audit.judging import cells, judged
from aiokprod.audit.markers import Markers, Sender
from aiokprod.audit.order import late_records
from aiokprod.audit.sides import claim_rows, log_rows, partition_and_offset
from aiokprod.audit.verdict import Latencies, LateRecord, NamedRecord, Verdict
from aiokprod.claims.rows import Status

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

MOST_NAMED: Final = 100_000
RECORDS_PER_PARTITION: Final = 1_000_000
LEAST_PARTITIONS: Final = 4
BOTH_PLACES: Final = 2  # up to this many copies, the first and the last place are all places


def run(
    spark: SparkSession,
    claims: DataFrame | str | Path,
    log: DataFrame | str | Path,
    *,
    order: bool = True,
    runs: Sequence[int] | None = None,
    partitions: int | None = None,
    most_named: int = MOST_NAMED,
    timeline: bool = False,
) -> Verdict:
    """Compare the claims with the log.

    Args:
        spark: a session of Spark 4.1 or later.
        claims: the folder that `aiokprod.claims.Claims` wrote, or a DataFrame with its columns.
        log: a DataFrame with the columns of Spark's Kafka source (`includeHeaders=true`, and a fixed `endingOffsets`, as it
            may be read more than once), or the path of a Parquet dump of one.
        order: also judge order, with a second shuffle, of the log alone.
        runs: the runs to judge; None judges all that have claims.
        partitions: of the shuffle; None for one per million claims, at least four.
        most_named: at most this many records are named, wrong ones first; counts are exact.
        timeline: also count the log's records by the second of their timestamp; reads the log once more.

    Returns:
        The verdict. `verdict.problems` lists what could not be judged.

    Raises:
        SchemaError: a required column is missing from the claims or the log.
    """
    began = time.monotonic()
    verdict = Verdict()
    markers = (Markers.of(claims, spark) if isinstance(claims, str | Path) else Markers()).of_runs(runs)
    verdict.problems.extend([*markers.incomplete.values(), *markers.others])
    claimed = spark.read.parquet(str(claims)) if isinstance(claims, str | Path) else claims
    found = spark.read.parquet(str(log)) if isinstance(log, str | Path) else log
    told = claim_rows(claimed)
    if runs is not None:
        told = told.where(told.run.isin(list(runs)))
    claims_of = _claims_of(told, markers.rows)
    verdict.problems.extend(markers.compare(claims_of))
    incomplete = set(markers.incomplete)
    rows = log_rows(found, sorted({run for run, _ in claims_of}))
    count = partitions or max(LEAST_PARTITIONS, -(-sum(claims_of.values()) // RECORDS_PER_PARTITION))
    with _kept(cells(judged(told, rows, count))) as kept:
        has_repeats, twice = _count(verdict, kept, incomplete)
        verdict.latencies = [*_latencies(kept, "ack"), *_latencies(kept, "append")]
        verdict.named = _named(kept, rows, incomplete, most_named)
    if not verdict.claims:
        verdict.problems.append("there are no claims")
    if twice:
        verdict.problems.append("two senders had the same run and stream")
    if order:
        late = late_records(rows, count, has_repeats=has_repeats)
        _judge_order(verdict, late.where(~_is_among(twice)), most_named)  # two senders have no common order
    if timeline:
        verdict.timeline = _timeline(found)
    verdict.seconds = time.monotonic() - began
    return verdict


def _claims_of(told: DataFrame, senders: Iterable[Sender]) -> dict[tuple[int, int | None], int]:
    """Count the claims by run and stream; streams of a run that are not among the senders are counted together (None)."""
    from pyspark.sql import functions as sf

    stream = sf.when(_is_among(senders), sf.col("stream")).alias("stream")
    return {(row["run"], row["stream"]): row["count"] for row in told.groupBy("run", stream).count().collect()}


def _is_among(senders: Iterable[Sender]) -> Column:
    """Return a condition: the row's run and stream are one of these."""
    from pyspark.sql import functions as sf

    return sf.concat_ws(":", "run", "stream").isin([f"{run}:{stream}" for run, stream in senders])


@contextmanager
def _kept(frame: DataFrame) -> Generator[DataFrame]:
    kept = frame.persist()
    try:
        yield kept
    finally:
        kept.unpersist()


def _count(verdict: Verdict, kept: DataFrame, incomplete: set[Sender]) -> tuple[bool, set[Sender]]:
    """Count everything for the verdict; return whether a record is repeated, and the senders of identities claimed twice."""
    from pyspark.sql import functions as sf

    totals = kept.groupBy("findings", "status", "run", "stream").agg(
        sf.sum("records").alias("records"), sf.sum("claims").alias("claims"), sf.sum("copies").alias("copies")
    )
    has_repeats = False
    twice: set[Sender] = set()
    for row in totals.collect():
        verdict.claims += row.claims
        verdict.log_records += row.copies
        findings = Finding(row.findings)
        if row.status is not None:
            verdict.statuses[Status(row.status).name.lower()] += row.records
        if Finding.NOT_OURS in findings:
            verdict.not_ours += row.copies
            continue
        if Finding.CLAIMED_TWICE in findings:
            twice.add((row.run, row.stream))
        has_repeats |= bool(findings & (Finding.DUPLICATE | Finding.REPEATED))
        if Finding.PHANTOM in findings and (row.run, row.stream) in incomplete:
            verdict.unclaimed += row.copies
            continue
        for finding in findings:
            verdict.counts[finding] += row.records
    return has_repeats, twice


def _latencies(kept: DataFrame, kind: str) -> list[Latencies]:
    from pyspark.sql import functions as sf

    bucket = f"{kind}_bucket"
    buckets: defaultdict[tuple[str, int, int], dict[int, int]] = defaultdict(dict)
    counted = kept.where(sf.col(bucket).isNotNull()).groupBy("topic", "partition", "minute", bucket)
    for row in counted.agg(sf.sum("records").alias("records")).collect():
        buckets[row.topic, row.partition, row.minute][row[bucket]] = row.records
    return [
        Latencies(kind=kind, topic=topic, partition=partition, minute=minute, buckets=dict(sorted(found.items())))
        for (topic, partition, minute), found in sorted(buckets.items())
    ]


def _timeline(log: DataFrame) -> dict[str, dict[int, int]]:
    from pyspark.sql import functions as sf

    counts: defaultdict[str, dict[int, int]] = defaultdict(dict)
    seconds = log.groupBy("topic", sf.unix_seconds("timestamp").alias("second"))
    for row in seconds.agg(sf.count(sf.lit(1)).alias("records")).collect():
        counts[row.topic][row.second] = row.records
    return dict(counts)


def _named(kept: DataFrame, log: DataFrame, incomplete: set[Sender], most: int) -> list[NamedRecord]:
    from pyspark.sql import functions as sf

    is_harmless = sf.col("findings").bitwiseAND(int(WRONG)) == 0
    is_unclaimed = (sf.col("findings").bitwiseAND(int(Finding.PHANTOM)) != 0) & _is_among(incomplete)
    named = kept.where(sf.col("run").isNotNull() & ~is_unclaimed)
    rows = named.orderBy(is_harmless, "run", "stream", "seq", "topic").limit(most).collect()
    places = _all_places(log, [row for row in rows if row.copies > BOTH_PLACES])
    return [
        NamedRecord(
            run=row.run,
            stream=row.stream,
            seq=row.seq,
            topic=row.topic,
            findings=Finding(row.findings),
            status=None if row.status is None else Status(row.status),
            told=None if row.told_place is None or row.told_place < 0 else partition_and_offset(row.told_place),
            places=tuple(
                partition_and_offset(number)
                for number in sorted(
                    places.get((row.run, row.stream, row.seq, row.topic))
                    or {place for place in (row.first_place, row.last_place) if place is not None}
                )
            ),
            copies=row.copies,
        )
        for row in rows
    ]


def _all_places(log: DataFrame, rows: Sequence[Row]) -> dict[tuple[int, int, int, str], set[int]]:
    """Find all copies of these records: reads the log again, joined with a broadcast list."""
    from pyspark.sql import functions as sf

    places: defaultdict[tuple[int, int, int, str], set[int]] = defaultdict(set)
    if rows:
        identity = ["run", "stream", "seq", "topic"]
        wanted = log.sparkSession.createDataFrame(
            [(row.run, row.stream, row.seq, row.topic) for row in rows],
            "run long, stream long, seq long, topic string",
        )
        for row in log.join(sf.broadcast(wanted), identity).select(*identity, "place").collect():
            places[row.run, row.stream, row.seq, row.topic].add(row.place)
    return places


def _judge_order(verdict: Verdict, late: DataFrame, most: int) -> None:
    from pyspark.sql import functions as sf

    with _kept(late) as kept:
        total = kept.agg(sf.count(sf.lit(1)).alias("records"), sf.max("depth").alias("deepest")).collect()[0]
        verdict.late = total.records
        verdict.deepest = total.deepest or 0
        for row in kept.orderBy("run", "stream", "seq").limit(most).collect() if total.records else ():
            partition, offset = partition_and_offset(row.place)
            verdict.named_late.append(
                LateRecord(
                    run=row.run,
                    stream=row.stream,
                    seq=row.seq,
                    topic=row.topic,
                    partition=partition,
                    offset=offset,
                    depth=row.depth,
                )
            )
