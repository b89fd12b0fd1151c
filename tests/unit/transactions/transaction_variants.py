"""Transaction machines with one rule switched off: what the rule is for. docs/transactions_states.md has the rules."""

from __future__ import annotations

from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import (
    Action,
    Cause,
    CommitRefused,
    Ended,
    Entrance,
    Mode,
    Outcome,
    Partition,
    Reason,
    Refusal,
    Release,
    SendEndTxn,
    State,
    Verdict,
)
from aiokprod.transactions.machine_jobs import EndJob, InitJob, Job


class AnIdentityIsTakenAtOnce(TransactionMachine):
    """A machine with T1 off: it does not wait for what is in flight under the former identity."""

    def _take_identity(self, now: float) -> None:
        self._undrained = None
        super()._take_identity(now)


class APartitionIsForgotten(TransactionMachine):
    """A machine with T2 off: one request adds one partition, and all that waited are let go."""

    def _ask_for_partitions(self, now: float) -> None:
        adds = self._work.adds
        forgotten = tuple(adds.waiting)[1:]
        if self.mode is Mode.VERSION_1 and forgotten and adds.may_ask(now):
            adds.take(forgotten)
            self._out.append(Release(forgotten))
        super()._ask_for_partitions(now)


class AnEmptyTransactionIsEndedByTheCoordinator(TransactionMachine):
    """A machine with T3 off."""

    def _go_on_committing(self) -> None:
        self._work.is_touched = True
        super()._go_on_committing()


class ACommitThoughARecordFailed(TransactionMachine):
    """A machine with T4 off: what failed was told to the record's caller, and is forgotten."""

    def record_failed(self, transaction: int, code: int | None, now: float) -> list[Action]:
        return self._go_on(now)


class ACommitDoesNotWaitForOffsets(TransactionMachine):
    """A machine with T4 off: EndTxn goes while offsets are on their way."""

    def _go_on_committing(self) -> None:
        waiting, self._work.offsets = self._work.offsets, type(self._work.offsets)()
        super()._go_on_committing()
        self._work.offsets = waiting


class RecordsAreLetInWhileCommitting(TransactionMachine):
    """A machine with T4 off."""

    def may_send(self) -> Refusal | None:
        return None if self.state is State.COMMITTING else super().may_send()

    def send_partition(self, partition: Partition, now: float) -> Entrance | Refusal:
        if self.state is State.COMMITTING and self._work.flushed:
            return Entrance.GO
        return super().send_partition(partition, now)


class SilenceIsSuccess(TransactionMachine):
    """A machine with T5 off: an EndTxn that was written is taken for done."""

    def lost(self, ticket: int, written: bool, now: float) -> list[Action]:
        job = self._asked.get(ticket)
        if isinstance(job, EndJob) and written:
            self._landed(ticket, Job)
            self._ended(job.verdict, (-1, -1))
            return self._go_on(now)
        return super().lost(ticket, written, now)


class AnUnknownServerErrorIsSuccess(TransactionMachine):
    """A machine with T5 off: UNKNOWN_SERVER_ERROR of EndTxn."""

    def end_answered(self, ticket: int, code: int, producer_id: int, epoch: int, now: float) -> list[Action]:
        return super().end_answered(ticket, 0 if code == -1 else code, producer_id, epoch, now)


class AnErrorOfEndTxnIsCertain(TransactionMachine):
    """A machine with T5 off: after 15, 7 and -1 it believes that nothing was done."""

    def _retry(self, job: Job, kind: object, group: str | None, now: float) -> None:
        if isinstance(job, EndJob):
            self._work.commit_may_be_done = False
        super()._retry(job, kind, group, now)  # type: ignore[arg-type]


class TheOppositeVerdictIsRetried(TransactionMachine):
    """A machine with T5 off: a commit that was not answered is asked for again as an abort, and told as what was asked."""

    def _go_on(self, now: float) -> list[Action]:
        out = super()._go_on(now)
        end = self._work.end
        if end is None or not self._work.commit_may_be_done:
            return out
        return [a._replace(verdict=Verdict.ABORT) if isinstance(a, SendEndTxn) else a for a in out]


class AnAbortBehindACommitIsBelieved(TransactionMachine):
    """A machine with T5 off: INVALID_TXN_STATE to an abort is taken for "nothing to abort"."""

    def _ended_otherwise(self, job: EndJob, code: int, now: float) -> None:
        if job.verdict is Verdict.ABORT:
            self._ended(Verdict.ABORT, (-1, -1))
        else:
            super()._ended_otherwise(job, code, now)


class ADeadlineIsAnAbort(TransactionMachine):
    """A machine with T5 off: an end without an answer in time is told as aborted."""

    def _stop_ending(self) -> None:
        before = len(self._out)
        super()._stop_ending()
        for index in range(before, len(self._out)):
            action = self._out[index]
            if isinstance(action, Ended):
                self._out[index] = CommitRefused(action.transaction, action.cause)


class AnAbortBecomesACommitAgain(TransactionMachine):
    """A machine with T6 off: commit() after an unknown abort asks for a commit."""

    def commit(self, now: float, deadline: float) -> list[Action] | Refusal:
        if self.state is State.UNKNOWN:
            return self._ask_on(Verdict.COMMIT, now, deadline)
        return super().commit(now, deadline)


class VersionOneAbortsBehindAnUnknownCommit(TransactionMachine):
    """A machine with T6 off: it takes the abort of a transaction that was opened late for its own."""

    def abort(self, now: float, deadline: float) -> list[Action] | Refusal:
        if self.state is State.UNKNOWN:
            return self._ask_on(Verdict.ABORT, now, deadline)
        return super().abort(now, deadline)


class LateMarkersAreFatal(TransactionMachine):
    """A machine with T5 off: INVALID_TXN_STATE to an abort of version 2 is taken for a broken coordinator."""

    def _ended_otherwise(self, job: EndJob, code: int, now: float) -> None:
        if job.verdict is Verdict.ABORT and self.mode is Mode.VERSION_2 and not self._work.commit_may_be_done:
            self._lose(State.FAILED, Cause(Reason.UNUSABLE, code))
        else:
            super()._ended_otherwise(job, code, now)


class ASecondTakeOverBesideTheFirst(TransactionMachine):
    """A machine with T1 off: behind a deadline the id is taken over again while the first attempt is out."""

    def _stop_initialising(self, cause: Cause) -> None:
        super()._stop_initialising(cause)
        self._init = None
        self._asked.clear()


class TheNextBeginsAfterAnUnknownEnd(TransactionMachine):
    """A machine with T7 off."""

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        if self.state is State.UNKNOWN:
            self.state = State.READY
        return super().begin(mode, now)


class VersionOneKeepsItsEpoch(TransactionMachine):
    """A machine with T8 off: nothing is renewed, whatever may come late."""

    def _finish(self, outcome: Outcome) -> None:
        super()._finish(outcome)
        self._init = None


class VersionTwoKeepsTheEpochOfVersionOne(TransactionMachine):
    """A machine with T8 off: where the feature is raised, the markers of the last transaction end the next one."""

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        self._is_used_below_2 = False
        return super().begin(mode, now)


class TheEpochIsRenewedInsideATransaction(TransactionMachine):
    """A machine with T8 off: version 1 gets out of trouble by InitProducerId instead of EndTxn(abort)."""

    def _go_on_aborting(self) -> None:
        if self.mode is Mode.VERSION_1 and self._work.is_touched and self._undrained is None:
            self._finish(Outcome.ABORTED)
            self._init = InitJob(self._identity())
        else:
            super()._go_on_aborting()


class AnOldEpochOfProduceFencesVersionTwo(TransactionMachine):
    """A machine with T9 off: 47 of Produce is believed."""

    def record_failed(self, transaction: int, code: int | None, now: float) -> list[Action]:
        if code == 47 and transaction == self.transaction and self._is_open():
            self._lose(State.FENCED, Cause(Reason.FENCED, code))
        return super().record_failed(transaction, code, now)


class ATimeoutIsAnAbortOnVersionOne(TransactionMachine):
    """A machine with T9 off: 90 behind a commit without an answer is taken for the coordinator's timeout."""

    def _lose(self, state: State, cause: Cause) -> None:
        if self.mode is Mode.VERSION_1 and cause.reason is Reason.FENCED_OR_TIMED_OUT:
            self._work.commit_may_be_done = False
        super()._lose(state, cause)


class VersionTwoEverywhere(TransactionMachine):
    """A machine with T9's mode ignored: what brokers offer decides, not the finalized feature (broker: 10.1)."""

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        return super().begin(Mode.VERSION_2, now)


SAFETY = (
    AnIdentityIsTakenAtOnce,
    APartitionIsForgotten,
    AnEmptyTransactionIsEndedByTheCoordinator,
    ACommitThoughARecordFailed,
    ACommitDoesNotWaitForOffsets,
    RecordsAreLetInWhileCommitting,
    SilenceIsSuccess,
    AnUnknownServerErrorIsSuccess,
    AnErrorOfEndTxnIsCertain,
    TheOppositeVerdictIsRetried,
    AnAbortBehindACommitIsBelieved,
    ADeadlineIsAnAbort,
    AnAbortBecomesACommitAgain,
    VersionOneAbortsBehindAnUnknownCommit,
    LateMarkersAreFatal,
    ASecondTakeOverBesideTheFirst,
    TheNextBeginsAfterAnUnknownEnd,
    VersionOneKeepsItsEpoch,
    VersionTwoKeepsTheEpochOfVersionOne,
    TheEpochIsRenewedInsideATransaction,
    AnOldEpochOfProduceFencesVersionTwo,
    ATimeoutIsAnAbortOnVersionOne,
    VersionTwoEverywhere,
)


# ---------------------------------------------------------------------- prepared transactions
class WhatIsPreparedIsTakenForOpen(TransactionMachine):
    """A machine with T5 off: another process is not thought of, and INVALID_TXN_STATE to an abort means "nothing to abort"."""

    def _prepared(self) -> None:
        super()._prepared()
        self._work.commit_may_be_done = False


class ThePreparedEpochIsKept(TransactionMachine):
    """A machine with T8 off: behind a prepared transaction the epoch stays, so a late end ends the next one."""

    def _prepared(self) -> None:
        haunted = self._work.is_haunted
        super()._prepared()
        self._work.is_haunted = haunted


class WhatMayOpenAgainIsPrepared(TransactionMachine):
    """A machine with T6 off: a late AddPartitionsToTxn lets two processes succeed with two verdicts."""

    def _go_on_committing(self) -> None:
        self._work.may_open_again = False
        super()._go_on_committing()


class PreparedBeforeTheRecordsAreSettled(TransactionMachine):
    """A machine with T4 off: it does not wait for the flush."""

    def prepare(self, now: float, deadline: float) -> list[Action] | Refusal:
        out = super().prepare(now, deadline)
        self._work.flushed = True
        return out if isinstance(out, Refusal) else [*out, *self._go_on(now)]


class PreparedThoughARecordFailed(TransactionMachine):
    """A machine with T4 off: a failure is minded by commits alone."""

    def record_failed(self, transaction: int, code: int | None, now: float) -> list[Action]:
        return self._go_on(now) if self._work.is_preparing else super().record_failed(transaction, code, now)


class PreparedBeforeTheOffsets(TransactionMachine):
    """A machine with T4 off: offsets are on their way when it is told as prepared."""

    def _go_on_committing(self) -> None:
        waiting, self._work.offsets = self._work.offsets, type(self._work.offsets)()
        super()._go_on_committing()
        self._work.offsets = waiting


class WhatIsPreparedIsCommitted(TransactionMachine):
    """A machine with T5 off: it asks for the end that is another process's to ask for."""

    def _prepared(self) -> None:
        super()._prepared()
        if self._work.is_touched:
            self.state = State.COMMITTING
            self._work.end = EndJob(Verdict.COMMIT)


class TheEpochIsRenewedWhenPrepared(TransactionMachine):
    """A machine with T8 off: InitProducerId before the verdict aborts what is prepared (broker: 11.4)."""

    def _prepared(self) -> None:
        super()._prepared()
        if self._work.is_touched:
            self._init = InitJob(self._identity())


class CloseAbortsWhatIsPrepared(TransactionMachine):
    """A machine with T5 off: closing ends what another process was told of."""

    def close(self, now: float, deadline: float, *, keeps_prepared: bool = True) -> list[Action]:
        return super().close(now, deadline, keeps_prepared=False)


class TheNextBeginsBehindPrepare(TransactionMachine):
    """A machine with T7 off: prepared is taken for ended."""

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        if self.state is State.PREPARED:
            self.state = State.READY
        return super().begin(mode, now)


class OffsetsAreTakenBehindPrepare(TransactionMachine):
    """A machine with T4 off: something is let into what is prepared."""

    def send_offsets(self, group: str, now: float) -> tuple[int, list[Action]] | Refusal:
        if self.state is State.PREPARED:
            self.state = State.OPEN
        return super().send_offsets(group, now)


PREPARED = (
    WhatIsPreparedIsTakenForOpen,
    ThePreparedEpochIsKept,
    WhatMayOpenAgainIsPrepared,
    PreparedBeforeTheRecordsAreSettled,
    PreparedThoughARecordFailed,
    PreparedBeforeTheOffsets,
    WhatIsPreparedIsCommitted,
    TheEpochIsRenewedWhenPrepared,
    CloseAbortsWhatIsPrepared,
    TheNextBeginsBehindPrepare,
    OffsetsAreTakenBehindPrepare,
)
