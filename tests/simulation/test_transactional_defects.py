"""The transactional worlds find what clients get wrong: each defect is planted, and shows by its own finding."""

from __future__ import annotations

import pytest
import transactional_planted as planted
from transactional_world import explore_transactions

from aiokprod.pipeline import broker_backend
from aiokprod.transactions import transactor

pytestmark = [
    pytest.mark.pure("a defect subclasses a part of the producer"),
    pytest.mark.usefixtures("heals", "defects"),  # the watch may meet what they leave standing
]

FOUND_BY: dict[type, set[str]] = {
    planted.CommitsThoughARecordFailed: {"committed with a failure"},
    # On version 1 the renewal of the epoch behind it then fences the producer, whose transaction is still open.
    planted.TakesSilenceForSuccess: {"lost", "lost offset", "fenced without a cause"},
    planted.BumpsInsideATransaction: {"fenced without a cause"},
    planted.BeginsAfterAnUnknownEnd: {"begun before the end was known"},
    planted.SendsTheNewProtocol: {"the protocol of another version"},
    # A partition that the coordinator does not know gets no marker: what was aborted there is read with the next commit.
    planted.ForgetsAPartition: {"aborted record read", "aborted without a cause"},
    planted.LetsInWhileCommitting: {"let in while ending", "committed with a failure"},
    planted.TakesAFenceForAnAbort: {"aborted record read"},
}
NEAR = {planted.TakesAFenceForAnAbort: 240}  # a rare one: where to begin to look
MOST_SEEDS = 600


def wrongs_of(seed: int) -> list[str]:
    try:
        return [str(wrong) for wrong in explore_transactions(seed).wrongs]
    except Exception as crash:  # a defect may also show as a crash, a deadlock or a leftover
        return [f"{type(crash).__name__}: {crash}"]


def plant(defect: type, monkeypatch: pytest.MonkeyPatch) -> None:
    if defect in planted.MACHINES:
        monkeypatch.setattr(transactor, "TransactionMachine", defect)
    else:
        monkeypatch.setattr(broker_backend, "TransactionalPartitions", defect)


def test_every_planted_defect_is_looked_for() -> None:
    assert {*planted.MACHINES, planted.SendsTheNewProtocol} == set(FOUND_BY)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("defect", FOUND_BY, ids=lambda defect: defect.__name__)
def test_a_planted_defect_of_transactions_is_found(defect: type, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(defect, monkeypatch)
    first = NEAR.get(defect, 0)
    for seed in range(first, first + MOST_SEEDS):
        if wrongs := wrongs_of(seed):
            break
    else:
        pytest.fail(f"{defect.__name__} was not found in {MOST_SEEDS} seeds")
    kinds = {wrong.partition(": ")[0] for wrong in wrongs}
    print(f"{defect.__name__}: seed {seed}: {sorted(kinds)}: {wrongs[0][:200]}")
    assert kinds <= FOUND_BY[defect]
    monkeypatch.undo()
    assert wrongs_of(seed) == [], "without the defect the same seed is clean"
