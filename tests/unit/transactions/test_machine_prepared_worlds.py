"""The transaction machine explored with prepared transactions: other processes end them, and processes die between.

AIOKPROD_TEST_TRANSACTION_SEEDS, _FIRST_SEED and _FAULTS are those of test_machine_exploration.py; here half as many schedules
are run, from half of the first seed.
"""

from __future__ import annotations

import os

import pytest
import transaction_variants as variants
from prepared_world import PREPARED_KINDS, PreparedWorld, StrangersJudgement
from transaction_world import Kind, exhaust, run

from aiokprod.transactions.ending_codes import Answer, LogSays
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import Mode, Outcome, Verdict

SEEDS = int(os.environ.get("AIOKPROD_TEST_TRANSACTION_SEEDS", "1500")) // 2
FIRST_SEED = int(os.environ.get("AIOKPROD_TEST_TRANSACTION_FIRST_SEED", "0")) // 2
FAULTS = int(os.environ.get("AIOKPROD_TEST_TRANSACTION_FAULTS", "1"))
SEARCH = 1000

# By name: a seed at which the rule's absence shows, and the harm that must be among the findings.
SHOWN = {
    "WhatIsPreparedIsTakenForOpen": (13, "told aborted, and is committed"),
    "ThePreparedEpochIsKept": (61, "torn"),
    "WhatMayOpenAgainIsPrepared": (10709, "told aborted, and is committed"),
    "PreparedBeforeTheRecordsAreSettled": (10, "torn"),
    "PreparedThoughARecordFailed": (328, "told committed, and is not"),
    "PreparedBeforeTheOffsets": (3, "told committed, and is not"),
    "WhatIsPreparedIsCommitted": (0, "committed, and no process has asked for it"),
    "TheEpochIsRenewedWhenPrepared": (3, "aborted without a cause"),
    "CloseAbortsWhatIsPrepared": (1239, "aborted without a cause"),
    "TheNextBeginsBehindPrepare": (52, "one transaction in another"),
    "OffsetsAreTakenBehindPrepare": (2, "not refused: prepared"),
}


def kind_of(seed: int) -> Kind:
    return PREPARED_KINDS[seed % len(PREPARED_KINDS)]


def played(seed: int, machine: type[TransactionMachine] = TransactionMachine) -> PreparedWorld:
    return run(seed, kind_of(seed), machine, PreparedWorld)


def test_no_random_schedule_with_prepared_transactions_is_bad() -> None:
    prepared = committed = read = deaths = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        world = played(seed)
        wrong = world.check()
        assert not wrong, f"replay with played({seed}), {kind_of(seed).name}: {wrong}"
        prepared += len(world.fates)
        committed += sum(stranger.outcome is Outcome.COMMITTED for stranger in world.strangers)
        read += sum(stranger.reads_the_log for stranger in world.strangers)
        deaths += world.deaths
    assert SEEDS < 100 or min(prepared, committed) > SEEDS
    assert SEEDS < 100 or min(read, deaths) > SEEDS / 10


@pytest.mark.parametrize("seed", [79294, 80766])
def test_two_aborts_in_a_row_are_both_drained(seed: int) -> None:
    """The world told the machine of the second one alone, so that the third transaction never got its identity."""
    assert not played(seed).check()


LONG = ("prepared, version 1", "prepared, version 0, timeouts", "prepared, version 2, two instances")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, id=kind.name, marks=[pytest.mark.slow] if kind.name in LONG else [])
        for kind in PREPARED_KINDS[:5]
    ],
)
def test_no_schedule_of_one_prepared_transaction_is_bad_or_stuck(kind: Kind) -> None:
    states, bad, example = exhaust(kind, [(1, 0, True)], FAULTS - 1, world_type=PreparedWorld)
    assert set(bad) == {"ends"}, example
    assert states > 300


def test_every_rule_of_prepared_transactions_that_is_switched_off_is_looked_for() -> None:
    assert {variant.__name__ for variant in variants.PREPARED} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_a_rule_of_prepared_transactions_switched_off_is_caught(name: str) -> None:
    first, harm = SHOWN[name]
    start = max(0, first - SEARCH // 2)
    for seed in range(start, start + SEARCH):
        if harm in played(seed, getattr(variants, name)).check():
            assert not played(seed).check(), "with the rule the same schedule is good"
            return
    pytest.fail(f"{name} was not caught in {SEARCH} schedules from {start}")


# ---------------------------------------------------------------------- the process that ends it
class AFenceIsAnAbort(StrangersJudgement):
    """The id has gone on, so the transaction is taken for aborted."""

    def of_answer(self, code: int, mode: Mode, verdict: Verdict) -> tuple[Answer, Outcome | None]:
        answer, outcome = super().of_answer(code, mode, verdict)
        return answer, Outcome.ABORTED if answer is Answer.TAKEN else outcome


class WhatIsAskedForIsDone(StrangersJudgement):
    """INVALID_TXN_STATE is taken for "done before", whatever was done."""

    def of_answer(self, code: int, mode: Mode, verdict: Verdict) -> tuple[Answer, Outcome | None]:
        answer, outcome = super().of_answer(code, mode, verdict)
        asked = Outcome.COMMITTED if verdict is Verdict.COMMIT else Outcome.ABORTED
        return answer, asked if answer is Answer.OTHER else outcome


class WhatHasNoMarkerIsCommitted(StrangersJudgement):
    """A log in which the transaction is open is read as if it had been committed."""

    def of_log(self, says: LogSays) -> Outcome | None:
        return Outcome.COMMITTED if says is LogSays.OPEN else super().of_log(says)


@pytest.mark.parametrize("judgement", [AFenceIsAnAbort, WhatIsAskedForIsDone, WhatHasNoMarkerIsCommitted])
def test_a_process_that_judges_wrongly_is_caught(judgement: type[StrangersJudgement]) -> None:
    class Misled(PreparedWorld):
        pass

    Misled.judgement = judgement()
    for seed in range(SEARCH):
        if "another process was told what is not" in run(seed, kind_of(seed), world_type=Misled).check():
            return
    pytest.fail(f"{judgement.__name__} was not caught in {SEARCH} schedules")
