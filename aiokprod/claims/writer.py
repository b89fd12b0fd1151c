"""`ClaimsWriter`: a thread that writes rows of claims as Parquet files. One per start of a producer.

    add (the producer's loop) -> Rows -> the thread: every second, or when a file is full -> .name.tmp -> name

A file is complete or absent: it is written under another name, synced, and renamed. Its name has a token of this start,
so that no two starts write the same file, whatever run and stream they were given. The `Marker` says that a start began,
and after `end` that its claims are complete and how many they are. If they are not complete, an audit cannot say of an
unclaimed record that it was never sent.

Invariants: `add` never waits and never raises; at most `most_rows` are in memory, further rows are counted in `dropped`;
rows that could not be written stay in memory and are tried again.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from aiokprod.claims.marker import Marker, name_of, sync_folder
from aiokprod.claims.rows import Rows
from aiokprod.logs import StateLog

AT_EXIT_S: Final = 10.0  # how long an interpreter that ends without `close` waits for the remaining rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsReport:
    """The state of the claims of one producer."""

    rows: int
    """claims in files"""
    dropped: int
    """claims not kept: the disk was too slow or full"""
    waiting: int
    """claims in memory, not yet written"""
    files: int
    """files written"""
    is_closed: bool
    """True once the last claim is written and the marker says so"""


class ClaimsWriter:
    """A writer that takes rows on one thread and writes them on another."""

    def __init__(
        self,
        folder: Path,
        run: int,
        stream: int,
        log: StateLog,
        *,
        rows_per_file: int,
        most_rows: int,
        flush_s: float,
        retry_s: float = 1.0,
    ) -> None:
        self._folder = folder
        self._run = run
        self._stream = stream
        self._name = name_of(run, stream)
        self._token = uuid4().hex[:12]
        self._marker = Marker(folder, run, stream, self._token)
        self._log = log
        self._rows_per_file = rows_per_file
        self._most_rows = most_rows
        self._flush_s = flush_s
        self._retry_s = retry_s
        self._lock = threading.Lock()  # guards the next line; held only while a row is added
        self._rows = Rows()
        self._writing = 0  # rows that the thread has taken and not yet written
        self._written = 0
        self._dropped = 0
        self._files = 0
        self._is_failing = False
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ the producer's side
    def begin(self) -> None:
        """Make the folder and the run's marker in it.

        Raises:
            OSError: the folder cannot be created or written to.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        earlier = self._marker.begin()  # of an earlier start of the same producer, if closed: its counts go on
        self._files, self._written, self._dropped = earlier.files, earlier.rows, earlier.dropped

    def add(
        self, seq: int, key_hash: int, topic: str, partition: int, offset: int, status: int, send_us: int, ack_us: int
    ) -> None:
        """Add one claim. Never waits for the disk, and never raises."""
        with self._lock:
            rows = self._rows
            waiting = len(rows)
            if waiting + self._writing >= self._most_rows:
                self._dropped += 1
                return
            try:
                rows.add(seq, key_hash, topic, partition, offset, status, send_us, ack_us)
            except (OverflowError, TypeError):
                self._dropped += 1
                return
        if self._thread is None:  # started by the first claim: a producer that never sends needs no thread
            self._thread = threading.Thread(target=self._work, name=f"aiokprod-claims-{self._name}", daemon=True)
            self._thread.start()
            atexit.register(self._finish_at_exit)
        if waiting + 1 == self._rows_per_file:
            self._wake.set()

    def end(self) -> None:
        """Begin to write the remaining rows; no row may follow. Does not wait: `wait` does."""
        self._ending.set()
        if self._thread is None:
            self._finish()
        self._wake.set()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the thread has ended; False if it has not in time."""
        return self._ended.wait(timeout_s)

    def report(self) -> ClaimsReport:
        """Return the current counts; callable from any thread."""
        with self._lock:
            return ClaimsReport(
                rows=self._written,
                dropped=self._dropped,
                waiting=len(self._rows) + self._writing,
                files=self._files,
                is_closed=self._is_closed,
            )

    def _finish_at_exit(self) -> None:
        self.end()
        if not self.wait(AT_EXIT_S):
            self._log.warned("claims late", f"{self.report().waiting} claims were not written before the end")

    # ------------------------------------------------------------------ the thread
    def _work(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(self._flush_s)
            self._wake.clear()
            is_last = (
                self._ending.is_set()
            )  # read before the rows are taken, so that these include all rows added before `end`
            rows = self._take()
            while len(rows):
                is_last_try = self._ending.is_set()  # read before it: a try that began before `end` is not the last
                if self._write(rows):
                    break
                if is_last_try:
                    self._give_up(rows)
                    break
                self._ending.wait(self._retry_s)
        self._finish()

    def _take(self) -> Rows:
        with self._lock:
            rows, self._rows = self._rows, Rows()
            self._writing = len(rows)
        return rows

    def _write(self, rows: Rows) -> bool:
        """Write one file; False if it could not be written, and then nothing of it is left."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = f"{self._name}-{self._files:06d}-{self._token}.parquet"
        temporary = self._folder / f".{name}.tmp"  # Spark skips names that begin with a dot
        try:
            temporary.unlink(missing_ok=True)
            with temporary.open("xb") as file:  # "x": never through a symbolic link in its place
                pq.write_table(rows.table(self._run, self._stream), file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self._folder / name)
            sync_folder(self._folder)
        except (OSError, pa.ArrowException) as error:
            with suppress(OSError):
                temporary.unlink()
            self._log.warned("claims", f"{len(rows)} claims cannot be written: {error}")
            self._is_failing = True
            return False
        if self._is_failing:
            self._is_failing = False
            self._log.announced("claims can be written again")
        with self._lock:
            self._written += len(rows)
            self._writing = 0
            self._files += 1
        return True

    def _give_up(self, rows: Rows) -> None:
        with self._lock:
            self._dropped += len(rows)
            self._writing = 0

    def _finish(self) -> None:
        report = self.report()
        try:
            self._marker.write(closed=True, rows=report.rows, dropped=report.dropped, files=report.files)
        except OSError as error:
            self._log.warned("claims", f"the run's marker cannot be written: {error}")
        else:
            self._is_closed = True
        if report.dropped:
            self._log.warned("claims dropped", f"{report.dropped} claims were dropped, {report.rows} written")
        atexit.unregister(self._finish_at_exit)
        self._ended.set()
