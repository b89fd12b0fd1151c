"""The meaning of each error code to a transaction, request by request: one table, no state.

A code that is not in the table of its request has the meaning that `OTHERWISE` names. docs/transactions_states.md shows the
tables; a test compares.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from aiokprod.transactions.machine_actions import NO_ANSWER, NO_SUCH_PARTITION, Reason
from aiokprod.wire.codes import ErrorCode


class Request(Enum):
    """The requests of a transactional producer, beside Produce."""

    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    OFFSET_COMMIT = "TxnOffsetCommit"
    END = "EndTxn"
    MARKERS = "EndTxn for markers"
    """An EndTxn that was successful, once more."""


class Kind(Enum):
    """The treatment of a code."""

    DONE = "done"
    AGAIN = "again"
    """Asked again after the backoff."""
    MOVED = "moved"
    """Asked again after the backoff, of a coordinator that is looked up again."""
    CONCURRENT = "concurrent"
    """Asked again soon: the coordinator still ends an earlier transaction (broker: 9.8, 10.4, 10.6)."""
    APART = "apart"
    """Of a partition: not attempted because of another one (55), asked again at once without that one."""
    UNKNOWN_PARTITION = "unknown partition"
    """Of a partition: asked again after the backoff, not together with those that the coordinator may know."""
    STATE = "state"
    """Of EndTxn: the transaction was ended with the other verdict, or there is none (broker: 10.4b, 10.5, 10.7)."""
    ABORTABLE = "abortable"
    """The transaction can only be aborted."""
    FENCED = "fenced"
    """The epoch is an old one."""
    GONE = "gone"
    """Of EndTxn: the id has another producer id, or none: InitProducerId with the present identity tells (broker: 9.6)."""
    FATAL = "fatal"
    """No repetition and no abort helps."""


class Judgement(NamedTuple):
    """The treatment of a code, and the reason that callers are told if that ends something."""

    kind: Kind
    reason: Reason


RETRIED: Final[dict[int, Kind]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Kind.MOVED,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Kind.MOVED,
    ErrorCode.NOT_COORDINATOR: Kind.MOVED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Kind.MOVED,
    ErrorCode.CONCURRENT_TRANSACTIONS: Kind.CONCURRENT,  # never fatal (faults: X3)
    ErrorCode.UNKNOWN_SERVER_ERROR: Kind.AGAIN,  # of EndTxn: unknown, never success (faults: X18)
    ErrorCode.REQUEST_TIMED_OUT: Kind.AGAIN,
    ErrorCode.NETWORK_EXCEPTION: Kind.AGAIN,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Kind.AGAIN,
}
"""Codes after which every request is sent again."""

_FENCED: Final[dict[int, Kind]] = dict.fromkeys(
    (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED), Kind.FENCED
)
_NOT_AUTHORIZED: Final = frozenset(
    {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
)
_FATAL: Final[dict[int, Kind]] = dict.fromkeys(
    (*_NOT_AUTHORIZED, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST), Kind.FATAL
)
_COMMON: Final[dict[int, Kind]] = {ErrorCode.NONE: Kind.DONE, **RETRIED, **_FENCED, **_FATAL}

GROUP_MOVED_ON: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Codes of TxnOffsetCommit that say: the offsets are no longer this member's (faults: X17)."""

TABLE: Final[dict[Request, dict[int, Kind]]] = {
    Request.INIT_PRODUCER_ID: {
        **_COMMON,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT: Kind.FATAL,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Kind.FENCED,
        ErrorCode.TRANSACTION_ABORTABLE: Kind.AGAIN,  # nothing of this producer is open
    },
    Request.ADD_PARTITIONS: {
        **_COMMON,
        ErrorCode.OPERATION_NOT_ATTEMPTED: Kind.APART,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Kind.UNKNOWN_PARTITION,
        NO_ANSWER: Kind.AGAIN,
    },
    Request.ADD_OFFSETS: dict(_COMMON),
    Request.OFFSET_COMMIT: {
        **_COMMON,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Kind.AGAIN,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: Kind.AGAIN,
        NO_ANSWER: Kind.AGAIN,
        # The broker keeps the other offsets of such a request: without these ones they must not be committed.
        NO_SUCH_PARTITION: Kind.ABORTABLE,
        **dict.fromkeys(GROUP_MOVED_ON, Kind.ABORTABLE),
    },
    Request.END: {
        **_COMMON,
        ErrorCode.INVALID_TXN_STATE: Kind.STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Kind.GONE,
        ErrorCode.TRANSACTION_ABORTABLE: Kind.ABORTABLE,
    },
    Request.MARKERS: {ErrorCode.CONCURRENT_TRANSACTIONS: Kind.CONCURRENT},
}
OTHERWISE: Final = {
    Request.INIT_PRODUCER_ID: Kind.FATAL,
    Request.ADD_PARTITIONS: Kind.ABORTABLE,
    Request.ADD_OFFSETS: Kind.ABORTABLE,
    Request.OFFSET_COMMIT: Kind.ABORTABLE,
    # A verdict may have been taken with an error that no release has had so far: only a code that is known decides.
    Request.END: Kind.AGAIN,
    Request.MARKERS: Kind.DONE,  # only "not yet" is waited for
}
"""The kind of every code that the table of the request does not have."""


def judge(request: Request, code: int) -> Judgement:
    """Return what is done about the code in an answer to the request."""
    kind = TABLE[request].get(code, OTHERWISE[request])
    return Judgement(kind, _reason(request, kind, code))


def _reason(request: Request, kind: Kind, code: int) -> Reason:
    if kind is Kind.FATAL:
        if code in _NOT_AUTHORIZED:
            return Reason.NOT_AUTHORIZED
        return Reason.BAD_TIMEOUT if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT else Reason.UNUSABLE
    if kind is Kind.FENCED:
        return Reason.FENCED
    if kind is Kind.GONE or (kind is Kind.ABORTABLE and code == ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        return Reason.ID_GONE
    if kind is Kind.ABORTABLE and code == ErrorCode.TRANSACTION_ABORTABLE:
        return Reason.TOLD_TO_ABORT
    if kind is Kind.ABORTABLE:
        if request is Request.ADD_PARTITIONS:
            return Reason.PARTITION_REFUSED
        if request is Request.OFFSET_COMMIT and code == NO_SUCH_PARTITION:
            return Reason.PARTITION_MISSING
        if request is not Request.END:
            return Reason.GROUP_MOVED_ON if code in GROUP_MOVED_ON else Reason.OFFSETS_REFUSED
    return Reason.TIMED_OUT if kind is Kind.STATE else Reason.UNUSABLE
