"""The table of what follows each outcome, and the meaning of errors."""

from __future__ import annotations

from itertools import product

import pytest

from aiokprod import TransactionOutcome, errors
from aiokprod.consuming.outcomes import MOST_RUNS, REFUSED_FOR_GOOD, TABLE, Next, Outcome, Step, outcome_of
from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    DeliveryError,
    OffsetCommitRefusedError,
    TransactionAbortedError,
)
from aiokprod.transactions.machine_codes import GROUP_MOVED_ON

ABORTED, COMMITTED = TransactionOutcome.ABORTED, TransactionOutcome.COMMITTED
MEANINGS = {
    errors.TransactionTimeoutError: Outcome.PASSING,
    errors.TransactionAbortedError: Outcome.PASSING,
    errors.DeliveryTimeoutError: Outcome.PASSING,
    errors.SendTimeoutError: Outcome.PASSING,
    errors.RetriesExhaustedError: Outcome.PASSING,
    errors.IdentityLostError: Outcome.PASSING,
    errors.RecordOvertakenError: Outcome.PASSING,
    errors.TransactionOutcomeUnknownError: Outcome.UNKNOWN,
    errors.ProducerFailedError: Outcome.BROKEN,
    errors.ProducerFencedError: Outcome.BROKEN,
    errors.OffsetCommitRefusedError: Outcome.PASSING,  # without a code that says more
}
"""Those that are not here: what a record is refused for lasts, everything else is broken."""


def made(kind: type[AiokprodError]) -> AiokprodError:
    error = kind.__new__(kind)
    AiokprodError.__init__(error, "why")
    return error


def all_errors() -> list[type[AiokprodError]]:
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, AiokprodError)]
    return sorted(set(found), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)
def test_each_error_has_its_meaning(kind: type[AiokprodError]) -> None:
    otherwise = Outcome.LASTING if issubclass(kind, DeliveryError) else Outcome.BROKEN
    expected = MEANINGS.get(kind, otherwise)
    assert outcome_of(made(kind), 1) is expected
    by_abort = TransactionAbortedError("aborted")
    by_abort.__cause__ = made(kind)
    assert outcome_of(by_abort, 1) is (Outcome.PASSING if kind is errors.BrokerAnswerError else expected)
    last = Outcome.LASTING if expected is Outcome.PASSING else expected
    assert outcome_of(made(kind), MOST_RUNS) is last
    assert outcome_of(made(kind), 1, COMMITTED) is Outcome.COMMITTED
    stays = expected in (Outcome.LASTING, Outcome.BROKEN)
    assert outcome_of(made(kind), 1, ABORTED) is (expected if stays else Outcome.ABORTED)


@pytest.mark.parametrize("kind", [errors.BrokerRejectedError, errors.BrokerAnswerError, errors.TransactionAbortedError])
def test_what_a_broker_calls_abortable_passes(kind: type[AiokprodError]) -> None:
    error = made(kind)
    error.code = 120
    assert (outcome_of(error, 1), outcome_of(error, MOST_RUNS)) == (Outcome.PASSING, Outcome.LASTING)
    by_abort = TransactionAbortedError("aborted")
    by_abort.__cause__ = error
    assert outcome_of(by_abort, 1) is Outcome.PASSING


def test_other_exceptions_are_broken() -> None:
    for error in (KeyError(), KeyboardInterrupt(), RuntimeError()):
        assert outcome_of(error, 1) is Outcome.BROKEN
    by_other = TransactionAbortedError("aborted")
    by_other.__cause__ = KeyError()
    assert outcome_of(by_other, 1) is Outcome.PASSING


@pytest.mark.parametrize("code", [47, 48, 49, 90, 120])
def test_an_answer_about_the_transaction_passes(code: int) -> None:
    by_answer = TransactionAbortedError("the broker takes no more records of this transaction", code=code)
    by_answer.__cause__ = BrokerAnswerError("the broker's text", code=code)
    assert (outcome_of(by_answer, 1), outcome_of(by_answer, MOST_RUNS)) == (Outcome.PASSING, Outcome.LASTING)


@pytest.mark.parametrize("code", range(-1, 135))
def test_each_code_of_refused_offsets_has_its_meaning(code: int) -> None:
    error = OffsetCommitRefusedError("refused", code=code)
    if code in GROUP_MOVED_ON:
        assert outcome_of(error, 1) is outcome_of(error, 1000) is Outcome.GROUP_MOVED_ON
    elif code in REFUSED_FOR_GOOD:
        assert outcome_of(error, 1) is Outcome.LASTING
    else:
        assert (outcome_of(error, 1), outcome_of(error, MOST_RUNS)) == (Outcome.PASSING, Outcome.LASTING)


def test_the_table_has_each_outcome_of_each_step() -> None:
    assert set(TABLE) == set(product(Step, Outcome))


def test_what_follows_keeps_the_promises() -> None:
    for (step, outcome), follows in TABLE.items():
        if follows is Next.READ:  # the only way on without going back: it is committed
            assert outcome is Outcome.COMMITTED or (step, outcome) == (Step.COMMIT, Outcome.DONE)
        if follows is Next.COMMIT:  # never without its offsets, never after a refusal
            assert (step, outcome) in {(Step.OFFSETS, Outcome.DONE), (Step.COMMIT, Outcome.UNKNOWN)}
        if follows is Next.GO_BACK:  # never while the transaction is open, or its end not known
            assert outcome is Outcome.ABORTED or (step, outcome) == (Step.ABORT, Outcome.DONE)
        if outcome in (Outcome.BROKEN, Outcome.LASTING):
            assert follows is Next.RAISE
        if outcome is Outcome.GROUP_MOVED_ON and step is not Step.ABORT:
            assert follows is Next.ABORT
        if outcome is Outcome.UNKNOWN:  # it goes on asking for the same
            assert follows is (Next.COMMIT if step is Step.COMMIT else Next.ABORT)
