"""`Transactor`: drives the `TransactionMachine` of one producer. One per start, on its loop.

    begin, commit, abort, offsets ──> TransactionMachine ──> requests ──> Coordinators
    enter, failed, flushed, drained ─>  (decides)        ──> Records: flush, fail, release (the pipeline)
                                                         ──> the tasks that wait for an end

Each event goes into the machine, and the actions that come out are carried out in their order before the next event goes
in. A request leaves at once if its coordinator is at hand; other requests, and flushes, run in tasks of the pipeline. Their
outcomes are further events.

Invariants: no event comes from within a state change of the pipeline (`effects`); a caller that is cancelled stops nothing,
and the result that it did not see is there for the next call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from functools import partial
from math import inf
from random import Random
from typing import Any, Final, assert_never

from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    RecordRecalledError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
)
from aiokprod.liveness import STALLED_S, Stall
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import InTransaction, TransactionOutcome
from aiokprod.transactions.callers import LATE, EndCallers, EndResult
from aiokprod.transactions.coordinator import CoordinatorKind, Coordinators, RetryPace
from aiokprod.transactions.early import EarlyTransaction, TransactionHandle
from aiokprod.transactions.errors_of_causes import usage_error
from aiokprod.transactions.failures import TransactionFailures
from aiokprod.transactions.group_offsets import stable_offsets
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import (
    Action,
    AskMarkers,
    Cause,
    Closed,
    CommitRefused,
    Ended,
    Entrance,
    FailPartition,
    FailQueued,
    Flush,
    ForgetCoordinator,
    FoundOut,
    Hold,
    Initialised,
    InitialiseFailed,
    LostId,
    Mode,
    OffsetsDone,
    Outcome,
    Partition,
    Prepared,
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
from aiokprod.transactions.machine_course import ENDING, UNENDED
from aiokprod.transactions.offset_calls import OffsetCall, OffsetCalls
from aiokprod.transactions.offsets import GroupMetadata, Offsets
from aiokprod.transactions.ports import Records
from aiokprod.transactions.prepared import PreparedTransaction
from aiokprod.transactions.requests import Asked, Requests

UNSTARTED: Final = (State.UNINITIALISED, State.INITIALISING)
FEATURE: Final = "transaction.version"
ROUTINE: Final = frozenset({State.READY, State.OPEN, State.COMMITTING, State.ABORTING})
"""States between which a healthy producer moves: they are logged at DEBUG."""


class Transactor:
    """The transactions of one start of a producer.

    Args:
        config: of the producer; has a transactional id.
        coordinators: send the requests.
        features: returns the finalized features of the cluster.
        loop: of the pipeline.
        spawn: makes a task of the pipeline.
        random: for jitter.
        metrics: of the producer.
        crashed: called with the error when the id is lost for good.
    """

    def __init__(
        self,
        config: ProducerConfig,
        coordinators: Coordinators,
        features: Callable[[], Mapping[str, int]],
        loop: asyncio.AbstractEventLoop,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        random: Random,
        metrics: Metrics,
        crashed: Callable[[BaseException], None],
    ) -> None:
        assert config.transactional_id is not None
        self.records: Records  # set by the backend
        self.flush: Callable[[], Awaitable[None]]  # set by the pipeline
        self.tell_end: Callable[[TransactionOutcome], None]  # set by the backend
        self.transactional_id = config.transactional_id
        self._config = config
        self._timeout_ms = int(config.transaction_timeout_ms)
        # Enough for every record, and for the coordinator afterwards.
        self._block_s = config.max_block_ms / 1000
        self._end_s = config.delivery_timeout + self._block_s
        self._coordinators = coordinators
        self._features = features
        self._loop = loop
        self._spawn = spawn
        self._metrics = metrics
        self._crashed = crashed
        self._pace = RetryPace(config, random)
        self._callers = EndCallers(loop)
        self._use_id(config, 0)
        self._actions: deque[Action] = deque()
        self._is_applying = False
        self._is_stopped = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._turn_end: asyncio.Handle | None = None  # of the loop, while the end of a turn is to be told
        self._initialised: asyncio.Future[None] | None = None
        self._is_starting = False  # `start` waits for the id, and fails if that is refused
        self._early: EarlyTransaction | None = (
            None  # begun before the id was taken, as a start in the background allows
        )
        self._handle: TransactionHandle | None = None  # of the transaction at hand, if it has one
        self._told_prepared = 0  # the last transaction that a caller has in hand as prepared
        self._ended_at_close: asyncio.Future[None] | None = None
        self._was_open: bool | None = None  # a transaction, when the producer was closed or failed; None: it is neither
        self._ending: asyncio.Task[None] | None = None  # the end of a block that goes on without its task
        self._idle: list[asyncio.Future[None]] = []  # blocks that wait for the end before them
        self.unknown_since: float | None = None  # loop time since which it is not known how the last transaction ended
        self.ending_since: float | None = (
            None  # loop time at which its commit or abort was asked for; None: it has ended
        )

    # ------------------------------------------------------------------ the id
    def _use_id(self, config: ProducerConfig, transaction: int) -> None:
        """Begin with a transactional id, that of the config, whose transactions are counted from this number on."""
        assert config.transactional_id is not None
        self.transactional_id = config.transactional_id
        self._log = StateLog(f"transactional id {self.transactional_id!r}", client_id=config.client_id)
        self._machine = TransactionMachine(
            retry_delay=self._pace.usual_s,
            concurrent_delay=self._pace.concurrent_s,
            transaction_timeout_s=config.transaction_timeout_ms / 1000,
            transaction=transaction,
        )
        self._failures = TransactionFailures(self.transactional_id, self._machine)
        self._offsets = OffsetCalls(self._loop, self._failures)
        machine, coordinators = self._machine, self._coordinators
        self._requests = Requests(config, coordinators, machine, self._offsets, self._failures, self._loop.time)
        self._told = State.UNINITIALISED  # the last state that was logged

    async def go_on_as(self, transactional_id: str, timeout_s: float | None) -> None:
        """Leave the id as it is, its prepared transaction included, and take over another one, on the same connections.

        Args:
            transactional_id: the other one.
            timeout_s: None tries until it is cancelled.

        Raises:
            UsageError: a transaction is open, or its end is not known.
            AiokprodError: the id is refused, or was not given in time; the producer can only be closed.
        """
        machine = self._machine
        if machine.state is not State.READY and not self.is_prepared(machine.transaction):
            self.check_idle()
            raise self._failures.refused(self._may_send() or Refusal.NOT_INITIALISED)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._coordinators.forget(CoordinatorKind.TRANSACTION, self.transactional_id)
        self._use_id(self._config.replace(transactional_id=transactional_id), machine.transaction)  # partitions know it
        self._callers.forget_unseen()
        self._handle = None
        self.records.take_id(transactional_id)
        await self.initialise(timeout_s)

    async def initialise(self, timeout_s: float | None) -> None:
        """Take over the id: fence its previous owner, and end the transaction that it has left open.

        Args:
            timeout_s: None tries until it is cancelled.

        Raises:
            AiokprodError: the id is refused, or was not given in time.
        """
        initialised = self._initialised = self._loop.create_future()
        self._is_starting = True
        try:
            self._initialise(timeout_s)
            await initialised
        finally:
            self._is_starting = False

    def initialise_in_background(self) -> None:
        """Take over the id as soon as a coordinator gives it."""
        self._initialise(None)

    def _initialise(self, timeout_s: float | None) -> None:
        now = self._loop.time()
        actions = self._machine.initialise(now, inf if timeout_s is None else now + timeout_s)
        assert not isinstance(actions, Refusal), actions
        self._apply(actions)

    # ------------------------------------------------------------------ calls of the user
    @property
    def state(self) -> str:
        """The state of the transactional id, for people. From any thread."""
        return self._machine.state.value

    @property
    def log(self) -> StateLog:
        """The log of the transactional id, with its last warning. From any thread."""
        return self._log

    @property
    def trouble(self) -> str:
        """The last trouble, in words: with the transaction, or with the last request to a coordinator. From any thread."""
        trouble = self._failures.first or self._failures.unanswered
        return "" if trouble is None else trouble.message

    def begin(self, handle: TransactionHandle | None = None) -> None:
        """Open a transaction; nothing is sent.

        Raises:
            UsageError: another one is open, or its end is not known.
        """
        if self._machine.state not in UNSTARTED or self._ended_at_close is not None:
            self._begin(handle)
            return
        if self._early is not None:
            raise self._failures.refused(self._early.refusal() or Refusal.IN_TRANSACTION)
        self._failures.first = None
        self._callers.forget_unseen()
        self._handle = handle
        self._early = EarlyTransaction(handle, self._loop, self._early_is_late)
        self._sync()

    def check_idle(self) -> None:
        """Check that no transaction is open, nor one whose end is not known.

        Raises:
            UsageError: one is.
        """
        if self._machine.state is State.UNKNOWN:
            raise usage_error(Refusal.UNKNOWN)
        if self._early is not None or self._machine.state in UNENDED:
            raise usage_error(Refusal.IN_TRANSACTION)

    def _begin(self, handle: TransactionHandle | None) -> None:
        # By the finalized feature, not by what brokers offer: one request of the second version wedges the id for good where
        # only the first one is in force (broker: 10.1).
        mode = Mode.VERSION_2 if self._features().get(FEATURE, 0) >= 2 else Mode.VERSION_1
        actions = self._machine.begin(mode, self._loop.time())
        if isinstance(actions, Refusal):
            raise self._failures.refused(actions)
        self._failures.first = None
        self._callers.forget_unseen()
        self._handle = handle
        if handle is not None:
            handle.number = self._machine.transaction
        self.records.began(self._machine.transaction, mode)
        self._apply(actions)

    async def commit(self, timeout_s: float | None) -> None:
        """Send what is left, then commit. See `Producer.commit_transaction`."""
        result = await self._end(Verdict.COMMIT, timeout_s)
        if result.outcome is not Outcome.COMMITTED:
            if result.outcome is Outcome.ABORTED:
                self._callers.keep(result)  # an abort is what many callers do then: it does no harm
            raise self._failures.of_result(result)

    async def abort(self, timeout_s: float | None) -> TransactionOutcome:
        """Fail what is left, then abort. See `Producer.abort_transaction`."""
        result = await self._end(Verdict.ABORT, timeout_s)
        is_known = result.outcome is Outcome.COMMITTED or result.outcome is Outcome.ABORTED
        if not is_known or self._failures.fatal is not None:
            raise self._failures.of_result(result)
        assert result.outcome is not None
        return TransactionOutcome(result.outcome.value)

    async def _end(self, verdict: Verdict, timeout_s: float | None) -> EndResult:
        deadline = self._loop.time() + (self._end_s if timeout_s is None else timeout_s)
        if self._early is not None:
            return await self._end_early(self._early, verdict, deadline)
        if self._machine.state is State.READY:
            unseen = self._callers.take_unseen()
            if unseen is not None:
                return unseen
        call = self._machine.commit if verdict is Verdict.COMMIT else self._machine.abort
        actions = call(self._loop.time(), deadline)
        if actions is Refusal.ABORTABLE:
            raise self._failures.first_cause()
        if isinstance(actions, Refusal):
            raise self._failures.refused(actions)
        return await self._result_of(actions, deadline, verdict.value)

    async def _result_of(self, actions: list[Action], deadline: float, call: str) -> EndResult:
        """Carry out the actions of a call, and wait for its end."""
        waiting = self._callers.join()
        self._apply(actions)
        return await self._in_time(waiting, deadline, call)

    async def _in_time(self, waiting: asyncio.Future[EndResult], deadline: float, call: str) -> EndResult:
        """Wait for an end. Beside a call with a longer timeout it may come later: then this one does not wait for it."""
        timer = self._loop.call_at(deadline, self._leave_late, waiting, deadline)
        try:
            result = await self._callers.result(waiting)
        finally:
            timer.cancel()
        if result is LATE:
            raise self._failures.goes_on(call)
        return result

    def _leave_late(self, waiting: asyncio.Future[EndResult], deadline: float) -> None:
        gives_up_at = self._machine.deadline if self._early is None else self._early.commit_deadline
        if gives_up_at > deadline:  # else the machine ends it at this moment, and says how
            self._callers.leave(waiting)

    def end_in_background(self, end: Callable[[Transactor], Coroutine[Any, Any, None]]) -> None:
        """Go on with the end of a block whose task was cancelled, until it is known.

        Args:
            end: commits or aborts. Its error is told by the outcome of the transaction alone, as no task asks for it.
        """
        number = self._machine.transaction + (self._early is not None)
        self._ending = self._spawn(self._end_block(end, number), "aiokprod-end-of-a-cancelled-block")
        self._ending.add_done_callback(lambda _: self._wake_blocks())

    async def _end_block(self, end: Callable[[Transactor], Coroutine[Any, Any, None]], number: int) -> None:
        while True:
            try:
                await end(self)
            except TransactionOutcomeUnknownError:  # is in the log; no call asks for it but this one
                if self._machine.transaction == number and self._machine.state in UNENDED:
                    continue
            except AiokprodError as trouble:
                self._log.warned(
                    "cancelled block", f"a block was cancelled at its end, which went on without it: {trouble}"
                )
            return

    def abort_in_background(self) -> bool:
        """Abort what is open, without waiting for it. False: it is being committed."""
        if self._early is not None:
            if self._early.refusal() is Refusal.COMMITTING:
                return False
            self._abort_early(self._early, Cause(Reason.ASKED))
            return True
        now = self._loop.time()
        actions = self._machine.abort(now, now + self._end_s)
        if not isinstance(actions, Refusal):
            self._apply(actions)
        return actions is not Refusal.COMMITTING

    async def ended_in_background(self) -> None:
        """Wait for the end of the last transaction, as far as no call is needed for that.

        Raises:
            TransactionTimeoutError: it did not come within `max_block_ms`.
        """
        scope = asyncio.timeout(self._block_s)
        try:
            async with scope:
                while self._goes_on_alone():
                    waiting: asyncio.Future[None] = self._loop.create_future()
                    self._idle.append(waiting)
                    await waiting
        except TimeoutError as over:
            if not scope.expired() or isinstance(over, AiokprodError):
                raise
            raise self._failures.not_begun(self._block_s) from None

    def _goes_on_alone(self) -> bool:
        """Return whether the last transaction is being ended, and no call waits for that."""
        if self._ending is not None and not self._ending.done():
            return True
        return self._machine.ends_by_itself and not self._callers.are_waiting

    def _wake_blocks(self) -> None:
        waiting, self._idle = self._idle, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def prepare(self, timeout_s: float | None) -> PreparedTransaction:
        """Send what is left, and leave the end to others. See `Producer.prepare_transaction`."""
        deadline = self._loop.time() + (self._end_s if timeout_s is None else timeout_s)
        if self._early is not None:
            await self._until_begun(self._early, deadline)
        if self._machine.state is not State.PREPARED:
            actions = self._machine.prepare(self._loop.time(), deadline)
            if actions is Refusal.ABORTABLE:
                raise self._failures.first_cause()
            if isinstance(actions, Refusal):
                raise self._failures.refused(actions)
            result = await self._result_of(actions, deadline, "preparation")
            if not result.is_prepared:
                raise self._failures.of_result(result)
            if self._machine.state is State.ABORTING or self._machine.outcome is Outcome.ABORTED:
                # By a close or an abort between the end of the preparation and this step of its caller.
                raise self._failures.of_cause(self._machine.cause or Cause(Reason.CLOSED))
        self._told_prepared = self._machine.transaction
        producer_id, epoch = self._machine.identity or (-1, -1)
        return PreparedTransaction(
            self.transactional_id,
            producer_id,
            epoch,
            self._machine.mode.value,
            self.records.written(),
            self._machine.is_touched,
        )

    def is_prepared(self, number: int) -> bool:
        """Return whether this transaction is the one at hand and is prepared, and a caller knows it."""
        return self._machine.state is State.PREPARED and number == self._machine.transaction == self._told_prepared

    # ------------------------------------------------------------------ before the id is taken
    async def _until_begun(self, early: EarlyTransaction, deadline: float) -> None:
        """Wait until the id is taken."""
        refusal = early.refusal()
        if refusal is Refusal.ABORTABLE:
            raise self._failures.first_cause()
        if refusal is not None:
            raise self._failures.refused(refusal)
        scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                await early.until_begun()
        except TimeoutError as over:
            if not scope.expired() or isinstance(over, AiokprodError):
                raise
            self._early_is_late()
            raise self._failures.first_cause() from None

    async def _end_early(self, early: EarlyTransaction, verdict: Verdict, deadline: float) -> EndResult:
        refusal = early.refusal()
        if verdict is Verdict.ABORT:
            if refusal is Refusal.COMMITTING:
                raise self._failures.refused(refusal)
            self._abort_early(early, Cause(Reason.ASKED))
            return EndResult(Outcome.ABORTED, Cause(Reason.ASKED))
        if refusal is Refusal.ABORTABLE:
            raise self._failures.first_cause()
        early.commit(deadline)
        waiting = self._callers.join()
        self._sync()
        return await self._in_time(waiting, deadline, verdict.value)

    def _early_is_late(self) -> None:
        """Refuse the commit, whose time is over: the id was not taken."""
        if self._early is not None:
            self._fail_early(self._early, self._failures.of_deadline())

    def _fail_early(self, early: EarlyTransaction, error: AiokprodError) -> None:
        """Let the transaction be aborted only, as a record of it has failed, for example."""
        self._failures.first = error
        cause = Cause(Reason.RECORD_FAILED)
        was_committing = early.fail(self._failures.why_aborted(cause))
        self._sync()
        self.records.fail_queued(self._failures.why_aborted(cause), self._machine.mode)
        if was_committing:
            self._callers.tell(EndResult(None, cause))
            self._callers.forget_unseen()  # a caller that was cancelled is told by the failure, as each next one

    def _abort_early(self, early: EarlyTransaction, cause: Cause) -> None:
        """Abort: nothing of the transaction has been sent."""
        self._early = None
        early.end(TransactionAbortedError("the transaction was aborted before it had taken the offsets"))
        if early.handle is not None:
            early.handle.outcome = TransactionOutcome.ABORTED
        self._metrics.transactions_aborted.add(1)
        self._sync()
        self.records.fail_queued(self._failures.why_aborted(cause), self._machine.mode)
        self.tell_end(TransactionOutcome.ABORTED)

    def _begin_in_time(self, early: EarlyTransaction) -> None:
        """Begin for good what was begun before the id was taken, and do what was asked of it meanwhile."""
        early.stop()
        failure = self._failures.first
        self._begin(early.handle)
        early.begun()
        now = self._loop.time()
        if early.is_failed:
            self._failures.first = failure
            self._apply(self._machine.record_failed(self._machine.transaction, None, now))
            return
        for call in early.offsets:
            self._send_offsets(call)
        if early.is_committing:
            actions = self._machine.commit(now, early.commit_deadline)
            assert not isinstance(actions, Refusal), actions
            self._apply(actions)

    # ------------------------------------------------------------------ offsets
    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Take offsets of a group into the transaction. See `Producer.send_offsets_to_transaction`."""
        refusal = self._may_send()
        if refusal is not None:
            raise self._failures.refused(refusal)
        if not offsets:
            return
        call = self._offsets.new(offsets, group)
        if self._early is not None:
            self._early.offsets.append(call)
        else:
            self._send_offsets(call)
        scope = asyncio.timeout(self._block_s)
        try:
            async with scope:
                await asyncio.shield(call.done)
        except TimeoutError as over:
            if not scope.expired() or isinstance(over, AiokprodError):
                raise
        else:
            return
        text = f"the offsets of group {group.group_id!r} were not taken within {self._block_s:g} s (max_block_ms)"
        error = TransactionTimeoutError(text)
        error.__cause__ = self._failures.unanswered
        self.failed(error)
        raise error

    def _send_offsets(self, call: OffsetCall) -> None:
        taken = self._machine.send_offsets(call.group.group_id, self._loop.time())
        assert not isinstance(taken, Refusal), taken
        number, actions = taken
        self._offsets.add(number, call)
        self._apply(actions)

    # ------------------------------------------------------------------ the end of the producer
    async def committed_offsets(
        self, group: str, partitions: Collection[Partition], waits: Callable[[str], None]
    ) -> dict[Partition, int]:
        """Return the committed offsets of a group, stable ones. See `stable_offsets`."""
        return await stable_offsets(self._coordinators, self._pace, group, partitions, waits)

    async def close(self, timeout_s: float | None) -> None:
        """End what is open: a commit that was asked for goes on, everything else is aborted.

        Args:
            timeout_s: None is as long as a commit may take.
        """
        now = self._loop.time()
        if self._ended_at_close is None:
            self._ended_at_close = self._loop.create_future()
            self._note_if_open()
            if self._handle is not None and self._handle.outcome is None:
                self._handle.ended_by = self._failures.of_cause(Cause(Reason.CLOSED))
        if self._early is not None:
            self._failures.first = self._failures.first or self._failures.of_cause(Cause(Reason.CLOSED))
            self._abort_early(self._early, Cause(Reason.CLOSED))
            self._callers.tell(EndResult(Outcome.ABORTED, Cause(Reason.CLOSED)))
        # A caller that waits gets it. One that was cancelled has nothing to end it by, and readers would wait for its timeout.
        keeps_prepared = self._callers.are_waiting or self._told_prepared == self._machine.transaction
        deadline = now + (self._end_s if timeout_s is None else timeout_s)
        self._apply(self._machine.close(now, deadline, keeps_prepared=keeps_prepared))
        await asyncio.shield(self._ended_at_close)

    def outcome_at_close(self) -> TransactionOutcome | None:
        """Return how the transaction ended that was open when the producer was closed, or had failed; None: none was."""
        self._note_if_open()
        return self._outcome_left() if self._was_open else None

    def _note_if_open(self) -> None:
        """Note whether a transaction is open: at the close, or at the failure before it. The first call counts."""
        if self._was_open is None:
            self._was_open = self._early is not None or self._machine.is_open

    def _outcome_left(self) -> TransactionOutcome:
        """Return how the transaction at hand ends if nothing more is asked for."""
        machine = self._machine
        if machine.outcome is Outcome.COMMITTED or machine.outcome is Outcome.ABORTED:
            return TransactionOutcome(machine.outcome.value)
        # Nothing commits a transaction whose commit was not asked for: its timeout, or the next start, aborts it.
        return TransactionOutcome.UNKNOWN if machine.may_be_committed else TransactionOutcome.ABORTED

    @property
    def may_be_committed(self) -> bool:
        """True: the transaction at hand may have been committed, or may still be."""
        return self._machine.may_be_committed

    def is_over(self, number: int) -> bool:
        """Return whether this transaction is not the one at hand any more, or has its outcome."""
        return number != self._machine.transaction or self._machine.outcome is not None

    def fail(self, error: AiokprodError) -> None:
        """Fail everything that waits: the producer has failed, or is closed."""
        self._note_if_open()
        early, self._early = self._early, None
        if early is not None:
            early.end(error)
        handle = self._handle
        if handle is not None and handle.outcome in (None, TransactionOutcome.UNKNOWN):
            handle.ended_by = handle.ended_by or error.clone()
            handle.outcome = self._outcome_left()
        self._callers.fail(error)
        waiting, self._idle = self._idle, []
        for future in (*self._offsets.take_all(), *waiting, self._initialised, self._ended_at_close):
            if future is not None and not future.done():
                future.set_exception(error.clone())
                future.exception()  # retrieved: perhaps no task awaits it
        if self._timer is not None:
            self._timer.cancel()

    def stop(self) -> None:
        """Take no more answers: the tasks of the pipeline end, and everything that waits has failed."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def stalls(self, now: float) -> list[Stall]:
        """Return what stands still though nothing would move it; `now`: loop time."""
        found: list[Stall] = []
        if self._is_stopped:
            return found
        if self._turn_end is not None:
            found.append(
                Stall("the end of a turn is not told to the transaction", self, self._turn_end, self._end_turn)
            )
        if self._timer is not None and self._timer_at <= now - STALLED_S:
            found.append(Stall("a step of a transaction is due, and is not taken", self, self._timer, self._wake))
        if self._actions and not self._is_applying:
            what = "a transaction has decided something, and it is not done"
            found.append(Stall(what, self, self._actions[0], partial(self._apply, [])))
        return found

    # ------------------------------------------------------------------ told by the pipeline
    def enter(self, partition: Partition) -> Entrance | Refusal:
        """Ask whether batches of the partition may be stamped; see `TransactionMachine.send_partition`."""
        answer = self._machine.send_partition(partition, self._loop.time())
        if answer is Entrance.WAIT or answer is Entrance.GO:
            self._end_turn_later()
        return answer

    def _end_turn_later(self) -> None:
        """Tell the machine the end of this turn of the loop: what came in one turn is added by one request."""
        if self._turn_end is None:
            self._turn_end = self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_end = None
        self._apply(self._machine.turn_ended(self._loop.time()))

    def failed(self, error: AiokprodError) -> None:
        """Note that a record of the transaction has failed."""
        if self._early is not None:
            if not self._early.is_failed:
                self._fail_early(self._early, error)
            return
        if self._failures.first is None and self._machine.state in (State.OPEN, State.COMMITTING):
            self._failures.first = error
        self._apply(self._machine.record_failed(self._machine.transaction, error.code, self._loop.time()))

    def failed_later(self, error: AiokprodError, later: Callable[[Callable[[], object]], None]) -> None:
        """Note a failure from within a state change, once that is over. A record that was taken back does not count."""
        if not isinstance(error, RecordRecalledError):
            later(partial(self.failed, error))

    def produce_lost(self) -> None:
        """Note that an attempt of Produce may come late."""
        self._machine.produce_lost(self._machine.transaction)

    def drained(self) -> None:
        """Note that nothing of the transaction that was failed is in flight any more."""
        self._apply(self._machine.drained(self._machine.transaction, self._loop.time()))

    # ------------------------------------------------------------------ carrying out
    def _apply(self, actions: list[Action]) -> None:
        """Carry out the actions; those that lead to further events come after all before them."""
        self._actions.extend(actions)
        if self._is_applying:
            return
        self._is_applying = True
        try:
            while self._actions:
                self._carry_out(self._actions.popleft())
        except BaseException as bug:  # also Ctrl-C, which comes between any two lines: the action is done in part
            self._actions.clear()
            self._crashed(bug)
            if not isinstance(bug, Exception):
                raise
        finally:
            self._is_applying = False
        self._sync()

    def _carry_out(self, action: Action) -> None:
        match action:
            case SendInitProducerId():
                self.records.renew_identity()
                self._send(action)
            case SendAddPartitions() | SendAddOffsets() | SendTxnOffsetCommit() | SendEndTxn() | AskMarkers():
                self._send(action)
            case ForgetCoordinator():
                self._requests.forget(action.group)
            case Flush():
                self._spawn(self._flush(action.transaction), "aiokprod-transaction-flush")
            case FailQueued():
                # First, as `_sync` comes behind all actions: what a finalizer or a log handler sends from here on would stay
                # in its queue, and go out with the next transaction.
                self.records.take_records(False, self.refusal)
                if not self.records.fail_queued(self._failures.why_aborted(action.cause), self._machine.mode):
                    self._apply(self._machine.drained(action.transaction, self._loop.time()))
            case FailPartition():
                error = self._failures.of_cause(Cause(Reason.PARTITION_REFUSED, action.code), action.partition)
                self._failures.first = self._failures.first or error
                self.records.fail_partition(action.partition, error)
            case Release():
                self.records.release(action.partitions)
            case Hold():
                self.records.renew_identity()
            case TakeIdentity():
                self.records.take_identity((action.producer_id, action.epoch))
            case Initialised():
                self._came_up()
            case InitialiseFailed():
                self._stayed_down(action.cause)
            case OffsetsDone():
                self._offsets.ended(action)
            case CommitRefused():
                self._callers.tell(EndResult(None, action.cause))
            case Ended() | FoundOut():
                self._ended(action)
            case Prepared():
                self._callers.tell(EndResult(None, Cause(Reason.ASKED), is_prepared=True))
            case LostId():
                self._lost_id(action.cause)
            case TimeoutNear():
                self._warn_of_timeout(action)
            case WakeAt():
                self._wake_at(action.at)
            case Closed():
                self._tell_closed()
            case _:
                assert_never(action)

    def _sync(self) -> None:
        """Let records in, or refuse them, as the state says; log a change of it."""
        machine = self._machine
        self.records.take_records(self._may_send() is None, self.refusal)
        handle = self._handle
        if handle is not None and handle.number == machine.transaction and machine.outcome is not None:
            handle.outcome = TransactionOutcome(machine.outcome.value)
        if self._idle:
            self._wake_blocks()
        if machine.state is not self._told:
            now = self._loop.time()
            self.unknown_since = now if machine.state is State.UNKNOWN else None
            if machine.state not in ENDING:
                self.ending_since = None
            elif self.ending_since is None:
                self.ending_since = now
            before, self._told = self._told, machine.state
            level = 10 if {before, machine.state} <= ROUTINE else 20
            why = "it was asked for" if machine.cause is None else _text_of(machine.cause)
            self._log.moved(before.name, machine.state.name, why, level=level)

    def refusal(self) -> AiokprodError:
        """Return why no record is taken now."""
        return self._failures.refused(self._may_send() or Refusal.NOT_IN_TRANSACTION)

    def _may_send(self) -> Refusal | None:
        """Return why no record can go into a transaction now; None if one can."""
        return self._machine.may_send() if self._early is None else self._early.refusal()

    # ------------------------------------------------------------------ requests
    def _send(self, action: Asked) -> None:
        # A partition may still have its end while connections are closed one by one: an abort that leaves then would be
        # behind a Produce without an answer, which in the first version may come later and open the transaction again.
        if self._is_stopped:
            return
        if not self._requests.ask_now(action, partial(self._answered, self._requests)):
            self._spawn(self._ask(action), f"aiokprod-{type(action).__name__}")

    def _answered(self, requests: Requests, take: Callable[[], list[Action]]) -> None:
        if self._is_stopped:
            return
        try:
            actions = take()
        except Exception as bug:
            self._crashed(bug)
            return
        if requests is self._requests:  # else the answer is about an id that this producer has left
            self._apply(actions)

    async def _ask(self, action: Asked) -> None:
        requests = self._requests
        came = await requests.ask(action)
        self._answered(requests, partial(requests.take, came))

    async def _flush(self, transaction: int) -> None:
        await self.flush()
        self._apply(self._machine.flushed(transaction, self._loop.time()))

    def _wake_at(self, at: float) -> None:
        # The newest time is the one that counts: the machine says it when it has changed, and not again.
        former = self._timer
        if at != inf:
            self._timer, self._timer_at = self._loop.call_at(at, self._wake), at
        else:
            self._timer = None
        if former is not None:
            former.cancel()

    def _wake(self) -> None:
        self._timer = None
        # Not by the loop's clock alone: a loop may call a little early, and the machine would wait for a time that was told.
        self._apply(self._machine.tick(max(self._timer_at, self._loop.time())))

    # ------------------------------------------------------------------ news
    def _came_up(self) -> None:
        self._failures.unanswered = None
        if self._initialised is not None and not self._initialised.done():
            self._initialised.set_result(None)
        early, self._early = self._early, None
        if early is not None:
            self._begin_in_time(early)

    def _stayed_down(self, cause: Cause) -> None:
        error = self._failures.of_start(cause)
        if self._initialised is not None and not self._initialised.done():
            self._initialised.set_exception(error)
            self._initialised.exception()
        self._callers.fail(error)  # for an early commit

    def _lost_id(self, cause: Cause) -> None:
        error = self._failures.fatal = self._failures.of_cause(cause)
        error.in_transaction = InTransaction.CLOSE
        if self._machine.outcome is Outcome.UNKNOWN:
            error.persistence = TransactionOutcomeUnknownError.default_persistence
        if not self._is_starting:
            self._crashed(error)

    def _ended(self, action: Ended | FoundOut) -> None:
        if action.outcome is Outcome.COMMITTED:
            self._metrics.transactions_committed.add(1)
        elif action.outcome is Outcome.ABORTED:
            self._metrics.transactions_aborted.add(1)
        else:
            self._metrics.transactions_unknown.add(1)
            self._log.warned("unknown end", self._failures.unknown_end().message)
        self.tell_end(TransactionOutcome(action.outcome.value))
        self._callers.tell(EndResult(action.outcome, action.cause))

    def _warn_of_timeout(self, action: TimeoutNear) -> None:
        left_s = self._timeout_ms / 1000 - action.open_s
        if action.is_ending:
            waits = "it has not answered the commit yet"
        elif self._machine.state is State.COMMITTING:
            waits = "the commit waits for records or offsets of it"
        else:
            waits = "commit or abort was not called yet"
        self._log.warned(
            "timeout",
            f"the transaction has been open for {action.open_s:.1f} s: its coordinator aborts it in {left_s:.1f} s"
            f" (transaction_timeout_ms), and {waits}",
        )

    def _tell_closed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._ended_at_close is not None and not self._ended_at_close.done():
            self._ended_at_close.set_result(None)

    def __repr__(self) -> str:
        return f"<Transactor {self.transactional_id!r} {self._machine.state.value}, transaction {self._machine.transaction}>"


def _text_of(cause: Cause) -> str:
    return cause.reason.value if cause.code is None else f"{cause.reason.value} (code {cause.code})"
