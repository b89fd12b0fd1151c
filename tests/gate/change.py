"""The steps of every change (`.ci/run`): the same on every machine, none left out by the clock."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from gate.environments import (
    REQUIRED,
    WITHOUT_DOCKER,
    Wheel,
    compiled_wheel,
    environment,
    line_of,
    programs_of_the_system,
    pythons,
)
from gate.plugin_variables import FIRST_OF_EACH_FILE, SHARD
from gate.pytest_step import PytestResult, PytestRun, play
from gate.second_try import close
from gate.shards import Shard, shard_of_commit
from gate.steps import LOGS, ROOT, Beside, StepFailedError, Steps, call, say, status_of

SHARDS: Final = 9
"""So many that one takes about ten minutes on two quiet cores, with two processes."""

WORLDS: Final = {"AIOKPROD_TEST_SWARM_SEEDS": "2200", "AIOKPROD_TEST_SEEDS": "2200"}
"""Worlds of the swarm, and seeds of the whole producer in virtual time: less than eight minutes of two quiet cores."""

NO_ENGINE: Final = 77
"""The exit status of `tests/containers/engine` where this machine can have no engine."""

COMPILED: Final = ("unit/pipeline", "unit/transactions", "unit/cluster", "unit/test_forms.py", "simulation")
"""Where the compiled modules are tested."""

SUITES: Final = ("real", "conformance", "spark", "audit", "claims", "frameworks", "soak")
"""The suites on real brokers and on Spark: of each of their files two tests are played on the compiled wheel."""


def run_change() -> bool:
    """Run the gate of every change; return whether it passed."""
    steps = Steps()
    results: list[PytestResult] = []
    wheels: list[Wheel] = []  # one compiler runs for minutes on one processor: it begins first, beside the next steps
    compiler = Beside("wheel", lambda log: wheels.append(compiled_wheel(pythons()[0], log)))
    with steps.step("lint, types, layers, workflows; beside them and the next steps the compiled wheel is built"):
        lint()
    with steps.step("a browser, a database, shells and valgrind"):
        programs_of_the_system()
    os.environ.update(REQUIRED)
    with steps.step("README: Test it"):
        results.append(play(readme_tests()))
    with steps.step("README: Run it"):
        call("bash", "-c", line_of("Run it"), env=WITHOUT_DOCKER)
    with steps.step("a Docker engine and an image of Kafka; what is left of the compiled wheel"):
        start_engine(LOGS / "engine.log")
        compiler.join(tail=1)
        wheel = wheels[0]
    with steps.step("instructions of the hot paths, against their baseline"):
        words = ("bench/instructions.py", "--check", "--counter", "callgrind", "--compiled", wheel.python)
        call(ROOT / ".venv/bin/python", *words)
    shard = shard_of_commit(commit(), SHARDS)
    long_tests: list[PytestResult] = []
    with steps.step(
        f"compiled: the pipeline and the worlds; beside them real brokers, Spark, shard {shard} of the long tests"
    ):
        beside = Beside("long", lambda log: long_tests.extend(on_real_brokers(wheel, shard, log)))
        results.append(play(compiled_tests(wheel)))
        beside.join(tail=None)
        results += long_tests
    with steps.step("containers"):
        results += in_containers(wheel)
    say("\nWhat the steps took:")
    for line in steps.costs():
        say(line)
    say(f"Of the long tests this commit has played shard {shard}; `nox -s long` plays all of them.")
    return close(results)


def lint() -> None:
    """Check rules, format, types, layers and workflows; in an environment of its own, as the README's line makes its own."""
    venv = environment(ROOT / ".venv-lint", "-e", str(ROOT), "--group", "dev").parent
    call(venv / "ruff", "check")
    call(venv / "ruff", "format", "--check")
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    call(venv / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    call(venv / "zizmor", "--offline", "--no-progress", *workflows)
    pyright = Beside("pyright", lambda log: call(venv / "pyright", "--pythonpath", venv / "python", log=log))
    call(venv / "mypy")
    pyright.join(tail=1)
    call(venv / "lint-imports")


def readme_tests() -> PytestRun:
    """Return the README's own line, as a newcomer runs it."""
    words = ("bash", "-c", line_of("Test it"))
    return PytestRun("README Test it", ROOT / ".venv/bin/python", command=words, env=WITHOUT_DOCKER)


def compiled_tests(wheel: Wheel) -> PytestRun:
    """Return the tests of what is compiled, and the worlds; in tests/, where no sources lie beside the installed package."""
    select = (*COMPILED, "-n", "2", "--dist", "loadfile", "-q")
    return PytestRun("compiled", wheel.python, select, env={**wheel.env(), **WORLDS}, cwd=ROOT / "tests")


def on_real_brokers(wheel: Wheel, shard: Shard, log: Path) -> list[PytestResult]:
    """Play two tests of each file on real brokers and on Spark, one shard of the long tests, and the documentation site."""
    say_in(log, "two tests of each file on real brokers and on Spark")
    every = PytestRun(
        "real brokers and Spark", wheel.python, (*SUITES, "-n", "2", "--dist", "loadfile", "-q"),
        env={**wheel.env(), FIRST_OF_EACH_FILE: "2"}, cwd=ROOT / "tests",
    )  # fmt: skip
    results = [play(every, log)]
    say_in(log, f"shard {shard} of the long tests")
    results.append(play(shard_run(wheel, shard), log))
    say_in(log, "the documentation site")
    return [*results, play(site(), log)]


def shard_run(wheel: Wheel, shard: Shard) -> PytestRun:
    """Return one shard of the long tests, on the compiled wheel."""
    select = ("-m", "slow", "-n", "2", "--dist", "loadfile", "--durations", "12")
    env = {**wheel.env(), **WITHOUT_DOCKER, SHARD: str(shard)}
    return PytestRun(f"long tests {shard.number} of {shard.of}", wheel.python, select, env=env, cwd=ROOT / "tests")


def start_engine(log: Path) -> None:
    """Start a Docker engine, and make the image of Kafka for it.

    Raises:
        StepFailedError: there is none, and `CI` is true.
    """
    status = status_of("python3", "tests/containers/engine", "up", log=log)
    if status == NO_ENGINE and os.environ.get("CI") != "true":
        say_in(log, "NOT RUN: the container tests, as this machine can have no Docker engine (above)")
        return
    if status:
        raise StepFailedError(f"no Docker engine for the container tests, which CI=true requires: {log}")
    call("python3", "tests/containers/engine", "image", log=log)


def in_containers(wheel: Wheel) -> list[PytestResult]:
    """Play the container tests, where there is an engine."""
    image = subprocess.run(
        ["python3", "tests/containers/engine", "image"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if image.returncode == NO_ENGINE:
        say("NOT RUN: the container tests, as this machine can have no Docker engine")
        return []
    if image.returncode:
        raise StepFailedError(f"no image of Kafka for the container tests: {image.stderr}")
    env = {
        "AIOKPROD_KAFKA_IMAGE": image.stdout.splitlines()[-1],
        "TESTCONTAINERS_RYUK_DISABLED": "true",
        "AIOKPROD_REQUIRE_DOCKER": "1",
    }
    select = ("containers", "-m", "slow or not slow")
    try:
        return [play(PytestRun("containers", wheel.python, select, env={**wheel.env(), **env}, cwd=ROOT / "tests"))]
    finally:
        call("python3", "tests/containers/engine", "down")


def commit() -> str:
    """Return the hash of the commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def site() -> PytestRun:
    """Return the tests of the documentation site, which is built for them from the sources."""
    select = ("tests/unit/project/test_site.py", "-m", "slow or not slow", "-q")
    return PytestRun("the documentation site", ROOT / ".venv/bin/python", select)


def say_in(log: Path, line: str) -> None:
    with log.open("a") as lines:
        lines.write(f"\n=== {line}\n")
