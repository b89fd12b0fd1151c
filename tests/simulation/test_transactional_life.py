"""Transactional producers over upgrades, forgotten ids and long outages: a tenth of AIOKPROD_TEST_SEEDS worlds.

What was mended in the producer is taken out, one thing at a time, and found.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from transactional_life import explore_life

from aiokprod.testing.checker import Outcome
from aiokprod.transactions import machine_codes, transactor
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import Action, Mode, Refusal, State
from aiokprod.transactions.machine_codes import Kind, Request

SEEDS = max(1, int(os.environ.get("AIOKPROD_TEST_SEEDS", "500")) // 10)
FIRST = int(os.environ.get("AIOKPROD_TEST_FIRST_SEED", "0"))
PARTS = 10


@pytest.mark.parametrize("part", range(PARTS))
def test_no_year_in_production_tears_a_transaction_or_ends_a_producer(part: int) -> None:
    records = delivered = 0
    for seed in range(FIRST + part, FIRST + SEEDS, PARTS):
        run = explore_life(seed)
        assert not run.wrongs, f"{run.story}\nreplay: AIOKPROD_TEST_FIRST_SEED={seed} AIOKPROD_TEST_SEEDS=1"
        records += len(run.sends)
        delivered += sum(sent.outcome is Outcome.DELIVERED for sent in run.sends)
    assert SEEDS < PARTS or delivered > records / 4, "most worlds are survivable"


# ---------------------------------------------------------------------- mends taken out
class KeepsTheEpochOfVersionOne(TransactionMachine):
    """A machine whose first transaction of version 2 goes on in the epoch of version 1."""

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        self._is_used_below_2 = False
        return super().begin(mode, now)


class StopsAtTheDeadline(TransactionMachine):
    """A machine that asks for an abort within the time of its caller only."""

    def _is_ending(self) -> bool:
        return self.state is not State.UNKNOWN and super()._is_ending()


def machine(kind: type[TransactionMachine]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(transactor, "TransactionMachine", kind)


def gives_a_forgotten_id_up(patch: pytest.MonkeyPatch) -> None:
    """Take INVALID_PRODUCER_ID_MAPPING of EndTxn for a coordinator that cannot be used."""
    patch.setitem(machine_codes.TABLE[Request.END], 49, Kind.FATAL)


TAKEN_OUT: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str], int]] = {
    "keeps the epoch of version 1": (machine(KeepsTheEpochOfVersionOne), {"aborted record read", "dirty offset"}, 200),
    "stops at the deadline": (machine(StopsAtTheDeadline), {"stuck"}, 0),
    "gives a forgotten id up": (gives_a_forgotten_id_up, {"failed without a cause"}, 0),
}
"""What is taken out; the findings that it may show by; where to begin to look."""
MOST_SEEDS = 400


def wrongs_of(seed: int) -> list[str]:
    try:
        return [str(wrong) for wrong in explore_life(seed).wrongs]
    except Exception as crash:
        return [f"{type(crash).__name__}: {crash}"]


@pytest.mark.slow_after(1)
@pytest.mark.pure("a mend is taken out of a part of the producer")
@pytest.mark.parametrize("name", TAKEN_OUT)
def test_a_mend_that_is_taken_out_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take_out, expected, first = TAKEN_OUT[name]
    take_out(monkeypatch)
    for seed in range(first, first + MOST_SEEDS):
        if wrongs := wrongs_of(seed):
            break
    else:
        pytest.fail(f"{name} was not found in {MOST_SEEDS} seeds")
    kinds = {wrong.partition(": ")[0] for wrong in wrongs}
    print(f"{name}: seed {seed}: {sorted(kinds)}: {wrongs[0][:200]}")
    assert kinds <= expected
    monkeypatch.undo()
    assert wrongs_of(seed) == [], "with the mend the same seed is clean"
