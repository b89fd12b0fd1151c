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

from aiokprod.pipeline.batch import ProducerBatch
from aiokprod.pipeline.ledger_entry import (
    Abort,
    Action,
    Chase,
    Entries,
    Entry,
    NeedIdentity,
    Outcome,
    Settle,
    WantMetadata,
)
from aiokprod.pipeline.verdicts import Kind, is_ambiguous, judge

SEQUENCES = 2**31  # a sequence number is followed by 0 after the last (broker: 1.1)
LAST_EPOCH = 32767
IDLE_S = 1.0  # R5.2: so long without an acknowledgement, and the guard is up again
AGE_MS = 12 * 3600 * 1000  # R5.3: half of the time after which a broker forgets a producer (broker: 1.12)
NO_TOPIC_ID = bytes(16)

__all__ = ["Abort", "Action", "Chase", "Entry", "Ledger", "NeedIdentity", "Outcome", "Settle", "WantMetadata"]


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
        self.entries: deque[Entry] | Entries = deque()
        self.node = node  # -1: no leader is known
        self.leader_epoch = leader_epoch
        self.topic_id = topic_id
        self.identity = identity
        self.idempotent = idempotent
        self.transactional = transactional
        self.window = window
        self.next_sequence = next_sequence
        self.not_before = 0.0  # backoff is data
        self.flowing = True  # False: a chaser is out, nothing is sent
        self.is_log_append_time = False  # the broker dates the records itself: they are never old (broker: 1.12)
        self._pending: tuple[int, int, bytes] | None = None  # a new leader, taken in the next rewind
        self._is_new_topic = False  # the pending leader is that of a topic made again
        self._offered: tuple[int, int] | None = None
        self._proven = False  # this round has shown that the broker has state of this producer
        self._refused = False  # this round saw a certain error other than 45
        self._last_ack = 0.0
        self._last_time_ms = 0
        self._ordinal = 0
        self._newest_at = 0.0  # when the last batch was opened
        self._falls_due_in_order = True  # no batch is due before one in front of it
        self._failures = 0  # rounds that failed one after the other
        self._retry_delay = retry_delay
        self._retries = retries
        self._idle_s = idle_s
        self._age_ms = age_ms
        self._out: list[Action] = []

    # ------------------------------------------------------------------ the caller's side
    def open(self, batch: ProducerBatch) -> Entry:
        """A new open batch at the end; the one before is sealed."""
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
        self.entries.append(entry)
        return entry

    def seal(self) -> None:
        """The last batch takes no more records."""
        if self.entries:
            self.entries[-1].seal()

    def recall(self, entry: Entry, index: int) -> bool:
        """Take a record out that was never sent; False otherwise. The caller settles it, after this call."""
        if entry.is_sent or entry.is_stamped or entry.dead:
            return False
        if not entry.is_sealed:
            if entry.batch.unsettled_count == 1:
                self._leave(entry)
            return True
        if not entry.has(index):
            return False
        entry.without((index,))
        if not entry.count:
            self._leave(entry)
        return True

    def _leave(self, entry: Entry) -> None:
        """It was never sent and has no record left. From the middle it leaves a linked line: a deque is searched."""
        entry.dead = True
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
    def candidate(self, now: float, now_ms: int) -> Entry | None:
        """What `take` would take, not stamped."""
        if not self.flowing or self.node < 0 or now < self.not_before or not self.entries:
            return None
        if self.idempotent and self.identity is None:
            return None
        in_doubt = self._in_doubt()
        span = self.window if in_doubt else self._span(now, now_ms)
        for position, entry in enumerate(self.entries):
            if position >= span:
                return None
            if entry.dead and not entry.flying and not entry.doubt:
                return None  # its numbers are free: wait until nothing is in flight, and close up
            if entry.acked or entry.flying or entry.dead or entry.asked:
                if not entry.asked and self._is_old(entry, now_ms):
                    return None  # the broker may forget us right behind this one
                continue
            if position and self._is_old(entry, now_ms):
                return None  # and those before it
            if in_doubt and not entry.is_stamped:
                return None  # while the head is in doubt only stamped ones go
            return entry
        return None

    def take(self, now: float, now_ms: int) -> Entry | None:
        """The next batch to write, stamped; the caller writes it in the same synchronous step."""
        entry = self.candidate(now, now_ms)
        if entry is None:
            return None
        entry.seal()
        if not entry.is_stamped and self.identity is not None:
            entry.producer_id, entry.producer_epoch = self.identity
            entry.first_sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + entry.count) % SEQUENCES
        entry.flying = True
        entry.code = None
        entry.attempt += 1
        return entry

    def _span(self, now: float, now_ms: int) -> int:
        """How many batches from the head may be in flight."""
        if not self.idempotent:
            return 1
        if not self._proven or self._is_idle(now) or self._is_aged(now_ms):
            return 1
        return self.window

    def _is_idle(self, now: float) -> bool:
        return now - self._last_ack >= self._idle_s

    def _is_aged(self, now_ms: int) -> bool:
        return not self.is_log_append_time and now_ms - self._last_time_ms >= self._age_ms

    def _is_old(self, entry: Entry, now_ms: int) -> bool:
        """Are its timestamps so old that the broker may forget the producer? (R5.3; not within a transaction)"""
        if not self.idempotent or self.transactional or self.is_log_append_time:
            return False
        newest_ms = entry.newest_ms if entry.is_sealed else entry.batch.max_timestamp_ms
        return now_ms - newest_ms >= self._age_ms

    # ------------------------------------------------------------------ answers (R1)
    def answer(
        self, entry: Entry, attempt: int, code: int, base_offset: int, named: tuple[int, ...], now: float, now_ms: int
    ) -> list[Action]:
        """The broker's answer to one attempt. `named`: positions of records it refuses (KIP-467)."""
        if attempt == entry.attempt:
            entry.flying = False
        verdict = judge(code)
        if entry.acked or entry not in self.entries:
            pass
        elif verdict.kind == Kind.DONE:
            self._alive(entry, now, entry.newest_ms)
            self._failures = 0
            self._acknowledge(entry, base_offset if code == 0 and base_offset >= 0 else None)
        else:
            ambiguous = is_ambiguous(code, base_offset)
            self._refused |= not ambiguous and verdict.kind != Kind.OUT_OF_ORDER
            entry.doubt |= ambiguous
            if attempt == entry.attempt:
                entry.code, entry.named = code, named
            if verdict.kind == Kind.OUT_OF_ORDER and not self.transactional:
                self._alive(entry, now, entry.newest_ms)  # it has state, else it had taken anything
            if verdict.wants_metadata:
                self._out.append(WantMetadata(code))
            in_doubt = self._in_doubt() or (entry.doubt and verdict.kind == Kind.OUT_OF_ORDER)
            if self.flowing and in_doubt and verdict.kind != Kind.RETRY and self._askable(now_ms):
                entry.asked = True
            else:
                self._bounce()
        return self._settled(now, now_ms)

    def _acknowledge(self, entry: Entry, base_offset: int | None) -> None:
        self._settle(entry, Outcome.DELIVERED, base_offset, "answer")
        entry.acked = True
        entry.alone = self._refused

    def _alive(self, entry: Entry, now: float, newest_ms: int) -> None:
        if not entry.is_stamped or entry.identity == self.identity:
            self._proven = True
            self._last_ack = now
            self._last_time_ms = newest_ms

    def lost(self, fates: Iterable[tuple[Entry, int, bool]], now: float) -> list[Action]:
        """The connection ended without an answer to these; True: bytes were handed to the transport."""
        for entry, attempt, written in fates:
            if attempt == entry.attempt:
                entry.flying = False
            entry.doubt |= written
        self._failures += 1
        self.not_before = max(self.not_before, now + self._retry_delay(self._failures))
        self._bounce()
        self._trim()
        return self._take_out()

    def returned(self, now: float, now_ms: int) -> list[Action]:
        """The chaser is back: nothing of this partition is in flight any more."""
        self._rewind(now, now_ms)
        return self._take_out()

    def leader(
        self, node: int, leader_epoch: int, topic_id: bytes, now: float, now_ms: int, *, is_new_topic: bool = False
    ) -> list[Action]:
        """Metadata or a hint named the leader (-1: none). What is older than what we know is dropped.

        Args:
            is_new_topic: the topic was deleted and created again, as far as brokers without topic ids can tell; its
                leader epochs begin again.
        """
        self._is_new_topic |= is_new_topic
        known_node, known_epoch, known_id = self._pending or (self.node, self.leader_epoch, self.topic_id)
        recreated = is_new_topic or self._is_recreated(known_id, topic_id)
        if topic_id == NO_TOPIC_ID:
            topic_id = known_id
        newer = leader_epoch > known_epoch or (
            node != known_node and (leader_epoch == -1 or (leader_epoch == known_epoch and known_node < 0))
        )
        if recreated or newer:
            self._pending = (node, leader_epoch, topic_id)
            if self.is_flying:
                self._bounce()
            elif self.flowing:
                self._rewind(now, now_ms)
        elif topic_id != known_id:
            self.topic_id = topic_id  # the broker did not tell ids before
        return self._take_out()

    def is_recreated(self, topic_id: bytes) -> bool:
        """Is this the id of another topic of the same name?"""
        return self._is_recreated(self.topic_id, topic_id)

    @staticmethod
    def _is_recreated(known_id: bytes, topic_id: bytes) -> bool:
        return topic_id != known_id and NO_TOPIC_ID not in (topic_id, known_id)

    def granted(self, identity: tuple[int, int], now: float) -> list[Action]:
        """A new identity: taken once nothing stamped is held."""
        self._offered = identity
        self._trim()
        return self._take_out()

    # ------------------------------------------------------------------ deadlines (R8)
    def next_deadline(self) -> float | None:
        """When the first record without an outcome falls due."""
        first: float | None = None
        for entry in self.entries:
            if entry.is_open_ended:
                deadline = entry.deadline()
                if self._falls_due_in_order:
                    return deadline
                if first is None or deadline < first:
                    first = deadline
        return first

    def tick(self, now: float, now_ms: int) -> list[Action]:
        """Deadlines fall due, each when its time has come."""
        due: list[Entry] = []
        for entry in self.entries:
            if entry.is_open_ended:
                if entry.deadline() <= now:
                    due.append(entry)
                elif self._falls_due_in_order:
                    break
        for entry in due:
            if entry.is_sent or entry.is_stamped:
                self._expire(entry, "deadline")
            else:
                self._shed(entry, now)
        return self._settled(now, now_ms)

    def _shed(self, entry: Entry, now: float) -> None:
        """A batch never sent loses the records whose own deadline has passed: the oldest ones."""
        batch = entry.batch
        if entry.is_sealed:
            first = entry.ranges[0][0]
            gone = entry.without_first(first + batch.due(first, now))
            is_empty = not entry.count
        else:
            first = batch.first_unsettled()
            gone = batch.live_ranges(first + batch.due(first, now))
            is_empty = sum(last - first for first, last in gone) == batch.unsettled_count
        self._out.append(Settle(batch, gone, Outcome.NOT, None, "deadline", None, 0))
        if is_empty:
            self._leave(entry)

    def purge(self, now: float, now_ms: int = 0) -> list[Action]:
        """Everything settles now."""
        for entry in list(self.entries):
            if entry.is_open_ended:
                entry.seal()
                self._expire(entry, "purge")
        return self._settled(now, now_ms)

    # ------------------------------------------------------------------ rounds (R6)
    def _sent(self) -> list[Entry]:
        """The batches that were ever sent: all of them are in front. A list: asked too often for a generator."""
        sent: list[Entry] = []
        for entry in self.entries:
            if not entry.is_sent and not entry.is_stamped:
                break
            sent.append(entry)
        return sent

    def _in_doubt(self) -> bool:
        for entry in self.entries:
            if entry.asked:
                return True
            if not entry.is_sent and not entry.is_stamped:
                return False
        return False

    @property
    def is_flying(self) -> bool:
        """Is any batch in flight?"""
        return any(entry.flying for entry in self._sent())

    def _head(self) -> Entry | None:
        return next((entry for entry in self.entries if entry.is_open_ended), None)

    def _bounce(self) -> None:
        """The first error of a round: nothing more is sent until the chaser is back."""
        if self.flowing:
            self.flowing = False
            self._out.append(Chase(self.node))

    def _askable(self, now_ms: int) -> bool:
        """May a 45 on an ambiguous batch wait for those behind it? (R7.5)"""
        return not self.transactional and not any(
            self._is_old(entry, now_ms) for entry in self._sent() if entry.is_stamped
        )

    def _settled(self, now: float, now_ms: int) -> list[Action]:
        self._trim()
        if self.entries and self.flowing and not self.is_flying:
            waiting = [entry for entry in self._sent() if entry.is_stamped and not entry.acked]
            if any(entry.dead for entry in waiting) or (waiting and all(entry.asked for entry in waiting)):
                self._rewind(now, now_ms)  # numbers to close up, or everyone in doubt was asked
        return self._take_out()

    def _rewind(self, now: float, now_ms: int) -> None:
        """Nothing is in flight: the only place where errors act, and only the head's."""
        assert not self.is_flying, "a rewind with something in flight"
        self.flowing = True
        self._refused = False
        self._proven = False
        self._trim()
        self._end_retries()
        old_epoch = self.leader_epoch
        recreated = self._adopt_leader()
        moved = self.node >= 0 and self.leader_epoch > old_epoch
        if recreated and self.idempotent:
            if self.transactional:
                self._abort()
            else:
                self._bump(fresh=False)
        else:
            self._decide(now, now_ms, moved)
        for entry in self._sent():
            entry.code = None
            entry.asked = False
        self._trim()

    def _end_retries(self) -> None:
        """What has failed retriably more often than the user allows ends as if its deadline had come (R8)."""
        for entry in self._sent():
            is_retry = entry.code is None or judge(entry.code).kind == Kind.RETRY
            if entry.attempt > self._retries and is_retry and entry.is_open_ended:
                self._expire(entry, "retries")

    def _adopt_leader(self) -> bool:
        """Take the pending leader; True: the topic is another one of the same name."""
        if self._pending is None:
            return False
        node, leader_epoch, topic_id = self._pending
        self._pending = None
        recreated = self._is_new_topic or self._is_recreated(self.topic_id, topic_id)
        self._is_new_topic = False
        self.node, self.leader_epoch, self.topic_id = node, leader_epoch, topic_id
        if node >= 0:
            self.not_before = 0.0  # a new leader: no reason to wait
        return recreated

    def _decide(self, now: float, now_ms: int, moved: bool) -> None:
        gap = self._remove_dead()
        if gap is None and self.transactional and self._has_failed():
            return self._abort()
        if gap is not None and self.idempotent:
            return self._close_up(gap)
        head = self._head()
        if head is None or (head.code is None and not head.doubt):
            return None
        if head.doubt and self._is_old(head, now_ms):
            self._give_up(head, "old")  # the broker may have forgotten it: a resend could be written twice (R5.4)
            return None
        if head.code is None:
            return None
        kind = judge(head.code).kind
        if kind == Kind.RETRY:
            self._failures += 1
            if moved and self._failures == 1:
                return None  # a new leader: no reason to wait; a second hop in a row waits (faults: P7)
            if now >= self.not_before:
                self.not_before = now + self._retry_delay(self._failures)
        elif self.transactional:
            self._abort()
        elif head.doubt and self._is_proved(head):
            self._settle(head, Outcome.DELIVERED, None, "proof")
            head.acked = True
        elif kind in (Kind.OUT_OF_ORDER, Kind.OLD_IDENTITY):
            self._lose_identity(head, kind, now, now_ms)
        elif head.doubt:
            self._give_up(head, "fatal")  # its numbers stay used; a 45 of the next one bumps (R2.3)
        elif kind == Kind.TOO_LARGE and head.count > 1:
            self._split(head)
        else:
            self._reject(head)
        return None

    def _has_failed(self) -> bool:
        return any(entry.dead and not entry.acked for entry in self.entries)

    def _remove_dead(self) -> int | None:
        """Drop what expired meanwhile and what was overtaken; the first number that is free, if one is."""
        if self.transactional and self._has_failed():
            return None
        gap: int | None = None
        first: int | None = None  # of those that stay: what expires behind them closes up from there
        for entry in self._sent():
            if entry.dead and not entry.acked:
                if entry.is_stamped and not entry.doubt and gap is None and not self._is_overtaken(entry):
                    gap = entry.first_sequence if first is None else first
                self.entries.remove(entry)
            elif entry.is_stamped and not entry.acked and not entry.doubt and self._is_overtaken(entry):
                self._settle(entry, Outcome.NOT, None, "overtaken")
                self.entries.remove(entry)
            elif entry.is_stamped and not entry.acked and first is None:
                first = entry.first_sequence
        return gap

    def _lose_identity(self, head: Entry, kind: Kind, now: float, now_ms: int) -> None:
        self._failures += 1
        self.not_before = now + self._retry_delay(self._failures)
        doubtful = [entry for entry in self._sent() if entry.is_stamped and entry.doubt]
        waits = kind == Kind.OUT_OF_ORDER and head.asked and self._askable(now_ms)
        if not waits or all(entry.asked for entry in doubtful):
            self._bump(fresh=kind == Kind.OLD_IDENTITY)

    def _give_up(self, entry: Entry, why: str) -> None:
        """It may be in the log, and nothing more can be learned."""
        if self._is_proved(entry):
            self._settle(entry, Outcome.DELIVERED, None, "proof")
        else:
            self._settle(entry, Outcome.POSSIBLY, None, why)
        self.entries.remove(entry)

    def _reject(self, head: Entry) -> None:
        """Refused for certain: the whole batch, or the records that were named (R4.1)."""
        assert head.code is not None
        found = head.positions(head.named) if judge(head.code).kind == Kind.INVALID else []
        if found:
            bad = [(index, index + 1) for _, index in found]
            named = tuple(position for position, _ in found)
            code, attempt = head.code, head.attempt
            self._out.append(Settle(head.batch, bad, Outcome.NOT, None, "rejected", code, attempt, head.refusal, named))
        else:
            self._settle(head, Outcome.NOT, None, "rejected")
        if 0 < len(found) < head.count:
            head.without([index for _, index in found])
        else:
            self.entries.remove(head)
        self._close_up(head.first_sequence)

    def _split(self, head: Entry) -> None:
        """Two halves with the parent's numbers; nothing behind moves (R4.4)."""
        halves: list[Entry] = []
        sequence = head.first_sequence
        for ranges in head.halves():
            half = Entry(head.ordinal, head.batch)
            half.ranges = ranges
            half.count = sum(last - first for first, last in ranges)
            half.newest_ms = head.newest_ms
            half.is_sealed = True
            half.producer_id, half.producer_epoch = head.identity
            half.first_sequence = sequence
            half.attempt = head.attempt
            if head.is_stamped:
                sequence = (sequence + half.count) % SEQUENCES
            halves.append(half)
        place = self.entries.index(head)
        self.entries.remove(head)
        self.entries.insert(place, halves[1])
        self.entries.insert(place, halves[0])

    # ------------------------------------------------------------------ identities and numbers (R2, R4)
    def _close_up(self, base: int) -> None:
        """The numbers from `base` on are free: everything stamped behind is stamped anew, if it is clean."""
        if not self.idempotent:
            return
        rest = [entry for entry in self._sent() if entry.is_stamped]
        if any(entry.doubt or entry.acked for entry in rest):
            self._bump(fresh=False)
            return
        for entry in rest:
            entry.unstamp()
        self.next_sequence = base

    def _bump(self, *, fresh: bool) -> None:
        """A new identity: what is ambiguous ends here, what is clean starts anew at sequence 0."""
        if not self.idempotent:
            return
        for entry in self._sent():
            if entry.is_stamped and not entry.acked:
                if entry.doubt:
                    proved = self._is_proved(entry)
                    self._settle(
                        entry, Outcome.DELIVERED if proved else Outcome.POSSIBLY, None, "proof" if proved else "bump"
                    )
                    entry.dead = True
                elif self._is_overtaken(entry):
                    self._settle(entry, Outcome.NOT, None, "overtaken")
                    entry.dead = True
        kept = [entry for entry in self.entries if entry.is_open_ended]
        self.entries = deque(kept)
        for entry in kept:
            if not entry.is_stamped:
                break
            entry.unstamp()
        if self._offered is None:
            used = self.identity
            self._out.append(NeedIdentity(used, fresh or (used is not None and used[1] >= LAST_EPOCH)))
        self.identity = None

    def _abort(self) -> None:
        """Transactional: everything fails, and the coordinator ends the transaction (R10)."""
        for entry in self.entries:
            if entry.is_open_ended:
                entry.seal()
                self._expire_outcome(entry, "abort")
                entry.dead = True
        self.entries.clear()
        self.identity = None
        self._out.append(Abort())

    # ------------------------------------------------------------------ settling (R1, R3, R8)
    def _behind(self, entry: Entry) -> Iterator[Entry]:
        found = False
        for other in self._sent():
            if found:
                yield other
            elif other is entry:
                found = True

    def _is_proved(self, entry: Entry) -> bool:
        """A later batch of the same identity is ACKED: the broker takes only last + 1, so this one is in the log."""
        if not entry.is_stamped:
            return False
        return any(
            other.acked and not other.alone and other.identity == entry.identity for other in self._behind(entry)
        )

    def _is_overtaken(self, entry: Entry) -> bool:
        """One behind it is in the log: it can only be given up, or the order breaks (R3.3)."""
        return any(other.acked for other in self._behind(entry))

    def _settle(self, entry: Entry, outcome: Outcome, base_offset: int | None, why: str) -> None:
        if not entry.dead:
            self._out.append(
                Settle(entry.batch, entry.ranges, outcome, base_offset, why, entry.code, entry.attempt, entry.refusal)
            )

    def _expire(self, entry: Entry, why: str) -> None:
        self._expire_outcome(entry, why)
        entry.dead = True
        if not entry.is_stamped and not entry.flying:
            self.entries.remove(entry)

    def _expire_outcome(self, entry: Entry, why: str) -> None:
        if not entry.flying and not entry.doubt:
            self._settle(entry, Outcome.NOT, None, why)
        elif self._is_proved(entry):
            self._settle(entry, Outcome.DELIVERED, None, "proof")
        else:
            self._settle(entry, Outcome.POSSIBLY, None, why)

    def _trim(self) -> None:
        """What needs its place no more leaves; an offered identity is taken once nothing stamped is held."""
        entries = self.entries
        for entry in entries:
            if entry.asked and entry.doubt and not entry.acked and self._is_proved(entry):
                self._settle(entry, Outcome.DELIVERED, None, "proof")
                entry.acked = True
            elif not entry.is_sent and not entry.is_stamped:
                break
        while entries and (entries[0].acked or (entries[0].dead and entries[0].doubt and not entries[0].flying)):
            entries.popleft()
        if self._offered is not None and not any(entry.is_stamped for entry in self._sent()):
            self.identity, self._offered = self._offered, None
            self.next_sequence = 0
            self._proven = False

    def _take_out(self) -> list[Action]:
        out, self._out = self._out, []
        return out

    def __repr__(self) -> str:
        flow = "flowing" if self.flowing else "draining"
        return f"<Ledger {flow} node {self.node} {self.identity} next {self.next_sequence} {len(self.entries)} entries>"
