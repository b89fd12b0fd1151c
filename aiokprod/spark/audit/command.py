"""The audit as a command: `python -m aiokprod.spark.audit`, and `aiokprod audit`.

    python -m aiokprod.spark.audit claims/ --log log/ --out audit/
    python -m aiokprod.spark.audit claims/ --bootstrap localhost:9092 --topic orders --out audit/

Exit status: 0 clean, 1 something is wrong, 2 it could not be judged, or not all of it.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aiokprod.claims.readback import read_back
from aiokprod.config.command_line import config_of, given_options
from aiokprod.errors import AiokprodError
from aiokprod.spark.audit.files import write
from aiokprod.spark.audit.run import run
from aiokprod.spark.audit.sides import SchemaError
from aiokprod.spark.audit.verdict import NOT_JUDGED, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main(arguments: Sequence[str] | None = None, program: str = "python -m aiokprod.spark.audit") -> int:
    """Run it; the exit status."""
    parser = _parser(program)
    options = parser.parse_args(arguments)
    is_read_back = not options.log
    if is_read_back != bool(options.topic) or (
        not is_read_back and (options.kafka_source or _is_cluster_given(options))
    ):
        parser.error(
            "the log is either --log FOLDER, or --bootstrap (or --config, -X) together with --topic; --kafka-source needs the"
            " second"
        )
    if is_read_back and not _is_cluster_given(options):
        parser.error("one of --log and --bootstrap (or --config) is needed")
    try:
        import pyspark  # noqa: F401
    except ImportError as missing:
        return _not_judged(f'the audit needs Spark ({missing}): pip install "aiokprod[audit]"')
    try:
        verdict = _audited(options)
        if options.out:
            write(verdict, options.out)
    except Exception as error:  # any at all: a traceback would end with 1, which says that a record is wrong
        return _not_judged(_in_one_line(error))
    print(verdict.line)
    if options.out:
        print(f"{options.out / 'index.html'}")
    return verdict.exit_status


def _not_judged(why: str) -> int:
    print(f"not judged: {why}", file=sys.stderr)
    return NOT_JUDGED


def _in_one_line(error: Exception) -> str:
    from pyspark.errors import PySparkException

    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    text = str(error).strip().partition("\n")[0]
    says_all = isinstance(error, AiokprodError | PySparkException | SchemaError | OSError) and text
    return text if says_all else f"{type(error).__name__}: {text}"


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        program,
        description="Compare what a producer claimed (aiokprod.claims) with what is in the log.",
        epilog="Exit status: 0 clean, 1 something is wrong, 2 it could not be judged, or not all of it.",
    )
    parser.add_argument("claims", help="the folder that Claims wrote")
    parser.add_argument("--log", help="a Parquet dump with the columns of Spark's Kafka source")
    parser.add_argument("--bootstrap", help="instead of --log: read the topics back from this cluster (host:port,...)")
    parser.add_argument(
        "--config", metavar="FILE", help="options of the connection (TLS, SASL), a name=value in each line"
    )
    parser.add_argument(
        "-X", dest="pairs", metavar="NAME=VALUE", action="append", default=[], help="one such option (repeatable)"
    )
    parser.add_argument("--topic", action="append", default=[], help="with --bootstrap (repeatable)")
    parser.add_argument(
        "--kafka-source",
        action="store_true",
        help="read with Spark's own Kafka source (its jar must be there), not with ours",
    )
    parser.add_argument(
        "--dump", type=Path, help="with --bootstrap: keep what was read back in this folder, which must be empty"
    )
    parser.add_argument("--out", type=Path, help="write summary.json, findings, latencies and a page into this folder")
    parser.add_argument("--no-order", action="store_true", help="do not judge order (spares a shuffle)")
    parser.add_argument("--run", type=int, action="append", help="judge this run only (repeatable)")
    parser.add_argument("--partitions", type=int, help="of the shuffle; default: one for each million claims")
    parser.add_argument("--master", help="of Spark, if there is no session's configuration that says so")
    return parser


def _audited(options: argparse.Namespace) -> Verdict:
    for folder in (options.claims, options.log):
        # Before Spark starts, which takes seconds and says much. Spark itself reads patterns, and other file systems.
        if folder and not set(folder) & set(":*?[{") and not Path(folder).exists():
            raise FileNotFoundError(f"{folder} is not there")
    with tempfile.TemporaryDirectory() as scratch:
        log = options.log
        given = given_options(options.bootstrap, options.config, options.pairs) if options.topic else {}
        if given and not options.kafka_source:
            log = options.dump or Path(scratch)
            asyncio.run(read_back(config_of(given), options.topic, log))
        with _session(options.master) as spark:
            found = _kafka_source(spark, given, options.topic) if options.kafka_source else log
            return run(
                spark,
                options.claims,
                found,
                order=not options.no_order,
                runs=options.run,
                partitions=options.partitions,
            )


@contextmanager
def _session(master: str | None) -> Iterator[SparkSession]:
    """The session there is, or one that ends with the audit."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName("aiokprod-audit").config("spark.ui.showConsoleProgress", "false")
    spark = (builder.master(master) if master else builder).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _is_cluster_given(options: argparse.Namespace) -> bool:
    return bool(options.bootstrap or options.config or options.pairs)


def _kafka_source(spark: SparkSession, given: Mapping[str, str], topics: Sequence[str]) -> DataFrame:
    """Everything that is in the topics at this moment, without what failed transactions left."""
    return (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in given.items()})
        .option("subscribe", ",".join(topics))
        .option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .option("endingOffsets", "latest")
        .option("kafka.isolation.level", "read_committed")
        .load()
    )
