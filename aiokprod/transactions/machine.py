"""`TransactionMachine`: the transactions of one producer, as a pure state machine (docs/transactions_states.md).

Events come in by methods, actions go out as a list; time is an argument (seconds of any clock that does not go back).
Nothing here waits, sends or raises for anything that a network or a broker does. A user's call in a wrong state returns a
`Refusal`, and nothing has changed.

Rules (the page has them in full, as T1 to T9):
T1 one identity for all partitions, changed only between transactions and with nothing stamped in flight;
T2 version 1 adds a partition before anything of it is stamped; T3 an untouched transaction sends nothing;
T4 commit only with every record and offset settled well, and nothing let in behind it;
T5 no answer and no certain answer are not success: the same verdict is asked for again, then UNKNOWN;
T6 a verdict goes from commit to abort on version 2 only, and never back; T7 nothing begins before the last outcome is known;
T8 version 1 renews the epoch behind whatever may come late, and never inside a transaction;
T9 version 2 believes only EndTxn and InitProducerId that it is fenced; version 1 cannot tell a fence from a timeout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, assert_never

from aiokprod.transactions.machine_actions import (
    NO_ANSWER,
    Action,
    Cause,
    Closed,
    Codes,
    CommitRefused,
    Ended,
    Entrance,
    FailPartition,
    FailQueued,
    Flush,
    ForgetCoordinator,
    Initialised,
    InitialiseFailed,
    LostId,
    Mode,
    OffsetsDone,
    Outcome,
    Partition,
    Reason,
    Refusal,
    Release,
    SendAddOffsets,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendTxnOffsetCommit,
    State,
    TakeIdentity,
    TimeoutNear,
    Verdict,
    WakeAt,
)
from aiokprod.transactions.machine_codes import Judgement, Kind, Request, judge
from aiokprod.transactions.machine_jobs import NEW_ID, EndJob, InitJob, Job, OffsetsJob, Work
from aiokprod.wire.codes import ErrorCode

NEAR: Final = 0.9
"""The part of the transaction timeout after which `TimeoutNear` is told."""
ENDING: Final = frozenset({State.COMMITTING, State.ABORTING})
LOST: Final = frozenset({State.FENCED, State.FAILED})
J = TypeVar("J", bound=Job)


class TransactionMachine:
    """The state of a transactional id, of its identity (producer id, epoch) and of the transaction at hand.

    Args:
        retry_delay: seconds before the next attempt after n failures in a row, jitter included.
        concurrent_delay: the same after CONCURRENT_TRANSACTIONS, which passes in some 20 ms.
        transaction_timeout_s: what InitProducerId announced; only for `TimeoutNear`.
    """

    def __init__(
        self,
        *,
        retry_delay: Callable[[int], float],
        concurrent_delay: Callable[[int], float],
        transaction_timeout_s: float,
    ) -> None:
        self.state = State.UNINITIALISED
        self.identity: tuple[int, int] | None = None  # as handed out by the last TakeIdentity
        self.mode = Mode.VERSION_1  # of the transaction at hand, or the last one
        self.transaction = 0  # its number: 1 for the first one
        # Why ABORTABLE, UNKNOWN, FENCED or FAILED; in ABORTING and behind it why the transaction could only be aborted.
        self.cause: Cause | None = None
        self.outcome: Outcome | None = None  # of the transaction at hand or the last one; None: not known yet
        self._retry_delay = retry_delay
        self._concurrent_delay = concurrent_delay
        self._near_s = transaction_timeout_s * NEAR
        self._tickets = 0
        self._numbers = 0
        self._asked: dict[int, Job] = {}  # attempts that wait for an answer
        self._work = Work()
        self._init: InitJob | None = None  # the id is taken over (INITIALISING), or the epoch renewed (after version 1)
        self._next: tuple[int, int] | None = None  # an identity that is not taken yet
        self._undrained: int | None = None  # a transaction of which something stamped may be in flight
        self._deadline = 0.0  # of INITIALISING, COMMITTING, ABORTING
        self._close_deadline: float | None = None
        self._is_closed = False
        self._wake: float | None = None  # the last WakeAt
        self._out: list[Action] = []

    # ------------------------------------------------------------------ user calls
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
        refusal = self._why_not(State.OPEN, State.COMMITTING)
        if refusal is not None:
            return refusal
        if self.state is State.COMMITTING:
            self._deadline = max(self._deadline, deadline)
            return self._go_on(now)
        self.state = State.COMMITTING
        self._deadline = deadline
        self._out.append(Flush(self.transaction))
        return self._go_on(now)

    def abort(self, now: float, deadline: float) -> list[Action] | Refusal:
        """Abort, or go on asking in UNKNOWN. `Ended` follows. In ABORTING it joins (no actions).

        In UNKNOWN behind a commit the outcome may be COMMITTED: on version 2 if that was done, on version 1 always (T6).
        """
        if self.state is State.UNKNOWN and self._close_deadline is None:
            # T6: an abort answers for itself only on version 2. On version 1 a late AddPartitionsToTxn may have opened another
            # transaction in the same epoch behind a commit that was done, and the abort of that one would succeed.
            asked = self._unknown_verdict()
            return self._ask_on(Verdict.ABORT if self.mode is Mode.VERSION_2 else asked, now, deadline)
        refusal = self._why_not(State.OPEN, State.ABORTABLE, State.ABORTING)
        if refusal is not None:
            return refusal
        if self.state is State.ABORTING:
            self._deadline = max(self._deadline, deadline)
            return self._go_on(now)
        self._start_abort(deadline)
        return self._go_on(now)

    def close(self, now: float, deadline: float) -> list[Action]:
        """End what is open, by the deadline at the latest; `Closed` follows. All other user calls are refused from now on."""
        if self._close_deadline is not None:
            self._close_deadline = self._deadline = min(self._close_deadline, deadline)
            return self._go_on(now)
        self._close_deadline = deadline
        state = self.state
        if state is State.INITIALISING:
            self._stop_initialising(Cause(Reason.CLOSED))
        elif state is State.OPEN or state is State.ABORTABLE:
            self._start_abort(deadline)
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

    # ------------------------------------------------------------------ answers
    def init_answered(self, ticket: int, code: int, producer_id: int, epoch: int, now: float) -> list[Action]:
        """Take the answer to InitProducerId."""
        job = self._landed(ticket, InitJob)
        if job is None:
            return []
        judgement = judge(Request.INIT_PRODUCER_ID, code)
        kind = judgement.kind
        if kind is Kind.DONE and _is_after((producer_id, epoch), job.current):
            self._init = None
            self._next = (producer_id, epoch)
            if self.state is State.INITIALISING:
                self._initialised()
        elif kind is Kind.FENCED:
            self._lose(State.FENCED, Cause(Reason.FENCED, code) if job.current == NEW_ID else self._fence(code))
        elif kind is Kind.FATAL:
            self._lose(State.FAILED, Cause(judgement.reason, code))
        else:
            self._retry(job, kind, None, now)
        return self._go_on(now)

    def partitions_added(self, ticket: int, codes: Codes, now: float) -> list[Action]:
        """Take the answer to AddPartitionsToTxn: a partition that is missing in `codes` counts as not answered."""
        adds = self._landed(ticket, type(self._work.adds))
        if adds is None:
            return []
        found = {p: codes.get(p, NO_ANSWER) for p in adds.asked}
        judged = {p: judge(Request.ADD_PARTITIONS, code) for p, code in found.items()}
        added = tuple(p for p, judgement in judged.items() if judgement.kind is Kind.DONE)
        if added and self._is_open():
            adds.take(added)
            self._work.is_stamped = True
            self._out.append(Release(added))
        self._judge_partitions(found, judged, now)
        return self._go_on(now)

    def offsets_added(self, ticket: int, code: int, now: float) -> list[Action]:
        """Take the answer to AddOffsetsToTxn."""
        job = self._landed(ticket, OffsetsJob)
        if job is None:
            return []
        judgement = judge(Request.ADD_OFFSETS, code)
        if judgement.kind is Kind.DONE:
            self._work.groups.add(job.group)
            job.start_again()
        else:
            self._offsets_failed(job, judgement, code, None, now)
        return self._go_on(now)

    def offsets_committed(self, ticket: int, codes: Codes, now: float) -> list[Action]:
        """Take the answer to TxnOffsetCommit. Give every partition that was asked for: NO_ANSWER if the answer has no entry."""
        job = self._landed(ticket, OffsetsJob)
        if job is None:
            return []
        # The worst decides: offsets are in the transaction all together or not at all.
        code = min(codes.values(), key=_offset_order, default=NO_ANSWER)
        judgement = judge(Request.OFFSET_COMMIT, code)
        if judgement.kind is Kind.DONE:
            if self._is_open():
                self._work.offsets.remove(job)
                self._out.append(OffsetsDone(job.number, None))
        else:
            self._offsets_failed(job, judgement, code, job.group, now)
        return self._go_on(now)

    def end_answered(self, ticket: int, code: int, producer_id: int, epoch: int, now: float) -> list[Action]:
        """Take the answer to EndTxn; v4 has no identity: -1, -1."""
        job = self._landed(ticket, EndJob)
        if job is None:
            return []
        judgement = judge(Request.END, code)
        kind = judgement.kind
        if kind is Kind.DONE:
            self._ended(job.verdict, (producer_id, epoch))
        elif kind is Kind.STATE:
            self._ended_otherwise(job, code, now)
        elif kind is Kind.ABORTABLE and job.verdict is Verdict.COMMIT and not self._work.commit_may_be_done:
            self._make_abortable(Cause(judgement.reason, code))
        elif kind is Kind.FENCED:
            self._lose(State.FENCED, self._fence(code))
        elif kind is Kind.FATAL:
            self._lose(State.FAILED, Cause(judgement.reason, code))
        else:
            # T5: also after an error the verdict may have been taken: a coordinator that answers 15 or 16 has perhaps
            # written it, and its successor carries it out.
            self._not_certain(job)
            self._retry(job, kind, None, now)
        return self._go_on(now)

    def lost(self, ticket: int, written: bool, now: float) -> list[Action]:
        """Note that a request will have no answer (connection ended, silence, answer not readable).

        `written` False: not one byte of it left; only then it is certain that no broker will act on it. A coordinator that
        could not be found or dialled counts as not written. Tickets that are not waited for any more are ignored everywhere.
        """
        job = self._landed(ticket, Job)
        if job is None:
            return []
        if written:
            self._may_come_late(job)
        group = job.group if isinstance(job, OffsetsJob) and not job.is_adding else None
        # A dead coordinator is still named for seconds; the one that is found may be it again (broker: 10.11).
        self._retry(job, Kind.MOVED, group, now)
        return self._go_on(now)

    def tick(self, now: float) -> list[Action]:
        """Take the steps that are due."""
        if self.state is State.INITIALISING and now >= self._deadline:
            self._stop_initialising(Cause(Reason.DEADLINE))
        while (
            self.state in ENDING and now >= self._deadline
        ):  # a commit that is closed is aborted: no time is left for that
            self._stop_ending()
        opened_at = self._work.opened_at
        if opened_at is not None and now >= opened_at + self._near_s and self._is_open() and not self._work.is_warned:
            self._work.is_warned = True
            self._out.append(TimeoutNear(self.transaction, now - opened_at))
        return self._go_on(now)

    # ------------------------------------------------------------------ what may be asked for now
    def _go_on(self, now: float) -> list[Action]:
        """Take the next steps that the state allows, and return the actions of this event."""
        self._take_identity(now)
        if self._init is not None and self._init.may_ask(now) and self.state is not State.UNINITIALISED:
            self._ask_identity(self._init)
        if self._is_open() and self._may_stamp():
            self._ask_for_partitions(now)
            self._ask_for_offsets(now)
        if self.state is State.COMMITTING:
            self._go_on_committing()
        elif self.state is State.ABORTING:
            self._go_on_aborting()
        end = self._work.end
        if self.state in ENDING and end is not None and end.may_ask(now):
            producer_id, epoch = self._identity()
            self._out.append(SendEndTxn(self._ticket(end), self.mode, producer_id, epoch, end.verdict))
        self._close_up()
        self._set_wake(now)
        out, self._out = self._out, []
        return out

    def _take_identity(self, now: float) -> None:
        # T1: a batch with the former epoch that is still in flight would be fenced by the new one, or fall into the next
        # transaction (version 1, broker: 10.4d).
        if self._next is None or self._undrained is not None or self.state is State.UNINITIALISED:
            return
        self.identity, self._next = self._next, None
        self._out.append(TakeIdentity(*self.identity))
        if self._is_open() and self.mode is Mode.VERSION_2:
            held = self._work.adds.release_all()
            if held:
                self._touch(now, stamped=True)
                self._out.append(Release(held))

    def _ask_identity(self, job: InitJob) -> None:
        self._out.append(SendInitProducerId(self._ticket(job), *job.current))

    def _ask_for_partitions(self, now: float) -> None:
        adds = self._work.adds
        if self.mode is Mode.VERSION_2 or not adds.may_ask(now):
            return
        asked = adds.next(now)
        if asked:
            adds.asked = asked
            self._touch(now, stamped=False)
            self._out.append(SendAddPartitions(self._ticket(adds), *self._identity(), asked))

    def _ask_for_offsets(self, now: float) -> None:
        work = self._work
        if not work.offsets or not work.offsets[0].may_ask(now):
            return
        job = work.offsets[0]
        producer_id, epoch = self._identity()
        self._touch(now, stamped=False)
        ticket = self._ticket(job)
        job.is_adding = self.mode is Mode.VERSION_1 and job.group not in work.groups
        if job.is_adding:
            self._out.append(SendAddOffsets(ticket, producer_id, epoch, job.group))
        else:
            self._out.append(SendTxnOffsetCommit(ticket, self.mode, producer_id, epoch, job.group, job.number))

    def _go_on_committing(self) -> None:
        work = self._work
        # T4: every record is settled, all offsets are taken, no partition is being added.
        if work.end is None and work.flushed and not work.offsets and work.adds.ticket is None:
            if work.is_touched:
                work.end = EndJob(Verdict.COMMIT)
            else:  # T3: a commit of nothing is refused (broker: 10.5)
                self._finish(Outcome.COMMITTED)

    def _go_on_aborting(self) -> None:
        work = self._work
        if work.end is None:
            if not work.is_touched:
                self._finish(Outcome.ABORTED)
            # Version 2: what comes later has an old epoch, and is refused (broker: 10.4d).
            elif self.mode is Mode.VERSION_2 or (self._undrained is None and not self._asked):
                work.end = EndJob(Verdict.ABORT)

    def _close_up(self) -> None:
        """Tell `Closed` once nothing is going on; abort what can only be aborted."""
        if self._close_deadline is None or self._is_closed or self.state in ENDING:
            return
        self._is_closed = True
        self._init = None
        self._asked.clear()
        self._out.append(Closed())

    def _set_wake(self, now: float) -> None:
        times: list[float] = []
        jobs: list[Job | None] = [] if self.state is State.UNINITIALISED else [self._init]
        work = self._work
        if self._is_open():
            jobs += [work.adds, work.offsets[0] if work.offsets else None]
            if work.adds.waiting and work.adds.ticket is None and self._may_stamp():
                times.append(work.adds.unknown_not_before)
            if work.opened_at is not None and not work.is_warned:
                times.append(work.opened_at + self._near_s)
        if self.state in ENDING:
            jobs.append(work.end)
        times += [job.not_before for job in jobs if job is not None and job.ticket is None]
        times = [time for time in times if time > now]
        if self.state is State.INITIALISING or self.state in ENDING:
            times.append(self._deadline)
        at = min(times, default=None)
        if at is not None and at != self._wake:
            self._out.append(WakeAt(at))
        self._wake = at

    # ------------------------------------------------------------------ the course of a transaction
    def _why_not(self, *states: State) -> Refusal | None:
        """Return why a user's call that needs one of these states is refused."""
        if self._close_deadline is not None:
            return Refusal.CLOSED
        return None if self.state in states else _refusal_in(self.state)

    def _is_open(self) -> bool:
        """Return whether records and offsets can still become part of the transaction."""
        return self.state is State.OPEN or (self.state is State.COMMITTING and self._work.end is None)

    def _may_stamp(self) -> bool:
        """Return whether the identity at hand is that of the transaction at hand, for certain."""
        return self._init is None and self._next is None and self._undrained is None

    def _identity(self) -> tuple[int, int]:
        assert self.identity is not None
        return self.identity

    def _touch(self, now: float, *, stamped: bool) -> None:
        work = self._work
        work.is_touched = True
        work.is_stamped |= stamped
        if work.opened_at is None:
            work.opened_at = now

    def _make_abortable(self, cause: Cause) -> None:
        was = self.state
        self.state = State.ABORTABLE
        self.cause = cause
        self._give_up_rest(cause)
        if was is State.COMMITTING:
            self._out.append(CommitRefused(self.transaction, cause))
            if self._close_deadline is not None:
                self._start_abort(self._close_deadline)

    def _give_up_rest(self, cause: Cause) -> None:
        """Fail what is queued of the transaction: records and offsets."""
        work = self._work
        work.end = None
        for job in work.offsets:
            self._out.append(OffsetsDone(job.number, cause))
        work.offsets.clear()
        work.adds.waiting.clear()
        work.adds.gathering.clear()
        if not work.flushed:
            if work.is_stamped:
                self._undrained = self.transaction
            self._out.append(FailQueued(self.transaction, cause))

    def _start_abort(self, deadline: float) -> None:
        if self.state is State.OPEN:
            self._give_up_rest(Cause(Reason.ASKED if self._close_deadline is None else Reason.CLOSED))
        self.state = State.ABORTING
        self._deadline = deadline

    def _unknown_verdict(self) -> Verdict:
        """Return which end is asked for in UNKNOWN."""
        end = self._work.end
        return Verdict.ABORT if end is None else end.verdict

    def _ask_on(self, verdict: Verdict, now: float, deadline: float) -> list[Action]:
        self._resume(verdict, deadline)
        return self._go_on(now)

    def _resume(self, verdict: Verdict, deadline: float) -> None:
        """Leave UNKNOWN and ask for the end again, at once."""
        self.state = State.COMMITTING if verdict is Verdict.COMMIT else State.ABORTING
        self.cause = None if verdict is Verdict.COMMIT else self.cause
        self.outcome = None
        self._deadline = deadline
        if self._work.end is not None:
            self._work.end = EndJob(verdict)

    def _finish(self, outcome: Outcome) -> None:
        """Tell the outcome, which is known now: the next transaction may begin."""
        work = self._work
        self.state = State.READY
        self.outcome = outcome
        work.end = None
        # Version 2 does not wait for the answers of what it aborts. A renewal of the epoch is no part of the transaction: an
        # empty one may end while it is asked for, and without its ticket it would never be answered.
        self._asked = {ticket: job for ticket, job in self._asked.items() if isinstance(job, InitJob)}
        self._out.append(Ended(self.transaction, outcome, self.cause or Cause(Reason.ASKED)))
        # T8. After an abort also because the sequences of what failed cannot be used again in this epoch.
        stale = work.is_haunted or (outcome is Outcome.ABORTED and work.is_stamped)
        if self.mode is Mode.VERSION_1 and work.is_touched and stale and self._close_deadline is None:
            self._init = InitJob(self._identity())

    def _ended(self, verdict: Verdict, identity: tuple[int, int]) -> None:
        """Take the success of an EndTxn."""
        self._finish(Outcome.COMMITTED if verdict is Verdict.COMMIT else Outcome.ABORTED)
        if self.mode is Mode.VERSION_2:
            if _is_after(identity, self._identity()):
                self._next = identity  # the epoch after, or a new producer id (broker: 9.10; faults: X19)
            else:  # a broken broker: the epoch can be had otherwise (broker: 10.7)
                self._init = InitJob(self._identity())

    def _ended_otherwise(self, job: EndJob, code: int, now: float) -> None:
        """Take INVALID_TXN_STATE: the verdict asked for is not, and will not be, what happened."""
        work = self._work
        if job.verdict is Verdict.COMMIT:
            # Not committed: an EndTxn(commit) that had been done is answered with success (broker: 10.4, 10.7).
            work.commit_may_be_done = False
            self._make_abortable(Cause(Reason.TIMED_OUT, code))
        elif work.commit_may_be_done:
            # Version 2: the commit before it was done (broker: 10.4b). Asking for that again gets the next epoch.
            self._resume(Verdict.COMMIT, self._deadline)
        elif self.mode is Mode.VERSION_1:
            self._finish(Outcome.ABORTED)  # there was nothing to end (broker: 10.5b)
        else:
            # The markers of the transaction before are still being written, with the other verdict: the next epoch was handed
            # out before them. An abort of version 2 is never refused otherwise (broker: 10.5b).
            self._retry(job, Kind.CONCURRENT, None, now)

    def _initialised(self) -> None:
        self.state = State.READY
        self._out.append(Initialised())

    def _stop_initialising(self, cause: Cause) -> None:
        # The attempt that is out is waited for all the same: a second one beside it would take the id from the first, and the
        # answer that comes first would be the fenced one.
        self.state = State.UNINITIALISED
        if self._init is not None and self._init.ticket is None:
            self._init = None
        self._out.append(InitialiseFailed(cause))

    def _stop_ending(self) -> None:
        """Stop asking for the end: the caller's time is up."""
        work = self._work
        cause = Cause(Reason.DEADLINE)
        end = work.end
        if self.state is State.COMMITTING and (end is None or (end.ticket is None and not work.commit_may_be_done)):
            self._make_abortable(cause)  # nothing was asked for that could have been done
            return
        if end is not None and end.ticket is not None:
            self._may_come_late(end)
            self._asked.pop(end.ticket)
            end.ticket = None
        self.state = State.UNKNOWN
        self.cause = self.cause or cause
        self.outcome = Outcome.UNKNOWN
        self._out.append(Ended(self.transaction, Outcome.UNKNOWN, cause))

    def _fence(self, code: int) -> Cause:
        # T9
        return Cause(Reason.FENCED if self.mode is Mode.VERSION_2 else Reason.FENCED_OR_TIMED_OUT, code)

    def _lose(self, state: State, cause: Cause) -> None:
        """End everything, in FENCED or FAILED."""
        was = self.state
        self.state = state
        self.cause = cause
        self._init = self._next = None
        self._asked.clear()
        if was is State.INITIALISING:
            self._out.append(InitialiseFailed(cause))
        elif was is not State.READY:
            # Without a commit that may have been done nothing will ever commit it: the next owner of the id or the
            # coordinator's timeout aborts it.
            self.outcome = Outcome.UNKNOWN if self._work.commit_may_be_done else Outcome.ABORTED
            if was is State.OPEN or was is State.COMMITTING:
                self._give_up_rest(cause)
            if was in ENDING:
                self._out.append(Ended(self.transaction, self.outcome, cause))
        self._out.append(LostId(cause))

    # ------------------------------------------------------------------ attempts
    def _ticket(self, job: Job) -> int:
        self._tickets += 1
        job.ticket = self._tickets
        self._asked[self._tickets] = job
        return self._tickets

    def _landed(self, ticket: int, kind: type[J]) -> J | None:
        """Return the job whose attempt this is, if it is waited for."""
        job = self._asked.get(ticket)
        if not isinstance(job, kind):
            return None
        del self._asked[ticket]
        job.ticket = None
        return job

    def _retry(self, job: Job, kind: Kind, group: str | None, now: float) -> None:
        if kind is Kind.MOVED:
            self._out.append(ForgetCoordinator(group))
        delay = self._concurrent_delay if kind is Kind.CONCURRENT else self._retry_delay
        job.failed(now, delay(job.failures + 1))

    def _may_come_late(self, job: Job) -> None:
        if not isinstance(job, InitJob):
            self._work.is_haunted = True
        if isinstance(job, EndJob):
            self._not_certain(job)

    def _not_certain(self, job: EndJob) -> None:
        self._work.commit_may_be_done |= job.verdict is Verdict.COMMIT

    def _judge_partitions(self, found: dict[Partition, int], judged: dict[Partition, Judgement], now: float) -> None:
        adds = self._work.adds
        kinds = {judgement.kind for judgement in judged.values()}
        for p, judgement in judged.items():
            code = found[p]
            if judgement.kind is Kind.FENCED and self.state not in LOST:
                self._lose(State.FENCED, self._fence(code))
            elif judgement.kind is Kind.FATAL and self.state not in LOST:
                self._lose(State.FAILED, Cause(judgement.reason, code))
        if not self._is_open():
            return
        for p, judgement in judged.items():
            if judgement.kind is Kind.APART:
                adds.unknown.discard(p)
            elif judgement.kind is Kind.UNKNOWN_PARTITION:
                adds.unknown.add(p)
        bad = [p for p, judgement in judged.items() if judgement.kind is Kind.ABORTABLE]
        if bad:
            for p in bad:
                self._out.append(FailPartition(p, found[p]))
            self._make_abortable(Cause(Reason.PARTITION_REFUSED, found[bad[0]]))
        elif kinds <= {Kind.DONE, Kind.APART, Kind.UNKNOWN_PARTITION}:
            if Kind.UNKNOWN_PARTITION in kinds:
                adds.failures += 1
                adds.unknown_not_before = now + self._retry_delay(adds.failures)
            elif Kind.APART in kinds:  # a broker that attempts nothing and names no bad one
                self._retry(adds, Kind.AGAIN, None, now)
            else:
                adds.start_again()
        else:
            hardest = next(kind for kind in (Kind.MOVED, Kind.CONCURRENT, Kind.AGAIN) if kind in kinds)
            self._retry(adds, hardest, None, now)

    def _offsets_failed(self, job: OffsetsJob, judgement: Judgement, code: int, group: str | None, now: float) -> None:
        kind = judgement.kind
        if kind is Kind.FENCED and self.mode is Mode.VERSION_1:
            self._lose(State.FENCED, self._fence(code))
        elif kind is Kind.FATAL:
            self._lose(State.FAILED, Cause(judgement.reason, code))
        elif kind is Kind.FENCED or kind is Kind.ABORTABLE:
            # T9: version 2 finds out by EndTxn(abort) whether it is a fence.
            if self._is_open():
                reason = judgement.reason if kind is Kind.ABORTABLE else Reason.OFFSETS_REFUSED
                self._make_abortable(Cause(reason, code))
        else:
            self._retry(job, kind, group, now)


_OFFSET_ORDER: Final = (Kind.FENCED, Kind.FATAL, Kind.ABORTABLE, Kind.MOVED, Kind.CONCURRENT, Kind.AGAIN, Kind.DONE)


def _offset_order(code: int) -> int:
    return _OFFSET_ORDER.index(judge(Request.OFFSET_COMMIT, code).kind)


def _is_after(identity: tuple[int, int], former: tuple[int, int]) -> bool:
    """Return whether an identity of an answer may follow this one.

    In the former epoch, or in one before it, a partition has the sequences from 0 on already: it would answer the batches of
    the next transaction as duplicates, without keeping them, and the coordinator the EndTxn as a repetition.
    """
    producer_id, epoch = identity
    return producer_id >= 0 and epoch >= 0 and (producer_id != former[0] or epoch > former[1])


def _refusal_in(state: State) -> Refusal:
    """Return why a call is refused that means nothing in this state."""
    match state:
        case State.UNINITIALISED | State.INITIALISING:
            return Refusal.NOT_INITIALISED
        case State.READY:
            return Refusal.NOT_IN_TRANSACTION
        case State.OPEN:
            return Refusal.IN_TRANSACTION
        case State.ABORTABLE:
            return Refusal.ABORTABLE
        case State.COMMITTING:
            return Refusal.COMMITTING
        case State.ABORTING:
            return Refusal.ABORTING
        case State.UNKNOWN:
            return Refusal.UNKNOWN
        case State.FENCED:
            return Refusal.FENCED
        case State.FAILED:
            return Refusal.FAILED
        case _:
            assert_never(state)
