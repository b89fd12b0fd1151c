"""Tasks of this project. `nox` alone runs the cheap ones; `nox -l` lists all.

Every session that needs Kafka starts its own: local JVM processes (Java 17, Maven) or containers (a Docker engine).
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "types", "layers", "test"]
nox.options.reuse_existing_virtualenvs = True

PYPROJECT = nox.project.load_toml("pyproject.toml")
LATER_PYTHONS = ["3.12", "3.13", "3.14"]
OLDEST_PYSPARK = "4.1"


def install(session: nox.Session, *groups: str) -> None:
    """Install this checkout with the named dependency groups."""
    session.install("-U", "pip")
    session.install("-e", ".", *(part for group in groups for part in ("--group", group)))


@nox.session
def lint(session: nox.Session) -> None:
    """Check rules and format with Ruff, and the workflows of .github with their schema and zizmor."""
    install(session, "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    workflows = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    session.run("zizmor", "--offline", "--no-progress", *workflows)


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy and pyright, both strict."""
    install(session, "dev")
    session.run("mypy")
    session.run("pyright")


@nox.session
def layers(session: nox.Session) -> None:
    """Check which package may import which (import-linter)."""
    install(session, "lint")
    session.run("lint-imports")


@nox.session
def test(session: nox.Session) -> None:
    """Run the unit tests, and the short tests on a real three-broker cluster."""
    install(session, "test")
    session.run("pytest", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the unit tests with branch coverage."""
    install(session, "test")
    session.run("pytest", "tests/unit", "--cov", "--cov-report=term-missing", *session.posargs)


@nox.session(python=LATER_PYTHONS)
def later(session: nox.Session) -> None:
    """Run the unit tests on later Pythons, where they are installed."""
    install(session, "test")
    session.run("pytest", "tests/unit", *session.posargs)


@nox.session
def uvloop(session: nox.Session) -> None:
    """Run the unit tests under uvloop."""
    install(session, "test")
    session.run("pytest", "tests/unit", *session.posargs, env={"AIOKPROD_TEST_UVLOOP": "1"})


@nox.session
def stalls(session: nox.Session) -> None:
    """Run the unit tests on a loop that stands still now and then, as on a loaded machine."""
    install(session, "test")
    loops = ("pipeline", "cluster", "testing", "transactions", "consuming", "telemetry", "test_reader_of_partitions.py")
    paths = session.posargs or [f"tests/unit/{part}" for part in loops]
    without_a_loop = ("--ignore-glob", "*/test_ledger_*.py", "--ignore-glob", "*/test_cost*.py")
    session.run("pytest", *paths, *without_a_loop, "-n", "8", env={"AIOKPROD_TEST_STALLS": "1"})


@nox.session(python=False)
def gate(session: nox.Session) -> None:
    """Run the gate of every change: what .ci/run does."""
    session.run("python3", "-m", "gate", "change", env={"PYTHONPATH": "tests"})


@nox.session(python=False)
def long(session: nox.Session) -> None:
    """Run everything to its end before an issue is called done, in hours; go on where it stopped (`-- WORD`: such steps)."""
    session.run("python3", "-m", "gate", "long", *session.posargs, env={"PYTHONPATH": "tests"})


@nox.session
def real(session: nox.Session) -> None:
    """Run the long tests on a real three-broker Apache Kafka."""
    install(session, "test")
    session.run("pytest", "tests/real", "-m", "slow or not slow", *session.posargs)


@nox.session
def conformance(session: nox.Session) -> None:
    """Compare the mock with Apache Kafka 4.3, 3.9 and 2.8, answer by answer."""
    install(session, "test")
    session.run("pytest", "tests/conformance", "-m", "slow or not slow", *session.posargs)


@nox.session
def rows(session: nox.Session) -> None:
    """Run the fault catalogue on real brokers with its own durations and counts: takes hours."""
    install(session, "test")
    session.run(
        "pytest",
        "tests/real",
        "-m",
        "slow or not slow",
        "-k",
        "rows",
        *session.posargs,
        env={"AIOKPROD_TEST_FULL": "1"},
    )


@nox.session
def containers(session: nox.Session) -> None:
    """Run the tests that need a Docker engine; AIOKPROD_KAFKA_IMAGE replaces the image apache/kafka."""
    install(session, "test")
    session.run("pytest", "tests/containers", *session.posargs, env={"AIOKPROD_REQUIRE_DOCKER": "1"})


@nox.session
def spark(session: nox.Session) -> None:
    """Test the Spark sink on an older PySpark: `-- 4.1` (default: the oldest supported)."""
    install(session, "test")
    version = session.posargs[0] if session.posargs else OLDEST_PYSPARK
    session.install(f"pyspark[connect]=={version}.*")
    ignored = (
        "-W",
        "default::ResourceWarning",
        "-W",
        "default::pytest.PytestUnraisableExceptionWarning",
    )  # PySpark 4.1's own
    session.run("pytest", "tests/spark", "tests/audit", "-m", "slow or not slow", *ignored, *session.posargs[1:])


@nox.session
def sink_protocol(session: nox.Session) -> None:
    """Explore the protocol of exactly-once Spark sinks: 3,000 random schedules of each kind (or `-- N`), small worlds."""
    install(session, "test")
    schedules = session.posargs[0] if session.posargs else "3000"
    names = ("test_protocol_exploration.py", "test_protocol_small_worlds.py")
    tests = [f"tests/unit/spark/exactly_once/{name}" for name in names]
    session.run("pytest", *tests, "-n", "auto", env={"AIOKPROD_TEST_SPARK_SCHEDULES": schedules})


@nox.session
def ledger(session: nox.Session) -> None:
    """Explore the ledger: 200,000 random schedules (or `-- N`)."""
    install(session, "test")
    seeds = session.posargs[0] if session.posargs else "200000"
    session.run(
        "pytest", "tests/unit/pipeline/partition/test_ledger_exploration.py", env={"AIOKPROD_TEST_LEDGER_SEEDS": seeds}
    )


@nox.session
def transactions(session: nox.Session) -> None:
    """Explore the transaction machine: 200,000 schedules, small worlds with 2 faults (or `-- SCHEDULES FAULTS FIRST`)."""
    install(session, "test")
    words = (*session.posargs, *("200000", "2", "0")[len(session.posargs) :])
    names = ("SEEDS", "FAULTS", "FIRST_SEED")
    env = {f"AIOKPROD_TEST_TRANSACTION_{name}": word for name, word in zip(names, words, strict=True)}
    worlds = ("test_machine_exploration.py", "test_machine_prepared_worlds.py")
    session.run("pytest", *(f"tests/unit/transactions/{name}" for name in worlds), env=env)


@nox.session
def simulation(session: nox.Session) -> None:
    """Run the whole producer in virtual time: 100,000 seeds (or `-- --seeds N`, and `--first N` to replay one)."""
    install(session, "test")
    words = dict(zip(session.posargs[::2], session.posargs[1::2], strict=False))
    env = {"AIOKPROD_TEST_SEEDS": words.get("--seeds", "100000"), "AIOKPROD_TEST_FIRST_SEED": words.get("--first", "0")}
    worlds = ("tests/simulation/test_simulation.py", "tests/simulation/test_transactional_worlds.py")
    session.run("pytest", *worlds, "-n", "auto", env=env)


@nox.session
def soak(session: nox.Session) -> None:
    """Run producers on a real cluster under faults: `-- --minutes 5 --seed 1 --report DIR` (docs/soak.md)."""
    install(session, "test")
    session.run("python", "tests/soak", *session.posargs)


@nox.session
def wire(session: nox.Session) -> None:
    """Generate aiokprod/wire/messages from Kafka's own definitions (`-- --check`: compare only)."""
    install(session, "lint")
    session.run("python", "-m", "aiokprod.wire.generator", *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Fuzz every response decoder, guided by coverage (atheris)."""
    install(session, "test", "fuzz")
    session.run("python", "tests/fuzz/fuzz_wire.py", *(session.posargs or ["-runs=1000000"]))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure aiokprod beside its peers on real brokers (`-- firehose web --rounds 5`, `-- --quick`, `-- --docs`)."""
    install(session, "bench")
    session.run("python", "bench/run.py", *session.posargs)


@nox.session
def instructions(session: nox.Session) -> None:
    """Compare instructions per record on the hot paths with the stored baseline (`-- --record` stores a new one)."""
    install(session, "bench")
    session.run("python", "bench/instructions.py", *(session.posargs or ["--check"]))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site into build/docs; a warning is an error."""
    install(session, "docs")
    session.run("python", "docs/build.py", *session.posargs)


@nox.session
def links(session: nox.Session) -> None:
    """Follow every link of the documentation that leads elsewhere: needs a network."""
    install(session, "docs")
    session.run("python", "docs/build.py", "--links", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build the source distribution and the pure wheel into dist/ (docs/releasing.md)."""
    session.install("-U", "pip")
    session.install("--group", "wheel")
    session.run("python", "-m", "build", "--outdir", "dist")


@nox.session(python=["3.11", *LATER_PYTHONS])
def wheel(session: nox.Session) -> None:
    """Build the compiled wheel for this libc and one Python, check, install and test it; copy it to dist/."""
    session.install("-U", "pip")
    session.install("--group", "wheel")
    made = session.cache_dir.resolve() / f"wheel-{session.python}"
    shutil.rmtree(made, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(made), env={"AIOKPROD_COMPILE": "1"})
    if sys.platform == "linux":
        session.run("auditwheel", "show", str(only_wheel(made)))
        session.run("auditwheel", "repair", "--wheel-dir", str(made / "repaired"), str(only_wheel(made)))
        made /= "repaired"
    session.install("--force-reinstall", "--no-deps", str(only_wheel(made)))
    session.install(str(only_wheel(made)), "--group", "wheel-test")
    settings = PYPROJECT["tool"]["cibuildwheel"]
    with session.chdir("tests"):  # a folder without the sources, so that the installed package is tested
        session.run(*shlex.split(settings["test-command"].format(project="..")), env=settings["test-environment"])
    Path("dist").mkdir(exist_ok=True)
    shutil.copy(only_wheel(made), "dist")


def only_wheel(folder: Path) -> Path:
    """Return the one wheel in a folder."""
    (wheel,) = folder.glob("*.whl")
    return wheel
