"""`PartitionErrors`: from the ledger's reasons to the errors users see. One per partition queue.

It keeps what brokers and connections last said about the partition, so that a record that runs out of time fails with
its cause and not with "timed out" alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    BrokerRejectedError,
    ClusterAuthorizationError,
    ConnectionLostError,
    DeliveryTimeoutError,
    IdentityLostError,
    InvalidRecordError,
    PartitionOutOfRangeError,
    ProducerFailedError,
    ProducerFencedError,
    RecordOvertakenError,
    RecordTooLargeError,
    RetriesExhaustedError,
    TopicAuthorizationError,
    TransactionAbortedError,
    UndeliveredAtCloseError,
    advise,
)
from aiokprod.model import Persistence
from aiokprod.pipeline.partition.failing import hint_of
from aiokprod.pipeline.partition.ledger_actions import Outcome, Reason, Settle
from aiokprod.pipeline.partition.outcomes import Segment
from aiokprod.pipeline.partition.verdicts import NO_ANSWER, ErrorKind, Refusal, error_kind
from aiokprod.wire.codes import ErrorCode, name_of

BY_VERDICT = (Reason.REJECTED, Reason.FATAL)
"""Reasons of the ledger that are the broker's answer to the batch itself."""


class NamedSegment(Segment):
    """Records, one behind the other, that the broker refused by name, each with a text of its own (KIP-467).

    A broker may name every record of a large batch: an error is made when it is asked for, not when the batch settles.
    """

    __slots__ = ("_position", "_refusal")

    def __init__(
        self,
        first: int,
        last: int,
        error: AiokprodError,
        attempts: int,
        settled_at: float,
        refusal: Refusal,
        position: int,
    ) -> None:
        """Make the segment. `error`: of the first record. `position`: of the first record among those that were sent."""
        super().__init__(first, last, -1, -1, error, attempts, settled_at)
        self._refusal = refusal
        self._position = position

    def error_of(self, index: int) -> AiokprodError | None:
        assert self.error is not None
        error = self.error.clone()
        error.message = self._refusal.text_of(self._position + index - self.first)
        error.args = (error.message,)
        return error

    def errors_of(self, indices: Sequence[int]) -> Iterator[AiokprodError] | None:
        return self._each(indices)

    def _each(self, indices: Sequence[int]) -> Iterator[AiokprodError]:
        for index in indices:
            error = self.error_of(index)
            assert error is not None
            yield error


class PartitionErrors:
    """The errors of records of one partition, with what the cluster last said."""

    def __init__(self, topic: str, partition: int, *, is_transactional: bool = False, codec: str = "none") -> None:
        self.topic = topic
        self.partition = partition
        self.aborted: AiokprodError | None = None  # why the transaction at hand was aborted, if it was
        self._is_transactional = is_transactional
        self._codec = codec
        self.crash: BaseException | None = None
        self.gone: str | None = None  # why the partition does not exist any more
        self._cause: BaseException | None = None

    def note(self, refusal: Refusal) -> None:
        """Note an error that a broker answered."""
        self._cause = BrokerAnswerError(refusal.text(), code=refusal.code)

    def note_cause(self, cause: BaseException) -> None:
        """Note that a connection failed, or that the producer crashed."""
        self._cause = cause

    def last_failure(self) -> str:
        """Return what a broker or a connection last said about the partition, in words; empty: nothing yet."""
        cause = self._cause
        return "" if cause is None else cause.message if isinstance(cause, AiokprodError) else str(cause)

    def error_of(self, settle: Settle, elapsed_s: float, position: int = -1) -> AiokprodError:
        """Return the error of records the ledger gave up; of one of them, if the broker named it by its position."""
        error = self._error_of(settle, position)
        error.topic = self.topic
        error.partition = self.partition
        error.attempts = settle.attempts
        error.elapsed_s = elapsed_s
        # A transaction with a record that failed is never committed: no reader of committed records sees it.
        is_certain = settle.outcome == Outcome.NOT or self._is_transactional
        error.persistence = Persistence.NOT_PERSISTED if is_certain else Persistence.POSSIBLY_PERSISTED
        if settle.why is Reason.DEADLINE or settle.why is Reason.RETRIES:
            self._advise(error)
        if error.code is None:
            error.code = settle.code
        refusal = settle.refusal
        if settle.why in BY_VERDICT and refusal is not None:
            # Not the last of the partition: other batches may have been answered since.
            error.__cause__ = BrokerAnswerError(refusal.text(), code=refusal.code)
        elif self._cause is not None and error.__cause__ is None:
            error.__cause__ = self._cause
        return error

    def hint(self) -> str:
        """Return what to do about the last failure, as the log says it; empty: nothing that is known."""
        cause = self._cause
        if isinstance(cause, BrokerAnswerError) and cause.code is not None:
            return hint_of(cause.code, self.topic, cause.message)
        return hint_of(NO_ANSWER, self.topic) if isinstance(cause, ConnectionLostError) else ""

    def _advise(self, error: AiokprodError) -> None:
        """Say what to do about the last failure before what to do in general."""
        hint = self.hint()
        if hint:
            advise(error, f"{hint[0].upper()}{hint[1:]}. {error.advice}")

    def _error_of(self, settle: Settle, position: int) -> AiokprodError:
        match settle.why:
            case Reason.DEADLINE:
                return DeliveryTimeoutError("delivery_timeout_ms passed" + self._last())
            case Reason.RETRIES:
                return RetriesExhaustedError(f"the record failed on each of {settle.attempts} attempts" + self._last())
            case Reason.PURGE:
                return self._ended()
            case Reason.ABORT:
                return self._aborted(settle.code)
            case Reason.OVERTAKEN:
                return RecordOvertakenError("a later batch is in the log and this one is not: the cluster lost data")
            case Reason.OLD:
                return IdentityLostError(
                    "an answer was lost, and the timestamps are so old that a broker may have forgotten what it has:"
                    " to send it again could write it twice" + self._last()
                )
            case Reason.BUMP:
                return IdentityLostError(
                    "the producer had to begin again on this partition before a broker answered for this record"
                    + self._last()
                )
            case Reason.REJECTED | Reason.FATAL:
                return self._refused(settle, position)
            case Reason.ANSWER | Reason.PROOF:
                raise AssertionError(f"no error for a record that was delivered: {settle!r}")
            case _:
                assert_never(settle.why)

    def _aborted(self, code: int | None) -> AiokprodError:
        """Return the error of records that fail with their transaction."""
        if self.aborted is not None:
            return self.aborted.clone()
        if code is None:
            return TransactionAbortedError("another record of the transaction has failed")
        return TransactionAbortedError(
            f"the broker does not accept the producer's id, epoch or sequence: {name_of(code)}"
        )

    def aborted_by_ledger(self) -> AiokprodError:
        """Return why the partition cannot go on in this transaction, where no record is at fault."""
        text = f"the records of {self.topic}-{self.partition} cannot be written in this transaction" + self._last()
        return TransactionAbortedError(text, topic=self.topic, partition=self.partition)

    def _ended(self) -> AiokprodError:
        """Return the error of records that are given up because their producer or their partition ends."""
        if isinstance(self.crash, ProducerFencedError):
            return self.crash.clone()
        if self.crash is not None:
            return ProducerFailedError(f"the producer failed: {self.crash}")
        if self.gone is not None:
            return PartitionOutOfRangeError(f"partition {self.partition} does not exist any more: {self.gone}")
        return UndeliveredAtCloseError("close() ended before the record was delivered" + self._last())

    def _refused(self, settle: Settle, position: int) -> AiokprodError:
        """Return the error of records that a broker refused."""
        code = settle.code
        if code is None:
            return BrokerRejectedError("the broker refused the batch" + self._last())
        refusal = settle.refusal
        if refusal is None or refusal.code != code:
            text = name_of(code)
        else:
            text = refusal.text() if position < 0 else refusal.text_of(position)
        match error_kind(code):
            case ErrorKind.TOO_LARGE:
                return RecordTooLargeError(f"the topic's max.message.bytes is smaller than the record ({text})")
            case ErrorKind.TOPIC_AUTHORIZATION:
                return TopicAuthorizationError(text)
            case ErrorKind.CLUSTER_AUTHORIZATION:
                return ClusterAuthorizationError(f"{text}: idempotent writes are not allowed to this principal")
            case ErrorKind.TRANSACTION:
                return TransactionAbortedError(f"the broker takes no more records of this transaction: {text}")
            case ErrorKind.INVALID_RECORD:
                if position >= 0:
                    return InvalidRecordError(text)
                count = sum(last - first for first, last in settle.ranges)
                if count == 1:
                    return InvalidRecordError(text)
                return BrokerRejectedError(
                    f"{text}: the broker refused the batch, and named none of its {count} records as the cause"
                )
            case _:
                return BrokerRejectedError(text + self._of_codec(code))

    def _of_codec(self, code: int) -> str:
        """Return the option behind a refusal of compressed batches; Azure Event Hubs refuses them with the first code."""
        if self._codec == "none" or code not in (
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ):
            return ""
        return f": the broker may not take batches with compression_type={self._codec!r}; try another one, or 'none'"

    def _last(self) -> str:
        return f"; last: {self._cause}" if self._cause is not None else ""
