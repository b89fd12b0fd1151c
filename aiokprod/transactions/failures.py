"""`TransactionFailures`: what has gone wrong with a transaction or its id, and the errors that callers are told of it."""

from __future__ import annotations

from typing import Final

from aiokprod.errors import (
    AiokprodError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
    advise,
)
from aiokprod.model import InTransaction, Persistence
from aiokprod.transactions.callers import EndResult
from aiokprod.transactions.errors_of_causes import error_of, not_in_time, usage_error
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import Cause, Outcome, Partition, Reason, Refusal

WITH_FIRST: Final = (Reason.RECORD_FAILED, Reason.PARTITION_REFUSED, Reason.PARTITION_MISSING)
"""Reasons whose error is kept: it names the record, or the partition."""


FENCES: Final = (Reason.FENCED, Reason.FENCED_OR_TIMED_OUT)


class TransactionFailures:
    """The first failure of the transaction at hand, the loss of the id, and the last request that was not carried out.

    Args:
        transactional_id: for the texts.
        machine: knows the causes.
    """

    def __init__(self, transactional_id: str, machine: TransactionMachine) -> None:
        self.first: AiokprodError | None = None  # of the transaction at hand
        self.fatal: AiokprodError | None = None  # why the id is lost
        self.unanswered: AiokprodError | None = None  # of the last request without an answer, or with offsets not taken
        self._id = transactional_id
        self._machine = machine

    def refused(self, refusal: Refusal) -> AiokprodError:
        """Return the error of a call that this refuses."""
        if refusal is Refusal.ABORTABLE:
            error = TransactionAbortedError("the transaction can only be aborted")
            error.__cause__ = self.first_cause()
            return error
        if self.fatal is not None:
            return self.fatal.clone()
        if refusal is Refusal.NOT_INITIALISED:  # of no concern to the user: a transaction may begin before that
            refusal = Refusal.NOT_IN_TRANSACTION
        return usage_error(refusal)

    def goes_on(self, call: str) -> TransactionOutcomeUnknownError:
        """Return the error of a call whose time is over beside another one, whose time is not.

        Args:
            call: what goes on: "commit", "abort" or "preparation".
        """
        error = TransactionOutcomeUnknownError(f"the {call} goes on, for another call with a longer timeout")
        advise(error, "Call the same again: it waits for what goes on, and tells what happened.")
        return error

    def first_cause(self) -> AiokprodError:
        """Return why the transaction can only be aborted."""
        cause = self._machine.cause
        if self.first is not None and (cause is None or cause.reason in WITH_FIRST):
            error = self.first.clone()
        else:
            error = error_of(Cause(Reason.ASKED) if cause is None else cause, self._id)
        if error.in_transaction is InTransaction.CONTINUE:  # of its class, which is not about transactions
            error.in_transaction = InTransaction.ABORT
        return error

    def why_aborted(self, cause: Cause) -> AiokprodError:
        """Return the error of the records that fail with their transaction."""
        if cause.reason in FENCES:
            return error_of(cause, self._id)
        error = TransactionAbortedError("the transaction was aborted")
        if cause.reason in WITH_FIRST and self.first is not None:
            error.__cause__ = self.first.clone()
        elif cause.reason not in (Reason.ASKED, Reason.CLOSED):
            error.__cause__ = error_of(cause, self._id)
        return error

    def of_result(self, result: EndResult) -> AiokprodError:
        """Return the error of a commit that was refused, or of an end that is not what was asked for."""
        if self.fatal is not None:
            return self.fatal.clone()
        if result.outcome is None:
            return self.first_cause()
        if result.outcome is Outcome.UNKNOWN:
            return self.unknown_end()
        error = TransactionAbortedError("the transaction was aborted")
        if result.cause.reason is not Reason.ASKED:
            error.__cause__ = self.first_cause()
        return error

    def unknown_end(self) -> TransactionOutcomeUnknownError:
        """Return the error of an end without an answer in time."""
        error = TransactionOutcomeUnknownError(
            f"the coordinator has not said in time how the transaction of {self._id!r} ended"
        )
        if not self._machine.may_be_committed:
            error.persistence, error.in_transaction = Persistence.NOT_PERSISTED, InTransaction.ABORT
            advise(
                error,
                "It is not committed. The producer goes on asking for its abort, and the next block begins behind that; or call"
                " abort_transaction() again, which waits for it.",
            )
        error.__cause__ = self.unanswered
        return error

    def not_begun(self, waited_s: float) -> TransactionTimeoutError:
        """Return the error of a block that did not begin, as the last transaction has not ended."""
        error = TransactionTimeoutError(
            f"no transaction has begun: it is not known yet how the last one of {self._id!r} ended, after {waited_s:g} s"
            " (max_block_ms)"
        )
        advise(error, "Nothing was sent. The producer goes on asking the coordinator: begin again later.")
        error.__cause__ = self.unanswered
        return error

    def of_cause(self, cause: Cause, partition: Partition | None = None) -> AiokprodError:
        """Return the error of what ended a transaction, an id, or a partition of one."""
        return error_of(cause, self._id, partition)

    def of_deadline(self) -> AiokprodError:
        """Return the error of a commit whose time was over before the id was taken."""
        error = error_of(Cause(Reason.DEADLINE), self._id)
        error.__cause__ = self.unanswered
        return error

    def of_start(self, cause: Cause) -> AiokprodError:
        """Return the error of a start that did not get the id."""
        if cause.reason is Reason.DEADLINE:
            return not_in_time(self._id, self.unanswered)
        return error_of(cause, self._id)

    def __repr__(self) -> str:
        return f"<TransactionFailures of {self._id!r}: {self.fatal or self.first}>"
