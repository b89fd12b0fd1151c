"""The thread that writes claims: whole files or none, bounded memory, a marker that tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import aiokprod
from aiokprod.claims.rows import Rows, Status
from aiokprod.claims.writer import ClaimsReport, ClaimsWriter
from aiokprod.logs import StateLog

WAIT_S = 30.0


def made(folder: Path, **options: Any) -> ClaimsWriter:
    settings: dict[str, Any] = {"rows_per_file": 100, "most_rows": 1_000, "flush_s": 3600.0, "retry_s": 0.001} | options
    writer = ClaimsWriter(folder, 7, 1, StateLog("claims"), **settings)
    writer.begin()
    return writer


def add(writer: ClaimsWriter, *seqs: int) -> None:
    for seq in seqs:
        writer.add(seq, -1, "t", 0, seq + 1000, Status.ACKED, 5, 6)


def read(folder: Path) -> list[int]:
    tables = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    return pa.concat_tables(tables).column("seq").to_pylist() if tables else []


def marker(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "_run-0000000000000007-1.json").read_text())
    assert isinstance(found, dict)
    return found


def test_what_was_added_is_in_files_after_the_end(tmp_path: Path) -> None:
    writer = made(tmp_path)
    assert marker(tmp_path) == {"run": 7, "stream": 1, "closed": False, "rows": 0, "dropped": 0, "files": 0}
    add(writer, *range(250))
    writer.end()
    assert writer.wait(WAIT_S)
    assert read(tmp_path) == list(range(250))
    report = writer.report()
    assert (report.rows, report.dropped, report.waiting, report.is_closed) == (250, 0, 0, True)
    assert marker(tmp_path) == {
        "run": 7, "stream": 1, "closed": True, "rows": 250, "dropped": 0, "files": report.files,
    }  # fmt: skip
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_producer_that_never_sent_leaves_a_closed_run_and_no_thread(tmp_path: Path) -> None:
    writer = made(tmp_path)
    writer.end()
    assert writer.wait(0)
    assert writer.report() == ClaimsReport(rows=0, dropped=0, waiting=0, files=0, is_closed=True)
    assert marker(tmp_path)["closed"] is True


def test_a_full_file_is_written_before_the_end(tmp_path: Path) -> None:
    writer = made(tmp_path)
    add(writer, *range(100))
    written = pytest_wait(lambda: writer.report().rows == 100)
    assert written
    writer.end()
    assert writer.wait(WAIT_S)


def pytest_wait(condition: Any) -> bool:
    """Let the writer's thread run until it is so."""
    import threading
    import time

    deadline = time.monotonic() + WAIT_S
    while not condition() and time.monotonic() < deadline:
        threading.Event().wait(0.001)
    return bool(condition())


def test_a_disk_that_fails_is_tried_again_and_nothing_is_lost(tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    writer = made(folder)
    moved = folder.rename(tmp_path / "away")
    add(writer, *range(100))
    assert pytest_wait(lambda: "cannot be written" in (writer._log.last_error or ""))
    moved.rename(folder)
    assert pytest_wait(lambda: writer.report().rows == 100)
    writer.end()
    assert writer.wait(WAIT_S)
    assert read(folder) == list(range(100))
    assert marker(folder)["dropped"] == 0


def test_memory_is_bounded_and_what_was_dropped_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    writer = made(folder, most_rows=150)
    moved = folder.rename(tmp_path / "away")
    add(writer, *range(400))
    assert writer.report().waiting == 150
    assert writer.report().dropped == 250
    moved.rename(folder)
    writer.end()
    assert writer.wait(WAIT_S)
    assert read(folder) == list(range(150))
    assert marker(folder)["dropped"] == 250


def test_a_folder_that_is_back_when_the_writer_ends_is_tried_once_more(tmp_path: Path) -> None:
    """The try under way had failed, and counted as the last one."""
    folder = tmp_path / "claims"
    writer = made(folder, retry_s=3600.0)
    write = writer._write

    def fails_once(rows: Rows) -> bool:
        writer.end()
        writer._write = write  # type: ignore[method-assign]
        return False

    writer._write = fails_once  # type: ignore[method-assign]
    add(writer, *range(100))
    assert writer.wait(WAIT_S)
    assert read(folder) == list(range(100))


def test_a_claim_that_does_not_fit_is_counted_as_dropped_and_all_others_are_kept(tmp_path: Path) -> None:
    writer = made(tmp_path)
    add(writer, 0)
    writer.add(1, -1, "t", 2**31, 5, Status.ACKED, 5, 6)
    add(writer, 2, 3)
    writer.end()
    assert writer.wait(WAIT_S)
    assert read(tmp_path) == [0, 2, 3]
    assert (writer.report().rows, writer.report().dropped) == (3, 1)


def test_what_cannot_be_written_at_the_end_is_counted_as_dropped(tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    writer = made(folder)
    add(writer, *range(10))
    folder.rename(tmp_path / "away")
    writer.end()
    assert writer.wait(WAIT_S)
    report = writer.report()
    assert (report.rows, report.dropped, report.waiting, report.is_closed) == (0, 10, 0, False)


def test_two_senders_with_one_run_and_stream_keep_all_their_claims(tmp_path: Path) -> None:
    writers = [made(tmp_path), made(tmp_path)]
    for writer in writers:
        add(writer, *range(120))
    for writer in writers:
        writer.end()
        assert writer.wait(WAIT_S)
        assert writer.report().rows == 120
    assert sorted(read(tmp_path)) == sorted([*range(120)] * 2)
    markers = [json.loads(path.read_text()) for path in tmp_path.glob("_run-0000000000000007-1*.json")]
    assert [(found["closed"], found["rows"]) for found in markers] == [(True, 120), (True, 120)]


CRASHES = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {folder!r})
from test_claims_writer import add, made, pytest_wait
writer = made(Path({claims!r}))
add(writer, *range(100))
assert pytest_wait(lambda: writer.report().rows == 100)
os._exit(0)
"""


def test_a_start_after_a_crash_keeps_its_claims_and_that_they_were_not_closed(tmp_path: Path) -> None:
    code = CRASHES.format(folder=str(Path(__file__).parent), claims=str(tmp_path))
    environment = os.environ | {"PYTHONPATH": str(Path(aiokprod.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    writer = made(tmp_path)
    add(writer, *range(100, 110))
    writer.end()
    assert writer.wait(WAIT_S)
    assert sorted(read(tmp_path)) == list(range(110))
    assert marker(tmp_path)["closed"] is False
    (own,) = tmp_path.glob("_run-0000000000000007-1-*.json")
    assert json.loads(own.read_text()) == {
        "run": 7, "stream": 1, "closed": True, "rows": 10, "dropped": 0, "files": 1,
    }  # fmt: skip


def test_a_second_start_goes_on_with_files_and_counts(tmp_path: Path) -> None:
    for first in (0, 30):
        writer = made(tmp_path)
        add(writer, *range(first, first + 30))
        writer.end()
        assert writer.wait(WAIT_S)
    assert read(tmp_path) == list(range(60))
    assert marker(tmp_path)["rows"] == 60
    assert marker(tmp_path)["files"] == 2
