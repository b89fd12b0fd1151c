"""The end of a run of the gate: failed tests are played once more, alone; the last line is pytest's."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate.failures import Failure
from gate.plugin_variables import FIRST_OF_EACH_FILE, SHARD
from gate.pytest_step import PytestResult, PytestRun, play
from gate.second_try import close
from gate.steps import ROOT, StepFailedError

PYTHON = Path("/python")
RUN = PytestRun(
    "long tests", PYTHON, ("-m", "slow", "-n", "2"), ("-W", "error"), {SHARD: "1/12", "A": "1"}, ROOT / "tests"
)
SUMMARY = "=== 1 failed, 9 passed in 3.00s ==="


def failure(test: str, message: str = "TimeoutError") -> Failure:
    return Failure(test, ("a socket",), "TimeoutError", message, f"traceback of {test}")


class Player:
    """Plays single tests: those of `red` fail once more."""

    def __init__(self, *red: str, crash: bool = False) -> None:
        self._red = red
        self._crash = crash
        self.runs: list[PytestRun] = []

    def __call__(self, run: PytestRun) -> PytestResult:
        self.runs.append(run)
        if self._crash:
            raise StepFailedError("pytest ended with status 3")
        test = f"tests/{run.select[-1]}"
        return PytestResult(run, [failure(test)] if test in self._red else [], "=== 1 passed in 1.00s ===")


def results_of(*tests: str) -> list[PytestResult]:
    first = PytestResult(PytestRun("README", PYTHON), [], "=== 90 passed in 9.00s ===")
    return [first, PytestResult(RUN, [failure(test) for test in tests], SUMMARY)]


def test_a_run_without_failures_passes_and_ends_with_a_summary_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert close(results_of(), Player())
    assert capsys.readouterr().out.splitlines()[-2:] == ["README: === 90 passed in 9.00s ===", SUMMARY]


def test_a_test_that_passes_at_the_second_try_is_named_and_its_traceback_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    player = Player()
    assert close(results_of("tests/real/test_a.py::test_b"), player)
    output = capsys.readouterr().out
    assert "traceback of tests/real/test_a.py::test_b" in output
    assert "  passed at the second try: tests/real/test_a.py::test_b: TimeoutError" in output.splitlines()[-6:]
    assert output.splitlines()[-1] == "=== 1 passed in 1.00s ==="


def test_a_second_try_is_the_same_run_with_one_test_alone() -> None:
    player = Player()
    close(results_of("tests/real/test_a.py::test_b"), player)
    (run,) = player.runs
    expected = ["/python", "-m", "pytest", "-W", "error", "-m", "slow or not slow", "-n", "0", "real/test_a.py::test_b"]
    assert run.words() == expected
    assert run.env == {"A": "1"}
    assert run.cwd == ROOT / "tests"


def test_the_readmes_own_line_is_played_once_more_by_its_environment() -> None:
    run = PytestRun("README", PYTHON, command=("bash", "-c", "..."), env={FIRST_OF_EACH_FILE: "2"})
    assert run.words() == ["bash", "-c", "..."]
    again = run.alone("tests/a.py::b")
    assert again.words() == ["/python", "-m", "pytest", "-m", "slow or not slow", "-n", "0", "tests/a.py::b"]
    assert again.env == {}


def test_a_second_failure_makes_the_run_red(capsys: pytest.CaptureFixture[str]) -> None:
    test = "tests/real/test_a.py::test_b"
    assert not close(results_of(test, "tests/real/test_a.py::test_c"), Player(test))
    lines = capsys.readouterr().out.splitlines()
    assert f"FAILED {test}: at the second try as well" in lines
    assert "  passed at the second try: tests/real/test_a.py::test_c: TimeoutError" in lines


def test_a_second_try_that_does_not_end_well_makes_the_run_red(capsys: pytest.CaptureFixture[str]) -> None:
    assert not close(results_of("tests/real/test_a.py::test_b"), Player(crash=True))
    assert "its second run has not ended well: pytest ended with status 3" in capsys.readouterr().out


def test_nothing_is_played_once_more_if_the_run_is_red_already(capsys: pytest.CaptureFixture[str]) -> None:
    player = Player()
    assert not close(results_of(*(f"tests/real/test_a.py::test_{number}" for number in range(4))), player)
    assert not close(results_of("tests/simulation/test_swarm.py::test_it"), player)
    assert not player.runs
    assert "FAILED 4 tests: more than 3 are not played once more" in capsys.readouterr().out


# ---------------------------------------------------------------------- a pytest run


def run_of(folder: Path, body: str) -> PytestRun:
    import sys

    (folder / "conftest.py").write_text(
        "from gate import plugin\ndef pytest_configure(config):\n    plugin.register(config)\n"
    )
    (folder / "test_it.py").write_text(body)
    options = ("-p", "no:cacheprovider", "-p", "no:aiokprod", "--rootdir", str(folder))
    env = {"PYTHONPATH": str(ROOT / "tests")}
    return PytestRun("a step of a test", Path(sys.executable), ("-q",), options, env, folder)


def test_the_failures_of_a_run_come_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    result = play(
        run_of(tmp_path, "import time\ndef test_a():\n    time.sleep(0)\n    assert 0\ndef test_b():\n    pass"), log
    )
    assert [failure.test for failure in result.failures] == ["test_it.py::test_a"]
    assert "1 failed, 1 passed" in result.summary
    assert "assert 0" in log.read_text()


@pytest.mark.parametrize("body", ["", "import nothing_of_this_name"], ids=["no test", "an error of collection"])
def test_a_run_that_is_none_is_an_error_of_the_gate(tmp_path: Path, body: str) -> None:
    with pytest.raises(StepFailedError, match="a step of a test: pytest ended with status"):
        play(run_of(tmp_path, body), tmp_path / "log")
