"""Markers and the claims beside them: which runs' claims are not all there. The audit says it, and of the asked runs alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from audit_frames import claims_table, frames, mark
from audit_worlds import World, truthful

from aiokprod import audit
from aiokprod.audit.markers import Markers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_claims(folder: Path, *worlds: World) -> None:
    """Write the claims of all worlds into one file, and true markers."""
    claims = [claim for world in worlds for claim in world.claims]
    pq.write_table(claims_table(claims), folder / "claims.parquet")
    senders = [(claim.run, claim.stream) for claim in claims]
    for run, stream in set(senders):
        mark(folder, run, stream, rows=senders.count((run, stream)))


def test_runs_that_were_not_closed_or_dropped_claims_are_known(tmp_path: Path) -> None:
    mark(tmp_path, 9, 0)
    mark(tmp_path, 9, 1, closed=False)
    mark(tmp_path, 9, 2, dropped=5)
    assert Markers.of(tmp_path).incomplete == {
        (9, 1): "run 9 stream 1: its claims were not closed",
        (9, 2): "run 9 stream 2: 5 claims were dropped",
    }


def test_a_start_that_was_not_closed_is_told_whatever_later_starts_say(tmp_path: Path) -> None:
    mark(tmp_path, 9, 1, closed=False, rows=0)
    mark(tmp_path, 9, 1, token="-abc", rows=10)
    found = Markers.of(tmp_path)
    assert found.incomplete == {(9, 1): "run 9 stream 1: its claims were not closed"}
    assert found.rows == {(9, 1): 10}


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"run": 9}'])
def test_a_marker_that_cannot_be_read_is_a_problem_of_its_sender(content: str, tmp_path: Path) -> None:
    mark(tmp_path, -9, -1, token="-0123456789ab").write_text(content)
    (tmp_path / "_run-other.json").write_text(content)
    found = Markers.of(tmp_path)
    assert found.incomplete == {(-9, -1): "run -9 stream -1: its marker cannot be read"}
    assert found.others == ["the marker _run-other.json cannot be read"]


@pytest.mark.parametrize("scheme", ["file:", "file://", "FILE://localhost"])
def test_a_folder_of_this_machine_can_be_a_uri(scheme: str, tmp_path: Path) -> None:
    mark(tmp_path, 9, 1, closed=False)
    assert list(Markers.of(f"{scheme}{tmp_path}").incomplete) == [(9, 1)]


def test_a_pattern_finds_the_markers_of_all_its_folders(tmp_path: Path) -> None:
    for stream in (0, 1):
        (tmp_path / f"worker-{stream}").mkdir()
        mark(tmp_path / f"worker-{stream}", 9, stream, closed=False)
    assert list(Markers.of(f"{tmp_path}/worker-*").incomplete) == [(9, 0), (9, 1)]


def test_a_folder_whose_markers_cannot_be_looked_for_is_a_problem() -> None:
    assert Markers.of("s3a://bucket/claims").others == [
        "the markers of s3a://bucket/claims cannot be read (it is not a folder of this machine)"
    ]


def test_only_the_runs_that_were_asked_for_are_told(tmp_path: Path) -> None:
    for run in (1, 2):
        mark(tmp_path, run, 0, closed=False)
    found = Markers.of(tmp_path).of_runs([2])
    assert (list(found.incomplete), list(found.rows)) == ([(2, 0)], [(2, 0)])
    assert Markers.of(tmp_path).of_runs(None).rows == {(1, 0): 1, (2, 0): 1}


def test_claims_that_are_not_there_are_told_and_make_their_sender_incomplete(tmp_path: Path) -> None:
    mark(tmp_path, 1, 0, rows=10)
    mark(tmp_path, 1, 0, rows=5, token="-abc")
    mark(tmp_path, 1, 1, rows=10)
    mark(tmp_path, 1, 2, rows=0, closed=False)
    found = Markers.of(tmp_path)
    assert found.compare({(1, 0): 14, (1, 1): 10, (1, 2): 50, (2, None): 7}) == [
        "run 1 stream 0: 1 of 15 claims are not there"
    ]
    assert set(found.incomplete) == {(1, 0), (1, 2)}
    assert Markers.of(tmp_path).compare({(1, 0): 15, (1, 1): 11}) == [
        "run 1 stream 1: 11 claims are there, and 10 were written"
    ]


@pytest.mark.slow
def test_claims_whose_file_is_not_there_are_missed(spark: SparkSession, tmp_path: Path) -> None:
    world = truthful(5, 10, 5)
    _, log = frames(spark, [], world.log)
    write_claims(tmp_path, world)
    assert audit.run(spark, tmp_path, log).exit_status == 0
    gone = [claim for claim in world.claims if claim.stream == 1 and claim.seq > 7]
    kept = [claim for claim in world.claims if claim not in gone]
    pq.write_table(claims_table(kept), tmp_path / "claims.parquet")
    verdict = audit.run(spark, tmp_path, log)
    assert verdict.problems == ["run 5 stream 1: 2 of 10 claims are not there"]
    assert (verdict.exit_status, verdict.counts, verdict.unclaimed) == (2, {}, 2)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_problems_are_those_of_the_runs_that_were_asked_for_wherever_the_folder_is(
    spark: SparkSession, tmp_path: Path, scheme: str
) -> None:
    worlds = [truthful(run, 5, run) for run in (1, 2)]
    _, log = frames(spark, [], [record for world in worlds for record in world.log])
    write_claims(tmp_path, *worlds)
    mark(tmp_path, 2, 0, rows=5, closed=False)
    folder = f"{scheme}{tmp_path}"
    first = audit.run(spark, folder, log, runs=[1])
    assert (first.exit_status, first.problems) == (0, [])
    both = audit.run(spark, folder, log)
    assert (both.exit_status, both.problems) == (2, ["run 2 stream 0: its claims were not closed"])
    assert not both.counts
