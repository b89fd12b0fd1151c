"""The errors of transactions: from the machine's causes and refusals to what users are told. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    BrokerRejectedError,
    ClusterAuthorizationError,
    ConfigError,
    OffsetCommitRefusedError,
    ProducerClosedError,
    ProducerFencedError,
    RequestTimeoutError,
    TopicAuthorizationError,
    TransactionAbortedError,
    TransactionTimeoutError,
    UnsupportedVersionError,
    UsageError,
    advise,
)
from aiokprod.model import InTransaction, Persistence
from aiokprod.transactions.machine_actions import Cause, Partition, Reason, Refusal
from aiokprod.wire.codes import ErrorCode, name_of

MOST_NAMED: Final = 3
"""Partitions that the text of an error names."""
_FENCES: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_NOT_THE_PARTITION: Final = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTION_ABORTABLE})
_FINAL: Final = frozenset({Reason.NOT_AUTHORIZED, Reason.BAD_TIMEOUT, Reason.UNUSABLE})
_USAGE: Final = {
    Refusal.NOT_INITIALISED: "the transactional id is not taken yet: await start() first",
    Refusal.ALREADY_INITIALISED: "the transactional id is taken already",
    Refusal.NOT_IN_TRANSACTION: (
        "no transaction is open: send inside `async with producer.transaction()`, or call begin_transaction() first"
    ),
    Refusal.IN_TRANSACTION: (
        "a transaction is open already: commit or abort it first (for transactions side by side: docs/exactly_once.md)"
    ),
    Refusal.ABORTABLE: "the transaction can only be aborted: call abort_transaction()",
    Refusal.COMMITTING: "the transaction is being committed: await the end of that commit_transaction() first",
    Refusal.ABORTING: "the transaction is being aborted: await the end of that abort_transaction() first",
    Refusal.UNKNOWN: (
        "it is not known how the last transaction ended: call commit_transaction() or abort_transaction() again, until one of"
        " them tells"
    ),
    Refusal.PREPARING: "the transaction is being prepared: await the end of that prepare_transaction() first",
    Refusal.PREPARED: (
        "the transaction is prepared: end it by commit_transaction() or abort_transaction(), or close() this producer and leave"
        " its end to end_transaction()"
    ),
    Refusal.FENCED: "another instance has taken the transactional id: close() this producer",
    Refusal.FAILED: "the coordinator refuses the transactional id: close() this producer",
    Refusal.CLOSED: "the producer is closed, or is being closed",
}
_STEPS: Final = {
    Refusal.ABORTABLE: InTransaction.ABORT,
    Refusal.UNKNOWN: InTransaction.ASK_AGAIN,
    Refusal.FENCED: InTransaction.CLOSE,
    Refusal.FAILED: InTransaction.CLOSE,
}


def usage_error(refusal: Refusal) -> UsageError:
    """Return the error of a call that means nothing in the state of the transaction."""
    if refusal is Refusal.CLOSED:
        return ProducerClosedError(_USAGE[refusal])
    error = UsageError(_USAGE[refusal])
    error.in_transaction = _STEPS.get(refusal, InTransaction.CONTINUE)
    return error


def error_of(cause: Cause, transactional_id: str, partition: Partition | None = None) -> AiokprodError:
    """Return the error of a transaction, or of an id, that this ended.

    Args:
        cause: what the state machine says.
        transactional_id: of the producer.
        partition: the one that was refused, if the cause is about one.
    """
    error = _error_of(cause, transactional_id, partition)
    if error.code is None:
        error.code = cause.code
    if error.in_transaction is InTransaction.CONTINUE:  # of its class, which is not about transactions
        error.in_transaction = InTransaction.CLOSE if cause.reason in _FINAL else InTransaction.ABORT
    return error


def _error_of(cause: Cause, transactional_id: str, partition: Partition | None) -> AiokprodError:
    code = cause.code
    answer = "an error" if code is None else name_of(code)
    match cause.reason:
        case Reason.ASKED:
            return TransactionAbortedError("the transaction was aborted")
        case Reason.RECORD_FAILED:
            return TransactionAbortedError("a record of the transaction has failed")
        case Reason.PARTITION_REFUSED:
            return _refused_partition(answer, code, partition)
        case Reason.OFFSETS_REFUSED:
            refused = OffsetCommitRefusedError(f"the offsets were not taken into the transaction: {answer}")
            if code in _FENCES:  # the group is not the reason, as the advice of the class says
                advise(
                    refused,
                    f"Abort: another instance has taken the transactional id {transactional_id!r}, or the transaction was"
                    " open for longer than transaction_timeout_ms.",
                )
            return refused
        case Reason.PARTITION_MISSING:
            return missing_partitions(None, [] if partition is None else [partition])
        case Reason.GROUP_MOVED_ON:
            return OffsetCommitRefusedError(f"the group has moved on since the records were read: {answer}")
        case Reason.TIMED_OUT:
            return TransactionTimeoutError(
                "the coordinator has aborted the transaction: it was open for longer than transaction_timeout_ms, or an"
                " administrator has aborted it"
            )
        case Reason.TOLD_TO_ABORT:
            return TransactionAbortedError(f"a broker asks for the abort of the transaction: {answer}")
        case Reason.MAY_OPEN_AGAIN:
            return TransactionAbortedError(
                "the transaction cannot be prepared: a request that adds to it had no answer, and brokers below"
                " transaction.version 2 could take a late copy of it for another transaction"
            )
        case Reason.DEADLINE:
            return TransactionTimeoutError("the time of the call was over before the coordinator was asked to commit")
        case Reason.ID_GONE:
            return TransactionAbortedError(
                f"the coordinator has forgotten the transactional id {transactional_id!r}, which was not used for longer than"
                " the brokers' transactional.id.expiration.ms (7 days by default), or another instance has taken it"
            )
        case Reason.FENCED:
            return ProducerFencedError(
                f"another instance has taken the transactional id {transactional_id!r}",
                persistence=Persistence.NOT_PERSISTED,
            )
        case Reason.FENCED_OR_TIMED_OUT:
            return ProducerFencedError(
                f"another instance has taken the transactional id {transactional_id!r}, or the transaction was open for"
                " longer than transaction_timeout_ms, which brokers below transaction.version 2 answer in the same way; in"
                " that case close() and start() take the id again",
                persistence=Persistence.NOT_PERSISTED,
            )
        case Reason.NOT_AUTHORIZED:
            error = ClusterAuthorizationError(
                f"{answer}: this principal may not use the transactional id {transactional_id!r}"
            )
            advise(error, "Grant this principal WRITE and DESCRIBE on the transactional id.")
            return error
        case Reason.BAD_TIMEOUT:
            return ConfigError(
                "transaction_timeout_ms is larger than the brokers allow (transaction.max.timeout.ms, 900000 by default)"
            )
        case Reason.UNUSABLE:
            if code == ErrorCode.UNSUPPORTED_VERSION:
                return UnsupportedVersionError(f"the coordinator of {transactional_id!r} is too old for this: {answer}")
            return BrokerAnswerError(f"the coordinator of {transactional_id!r} cannot be used: {answer}")
        case Reason.CLOSED:
            return ProducerClosedError("the producer was closed")
        case _:
            assert_never(cause.reason)


def _refused_partition(answer: str, code: int | None, partition: Partition | None) -> AiokprodError:
    topic, number = (None, None) if partition is None else partition
    if code in _NOT_THE_PARTITION:
        text = f"the coordinator takes nothing more into this transaction: {answer}"
        return TransactionAbortedError(text, topic=topic, partition=number)
    text = f"the partition was not taken into the transaction: {answer}"
    kind = TopicAuthorizationError if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else BrokerRejectedError
    return kind(text, topic=topic, partition=number, persistence=Persistence.NOT_PERSISTED)


def missing_partitions(group: str | None, partitions: Sequence[Partition]) -> OffsetCommitRefusedError:
    """Return the error of offsets whose partitions do not exist.

    Args:
        group: whose offsets they are; None: not known.
        partitions: all of them, the first one is told in the fields of the error.
    """
    whose = "the offsets" if group is None else f"the offsets of group {group!r}"
    told = [f"partition {number} of topic {topic!r}" for topic, number in partitions[:MOST_NAMED]]
    if len(partitions) > MOST_NAMED:
        told.append(f"{len(partitions) - MOST_NAMED} more")
    what = " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told) or "partition that was named"
    topic, number = partitions[0] if partitions else (None, None)
    error = OffsetCommitRefusedError(
        f"{whose} were not taken into the transaction: the cluster has no {what}",
        code=int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        topic=topic,
        partition=number,
    )
    advise(
        error,
        "Abort, and correct or create the topic. If it was deleted, its records are gone: leave its offsets out, and let the"
        " consumer forget it.",
    )
    return error


def not_in_time(transactional_id: str, trouble: AiokprodError | None) -> AiokprodError:
    """Return the error of a start whose time was over before the id was taken."""
    why = "" if trouble is None else f"; last: {trouble.message}"
    error = RequestTimeoutError(f"the transactional id {transactional_id!r} was not given in time{why}")
    error.__cause__ = trouble
    return error
