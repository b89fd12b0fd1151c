"""The gate's part inside pytest: what it writes down of a failed test, and which tests it selects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from gate.failures import Failure, why_final
from gate.plugin import Selection, SlowAfter, selection
from gate.plugin_variables import FAILURES, FIRST_OF_EACH_FILE, SHARD
from gate.shards import Shard

TESTS = Path(__file__).resolve().parents[2]
PLUGIN = "import pytest\nfrom gate import plugin\ndef pytest_configure(config):\n    plugin.register(config)\n"
SENSING = """
import asyncio, os, subprocess, sys, threading, time
import pytest
def test_silent():
    assert 1 == 2
def test_sleep():
    time.sleep(0)
    assert 1 == 2
def test_process():
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    assert 1 == 2
def test_thread():
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert 1 == 2
def test_socket():
    asyncio.run(asyncio.sleep(0))
    assert 1 == 2
def test_silent_behind_others():
    assert 1 == 2
def test_passes():
    time.sleep(0)
@pytest.fixture(scope="module")
def cluster():
    return 1
def test_shared(cluster):
    assert cluster == 2
@pytest.fixture
def broken():
    time.sleep(0)
    raise TimeoutError("no broker answers")
def test_fixture(broken):
    pass
"""
SENSED = {
    "silent": (), "silent_behind_others": (), "sleep": ("a sleep",), "process": ("a process",), "thread": ("a thread",),
    "socket": ("a socket",), "shared": ("fixtures shared by tests: cluster",), "fixture": ("a sleep",),
}  # fmt: skip
CRASH = "import os, time\ndef test_crash():\n    time.sleep(0)\n    os._exit(3)\n"


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Failure]:
    """Return what was written down in one run of a process of xdist, by the test's name."""
    folder = tmp_path_factory.mktemp("sensing")
    (folder / "conftest.py").write_text(PLUGIN)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(SENSING)
    (folder / "test_last.py").write_text(CRASH)
    lines = folder / "failures"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist", "-q", "-n", "1"],
        capture_output=True, text=True, check=False, timeout=300, cwd=folder,
        env={**os.environ, FAILURES: str(lines), "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    found = [Failure.read(json.loads(line)) for line in lines.read_text().splitlines()]
    return {failure.test.partition("::test_")[2]: failure for failure in found}


def test_each_failed_test_is_written_down_and_no_other(failures: dict[str, Failure]) -> None:
    assert set(failures) == {*SENSED, "crash"}


@pytest.mark.parametrize("name", SENSED)
def test_what_a_failed_test_used_is_written_down(failures: dict[str, Failure], name: str) -> None:
    failure = failures[name]
    assert failure.sensed == SENSED[name]
    assert bool(why_final(failure)) is not bool(SENSED[name])
    assert failure.test == f"test_it.py::test_{name}"


def test_the_error_its_words_and_its_traceback_are_written_down(failures: dict[str, Failure]) -> None:
    silent, fixture = failures["silent"], failures["fixture"]
    assert (silent.error, silent.message) == ("AssertionError", "assert 1 == 2")
    assert "def test_silent" in silent.text
    assert (fixture.error, fixture.message) == ("TimeoutError", "TimeoutError: no broker answers")


def test_a_test_whose_process_crashed_is_final(failures: dict[str, Failure]) -> None:
    assert why_final(failures["crash"])


# ---------------------------------------------------------------------- selection


class Item:
    """A test as far as the selection looks at it."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid = nodeid
        self._marks = marks

    def get_closest_marker(self, name: str) -> bool:
        return name in self._marks


class Config:
    """Counts what is deselected."""

    def __init__(self) -> None:
        self.hook = self
        self.deselected = 0

    def pytest_deselected(self, items: list[Item]) -> None:
        self.deselected += len(items)


def kept(selection: Selection, items: list[Item]) -> list[str]:
    config, chosen = Config(), list(items)
    selection.pytest_collection_modifyitems(cast("Any", config), cast("Any", chosen))
    assert config.deselected == len(items) - len(chosen)
    return [item.nodeid for item in chosen]


LONG = [Item(f"tests/real/test_a.py::test_long[{number}]", "slow") for number in range(40)]
SHORT = Item("tests/real/test_a.py::test_short")


def test_a_shard_leaves_out_the_long_tests_of_others_only() -> None:
    shard = Shard(2, 5)
    expected = [item.nodeid for item in LONG if shard.holds(item.nodeid)]
    assert kept(Selection(shard, 0), [*LONG, SHORT]) == [*expected, SHORT.nodeid]
    assert 1 < len(expected) < 20


def test_the_first_tests_of_a_file_are_taken_on_each_kind_of_cluster() -> None:
    items = [
        Item(f"tests/real/test_{file}.py::test_{n}", *marks)
        for file in "ab"
        for n in range(3)
        for marks in ((), ("real",))
    ]
    assert kept(Selection(None, 2), items) == [
        f"tests/real/test_{file}.py::test_{n}" for file in "ab" for n in (0, 0, 1, 1)
    ]


def test_without_a_wish_everything_is_kept() -> None:
    assert kept(Selection(None, 0), [*LONG, SHORT]) == [item.nodeid for item in [*LONG, SHORT]]


@pytest.mark.parametrize("variable", [{SHARD: "13/12"}, {SHARD: "x"}, {FIRST_OF_EACH_FILE: "few"}])
def test_a_wrong_value_is_an_error_of_usage(monkeypatch: pytest.MonkeyPatch, variable: dict[str, str]) -> None:
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(pytest.UsageError):
        selection()


class Case:
    """A case of a test, with real markers."""

    def __init__(self, nodeid: str, *marks: pytest.Mark) -> None:
        self.nodeid = nodeid
        self.marks = list(marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


def test_cases_after_the_first_ones_are_slow_where_a_test_says_so() -> None:
    after, slow = pytest.mark.slow_after(2).mark, pytest.mark.slow.mark
    items = [
        Case("a.py::f[1]", after),
        Case("a.py::f[2]", after, slow),
        Case("a.py::f[3]", after),
        Case("a.py::f[4]", after),
        Case("a.py::g[1]", after),
        Case("a.py::h[1]"),
        Case("a.py::h[2]"),
        Case("a.py::h[3]"),
    ]
    SlowAfter().pytest_collection_modifyitems(cast("Any", items))
    slow_ones = [item.nodeid for item in items if item.get_closest_marker("slow")]
    assert slow_ones == ["a.py::f[2]", "a.py::f[4]"]
