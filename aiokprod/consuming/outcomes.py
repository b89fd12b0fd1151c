"""The rules for a batch after each outcome of each step: one table, no state, no I/O.

    read ──> the loop's body ──> OFFSETS ──> COMMIT ──> read the next one
                   │                │           │
                   └────────────> ABORT ──> go back to the committed offsets ──> read them again

`outcome_of` says what an error means, `TABLE` what follows. A test compares the table with docs/exactly_once.md.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    DeliveryError,
    DeliveryTimeoutError,
    IdentityLostError,
    OffsetCommitRefusedError,
    ProducerFailedError,
    RecordOvertakenError,
    RetriesExhaustedError,
    SendTimeoutError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
)
from aiokprod.model import TransactionOutcome
from aiokprod.transactions.machine_codes import GROUP_MOVED_ON
from aiokprod.wire.codes import ErrorCode

MOST_RUNS: Final = 10
"""The runs of one batch, without a commit in between, after which an error that could pass is taken for one that cannot. A
rebalance does not count: nothing is wrong with the batch."""

PASSES: Final = (
    TransactionTimeoutError,
    TransactionAbortedError,
    DeliveryTimeoutError,
    SendTimeoutError,
    RetriesExhaustedError,
    IdentityLostError,
    RecordOvertakenError,
)
"""Errors of a transaction, or of a record in it, after which the same batch may succeed. What the size of a record, the rights,
a serializer or the broker's checks refuse would be refused again."""

REFUSED_FOR_GOOD: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # told only of what the cluster does not have
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)
"""Codes of offsets that would be refused again."""


class Step(Enum):
    """A request about the transaction of a batch that is under way."""

    OFFSETS = "send offsets"
    COMMIT = "commit"
    ABORT = "abort"


class Outcome(Enum):
    """The outcome of a step."""

    DONE = "done"
    COMMITTED = "committed"
    """Of an abort: a commit that was asked for before had been done."""
    ABORTED = "aborted"
    """It has turned out that the transaction was aborted."""
    GROUP_MOVED_ON = "the group has moved on"
    PASSING = "an error that can pass"
    LASTING = "an error that would come again"
    UNKNOWN = "no answer in time"
    BROKEN = "any other error"
    """The producer is fenced, failed or closed; or the call was cancelled."""


class Next(Enum):
    """The next thing to do."""

    COMMIT = "commit"
    ABORT = "abort"
    GO_BACK = "go back"
    """To the committed offsets, then read."""
    READ = "read"
    RAISE = "raise"
    """The end of the `async with` then aborts what is open and goes back."""


TABLE: Final[dict[tuple[Step, Outcome], Next]] = {
    (Step.OFFSETS, Outcome.DONE): Next.COMMIT,
    (Step.OFFSETS, Outcome.COMMITTED): Next.RAISE,
    (Step.OFFSETS, Outcome.ABORTED): Next.GO_BACK,
    (Step.OFFSETS, Outcome.GROUP_MOVED_ON): Next.ABORT,
    (Step.OFFSETS, Outcome.PASSING): Next.ABORT,
    (Step.OFFSETS, Outcome.LASTING): Next.RAISE,
    (Step.OFFSETS, Outcome.UNKNOWN): Next.ABORT,
    (Step.OFFSETS, Outcome.BROKEN): Next.RAISE,
    (Step.COMMIT, Outcome.DONE): Next.READ,
    (Step.COMMIT, Outcome.COMMITTED): Next.READ,
    (Step.COMMIT, Outcome.ABORTED): Next.GO_BACK,
    (Step.COMMIT, Outcome.GROUP_MOVED_ON): Next.ABORT,
    (Step.COMMIT, Outcome.PASSING): Next.ABORT,
    (Step.COMMIT, Outcome.LASTING): Next.RAISE,
    (Step.COMMIT, Outcome.UNKNOWN): Next.COMMIT,
    (Step.COMMIT, Outcome.BROKEN): Next.RAISE,
    (Step.ABORT, Outcome.DONE): Next.GO_BACK,
    (Step.ABORT, Outcome.COMMITTED): Next.READ,
    (Step.ABORT, Outcome.ABORTED): Next.GO_BACK,
    (Step.ABORT, Outcome.GROUP_MOVED_ON): Next.RAISE,
    (Step.ABORT, Outcome.PASSING): Next.RAISE,
    (Step.ABORT, Outcome.LASTING): Next.RAISE,
    (Step.ABORT, Outcome.UNKNOWN): Next.ABORT,
    (Step.ABORT, Outcome.BROKEN): Next.RAISE,
}
"""What follows each outcome of each step."""


def outcome_of(error: BaseException, runs: int, ended: TransactionOutcome | None = None) -> Outcome:
    """Return what an error of a step means.

    Args:
        error: that the step raised.
        runs: the runs of the batch so far, this one included.
        ended: the outcome of its transaction, as far as it is known now.
    """
    if ended is TransactionOutcome.COMMITTED:
        return Outcome.COMMITTED
    outcome = _meaning(error, runs)
    # An abort that has been done needs no other one. An error that would come again is told all the same.
    is_over = ended is TransactionOutcome.ABORTED and outcome not in (Outcome.LASTING, Outcome.BROKEN)
    return Outcome.ABORTED if is_over else outcome


def _meaning(error: BaseException, runs: int) -> Outcome:
    # With a code of its own it is about the transaction, not about a record: the same batch may succeed in the next one.
    is_bare = isinstance(error, TransactionAbortedError) and error.code is None
    if is_bare and isinstance(error.__cause__, AiokprodError):
        # It says why. A broker that refuses the producer's epoch does not: the coordinator may have aborted the transaction, or
        # it is a fence, which is known after the abort.
        if not isinstance(error.__cause__, BrokerAnswerError):
            return _meaning(error.__cause__, runs)
    if isinstance(error, TransactionOutcomeUnknownError):
        return Outcome.UNKNOWN
    if isinstance(error, OffsetCommitRefusedError):
        if error.code in GROUP_MOVED_ON:
            return Outcome.GROUP_MOVED_ON
        # Others are about the producer's epoch or its transaction: what they mean is known after the abort.
        return Outcome.LASTING if error.code in REFUSED_FOR_GOOD or runs >= MOST_RUNS else Outcome.PASSING
    # A broker says 120 where an abort, and the same again, is what helps (KIP-890, KIP-1050).
    is_abortable = isinstance(error, AiokprodError) and error.code == ErrorCode.TRANSACTION_ABORTABLE
    if is_abortable or isinstance(error, PASSES):
        return Outcome.PASSING if runs < MOST_RUNS else Outcome.LASTING
    if isinstance(error, DeliveryError) and not isinstance(error, ProducerFailedError):
        return Outcome.LASTING
    return Outcome.BROKEN
