"""`TransactionSteps`: what a transactional id may ask for now, in the state it has.

Behind each event `_go_on` looks at the state as it is, takes the steps that are due (identity, partitions, offsets, ends), and
says when it wants to be woken.
"""

from __future__ import annotations

from aiokprod.transactions.machine_actions import (
    Action,
    AskMarkers,
    Cause,
    Closed,
    Mode,
    Outcome,
    Prepared,
    Reason,
    Release,
    SendAddOffsets,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendTxnOffsetCommit,
    State,
    TakeIdentity,
    Verdict,
    WakeAt,
)
from aiokprod.transactions.machine_course import ENDING, TransactionCourse
from aiokprod.transactions.machine_jobs import EndJob, InitJob, Job


class TransactionSteps(TransactionCourse):
    """The requests that are due, and the time of the next one."""

    def _go_on(self, now: float) -> list[Action]:
        """Take the next steps that the state allows, and return the actions of this event."""
        self._take_identity(now)
        if self._init is not None and self._init.may_ask(now) and self.state is not State.UNINITIALISED:
            self._ask_identity(self._init)
        if self._is_open():
            self._ask_for_markers(now)
        if self._is_open() and self._may_stamp():
            self._ask_for_partitions(now)
            self._ask_for_offsets(now)
        if self.state is State.COMMITTING:
            self._go_on_committing()
        elif self._is_ending():
            self._go_on_aborting()
        end = self._work.end
        if self._is_ending() and end is not None and end.may_ask(now):
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
        if self._markers is not None and self.state is not State.READY:
            return  # held since begin
        self.identity, self._next = self._next, None
        self._is_used_below_2 = False
        self._out.append(TakeIdentity(*self.identity))
        if self._is_open() and self.mode is Mode.VERSION_2:
            held = self._work.adds.release_all()
            if held:
                self._touch(now, stamped=True)
                self._out.append(Release(held))

    def _ask_identity(self, job: InitJob) -> None:
        self._out.append(SendInitProducerId(self._ticket(job), *job.current))

    def _ask_for_markers(self, now: float) -> None:
        # A copy that comes late acts on nothing: within the next transaction it is fenced (broker: 10.4c).
        markers = self._markers
        if markers is not None and markers.may_ask(now):
            self._out.append(AskMarkers(self._ticket(markers), *markers.former, markers.verdict))

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
        if work.end is None and work.flushed and not work.offsets and work.adds.ticket is None and not work.is_gone:
            if work.is_preparing and work.may_open_again:
                # T6: behind the end by one process the same epoch could be open again, and the other verdict of another
                # process would succeed there.
                self._make_abortable(Cause(Reason.MAY_OPEN_AGAIN))
            elif work.is_preparing:
                self._prepared()
            elif work.is_touched:
                work.end = EndJob(Verdict.COMMIT)
            else:  # T3: a commit of nothing is refused (broker: 10.5)
                self._finish(Outcome.COMMITTED)

    def _prepared(self) -> None:
        """Leave the end to others."""
        self.state = State.PREPARED
        work = self._work
        if work.is_touched:
            # From now on another process may commit it at any time (T5), and repeat that late, which on version 1 would act on
            # the next transaction in this epoch (T8; broker: 10.4c, 11.1).
            work.commit_may_be_done = work.is_haunted = True
        self._out.append(Prepared(self.transaction))

    def _go_on_aborting(self) -> None:
        work = self._work
        if work.end is None and not work.is_gone:
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
        self._init = self._markers = None
        self._asked.clear()
        self._out.append(Closed())

    def _set_wake(self, now: float) -> None:
        times: list[float] = []
        jobs: list[Job | None] = [] if self.state is State.UNINITIALISED else [self._init]
        work = self._work
        if self._is_open():
            jobs += [self._markers, work.adds, work.offsets[0] if work.offsets else None]
            if work.adds.waiting and work.adds.ticket is None and self._may_stamp():
                times.append(work.adds.unknown_not_before)
        if work.opened_at is not None and not work.is_warned and self._may_time_out():
            times.append(work.opened_at + self._near_s)
        if self._is_ending():
            jobs.append(work.end)
        times += [job.not_before for job in jobs if job is not None and job.ticket is None]
        times = [time for time in times if time > now]
        if self.state is State.INITIALISING or self.state in ENDING:
            times.append(self._deadline)
        at = min(times, default=None)
        if at is not None and at != self._wake:
            self._out.append(WakeAt(at))
        self._wake = at

    def _ask_on(self, verdict: Verdict, now: float, deadline: float) -> list[Action]:
        self._resume(verdict, deadline)
        return self._go_on(now)
