"""The audit's rate: made-up claims and a made-up log as Parquet, with planted trouble, judged by Spark on two threads.

    python bench/audit.py                        1, 2, 4, 8, 16 million records, without and with the order pass
    python bench/audit.py --records 2000000      one size
    python bench/audit.py --docs                 and the table in docs/audit.md

It checks what it measures: the planted trouble must be found exactly, in one shuffle of hash aggregates (and one more for
order). A record is one claim and its record in the log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from aiokprod import audit
from aiokprod.audit import Finding
from aiokprod.audit.judging import cells, judged
from aiokprod.audit.order import late_records
from aiokprod.audit.plans import aggregates, shuffles
from aiokprod.audit.sides import claim_rows, log_rows
from aiokprod.claims import HEADER

SIZES = (1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000)
RUN, KEYS, PARTITIONS = 77, 50_000, 12
LOST, DUPLICATES, PHANTOMS, SWAPS = 7, 5, 4, 3
PAGE = Path(__file__).resolve().parents[1] / "docs" / "audit.md"
BEGIN, END = "<!-- figures: bench/audit.py --docs -->", "<!-- end of figures -->"


def started(folder: Path, threads: int, memory: str) -> SparkSession:
    """Return a Spark session that runs on this machine alone."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master(f"local[{threads}]").appName("aiokprod-bench-audit")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def big_endian(number: Column) -> Column:
    """Return a long as its 8 bytes."""
    return sf.unhex(sf.lpad(sf.hex(number), 16, "0"))


def make(spark: SparkSession, folder: Path, records: int) -> None:
    """Write both sides. Record `id` is seq `id`; a swapped one has the place of the next record of its key."""
    rows = spark.range(records).select(
        sf.col("id").alias("seq"),
        sf.concat(sf.lit("key-"), (sf.col("id") % KEYS).cast("string")).cast("binary").alias("key"),
        ((sf.col("id") % KEYS) % PARTITIONS).cast("int").alias("partition"),
    )
    sent_us = sf.lit(1_700_000_000_000_000) + sf.col("seq") * 4
    is_first, is_second = sf.lit(False), sf.lit(False)
    for number in range(SWAPS):
        first = records // 2 + 11 * number
        is_first |= sf.col("seq") == first
        is_second |= sf.col("seq") == first + KEYS
    rows = rows.withColumn(
        "offset", sf.col("seq") + sf.when(is_first, KEYS).when(is_second, -KEYS).otherwise(0).cast("long")
    )
    rows.select(
        sf.lit(RUN).cast("long").alias("run"),
        sf.lit(0).cast("long").alias("stream"),
        "seq",
        sf.crc32("key").alias("key_hash"),
        sf.lit("orders").alias("topic"),
        "partition",
        "offset",
        sf.lit(0).cast("byte").alias("status"),
        sent_us.alias("send_us"),
        (sent_us + 1_500 + sf.col("seq") % 3_000).alias("ack_us"),
    ).write.mode("overwrite").parquet(str(folder / "claims"))

    step = records // 100
    lost = [step * (3 + number) for number in range(LOST)]
    repeated = [step * (20 + number) for number in range(DUPLICATES)]
    kept = rows.where(~sf.col("seq").isin(lost))
    copies = rows.where(sf.col("seq").isin(repeated)).withColumn("offset", sf.col("offset") + 2 * records)
    strangers = rows.where(sf.col("seq") < PHANTOMS).select(
        (sf.col("seq") + 4 * records).alias("seq"), "key", "partition", (sf.col("offset") + 3 * records).alias("offset")
    )
    identity = sf.concat(big_endian(sf.lit(RUN)), big_endian(sf.lit(0)), big_endian(sf.col("seq")))
    kept.unionByName(copies).unionByName(strangers).select(
        "key",
        sf.lit(b"value").alias("value"),
        sf.lit("orders").alias("topic"),
        "partition",
        "offset",
        sf.timestamp_micros(sent_us + 900).alias("timestamp"),
        sf.lit(1).alias("timestampType"),
        sf.array(sf.struct(sf.lit(HEADER).alias("key"), identity.alias("value"))).alias("headers"),
    ).write.mode("overwrite").parquet(str(folder / "log"))


def check(verdict: audit.Verdict, *, order: bool) -> None:
    """Check that the audit found exactly the planted trouble: a fast wrong verdict is worth nothing."""
    found = [len(verdict.identities(f)) for f in (Finding.LOST, Finding.DUPLICATE, Finding.PHANTOM)]
    assert found == [LOST, DUPLICATES, PHANTOMS], verdict.line
    assert verdict.late == (SWAPS if order else None), verdict.line
    assert sum(verdict.counts.values()) == sum(found), verdict.line


def shuffles_of(claims: DataFrame, log: DataFrame, partitions: int) -> dict[str, int]:
    """Return the number of shuffles, after checking it and the kind of aggregates."""
    rows = log_rows(log, [RUN])
    plan = cells(judged(claim_rows(claims), rows, partitions))
    late = late_records(rows, partitions, has_repeats=True)
    assert (shuffles(plan), shuffles(late)) == (1, 1)
    assert aggregates(plan) == aggregates(late) == {"HashAggregate"}
    return {"verdict": shuffles(plan), "order": shuffles(late)}


def cpu_s(spark: SparkSession) -> float:
    """Return the seconds of CPU that Spark's JVM has used, which do not depend on other work of the machine."""
    process = spark.sparkContext._gateway.proc
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(spark: SparkSession, folder: Path, records: int, rounds: int) -> list[dict[str, object]]:
    """Measure one size without order and with it; every round is reported, not the best one only."""
    claims, log = spark.read.parquet(str(folder / "claims")), spark.read.parquet(str(folder / "log"))
    told = shuffles_of(claims, log, 4)
    results: list[dict[str, object]] = []
    for order in (False, True):
        seconds, cpu_seconds = [], []
        for _ in range(rounds):
            began, cpu = time.perf_counter(), cpu_s(spark)
            verdict = audit.run(spark, claims, log, order=order)
            seconds.append(time.perf_counter() - began)
            cpu_seconds.append(cpu_s(spark) - cpu)
            check(verdict, order=order)
        middle, cpu = sorted(seconds)[rounds // 2], sorted(cpu_seconds)[rounds // 2]
        results.append(
            {
                "records": records,
                "order": order,
                "seconds": [round(each, 2) for each in seconds],
                "records_per_s": round(records / middle),
                "cpu_us_per_record": round(cpu / records * 1e6, 2),
                "shuffles": told["verdict"] + (told["order"] if order else 0),
            }
        )
        print(json.dumps(results[-1]), flush=True)
    return results


def table(results: list[dict[str, object]]) -> str:
    """Return a Markdown table: one line per size, medians of the rounds."""
    lines = [
        "| records | without order: s | records/s | CPU, us | with order: s | records/s | CPU, us |",
        "|---|---|---|---|---|---|---|",
    ]
    for plain, ordered in zip(results[::2], results[1::2], strict=True):
        cells = [f"{int(str(plain['records'])) / 1e6:g} M"]
        for each in (plain, ordered):
            records, rate = int(str(each["records"])), int(str(each["records_per_s"]))
            cells += [f"{records / rate:.1f}", f"{rate:,}", f"{each['cpu_us_per_record']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="*", default=SIZES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="4g", help="of the driver, which is all of Spark here")
    parser.add_argument("--least", type=int, default=0, help="exit status 1 below so many records/s without order")
    parser.add_argument("--out", type=Path, help="all figures as JSON")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/audit.md")
    parser.add_argument("--folder", type=Path, help="keep both sides there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        spark = started(Path(scratch), options.threads, options.memory)
        try:
            make(spark, folder / "warm", 200_000)
            measure(spark, folder / "warm", 200_000, 1)  # warm-up: the JVM compiles the code before it is measured
            results = []
            for records in options.records:
                make(spark, folder / str(records), records)
                results += measure(spark, folder / str(records), records, options.rounds)
        finally:
            spark.stop()
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    if options.docs:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{rest.partition(END)[2]}")
    slow = [result for result in results if not result["order"] and int(str(result["records_per_s"])) < options.least]
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
