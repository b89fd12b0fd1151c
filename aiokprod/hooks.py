"""Interceptors: the base class of hooks that see, and may change, each record, or follow each batch; and what batches tell."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeAlias

from aiokprod.errors import AiokprodError
from aiokprod.model import Record, TransactionOutcome
from aiokprod.record_metadata import RecordMetadata
from aiokprod.values import FrozenValue, Value

__all__ = [
    "BatchAnswered",
    "BatchSealed",
    "BatchSent",
    "BatchSettled",
    "DataLoss",
    "ProducerInterceptor",
    "RecordOutcome",
    "Server",
]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Server(FrozenValue):
    """A broker, where the producer was connected to it. One object per connection, shared by all events."""

    broker: int
    """id of the broker"""
    host: str
    """its name or address, as the cluster announced it"""
    port: int
    """its port"""
    cluster_id: str | None
    """id of its cluster; None: the cluster told none"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class RecordOutcome(FrozenValue):
    """The outcome of one record, for `ProducerInterceptor.on_record_settled`."""

    metadata: RecordMetadata | None
    """the place of the record in the log; None if it failed"""
    error: AiokprodError | None
    """the reason for the failure; None if the record was delivered"""
    attempts: int
    """how often it was written to a broker; 0: never"""
    batch: int | None = None
    """number of its batch, as in `BatchSealed`; None: it was in none, or no interceptor follows that batch"""
    index: int | None = None
    """its place in that batch, from 0, as in `BatchSettled.first`; None without a batch"""
    server: Server | None = None
    """the broker of the last attempt; None: it was never written"""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)  # frozen, it would take four times as long to make
class BatchSealed(Value):
    """A batch takes no more records. Times are seconds since 1970."""

    batch: int
    """number of the batch in this start of the producer; the parts of a batch that was split share it"""
    topic: str
    """topic name"""
    partition: int
    """partition number"""
    records: int
    """records in it"""
    size_bytes: int
    """its size before compression, an upper bound"""
    opened_at: float
    """when its first record was sent"""
    at: float
    """when it was sealed"""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)  # frozen, it would take four times as long to make
class BatchSent(Value):
    """An attempt: a batch, or a part of one that was split, was written to a broker. Times are seconds since 1970."""

    batch: int
    """number of the batch, as in `BatchSealed`"""
    topic: str
    """topic name"""
    partition: int
    """partition number"""
    records: int
    """records that were written"""
    size_bytes: int
    """bytes that were written, compressed"""
    attempt: int
    """1 for the first attempt"""
    broker: int
    """id of the broker"""
    at: float
    """when it was written"""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)  # frozen, it would take four times as long to make
class BatchAnswered(Value):
    """An attempt is over: a broker has answered it, or no answer will come. Times are seconds since 1970.

    With `acks=0` there is none. A batch that expired in flight is settled before its answer.
    """

    batch: int
    """number of the batch, as in `BatchSealed`"""
    topic: str
    """topic name"""
    partition: int
    """partition number"""
    records: int
    """records of the attempt that had no outcome yet"""
    attempt: int
    """the attempt that it is about"""
    code: int | None
    """Kafka's error code, 0: acknowledged; None: no answer came, as the connection was lost or the answer left it out"""
    error: str | None
    """name of the code, or `NO_ANSWER`; None: acknowledged"""
    request_s: float
    """seconds since the attempt was written"""
    at: float
    """when the answer was processed"""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)  # frozen, it would take four times as long to make
class BatchSettled(Value):
    """Records of a batch have their outcome. Times are seconds since 1970.

    Mostly all of them at once. A batch of which records were recalled, expired, were refused by name, or that was split is
    settled in parts: `is_last` tells the last one.
    """

    batch: int
    """number of the batch, as in `BatchSealed`"""
    topic: str
    """topic name"""
    partition: int
    """partition number"""
    records: int
    """records that have their outcome now"""
    first: int = 0
    """place of the first of them in the batch, from 0; the others follow it"""
    attempts: int
    """how often they were written to a broker; 0: never"""
    server: Server | None = None
    """the broker of the last attempt; None: they were never written"""
    base_offset: int | None
    """offset of the first of them, or None if they failed or no broker told it"""
    error: AiokprodError | None
    """why they failed; None: they were delivered"""
    is_last: bool
    """True: no record of the batch is without an outcome"""
    opened_at: float
    """when the first record of the batch was sent"""
    at: float
    """when they were settled"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class DataLoss(FrozenValue):
    """Records that the cluster has lost after it had acknowledged them."""

    topic: str
    """topic name"""
    partition: int
    """partition number"""
    first_offset: int
    """the first offset that was acknowledged before, and was given to another batch since"""
    last_offset: int
    """the last offset that was acknowledged before"""
    records: int
    """how many records are lost there, at most: others may have written some of them"""
    at: float
    """when it was certain, in seconds since 1970"""


BatchEvent: TypeAlias = BatchSealed | BatchSent | BatchAnswered | BatchSettled


class ProducerInterceptor:
    """The base class of interceptors: override the hooks you need, no others.

    Hooks are called from the event loop: they must be plain functions and quick. Only `close` may be async. A producer
    calls only what is overridden: one whose interceptors override nothing but hooks of batches costs nothing per record.
    The event of a batch is one object for all interceptors: leave it as it is.
    """

    may_miss_columns: bool = False
    """True allows `send_columns`, whose records no interceptor sees; hooks of batches see its batches"""

    def configure(self, config: object) -> None:
        """Prepare for a start of the producer. An exception makes `start` fail with ConfigError.

        Args:
            config: the `ProducerConfig` of the producer.
        """

    def on_start(self, producer: object) -> None:
        """Note that the producer is up: `start` returns after this.

        Args:
            producer: the `Producer`. Keep no more than a weak reference to it, so that it can be dropped.
        """

    def on_send(self, record: Record) -> Record:
        """Return the record to send: `record`, or another one.

        Called before serializers and partitioner, once per record, never on a retry. An exception is logged, and the
        record is sent as it was.

        Args:
            record: the record as the program sent it, or as the interceptor before this one returned it.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """Handle the outcome of a record: metadata, or an error (also of a record that `send` refused).

        Args:
            metadata: the place of the record in the log; None if it failed.
            error: the reason for the failure; None if the record was delivered.
        """

    def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        """Handle the outcome of a record, given the record as `on_send` and the serializers made it.

        Overriding this keeps every in-flight record in memory until its outcome.

        Args:
            record: the record as it was sent.
            metadata: the place of the record in the log; None if it failed.
            error: the reason for the failure; None if the record was delivered.
        """

    def on_record_settled(self, record: Record, outcome: RecordOutcome) -> None:
        """Handle the outcome of a record, as `on_outcome` does, with the number of attempts.

        Overriding this keeps every in-flight record in memory until its outcome.

        Args:
            record: the record as it was sent.
            outcome: its place or its error, and its attempts.
        """

    def skip(self) -> int | None:
        """Return how many records, from the next one on, may pass by this interceptor: none of its hooks sees them.

        Asked at each start, and after each record that the interceptor has seen. Records that pass by are sent at the cost
        of a producer without interceptors. That is an offer: beside other interceptors that see records, or beside
        serializers, every record is seen.

        Returns:
            a number of records; None: all that are sent within a second, which are not even counted. The record after the first
            one that is sent later is seen; of a list given to `send_many`, it may be the one after the next 500.
        """
        return 0

    # ------------------------------------------------------------------ batches
    def skip_batches(self) -> int | None:
        """Return how many batches, from the next one on, may pass by this interceptor: none of its hooks of batches sees them.

        Asked at each start, and after the first event of each batch that the interceptor follows. Batches that have an event
        before the answer are followed, too. Nothing is made for batches that pass by. That is an offer: beside other
        interceptors that follow batches, every batch is seen.

        Returns:
            a number of batches; None: all within a second.
        """
        return 0

    # Told on the next turn of the loop, in the order of the events. They see no record content.
    def on_batch_sealed(self, batch: BatchSealed) -> None:
        """Note that a batch takes no more records.

        Args:
            batch: the batch.
        """

    def on_batch_sent(self, batch: BatchSent) -> None:
        """Note that a batch was written to a broker, for the first time or again.

        Args:
            batch: the attempt.
        """

    def on_batch_answered(self, batch: BatchAnswered) -> None:
        """Note that an attempt was answered, or that no answer to it will come.

        Args:
            batch: the answer.
        """

    def on_batch_settled(self, batch: BatchSettled) -> None:
        """Note that records of a batch have their outcome.

        Args:
            batch: the records, and their outcome.
        """

    def on_transaction_end(self, outcome: TransactionOutcome) -> None:
        """Note that the transaction at hand has ended, after the outcome of each of its records was told.

        Told again if the end was unknown and has been found out. Of a prepared transaction it is told if this producer ends it.

        Args:
            outcome: how it ended.
        """

    def on_data_loss(self, loss: DataLoss) -> None:
        """Note that the cluster has lost records that it had acknowledged.

        Args:
            loss: where, and how many at most.
        """

    def close(self) -> Awaitable[None] | None:
        """Release what the interceptor holds; the producer is closed.

        Returns:
            None, or an awaitable, which is awaited for half a second at most.
        """
