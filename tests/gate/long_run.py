"""The long run before an issue is called done (`nox -s long`): everything to its end, without a clock.

It takes hours. What passed is written down for the commit (`record`); an interrupted run goes on with what is left.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gate.change import SHARDS, commit, in_containers, shard_run, start_engine
from gate.environments import (
    LATE_SOCKETS,
    REQUIRED,
    WITHOUT_DOCKER,
    Python,
    Wheel,
    compiled_wheel,
    environment,
    on_pyspark,
    programs_of_the_system,
    pythons,
)
from gate.pytest_step import PytestResult, PytestRun, play
from gate.record import Record
from gate.second_try import close
from gate.shards import Shard
from gate.steps import LOGS, ROOT, StepFailedError, Steps, call, say

RECORDS: Final = Path(os.environ.get("AIOKPROD_TEST_LONG_RECORD") or Path.home() / ".cache/aiokprod/long")
"""Outside the checkout, so that another clone of the same commit goes on."""
OLDER_KAFKA: Final = ("3.9.1", "2.8.2")
OLDEST_PYSPARK: Final = "4.1"
WORLDS: Final = {"AIOKPROD_TEST_SWARM_SEEDS": "10000", "AIOKPROD_TEST_SEEDS": "8000"}
EXPLORATIONS: Final = {
    "AIOKPROD_TEST_LEDGER_SEEDS": "60000",
    "AIOKPROD_TEST_TRANSACTION_SEEDS": "60000",
    "AIOKPROD_TEST_TRANSACTION_FAULTS": "2",
    "AIOKPROD_TEST_SPARK_SCHEDULES": "3000",
}
EXPLORERS: Final = (
    "tests/unit/pipeline/partition/test_ledger_exploration.py",
    "tests/unit/transactions/test_machine_exploration.py",
    "tests/unit/transactions/test_machine_prepared_worlds.py",
    "tests/unit/spark/exactly_once/test_protocol_exploration.py",
    "tests/unit/spark/exactly_once/test_protocol_small_worlds.py",
)
SOAK_MINUTES: Final = "30"
NOTHING: Final[Mapping[str, str]] = {}
TWO: Final = ("-n", "2", "--dist", "loadfile", "-q")


@dataclass(frozen=True)
class LongStep:
    """One step of the long run.

    Args:
        name: by which the record knows it.
        work: returns the results of its pytest runs; a step without tests returns none.
    """

    name: str
    work: Callable[[], Sequence[PytestResult]]


def run_long(names: Sequence[str] = ()) -> bool:
    """Play every step that has not passed on this commit; return whether all have passed now.

    Args:
        names: only steps with one of these words in their name; none: all.

    Raises:
        StepFailedError: the checkout has changes that are not committed, so a record would name the wrong sources.
    """
    changes = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    if changes:
        raise StepFailedError(f"commit first: the record names a commit, and these are not in it:\n{changes}")
    record = Record(RECORDS, commit())
    steps = Steps()
    os.environ.update(REQUIRED)
    red: list[str] = []
    chosen = [step for step in all_steps() if not names or any(word in step.name for word in names)]
    for step in chosen:
        if record.has(step.name):
            continue
        with steps.step(step.name):
            try:
                results = step.work()
                passed = close(results)
            except StepFailedError as error:
                say(f"FAILED: {error}")
                passed = False
        if passed:
            record.add(step.name, "; ".join(result.summary.strip("= ") for result in results) or "passed")
        else:
            red.append(step.name)
    say(f"\nThe long run of {commit()}:")
    for step in chosen:
        say(f"  {record.passed.get(step.name, 'RED, see above'):70}  {step.name}")
    say(f"{len(chosen) - len(red)} of {len(chosen)} steps have passed")
    return not red


def all_steps() -> list[LongStep]:
    """Return the steps, those first that find most."""
    found = pythons()
    steps = [LongStep(f"long tests, shard {n} of {SHARDS}", _shard(Shard(n, SHARDS))) for n in range(1, SHARDS + 1)]
    steps += [LongStep("worlds in virtual time, compiled", worlds), LongStep("explorations", explorations)]
    steps += [LongStep(f"real brokers of Kafka {release}", _on_kafka(release)) for release in OLDER_KAFKA]
    steps += [LongStep(f"Spark and the audit on PySpark {OLDEST_PYSPARK}", on_oldest_pyspark)]
    steps += [LongStep(f"compiled on Python {python.version}", _compiled_on(python)) for python in found]
    steps += [LongStep(f"the sources on Python {python.version}", _sources_on(python)) for python in found[1:][-1:]]
    steps += [
        LongStep("uvloop", under_uvloop),
        LongStep("development mode, eager tasks", in_development_mode),
        LongStep("a loop that stands still", on_a_stalling_loop),
        LongStep("containers", containers),
        LongStep(f"soak, {SOAK_MINUTES} minutes", soak),
    ]
    return steps


@cache
def wheel_of(python: Python) -> Wheel:
    programs_of_the_system()
    return compiled_wheel(python)


@cache
def sources_of(python: Python) -> Path:
    """Return an environment with the checkout, for a Python."""
    return environment(ROOT / f".venv-{python.version}", "-e", str(ROOT), "--group", "test", python=python.command)


def on_the_wheel(
    name: str, *select: str, python: Python | None = None, env: Mapping[str, str] = NOTHING
) -> Sequence[PytestResult]:
    """Play tests on the compiled wheel of a Python, the oldest one if none is named."""
    wheel = wheel_of(python or pythons()[0])
    return [
        play(PytestRun(name, wheel.python, select, env={**wheel.env(), **WITHOUT_DOCKER, **env}, cwd=ROOT / "tests"))
    ]


def _shard(shard: Shard) -> Callable[[], Sequence[PytestResult]]:
    return lambda: [play(shard_run(wheel_of(pythons()[0]), shard))]


def _on_kafka(release: str) -> Callable[[], Sequence[PytestResult]]:
    words = ("real", "-m", "slow or not slow", *TWO)
    return lambda: on_the_wheel(f"real on {release}", *words, env={"AIOKPROD_KAFKA_VERSION": release})


def _compiled_on(python: Python) -> Callable[[], Sequence[PytestResult]]:
    return lambda: on_the_wheel(f"compiled on {python.version}", *TWO, "--ignore", "unit/project", python=python)


def _sources_on(python: Python) -> Callable[[], Sequence[PytestResult]]:
    return lambda: [play(PytestRun(f"sources on {python.version}", sources_of(python), ("tests/unit", *TWO)))]


def worlds() -> Sequence[PytestResult]:
    """Play many more worlds than a change does."""
    return on_the_wheel("worlds", "simulation", "-m", "slow or not slow", *TWO, env=WORLDS)


def explorations() -> Sequence[PytestResult]:
    """Explore ledger, transactions and the sink's protocol much longer than the README's tests do, on the sources."""
    python = sources_of(pythons()[0])
    return [play(PytestRun("explorations", python, (*EXPLORERS, "-n", "2", "-q"), env=EXPLORATIONS))]


def on_oldest_pyspark() -> Sequence[PytestResult]:
    """Play the suites of Spark and of the audit on the oldest PySpark that is supported."""
    oldest = pythons()[0]
    wheel = wheel_of(oldest)
    python = on_pyspark(OLDEST_PYSPARK, wheel, oldest)
    select = ("spark", "audit", "-m", "slow or not slow", *TWO)
    run = PytestRun("oldest PySpark", python, select, LATE_SOCKETS, {**wheel.env(), **WITHOUT_DOCKER}, ROOT / "tests")
    return [play(run)]


def on_another_loop(name: str, python: Python, *paths: str, **env: str) -> Sequence[PytestResult]:
    """Play what depends on the event loop: not the ledger, which has none, nor the tests that count work."""
    select = (*paths, "--ignore-glob", "*/test_ledger_*.py", "--ignore-glob", "*/test_cost*.py", *TWO)
    return [play(PytestRun(name, sources_of(python), select, env=env))]


def under_uvloop() -> Sequence[PytestResult]:
    """Play what has a loop under uvloop."""
    paths = ("tests/unit/pipeline", "tests/unit/cluster", "tests/unit/testing")
    return on_another_loop("uvloop", pythons()[0], *paths, AIOKPROD_TEST_UVLOOP="1")


def in_development_mode() -> Sequence[PytestResult]:
    """Play what has tasks and connections in development mode, with eager tasks where the newest Python has them."""
    newest = pythons()[-1]
    env = {"PYTHONDEVMODE": "1"} | ({"AIOKPROD_TEST_EAGER": "1"} if newest.version != "3.11" else {})
    return on_another_loop("development mode", newest, "tests/unit/pipeline/behaviour", "tests/unit/cluster", **env)


def on_a_stalling_loop() -> Sequence[PytestResult]:
    """Play what has a loop on one that stands still at random."""
    parts = ("pipeline", "cluster", "testing", "transactions", "consuming", "telemetry")
    return on_another_loop("stalls", pythons()[0], *(f"tests/unit/{part}" for part in parts), AIOKPROD_TEST_STALLS="1")


def containers() -> Sequence[PytestResult]:
    """Play the container tests."""
    start_engine(LOGS / "engine.log")
    return in_containers(wheel_of(pythons()[0]))


def soak() -> Sequence[PytestResult]:
    """Run producers on a real cluster under faults; its own verdict decides."""
    call(
        wheel_of(pythons()[0]).python,
        "soak",
        "--minutes",
        SOAK_MINUTES,
        "--report",
        ROOT / "build/soak",
        cwd=ROOT / "tests",
    )
    return []
