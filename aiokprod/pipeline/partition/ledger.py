"""`Ledger`: order, numbers and verdicts of one partition. Pure: events in, actions out; time is an argument.

One per PartitionQueue. It owns the ordered list of batches; nothing else decides what is sent, sent again, or given up.
The rules R1 to R10 and why they hold: docs/ledger.md. In short:

- An OK makes its batch ACKED whenever it comes; errors act in one place, the *rewind*, with nothing in flight, and there
  only the head's. The first error of a round sends a chaser; when it is back, the ledger rewinds to its first unsettled
  batch and sends again in order.
- No batch that may be in the log is ever sent under another identity or other numbers.
- One batch in flight until the first acknowledgement of a round; then up to the window.

Cost: `take` and `answer` look at the batches that were sent and not yet settled, never at those that wait behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from aiokprod.pipeline.partition.batch import ProducerBatch, Range
from aiokprod.pipeline.partition.first_ack_guard import FirstAckGuard
from aiokprod.pipeline.partition.leadership import Leadership
from aiokprod.pipeline.partition.ledger_actions import (
    Abort,
    Action,
    Chase,
    NeedIdentity,
    Outcome,
    Reason,
    Settle,
    WantMetadata,
)
from aiokprod.pipeline.partition.ledger_entry import ACKED, ASKED, DEAD, WAITING, Entries, Entry, State
from aiokprod.pipeline.partition.size_limit import SizeLimit
from aiokprod.pipeline.partition.verdicts import Kind, is_ambiguous, judge
from aiokprod.waiting import WaitsFor

SEQUENCES = 2**31  # a sequence number is followed by 0 after the last (broker: 1.1)
LAST_EPOCH = 32767
IDLE_S = 1.0  # R5.2: so long without an acknowledgement, and the guard is up again
NO_LIMIT = 2**31
AGE_MS = 12 * 3600 * 1000  # R5.3: half of the time after which a broker forgets a producer (broker: 1.12)

# As names of this module: an enum's member costs a look-up in its class each time.
CHASER: Final = WaitsFor.CHASER
LEADER: Final = WaitsFor.LEADER
BACKOFF: Final = WaitsFor.BACKOFF
OUTCOMES: Final = WaitsFor.OUTCOMES
PRODUCER_ID: Final = WaitsFor.PRODUCER_ID
EARLIER_BATCHES: Final = WaitsFor.EARLIER_BATCHES

__all__ = [
    "Abort",
    "Action",
    "Chase",
    "Entry",
    "Ledger",
    "NeedIdentity",
    "Outcome",
    "Reason",
    "Settle",
    "State",
    "WantMetadata",
]


class Ledger:
    """The state machine of one partition."""

    def __init__(
        self,
        *,
        node: int,
        leader_epoch: int,
        topic_id: bytes,
        identity: tuple[int, int] | None,
        idempotent: bool,
        transactional: bool,
        window: int,
        retry_delay: Callable[[int], float],
        retries: int = 2**31 - 1,
        next_sequence: int = 0,
        idle_s: float = IDLE_S,
        age_ms: int = AGE_MS,
    ) -> None:
        # In the order of sending. Batches that were ever sent stand in front of those that never were: `take` goes from the
        # front and skips nothing that it may not send. A deque until an entry leaves from the middle.
        self.entries: deque[Entry] | Entries = deque()
        self.leadership = Leadership(node, leader_epoch, topic_id)
        self.guard = FirstAckGuard(idle_s, age_ms)
        self.size_limit = SizeLimit()
        # Producer id and epoch of this partition. Erased by a bump; written from `_offered` once nothing stamped is held.
        # None: nothing idempotent is sent.
        self.identity = identity
        self.idempotent = idempotent
        self.transactional = transactional
        self.window = window
        # The first sequence of the next batch that is stamped. Written by `take`, set back by a closed gap, 0 with a new
        # identity (broker: 1.3). It outlives the topic's metadata: the broker's state does so too (R2.5, faults: I21).
        self.next_sequence = next_sequence
        # Backoff is data: no timer holds it. Written by a lost connection and by the rewind; a new leader resets it.
        self.not_before = 0.0
        # False from the first bounce of a round to its rewind: a chaser is out, and nothing is sent (R6).
        self.flowing = True
        # Written by `granted`, taken by `_trim`. In between stamped batches hold numbers of the former identity.
        self._offered: tuple[int, int] | None = None
        # This round saw a certain error other than 45, so an OK that comes later in the round proves nothing (R3.1).
        # Written by `answer`, erased by the rewind.
        self._refused = False
        self._ordinal = 0
        self._newest_at = 0.0  # when the last batch was opened
        self._falls_due_in_order = (
            True  # no batch is due before one in front of it: deadlines are looked up at the head
        )
        # Batches are due that the last `tick` has left for the next one. They are not sent meanwhile, nor is what is behind.
        self._is_overdue = False
        # The last batch (its ordinal) that a purge ends which goes on in the next turn of the loop; 0: there is none.
        self._purges_to = 0
        # Rounds that failed one after the other; backoff grows with it. Erased by an OK only: hops between brokers that
        # refuse all the same must not look like success (faults: P7).
        self._failures = 0
        self._retry_delay = retry_delay
        self._retries = retries
        # Actions of the event at hand. They are given out at its end: a caller that settles a batch in the middle of an
        # event could send a record into a ledger whose rewind has not finished.
        self._out: list[Action] = []

    @property
    def node(self) -> int:
        """The leader that batches go to; -1: none is known."""
        return self.leadership.node

    @property
    def leader_epoch(self) -> int:
        return self.leadership.epoch

    @property
    def topic_id(self) -> bytes:
        return self.leadership.topic_id

    # ------------------------------------------------------------------ the caller's side
    def open(self, batch: ProducerBatch) -> Entry:
        """Seal the last batch, and add a new open one."""
        self.seal()
        self._ordinal += 1
        entry = Entry(self._ordinal, batch)
        if not self.entries:
            self._falls_due_in_order = True
        elif batch.opened_at < self._newest_at:
            # Records that waited longer than what is before them: for a serializer while columns were taken, or for room
            # behind columns, whose time begins when they have theirs.
            self._falls_due_in_order = False
        self._newest_at = batch.opened_at
        self.entries.append(entry)  # the last step: whatever fails before, there is no entry
        return entry

    def drop(self, batch: ProducerBatch) -> None:
        """Take back the last `open`, if it came to its end: the batch did not get its first record."""
        entries = self.entries
        if entries and entries[-1].batch is batch:
            if isinstance(entries, deque):
                entries.pop()
            else:
                entries.remove(entries[-1])

    def seal(self) -> None:
        """Seal the last batch: it takes no more records."""
        if self.entries:
            self.entries[-1].seal()

    def recall(self, entry: Entry, index: int) -> bool:
        """Take a record out that was never sent; False otherwise. The caller settles it, after this call."""
        if entry.is_sealed and not entry.has(index):
            part = self._unsent_part(entry, index)
            if part is None:
                return False
            entry = part
        # Stamped is as good as sent: the numbers of a batch count its records, and the next batch begins behind them.
        if entry.is_sent or entry.is_stamped or entry.is_dead:
            return False
        if not entry.is_sealed:
            # The batch keeps its own count until it is sealed. An empty open entry would be stamped with no records.
            if entry.batch.unsettled_count == 1:
                self._leave(entry)
            return True
        entry.without((index,))
        if not entry.count:
            self._leave(entry)
        return True

    def recall_all(self) -> tuple[list[tuple[ProducerBatch, list[Range]]], int]:
        """Take out every record that `recall` would; the caller settles them, after this call.

        Returns:
            The batches with the ranges that left them, the oldest first; and how many records are left without an outcome.
            Those were sent, so they have their outcome from the broker: each number that was given out stays where it is.
        """
        taken: list[tuple[ProducerBatch, list[Range]]] = []
        entries = self.entries
        while entries:
            entry = entries[-1]
            if entry.is_sent or entry.is_stamped or entry.is_dead:
                break  # and so were all in front of it
            ranges = entry.ranges if entry.is_sealed else entry.batch.live_ranges()
            self._leave(entry)  # from the end: nothing has to be linked
            taken.append((entry.batch, ranges))
        taken.reverse()
        left = 0
        for entry in entries:
            if entry.is_open_ended:
                left += entry.count
        return taken, left

    def _unsent_part(self, rest: Entry, index: int) -> Entry | None:
        """Return the part with this record that was cut off in front of the rest and never sent; None: there is none."""
        # For a record of a batch that goes in parts: few batches stand before the rest of it.
        for entry in self.entries:
            if entry is rest:
                break
            if entry.batch is rest.batch and not entry.is_sent and not entry.is_dead and entry.has(index):
                return entry
        return None

    def _leave(self, entry: Entry) -> None:
        """Remove a batch without numbers that has no record left. In the middle it leaves a linked line, not a deque."""
        entry.die()
        entries = self.entries
        if isinstance(entries, deque):
            if entries[0] is entry:
                entries.popleft()
                return
            if entries[-1] is entry:
                entries.pop()
                return
            entries = self.entries = Entries(entries)
        entries.remove(entry)

    # ------------------------------------------------------------------ taking (R5)
    def next(self, now: float, now_ms: int) -> Entry | WaitsFor | None:
        """Return the batch that may go now, or what the partition waits for; None: no batch is left to send.

        It changes nothing, and explanations ask it as the sender does: from any thread.
        """
        if not self.entries:
            return None
        if not self.flowing:
            return CHASER
        if self.leadership.node < 0:
            return LEADER
        if now < self.not_before:
            return BACKOFF
        if self.is_cut:
            return OUTCOMES
        if self.idempotent and self.identity is None:
            return PRODUCER_ID
        in_doubt = self._in_doubt()
        # In doubt the broker has just shown its state by a 45, and only batches that it may have already follow (R7).
        places = self.window if in_doubt else self._span(now, now_ms)
        has_limit = self.size_limit.batch_bytes > 0
        for position, entry in enumerate(self.entries):
            if not places:
                return EARLIER_BATCHES
            state = entry.state
            if state is DEAD and not entry.is_ambiguous:
                # Its numbers are free. Sent past it, the next batch would leave a gap, and get 45 (broker: 3.1, faults: I8):
                # wait until nothing is in flight, and close up.
                return EARLIER_BATCHES
            if in_doubt and (state is ASKED or state is ACKED):
                # It was answered, so it takes no place: parts of a split batch may be more than the window, and the last of
                # them has to be asked. Not in front of a batch that may go again: the broker remembers the window only.
                continue
            places -= 1
            if not entry.is_open_ended or entry.is_flying:
                if self._is_old(entry, now_ms):
                    return EARLIER_BATCHES  # the broker may forget this producer right behind this batch (R5.4)
                if has_limit and self._is_trial(entry):
                    return EARLIER_BATCHES  # refused, it would be refused with all that is sent behind it
                continue
            if position and self._is_old(entry, now_ms):
                return EARLIER_BATCHES  # the broker may forget the batches in front while their answers are due (R5.4)
            if in_doubt and not entry.is_stamped:
                # With fresh numbers behind a doubtful head it could be accepted by a broker that lost the head: a gap.
                return EARLIER_BATCHES
            return entry
        return None

    def candidate(self, now: float, now_ms: int) -> Entry | None:
        """Return the batch that `take` would take, not stamped; or a first part of it, cut off now: see `first_part`."""
        found = self.next(now, now_ms)
        return self.first_part(found, now) if isinstance(found, Entry) else None

    def take(self, now: float, now_ms: int) -> Entry | None:
        """Return the next batch to write, stamped; the caller writes it in the same synchronous step."""
        entry = self.candidate(now, now_ms)
        if entry is None:
            return None
        entry.seal()
        if not entry.is_stamped and self.identity is not None:
            entry.producer_id, entry.producer_epoch = self.identity
            # The sequences of a batch are consecutive across the end of the numbers (broker: 2.9, faults: I17).
            entry.first_sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + entry.count) % SEQUENCES
        entry.fly()
        return entry

    def _span(self, now: float, now_ms: int) -> int:
        """Return how many batches from the head may be in flight."""
        if not self.idempotent:
            return 1  # without numbers a resend behind a later batch would be accepted: reordered (R9)
        return self.window if self.guard.is_open(now, now_ms) else 1

    def _is_trial(self, entry: Entry) -> bool:
        """Return whether it is in flight, and larger than any batch that the broker has accepted (R4.5)."""
        return entry.is_flying and entry.count > 1 and entry.size_bytes() > self.size_limit.accepted_bytes

    def _is_old(self, entry: Entry, now_ms: int) -> bool:
        """Return whether its timestamps are so old that the broker may forget the producer (R5.3; not within a transaction)."""
        if not self.idempotent or self.transactional:
            return False
        return self.guard.is_old(entry.newest_ms if entry.is_sealed else entry.batch.max_timestamp_ms, now_ms)

    @property
    def is_failing(self) -> bool:
        """True if the last attempts have failed, and no batch was acknowledged since. From any thread."""
        return self._failures > 0

    # ------------------------------------------------------------------ answers (R1)
    def answer(
        self, entry: Entry, attempt: int, code: int, base_offset: int, named: tuple[int, ...], now: float, now_ms: int
    ) -> list[Action]:
        """Take in the broker's answer to one attempt. `named`: positions of records it refuses (KIP-467)."""
        entry.land(attempt)
        verdict = judge(code)
        # ACKED: a second answer to one request, or an answer behind a proof. Gone: an abort emptied the ledger while it was
        # in flight. Neither may act again (faults: I24).
        if entry.state is ACKED or entry not in self.entries:
            pass
        elif verdict.kind == Kind.DONE:
            # Also while draining and behind the head: ignored there, the batch would be sent again, or be told NOT although
            # it is in the log (faults: I7).
            self._show_state(entry, now)
            self._failures = 0
            if self.size_limit.batch_bytes:
                self.size_limit.accepted(entry.size_bytes(), now)
            # 46 tells no offset, and one below 0 is none (R1.1, faults: H12).
            self._acknowledge(entry, base_offset if code == 0 and base_offset >= 0 else None)
        else:
            ambiguous = is_ambiguous(code, base_offset)
            self._refused |= not ambiguous and verdict.kind != Kind.OUT_OF_ORDER
            entry.is_ambiguous |= ambiguous
            if attempt == entry.attempt:
                entry.code, entry.named = code, named
                if verdict.kind == Kind.RETRY:
                    entry.failures += 1
            if verdict.kind == Kind.OUT_OF_ORDER and not self.transactional:
                # The broker still has state for this producer; without it, it would have accepted any sequence number
                # (broker: 1.1). In a transaction it demands 0 of a producer without state (broker: 1.7).
                self._show_state(entry, now)
            if verdict.wants_metadata:
                self._out.append(WantMetadata(code))
            # A restarted broker remembers one batch of each producer (broker: 2.6), so 45 on an ambiguous batch says no
            # more than that it is not that one: the answers behind it tell (R7). Every other final code goes with it,
            # else a batch that is refused for good behind a doubtful head would start the round again for ever (R7.2).
            in_doubt = self._in_doubt() or (entry.is_ambiguous and verdict.kind == Kind.OUT_OF_ORDER)
            if self.flowing and in_doubt and verdict.kind != Kind.RETRY and self._askable(now_ms):
                if entry.state is WAITING:
                    entry.state = ASKED
            else:
                self._bounce()
        return self._settled(now, now_ms)

    def _acknowledge(self, entry: Entry, base_offset: int | None) -> None:
        self._settle(entry, Outcome.DELIVERED, base_offset, Reason.ANSWER)
        entry.state = ACKED  # a dead one too, silently: it proves what is in front of it all the same
        entry.proves_nothing = self._refused

    def _show_state(self, entry: Entry, now: float) -> None:
        """Tell the guard that the broker has state of this producer, if the answer is to our current identity."""
        if not entry.is_stamped or entry.identity == self.identity:
            self.guard.showed_state(now, entry.newest_ms)

    def lost(self, fates: Iterable[tuple[Entry, int, bool]], now: float) -> list[Action]:
        """Take in that a connection ended without an answer to these; True: bytes were handed to the transport.

        One event for all batches of the connection: between two of them a rewind would see a batch in flight whose
        connection is gone.
        """
        for entry, attempt, written in fates:
            if attempt == entry.attempt:
                entry.failures += 1
            entry.land(attempt)
            entry.is_ambiguous |= (
                written  # after a reset some of them are in the log, and no answer says which (broker: 6.5)
            )
        self._failures += 1
        self.not_before = max(self.not_before, now + self._retry_delay(self._failures))
        self._bounce()
        self._trim()
        return self._take_out()

    def returned(self, now: float, now_ms: int) -> list[Action]:
        """Rewind: the chaser is back, so nothing of this partition is in flight any more."""
        self._rewind(now, now_ms)
        return self._take_out()

    def leader(
        self, node: int, leader_epoch: int, topic_id: bytes, now: float, now_ms: int, *, is_new_topic: bool = False
    ) -> list[Action]:
        """Take in the leader that metadata or a hint named (-1: none). News older than what we know is dropped.

        Args:
            is_new_topic: the topic was deleted and created again, as far as brokers without topic ids can tell; its
                leader epochs begin again.
        """
        if self.leadership.learn(node, leader_epoch, topic_id, is_new_topic=is_new_topic):
            if self.is_flying:
                self._bounce()
            elif self.flowing:
                self._rewind(now, now_ms)
            # Else the chaser is out, and its rewind adopts the leader.
        return self._take_out()

    def is_recreated(self, topic_id: bytes) -> bool:
        """Return whether this is the id of another topic of the same name."""
        return self.leadership.is_recreated(topic_id)

    def granted(self, identity: tuple[int, int], now: float) -> list[Action]:
        """Take in a new identity, which is used once nothing stamped is held."""
        self._offered = identity
        self._trim()
        return self._take_out()

    # ------------------------------------------------------------------ deadlines (R8)
    def next_deadline(self) -> float | None:
        """Return when the first record without an outcome falls due."""
        first: float | None = None
        for entry in self.entries:
            if entry.is_open_ended:
                deadline = entry.deadline()
                if self._falls_due_in_order:
                    return deadline
                if first is None or deadline < first:
                    first = deadline
        return first

    @property
    def is_cut(self) -> bool:
        """True while an expiry or a purge is done in part: nothing is sent until it has come to its end."""
        return self._is_overdue or self._purges_to > 0

    def tick(self, now: float, now_ms: int, most: int = NO_LIMIT) -> list[Action]:
        """Expire what is due; at most so many batches, the oldest ones: `is_cut` says whether some are left."""
        due: list[Entry] = []
        self._is_overdue = False
        for entry in self.entries:
            if entry.is_open_ended:
                if entry.deadline() <= now:
                    if len(due) == most:
                        self._is_overdue = True
                        break
                    due.append(entry)
                elif self._falls_due_in_order:
                    break
        for entry in due:
            if entry.is_sent or entry.is_stamped:
                self._expire(entry, Reason.DEADLINE)  # as one: its numbers cover all its records
            else:
                self._shed(entry, now)
        return self._settled(now, now_ms)

    def _shed(self, entry: Entry, now: float) -> None:
        """Take the records whose own deadline has passed, the oldest ones, out of a batch that was never sent."""
        batch = entry.batch
        if entry.is_sealed:
            first = entry.ranges[0][0]
            gone = entry.without_first(first + batch.due(first, now))
            is_empty = not entry.count
        else:
            first = batch.first_unsettled()
            gone = batch.live_ranges(first + batch.due(first, now))
            is_empty = sum(last - first for first, last in gone) == batch.unsettled_count
        self._out.append(Settle(batch, gone, Outcome.NOT, None, Reason.DEADLINE, None, 0))
        if is_empty:
            self._leave(entry)

    def purge(self, now: float, now_ms: int = 0, most: int = NO_LIMIT) -> list[Action]:
        """Settle everything now; at most so many batches, the oldest ones: `purge_on` settles what `is_cut` says is left."""
        self._purges_to = self._ordinal
        return self.purge_on(now, now_ms, most)

    def purge_on(self, now: float, now_ms: int = 0, most: int = NO_LIMIT) -> list[Action]:
        """Settle the next of what was there at the `purge`."""
        ending: list[Entry] = []
        is_cut = False
        for entry in self.entries:
            if entry.ordinal > self._purges_to:
                break
            if entry.is_open_ended:
                if len(ending) == most:
                    is_cut = True
                    break
                ending.append(entry)
        for entry in ending:
            entry.seal()
            self._expire(entry, Reason.PURGE)
        if not is_cut:
            self._purges_to = 0
        return self._settled(now, now_ms)

    def forget(self) -> None:
        """Hold nothing any more: the producer has failed within an event, and the entries may be wrong."""
        self.entries = deque()
        self._out = []
        self._is_overdue = False
        self._purges_to = 0

    # ------------------------------------------------------------------ rounds (R6)
    def _sent(self) -> list[Entry]:
        """Return the batches that were ever sent, all in front. As a list: this is called too often for a generator."""
        sent: list[Entry] = []
        for entry in self.entries:
            if not entry.is_sent and not entry.is_stamped:
                break
            sent.append(entry)
        return sent

    def _in_doubt(self) -> bool:
        """Return whether an ambiguous batch was answered 45 in this round. (Ambiguous is a lasting state of one batch.)"""
        for entry in self.entries:
            if entry.state is ASKED:
                return True
            if not entry.is_sent and not entry.is_stamped:
                return False
        return False

    @property
    def is_flying(self) -> bool:
        """True while any batch is in flight."""
        return any(entry.is_flying for entry in self._sent())

    def head(self) -> Entry | None:
        """Return the oldest batch without an outcome."""
        return self._head()

    def _head(self) -> Entry | None:
        return next((entry for entry in self.entries if entry.is_open_ended), None)

    def _bounce(self) -> None:
        """End a round at its first error: nothing more is sent until the chaser is back."""
        if self.flowing:
            # In the same step: a batch that is sent between the error and the chaser would still be in flight when the
            # chaser comes back.
            self.flowing = False
            self._out.append(Chase(self.node))

    def _askable(self, now_ms: int) -> bool:
        """Return whether the answers to later batches may resolve 45 on an ambiguous batch (R7.5).

        Not with old timestamps: the broker may forget the producer between two of those answers (broker: 1.6).
        """
        if not self.idempotent or self.transactional:
            return False
        return not any(self._is_old(entry, now_ms) for entry in self._sent() if entry.is_stamped)

    def _settled(self, now: float, now_ms: int) -> list[Action]:
        self._trim()
        if self.entries and self.flowing and not self.is_flying:
            # With nothing in flight no chaser is due. Dead: numbers are to be closed up. All asked: no answer to come can
            # prove any of them (R7.3).
            waiting = [entry for entry in self._sent() if entry.is_stamped and entry.state is not ACKED]
            if any(entry.is_dead for entry in waiting) or (waiting and all(entry.state is ASKED for entry in waiting)):
                self._rewind(now, now_ms)
        return self._take_out()

    def _rewind(self, now: float, now_ms: int) -> None:
        """Act on the head's error, with nothing in flight; no other place acts on errors."""
        assert not self.is_flying, "a rewind with something in flight"
        # The guard and the proofs belong to the round, not to a leader epoch or a connection: a leadership that went away
        # and came back unnoticed has to show its state again (R5.1, faults: I6).
        self.flowing = True
        self._refused = False
        self.guard.is_proven = False
        # Before the verdicts: an OK that came while draining takes its batch out, else the head would be a batch that is
        # done, and its stale code would act.
        self._trim()
        self._end_retries()
        old_epoch = self.leadership.epoch
        has_new_leader = self.leadership.is_pending
        recreated = self.leadership.adopt()
        if has_new_leader and self.leadership.node >= 0:
            self.not_before = 0.0  # a new leader: no reason to wait
        moved = self.leadership.node >= 0 and self.leadership.epoch > old_epoch
        if recreated and self.idempotent:
            # A recreated topic has no state of this producer (broker: 1.9), so it accepts any sequence: every stamped batch
            # would be written, those that are in the former topic too.
            if self.transactional:
                self._abort()
            else:
                self._bump(fresh=False)
        else:
            self._decide(now, now_ms, moved)
        # The codes of all batches, not only the head's: behind a refused head they all say 45 (broker: 4.1, faults: I1).
        for entry in self._sent():
            entry.forget_round()
        self._trim()

    def _end_retries(self) -> None:
        """End batches that failed retriably more often than the user allows, as if their deadline had come (R8)."""
        for entry in self._sent():
            # Another error has its own verdict, although the attempts before it may have used up the retries.
            is_retry = entry.code is None or judge(entry.code).kind == Kind.RETRY
            if entry.failures > self._retries and is_retry and entry.is_open_ended:
                self._expire(entry, Reason.RETRIES)

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        gap = self._remove_dead()
        if gap is None and self.transactional and self._has_failed():
            return self._abort()
        if gap is not None and self.idempotent:
            return self._close_up(gap)  # and no verdict: the head's number may be another one now
        head = self._head()
        if head is None or (head.code is None and not head.is_ambiguous):
            return None
        if head.is_ambiguous and self._is_old(head, now_ms):
            # The broker may have forgotten it: an exact resend would be written twice (R5.4, broker: 1.6, faults: I20).
            self._give_up(head, Reason.OLD)
            return None
        if head.code is None:
            return None
        kind = judge(head.code).kind
        is_too_large = kind == Kind.TOO_LARGE and head.count > 1
        if is_too_large:
            self.size_limit.refused(head.size_bytes(), now)
        if kind == Kind.RETRY:
            self._failures += 1
            if moved and self._failures == 1:
                return None  # a new leader: no reason to wait; a second hop in a row waits (faults: P7)
            if now >= self.not_before:
                self.not_before = now + self._retry_delay(self._failures)
        elif self.transactional and (
            head.is_ambiguous or not is_too_large
        ):  # a clean one that is too large goes in parts
            self._abort(head)
        elif head.is_ambiguous and self._is_proved(head):
            # Sent again for its offset only; whatever the broker says now, a later batch shows that it is in the log. 10
            # is checked before duplicates (broker: 2.12), so a lowered limit refuses what was written (faults: I12).
            self._settle(head, Outcome.DELIVERED, None, Reason.PROOF)
            head.state = ACKED
        elif kind in (Kind.OUT_OF_ORDER, Kind.OLD_IDENTITY):
            self._lose_identity(head, kind, now, now_ms)
        elif head.is_ambiguous:
            # Its numbers stay used: if it is in the log the next batch fits behind it, if not that one gets 45 and bumps
            # (R2.3). A bump at once would give up every other ambiguous batch too.
            self._give_up(head, Reason.FATAL)
        elif not is_too_large:  # else it goes again in parts, which are cut off one by one (R4.4)
            self._reject(head)
        return None

    def _has_failed(self) -> bool:
        return any(entry.is_dead for entry in self.entries)

    def _remove_dead(self) -> int | None:
        """Drop expired and overtaken batches; return the first sequence number that becomes free, or None."""
        if self.transactional and self._has_failed():
            return None
        gap: int | None = None
        first: int | None = None  # of those that stay: what expires behind them closes up from there
        for entry in self._sent():
            if entry.is_dead:
                # Ambiguous: its numbers stay used, like those of a batch that failed POSSIBLY (R2.3). Overtaken: numbers
                # behind it are in the log, so its own can go to no other batch.
                if entry.is_stamped and not entry.is_ambiguous and gap is None and not self._is_overtaken(entry):
                    gap = entry.first_sequence if first is None else first
                self.entries.remove(entry)
            elif entry.is_stamped and entry.state is not ACKED and not entry.is_ambiguous and self._is_overtaken(entry):
                # Refused for certain, and a later batch is in the log: the broker lost its state in between (broker: 5.4,
                # 5.6). Sent again it would be accepted, behind that batch: reordered.
                self._settle(entry, Outcome.NOT, None, Reason.OVERTAKEN)
                self.entries.remove(entry)
            elif entry.is_stamped and entry.state is not ACKED and first is None:
                first = entry.first_sequence
        return gap

    def _lose_identity(self, head: Entry, kind: Kind, now: float, now_ms: int) -> None:
        self._failures += 1
        self.not_before = now + self._retry_delay(self._failures)
        # Not those that are ACKED: one whose OK proves nothing (R3.1) is never asked again, and the head would be, round
        # after round until its deadline.
        doubtful = [entry for entry in self._sent() if entry.is_ambiguous and entry.is_open_ended]
        waits = kind == Kind.OUT_OF_ORDER and head.state is ASKED and self._askable(now_ms)
        if not waits or all(entry.state is ASKED for entry in doubtful):
            # After 47 the broker knows a newer epoch of this id, after 49 and 59 it does not know the id: only a fresh one
            # helps (faults: I13, I14, I15). After 45 the next epoch does, which needs no broker (broker: 1.3).
            self._bump(fresh=kind == Kind.OLD_IDENTITY)

    def _give_up(self, entry: Entry, why: Reason) -> None:
        """Settle a batch that may be in the log and of which nothing more can be learned."""
        if self._is_proved(entry):
            self._settle(entry, Outcome.DELIVERED, None, Reason.PROOF)
        else:
            self._settle(entry, Outcome.POSSIBLY, None, why)
        self.entries.remove(entry)

    def _reject(self, head: Entry) -> None:
        """Fail what was refused for certain: the whole batch, or the records that were named (R4.1)."""
        if not self._refuse(head):
            self.entries.remove(head)
        # A refused batch does not use up its numbers (broker: 4.3): what is behind it moves up, or the partition bumps.
        self._close_up(head.first_sequence)

    def _refuse(self, head: Entry) -> bool:
        """Settle what was refused for certain; return whether records are left in the batch."""
        assert head.code is not None
        # A broker names every bad record (broker: 4.10), so those that are not named go again. Positions outside the batch
        # name nothing (faults: H13): without a name that counts, all of it is refused.
        found = head.positions(head.named) if judge(head.code).kind == Kind.INVALID else []
        if found:
            bad = [(index, index + 1) for _, index in found]
            named = tuple(position for position, _ in found)
            code, attempt = head.code, head.attempt
            self._out.append(
                Settle(head.batch, bad, Outcome.NOT, None, Reason.REJECTED, code, attempt, head.refusal, named)
            )
        else:
            self._settle(head, Outcome.NOT, None, Reason.REJECTED)
        if 0 < len(found) < head.count:
            head.without([index for _, index in found])
            return True
        return False

    def first_part(self, entry: Entry, now: float) -> Entry:
        """Return the batch, or a first part of it, cut off now: as large as the broker takes, of about one age.

        An open batch has no first part: seal it where `is_aged` says so, or where it is too large.
        """
        batch = entry.batch
        # All that a young batch costs is this comparison.
        if now - batch.opened_at >= batch.delivery_timeout_s / 2 and self.is_aged(entry, now):
            if entry.is_sealed and entry.count > 1:
                old = entry.before_index(batch.end_of_due(entry.ranges[0][0], now + batch.delivery_timeout_s / 2))
                if 0 < old < entry.count:
                    entry = self._split(entry, old)
        if not self.size_limit.batch_bytes:
            return entry
        # Never of an ambiguous one: a broker that has the whole answers 45 to its parts (broker: 2.5, faults: I11, I12).
        if entry.is_ambiguous or entry.count < 2 or entry.size_bytes() <= self.size_limit.batch_bytes:
            return entry
        return self._split(entry, entry.fitting(self.size_limit.batch_bytes))

    def is_aged(self, entry: Entry, now: float) -> bool:
        """Return whether half of the time of its oldest record is over, and it was never sent (R8.6).

        Sent once it would expire as one (R8.2), and take the younger ones along.
        """
        batch = entry.batch
        return now - batch.opened_at >= batch.delivery_timeout_s / 2 and not entry.is_sent and not entry.is_stamped

    def _split(self, entry: Entry, count: int) -> Entry:
        """Cut the first records off a clean batch that is not in flight; nothing behind moves (R4.4). Return their part."""
        # Together the parts have the numbers of the whole, so batches behind may be in any state. Only one part is cut off at
        # a time: the size of the next one follows the answers to this one.
        first, rest = entry.cut(count)
        if entry.is_stamped:
            rest.first_sequence = (entry.first_sequence + count) % SEQUENCES
        place = self.entries.index(entry)
        self.entries.remove(entry)
        self.entries.insert(place, rest)
        self.entries.insert(place, first)
        return first

    # ------------------------------------------------------------------ identities and numbers (R2, R4)
    def _close_up(self, base: int) -> None:
        """Use the free numbers from `base` on: clean stamped batches behind get new ones."""
        if not self.idempotent:
            return
        rest = [entry for entry in self._sent() if entry.is_stamped]
        if any(entry.is_ambiguous or entry.state is ACKED for entry in rest):
            # One that may be in the log must keep its numbers, and they no longer follow those in front. A bump is safe
            # here: nothing is in flight, and what is ambiguous ends with it (R4.3, faults: I8).
            self._bump(fresh=False)
            return
        for entry in rest:
            entry.unstamp()
        self.next_sequence = base

    def _bump(self, *, fresh: bool) -> None:
        """Ask for a new identity: ambiguous batches end here, clean ones start again at sequence 0."""
        if not self.idempotent:
            return
        for entry in self._sent():
            if entry.is_stamped and entry.state is not ACKED:
                if entry.is_ambiguous:
                    # Under a newer epoch a broker recognises no copy (broker: 1.3): it would be written twice.
                    proved = self._is_proved(entry)
                    outcome = Outcome.DELIVERED if proved else Outcome.POSSIBLY
                    self._settle(entry, outcome, None, Reason.PROOF if proved else Reason.BUMP)
                    entry.die()
                elif self._is_overtaken(entry):
                    self._settle(entry, Outcome.NOT, None, Reason.OVERTAKEN)
                    entry.die()
        kept = [entry for entry in self.entries if entry.is_open_ended]
        # Out of a linked line one by one: with its links an entry would bring its former neighbours into the next line.
        self.entries.clear()
        self.entries = deque(kept)
        for entry in kept:
            if not entry.is_stamped:
                break
            entry.unstamp()
        # `_offered`: an identity has come and waits only for the stamped batches to leave, which they just did. Another
        # request would use up one more epoch.
        if self._offered is None:
            used = self.identity
            # The epoch after the last one is no epoch (broker: 1.11, faults: I18).
            self._out.append(NeedIdentity(used, fresh or (used is not None and used[1] >= LAST_EPOCH)))
        self.identity = None

    # ------------------------------------------------------------------ transactions (R10)
    def enrol(self, identity: tuple[int, int]) -> None:
        """Take part in a transaction under this identity, which is the same for all its partitions.

        Called before the first batch of the transaction is stamped. With the identity of the transaction before, as on
        transaction.version 0 and 1, the numbers go on (broker: 10.3b); with another one they begin at 0.
        """
        if identity == self.identity:
            return
        assert not any(entry.is_stamped for entry in self._sent()), (
            "another identity with numbers of the former one held"
        )
        former = self.identity
        self.identity = identity
        self.next_sequence = 0
        # What the leader has shown under the former epoch holds under the next one: it knows the producer, and takes no other
        # first sequence than 0 (broker: 1.4). So a transaction behind another does not wait for its first answer.
        if former is None or former[0] != identity[0]:
            self.guard.is_proven = False

    def abandon(self, now: float) -> tuple[list[Action], list[Entry]]:
        """Fail everything: the transaction is aborted. Return the actions, and the batches whose answers are still due.

        Those answers change nothing any more (R1). If numbers were given out, none goes on behind them: the next
        transaction needs another identity.
        """
        flying = [entry for entry in self._sent() if entry.is_flying]
        if any(entry.is_stamped for entry in self._sent()):
            self.identity = None
        self._fail_all()
        return self._take_out(), flying

    def _abort(self, head: Entry | None = None) -> None:
        """Fail everything, and ask for the abort: a batch cannot be written, or numbers cannot be closed up (R10).

        Args:
            head: the batch that the broker refused; None: another reason.
        """
        if head is not None and head.code is not None:
            kind = judge(head.code).kind
            if kind in (Kind.OUT_OF_ORDER, Kind.OLD_IDENTITY):
                pass  # not the fault of its records: they fail like all others
            elif not head.is_ambiguous:
                if not self._refuse(head):
                    head.die()
            elif not self._is_proved(head):
                self._settle(head, Outcome.POSSIBLY, None, Reason.FATAL)
                head.die()
        self._fail_all()
        self.identity = None
        self._out.append(Abort())

    def _fail_all(self) -> None:
        for entry in self.entries:
            if entry.is_open_ended:
                entry.seal()
                self._expire_outcome(entry, Reason.ABORT)
                entry.die()
        self.entries.clear()

    # ------------------------------------------------------------------ settling (R1, R3, R8)
    def _behind(self, entry: Entry) -> Iterator[Entry]:
        found = False
        for other in self._sent():
            if found:
                yield other
            elif other is entry:
                found = True

    def _is_proved(self, entry: Entry) -> bool:
        """Return whether a later batch of the identity is ACKED: the broker takes only last + 1, so this one is in the log."""
        if not entry.is_stamped:
            return False
        return any(
            other.state is ACKED and not other.proves_nothing and other.identity == entry.identity
            for other in self._behind(entry)
        )

    def _is_overtaken(self, entry: Entry) -> bool:
        """Return whether a later batch is in the log: this one must be given up, or the order breaks (R3.3)."""
        return any(other.state is ACKED for other in self._behind(entry))

    def _settle(
        self, entry: Entry, outcome: Outcome, base_offset: int | None, why: Reason, flying: Entry | None = None
    ) -> None:
        if not entry.is_dead:  # else its callers were told already
            batch, ranges, code, attempt = entry.batch, entry.ranges, entry.code, entry.attempt
            self._out.append(Settle(batch, ranges, outcome, base_offset, why, code, attempt, entry.refusal, (), flying))

    def _expire(self, entry: Entry, why: Reason) -> None:
        # It stays where it is until its answer is in: nothing is drained for a deadline, and numbers that are on the way
        # cannot go to another batch (R8.2, faults: I8, I9).
        self._expire_outcome(entry, why)
        entry.die()
        if not entry.is_stamped and not entry.is_flying:
            self._leave(entry)

    def _expire_outcome(self, entry: Entry, why: Reason) -> None:
        if not entry.is_flying and not entry.is_ambiguous:
            self._settle(entry, Outcome.NOT, None, why)  # every attempt was refused for certain, or there was none
        elif self._is_proved(entry):
            self._settle(entry, Outcome.DELIVERED, None, Reason.PROOF)
        else:
            self._settle(entry, Outcome.POSSIBLY, None, why, entry if entry.is_flying else None)

    def _trim(self) -> None:
        """Remove batches that no longer need their place; take an offered identity once nothing stamped is held."""
        entries = self.entries
        for entry in entries:
            # Only what is asked: a proved batch that waits is sent again for its offset (R3.2). An asked one was sent again
            # and answered 45; with its proof at hand there is nothing more to learn.
            if entry.state is ASKED and entry.is_ambiguous and self._is_proved(entry):
                self._settle(entry, Outcome.DELIVERED, None, Reason.PROOF)
                entry.state = ACKED
            elif not entry.is_sent and not entry.is_stamped:
                break
        # Only from the front: behind an unsettled batch an ACKED one is its proof, and a dead one holds its numbers.
        # A dead clean one stays: numbers are to be closed up behind it, in a rewind.
        while entries and (entries[0].state is ACKED or (entries[0].state is DEAD and entries[0].is_ambiguous)):
            entries.popleft()
        if self._offered is not None and not any(entry.is_stamped for entry in self._sent()):
            # Not before: a batch whose numbers are of the former epoch would be fenced by the new one (broker: 1.3, 1.5).
            self.identity, self._offered = self._offered, None
            self.next_sequence = 0  # another first sequence of a newer epoch is refused (broker: 1.4)
            self.guard.is_proven = False

    def _take_out(self) -> list[Action]:
        out, self._out = self._out, []
        return out

    def __repr__(self) -> str:
        flow = "flowing" if self.flowing else "draining"
        return f"<Ledger {flow} node {self.node} {self.identity} next {self.next_sequence} {len(self.entries)} entries>"
