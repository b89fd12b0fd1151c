"""`Failures`: from the ledger's reasons to the errors users see. One per partition queue.

It keeps what brokers and connections last said about the partition, so that a record that runs out of time fails with
its cause and not with "timed out" alone.
"""

from __future__ import annotations

from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    BrokerRejectedError,
    ClusterAuthorizationError,
    DeliveryTimeoutError,
    IdentityLostError,
    InvalidRecordError,
    PartitionOutOfRangeError,
    ProducerFailedError,
    RecordOvertakenError,
    RecordTooLargeError,
    RetriesExhaustedError,
    TopicAuthorizationError,
    UndeliveredAtCloseError,
)
from aiokprod.model import Persistence
from aiokprod.pipeline.ledger import Outcome, Settle
from aiokprod.pipeline.refusal import Refusal
from aiokprod.pipeline.verdicts import ErrorKind, error_kind
from aiokprod.wire.codes import name_of

BY_VERDICT = ("rejected", "fatal")
"""Reasons of the ledger that are the broker's answer to the batch itself."""


class Failures:
    """Why records of one partition fail."""

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.crash: BaseException | None = None
        self.gone: str | None = None  # why the partition is no more
        self._cause: BaseException | None = None

    def note(self, refusal: Refusal) -> None:
        """A broker answered an error."""
        self._cause = BrokerAnswerError(refusal.text(), code=refusal.code)

    def note_cause(self, cause: BaseException) -> None:
        """A connection failed, or the producer crashed."""
        self._cause = cause

    def error_of(self, settle: Settle, elapsed_s: float, position: int = -1) -> AiokprodError:
        """The error of records the ledger gave up; of one of them, if the broker named it by its position."""
        error = self._error_of(settle, position)
        error.topic = self.topic
        error.partition = self.partition
        error.attempts = settle.attempts
        error.elapsed_s = elapsed_s
        error.persistence = (
            Persistence.NOT_PERSISTED if settle.outcome == Outcome.NOT else Persistence.POSSIBLY_PERSISTED
        )
        if error.code is None:
            error.code = settle.code
        refusal = settle.refusal
        if settle.why in BY_VERDICT and refusal is not None:
            # Not the last of the partition: other batches may have been answered since.
            error.__cause__ = BrokerAnswerError(refusal.text(), code=refusal.code)
        elif self._cause is not None:
            error.__cause__ = self._cause
        return error

    @staticmethod
    def named_as(error: AiokprodError, refusal: Refusal, position: int) -> AiokprodError:
        """The error of another record of the same batch that was named too: thousands may be, each in its own words."""
        other = error.clone()
        other.message = refusal.text_of(position)
        other.args = (other.message,)
        return other

    def _error_of(self, settle: Settle, position: int) -> AiokprodError:
        why = settle.why
        if why == "deadline":
            return DeliveryTimeoutError("delivery_timeout_ms passed" + self._last())
        if why == "retries":
            return RetriesExhaustedError(f"the record failed on each of {settle.attempts} attempts" + self._last())
        if why in ("purge", "abort"):
            if self.crash is not None:
                return ProducerFailedError(f"the producer failed: {self.crash}")
            if self.gone is not None:
                return PartitionOutOfRangeError(f"partition {self.partition} does not exist any more: {self.gone}")
            return UndeliveredAtCloseError("close() ended before the record was delivered" + self._last())
        if why == "overtaken":
            return RecordOvertakenError("a later batch is in the log and this one is not: the cluster lost data")
        if why == "old":
            return IdentityLostError(
                "an answer was lost, and the timestamps are so old that a broker may have forgotten what it has:"
                " to send it again could write it twice" + self._last()
            )
        if why == "bump":
            return IdentityLostError(
                "the producer had to begin anew on this partition before a broker answered for this record"
                + self._last()
            )
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
                return BrokerRejectedError(text)

    def _last(self) -> str:
        return f"; last: {self._cause}" if self._cause is not None else ""
