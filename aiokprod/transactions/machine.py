"""`TransactionMachine`: the transactions of one producer, as a pure state machine (docs/transactions_states.md).

    calls of the user, events of the pipeline (here), answers (TransactionAnswers)
        ──> transitions (TransactionCourse) ──> what may be asked for then (TransactionSteps) ──> actions

Events come in by methods, actions go out as a list; time is an argument (seconds of any clock that does not go back).
Nothing here waits, sends or raises for anything that a network or a broker does. A user's call in a wrong state returns a
`Refusal`, and nothing has changed.

Rules (the page has them in full, as T1 to T9):
T1 one identity for all partitions, changed only between transactions and with nothing stamped in flight;
T2 version 1 adds a partition before anything of it is stamped; T3 an untouched transaction sends nothing;
T4 commit only with every record and offset settled well, and nothing let in behind it;
T5 no answer and no certain answer are not success: the same verdict is asked for again, then UNKNOWN;
T6 a verdict goes from commit to abort on version 2 only, and never back; T7 nothing begins before the last outcome is known;
T8 version 1 renews the epoch behind whatever may come late, and never inside a transaction; so does the first one of version 2
behind one of version 1;
T9 version 2 believes only EndTxn and InitProducerId that it is fenced; version 1 cannot tell a fence from a timeout.
"""

from __future__ import annotations

from aiokprod.transactions.machine_actions import (
    Action,
    Cause,
    Entrance,
    Flush,
    Hold,
    Mode,
    Partition,
    Reason,
    Refusal,
    State,
    TimeoutNear,
    Verdict,
)
from aiokprod.transactions.machine_answers import TransactionAnswers
from aiokprod.transactions.machine_course import ENDING, UNENDED
from aiokprod.transactions.machine_jobs import NEW_ID, InitJob, OffsetsJob, Work
from aiokprod.wire.codes import ErrorCode


class TransactionMachine(TransactionAnswers):
    """The state of a transactional id, of its identity (producer id, epoch) and of the transaction at hand.

    Args:
        retry_delay: seconds before the next attempt after n failures in a row, jitter included.
        concurrent_delay: the same after CONCURRENT_TRANSACTIONS, which passes in some milliseconds.
        transaction_timeout_s: what InitProducerId announced; only for `TimeoutNear`.
        markers_s: seconds after an end of version 2 in which a transaction that begins asks whether the markers are written.
        transaction: the number of the last transaction before, of another id.
    """

    # ------------------------------------------------------------------ calls of the user
    def initialise(self, now: float, deadline: float) -> list[Action] | Refusal:
        """Take the id over. `Initialised` or `InitialiseFailed` follows."""
        if self._close_deadline is not None:
            return Refusal.CLOSED
        if self.state is not State.UNINITIALISED:
            return Refusal.ALREADY_INITIALISED
        self.state = State.INITIALISING
        self._deadline = deadline
        if self._next is not None:
            self._initialised()
        elif self._init is None:
            self._init = InitJob(NEW_ID)
        return self._go_on(now)

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        """Open a transaction; nothing is sent. Accepted in READY only."""
        # T7: the outcome of the last one is known in READY and in no other state that has one behind it.
        refusal = self._why_not(State.READY)
        if refusal is not None:
            return refusal
        self.state = State.OPEN
        self.mode = mode
        self.transaction += 1
        self.cause = self.outcome = None
        self._work = Work()
        if self._markers is not None:
            if now >= self._markers.until:
                self._markers = None
            else:  # the identity is taken once more when the markers are written
                self._out.append(Hold())
                self._next = self._next or self.identity
        if mode is Mode.VERSION_2 and self._is_used_below_2 and self._init is None and self._next is None:
            self._init = InitJob(self._identity())  # T8: the markers of the last one may not be written yet
        return self._go_on(now)

    def may_send(self) -> Refusal | None:
        """Return why a new record cannot go into a transaction now; None if it can (OPEN)."""
        return self._why_not(State.OPEN)

    def send_offsets(self, group: str, now: float) -> tuple[int, list[Action]] | Refusal:
        """Take offsets into the transaction; return their number, which `SendTxnOffsetCommit` and `OffsetsDone` name."""
        refusal = self._why_not(State.OPEN)
        if refusal is not None:
            return refusal
        self._numbers += 1
        self._work.offsets.append(OffsetsJob(self._numbers, group))
        return self._numbers, self._go_on(now)

    def commit(self, now: float, deadline: float) -> list[Action] | Refusal:
        """Commit, or go on asking in UNKNOWN. `Ended` or `CommitRefused` follows. In COMMITTING it joins (no actions).

        In UNKNOWN behind an abort it asks for the abort: its records have failed already (T6).
        """
        if self.state is State.UNKNOWN and self._close_deadline is None:
            return self._ask_on(self._unknown_verdict(), now, deadline)
        refusal = self._why_not(State.OPEN, State.COMMITTING, State.PREPARED)
        if refusal is not None:
            return refusal
        if self.state is State.COMMITTING and self._work.is_preparing:
            return Refusal.PREPARING
        return self._settle_all(now, deadline)

    def prepare(self, now: float, deadline: float) -> list[Action] | Refusal:
        """Settle everything as a commit does, and ask for no end. `Prepared` or `CommitRefused` follows.

        While it goes on, it joins (no actions).
        """
        refusal = self._why_not(State.OPEN, State.COMMITTING)
        if refusal is not None:
            return refusal
        if self.state is State.COMMITTING and not self._work.is_preparing:
            return Refusal.COMMITTING
        self._work.is_preparing = True
        return self._settle_all(now, deadline)

    def _settle_all(self, now: float, deadline: float) -> list[Action]:
        if self.state is State.COMMITTING:
            self._deadline = max(self._deadline, deadline)
            return self._go_on(now)
        if self.state is State.OPEN:
            self._out.append(Flush(self.transaction))
        else:
            self._work.is_preparing = False  # all of a prepared one is settled
        self.state = State.COMMITTING
        self._deadline = deadline
        return self._go_on(now)

    def abort(self, now: float, deadline: float) -> list[Action] | Refusal:
        """Abort, or go on asking in UNKNOWN. `Ended` follows. In ABORTING it joins (no actions).

        Behind its deadline an abort is asked for again all the same, and `FoundOut` tells its end, if no call asks by then.
        In UNKNOWN behind a commit the outcome may be COMMITTED: on version 2 if that was done, on version 1 always (T6).
        """
        if self.state is State.UNKNOWN and self._close_deadline is None:
            # T6: an abort answers for itself only on version 2. On version 1 a late AddPartitionsToTxn may have opened another
            # transaction in the same epoch behind a commit that was done, and the abort of that one would succeed.
            asked = self._unknown_verdict()
            return self._ask_on(Verdict.ABORT if self.mode is Mode.VERSION_2 else asked, now, deadline)
        refusal = self._why_not(State.OPEN, State.ABORTABLE, State.ABORTING, State.PREPARED)
        if refusal is not None:
            return refusal
        if self.state is State.ABORTING:
            self._deadline = max(self._deadline, deadline)
            return self._go_on(now)
        self._start_abort(deadline)
        return self._go_on(now)

    def close(self, now: float, deadline: float, *, keeps_prepared: bool = True) -> list[Action]:
        """End what is open, by the deadline at the latest; `Closed` follows. All other user calls are refused from now on.

        `keeps_prepared` False: a transaction that is prepared, or being prepared, is aborted too. No caller has heard of it.
        """
        if self._close_deadline is not None:
            self._close_deadline = self._deadline = min(self._close_deadline, deadline)
            return self._go_on(now)
        self._close_deadline = deadline
        state = self.state
        if state is State.INITIALISING:
            self._stop_initialising(Cause(Reason.CLOSED))
        elif state is State.OPEN or state is State.ABORTABLE or (state is State.PREPARED and not keeps_prepared):
            self._start_abort(deadline)
        elif state is State.COMMITTING and self._work.is_preparing and not keeps_prepared:
            self._make_abortable(Cause(Reason.CLOSED))
        elif state is State.UNKNOWN:
            self._resume(self._unknown_verdict(), deadline)
        elif state in ENDING:
            self._deadline = min(self._deadline, deadline)
        return self._go_on(now)

    # ------------------------------------------------------------------ the pipeline's side
    def send_partition(self, partition: Partition, now: float) -> Entrance | Refusal:
        """Ask whether batches of this partition may be stamped, before the first one of the transaction is.

        After WAIT call `turn_ended` once at the end of this turn of the event loop. Asking again does no harm. GO holds until
        the transaction ends. What was allowed counts as written: the end is asked for at the coordinator.
        """
        if self.state is not State.COMMITTING or self._work.flushed:
            refusal = self._why_not(State.OPEN)
            if refusal is not None:
                return refusal
        adds = self._work.adds
        if partition in adds.added:
            return Entrance.GO
        adds.hold(partition)
        if self._may_stamp() and self.mode is Mode.VERSION_2:
            adds.take((partition,))  # the first Produce adds it (broker: 10.1)
            self._touch(now, stamped=True)
            return Entrance.GO
        return Entrance.WAIT

    def turn_ended(self, now: float) -> list[Action]:
        """Add all partitions that wait, in one request (version 1)."""
        self._work.adds.end_turn()
        return self._go_on(now)

    def record_failed(self, transaction: int, code: int | None, now: float) -> list[Action]:
        """Note a ledger's Abort, or any record that failed; `code` is the broker's, if one was the reason."""
        if transaction == self.transaction and self._is_open():
            if code == ErrorCode.INVALID_PRODUCER_EPOCH and self.mode is Mode.VERSION_1:
                self._lose(State.FENCED, self._fence(code))
            else:
                self._make_abortable(Cause(Reason.RECORD_FAILED, code))
        return self._go_on(now)

    def produce_lost(self, transaction: int) -> None:
        """Note that an attempt of Produce got no answer: a copy may come late (version 1 minds it).

        Tell it before `record_failed`, `flushed` and `drained`.
        """
        if transaction == self.transaction:
            self._work.is_haunted = True

    def flushed(self, transaction: int, now: float) -> list[Action]:
        """Answer `Flush`: every record of the transaction is settled, and nothing stamped is in flight."""
        if transaction == self.transaction and self.state is State.COMMITTING:
            self._work.flushed = True
        return self._go_on(now)

    def drained(self, transaction: int, now: float) -> list[Action]:
        """Answer `FailQueued`: nothing stamped of the transaction is in flight: answered, or its connection ended."""
        if transaction == self._undrained:
            self._undrained = None
        return self._go_on(now)

    @property
    def is_touched(self) -> bool:
        """True: the coordinator may know of the transaction at hand; False: it is empty, and nothing has to be ended."""
        return self._work.is_touched

    @property
    def is_open(self) -> bool:
        """True: a transaction was begun and has not ended; also where the id was lost inside it. Not a prepared one."""
        return self.state in UNENDED or self._was_lost_inside

    @property
    def ends_by_itself(self) -> bool:
        """True: the last transaction is being ended, and no further call is needed for that."""
        return self._is_ending()

    @property
    def may_be_committed(self) -> bool:
        """True: a commit of the transaction at hand was asked for, or it is prepared, which any process may commit.

        False: nothing has committed it, or will.
        """
        end = self._work.end
        is_asked_for = end is not None and end.verdict is Verdict.COMMIT
        return self._work.commit_may_be_done or is_asked_for or self.state is State.PREPARED

    @property
    def deadline(self) -> float:
        """When the end of the transaction, or the start, that is under way gives up."""
        return self._deadline

    def tick(self, now: float) -> list[Action]:
        """Take the steps that are due."""
        if self.state is State.INITIALISING and now >= self._deadline:
            self._stop_initialising(Cause(Reason.DEADLINE))
        while (
            self.state in ENDING and now >= self._deadline
        ):  # a commit that is closed is aborted: no time is left for that
            self._stop_ending()
        opened_at = self._work.opened_at
        if (
            opened_at is not None
            and now >= opened_at + self._near_s
            and self._may_time_out()
            and not self._work.is_warned
        ):
            self._work.is_warned = True
            self._out.append(TimeoutNear(self.transaction, now - opened_at, self._work.end is not None))
        return self._go_on(now)
