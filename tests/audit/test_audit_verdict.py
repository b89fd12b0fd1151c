"""The verdict as values, files and a page; quantiles. No Spark."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.audit import Finding, Latencies, LateRecord, NamedRecord, Verdict, page
from aiokprod.audit.files import write
from aiokprod.audit.latency import BUCKETS_PER_OCTAVE, quantiles_us
from aiokprod.claims import Status


def bad() -> Verdict:
    return Verdict(
        claims=3,
        log_records=4,
        statuses=Counter(acked=3),
        counts=Counter({Finding.LOST: 1, Finding.DUPLICATE: 1, Finding.MISPLACED: 1}),
        named=[
            NamedRecord(
                run=1, stream=2, seq=3, topic="<orders>", findings=Finding.LOST, status=Status.ACKED, told=(0, 9),
                places=(), copies=0,
            ),
            NamedRecord(
                run=1, stream=2, seq=4, topic="<orders>", findings=Finding.DUPLICATE | Finding.MISPLACED,
                status=Status.ACKED, told=(0, 9), places=((0, 1), (1, 5)), copies=2,
            ),
        ],
        late=1,
        deepest=6,
        named_late=[LateRecord(run=1, stream=2, seq=5, topic="t", partition=1, offset=7, depth=6)],
        latencies=[
            Latencies(kind="ack", topic="<orders>", partition=0, minute=28_333_333, buckets={160: 90, 200: 10}),
            Latencies(kind="append", topic="<orders>", partition=0, minute=28_333_334, buckets={-1: 1, 100: 4}),
        ],
        seconds=1.5,
    )  # fmt: skip


def test_the_line_and_the_exit_status_say_the_same() -> None:
    assert bad().line == "lost 1, duplicate 1, phantom 0, reordered 1, misplaced 1"
    assert bad().exit_status == 1
    clean = Verdict(late=0)
    assert (clean.line, clean.exit_status) == ("lost 0, duplicate 0, phantom 0, reordered 0", 0)
    assert clean.is_clean
    open_one = Verdict(problems=["run 1 stream 0: its claims were not closed"])
    assert (open_one.exit_status, open_one.is_clean) == (2, False)
    assert open_one.line.endswith("reordered not judged, run 1 stream 0: its claims were not closed")


@pytest.mark.parametrize("finding", list(Finding))
def test_only_what_is_wrong_makes_a_verdict_unclean(finding: Finding) -> None:
    harmless = {
        Finding.UNKNOWN_PRESENT, Finding.UNKNOWN_ABSENT, Finding.REPEATED, Finding.CLAIMED_TWICE, Finding.NOT_OURS,
    }  # fmt: skip
    assert Verdict(counts=Counter({finding: 1})).exit_status == (0 if finding in harmless else 1)


def test_the_folder_has_the_summary_the_records_and_the_latencies(tmp_path: Path) -> None:
    write(bad(), tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["verdict"], summary["exit_status"]) == ("findings", 1)
    assert summary["findings"]["duplicate"] == {"records": 1, "ids": [[1, 2, 4]]}
    assert summary["reordered"] == {"records": 1, "deepest": 6, "ids": [[1, 2, 5]]}
    assert set(summary["latency_us"]) == {"ack", "append"}
    rows = pq.read_table(tmp_path / "out" / "findings.parquet").to_pylist()
    assert [(row["seq"], row["findings"], row["depth"]) for row in rows] == [
        (3, "lost", None), (4, "duplicate, misplaced", None), (5, "reordered", 6),
    ]  # fmt: skip
    assert rows[1]["places"] == [{"partition": 0, "offset": 1}, {"partition": 1, "offset": 5}]
    assert rows[1]["told"] == {"partition": 0, "offset": 9}
    (ack, append) = pq.read_table(tmp_path / "out" / "latencies.parquet").to_pylist()
    assert (ack["kind"], ack["records"], append["records"]) == ("ack", 100, 5)
    assert ack["p50"] < ack["p99"] == ack["max"]


def test_the_page_is_whole_and_escapes_what_it_shows(tmp_path: Path) -> None:
    write(bad(), tmp_path)
    text = (tmp_path / "index.html").read_text()
    assert "&lt;orders&gt;" in text
    assert "<orders>" not in text
    assert text.count("<svg") == 2
    assert "http" not in text.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")
    assert 'class="wrong"' in text
    for drawn in text.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + drawn.partition("</svg>")[0] + "</svg>")


def test_a_topic_whose_name_begins_with_an_underscore_is_in_the_legends() -> None:
    from matplotlib.figure import Figure

    shown = bad()
    shown.timeline = {"_internal": Counter({1_700_000_000: 5}), "orders": Counter({1_700_000_000: 7})}
    shown.latencies = [replace(each, topic="_internal") for each in shown.latencies]
    timeline, distribution = Figure().subplots(1, 2)
    page._draw_timeline(timeline, shown)
    page._draw_distribution(distribution, shown, "ack", ["_internal"])
    assert [text.get_text().strip() for text in timeline.get_legend().get_texts()] == ["_internal", "orders"]
    assert [text.get_text().strip() for text in distribution.get_legend().get_texts()] == ["_internal"]


def test_without_matplotlib_the_page_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("matplotlib", "matplotlib.figure", "matplotlib.axes"):
        monkeypatch.setitem(sys.modules, name, None)
    write(bad(), tmp_path)
    text = (tmp_path / "index.html").read_text()
    assert "aiokprod[audit]" in text
    assert "<svg" not in text


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=200))
def test_quantiles_are_within_their_bucket_of_the_true_ones(latencies_us: list[int]) -> None:
    from math import ceil, floor, log2

    counts = Counter(floor(log2(each) * BUCKETS_PER_OCTAVE) for each in latencies_us)
    told = quantiles_us(counts)
    ordered = sorted(latencies_us)
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)):
        true = ordered[ceil(share * len(ordered)) - 1]
        assert abs(told[name] - true) <= 0.0231 * true, name


def test_nothing_measured_has_no_quantiles() -> None:
    assert quantiles_us({}) == {}
    assert quantiles_us({-1: 3})["p50"] == 0.0
