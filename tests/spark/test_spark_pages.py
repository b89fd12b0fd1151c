"""The programs of docs/spark.md and docs/audit.md run against a cluster in this process. tests/pages checks their types."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from aiokprod import audit
from aiokprod.spark import register
from aiokprod.testing import MockCluster

pytestmark = pytest.mark.slow

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
WORDS: Final = ["a", "b", "a", "c", "a", "b"]
LIMIT_S: Final = 600.0
ORDERS: Final = [str(number) for number in range(40)]


def blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


SPARK_TEXT: Final = (DOCS / "spark.md").read_text(encoding="utf-8")
SPARK_PAGE: Final = blocks("spark.md")
AUDIT_PAGE: Final = blocks("audit.md")


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as started:
        for topic in ("orders", "counts"):
            started.create_topic(topic, partitions=3)
        yield started


@pytest.fixture(autouse=True)
def registered(spark: SparkSession) -> None:
    register(spark)


def run(text: str, cluster: MockCluster, folder: Path, **names: Any) -> dict[str, Any]:
    """Run a program of a page with what the page takes for granted, in a folder of its own."""
    text = text.replace("localhost:9092", cluster.bootstrap_servers).replace('"/tmp/', f'"{folder}/')
    text = text.replace('"claims/"', f'"{folder}/claims/"')  # the folder of Spark's JVM is another one
    exec(compile(text, "a page", "exec"), names)
    return names


def frame(spark: SparkSession, rows: list[str]) -> DataFrame:
    return spark.createDataFrame([(row, row) for row in rows], "key string, value string")


def stream(spark: SparkSession, folder: Path, rows: list[str], column: str) -> DataFrame:
    """Return a stream of rows that are there already."""
    spark.createDataFrame([(row,) for row in rows], f"{column} string").write.parquet(str(folder))
    return spark.readStream.schema(f"{column} string").parquet(str(folder))


def values(cluster: MockCluster, topic: str, *, committed: bool = False) -> list[str]:
    return sorted((record.value or b"").decode() for record in cluster.records(topic, committed=committed))


def end_streams(spark: SparkSession) -> None:
    """Let each stream write what is there, and end it."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def test_a_frame_is_written(spark: SparkSession, cluster: MockCluster, tmp_path: Path) -> None:
    run(SPARK_PAGE[0], cluster, tmp_path, df=frame(spark, ORDERS))
    assert values(cluster, "orders") == sorted(ORDERS)


def test_a_stream_is_written_and_its_claims_are_compared_with_the_log(
    spark: SparkSession, cluster: MockCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Rows that end, instead of a source of rows that a stop would interrupt in the middle of a batch.
    spark.range(5_000).selectExpr("current_timestamp() as timestamp", "id as value").write.parquet(
        str(tmp_path / "rows")
    )
    rows = spark.readStream.schema("timestamp timestamp, value long").parquet(str(tmp_path / "rows"))
    text = SPARK_PAGE[1]
    for old, new in (
        ('spark.readStream.format("rate").option("rowsPerSecond", 1000).load()', "rows"),
        ("query.awaitTermination(60)", "query.processAllAvailable()"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    run(text, cluster, tmp_path, rows=rows)
    assert len(cluster.records("orders")) == 5_000
    assert {"timestamp", "value"} <= set(json.loads(values(cluster, "orders")[0]))
    names = run(SPARK_PAGE[2], cluster, tmp_path, spark=spark)
    claimed = {
        row["partition"]: row["sum(count)"] for row in names["claims"].groupBy("partition").sum("count").collect()
    }
    assert claimed == Counter(record.partition for record in cluster.records("orders"))
    assert "sum(count)" in capsys.readouterr().out


def test_updates_are_written_batch_by_batch_and_exactly_once(
    spark: SparkSession, cluster: MockCluster, tmp_path: Path
) -> None:
    for number, programs in enumerate((SPARK_PAGE[3:4], [SPARK_PAGE[3].rpartition("counts.write")[0], SPARK_PAGE[6]])):
        counts = stream(spark, tmp_path / f"words-{number}", WORDS, "word").groupBy("word").count()
        run("".join(programs), cluster, tmp_path, counts=counts)
        end_streams(spark)
        written = Counter((record.key, record.value) for record in cluster.records("counts", committed=True))
        assert written == dict.fromkeys(((b"a", b"3"), (b"b", b"2"), (b"c", b"1")), 1 + number)
    assert cluster.requests_seen("EndTxn") > 0


def test_a_stream_is_written_exactly_once(spark: SparkSession, cluster: MockCluster, tmp_path: Path) -> None:
    [(command, number)] = re.findall(
        r"^`aiokprod (read payments .* \| wc -l)` prints (\d+), also after", SPARK_TEXT, re.M
    )
    command = command.replace("localhost:9092", cluster.bootstrap_servers)
    for _ in range(2):  # the second run writes nothing
        assert run(SPARK_PAGE[4], cluster, tmp_path)["query"].exception() is None
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {shlex.quote(sys.executable)} -m aiokprod {command}"],
            capture_output=True, text=True, timeout=LIMIT_S, check=True,
        )  # fmt: skip
        assert (done.stdout.strip(), done.stderr) == (number, "")
        assert values(cluster, "payments", committed=True) == sorted(str(number) for number in range(1_000))


def test_a_batch_job_that_is_run_again_writes_nothing(
    spark: SparkSession, cluster: MockCluster, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "orders"}
    for _ in range(2):
        run(SPARK_PAGE[5], cluster, tmp_path, orders_of_the_day=frame(spark, ORDERS), options=options)
        assert values(cluster, "orders", committed=True) == sorted(ORDERS)


def test_threads_write_with_a_session_that_is_made_active(
    spark: SparkSession, cluster: MockCluster, tmp_path: Path
) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "orders"}
    tables = [frame(spark, ORDERS[:4]), frame(spark, ORDERS[4:])]
    run(SPARK_PAGE[7], cluster, tmp_path, spark=spark, tables=tables, options=options)
    assert values(cluster, "orders") == sorted(ORDERS)


def test_a_fingerprint_is_computed() -> None:
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns = {"key": [b"k", None], "value": [b"v", b""], "headers": [[("h", b"1")], None]}
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", header)])
    names: dict[str, Any] = {"table": pa.table(columns, schema)}
    exec(SPARK_PAGE[8], names)
    assert names["total"](names["row_hashes"](*(names["batch"][name] for name in ("value", "key", "headers")))) != 0


def test_an_audit_of_claims_and_one_of_a_frame_find_nothing(
    spark: SparkSession, cluster: MockCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(AUDIT_PAGE[0], cluster, tmp_path)
    assert f"It prints:\n\n```text\n{capsys.readouterr().out}```\n" in (DOCS / "audit.md").read_text(encoding="utf-8")
    jar = '.config("spark.jars.packages", source)'
    assert AUDIT_PAGE[1].count(jar) == 1
    names = run(AUDIT_PAGE[1].replace(jar, ""), cluster, tmp_path)  # this session has the jar
    assert capsys.readouterr().out == "lost 0, duplicate 0, phantom 0, reordered 0\n"
    assert (names["verdict"].claims, names["verdict"].log_records) == (1, 1)
    (tmp_path / "claims").rename(tmp_path / "earlier")
    orders = spark.createDataFrame(
        [(index % 2, index, row, row) for index, row in enumerate(ORDERS)],
        "shard int, order_id int, key string, value string",
    )
    names = run(AUDIT_PAGE[2], cluster, tmp_path, spark=spark, audit=audit, orders=orders, log=names["log"])
    assert (names["verdict"].claims, names["verdict"].exit_status) == (len(ORDERS), 0), names["verdict"].line


def test_each_query_of_the_page_has_a_checkpoint_of_its_own() -> None:
    found = re.findall(r'"checkpointLocation", "(.*?)"', "".join(SPARK_PAGE))
    assert len(found) == len(set(found)) == 2


def test_with_a_source_of_rates_and_available_now_no_row_is_written(
    spark: SparkSession, cluster: MockCluster, tmp_path: Path
) -> None:
    text = SPARK_PAGE[4]
    old = 'spark.readStream.schema("value string").parquet("/tmp/payments")'
    assert text.count(old) == 1
    rate = 'spark.readStream.format("rate").option("rowsPerSecond", 1000).load().selectExpr("cast(value as string) as value")'
    assert run(text.replace(old, rate), cluster, tmp_path)["query"].exception() is None
    assert values(cluster, "payments", committed=True) == []


def test_every_program_of_the_two_pages_is_run_here() -> None:
    assert (len(SPARK_PAGE), len(AUDIT_PAGE)) == (9, 3)
