"""Which failed tests the gate plays once more, and when the run is red."""

from __future__ import annotations

import pytest
from gate.failures import MOST_SECOND_TRIES, Failure, closing_lines, judge, why_final


def failure(
    test: str = "tests/unit/cluster/test_pool_dials.py::test_it",
    *sensed: str,
    error: str = "AssertionError",
    message: str = "AssertionError: never came true\nassert 3.1 < 2",
) -> Failure:
    return Failure(test, sensed or ("a socket",), error, message, f"the traceback of {test}")


def test_a_test_with_a_socket_whose_wait_was_too_short_is_played_once_more() -> None:
    assert why_final(failure()) is None
    assert why_final(failure(error="TimeoutError", message="TimeoutError")) is None
    assert why_final(failure(error="KafkaClusterError", message="a broker was lost while it started")) is None


def test_a_test_without_a_clock_is_deterministic() -> None:
    silent = Failure("tests/unit/records/test_varint.py::test_it", (), "AssertionError", "assert 1 == 2", "")
    assert why_final(silent) == "the test used no clock, socket, thread or process: it is deterministic"


@pytest.mark.parametrize(
    "file",
    [
        "tests/simulation/test_swarm.py",
        "tests/unit/pipeline/partition/test_ledger_exploration.py",
        "tests/unit/pipeline/partition/test_ledger_rewind.py",
        "tests/unit/transactions/test_machine_exploration.py",
        "tests/unit/transactions/test_machine_prepared_worlds.py",
        "tests/unit/spark/exactly_once/test_protocol_small_worlds.py",
        "tests/unit/testing/checker/test_checker_history.py",
    ],
)
def test_explorations_worlds_and_verdicts_are_final_whatever_they_use(file: str) -> None:
    final = why_final(failure(f"{file}::test_it", "a process"))
    assert final == "an exploration, a world in virtual time or a verdict: it is deterministic"


@pytest.mark.parametrize(
    "message",
    [
        "AssertionError: assert 3 == 0\n +  where 3 = Report(sent=10, lost=3).lost",
        "AssertionError: assert [Finding(kind='duplicate')] == []\n  Left contains one more item",
        "AssertionError: assert [1, 2] == [2, 1]\n  At index 0 diff: 1 != 2",
        "AssertionError: assert 99 == 100\n +  where 99 = len([b'0', b'1'])",
        "AssertionError: assert {b'a'} == {b'a', b'b'}\n  Extra items in the right set:\n  b'b'",
        "AssertionError: the record is there twice",
        "Failed: offset 7 was acknowledged, and the log has another record there",
    ],
)
def test_what_may_be_a_lost_or_doubled_record_is_final(message: str) -> None:
    error = message.partition(":")[0]
    real = failure("tests/real/test_acks.py::test_it", "a socket", error=error, message=message)
    assert why_final(real) == "it may be a lost, duplicated or reordered record"


def test_three_tests_are_played_once_more_and_four_are_not() -> None:
    several = [failure(f"tests/real/test_acks.py::test_{number}") for number in range(MOST_SECOND_TRIES + 1)]
    three, four = judge(several[:3]), judge(several)
    assert (three.is_red, len(three.again)) == (False, 3)
    assert four.is_red
    assert four.lines()[0] == "FAILED 4 tests: more than 3 are not played once more"


def test_one_final_failure_makes_the_run_red() -> None:
    outcome = judge([failure(), failure("tests/simulation/test_swarm.py::test_it")])
    assert outcome.is_red
    (line,) = outcome.lines()
    assert line.startswith("FAILED tests/simulation/test_swarm.py::test_it: an exploration, a world in virtual time")


def test_a_test_whose_body_and_fixture_failed_counts_once_and_by_its_worst() -> None:
    body, end = failure(), failure(message="AssertionError: 3 records were lost")
    assert len(judge([body, body]).again) == 1
    assert judge([body, end]).is_red
    assert not judge([body, end]).again


def test_a_run_without_failures_is_green_and_has_nothing_to_say() -> None:
    assert not judge([]).is_red
    assert judge([]).lines() == closing_lines([]) == []


def test_what_passed_at_the_second_try_is_named() -> None:
    assert closing_lines([failure()])[1] == (
        "  passed at the second try: tests/unit/cluster/test_pool_dials.py::test_it: AssertionError"
    )


def test_a_failure_is_read_as_it_was_written() -> None:
    assert Failure.read(failure().as_dict()) == failure()
