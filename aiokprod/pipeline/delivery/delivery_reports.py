"""`DeliveryReports`: tells the application about records that have their outcome. One per pipeline.

Three things want to know an outcome besides the Delivery: the interceptors, the report of `close()`, and, for a failure that
no task and no callback waits for or asks for in time (`unasked_failures`), `on_delivery_error` and the log. None of them is
called inside a state change: the first is called on the next turn of the loop, the last as an effect (`effects`) or later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from aiokprod.errors import AiokprodError, ProducerFencedError, TransactionAbortedError
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.model import CloseReport, Persistence, Record, TransactionOutcome
from aiokprod.pipeline.delivery.delivery import RecordHolder
from aiokprod.pipeline.delivery.unasked import Unasked
from aiokprod.pipeline.delivery.unasked_failures import UnaskedFailures
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors
from aiokprod.pipeline.effects import Effects


class DeliveryReports:
    """The reports of outcomes to interceptors, to `close()` and to `on_delivery_error`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        effects: Effects,
        interceptors: InterceptorChain,
        unhandled: UnhandledErrors,
    ) -> None:
        self.on_failure: Callable[[AiokprodError], None] | None = None  # of a transaction: told of each failure at once
        self.is_ending = False  # set by the pipeline when it closes or has failed: failures are counted from then on
        self.transaction: TransactionOutcome | None = None  # how the one ended that was open when the producer closed
        self._loop = loop
        self._effects = effects
        self._interceptors = interceptors
        self._has_interceptors = bool(interceptors)
        self._unhandled = unhandled
        self._unasked = UnaskedFailures(loop, unhandled)
        self._untold = 0  # calls of `_tell_interceptors` that are due: they need not come in the order of `settled`
        self._ends: list[TransactionOutcome] = []  # of transactions, to be told behind these
        self._undelivered: dict[tuple[str, int | None, Persistence], int] = {}

    def settled(self, holder: RecordHolder, first: int, last: int) -> None:
        """Tell the interceptors, on the next turn of the loop, that records `first` to `last` (exclusive) are settled."""
        if self._has_interceptors and self._interceptors.has_seen(holder) and holder.has_shown_records():
            self._loop.call_soon(self._tell_interceptors, holder, first, last)
            self._untold += 1  # behind the call: the end of a transaction waits until it is 0 again

    def _tell_interceptors(self, holder: RecordHolder, first: int, last: int) -> None:
        self._tell_of_each(holder, iter(self._interceptors.seen(holder, first, last)))

    def _tell_of_each(self, holder: RecordHolder, indices: Iterator[int]) -> None:
        interceptors, batch, server = self._interceptors, holder.batch_number(), holder.written_to()
        try:
            for index in indices:
                metadata, error = holder.metadata(index), holder.error(index)
                interceptors.settled(holder, index, metadata, error, holder.attempts(index), batch, server)
        except BaseException:
            # KeyboardInterrupt, SystemExit. The loop may go on, as a notebook's does: the others are told on the next turn.
            self._loop.call_soon(self._tell_of_each, holder, indices)
            raise
        self._untold -= 1
        if not self._untold and self._ends:
            self._tell_ends()

    def transaction_ended(self, outcome: TransactionOutcome) -> None:
        """Tell the interceptors how a transaction ended, on a later turn of the loop, behind the outcomes of its records."""
        if self._interceptors.sees_transactions:
            self._ends.append(outcome)
            if not self._untold:
                self._loop.call_soon(self._tell_ends)

    def _tell_ends(self) -> None:
        ends, self._ends = self._ends, []
        try:
            while ends:
                self._interceptors.transaction_ended(ends.pop(0))
        finally:
            if ends:  # behind a KeyboardInterrupt, as above
                self._loop.call_soon(self._tell_ends)
                self._ends[:0] = ends

    def failed(
        self,
        error: AiokprodError,
        indices: Sequence[int],
        kept: Iterable[Record] | None = None,
        errors: Iterator[AiokprodError] | None = None,
        size_bytes: int = 0,
        *,
        can_be_asked: bool = True,
    ) -> Unasked | None:
        """Report records that failed and that no task and no callback waits for, unless their Deliveries are asked in time.

        Args:
            error: why they failed.
            indices: of the records in their holder, ascending.
            kept: the records, one for each, where the user wants them (`keep_failed_records`) and they are at hand.
            errors: the error of each, where they are not all like `error`.
            size_bytes: of `kept`.
            can_be_asked: False: no code has their Deliveries.

        Returns:
            For the holder, which notes there what is asked for; None: they are not reported one by one.
        """
        if isinstance(error, TransactionAbortedError | ProducerFencedError):
            return None  # the end of the transaction tells it, once for all its records
        if not can_be_asked:
            self.lost(error, len(indices), kept, errors)
            return None
        unasked = Unasked(error, indices, kept, errors, size_bytes, self._unasked.tally)
        self._effects.later(partial(self._unasked.keep, unasked))
        return unasked

    def lost(
        self,
        error: AiokprodError,
        count: int,
        kept: Iterable[Record] | None = None,
        errors: Iterator[AiokprodError] | None = None,
    ) -> None:
        """Report records without a Delivery that failed, and whose call has ended, after the state change under way.

        Args:
            error: why they failed.
            count: how many they are.
            kept: the records, as in `failed`.
            errors: the error of each, as in `failed`.
        """
        if not isinstance(error, TransactionAbortedError | ProducerFencedError):
            self._effects.later(partial(self._unhandled.report, error, count, kept, errors))

    def failed_outside(self, error: AiokprodError, count: int, errors: Iterator[AiokprodError] | None = None) -> None:
        """Report failures as `lost` does, from outside of every state change."""
        self._effects.begin()
        self.lost(error, count, None, errors)
        self._effects.end()

    def end_grace(self, *, at_once: bool = False) -> None:
        """Report all failures that are kept for callers, and keep no later ones.

        Args:
            at_once: without another turn of the loop: it has ended, or what `on_delivery_error` sends then would be refused.
        """
        self._unasked.end(at_once=at_once)

    def undelivered(self, topic: str, partition: int | None, error: AiokprodError, count: int) -> None:
        """Tell the transaction of failed records, and count them for the report of `close()`, if the pipeline is ending."""
        if self.on_failure is not None:
            self.on_failure(error)
        self.left(topic, partition, error.persistence, count)

    def left(self, topic: str, partition: int | None, persistence: Persistence | None, count: int) -> None:
        """Count records without delivery for the report of `close()`, if the pipeline is ending."""
        if self.is_ending and persistence is not None:
            key = (topic, partition, persistence)
            self._undelivered[key] = self._undelivered.get(key, 0) + count

    def close_report(self, duration_s: float) -> CloseReport:
        """Return what failed because of a close or a crash."""
        return CloseReport(undelivered=dict(self._undelivered), duration_s=duration_s, transaction=self.transaction)
