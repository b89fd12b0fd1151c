"""The rule for tests that failed: whether one is played once more, and whether the run is red. Pure.

A test that waits for a clock can fail because the machine stood still, and one such test must not throw away a day of work. So
a test that failed is played once more, alone, at the end. What is deterministic fails each time, and a record that was lost,
duplicated or reordered is a defect however rare it is: such failures are final.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

MOST_SECOND_TRIES: Final = 3
"""More tests than this do not fail because of one slow moment of a machine."""

DETERMINISTIC: Final = re.compile(
    r"^tests/simulation/|exploration|small_worlds|_worlds\.py|/test_ledger_|/test_verdicts|checker/|_drawn\.py"
)
"""Explorations, worlds in virtual time, the ledger, the checker: by their paths, also where they start processes."""

RECORDS: Final = re.compile(
    r"\b(lost|loses?|missing|duplicated?s?|doubled?|twice|repeated|reordered|out of order|overtook|phantoms?|torn|gaps?|ghosts?"
    r"|acknowledged|persisted|NOT_PERSISTED|healed|Finding)\b|Finding\(",
    re.IGNORECASE,
)
"""Words of a verdict about records."""

COLLECTIONS: Final = re.compile(
    r"At index \d+ diff|Left contains|Right contains|Extra items|Differing items|Full diff:|\blen\(|== \[\]|\[\] ==|== \{\}"
)
"""An assertion that compares collections, which may be the records of a log."""


@dataclass(frozen=True)
class Failure:
    """A test that failed.

    Args:
        test: its id, such as `tests/real/test_acks.py::test_it[4.3]`.
        sensed: what the test used that a machine can delay (a socket, a thread, a process, a sleep); empty: nothing.
        error: the name of the exception's class.
        message: the exception's own words, without source lines.
        text: the whole report, with the traceback.
    """

    test: str
    sensed: tuple[str, ...]
    error: str
    message: str
    text: str

    @classmethod
    def read(cls, values: dict[str, Any]) -> Failure:
        """Return the failure of a line that `plugin` has written."""
        return cls(**{**values, "sensed": tuple(values["sensed"])})

    def as_dict(self) -> dict[str, Any]:
        """Return the values for a line of JSON."""
        return asdict(self)


def why_final(failure: Failure) -> str | None:
    """Return why the test is not played once more; None: it is."""
    if DETERMINISTIC.search(failure.test.partition("::")[0]):
        return "an exploration, a world in virtual time or a verdict: it is deterministic"
    if not failure.sensed:
        return "the test used no clock, socket, thread or process: it is deterministic"
    if is_about_records(failure):
        return "it may be a lost, duplicated or reordered record"
    return None


def is_about_records(failure: Failure) -> bool:
    """Return whether an assertion about records may have failed.

    It is better to take another assertion for one about records than the other way round: the run is then red.
    """
    if failure.error not in ("AssertionError", "Failed"):
        return False
    return bool(RECORDS.search(failure.message) or COLLECTIONS.search(failure.message))


@dataclass
class Outcome:
    """The consequences of the failures of a run.

    Args:
        final: tests that are not played once more, with the reason.
        again: tests that are.
    """

    final: list[tuple[Failure, str]] = field(default_factory=list)
    again: list[Failure] = field(default_factory=list)

    @property
    def is_red(self) -> bool:
        """Return whether the run has failed, whatever a second try shows."""
        return bool(self.final) or len(self.again) > MOST_SECOND_TRIES

    def lines(self) -> list[str]:
        """Return what a person reads about the tests that make the run red."""
        told = [f"FAILED {failure.test}: {why}" for failure, why in self.final]
        if len(self.again) > MOST_SECOND_TRIES:
            told.append(f"FAILED {len(self.again)} tests: more than {MOST_SECOND_TRIES} are not played once more")
            told += [f"  {failure.test}" for failure in self.again]
        return told


def judge(failures: Iterable[Failure]) -> Outcome:
    """Divide the failures of a run; a test that failed several times (its body, its fixtures) counts once."""
    outcome = Outcome()
    by_test: dict[str, list[Failure]] = {}
    for failure in failures:
        by_test.setdefault(failure.test, []).append(failure)
    for several in by_test.values():
        reason = next(((failure, why) for failure in several if (why := why_final(failure))), None)
        if reason is not None:
            outcome.final.append(reason)
        else:
            outcome.again.append(several[0])
    return outcome


def closing_lines(passed_at_second_try: Sequence[Failure]) -> list[str]:
    """Return the lines that name the tests which passed at the second try; none: no lines."""
    if not passed_at_second_try:
        return []
    return [
        f"{len(passed_at_second_try)} passed at the second try (mend the cause before the next issue is called done):",
        *(f"  passed at the second try: {failure.test}: {failure.error}" for failure in passed_at_second_try),
    ]
