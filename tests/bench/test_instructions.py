"""bench/instructions.py: a path that costs more than its baseline is named, with the difference."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from counting import CallgrindCounter, dumped
from instructions import TOLERANCE, regressions
from quiet_broker import QuietBroker

BENCH = Path(__file__).parents[2] / "bench"


def test_a_path_beyond_the_tolerance_is_a_regression_and_one_within_is_not() -> None:
    before = {"pure": {"send": 1000.0, "seal": 1000.0}}
    dear, fair = 1000 * (1 + TOLERANCE) + 1, 1000 * (1 + TOLERANCE) - 1
    (line,) = regressions({"pure": {"send": dear, "seal": fair}}, before)
    assert line.startswith("pure, send: 1,051 instructions per record, +5.1%")


def test_a_path_without_a_baseline_fails_the_check() -> None:
    (line,) = regressions({"compiled": {"send": 1.0}}, {"pure": {"send": 1.0}})
    assert "no baseline" in line


def test_a_cheaper_path_is_no_regression() -> None:
    assert regressions({"pure": {"send": 1.0}}, {"pure": {"send": 2.0}}) == []


def test_callgrinds_dumps_are_found_by_the_mark_that_ended_the_section(tmp_path: Path) -> None:
    counter = CallgrindCounter()
    with counter.section("warm"):
        pass
    counter.counts.clear()
    with counter.section("send"):
        pass
    (tmp_path / "callgrind.out.4").write_text("version: 1\ntotals: 12345\n")
    assert dumped(counter.counts, tmp_path) == [("send", 12345)]


def test_every_path_is_walked_and_none_of_its_rounds_waits_for_room() -> None:
    walked = "import hot_paths, asyncio, counting\n" + (
        "class None_(counting.Counter):\n    def mark(self): return 0\n"
        "counter = None_()\n"
        "with asyncio.Runner(loop_factory=hot_paths.StillLoop) as runner:\n"
        "    runner.run(hot_paths.walk(counter, 1))\n"
        "assert {name for name, _ in counter.counts} == set(hot_paths.RECORDS_OF), counter.counts\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", walked],
        cwd=BENCH,
        env=os.environ | {"PYTHONPATH": str(BENCH.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_the_quiet_broker_knows_every_partition() -> None:
    from quiet_broker import metadata

    (topic,) = metadata(QuietBroker({"orders": 3}).topics).topics
    assert [partition.partition_index for partition in topic.partitions] == [0, 1, 2]


def test_tracing_without_an_sdk_costs_nothing() -> None:
    before = {"pure": {"send": 1_000.0, "no SDK send": 1_000.0}}
    assert regressions({"pure": {"send": 1_000.0, "no SDK send": 1_039.0}}, before) == []
    (line,) = regressions({"pure": {"send": 980.0, "no SDK send": 1_039.0}}, before)
    assert line == "pure, no SDK send: 1,039 instructions per record, +6.0% on 980"
