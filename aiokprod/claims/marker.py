"""`Marker`: the small JSON file beside the claims that says whether the claims of a start are complete, and how many they are.

    _run-<run>-<stream>.json            of the first start with this run and stream, and of those after a clean end
    _run-<run>-<stream>-<token>.json    of a start that found the first one open: its sender crashed, or still runs

Invariant: a start writes no marker but its own, so that the marker of a start that never ended stays open.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The content of a marker."""

    run: int
    stream: int
    closed: bool
    """True if the claims of this start are all written, or counted as dropped"""
    rows: int = 0
    dropped: int = 0
    files: int = 0

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a marker's file.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is not a marker: empty, as after a power cut, or something else.
        """
        return cls.parse(path.read_bytes())

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Parse a marker's bytes. Raises ValueError if they are not a marker."""
        try:
            found = json.loads(content)
            facts = cls(**{name: found[name] for name in cls.__slots__})
        except (TypeError, KeyError) as error:
            raise ValueError(f"no marker: {error!r}") from None
        numbers = (facts.run, facts.stream, facts.rows, facts.dropped, facts.files)
        if not isinstance(facts.closed, bool) or any(type(number) is not int for number in numbers):
            raise ValueError("no marker: a value has a wrong type")
        return facts


def name_of(run: int, stream: int) -> str:
    """Return the beginning of the names of all files of a sender."""
    return f"{run & (1 << 64) - 1:016x}-{stream}"


class Marker:
    """The marker of one start of a sender."""

    def __init__(self, folder: Path, run: int, stream: int, token: str) -> None:
        self._folder = folder
        self._run = run
        self._stream = stream
        self._token = token
        self._path = folder / f"_run-{name_of(run, stream)}.json"  # Spark reads no names with a _ before them

    def begin(self) -> Facts:
        """Take a name that no other start has, and write a marker that says this start is open.

        Returns:
            The facts written under that name before.

        Raises:
            OSError: the folder cannot be written to.
        """
        earlier = self._take_over()
        if not self._reserve():
            self._path = self._path.with_name(f"{self._path.stem}-{self._token}.json")
            earlier = None
        facts = earlier or Facts(run=self._run, stream=self._stream, closed=True)
        self.write(closed=False, rows=facts.rows, dropped=facts.dropped, files=facts.files)
        return facts

    def _take_over(self) -> Facts | None:
        """Return the facts of an earlier start that ended well, and free its name; None if there is none."""
        aside = self._folder / f".{self._path.name}.{self._token}"
        try:
            if not Facts.read(self._path).closed:
                return None
            self._path.rename(aside)
            earlier = Facts.read(aside)
        except (FileNotFoundError, ValueError):
            return None
        if not earlier.closed:  # another start took the name between the read and the rename: give it back
            aside.rename(self._path)
            return None
        aside.unlink()
        return earlier

    def _reserve(self) -> bool:
        try:
            self._path.open("x").close()
        except FileExistsError:
            return False
        return True

    def write(self, *, closed: bool, rows: int, dropped: int, files: int) -> None:
        """Write the marker.

        Raises:
            OSError: the folder cannot be written to.
        """
        facts = Facts(run=self._run, stream=self._stream, closed=closed, rows=rows, dropped=dropped, files=files)
        temporary = self._folder / f".{self._path.name}.{self._token}.tmp"
        temporary.unlink(missing_ok=True)
        with temporary.open("x") as file:  # "x": never through a symbolic link in its place
            file.write(json.dumps(asdict(facts)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        sync_folder(self._folder)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut, where the system can sync a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
