"""`TransactionCourse`: the state of a transactional id, its transitions, and the attempts at requests.

The lowest part of the `TransactionMachine`: what is true, and what a transition changes. A transition only notes actions in
`_out`; `TransactionSteps._go_on` returns them, and finds out what may be asked for then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, assert_never

from aiokprod.transactions.machine_actions import (
    Action,
    Cause,
    CommitRefused,
    Ended,
    FailQueued,
    ForgetCoordinator,
    FoundOut,
    Initialised,
    InitialiseFailed,
    LostId,
    Mode,
    OffsetsDone,
    Outcome,
    Reason,
    Refusal,
    State,
    Verdict,
)
from aiokprod.transactions.machine_codes import Kind
from aiokprod.transactions.machine_jobs import (
    MARKERS_S,
    MOST_CONTRADICTIONS,
    AddJob,
    EndJob,
    InitJob,
    Job,
    MarkersJob,
    OffsetsJob,
    Work,
)
from aiokprod.wire.codes import ErrorCode

NEAR: Final = 0.9
"""The part of the transaction timeout after which `TimeoutNear` is told."""
ENDING: Final = frozenset({State.COMMITTING, State.ABORTING})
UNENDED: Final = ENDING | {State.OPEN, State.ABORTABLE, State.UNKNOWN}
"""States with a transaction that this producer has to end."""
J = TypeVar("J", bound=Job)


class TransactionCourse:
    """The state of a transactional id, of its identity (producer id, epoch) and of the transaction at hand.

    Args: those of `TransactionMachine`.
    """

    def __init__(
        self,
        *,
        retry_delay: Callable[[int], float],
        concurrent_delay: Callable[[int], float],
        transaction_timeout_s: float,
        markers_s: float = MARKERS_S,
        transaction: int = 0,
    ) -> None:
        # Annotated where a subclass assigns it too.
        self.state: State = State.UNINITIALISED
        self.identity: tuple[int, int] | None = None  # as handed out by the last TakeIdentity
        self.mode: Mode = Mode.VERSION_1  # of the transaction at hand, or the last one
        self.transaction: int = transaction  # its number: 1 for the first one
        # Why ABORTABLE, UNKNOWN, FENCED or FAILED; in ABORTING and behind it why the transaction could only be aborted.
        self.cause: Cause | None = None
        self.outcome: Outcome | None = None  # of the transaction at hand or the last one; None: not known yet
        self._retry_delay = retry_delay
        self._concurrent_delay = concurrent_delay
        self._near_s = transaction_timeout_s * NEAR
        self._markers_s = markers_s
        self._tickets: int = 0
        self._numbers: int = 0
        self._asked: dict[int, Job] = {}  # attempts that wait for an answer
        self._work: Work = Work()
        self._init: InitJob | None = None  # the id is taken over (INITIALISING), or the epoch renewed (after version 1)
        self._next: tuple[int, int] | None = None  # an identity that is not taken yet
        self._is_used_below_2: bool = False  # the identity: a transaction of version 1 may have its markers yet to come
        self._markers: MarkersJob | None = None  # of the last transaction (version 2): they may not be written yet
        self._undrained: int | None = None  # a transaction of which something stamped may be in flight
        self._deadline: float = 0.0  # of INITIALISING, COMMITTING, ABORTING
        self._close_deadline: float | None = None
        self._is_closed: bool = False
        self._was_lost_inside: bool = False  # the id, in a transaction
        self._wake: float | None = None  # the last WakeAt
        self._out: list[Action] = []

    # ------------------------------------------------------------------ the course of a transaction
    def _why_not(self, *states: State) -> Refusal | None:
        """Return why a user's call that needs one of these states is refused."""
        if self._close_deadline is not None:
            return Refusal.CLOSED
        return None if self.state in states else _refusal_in(self.state)

    def _is_open(self) -> bool:
        """Return whether records and offsets can still become part of the transaction."""
        return self.state is State.OPEN or (self.state is State.COMMITTING and self._work.end is None)

    def _may_time_out(self) -> bool:
        """Return whether the coordinator's timeout would abort what is not to be aborted."""
        return self.state is State.OPEN or self.state is State.COMMITTING

    def _may_stamp(self) -> bool:
        """Return whether the identity at hand is that of the transaction at hand, for certain."""
        return self._init is None and self._next is None and self._undrained is None

    def _is_ending(self) -> bool:
        """Return whether an end is asked for: of a caller, or of a transaction whose abort has no answer yet."""
        if self.state is State.UNKNOWN:
            return self._work.goes_on and self._close_deadline is None
        return self.state in ENDING

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
        was_open = self.state is State.OPEN
        self.state = State.ABORTING  # first: what a finalizer sends in the lines below may not be stamped any more
        if was_open:
            self._give_up_rest(Cause(Reason.ASKED if self._close_deadline is None else Reason.CLOSED))
        self._work.goes_on = True
        self._deadline = deadline

    def _unknown_verdict(self) -> Verdict:
        """Return which end is asked for in UNKNOWN."""
        end = self._work.end
        return Verdict.ABORT if end is None else end.verdict

    def _resume(self, verdict: Verdict, deadline: float) -> None:
        """Leave UNKNOWN and ask for the end again, at once."""
        self.state = State.COMMITTING if verdict is Verdict.COMMIT else State.ABORTING
        self.cause = None if verdict is Verdict.COMMIT else self.cause
        self.outcome = None
        self._deadline = deadline
        self._work.goes_on |= verdict is Verdict.ABORT
        self._ask_for(verdict)

    def _ask_for(self, verdict: Verdict) -> None:
        """Ask for the end again, at once; an attempt at the same one that is out is waited for."""
        end = self._work.end
        if end is not None and end.verdict is verdict and end.ticket is not None:
            end.start_again()
        elif end is not None:
            self._work.end = EndJob(verdict)

    def _finish(self, outcome: Outcome) -> None:
        """Tell the outcome, which is known now: the next transaction may begin."""
        work = self._work
        tell = FoundOut if self.state is State.UNKNOWN else Ended
        self.state = State.READY
        self.outcome = outcome
        work.end = None
        # Version 2 does not wait for the answers of what it aborts. A renewal of the epoch is no part of the transaction: an
        # empty one may end while it is asked for, and without its ticket it would never be answered. The same with markers.
        self._asked = {ticket: job for ticket, job in self._asked.items() if isinstance(job, InitJob | MarkersJob)}
        self._out.append(tell(self.transaction, outcome, self.cause or Cause(Reason.ASKED)))
        self._is_used_below_2 |= self.mode is Mode.VERSION_1 and work.is_touched
        # T8. After an abort also because the sequences of what failed cannot be used again in this epoch.
        stale = work.is_haunted or (outcome is Outcome.ABORTED and work.is_stamped)
        if self.mode is Mode.VERSION_1 and work.is_touched and stale and self._close_deadline is None:
            self._init = InitJob(self._identity())

    def _ended(self, verdict: Verdict, identity: tuple[int, int]) -> None:
        """Take the success of an EndTxn."""
        self._finish(Outcome.COMMITTED if verdict is Verdict.COMMIT else Outcome.ABORTED)
        if self.mode is Mode.VERSION_2:
            if is_after(identity, self._identity()):
                self._next = identity  # the epoch after, or a new producer id (broker: 9.10; faults: X19)
            else:  # a broken broker: the epoch can be had otherwise (broker: 10.7)
                self._init = InitJob(self._identity())

    def _ended_otherwise(self, job: EndJob, code: int, now: float) -> None:
        """Take INVALID_TXN_STATE: the verdict asked for is not, and will not be, what happened."""
        work = self._work
        if job.verdict is Verdict.COMMIT:
            # Not committed: an EndTxn(commit) that had been done is answered with success (broker: 10.4, 10.7).
            work.commit_may_be_done, work.commit_was_refused = False, True
            if self.state is State.UNKNOWN:
                self.cause = Cause(Reason.TIMED_OUT, code)
                self._ask_for(Verdict.ABORT)
            else:
                self._make_abortable(Cause(Reason.TIMED_OUT, code))
        elif work.commit_may_be_done:
            # Version 2: the commit before it was done (broker: 10.4b). Asking for that again gets the next epoch.
            if self.state is State.UNKNOWN:
                self._ask_for(Verdict.COMMIT)
            else:
                self._resume(Verdict.COMMIT, self._deadline)
        elif self.mode is Mode.VERSION_1:
            self._finish(Outcome.ABORTED)  # there was nothing to end (broker: 10.5b)
        elif work.commit_was_refused and job.failures >= MOST_CONTRADICTIONS:
            self._lose(State.FAILED, Cause(Reason.UNUSABLE, code))
        else:
            # The markers of the transaction before are still being written, with the other verdict: the next epoch was handed
            # out before them. An abort of version 2 is never refused otherwise (broker: 10.5b).
            self._retry(job, Kind.CONCURRENT, None, now)

    def _find_owner(self, job: EndJob, cause: Cause) -> None:
        """Take an EndTxn of a producer id that is not the one of the id any more: nothing is open under it."""
        work = self._work
        if job.verdict is Verdict.COMMIT and not work.commit_may_be_done:
            self._make_abortable(cause)
            return
        work.end = None
        work.is_gone = True
        self.cause = self.cause or cause
        # A coordinator that has forgotten the id gives it to this producer again (broker: 9.6); where another instance has it,
        # the answer is a fence (broker: 9.5).
        self._init = InitJob(self._identity())

    def _taken_again(self) -> None:
        """Take in that the id was forgotten, and is this producer's under another identity."""
        work = self._work
        work.is_gone = work.is_touched = False
        if work.commit_may_be_done:
            self._lose(State.FAILED, Cause(Reason.UNUSABLE, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        else:
            self._finish(Outcome.ABORTED)

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
        is_asked = end is not None and end.ticket is not None
        if self.state is State.COMMITTING and not is_asked and not work.commit_may_be_done:
            self._make_abortable(cause)  # nothing was asked for that could have been done
            return
        self.state = State.UNKNOWN
        if end is not None and end.ticket is not None and not self._is_ending():
            self._may_come_late(end)
            self._asked.pop(end.ticket)
            end.ticket = None
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
        self._was_lost_inside = was in UNENDED
        self._init = self._next = self._markers = None
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
        if isinstance(job, AddJob) or (isinstance(job, OffsetsJob) and job.is_adding):
            self._work.may_open_again = True
        if isinstance(job, EndJob):
            self._not_certain(job)

    def _not_certain(self, job: EndJob) -> None:
        self._work.commit_may_be_done |= job.verdict is Verdict.COMMIT


def is_after(identity: tuple[int, int], former: tuple[int, int]) -> bool:
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
        case State.PREPARED:
            return Refusal.PREPARED
        case State.FENCED:
            return Refusal.FENCED
        case State.FAILED:
            return Refusal.FAILED
        case _:
            assert_never(state)
