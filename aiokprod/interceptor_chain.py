"""`InterceptorChain`: calls the interceptors of one producer in their order. A hook cannot raise into the pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from aiokprod.errors import AiokprodError
from aiokprod.logs import StateLog
from aiokprod.model import Record, TransactionOutcome
from aiokprod.record_metadata import RecordMetadata

if TYPE_CHECKING:  # loaded by programs that have interceptors
    from aiokprod.hooks import BatchEvent, DataLoss, ProducerInterceptor, RecordOutcome, Server

MOST_SKIPPED: Final = 2**31
"""records, or batches, that may pass by an interceptor at once"""
ASKED_AGAIN_S: Final = 1.0
"""after so many seconds an interceptor that wanted nothing (`skip` returned None) sees the next record, or batch"""
BATCH_HOOKS: Final = {
    "BatchSealed": "on_batch_sealed",
    "BatchSent": "on_batch_sent",
    "BatchAnswered": "on_batch_answered",
    "BatchSettled": "on_batch_settled",
}
"""class of an event -> its hook"""


class InterceptorChain:
    """All interceptors in their order. An exception is logged, and the chain continues with the last good record.

    What ends the program (KeyboardInterrupt, SystemExit) is raised, by the hooks of an event once all have been called.

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
        self._batch_hooks: dict[str, tuple[str, list[ProducerInterceptor]]] = {
            event: (hook, [each for each in interceptors if _overrides(each, hook)])
            for event, hook in BATCH_HOOKS.items()
        }
        of_batches = [each for each in interceptors if any(each in some for _, some in self._batch_hooks.values())]
        sole = of_batches[0] if len(of_batches) == 1 else None
        self._batch_sampler = sole if sole is not None and _overrides(sole, "skip_batches") else None
        self._of_transactions = [each for each in interceptors if _overrides(each, "on_transaction_end")]
        self._of_losses = [each for each in interceptors if _overrides(each, "on_data_loss")]
        sole = self._of_records[0] if len(self._of_records) == 1 else None
        self._sampler = sole if sole is not None and _overrides(sole, "skip") else None
        self._keeps_positions = bool(self._listeners or self._settlers) or self._sampler is not None
        self._make_outcome: type[RecordOutcome] | None = None
        if self._settlers:
            from aiokprod.hooks import RecordOutcome

            self._make_outcome = RecordOutcome
        self._open: dict[object, dict[int, Record]] = {}
        self._log = log

    def __bool__(self) -> bool:
        """Return True if an interceptor sees records."""
        return bool(self._of_records)

    @property
    def sees_batches(self) -> bool:
        """True if an interceptor follows batches."""
        return any(interceptors for _, interceptors in self._batch_hooks.values())

    def sees(self, event: type[BatchEvent]) -> bool:
        """Return whether an interceptor wants these events of batches."""
        _, interceptors = self._batch_hooks[event.__name__]
        return bool(interceptors)

    @property
    def may_miss_columns(self) -> bool:
        """True if every interceptor that sees records allows `send_columns`, too."""
        return all(getattr(each, "may_miss_columns", False) for each in self._of_records)

    def _call_each(self, interceptors: Sequence[ProducerInterceptor], hook: str, *arguments: object) -> None:
        ended: BaseException | None = None
        for interceptor in interceptors:
            try:
                getattr(interceptor, hook)(*arguments)
            except (SystemExit, KeyboardInterrupt) as end:  # raised behind the others: the loop may go on
                ended = end
            except BaseException as broken:  # also CancelledError: the other interceptors are still called
                self._log.hook_failed(f"{type(interceptor).__name__}.{hook}", broken)
        if ended is not None:
            try:
                raise ended
            finally:
                del ended  # its traceback has this frame: a reference cycle until the garbage collector runs

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
        if self._acknowledged:
            self._call_each(self._acknowledged, "on_acknowledgement", metadata, error)

    def skip(self) -> int | None:
        """Return how many records, from the next one on, need not be shown to any interceptor; None: all for a while."""
        sampler = self._sampler
        return 0 if sampler is None else self._skipped(sampler, "skip", sampler.skip)

    def skip_batches(self) -> int | None:
        """Return how many batches, from the next one on, need not be told to any interceptor; None: all for a while."""
        sampler = self._batch_sampler
        return 0 if sampler is None else self._skipped(sampler, "skip_batches", sampler.skip_batches)

    def _skipped(self, sampler: ProducerInterceptor, hook: str, skip: Callable[[], int | None]) -> int | None:
        try:
            some = skip()
            return None if some is None else max(0, min(int(some), MOST_SKIPPED))
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as broken:  # it sees the next one, and is asked again
            self._log.hook_failed(f"{type(sampler).__name__}.{hook}", broken)
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
        server: Server | None = None,
    ) -> None:
        """Report the outcome of the record at this position."""
        record: Record | None = None
        there = self._open.get(holder)
        if there is not None:
            record = there.pop(index, None)
            if not there:
                del self._open[holder]
        try:
            self.on_acknowledgement(metadata, error)
        finally:
            if record is not None:
                self._tell_outcome(record, metadata, error, attempts, batch, index, server)

    def refused(self, record: Record, error: AiokprodError) -> None:
        """Report a record that `send` refused with an error."""
        try:
            self.on_acknowledgement(None, error)
        finally:
            self._tell_outcome(record, None, error, 0, 0, 0, None)

    def _tell_outcome(
        self,
        record: Record,
        metadata: RecordMetadata | None,
        error: AiokprodError | None,
        attempts: int,
        batch: int,
        index: int,
        server: Server | None,
    ) -> None:
        try:
            if self._listeners:
                self._call_each(self._listeners, "on_outcome", record, metadata, error)
        finally:
            if self._make_outcome is not None:
                outcome = self._make_outcome(
                    metadata=metadata,
                    error=error,
                    attempts=attempts,
                    batch=batch or None,
                    index=index if batch else None,
                    server=server if attempts else None,  # others of its batch may have been written
                )
                self._call_each(self._settlers, "on_record_settled", record, outcome)

    def started(self, producer: object) -> None:
        """Tell all interceptors that the producer is up."""
        self._call_each([each for each in self._all if _overrides(each, "on_start")], "on_start", producer)

    @property
    def sees_transactions(self) -> bool:
        """True if an interceptor is told how transactions end."""
        return bool(self._of_transactions)

    def transaction_ended(self, outcome: TransactionOutcome) -> None:
        """Tell the interceptors how a transaction ended. Outside of every state change."""
        self._call_each(self._of_transactions, "on_transaction_end", outcome)

    def data_lost(self, loss: DataLoss) -> None:
        """Tell the interceptors of records that the cluster has lost. Outside of every state change."""
        self._call_each(self._of_losses, "on_data_loss", loss)

    # ------------------------------------------------------------------ batches
    def batch_changed(self, event: BatchEvent) -> None:
        """Tell the interceptors what happened to a batch. Outside of every state change."""
        hook, interceptors = self._batch_hooks[type(event).__name__]
        self._call_each(interceptors, hook, event)


def raise_soon(ended: BaseException) -> None:
    """Raise what a hook has ended the program with out of the running loop, on its next turn, and not out of our own work."""
    loop = asyncio._get_running_loop()
    if loop is None:
        raise ended
    loop.call_soon(_raise, ended)


def _raise(ended: BaseException) -> None:
    raise ended


def _overrides(interceptor: object, name: str) -> bool:
    from aiokprod.hooks import ProducerInterceptor

    # It need not derive from ProducerInterceptor. Looked up in the class: of a mock, an instance has every name.
    holder = interceptor if name in ("on_send", "on_acknowledgement") else type(interceptor)
    own = getattr(holder, name, None)
    return own is not None and getattr(own, "__func__", own) is not getattr(ProducerInterceptor, name)
