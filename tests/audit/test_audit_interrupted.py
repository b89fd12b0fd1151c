"""Ctrl-C while `aiokprod audit` starts Spark, reads the claims, and judges: one line, status 130, and no JVM is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from child_process import Child

import aiokprod
from aiokprod.claims import HEADER, encode_identity
from aiokprod.claims.writer import ClaimsWriter
from aiokprod.logs import StateLog

pytestmark = pytest.mark.slow

LIMIT_S: Final = 1_800.0
ROWS: Final = 50
LINE: Final = "aiokprod audit: not judged: interrupted"
PROGRAM: Final = """
import faulthandler
import sys
import threading
import time
from importlib import import_module

from pyspark import SparkContext, java_gateway
from pyspark.sql import functions as sf

from aiokprod.audit.command import main

faulthandler.dump_traceback_later(200, exit=True)  # says where it hangs
place = sys.argv.pop(1)


def told():
    print("at work", flush=True)


def watched():
    tracker = SparkContext._active_spark_context.statusTracker()
    while not tracker.getActiveJobsIds():
        time.sleep(0.02)
    told()


if place == "start":
    popen = java_gateway.Popen

    def started(*arguments, **options):
        process = popen(*arguments, **options)
        told()
        return process

    java_gateway.Popen = started
else:
    run = import_module("aiokprod.audit.run")
    rows = getattr(run, place)

    def slow_rows(*arguments):
        threading.Thread(target=watched, daemon=True).start()
        # A second for each row, so that the job goes on for long.
        slept = sf.expr("reflect('java.lang.Thread', 'sleep', 1000L + 0 * coalesce(seq, 0))")
        return rows(*arguments).where(sf.coalesce(slept, sf.lit("")) != "never")

    setattr(run, place, slow_rows)
sys.exit(main(sys.argv[1:], "aiokprod audit"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with claims, and a dump of the log that has them."""
    writer = ClaimsWriter(tmp_path / "claims", 1, 0, StateLog("t"), rows_per_file=ROWS, most_rows=ROWS, flush_s=1.0)
    writer.begin()
    for seq in range(ROWS):
        writer.add(seq, -1, "orders", 0, seq, 0, 1, 2)
    writer.end()
    assert writer.wait(30)
    (tmp_path / "dump").mkdir()
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "key": pa.nulls(ROWS, pa.binary()),
        "topic": pa.array(["orders"] * ROWS),
        "partition": pa.array([0] * ROWS, pa.int32()),
        "offset": pa.array(range(ROWS), pa.int64()),
        "timestamp": pa.array([0] * ROWS, pa.timestamp("us", tz="UTC")),
        "timestampType": pa.array([0] * ROWS, pa.int32()),
        "headers": pa.array([[(HEADER, encode_identity(1, 0, seq))] for seq in range(ROWS)], pa.list_(header)),
    }
    pq.write_table(pa.table(columns), tmp_path / "dump" / "part.parquet")
    (tmp_path / "scratch").mkdir()
    return tmp_path


@pytest.mark.parametrize("place", ["start", "claim_rows", "log_rows"])
def test_an_interrupted_audit_tells_it_in_one_line_and_leaves_no_jvm(place: str, folder: Path) -> None:
    scratch = folder / "scratch"
    environment = os.environ | {
        "PYTHONPATH": str(Path(aiokprod.__file__).parents[1]),
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with Child(
        [sys.executable, "-c", PROGRAM, place, "claims", "--log", "dump", "--partitions", "1"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n", process.stderr and process.stderr.read()
        process.send_signal(signal.SIGINT)
        # Its JVM has the same standard error: the end of that is the end of both.
        printed, said = process.communicate(timeout=LIMIT_S)
    # Of an interrupt in a module that Python was importing a shell gets 130 from the signal.
    assert process.returncode in (130, -signal.SIGINT), said
    assert printed == ""
    assert [line for line in said.splitlines() if line.startswith("aiokprod")] == [LINE]
    assert "Traceback" not in said and "Exception" not in said and "\tat " not in said, said
    assert list(scratch.glob("tmp*")) == []
