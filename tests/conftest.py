"""For every test: which event loop, and a clear word about what needs an engine that is not there.

`nox -s long` runs the unit tests on asyncio's loop and on uvloop, in Python's development mode, with eager tasks where
Python has them (faults: L23), and on a loop that stands still now and then.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import selectors
import signal
import time
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

import pytest
from gate import plugin
from hypothesis import HealthCheck, settings

import aiokprod
from aiokprod.pipeline.effects import Guard
from aiokprod.pipeline.partition.defects import CaughtDefects
from aiokprod.pipeline.watch import Heals

Guard.is_on = True  # a state change inside another one fails the test
CaughtDefects.kept = []  # so do defects in what only observes
Heals.kept = []  # what stands still, and is healed, fails the test

# A slow machine is no finding.
settings.register_profile("aiokprod", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("aiokprod")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In the background of a shell; children would ignore it as well, and tests interrupt children.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get("AIOKPROD_TEST_UVLOOP"):
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

if os.environ.get("AIOKPROD_TEST_EAGER"):  # Python 3.12 and later

    class EagerPolicy(asyncio.DefaultEventLoopPolicy):
        """Every loop runs a task's first step where it is made."""

        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            loop = super().new_event_loop()
            loop.set_task_factory(asyncio.eager_task_factory)
            return loop

    asyncio.set_event_loop_policy(EagerPolicy())

STALLS = "AIOKPROD_TEST_STALLS"

if STALLS in os.environ:

    class StallingSelector(selectors.DefaultSelector):
        """Sleeps now and then before it selects: its loop stands still, as on a machine that has no time for it."""

        def __init__(self) -> None:
            super().__init__()
            self._random = Random(f"{os.environ[STALLS]} {os.environ.get('PYTEST_CURRENT_TEST')}")
            self._left = 8  # so that a test of many turns takes seconds longer, not minutes

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if self._left and self._random.random() < 0.05:
                self._left -= 1
                time.sleep(self._random.uniform(0.15, 0.5))
            return super().select(timeout)

    class StallingPolicy(asyncio.DefaultEventLoopPolicy):
        def new_event_loop(self) -> asyncio.AbstractEventLoop:
            return asyncio.SelectorEventLoop(StallingSelector())

    asyncio.set_event_loop_policy(StallingPolicy())


def is_no_slow_step(record: logging.LogRecord) -> bool:
    """Return False for asyncio's warning that a step of the loop took long, which development mode logs on a busy machine."""
    return not str(record.msg).startswith("Executing %s took")


logging.getLogger("asyncio").addFilter(is_no_slow_step)  # tests that count warnings would meet it now and then

if os.environ.get("AIOKPROD_EXPECT_COMPILED") and not aiokprod.compiled:
    # A run on the sources beside the installed package would show nothing: start it in tests/, where they are not found.
    raise pytest.UsageError(f"AIOKPROD_EXPECT_COMPILED is set, and what is tested is not compiled: {aiokprod.__file__}")

HERE = Path(__file__).parent
CONTAINERS = HERE / "containers"


@cache
def docker_answers() -> bool:
    """Return whether a Docker engine answers. AIOKPROD_REQUIRE_DOCKER does not ask: then the tests fail if it does not."""
    if os.environ.get("AIOKPROD_REQUIRE_DOCKER"):
        return True
    with warnings.catch_warnings():
        # The client leaves the socket of a dead engine to the collector, whose warning would hit some later test.
        warnings.simplefilter("ignore", ResourceWarning)
        answers = _docker_pings()
        gc.collect()
    return answers


def _docker_pings() -> bool:
    import docker

    try:
        client = docker.from_env(timeout=5)
    except docker.errors.DockerException:
        return False
    try:
        return bool(client.ping())
    except docker.errors.DockerException:
        return False
    finally:
        client.close()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if CONTAINERS in (collection_path, *collection_path.parents) and not docker_answers():
        return True
    return None


LONG_ONES = ("spark", "real", "containers", "simulation", "frameworks", "conformance")
"""The folders whose files take minutes. Begun last, one of them would run alone while the other processes are idle."""


def pytest_configure(config: pytest.Config) -> None:
    plugin.register(config)
    # xdist begins with the files of most tests; the longest files have few.
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the long ones if several processes share the tests; leave out what the compiled form cannot run.

    Tests marked `pure` replace parts of the pipeline, which the compiled form does not allow.
    """
    if hasattr(config, "workerinput"):  # a process of xdist
        rank = {folder: place for place, folder in enumerate(LONG_ONES)}
        items.sort(key=lambda item: rank.get(item.path.relative_to(HERE).parts[0], len(LONG_ONES)))
    pure = [item for item in items if item.get_closest_marker("pure")]
    unreasoned = [item.nodeid for item in pure if not any(mark.args for mark in item.iter_markers("pure"))]
    if unreasoned:
        raise pytest.UsageError(f"marked pure without a reason: {unreasoned}")
    if not aiokprod.compiled:
        return
    items[:] = [item for item in items if not item.get_closest_marker("pure")]
    config.hook.pytest_deselected(items=pure)


def pytest_collection_finish() -> None:
    """Keep what the collection has made out of the collector's sight.

    All of it stays until the end, and many tests call `gc.collect()`, which took half a second with sixteen thousand tests.
    """
    gc.collect()
    gc.freeze()


class Files:
    """How many files of tests this process has played."""

    played = 0


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Freeze again after each tenth file: mypy, Spark and others leave what stays, too."""
    if nextitem is not None and nextitem.path != item.path:
        Files.played += 1
        if Files.played % 10 == 0:
            gc.collect()
            gc.freeze()


@pytest.fixture
def heals() -> Iterator[list[str]]:
    """Return what the watches have healed: for a test that plants what stands still, and looks at this."""
    assert Heals.kept is not None
    yield Heals.kept
    Heals.kept.clear()


@pytest.fixture
def defects() -> Iterator[list[str]]:
    """Return the defects that were caught: for a test that plants them in what only observes, and looks at this."""
    assert CaughtDefects.kept is not None
    yield CaughtDefects.kept
    CaughtDefects.kept.clear()


@pytest.fixture(autouse=True)
def no_defect_is_caught(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which a line of the log, a metric or an explanation raised: the producer goes on without it."""
    assert CaughtDefects.kept is not None
    CaughtDefects.kept.clear()
    yield
    if "defects" not in request.fixturenames:
        assert not CaughtDefects.kept, f"caught: {CaughtDefects.kept}"


@pytest.fixture(autouse=True)
def nothing_is_healed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which the watch of a producer had to heal something: a defect, which no user would see as an error."""
    assert Heals.kept is not None
    Heals.kept.clear()  # of producers that were left behind by the test before
    yield
    if "heals" not in request.fixturenames:
        assert not Heals.kept, f"healed: {Heals.kept}"


def pytest_unconfigure() -> None:
    """Say nothing more: producers of processes that "died" in a test are collected at the very end, and each would be told."""
    logging.getLogger("aiokprod").addHandler(logging.NullHandler())


def pytest_report_header() -> list[str]:
    containers = "run: a Docker engine answers" if docker_answers() else "NOT RUN: no Docker engine answers"
    seeds = int(os.environ.get("AIOKPROD_TEST_SEEDS", "240"))
    return [
        f"event loop: {type(asyncio.get_event_loop_policy()).__module__}",
        f"form of the pipeline: {'compiled (tests marked pure are NOT RUN)' if aiokprod.compiled else 'sources'}",
        f"container tests: {containers}",
        f"seeds of the whole producer in virtual time: {seeds:,} from {os.environ.get('AIOKPROD_TEST_FIRST_SEED', '0')} on",
    ]
