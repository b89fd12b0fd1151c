"""The end of a run: tests that failed are played once more, alone, or make the run red."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gate.failures import Failure, closing_lines, judge
from gate.pytest_step import PytestResult, PytestRun, play
from gate.steps import StepFailedError, say

Play = Callable[[PytestRun], PytestResult]


def close(results: Sequence[PytestResult], play_once: Play = play) -> bool:
    """Play failed tests once more, print what came of the run, and return whether it passed.

    The last line is a summary line of pytest's own.

    Args:
        results: of all pytest runs, in their order.
        play_once: plays one test.
    """
    run_of = {failure.test: result.run for result in reversed(results) for failure in result.failures}
    outcome = judge(failure for result in results for failure in result.failures)
    if outcome.is_red:
        _say_all(outcome.lines(), _summaries(results))
        return False
    passed: list[Failure] = []
    failed: list[str] = []
    again: list[PytestResult] = []
    for failure in outcome.again:
        say(f"\n=== once more, alone: {failure.test}\nthe first time ({run_of[failure.test].name}):\n{failure.text}")
        try:
            result = play_once(run_of[failure.test].alone(failure.test))
        except StepFailedError as error:
            failed.append(f"FAILED {failure.test}: its second run has not ended well: {error}")
            continue
        again.append(result)
        if result.failures:
            failed.append(f"FAILED {failure.test}: at the second try as well")
        else:
            passed.append(failure)
    _say_all([*failed, *closing_lines(passed)], _summaries([*results, *again]))
    return not failed


def _summaries(results: Sequence[PytestResult]) -> list[str]:
    """Return the summary line of each run; the last one stands alone, as pytest writes it."""
    named = [f"{result.run.name}: {result.summary}" for result in results[:-1]]
    return named + [result.summary for result in results[-1:]]


def _say_all(*groups: Sequence[str]) -> None:
    for group in groups:
        for line in group:
            say(line)
