"""`Marker`: the small JSON file beside the claims that says whether the claims of a start are all there, and how many.

    _run-<run>-<stream>.json            of the first start with this run and stream, and of those after a clean end
    _run-<run>-<stream>-<token>.json    of a start that found the first one open: its sender crashed, or is still there

Invariant: a start writes no marker but its own, so that a start that never ended stays told as such.
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
    """What a marker says."""

    run: int
    stream: int
    closed: bool
    """the claims of this start are all written, or counted as dropped"""
    rows: int = 0
    dropped: int = 0
    files: int = 0

    @classmethod
    def read(cls, path: Path) -> Self:
        """Of a file.

        Raises:
            OSError: it cannot be read.
            ValueError: it is no marker: empty, as after a power cut, or of something else.
        """
        return cls.parse(path.read_bytes())

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Of a file's bytes. Raises ValueError: it is no marker."""
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
    """The beginning of the names of all files of a sender."""
    return f"{run & (1 << 64) - 1:016x}-{stream}"


class Marker:
    """The marker of one start."""

    def __init__(self, folder: Path, run: int, stream: int, token: str) -> None:
        self._folder = folder
        self._run = run
        self._stream = stream
        self._token = token
        self._path = folder / f"_run-{name_of(run, stream)}.json"  # Spark reads no names with a _ before them

    def begin(self) -> Facts:
        """Find a name that no other start has, and write that this one is open.

        Returns:
            What was written before under that name.

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
        """The facts of an earlier start that ended well: its name is free now."""
        aside = self._folder / f".{self._path.name}.{self._token}"
        try:
            if not Facts.read(self._path).closed:
                return None
            self._path.rename(aside)
            earlier = Facts.read(aside)
        except (FileNotFoundError, ValueError):
            return None
        if not earlier.closed:  # another start took it meanwhile: give it back
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
        """Say how it stands.

        Raises:
            OSError: the folder cannot be written to.
        """
        facts = Facts(run=self._run, stream=self._stream, closed=closed, rows=rows, dropped=dropped, files=files)
        temporary = self._folder / f".{self._path.name}.{self._token}.tmp"
        temporary.unlink(missing_ok=True)
        with temporary.open("x") as file:  # never through a link that lies there
            file.write(json.dumps(asdict(facts)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        sync_folder(self._folder)


def sync_folder(folder: Path) -> None:
    """A new name in it survives a power cut, where the system can do that for a folder."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
