"""How a transaction has ended that was to be aborted by a fence. `Fencing` itself: test_admin.py."""

from __future__ import annotations

import pytest

from aiokprod import TransactionOutcome
from aiokprod.transactions.fencing import outcome_of
from aiokprod.transactions.hanging import STATES, TransactionDescription

ABORTED, COMMITTED = TransactionOutcome.ABORTED, TransactionOutcome.COMMITTED


def described(state: str, producer_id: int = 7, started_ms: int | None = 1000) -> TransactionDescription:
    return TransactionDescription("i", state, producer_id, 1, 60_000, started_ms, ())


@pytest.mark.parametrize("state", STATES)
def test_every_state_says_how_it_ended_or_that_it_has_not(state: str) -> None:
    says = {
        "PrepareAbort": ABORTED,
        "PrepareEpochFence": ABORTED,
        "CompleteAbort": ABORTED,
        "PrepareCommit": COMMITTED,
        "CompleteCommit": COMMITTED,
    }
    assert outcome_of(described("Ongoing"), described(state)) is says.get(state)


@pytest.mark.parametrize(
    "now",
    [described("CompleteAbort", started_ms=2000), described("CompleteAbort", 8), described("CompleteAbort", 7, None)],
    ids=["a later one", "another producer id", "no start"],
)
def test_another_transaction_of_the_id_says_nothing(now: TransactionDescription) -> None:
    assert outcome_of(described("Ongoing"), now) is None
