"""Interceptors: hooks that see, and may change, each record, or follow each batch. A hook cannot raise into the pipeline."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from aiokprod.errors import AiokprodError
from aiokprod.logs import StateLog
from aiokprod.model import Record, TransactionOutcome
from aiokprod.record_metadata import RecordMetadata

__all__ = ["BatchAnswered", "BatchSealed", "BatchSent", "BatchSettled", "ProducerInterceptor", "RecordOutcome"]

MOST_SKIPPED = 2**31
"""records that may pass by an interceptor at once"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOutcome:
    """The outcome of one record, for `ProducerInterceptor.on_record_settled`."""

    metadata: RecordMetadata | None
    """the place of the record in the log; None if it failed"""
    error: AiokprodError | None
    """the reason for the failure; None if the record was delivered"""
    attempts: int
    """how often it was written to a broker; 0: never"""
    batch: int | None = None
    """number of its batch, as in `BatchSealed`; None: it was in none, or no interceptor follows batches"""
    index: int | None = None
    """its place in that batch, from 0, as in `BatchSettled.first`; None without a batch"""


@dataclass(slots=True, kw_only=True)  # frozen, it would take four times as long to make
class BatchSealed:
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


@dataclass(slots=True, kw_only=True)  # frozen, it would take four times as long to make
class BatchSent:
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


@dataclass(slots=True, kw_only=True)  # frozen, it would take four times as long to make
class BatchAnswered:
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


@dataclass(slots=True, kw_only=True)  # frozen, it would take four times as long to make
class BatchSettled:
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


BatchEvent: TypeAlias = BatchSealed | BatchSent | BatchAnswered | BatchSettled
BATCH_HOOKS: Final[tuple[tuple[type[BatchEvent], str], ...]] = (
    (BatchSealed, "on_batch_sealed"),
    (BatchSent, "on_batch_sent"),
    (BatchAnswered, "on_batch_answered"),
    (BatchSettled, "on_batch_settled"),
)


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

    def skip(self) -> int:
        """Return how many records, from the next one on, may pass by this interceptor: none of its hooks sees them.

        Asked at each start, and after each record that the interceptor has seen. Records that pass by are sent at the cost
        of a producer without interceptors. That is an offer: beside other interceptors that see records, or beside
        serializers, every record is seen.
        """
        return 0

    # ------------------------------------------------------------------ batches
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

    def close(self) -> Awaitable[None] | None:
        """Release what the interceptor holds; the producer is closed.

        Returns:
            None, or an awaitable, which is awaited for half a second at most.
        """


class InterceptorChain:
    """All interceptors in their order. An exception is logged, and the chain continues with the last good record.

    The record of an outcome is found by its position (its holder, and its index there). Positions are kept only if an
    interceptor overrides `on_outcome` or `on_record_settled`, or skips records.
    """

    def __init__(self, interceptors: Sequence[ProducerInterceptor], log: StateLog) -> None:
        self._all = tuple(interceptors)
        self._senders = [each for each in interceptors if _overrides(each, "on_send")]
        self._acknowledged = [each for each in interceptors if _overrides(each, "on_acknowledgement")]
        self._listeners = [each for each in interceptors if _overrides(each, "on_outcome")]
        self._settlers = [each for each in interceptors if _overrides(each, "on_record_settled")]
        of_records = (self._senders, self._acknowledged, self._listeners, self._settlers)
        self._of_records = [each for each in interceptors if any(each in some for some in of_records)]
        self._batch_hooks: dict[type[BatchEvent], tuple[str, list[ProducerInterceptor]]] = {
            event: (hook, [each for each in interceptors if _overrides(each, hook)]) for event, hook in BATCH_HOOKS
        }
        self._of_transactions = [each for each in interceptors if _overrides(each, "on_transaction_end")]
        sole = self._of_records[0] if len(self._of_records) == 1 else None
        self._sampler = sole if sole is not None and _overrides(sole, "skip") else None
        self._keeps_positions = bool(self._listeners or self._settlers) or self._sampler is not None
        self._open: dict[object, dict[int, Record]] = {}
        self._log = log

    def __bool__(self) -> bool:
        """Return True if an interceptor sees records."""
        return bool(self._of_records)

    @property
    def sees_batches(self) -> bool:
        """True if an interceptor follows batches."""
        return any(self.sees(event) for event, _ in BATCH_HOOKS)

    def sees(self, event: type[BatchEvent]) -> bool:
        """Return whether an interceptor wants these events of batches."""
        _, interceptors = self._batch_hooks[event]
        return bool(interceptors)

    @property
    def may_miss_columns(self) -> bool:
        """True if every interceptor that sees records allows `send_columns`, too."""
        return all(getattr(each, "may_miss_columns", False) for each in self._of_records)

    def _call(self, interceptor: ProducerInterceptor, hook: str, *arguments: object) -> None:
        try:
            getattr(interceptor, hook)(*arguments)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as broken:  # also CancelledError: the other interceptors are still called
            self._log.hook_failed(f"{type(interceptor).__name__}.{hook}", broken)

    def on_send(self, record: Record) -> Record:
        for interceptor in self._senders:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, Record):
                    raise TypeError(f"on_send must return a Record, not {type(changed).__name__}")
                record = changed
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as broken:  # also CancelledError: the other interceptors are still called
                self._log.hook_failed(f"{type(interceptor).__name__}.on_send", broken)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        for interceptor in self._acknowledged:
            self._call(interceptor, "on_acknowledgement", metadata, error)

    def skip(self) -> int:
        """Return how many records, from the next one on, need not be shown to any interceptor."""
        sampler = self._sampler
        if sampler is None:
            return 0
        try:
            return max(0, min(int(sampler.skip()), MOST_SKIPPED))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as broken:  # it sees the next record, and is asked again
            self._log.hook_failed(f"{type(sampler).__name__}.skip", broken)
            return 0

    # ------------------------------------------------------------------ where records are
    def forget(self) -> None:
        """Forget the records of an earlier start: those that were lost with their loop, or in a fork, never have an outcome."""
        self._open.clear()

    def accepted(self, record: Record, holder: object, index: int) -> None:
        """Note the position of a record that the pipeline has taken."""
        if self._keeps_positions:
            there = self._open.get(holder)
            if there is None:
                self._open[holder] = {index: record}
            else:
                there[index] = record

    def moved(self, parked: object, holder: object, index: int) -> None:
        """Note the new position of a parked record that a batch has taken."""
        there = self._open.pop(parked, None)
        if there is not None:
            self.accepted(there[0], holder, index)

    def has_seen(self, holder: object) -> bool:
        """Return False if none of the records of this holder was shown to an interceptor."""
        return self._sampler is None or holder in self._open

    def seen(self, holder: object, first: int, last: int) -> Iterable[int]:
        """Return those records from `first` to `last` (exclusive) that were shown to interceptors."""
        if self._sampler is None:
            return range(first, last)
        there = self._open.get(holder, {})
        if last - first <= len(there):  # records of a large batch may be settled one by one
            return [index for index in range(first, last) if index in there]
        return sorted(index for index in there if first <= index < last)

    def settled(
        self,
        holder: object,
        index: int,
        metadata: RecordMetadata | None,
        error: AiokprodError | None,
        attempts: int = 0,
        batch: int = 0,
    ) -> None:
        """Report the outcome of the record at this position."""
        self.on_acknowledgement(metadata, error)
        there = self._open.get(holder)
        if there is None:
            return
        record = there.pop(index, None)
        if not there:
            del self._open[holder]
        if record is not None:
            self._tell_outcome(record, metadata, error, attempts, batch, index)

    def refused(self, record: Record, error: AiokprodError) -> None:
        """Report a record that `send` refused with an error."""
        self.on_acknowledgement(None, error)
        self._tell_outcome(record, None, error, 0, 0, 0)

    def _tell_outcome(
        self,
        record: Record,
        metadata: RecordMetadata | None,
        error: AiokprodError | None,
        attempts: int,
        batch: int,
        index: int,
    ) -> None:
        for listener in self._listeners:
            self._call(listener, "on_outcome", record, metadata, error)
        if self._settlers:
            outcome = RecordOutcome(
                metadata=metadata,
                error=error,
                attempts=attempts,
                batch=batch or None,
                index=index if batch else None,
            )
            for settler in self._settlers:
                self._call(settler, "on_record_settled", record, outcome)

    def started(self, producer: object) -> None:
        """Tell all interceptors that the producer is up."""
        for interceptor in self._all:
            if _overrides(interceptor, "on_start"):
                self._call(interceptor, "on_start", producer)

    @property
    def sees_transactions(self) -> bool:
        """True if an interceptor is told how transactions end."""
        return bool(self._of_transactions)

    def transaction_ended(self, outcome: TransactionOutcome) -> None:
        """Tell the interceptors how a transaction ended. Outside of every state change."""
        for interceptor in self._of_transactions:
            self._call(interceptor, "on_transaction_end", outcome)

    # ------------------------------------------------------------------ batches
    def batch_changed(self, event: BatchEvent) -> None:
        """Tell the interceptors what happened to a batch. Outside of every state change."""
        hook, interceptors = self._batch_hooks[type(event)]
        for interceptor in interceptors:
            self._call(interceptor, hook, event)

    def close(self) -> list[tuple[str, Awaitable[object]]]:
        """Close all interceptors; return what must be awaited, by name."""
        waiting: list[tuple[str, Awaitable[object]]] = []
        for interceptor in self._all:
            name = f"{type(interceptor).__name__}.close"
            try:
                result = interceptor.close()
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as broken:  # also CancelledError: the other interceptors are still called
                self._log.hook_failed(name, broken)
            else:
                if inspect.isawaitable(result):
                    waiting.append((name, result))
        return waiting


def _overrides(interceptor: object, name: str) -> bool:
    # It need not derive from ProducerInterceptor. Looked up in the class: of a mock, an instance has every name.
    holder = interceptor if name in ("on_send", "on_acknowledgement") else type(interceptor)
    own = getattr(holder, name, None)
    return own is not None and getattr(own, "__func__", own) is not getattr(ProducerInterceptor, name)
