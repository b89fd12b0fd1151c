"""`Markers`: what the markers beside the claims say: whose claims are not all there, and how many there must be.

An audit of claims that are not complete cannot say of an unclaimed record that it was never sent, so all that is wrong with
a marker is a problem of the verdict, by run and stream.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiokprod.claims.marker import Facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sender = tuple[int, int]  # run and stream
_NAME: Final = re.compile(r"_run-([0-9a-f]{16})-(-?\d+)(?:-[0-9a-f]+)?\.json")
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://[^/]*)?(?=/)")  # not the drive of a path on Windows


@dataclass(slots=True)
class Markers:
    """Of one folder."""

    incomplete: dict[Sender, str] = field(default_factory=dict)
    """whose claims are not all there, and why"""
    rows: dict[Sender, int] = field(default_factory=dict)
    """how many claims were written; at least so many of those that are incomplete"""
    others: list[str] = field(default_factory=list)
    """what concerns no run that is known"""

    @classmethod
    def of(cls, folder: str | Path, spark: SparkSession | None = None) -> Markers:
        """Read them; what cannot be read is a problem, and raises nothing.

        Args:
            spark: finds the folder wherever it reads the claims; None: a folder of this machine.
        """
        found = cls()
        rows: defaultdict[Sender, int] = defaultdict(int)
        problems: defaultdict[Sender, list[str]] = defaultdict(list)
        try:
            contents = sorted(_contents(str(folder), spark))
        except Exception as error:  # of a file system, or of the JVM
            found.others.append(f"the markers of {folder} cannot be read ({_first_line(error)})")
            return found
        for name, content in contents:
            try:
                facts = Facts.parse(content)
            except ValueError:
                named = _NAME.fullmatch(name)
                if named is None:
                    found.others.append(f"the marker {name} cannot be read")
                    continue
                run = int(named[1], 16)
                sender = (run - (1 << 64) if run >> 63 else run, int(named[2]))
                problems[sender].append("its marker cannot be read")
                continue
            sender = (facts.run, facts.stream)
            rows[sender] += facts.rows
            if facts.dropped:
                problems[sender].append(f"{facts.dropped} claims were dropped")
            elif not facts.closed:
                problems[sender].append("its claims were not closed")
        found.rows = dict(rows)
        found.incomplete = {sender: _told(sender, *why) for sender, why in sorted(problems.items())}
        return found

    def of_runs(self, runs: Collection[int] | None) -> Markers:
        """Only what concerns these runs; None: all."""
        if runs is None:
            return self
        return Markers(
            {sender: why for sender, why in self.incomplete.items() if sender[0] in runs},
            {sender: count for sender, count in self.rows.items() if sender[0] in runs},
            self.others,
        )

    def compare(self, found: Mapping[tuple[int, int | None], int]) -> list[str]:
        """Take the number of claims that are there; what is wrong with it. Whose claims are missing is incomplete then."""
        problems: list[str] = []
        for sender, written in sorted(self.rows.items()):
            there = found.get(sender, 0)
            if there < written:
                problems.append(_told(sender, f"{written - there} of {written} claims are not there"))
                self.incomplete.setdefault(sender, problems[-1])
            elif there > written and sender not in self.incomplete:
                problems.append(_told(sender, f"{there} claims are there, and {written} were written"))
        return problems


def incomplete_runs(folder: str | Path) -> dict[Sender, str]:
    """(run, stream) whose claims are not all in the folder by their markers, and why."""
    return Markers.of(folder).incomplete


def _told(sender: Sender, *problems: str) -> str:
    return f"run {sender[0]} stream {sender[1]}: {', '.join(problems)}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _contents(folder: str, spark: SparkSession | None) -> Iterable[tuple[str, bytes]]:
    """Names and contents of the markers; a folder that is not there has none."""
    if spark is not None and getattr(spark, "_jvm", None) is not None:
        return _by_hadoop(folder, spark)
    return _of_this_machine(folder)


def _of_this_machine(folder: str) -> Iterator[tuple[str, bytes]]:
    uri = _URI.match(folder)
    if uri is not None:
        if uri[1].lower() != "file":
            raise ValueError("it is not a folder of this machine")
        folder = folder[uri.end() :]  # of file:/a, file:///a, file://localhost/a
    for each in [folder] if Path(folder).is_dir() else glob(folder):  # noqa: PTH207 - a pattern, as Spark takes it
        for path in Path(each).glob("_run-*.json"):
            yield path.name, path.read_bytes()


def _by_hadoop(folder: str, spark: SparkSession) -> Iterator[tuple[str, bytes]]:
    """As Spark finds the claims themselves, wherever they are."""
    java: Any = spark._jvm
    session: Any = spark._jsparkSession
    markers = java.org.apache.hadoop.fs.Path(f"{folder.rstrip('/')}/_run-*.json")
    system = markers.getFileSystem(session.sessionState().newHadoopConf())
    for status in system.globStatus(markers) or ():
        stream = system.open(status.getPath())
        try:
            yield status.getPath().getName(), bytes(java.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
