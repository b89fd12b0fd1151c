"""A pytest run as a step of the gate: its failures come back as data, and one of its tests can be played once more, alone."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gate.failures import Failure
from gate.plugin_variables import FAILURES, FIRST_OF_EACH_FILE, SHARD
from gate.steps import LOGS, ROOT, StepFailedError, shown_and_kept, status_of

FAILED = 1
"""Pytest's exit status of a run with failed tests; all others but 0 are errors of the run itself."""


@dataclass(frozen=True)
class PytestRun:
    """How a set of tests is run.

    Args:
        name: of the step, in words that a file name can have.
        python: the interpreter.
        select: what chooses tests: paths, `-m`, `--ignore`, `-n`, `--dist`. A second try has none of it.
        options: what changes how a test runs, such as `-W`. A second try has them too.
        command: run instead of `python -m pytest ...`, such as the README's own line.
        nice: of the processes, so that what matters more goes first.
    """

    name: str
    python: Path
    select: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path = ROOT
    command: tuple[str, ...] = ()
    nice: int = 0

    def words(self) -> list[str]:
        """Return the words of the command."""
        plain = self.command or (str(self.python), "-m", "pytest", *self.options, *self.select)
        return [*(("nice", "-n", str(self.nice)) if self.nice else ()), *plain]

    def alone(self, test: str) -> PytestRun:
        """Return a run of one test in the same environment."""
        path = test if self.cwd == ROOT else test.removeprefix(f"{self.cwd.name}/")
        env = {name: value for name, value in self.env.items() if name not in (SHARD, FIRST_OF_EACH_FILE)}
        select = ("-m", "slow or not slow", "-n", "0", path)
        return replace(self, name=f"{self.name}, once more", select=select, env=env, command=(), nice=0)


@dataclass(frozen=True)
class PytestResult:
    """The result of a run: its failures, and pytest's own last line."""

    run: PytestRun
    failures: Sequence[Failure]
    summary: str


def play(run: PytestRun, log: Path | None = None) -> PytestResult:
    """Run the tests; their output is shown, or goes into the log of what runs beside the main steps.

    Raises:
        StepFailedError: the run itself failed: an error of collection, no test, an interpreter that crashed.
    """
    kept = log or LOGS / f"{run.name.replace(' ', '-').replace(',', '')}.log"
    if log is None:
        kept.write_text("")
    with tempfile.TemporaryDirectory() as folder:
        lines = Path(folder) / "failures"
        env = {**run.env, FAILURES: str(lines)}
        words = run.words()
        if log is None:
            status = shown_and_kept(words, kept, env, run.cwd)
        else:
            status = status_of(*words, env=env, cwd=run.cwd, log=kept)
        failures = [Failure.read(json.loads(line)) for line in lines.read_text().splitlines()] if lines.exists() else []
    if status not in (0, FAILED) or (status == FAILED) is not bool(failures):
        raise StepFailedError(f"{run.name}: pytest ended with status {status} and {len(failures)} failed tests: {kept}")
    return PytestResult(run, failures, last_line(kept))


def last_line(log: Path) -> str:
    """Return pytest's summary line, the last one of its output."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else ""
