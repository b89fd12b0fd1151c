"""`ExplainedQueue`: where the records of a partition are, what they wait for, and what happened to them, in words.

The part of a `PartitionQueue` that only looks: it is asked by `explain`, and tells failures their story. It writes nothing but
timelines, which exist where something went wrong.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from aiokprod.errors import AiokprodError
from aiokprod.pipeline.partition.batch import ProducerBatch, Range
from aiokprod.pipeline.partition.defects import Defects
from aiokprod.pipeline.partition.ledger import Entry, Ledger
from aiokprod.pipeline.partition.partition_errors import PartitionErrors
from aiokprod.pipeline.partition.ports import RecordQueue
from aiokprod.pipeline.partition.settings import PipelineSettings
from aiokprod.pipeline.partition.timeline import SHORTEST_TOLD_S, Happening, Timeline, merged, note, time_of
from aiokprod.pipeline.partition.waits import Wait, batches_ahead, ledger_wait
from aiokprod.pipeline.wall_clock import wall_ms
from aiokprod.waiting import EventKind, WaitsFor

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod.explanation import Explanation

TRIES: Final = 5
"""Looks at entries that the loop changes at the same time."""
OF_PARTITIONS: Final = frozenset(
    {
        WaitsFor.TRANSACTION,
        WaitsFor.CHASER,
        WaitsFor.LEADER,
        WaitsFor.BACKOFF,
        WaitsFor.OUTCOMES,
        WaitsFor.PRODUCER_ID,
    }
)
"""What holds up every record of a partition that is not in flight, whatever its broker does."""


class ExplainedQueue(RecordQueue):
    """The answers of a partition about itself. The state is that of `PartitionQueue`, which derives from this class.

    `explain`, `explain_oldest` and `oldest_sent_at` may be called from any thread.
    """

    ledger: Ledger
    node: int
    open_batch: ProducerBatch | None
    compressing: Entry | None
    texts: PartitionErrors
    timeline: Timeline | None
    """what happened to the partition; None: nothing yet"""
    _settings: PipelineSettings
    _defects: Defects
    _led_since: float
    """when it last got or lost its leader; this and the next two are loop times, written only when something goes wrong"""
    _chased_at: float
    """when a chaser left"""
    _asked_at: float
    """when it asked for a producer id"""

    def next(self, now: float, now_ms: int, urgent: bool) -> Entry | WaitsFor | None:
        """Return the batch that may go now, or what the partition waits for; None: no batch is left to send."""
        raise AssertionError("abstract")

    def _lingers(self, batch: ProducerBatch, now: float, urgent: bool) -> bool:
        """Return whether the open batch waits for more records."""
        raise AssertionError("abstract")

    def _transaction_state(self) -> str:
        """Return the state of the transactional id, in words; empty without one."""
        raise AssertionError("abstract")

    def _broker_wait(self, node: int, now: float) -> Wait | None:
        """Return why this broker takes no request at the moment; None: it takes one."""
        raise AssertionError("abstract")

    def happened(self, happening: Happening) -> None:
        """Note something for explanations. Only where something goes wrong: never per record, nor per batch that is fine."""
        if self.timeline is None:
            self.timeline = Timeline()
        self.timeline.add(happening)

    def tell_story(self, batch: ProducerBatch, ranges: list[Range], error: AiokprodError, now: float) -> None:
        # Told of records that go on: the batch keeps nothing of it, as the end of a record has its story, and what is in
        # flight now has an answer by then.
        try:
            self._tell_of_timeout(batch, ranges, error, now)
        except Exception as bug:
            self._defects.caught("the story of a record", bug)

    def _tell_of_timeout(self, batch: ProducerBatch, ranges: list[Range], error: AiokprodError, now: float) -> None:
        if not self._is_shared(batch, error, now):
            entry = self._entry_of(batch, ranges[0][0])
            flying = entry if entry is not None and entry.is_flying else None
            first, last = ranges[0][0], ranges[-1][1]
            self._add_note(batch, first, self._story(batch, first, last, now, flying), error, now)
            self._share(batch, error.__notes__[-1], now)

    def tell_withdrawn(self, batch: ProducerBatch, index: int, error: AiokprodError, now: float) -> None:
        """Add to the error what happened to a record that has just left its entry: no attempt of it is under way."""
        try:
            if not self._is_shared(batch, error, now):
                self._add_story(batch, [(index, index + 1)], error, now, None)
                self._share(batch, error.__notes__[-1], now)
        except Exception as bug:
            self._defects.caught("the story of a record", bug)

    def _is_shared(self, batch: ProducerBatch, error: AiokprodError, now: float) -> bool:
        """Add the text of a record before, if that is the same; False: there is none.

        Of per-send timeouts: thousands of one batch may be over in one turn.
        """
        timeline = batch.timeline
        if timeline is None or now - timeline.told_at >= SHORTEST_TOLD_S:
            return False
        if not timeline.told.endswith(type(error).__name__):
            return False
        error.add_note(timeline.told)
        return True

    def _share(self, batch: ProducerBatch, told: str, now: float) -> None:
        if batch.timeline is None:
            batch.timeline = Timeline()
        batch.timeline.told_at, batch.timeline.told = now, told

    def _tell(
        self, batch: ProducerBatch, ranges: list[Range], error: AiokprodError, now: float, flying: Entry | None
    ) -> None:
        """Add to the error what happened to these records, as a note: one text for all of them, however many there are."""
        try:
            self._add_story(batch, ranges, error, now, flying)
        except Exception as bug:
            self._defects.caught("the story of a record", bug)

    def _add_story(
        self, batch: ProducerBatch, ranges: list[Range], error: AiokprodError, now: float, flying: Entry | None
    ) -> None:
        if not ranges:
            return
        first, last = ranges[0][0], ranges[-1][1]
        story = self._story(batch, first, last, now, flying)
        self._add_note(batch, first, story, error, now)
        keep(batch, first, last, story)

    def _keep_story(self, batch: ProducerBatch, first: int, last: int, now: float) -> None:
        """Keep what happened to records that were delivered, for later explanations."""
        try:
            keep(batch, first, last, self._story(batch, first, last, now))
        except Exception as bug:
            self._defects.caught("the story of a record", bug)

    def _add_note(
        self, batch: ProducerBatch, first: int, story: list[Happening], error: AiokprodError, now: float
    ) -> None:
        sent_at = batch.sent_at(first)
        error.add_note(note(f"{self.topic}-{self.partition}", sent_at, story, now, type(error).__name__))

    def _story(
        self, batch: ProducerBatch, first: int, last: int, now: float, sent: Entry | None = None
    ) -> list[Happening]:
        """Return what happened to these records of a batch until now; `sent`: what is in flight of them."""
        sent_at = batch.sent_at(first)
        story = merged(batch.timeline, self.timeline, first, last, sent_at, batch.opened_at, batch.waited)
        if sent is not None:
            text = f"attempt {sent.attempt} was sent to broker {sent.sent_to}, which has not answered"
            story.append(Happening(sent.sent_at, EventKind.SENT, text, sent.sent_to, first, last))
        linger_s = self._settings.linger_s
        if linger_s <= 0 or batch is self.open_batch:
            return story
        # Until it was full, or its linger was over, or until it was sent: which of them came first is not kept.
        until, began = min(batch.opened_at + linger_s, now), sent_at
        for each in story:
            if each.kind is EventKind.WAITED:
                began = each.at  # until then it was in no batch
            if each.kind is EventKind.ATTEMPT_FAILED or each.kind is EventKind.SENT:
                until = min(until, each.began or each.at)
                break
        if until - began >= SHORTEST_TOLD_S and not _has_lingered(story):
            text = f"has lingered up to {until - began:.3f} s in an open batch"
            at = bisect_left(story, until, key=time_of)  # before what was sent then
            story.insert(at, Happening(until, EventKind.LINGERED, text, first=first, last=last))
        return story

    def explain(self, batch: ProducerBatch, index: int) -> Explanation:
        from aiokprod.explanation import Event, Explanation, Place

        now = self.loop.time()
        entry = self._entry_of(batch, index)
        attempts = 0 if entry is None else entry.attempt
        sent_at = batch.sent_at(index)
        wait = self._wait_of(batch, entry, sent_at, now)
        if entry is not None and entry.is_flying:
            place = Place.IN_FLIGHT
        elif attempts:
            place = Place.RETRYING
        else:
            place = Place.OPEN_BATCH if batch is self.open_batch else Place.QUEUED
        events = [Event(at_s=0.0, kind=EventKind.ACCEPTED, text="accepted")]
        story = self._story(batch, index, index + 1, now, entry if place is Place.IN_FLIGHT else None)
        events += [each.event(sent_at) for each in story]
        return Explanation(
            topic=self.topic,
            partition=self.partition,
            place=place,
            waits_for=wait.waits_for,
            why=wait.why,
            age_s=max(0.0, now - sent_at),
            since_s=max(0.0, now - max(wait.since, sent_at)),
            left_s=wait.left_s(now),
            deadline_s=max(0.0, batch.deadline_of(index) - now),
            broker=None if wait.broker < 0 else wait.broker,
            attempts=attempts,
            events=tuple(events),
        )

    def explain_oldest(self) -> Explanation | None:
        oldest = self._oldest()
        return None if oldest is None else self.explain(*oldest)

    def oldest_sent_at(self) -> float | None:
        oldest = self._oldest()
        return None if oldest is None else oldest[0].sent_at(oldest[1])

    def _oldest(self) -> tuple[ProducerBatch, int] | None:
        """Return the batch and the index of the oldest record without an outcome."""
        for _ in range(TRIES):
            try:
                for entry in self.ledger.entries:
                    batch = entry.batch
                    index = batch.first_unsettled()
                    if index < batch.count:  # else they are past their deadline, and the last attempt has no answer yet
                        return batch, index
                return None
            except RuntimeError:  # another thread than that of the loop asks, and the loop has changed them
                continue
        return None

    def _entry_of(self, batch: ProducerBatch, index: int) -> Entry | None:
        """Return the entry that a record is in: the batch, or a part of one that is sent in parts."""
        entry = batch.entry
        if isinstance(entry, Entry) and (not entry.is_sealed or entry.has(index)):
            return entry
        for part in list(self.ledger.entries):
            if part.batch is batch and part.is_sealed and part.has(index):
                return part
        return None

    def held_by(self, now: float) -> WaitsFor | None:
        """Return what the partition as a whole waits for, before its broker is asked; None: nothing. From any thread."""
        found = self._next(now)
        if found is WaitsFor.PRODUCER_ID and self._transaction_state():
            return WaitsFor.TRANSACTION  # which brings the producer id
        return found if isinstance(found, WaitsFor) and found in OF_PARTITIONS else None

    def _next(self, now: float) -> Entry | WaitsFor | None:
        for _ in range(TRIES):
            try:
                return self.next(now, wall_ms(), True)
            except RuntimeError:  # another thread than that of the loop asks, and the loop has changed the entries
                continue
        return None

    def _wait_of(self, batch: ProducerBatch, entry: Entry | None, sent_at: float, now: float) -> Wait:
        """Return the words for what a record of this batch waits for. `next` and the flusher have decided it."""
        ledger, node = self.ledger, self.node
        if entry is not None and entry.is_flying:
            return self._wait_for_answer(entry, now)
        held = self.held_by(now)
        if held is WaitsFor.TRANSACTION:
            return Wait(held, f"the transactional id is {self._transaction_state()}", sent_at)
        if held is not None:
            last = self.texts.last_failure()
            return ledger_wait(held, ledger, self._chased_at, self._led_since, self._asked_at, last)
        at_broker = self._broker_wait(node, now)
        if at_broker is not None and at_broker.waits_for is not WaitsFor.WINDOW:
            return at_broker
        if entry is not None and entry is self.compressing:
            return Wait(WaitsFor.COMPRESSION, "a thread compresses the batch", sent_at, broker=node)
        if batch is self.open_batch and self._lingers(batch, now, True):
            lingers_until = batch.opened_at + self._settings.linger_s
            return Wait(WaitsFor.LINGER, f"{batch.size_bytes} bytes are in the batch", sent_at, lingers_until, node)
        if at_broker is not None:
            return at_broker
        ahead = 0 if entry is None else batches_ahead(list(ledger.entries), entry)
        if ahead:
            return Wait(WaitsFor.EARLIER_BATCHES, f"{ahead} go before it", sent_at, broker=node)
        return Wait(WaitsFor.TURN, "it goes with the next request", sent_at, broker=node)

    def _wait_for_answer(self, entry: Entry, now: float) -> Wait:
        timeout_s, broker = self._settings.request_timeout_s, entry.sent_to
        at_broker = self._broker_wait(broker, now)
        if at_broker is not None and at_broker.waits_for is WaitsFor.THROTTLE:
            why = at_broker.why
        else:
            why = f"attempt {entry.attempt} is with broker {broker}, which has {timeout_s:g} s for a request"
        if not self.ledger.flowing:
            why += "; an attempt before it has failed, so what follows is sent again in order"
        return Wait(WaitsFor.ANSWER, why, entry.sent_at, broker=broker)


def _has_lingered(story: list[Happening]) -> bool:
    return any(each.kind is EventKind.LINGERED for each in story)


def keep(batch: ProducerBatch, first: int, last: int, story: list[Happening]) -> None:
    """Let the batch keep the story of these records: its queue is out of reach of a Delivery once the batch is finished."""
    told = [] if batch.timeline is None else batch.timeline.about(first, last, batch.opened_at)
    for each in story:
        if each.kind is not EventKind.WAITED and each not in told:  # the batch has its waits
            batch.happened(each)
