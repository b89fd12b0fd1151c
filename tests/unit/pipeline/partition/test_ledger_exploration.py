"""The ledger explored: random schedules, every schedule of small worlds, and each rule switched off.

AIOKPROD_TEST_LEDGER_SEEDS sets how many random schedules are run (nox -s ledger: 200,000).
"""

from __future__ import annotations

import os

import ledger_variants as variants
import pytest
from ledger_world import KINDS, Kind, check, exhaust, run, survey

pytestmark = pytest.mark.pure("its batches are no ProducerBatch, its variants subclass Ledger")

SEEDS = int(os.environ.get("AIOKPROD_TEST_LEDGER_SEEDS", "1000"))
SMALL_WORLDS = [
    kind
    for kind in KINDS
    if kind.name in ("acks=all, restarts", "unclean elections", "not idempotent", "transactional")
]

# Seeds at which the rule's absence shows; the search starts shortly before, so that a change of the world that moves
# them a little does not matter.
FIRST_SHOWN = {
    "AnOkBehindTheHeadIsIgnored": 26,
    "ABumpStampsAmbiguousBatchesAgain": 3,
    "AnOvertakenBatchIsSentAgain": 2344,
    "NumbersAreClosedUpOverAmbiguousBatches": 326,
    "ARestHasTheNumbersOfTheWhole": 9,
    "NoFirstAckGuard": 105,
    "OldTimestampsAreNotMinded": 105,
    "AnOldAmbiguousBatchIsSentAgain": 105,
    "NoChaser": 21,
    "AnExpiredStampedBatchIsNotPersisted": 6,
    "NotIdempotentWithFiveInFlight": 7,
    "ATransactionalLedgerBumpsByItself": 17,
    "TheGuardOutlivesTheRound": 47274,
    "TheGuardOutlivesASilence": 172607,
}
SEARCH = 2000


def test_no_random_schedule_is_bad() -> None:
    bad = list(survey(range(SEEDS)))
    assert not bad, f"replay with run(seed, kind): {bad[:5]}"


def test_some_random_schedules_have_batches_of_two_ages() -> None:
    parts = sum(run(seed, KINDS[seed % len(KINDS)]).cost["parts by age"] for seed in range(200))
    assert parts > 20


LONG = ("unclean elections", "transactional", "not idempotent")
"""Small worlds that the long tests have; those with splits have the first of them in every run."""


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind.name, marks=[pytest.mark.slow] if kind.name in LONG else []) for kind in SMALL_WORLDS],
)
def test_no_schedule_of_a_small_world_is_bad_or_stuck(kind: Kind) -> None:
    states, bad, example = exhaust(3, 2, kind)
    assert set(bad) == {"ends"}, example
    assert states > 5000


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("kind", SMALL_WORLDS[:3], ids=lambda kind: kind.name)
@pytest.mark.parametrize(("faults", "per_batch", "limit"), [(2, 4, 2), (1, 2, 1)])
def test_no_schedule_with_splits_is_bad_or_stuck(kind: Kind, faults: int, per_batch: int, limit: int) -> None:
    states, bad, example = exhaust(4, faults, kind, per_batch=per_batch, limit=limit)
    assert set(bad) == {"ends"}, example
    assert states > 1000


@pytest.mark.parametrize("name", FIRST_SHOWN)
def test_a_rule_of_safety_switched_off_is_caught(name: str) -> None:
    variant = getattr(variants, name)
    start = max(0, FIRST_SHOWN[name] - SEARCH // 2)
    for seed in range(start, start + SEARCH):
        try:
            wrong = check(run(seed, KINDS[seed % len(KINDS)], variant))
        except AssertionError as stopped:
            wrong = {f"stopped by its own assertion: {stopped}"}
        if wrong:
            print(f"{name}: seed {seed}, {KINDS[seed % len(KINDS)].name}: {wrong}")
            return
    pytest.fail(f"{name} was not caught in {SEARCH} schedules from {start}")


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("variant", variants.COST, ids=lambda variant: variant.__name__)
def test_a_rule_of_cost_switched_off_costs_and_harms_nothing_else(variant: type[variants.NothingIsProved]) -> None:
    restarts = next(kind for kind in KINDS if kind.name == "acks=all, restarts")
    content = next(kind for kind in KINDS if kind.name == "bad records")
    kind = content if variant is variants.ARejectionAlwaysBumps else restarts
    with_rule: int = 0
    without: int = 0
    for seed in range(300):
        good, other = run(seed, kind), run(seed, kind, variant)
        assert not check(good)
        assert not check(other)
        cost = "POSSIBLY" if variant in (variants.NothingIsProved, variants.FortyFiveDecidesAtOnce) else "bumps"
        with_rule += good.cost[cost]
        without += other.cost[cost]
    assert without > with_rule
