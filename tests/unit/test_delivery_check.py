"""The judge of the real tests finds each wrong it is there to find."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real"))

from delivery_check import DELIVERED, NOT, POSSIBLY, Told, judge


def told(*outcomes: str | None) -> list[Told]:
    return [
        Told(0, number, outcome, number if outcome == DELIVERED else None) for number, outcome in enumerate(outcomes)
    ]


def test_a_true_history_is_clean() -> None:
    findings = judge(told(DELIVERED, DELIVERED, NOT, POSSIBLY), {0: [(0, 0), (1, 1), (2, 3)]})
    assert findings.is_clean
    assert findings.possibly == 1


def test_a_lost_record_is_found() -> None:
    assert judge(told(DELIVERED, DELIVERED), {0: [(0, 0)]}).lost == [1]


def test_a_ghost_is_found() -> None:
    assert judge(told(DELIVERED, NOT), {0: [(0, 0), (1, 1)]}).ghosts == [1]


def test_a_duplicate_is_found_unless_duplicates_are_allowed() -> None:
    logs = {0: [(0, 0), (1, 1), (2, 0)]}
    assert judge(told(DELIVERED, DELIVERED), logs).duplicates == [0]
    assert judge(told(DELIVERED, DELIVERED), logs, idempotent=False).is_clean


def test_a_reordering_is_found() -> None:
    history = [Told(0, 0, DELIVERED, 1), Told(0, 1, DELIVERED, 0)]
    assert judge(history, {0: [(0, 1), (1, 0)]}).reordered == [0]


def test_a_wrong_offset_is_found() -> None:
    assert judge([Told(0, 0, DELIVERED, 5)], {0: [(0, 0)]}).wrong_offset == [0]


def test_a_record_in_another_partition_is_found() -> None:
    assert judge([Told(1, 0, DELIVERED, 0)], {0: [(0, 0)], 1: []}).wrong_offset == [0]


def test_an_unresolved_record_is_found() -> None:
    assert judge(told(None), {0: []}).unresolved == [0]
