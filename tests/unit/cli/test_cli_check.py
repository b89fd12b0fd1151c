"""The demo's verdict finds each wrong it is there to find."""

from __future__ import annotations

import pytest

from aiokprod.cli.check import Verdict, judge_log

SENT = [(0, b"a"), (1, b"x"), (0, b"b"), (0, b"c"), (1, b"y")]
LOG = {0: [b"a", b"b", b"c"], 1: [b"x", b"y"]}


def test_a_true_log_is_clean() -> None:
    verdict = judge_log(SENT, LOG)
    assert verdict == Verdict(0, 0, 0)
    assert verdict.is_clean
    assert verdict.line == "lost 0, duplicate 0, reordered 0"


@pytest.mark.parametrize(
    ("log", "verdict"),
    [
        ({0: [b"a", b"c"], 1: [b"x", b"y"]}, Verdict(1, 0, 0)),
        ({0: [b"a", b"b", b"c"]}, Verdict(2, 0, 0)),
        ({}, Verdict(5, 0, 0)),
        ({0: [b"a", b"b", b"b", b"c", b"c", b"c"], 1: [b"x", b"y"]}, Verdict(0, 2, 0)),
        ({0: [b"a", b"c", b"b"], 1: [b"y", b"x"]}, Verdict(0, 0, 2)),
        ({0: [b"b", b"a", b"b", b"c"], 1: [b"x", b"y"]}, Verdict(0, 1, 1)),
        ({0: [b"x", b"y"], 1: [b"a", b"b", b"c"]}, Verdict(5, 0, 0)),  # in another partition is lost
    ],
)
def test_each_wrong_is_counted(log: dict[int, list[bytes]], verdict: Verdict) -> None:
    assert judge_log(SENT, log) == verdict
    assert not verdict.is_clean


def test_records_of_others_do_not_matter() -> None:
    assert judge_log(SENT, {0: [b"?", b"a", b"b", b"!", b"c"], 1: [b"x", b"y"], 9: [b"z"]}).is_clean
    assert judge_log([], LOG).is_clean
