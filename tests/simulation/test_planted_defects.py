"""The simulation finds what other clients got wrong: each defect is planted and must show within a few thousand seeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from planted import DEFECTS, PLANTED
from world import explore

from aiokprod.pipeline import broker_backend
from aiokprod.pipeline import pipeline as pipeline_module

pytestmark = [
    pytest.mark.pure("a defect subclasses a part of the pipeline"),
    pytest.mark.usefixtures("heals", "defects"),  # the watch may meet what they leave standing
]

NEAR = {"SendsToTheNewLeaderEarly": 3_500, "BumpsAllPartitions": 220}  # rare ones: where to begin to look
# What each does wrong, as the judges name it. A defect that is found by other things than these is planted wrongly, or
# a judge takes one thing for another.
FOUND_BY: dict[str, set[str]] = {
    "ResendsUnderFreshNumbers": {"duplicate"},
    "DropsWhatIsNotLed": {"lost"},
    # A batch that is still in flight is told NOT, and its numbers go to the next one, which the broker takes for a copy of it.
    "SendsToTheNewLeaderEarly": {"wrong persistence", "lost"},
    "ResolvesBeforeTheAnswer": {"lost"},
    "BumpsAllPartitions": {"duplicate"},
    "MakesNewBatchesOnRetry": {"duplicate"},
    "FlushesEarly": {"flush returned before everything was settled"},
    "RecallsWhatIsOnItsWay": {"wrong persistence", "wrong offset"},  # the records behind it move up
    "KeepsTheBytesOfFailures": {"leaked memory"},
}
MOST_SEEDS = 4_000


def wrongs_of(seed: int) -> list[str]:
    try:
        return [str(wrong) for wrong in explore(seed).wrongs]
    except Exception as crash:  # a defect may also show as a crash, a deadlock or a leftover
        return [f"{type(crash).__name__}: {crash}"]


def crashes_of_pipelines(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Collect the causes of failed pipelines. Only they would show a defect that is called in a wrong way."""
    causes: list[BaseException] = []
    crashed = pipeline_module.Pipeline.crashed

    def note(pipeline: pipeline_module.Pipeline, cause: BaseException) -> None:
        causes.append(cause)
        crashed(pipeline, cause)

    monkeypatch.setattr(pipeline_module.Pipeline, "crashed", note)
    return causes


def findings(first: int) -> Iterator[tuple[int, list[str]]]:
    for seed in range(first, first + MOST_SEEDS):
        if wrongs := wrongs_of(seed):
            yield seed, wrongs


def kinds_of(wrongs: list[str]) -> set[str]:
    return {wrong.partition(": ")[0] for wrong in wrongs}


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_found(defect: type, monkeypatch: pytest.MonkeyPatch) -> None:
    place = next(name for name, base in PLANTED.items() if issubclass(defect, base))
    monkeypatch.setattr(pipeline_module if place == "Flushes" else broker_backend, place, defect)
    causes = crashes_of_pipelines(monkeypatch)
    found = next(findings(NEAR.get(defect.__name__, 0)), None)
    assert found is not None, f"{defect.__name__} was not found in {MOST_SEEDS} seeds"
    seed, wrongs = found
    own = [cause for cause in causes if isinstance(cause, TypeError | AttributeError)]
    assert not own, f"{defect.__name__} does not fit what it is planted into: {own[0]!r}"
    print(f"{defect.__name__}: seed {seed}: {sorted(kinds_of(wrongs))}: {wrongs[0][:200]}")
    assert kinds_of(wrongs) <= FOUND_BY[defect.__name__]
    monkeypatch.undo()
    assert wrongs_of(seed) == [], "without the defect the same seed is clean"
