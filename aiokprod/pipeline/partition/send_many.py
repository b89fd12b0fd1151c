"""`SendMany`: the bookkeeping of one `send_many` call, without an object for each record.

Records that went into the same batch one after the other are one `Span`. At the end the spans are walked: the batch knows
the outcome of each of its segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aiokprod.errors import AiokprodError, RecordRecalledError, SendReport, SendTimeoutError
from aiokprod.model import Persistence
from aiokprod.pipeline.delivery.delivery import Delivery, disown, is_watched, position_of
from aiokprod.pipeline.partition.batch import Claim, ProducerBatch


class Span:
    """Records `first` to `last` (exclusive) of a batch are records number `number`, `number + 1`, ... of the call."""

    __slots__ = ("batch", "claim", "number")

    def __init__(self, batch: ProducerBatch, claim: Claim, number: int) -> None:
        self.batch = batch
        self.claim = claim
        self.number = number


class SendMany:
    """The outcome of each record of one `send_many`."""

    def __init__(
        self, report: Callable[[AiokprodError, int, Iterator[AiokprodError] | None], None], opening: int = 0
    ) -> None:
        """Make an empty report.

        Args:
            report: takes failures that nothing waits for any more.
            opening: number of the transaction in which the call began.
        """
        self._report = report
        self.spans: list[Span] = []
        self._span: Span | None = None  # the last of them
        self.parked: list[tuple[int, Delivery]] = []
        self.timed: list[
            tuple[int, Delivery]
        ] = []  # with a timeout of their own: a Delivery may fail before its record
        self.failures: list[tuple[int, AiokprodError]] = []
        self.count = 0
        self._limited: Delivery | None = None  # the last record that was accepted with a timeout of its own
        self._limited_number = -1
        self._ended_by: AiokprodError | None = None
        self.opening = opening

    def add(self, delivery: Delivery, *, has_timeout: bool) -> None:
        """Note that the next record was accepted."""
        if has_timeout:
            self._limited, self._limited_number = delivery, self.count
        holder, index = position_of(delivery)
        if isinstance(holder, ProducerBatch):
            if is_watched(delivery):  # it was parked for a moment; from now on the span says that it is waited for
                delivery.remove_done_callback(heard)
            if has_timeout:
                self.timed.append((self.count, delivery))
            self.add_cell(holder, index)
            return
        self.parked.append((self.count, delivery))
        self.count += 1
        if not is_watched(delivery):
            delivery.add_done_callback(heard)

    def add_cell(self, batch: ProducerBatch, index: int) -> None:
        """Note that the next record was accepted, and is in a batch."""
        number = self.count
        self.count = number + 1
        span = self._span
        if span is not None and span.batch is batch:
            claim = span.claim
            if claim.last == index and span.number + index - claim.first == number:  # no record between was refused
                claim.last = index + 1
                return
        # `release` finds a claim by its span, so that comes first.
        claim = Claim(index, index + 1)
        span = self._span = Span(batch, claim, number)
        self.spans.append(span)
        batch.claims.append(claim)

    def add_cells(self, batch: ProducerBatch, index: int, count: int) -> None:
        """Note that the next records were accepted, and are in a batch from this index on."""
        self.add_cell(batch, index)
        span = self._span
        assert span is not None
        span.claim.last = index + count
        self.count += count - 1

    def refuse(self, error: AiokprodError) -> None:
        """Note that the next record was not accepted."""
        if self._limited_number == self.count - 1:
            self._limited_number = self.count  # nothing after it has to be waited for
        self.failures.append((self.count, error))
        self.count += 1

    def limited(self) -> Delivery | None:
        """Return the last record, if it has a timeout: with its outcome the source may be asked for one more without room.

        Without that a call whose records have all timed out would wait for room before it sees that its source has ended.
        """
        return self._limited if self._limited_number == self.count - 1 else None

    @property
    def is_last_refused(self) -> bool:
        """Return whether the last record was not accepted.

        Then the source is asked for the next one, room or not: it may have ended.
        """
        return bool(self.failures) and self.failures[-1][0] == self.count - 1

    def urge(self) -> None:
        """Hasten all batches: the source has ended, and the call waits now."""
        for span in self.spans:
            span.batch.urge()

    async def settled(self) -> SendReport:
        """Wait for every outcome, of a record with a timeout of its own until that is over.

        Cancellation: stops waiting; the records go on. `release` is to be called.
        """
        late: dict[int, AiokprodError] = {}
        for number, delivery in self.timed:
            error = await _outcome(delivery)
            if isinstance(error, SendTimeoutError):
                late[number] = error
        offsets: dict[tuple[str, int], tuple[int, int]] = {}
        delivered = 0
        for span in self.spans:
            batch, claim = span.batch, span.claim
            index = claim.first
            while index < claim.last:
                overdue = late.pop(span.number + index - claim.first, None) if late else None
                if overdue is not None:
                    self.failures.append((span.number + index - claim.first, overdue))
                    index += 1
                    continue
                segment = batch.segment_of(index)
                if segment is None:
                    await _outcome(Delivery(batch, index))
                    continue
                last = min(segment.last, claim.last) if not late else index + 1
                if segment.error is not None:
                    shift = span.number - claim.first
                    for failed in range(index, last):
                        error = segment.error_of(failed)
                        assert error is not None
                        self.failures.append((failed + shift, error))
                else:
                    delivered += last - index
                    if segment.base_offset >= 0:
                        key = (batch.owner.topic, batch.owner.partition)
                        base = segment.base_offset - segment.first
                        first, end = offsets.get(key, (base + index, base + last - 1))
                        offsets[key] = (min(first, base + index), max(end, base + last - 1))
                index = last
        for number, delivery in self.parked:
            error = await _outcome(delivery)
            if error is not None:
                self.failures.append((number, error))
                continue
            delivered += 1
            done = delivery.result()
            if done.offset is not None:
                key = (done.topic, done.partition)
                first, end = offsets.get(key, (done.offset, done.offset))
                offsets[key] = (min(first, done.offset), max(end, done.offset))
        self.failures.sort(key=lambda failure: failure[0])
        return SendReport(delivered=delivered, failures=self.failures, offsets=offsets)

    def release(self) -> None:
        """Release all claims: the call ends early (cancelled, or its iterable raised), and its caller gets no report.

        What has failed is reported as a failure that nothing waits for, and so is what fails later: at once, as no code has
        a Delivery to ask.
        """
        for span in self.spans:
            batch, claim = span.batch, span.claim
            batch.disclaim(claim)
            index = claim.first
            while index < claim.last:
                segment = batch.segment_of(index)
                if segment is None:
                    index += 1
                    continue
                last = min(segment.last, claim.last)
                if segment.error is not None and not isinstance(segment.error, RecordRecalledError):
                    self._report(segment.error, last - index, segment.errors_of(range(index, last)))
                index = last
        for _, delivery in self.timed:
            holder, index = position_of(delivery)
            if isinstance(holder, ProducerBatch) and holder.segment_of(index) is None and delivery.done():
                error = delivery.exception()  # its timeout: the record goes on, and nothing more is told of it
                if error is not None:
                    self._report(error, 1, None)
            disown(delivery)
        for _, delivery in self.parked:
            delivery.remove_done_callback(heard)
            disown(delivery)
            if delivery.done():
                error = delivery.exception()
                if error is not None:
                    self._report(error, 1, None)

    def end_by(self, error: AiokprodError) -> AiokprodError:
        """Note and return the error of the producer that ends the call, to be raised: nothing more is taken."""
        self._ended_by = error
        return error

    def tell_taken(self, ended: BaseException) -> None:
        """Note on the error that ends the call that some of its records were taken, and may be in the log.

        An error that the source raised keeps its persistence: it may be the outcome of another record, told to others too.
        """
        taken = self.count - len(self.failures)
        if taken and isinstance(ended, Exception):
            ended.add_note(f"{taken} records of this send_many were taken before, and go on")
            ours = self._ended_by
            if ours is not None and ended is ours:
                ours.persistence = Persistence.POSSIBLY_PERSISTED


async def _outcome(delivery: Delivery) -> AiokprodError | None:
    try:
        await delivery
    except AiokprodError as error:
        return error
    return None


def heard(delivery: Delivery) -> None:
    """Mark a Delivery as watched, by being its callback: `send_many` alone reports its failure."""
