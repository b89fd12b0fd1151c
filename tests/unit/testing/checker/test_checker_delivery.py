"""The checker gets what the tests on real brokers note and read."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "real"))

from delivery_check import DELIVERED, NOT, POSSIBLY, Told, judge

from aiokprod.testing.checker import Kind


def kinds(told: list[Told], logs: dict[int, list[tuple[int, int]]], *, idempotent: bool = True) -> list[Kind]:
    return [finding.kind for finding in judge(told, logs, idempotent=idempotent)]


def test_a_true_history_is_clean() -> None:
    told = [Told(0, 0, DELIVERED, 0), Told(0, 1, DELIVERED, 1), Told(0, 2, NOT), Told(0, 3, POSSIBLY)]
    assert kinds(told, {0: [(0, 0), (1, 1), (2, 3)]}) == []


def test_each_wrong_is_found() -> None:
    assert kinds([Told(0, 0, DELIVERED, 0)], {0: []}) == [Kind.LOST]
    assert kinds([Told(0, 0, NOT)], {0: [(0, 0)]}) == [Kind.WRONG_PERSISTENCE]
    assert kinds([Told(0, 0, DELIVERED, 5)], {0: [(0, 0)]}) == [Kind.WRONG_OFFSET]
    assert kinds([Told(1, 0, DELIVERED, 0)], {0: [(0, 0)], 1: []}) == [Kind.WRONG_OFFSET]
    assert kinds([Told(0, 0)], {0: []}) == [Kind.UNRESOLVED]
    history = [Told(0, 0, DELIVERED, 1), Told(0, 1, DELIVERED, 0)]
    assert kinds(history, {0: [(0, 1), (1, 0)]}) == [Kind.REORDERED]


def test_twice_is_wrong_unless_it_was_not_promised() -> None:
    told, logs = [Told(0, 0, DELIVERED, 0)], {0: [(0, 0), (1, 0)]}
    assert kinds(told, logs) == [Kind.DUPLICATE]
    assert kinds(told, logs, idempotent=False) == []
