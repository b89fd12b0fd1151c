"""The part of the gate inside pytest, set by environment variables, so that it also acts inside the README's own line.

| variable | meaning |
|---|---|
| `AIOKPROD_TEST_SHARD=3/12` | of the tests marked slow only those of this shard |
| `AIOKPROD_TEST_FIRST_OF_EACH_FILE=2` | of each file only that many tests of each release of Kafka |
| `AIOKPROD_TEST_FAILURES=FILE` | each failed test is appended to this file, as a line of JSON |
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gate.failures import Failure
from gate.plugin_variables import FAILURES, FIRST_OF_EACH_FILE, SHARD
from gate.shards import Shard

SENSED: Final = {
    "socket.__new__": "a socket",  # also every event loop but that of virtual time: it wakes itself by a pair of sockets
    "subprocess.Popen": "a process",
    "os.fork": "a process",
    "os.posix_spawn": "a process",
    "_thread.start_new_thread": "a thread",
    "time.sleep": "a sleep",
}
"""Audit events of what a machine can delay."""


class Senses:
    """The things that the current test uses and that a machine can delay, by the interpreter's audit events.

    Invariants: one per process, as an audit hook stays; it is told only of the main thread, as threads of fixtures go on
    through tests that do not use them.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._main = threading.get_ident()
        sys.addaudithook(self._hear)
        if sys.version_info < (3, 13):  # these have no event there
            self._hear_calls(time, "sleep", "time.sleep")
            self._hear_calls(threading.Thread, "start", "_thread.start_new_thread")

    def _hear_calls(self, owner: Any, name: str, event: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def heard(*arguments: Any, **options: Any) -> Any:
            self._hear(event, ())
            return original(*arguments, **options)

        setattr(owner, name, heard)

    def _hear(self, event: str, _: tuple[Any, ...]) -> None:
        if event in SENSED and threading.get_ident() == self._main:
            self._seen.add(SENSED[event])

    def begin(self) -> None:
        """Forget what an earlier test has used."""
        self._seen.clear()

    def note(self, what: str) -> None:
        """Add what no audit event shows."""
        self._seen.add(what)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._seen))


class Watch:
    """The plugin that senses what each test uses, and hands it to its reports."""

    def __init__(self, senses: Senses) -> None:
        self._senses = senses

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._senses.begin()
        if os.environ.get("AIOKPROD_TEST_UVLOOP"):
            self._senses.note("uvloop, whose sockets are not heard")
        # What is made once and used by several tests was heard for the first of them only.
        if fixtures := wide_fixtures(item):
            self._senses.note(f"fixtures shared by tests: {', '.join(fixtures)}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if report.failed:
            report.sensed = list(self._senses)
            report.error = call.excinfo.type.__name__ if call.excinfo else ""
        return report


def wide_fixtures(item: pytest.Item) -> list[str]:
    """Return the names of a test's own fixtures that are made for several tests: clusters, sessions of Spark."""
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    own = (name for name, found in definitions.items() if found and found[-1].scope in ("session", "module", "package"))
    return sorted(name for name in own if not name.startswith("_") and name not in INNOCENT)


INNOCENT: Final = frozenset({"tmp_path_factory", "pytestconfig", "doctest_namespace", "record_testsuite_property"})
"""Fixtures of pytest that no machine delays."""


class Books:
    """The plugin that writes failures down; it runs in the process that collects all reports."""

    def __init__(self, failures: str) -> None:
        self._failures = failures

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with Path(self._failures).open("a") as lines:
                lines.write(json.dumps(failure_of(report).as_dict()) + "\n")


def failure_of(report: pytest.TestReport) -> Failure:
    """Return what a failed report says. The report of a process that crashed has sensed nothing: it is final."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash is not None else str(report.longrepr)
    error = getattr(report, "error", "") or message.partition(":")[0]
    return Failure(report.nodeid, tuple(getattr(report, "sensed", ())), error, message, report.longreprtext)


class SlowAfter:
    """The plugin that marks cases of tests as slow: all but the first ones, by the marker `slow_after`."""

    @pytest.hookimpl(tryfirst=True)  # before `-m` leaves out what is slow
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        counts: Counter[str] = Counter()
        for item in items:
            marker = item.get_closest_marker("slow_after")
            if marker is None or item.get_closest_marker("slow"):
                continue
            test = item.nodeid.partition("[")[0]
            counts[test] += 1
            if counts[test] > marker.args[0]:
                item.add_marker(pytest.mark.slow)


class Selection:
    """The plugin that keeps the tests of a shard, or the first ones of each file.

    Args:
        shard: of the tests marked slow; None: all of them.
        most: how many tests of each file; 0: all of them.
    """

    def __init__(self, shard: Shard | None, most: int) -> None:
        self._shard = shard
        self._most = most

    @pytest.hookimpl(trylast=True)  # after `-m` has left out what is slow, or is not
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = [item for item in items if self._is_of_the_shard(item)]
        if self._most:
            counts: Counter[tuple[str, str]] = Counter()
            kept = [item for item in kept if not has_more(counts, group_of(item), self._most)]
        if len(kept) < len(items):
            chosen = set(kept)
            config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
            items[:] = kept

    def _is_of_the_shard(self, item: pytest.Item) -> bool:
        return self._shard is None or not item.get_closest_marker("slow") or self._shard.holds(item.nodeid)


def selection() -> Selection:
    """Return what the environment asks for."""
    try:
        shard = Shard.parse(os.environ[SHARD]) if os.environ.get(SHARD) else None
        return Selection(shard, int(os.environ.get(FIRST_OF_EACH_FILE) or 0))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def has_more(counts: Counter[tuple[str, str]], group: tuple[str, str], most: int) -> bool:
    counts[group] += 1
    return counts[group] > most


def group_of(item: pytest.Item) -> tuple[str, str]:
    """Return the file of a test, and whether it runs on real brokers: a file's tests on the mock do not stand for them."""
    return (item.nodeid.partition("::")[0], str(bool(item.get_closest_marker("real"))))


def register(config: pytest.Config) -> None:
    """Register what the environment asks for."""
    config.pluginmanager.register(SlowAfter())
    config.pluginmanager.register(selection())
    failures = os.environ.get(FAILURES)
    if not failures:
        return
    config.pluginmanager.register(Watch(Senses()))
    if not hasattr(config, "workerinput"):  # not a process of xdist
        config.pluginmanager.register(Books(failures))
