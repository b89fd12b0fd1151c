"""The steps of the long run that passed, by commit: a file of JSON outside git, so that an interrupted run goes on."""

from __future__ import annotations

import json
from pathlib import Path


class Record:
    """The steps that passed on one commit.

    Args:
        folder: has one file for each commit.
        commit: its whole hash.
    """

    def __init__(self, folder: Path, commit: str) -> None:
        self._file = folder / f"{commit}.json"
        self.passed: dict[str, str] = json.loads(self._file.read_text()) if self._file.exists() else {}
        """The summary line of each step that passed, by its name."""

    def has(self, step: str) -> bool:
        """Return whether the step has passed on this commit."""
        return step in self.passed

    def add(self, step: str, summary: str) -> None:
        """Write down that a step has passed; the file is whole at every moment, as the run may be killed."""
        self.passed[step] = summary
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self.passed, indent=1) + "\n")
        new.replace(self._file)
