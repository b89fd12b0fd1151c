"""`Markers`: the markers beside the claims, which say whose claims are incomplete, and how many claims there must be.

If the claims are incomplete, an audit cannot say of an unclaimed record that it was never sent, so every fault of a marker
is a problem in the verdict, by run and stream.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from aiokprod.claims.marker import Facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sender = tuple[int, int]  # run and stream
_NAME: Final = re.compile(r"_run-([0-9a-f]{16})-(-?\d+)(?:-[0-9a-f]+)?\.json")
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://[^/]*)?(?=/)")  # not the drive of a path on Windows


@dataclass(slots=True)
class Markers:
    """The markers of one folder."""

    incomplete: dict[Sender, str] = field(default_factory=dict[Sender, str])
    """senders whose claims are incomplete, and why"""
    rows: dict[Sender, int] = field(default_factory=dict[Sender, int])
    """number of claims that were written; a lower bound for incomplete senders"""
    others: list[str] = field(default_factory=list[str])
    """problems that belong to no known run"""

    @classmethod
    def of(cls, folder: str | Path, spark: SparkSession | None = None) -> Markers:
        """Read the markers; one that cannot be read is a problem in the result, and raises nothing.

        Args:
            spark: finds the folder on any file system of Spark's; None: a folder of this machine.
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
        """Return only what concerns these runs; None for all runs."""
        if runs is None:
            return self
        return Markers(
            {sender: why for sender, why in self.incomplete.items() if sender[0] in runs},
            {sender: count for sender, count in self.rows.items() if sender[0] in runs},
            self.others,
        )

    def compare(self, found: Mapping[tuple[int, int | None], int]) -> list[str]:
        """Compare with the number of claims found; return the problems. Senders with missing claims become incomplete."""
        problems: list[str] = []
        for sender, written in sorted(self.rows.items()):
            there = found.get(sender, 0)
            if there < written:
                problems.append(_told(sender, f"{written - there} of {written} claims are not there"))
                self.incomplete.setdefault(sender, problems[-1])
            elif there > written and sender not in self.incomplete:
                problems.append(_told(sender, f"{there} claims are there, and {written} were written"))
        return problems


def _told(sender: Sender, *problems: str) -> str:
    return f"run {sender[0]} stream {sender[1]}: {', '.join(problems)}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _contents(folder: str, spark: SparkSession | None) -> Iterable[tuple[str, bytes]]:
    """Return names and contents of the markers; a folder that does not exist has none."""
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
    """Read the markers through Hadoop, as Spark reads the claims themselves, on any file system."""
    internals = cast(Any, spark)  # pyspark has no public way to the JVM
    java, session = internals._jvm, internals._jsparkSession
    markers = java.org.apache.hadoop.fs.Path(f"{folder.rstrip('/')}/_run-*.json")
    system = markers.getFileSystem(session.sessionState().newHadoopConf())
    for status in system.globStatus(markers) or ():
        stream = system.open(status.getPath())
        try:
            yield status.getPath().getName(), bytes(java.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
