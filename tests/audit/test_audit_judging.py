"""The verdict on Spark: planted trouble is found exactly, nothing else is, and in one shuffle."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from audit_frames import claims_table, frames, mark
from audit_reference import ClaimRow, LogRow, judge
from audit_worlds import KINDS, World, trouble, truthful

from aiokprod import audit
from aiokprod.audit import Finding
from aiokprod.audit.command import main
from aiokprod.audit.judging import cells, judged
from aiokprod.audit.order import late_records
from aiokprod.audit.plans import aggregates, executed_plan, shuffles
from aiokprod.audit.sides import claim_rows, log_rows
from aiokprod.claims import Status
from aiokprod.claims.writer import ClaimsWriter
from aiokprod.logs import StateLog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def planted_worlds(count: int, records: int) -> list[World]:
    """Return worlds with trouble of all kinds, each a run of its own; the first has none."""
    worlds = [truthful(0, records, 0)]
    for number in range(1, count):
        draw = random.Random(number)
        world = truthful(number, records, number)
        for _ in range(draw.randrange(1, 9)):
            trouble(world, draw, draw.choice(KINDS))
        worlds.append(world)
    return worlds


@pytest.mark.slow
def test_planted_trouble_is_found_exactly_and_nothing_else(spark: SparkSession) -> None:
    planted = found_exactly(spark, planted_worlds(60, 12))
    assert len(planted) == len(KINDS) - 3, "the seeds do not plant every kind"


def found_exactly(spark: SparkSession, worlds: list[World]) -> dict[Finding, set[tuple[int, int, int]]]:
    """Check that one audit of all these worlds finds what was planted and what the reference finds, no more."""
    for number, world in enumerate(worlds):  # each world in partitions of its own
        shift = 10 * number
        world.claims = [c if c.partition < 0 else _moved(c, shift) for c in world.claims]
        world.log = [_moved(r, shift) for r in world.log]
    claims = [claim for world in worlds for claim in world.claims]
    log = [record for world in worlds for record in world.log]
    verdict = audit.run(spark, *frames(spark, claims, log))

    planted: dict[Finding, set[tuple[int, int, int]]] = {}
    for world in worlds:
        for finding, identities in world.planted.items():
            planted.setdefault(finding, set()).update(identities)
    for finding in Finding:
        if finding is not Finding.NOT_OURS:
            assert set(verdict.identities(finding)) == planted.get(finding, set()), finding
            assert verdict.counts[finding] == len(planted.get(finding, set())), finding
    assert {(late.run, late.stream, late.seq) for late in verdict.named_late} == set().union(
        *(world.swapped for world in worlds)
    )
    assert verdict.late == sum(len(world.swapped) for world in worlds) > 0

    expected = judge(claims, log)
    named = {(n.run, n.stream, n.seq, n.topic): n for n in verdict.named}
    assert {identity: record.findings for identity, record in named.items()} == expected.findings
    for identity, record in named.items():
        assert set(record.places) == expected.places[identity]
    assert verdict.claims == len(claims)
    assert verdict.log_records == len(log)
    assert verdict.not_ours == sum(record.run is None or record.run == -77 for record in log)
    assert verdict.exit_status == 1
    return planted


def _moved(row: object, shift: int) -> object:
    return replace(row, partition=row.partition + shift)  # type: ignore[type-var, attr-defined]


@pytest.mark.slow
def test_a_clean_world_is_clean(spark: SparkSession) -> None:
    world = truthful(5, 40, 5)
    verdict = audit.run(spark, *frames(spark, world.claims, world.log))
    assert verdict.line == "lost 0, duplicate 0, phantom 0, reordered 0"
    assert (verdict.exit_status, verdict.named, verdict.problems) == (0, [], [])
    assert verdict.statuses == {"acked": 80}
    counted = sum(sum(each.buckets.values()) for each in verdict.latencies)
    assert counted == 80
    assert abs(verdict.quantiles("ack")["p50"] - 2_000) < 0.023 * 2_000
    assert {each.minute for each in verdict.latencies} == {1_700_000_000 // 60}


@pytest.mark.slow
def test_a_retried_task_repeats_and_its_claims_allow_it(spark: SparkSession) -> None:
    world = truthful(5, 20, 5, Status.ACKED_AT_LEAST_ONCE)
    ends = {(r.topic, r.partition): 1_000 for r in world.log}
    for record in list(world.log[:10]):  # the task ran again after ten rows
        ends[record.topic, record.partition] += 1
        world.log.append(replace(record, offset=ends[record.topic, record.partition]))
    verdict = audit.run(spark, *frames(spark, world.claims, world.log))
    assert verdict.exit_status == 0
    assert verdict.counts == {Finding.REPEATED: 10}
    assert verdict.late == 0


@pytest.mark.slow
def test_two_senders_with_one_run_and_stream_cannot_be_judged(spark: SparkSession) -> None:
    """Each wrote the same keys to the same partition, as it should; the identities are there twice, and out of order."""
    claims, log = [], []
    for sender in range(2):
        for seq in range(5 + sender):  # the last record of one of them is claimed once
            offset = 2 * seq + sender if seq % 2 else 20 + 2 * seq + sender
            log.append(LogRow(1, 0, seq, "t", b"k", 0, offset))
            claims.append(ClaimRow(1, 0, seq, "t", b"k", 0, offset, Status.ACKED))
    good = truthful(2, 5, 2)
    verdict = audit.run(spark, *frames(spark, claims + good.claims, log + good.log))
    assert verdict.problems == ["two senders had the same run and stream"]
    assert (verdict.exit_status, verdict.late) == (2, 0)
    assert verdict.counts == {Finding.CLAIMED_TWICE: 5}


@pytest.mark.slow
def test_what_is_wrong_is_named_before_what_is_not_claimed(spark: SparkSession, tmp_path: Path) -> None:
    world = truthful(5, 20, 5)
    mark(tmp_path, 5, 0, rows=0, closed=False)
    mark(tmp_path, 5, 1, rows=20)
    kept = [claim for claim in world.claims if claim.stream == 1]  # of stream 0 nothing was written before the crash
    pq.write_table(claims_table(kept), tmp_path / "claims.parquet")
    log = [record for record in world.log if (record.stream, record.seq) != (1, 7)]
    verdict = audit.run(spark, tmp_path, frames(spark, [], log)[1], most_named=5)
    assert (verdict.unclaimed, verdict.counts) == (20, {Finding.LOST: 1})
    assert [record.identity for record in verdict.named] == [(5, 1, 7)]


@pytest.mark.slow
def test_no_claims_cannot_be_judged(spark: SparkSession) -> None:
    world = truthful(5, 3, 5)
    verdict = audit.run(spark, *frames(spark, [], world.log), order=False)
    assert verdict.exit_status == 2
    assert "there are no claims" in verdict.line
    assert verdict.not_ours == 6


@pytest.mark.slow
def test_trouble_is_found_in_one_shuffle_with_hash_aggregates_only(spark: SparkSession) -> None:
    assert found_exactly(spark, planted_worlds(20, 10))
    world = truthful(5, 10, 5)
    claims, log = frames(spark, world.claims, world.log)
    rows = log_rows(log, [5])
    frame = cells(judged(claim_rows(claims), rows, 3))
    frame.collect()
    assert "isFinalPlan=true" in executed_plan(frame)
    assert shuffles(frame) == 1, executed_plan(frame)
    assert aggregates(frame) == {"HashAggregate"}
    for has_repeats in (False, True):
        late = late_records(rows, 3, has_repeats=has_repeats)
        late.collect()
        assert shuffles(late) == 1, executed_plan(late)
        assert aggregates(late) <= {"HashAggregate"}
    regrouped = frame.groupBy("seq").count()
    regrouped.collect()
    assert shuffles(regrouped) == 2, "this test can count"


@pytest.mark.slow
def test_what_is_not_claimed_of_a_run_that_was_not_closed_is_no_phantom(spark: SparkSession, tmp_path: Path) -> None:
    world = truthful(5, 10, 5)
    for stream in (0, 1):
        writer = ClaimsWriter(tmp_path, 5, stream, StateLog("claims"), rows_per_file=100, most_rows=100, flush_s=1.0)
        writer.begin()
        for claim in world.claims:
            if claim.stream == stream and claim.seq < 8:
                writer.add(claim.seq, -2, claim.topic, claim.partition, claim.offset, claim.status, 1, 2)
        writer.end()
        assert writer.wait(30)
    _, log = frames(spark, [], world.log)
    closed = audit.run(spark, tmp_path, log)
    assert (closed.exit_status, closed.counts) == (1, {Finding.PHANTOM: 4})
    marker = tmp_path / "_run-0000000000000005-1.json"
    marker.write_text(marker.read_text().replace('"closed": true', '"closed": false'))
    crashed = audit.run(spark, tmp_path, log)
    assert crashed.identities(Finding.PHANTOM) == [(5, 0, 8), (5, 0, 9)]
    assert crashed.unclaimed == 2
    assert crashed.problems == ["run 5 stream 1: its claims were not closed"]
    less = audit.run(spark, tmp_path, log, runs=[4])
    assert (less.exit_status, less.not_ours) == (2, 20)


@pytest.mark.slow
def test_the_command_says_what_it_cannot_judge(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"file://{tmp_path}/nowhere", "--log", str(tmp_path)]) == 2
    assert "not judged: [PATH_NOT_FOUND]" in capsys.readouterr().err
    for wrong in (["--bootstrap", "127.0.0.1:1"], ["--log", "x", "--kafka-source"], []):
        with pytest.raises(SystemExit) as ended:
            main([str(tmp_path), *wrong])
        assert ended.value.code == 2
    assert "--log FOLDER" in capsys.readouterr().err
