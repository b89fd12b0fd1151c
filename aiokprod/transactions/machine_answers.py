"""`TransactionAnswers`: what each answer of a coordinator means to the transaction, and what no answer means.

The codes' treatment is in `machine_codes`; here is what follows from it. An answer to a ticket that is not waited for changes
nothing.
"""

from __future__ import annotations

from typing import Final

from aiokprod.transactions.machine_actions import (
    NO_ANSWER,
    Action,
    Cause,
    Codes,
    FailPartition,
    Mode,
    OffsetsDone,
    Partition,
    Reason,
    Release,
    State,
    Verdict,
)
from aiokprod.transactions.machine_codes import Judgement, Kind, Request, judge
from aiokprod.transactions.machine_course import is_after
from aiokprod.transactions.machine_jobs import NEW_ID, EndJob, InitJob, Job, MarkersJob, OffsetsJob
from aiokprod.transactions.machine_steps import TransactionSteps

LOST: Final = frozenset({State.FENCED, State.FAILED})


class TransactionAnswers(TransactionSteps):
    """The events that answer requests."""

    def init_answered(self, ticket: int, code: int, producer_id: int, epoch: int, now: float) -> list[Action]:
        """Take the answer to InitProducerId."""
        job = self._landed(ticket, InitJob)
        if job is None:
            return []
        judgement = judge(Request.INIT_PRODUCER_ID, code)
        kind = judgement.kind
        if kind is Kind.DONE and is_after((producer_id, epoch), job.current):
            self._init = None
            self._next = (producer_id, epoch)
            if self.state is State.INITIALISING:
                self._initialised()
            elif self._work.is_gone:
                self._taken_again()
        elif kind is Kind.FENCED:
            is_certain = job.current == NEW_ID or self._work.is_gone
            self._lose(State.FENCED, Cause(Reason.FENCED, code) if is_certain else self._fence(code))
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
            self._make_abortable(Cause(judged[bad[0]].reason, found[bad[0]]))
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

    def end_answered(self, ticket: int, code: int, producer_id: int, epoch: int, now: float) -> list[Action]:
        """Take the answer to EndTxn; v4 has no identity: -1, -1."""
        job = self._landed(ticket, EndJob)
        if job is None:
            return []
        judgement = judge(Request.END, code)
        kind = judgement.kind
        if kind is Kind.DONE:
            former = self._identity()
            self._ended(job.verdict, (producer_id, epoch))
            if self._next is not None:
                self._markers = MarkersJob(job.verdict, former, now + self._markers_s)
        elif kind is Kind.STATE:
            self._ended_otherwise(job, code, now)
        elif kind is Kind.ABORTABLE and job.verdict is Verdict.COMMIT and not self._work.commit_may_be_done:
            self._make_abortable(Cause(judgement.reason, code))
        elif kind is Kind.GONE:
            self._find_owner(job, Cause(judgement.reason, code))
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

    def markers_answered(self, ticket: int, code: int, now: float) -> list[Action]:
        """Take the answer to `AskMarkers`. What one means that is no "not yet", the next request finds out."""
        if self._landed(ticket, MarkersJob) is None:
            return []
        return self._markers_told(judge(Request.MARKERS, code).kind, now)

    def lost(self, ticket: int, written: bool, now: float) -> list[Action]:
        """Note that a request will have no answer (connection ended, silence, answer not readable).

        `written` False: not one byte of it left; only then it is certain that no broker will act on it. A coordinator that
        could not be found or dialled counts as not written. Tickets that are not waited for any more are ignored everywhere.
        """
        job = self._landed(ticket, Job)
        if job is None:
            return []
        if isinstance(job, MarkersJob):
            return self._markers_told(Kind.DONE, now)
        if written:
            self._may_come_late(job)
        group = job.group if isinstance(job, OffsetsJob) and not job.is_adding else None
        # A dead coordinator is still named for seconds; the one that is found may be it again (broker: 10.11).
        self._retry(job, Kind.MOVED, group, now)
        return self._go_on(now)

    def _markers_told(self, kind: Kind, now: float) -> list[Action]:
        if self._markers is not None and kind is Kind.CONCURRENT:
            self._retry(self._markers, kind, None, now)
        else:
            self._markers = None
        return self._go_on(now)


_OFFSET_ORDER: Final = (Kind.FENCED, Kind.FATAL, Kind.ABORTABLE, Kind.MOVED, Kind.CONCURRENT, Kind.AGAIN, Kind.DONE)


def _offset_order(code: int) -> int:
    return _OFFSET_ORDER.index(judge(Request.OFFSET_COMMIT, code).kind)
