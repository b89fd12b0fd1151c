"""The meaning of an answer to EndTxn to a process that ends a prepared transaction, and of what the log says. No state.

It differs from that of the producer (`machine_codes`): a fence says nothing here, as the transaction may have been ended before
another producer took the id.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from aiokprod.transactions.machine_actions import Mode, Outcome, Verdict
from aiokprod.wire.codes import ErrorCode


class Answer(Enum):
    """The meaning of a code."""

    DONE = "done"
    """Ended as asked, now or before (broker: 11.1, 11.2)."""
    OTHER = "other"
    """Ended with the other verdict, before (broker: 10.4b, 11.2, 11.3)."""
    AGAIN = "again"
    """Nothing is known yet: asked again after the backoff. It may have been done."""
    CONCURRENT = "concurrent"
    """Asked again soon: its markers, or those of another transaction of the id, are being written (broker: 10.4)."""
    MOVED = "moved"
    """Asked again, of a coordinator that is looked up again."""
    TAKEN = "taken"
    """The id goes on with another identity: ended, and only the log says how, soon (broker: 11.3, 11.4)."""
    REFUSED = "refused"
    """Asking again does not help, and nothing is known: only the log may tell."""


ANSWERS: Final[dict[int, Answer]] = {
    ErrorCode.NONE: Answer.DONE,
    ErrorCode.INVALID_TXN_STATE: Answer.OTHER,
    ErrorCode.CONCURRENT_TRANSACTIONS: Answer.CONCURRENT,
    **dict.fromkeys(
        (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ),
        Answer.MOVED,
    ),
    # The epoch went on: by a start with the id, by the coordinator's timeout, or by the end of this transaction and the next.
    # 49: another producer id, behind the last epoch (broker: 9.10), or an id that the coordinator has forgotten.
    **dict.fromkeys(
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        Answer.TAKEN,
    ),
    **dict.fromkeys(
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.UNSUPPORTED_VERSION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.TRANSACTION_ABORTABLE,
        ),
        Answer.REFUSED,
    ),
}
"""The same for both versions and verdicts. A code that is not here is asked again: no release has had it so far."""


def answer_of(code: int) -> Answer:
    """Return the meaning of the code in an answer to EndTxn."""
    return ANSWERS.get(code, Answer.AGAIN)


def outcome_of(answer: Answer, mode: Mode, verdict: Verdict) -> Outcome | None:
    """Return how the transaction ended, by what the coordinator says; None: it does not tell.

    Args:
        answer: to an EndTxn with the identity of the transaction.
        mode: version of its protocol. Both say the same, of a transaction that the coordinator has known (broker: 11.2).
        verdict: what was asked for.
    """
    commits = verdict is Verdict.COMMIT
    if answer is Answer.DONE:
        return Outcome.COMMITTED if commits else Outcome.ABORTED
    if answer is Answer.OTHER:
        return Outcome.ABORTED if commits else Outcome.COMMITTED
    return None


# ---------------------------------------------------------------------- the log
@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """The header of the batch that is in the log at the first offset of the transaction."""

    producer_id: int
    epoch: int
    base_offset: int
    last_offset: int
    count: int
    is_transactional: bool
    is_control: bool


class LogSays(Enum):
    """The end of a transaction, by one partition's log."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """It has no replicated marker yet, or an older transaction of another producer is open in front of it."""
    NOTHING = "nothing"
    """Its first record is not there any more: only with the record the log tells an abort from a commit."""


def log_says(
    identity: tuple[int, int],
    offset: int,
    last_offset: int,
    batch: LoggedBatch | None,
    last_stable_offset: int,
    aborted: Iterable[tuple[int, int]],
) -> LogSays:
    """Read an answer to a Fetch of committed records from the first offset of the transaction.

    Args:
        identity: producer id and epoch of the transaction.
        offset: its first one in this partition, where the Fetch began.
        last_offset: its last one there.
        batch: the first one of the answer; None: there was none.
        last_stable_offset: up to there every transaction has its end (KIP-98).
        aborted: producer id and first offset of the aborted transactions that reach into what was fetched.
    """
    if last_stable_offset <= last_offset:
        return LogSays.OPEN
    # Without the record itself nothing follows: the cleaner drops the records of an abort, and then their entry in the list.
    if (
        batch is None
        or (batch.producer_id, batch.epoch) != identity
        or not batch.base_offset <= offset <= batch.last_offset
        or batch.count < 1
        or not batch.is_transactional
        or batch.is_control
    ):
        return LogSays.NOTHING
    # An earlier transaction of the producer has its marker before this record, a later one begins behind it.
    if any(producer_id == identity[0] and first <= offset for producer_id, first in aborted):
        return LogSays.ABORTED
    return LogSays.COMMITTED
