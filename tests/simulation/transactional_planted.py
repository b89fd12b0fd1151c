"""Defects of transactional producers, planted into ours: each a machine, or the versions of Produce, with one thing wrong."""

from __future__ import annotations

from aiokprod.pipeline import transactional
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import (
    Action,
    Cause,
    Entrance,
    Mode,
    Outcome,
    Partition,
    Reason,
    Refusal,
    Release,
    State,
)
from aiokprod.transactions.machine_jobs import EndJob, InitJob, Job


class CommitsThoughARecordFailed(TransactionMachine):
    """A machine that leaves the failure of a record to the caller of its send."""

    def record_failed(self, transaction: int, code: int | None, now: float) -> list[Action]:
        return self._go_on(now)


class TakesSilenceForSuccess(TransactionMachine):
    """A machine that takes an EndTxn that was written and not answered for done."""

    def lost(self, ticket: int, written: bool, now: float) -> list[Action]:
        job = self._asked.get(ticket)
        if isinstance(job, EndJob) and written:
            self._landed(ticket, Job)
            self._ended(job.verdict, (-1, -1))
            return self._go_on(now)
        return super().lost(ticket, written, now)


class BumpsInsideATransaction(TransactionMachine):
    """A machine that gets out of trouble on version 1 by InitProducerId instead of EndTxn(abort)."""

    def _go_on_aborting(self) -> None:
        if self.mode is Mode.VERSION_1 and self._work.is_touched and self._undrained is None:
            self._finish(Outcome.ABORTED)
            self._init = InitJob(self._identity())
        else:
            super()._go_on_aborting()


class BeginsAfterAnUnknownEnd(TransactionMachine):
    """A machine that begins the next transaction on version 1 while the end of the last one is not known."""

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        if self.state is State.UNKNOWN and self.mode is Mode.VERSION_1:
            self.state = State.READY
        return super().begin(mode, now)


class ForgetsAPartition(TransactionMachine):
    """A machine that adds one partition of those that wait, and lets all of them go."""

    def _ask_for_partitions(self, now: float) -> None:
        adds = self._work.adds
        forgotten = tuple(adds.waiting)[1:]
        if self.mode is Mode.VERSION_1 and forgotten and adds.may_ask(now):
            adds.take(forgotten)
            self._out.append(Release(forgotten))
        super()._ask_for_partitions(now)


class LetsInWhileCommitting(TransactionMachine):
    """A machine that takes records until the end is asked for."""

    def may_send(self) -> Refusal | None:
        return None if self.state is State.COMMITTING else super().may_send()

    def send_partition(self, partition: Partition, now: float) -> Entrance | Refusal:
        if self.state is State.COMMITTING and self._work.flushed:
            return Entrance.GO
        return super().send_partition(partition, now)


class TakesAFenceForAnAbort(TransactionMachine):
    """A machine that takes 90 on version 1 behind a commit without an answer for the coordinator's timeout."""

    def _lose(self, state: State, cause: Cause) -> None:
        if self.mode is Mode.VERSION_1 and cause.reason is Reason.FENCED_OR_TIMED_OUT:
            self._work.commit_may_be_done = False
        super()._lose(state, cause)


class SendsTheNewProtocol(transactional.TransactionalPartitions):
    """Partitions that are written by the Produce of version 2 whatever the feature says."""

    def began(self, number: int, mode: Mode) -> None:
        super().began(number, mode)
        self.produce_versions = transactional.SECOND_VERSION


MACHINES: list[type[TransactionMachine]] = [
    CommitsThoughARecordFailed, TakesSilenceForSuccess, BumpsInsideATransaction, BeginsAfterAnUnknownEnd,
    ForgetsAPartition, LetsInWhileCommitting, TakesAFenceForAnAbort,
]  # fmt: skip
"""In place of `TransactionMachine` in `transactions/transactor.py`."""
