"""`Transactor`: drives the `TransactionMachine` of one producer. One per start, on its loop.

    begin, commit, abort, offsets ──> TransactionMachine ──> requests ──> Coordinators
    enter, failed, flushed, drained ─>  (decides)        ──> Records: flush, fail, release (the pipeline)
                                                         ──> the tasks that wait for an end

Each event goes into the machine, and the actions that come out are carried out in their order before the next event goes
in. Requests, flushes and timers run in tasks of the pipeline; their outcomes are further events.

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
from typing import Any, Final, NamedTuple, Protocol, assert_never

from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    RecordRecalledError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionTimeoutError,
)
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import TransactionOutcome
from aiokprod.transactions.coordinator import (
    FIRST_VERSION,
    SECOND_VERSION,
    CoordinatorKind,
    Coordinators,
    NoAnswer,
    RetryPace,
)
from aiokprod.transactions.early import EarlyTransaction, TransactionHandle
from aiokprod.transactions.errors_of_causes import error_of, not_in_time, usage_error
from aiokprod.transactions.group_offsets import stable_offsets
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import (
    NO_ANSWER,
    Action,
    Cause,
    Closed,
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
from aiokprod.transactions.offsets import GroupMetadata, Offsets, offset_topics
from aiokprod.transactions.prepared import PreparedPartition, PreparedTransaction
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from aiokprod.wire.messages.end_txn import EndTxnRequest
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest
from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

UNSTARTED: Final = (State.UNINITIALISED, State.INITIALISING)
OPEN: Final = (State.OPEN, State.ABORTABLE, State.COMMITTING, State.ABORTING, State.UNKNOWN)
OF_RECORDS: Final = (Reason.RECORD_FAILED, Reason.PARTITION_REFUSED)
"""Reasons whose error is that of the first record that failed."""
FEATURE: Final = "transaction.version"
ROUTINE: Final = frozenset({State.READY, State.OPEN, State.COMMITTING, State.ABORTING})
"""States between which a healthy producer moves: they are logged at DEBUG."""


class Records(Protocol):
    """The records of the pipeline, as their transaction sees them."""

    def take_records(self, is_open: bool, refusal: Callable[[], AiokprodError]) -> None:
        """Let records in from now on, or refuse them with this error."""
        ...

    def began(self, number: int, mode: Mode) -> None:
        """Take in that a transaction has begun."""
        ...

    def take_identity(self, identity: tuple[int, int]) -> None:
        """Stamp with this producer id and epoch from now on."""
        ...

    def renew_identity(self) -> None:
        """Stamp nothing until `take_identity`: another one has been asked for."""
        ...

    def release(self, partitions: tuple[Partition, ...]) -> None:
        """Let the batches of these partitions go."""
        ...

    def fail_partition(self, partition: Partition, error: AiokprodError) -> None:
        """Fail what waits for this partition to become part of the transaction."""
        ...

    def fail_queued(self, error: AiokprodError, mode: Mode) -> bool:
        """Fail what has no outcome yet. True: answers to some of it are due; `Transactor.drained` follows."""
        ...

    def written(self) -> tuple[PreparedPartition, ...]:
        """Return what was written in the transaction at hand, by partition."""
        ...


class _Result(NamedTuple):
    """The end of a commit or an abort, as its callers are told."""

    outcome: Outcome | None
    """None: a commit was refused, or the transaction is prepared, and nothing has ended."""
    cause: Cause
    is_prepared: bool = False


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
        self._id = config.transactional_id
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
        self._log = StateLog(f"transactional id {self._id!r}", client_id=config.client_id)
        self._pace = RetryPace(config, random)
        self._machine = TransactionMachine(
            retry_delay=self._pace.usual_s,
            concurrent_delay=self._pace.concurrent_s,
            transaction_timeout_s=config.transaction_timeout_ms / 1000,
        )
        self._told = State.UNINITIALISED  # the last state that was logged
        self._actions: deque[Action] = deque()
        self._is_applying = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._turn_is_ending = False
        self._initialised: asyncio.Future[None] | None = None
        self._is_starting = False  # `start` waits for the id, and fails if that is refused
        self._early: EarlyTransaction | None = (
            None  # begun before the id was taken, as a start in the background allows
        )
        self._waiting: list[asyncio.Future[_Result]] = []  # for the end of the transaction
        self._unseen: _Result | None = None  # an end that no caller saw
        self._offsets: dict[int, tuple[Offsets, GroupMetadata, asyncio.Future[None]]] = {}  # by their numbers
        self._failure: AiokprodError | None = None  # the first of the transaction at hand
        self._fatal: AiokprodError | None = None  # why the id is lost
        self._trouble: AiokprodError | None = None  # the last request that was not answered
        self._handle: TransactionHandle | None = None  # of the transaction at hand, if it has one
        self._told_prepared = 0  # the last transaction that a caller has in hand as prepared
        self._ended_at_close: asyncio.Future[None] | None = None
        self._is_open_at_close = False
        self._ending: asyncio.Task[None] | None = None  # the end of a block that goes on without its task

    # ------------------------------------------------------------------ the id
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

    def begin(self, handle: TransactionHandle | None = None) -> None:
        """Open a transaction; nothing is sent.

        Raises:
            UsageError: another one is open, or its end is not known.
        """
        if self._machine.state not in UNSTARTED or self._ended_at_close is not None:
            self._begin(handle)
            return
        if self._early is not None:
            raise self.refused(self._early.refusal() or Refusal.IN_TRANSACTION)
        self._failure = self._unseen = None
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
        if self._early is not None or self._machine.state in OPEN:
            raise usage_error(Refusal.IN_TRANSACTION)

    def _begin(self, handle: TransactionHandle | None) -> None:
        # By the finalized feature, not by what brokers offer: one request of the second version wedges the id for good where
        # only the first one is in force (broker: 10.1).
        mode = Mode.VERSION_2 if self._features().get(FEATURE, 0) >= 2 else Mode.VERSION_1
        actions = self._machine.begin(mode, self._loop.time())
        if isinstance(actions, Refusal):
            raise self.refused(actions)
        self._failure = self._unseen = None
        self._handle = handle
        if handle is not None:
            handle.number = self._machine.transaction
        self.records.began(self._machine.transaction, mode)
        self._apply(actions)

    async def commit(self, timeout_s: float | None) -> None:
        """Send what is left, then commit. See `Producer.commit_transaction`."""
        result = await self._end(Verdict.COMMIT, timeout_s)
        if result.outcome is not Outcome.COMMITTED:
            raise self._error_of(result)

    async def abort(self, timeout_s: float | None) -> TransactionOutcome:
        """Fail what is left, then abort. See `Producer.abort_transaction`."""
        result = await self._end(Verdict.ABORT, timeout_s)
        is_known = result.outcome is Outcome.COMMITTED or result.outcome is Outcome.ABORTED
        if not is_known or self._fatal is not None:
            raise self._error_of(result)
        assert result.outcome is not None
        return TransactionOutcome(result.outcome.value)

    async def _end(self, verdict: Verdict, timeout_s: float | None) -> _Result:
        deadline = self._loop.time() + (self._end_s if timeout_s is None else timeout_s)
        if self._early is not None:
            return await self._end_early(self._early, verdict, deadline)
        if self._unseen is not None and self._machine.state is State.READY:
            seen, self._unseen = self._unseen, None
            return seen
        call = self._machine.commit if verdict is Verdict.COMMIT else self._machine.abort
        actions = call(self._loop.time(), deadline)
        if actions is Refusal.ABORTABLE:
            raise self._first_cause()
        if isinstance(actions, Refusal):
            raise self.refused(actions)
        return await self._result_of(actions)

    async def _result_of(self, actions: list[Action]) -> _Result:
        """Carry out the actions of a call, and wait for its end."""
        self._unseen = None
        waiting = self._new_waiting()
        self._apply(actions)
        return await self._result(waiting)

    def _new_waiting(self) -> asyncio.Future[_Result]:
        waiting: asyncio.Future[_Result] = self._loop.create_future()
        self._waiting.append(waiting)
        return waiting

    async def _result(self, waiting: asyncio.Future[_Result]) -> _Result:
        """Wait for an end. A caller that is cancelled leaves its result to the next call."""
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif waiting.done() and not waiting.cancelled():
                self._unseen = waiting.result()
            raise

    def end_in_background(self, end: Callable[[Transactor], Coroutine[Any, Any, None]]) -> None:
        """Go on with the end of a block whose task was cancelled.

        Args:
            end: commits or aborts. Its error is told by the outcome of the transaction alone, as no task asks for it.
        """
        self._ending = self._spawn(self._end_block(end), "aiokprod-end-of-a-cancelled-block")

    async def _end_block(self, end: Callable[[Transactor], Coroutine[Any, Any, None]]) -> None:
        try:
            await end(self)
        except AiokprodError as trouble:
            self._log.warned(
                "cancelled block", f"a block was cancelled at its end, which went on without it: {trouble}"
            )

    async def ended_in_background(self) -> None:
        """Wait for the end of a block whose task was cancelled."""
        ending = self._ending
        if ending is not None and not ending.done():
            await asyncio.wait([ending])

    async def prepare(self, timeout_s: float | None) -> PreparedTransaction:
        """Send what is left, and leave the end to others. See `Producer.prepare_transaction`."""
        deadline = self._loop.time() + (self._end_s if timeout_s is None else timeout_s)
        if self._early is not None:
            await self._until_begun(self._early, deadline)
        if self._machine.state is not State.PREPARED:
            actions = self._machine.prepare(self._loop.time(), deadline)
            if actions is Refusal.ABORTABLE:
                raise self._first_cause()
            if isinstance(actions, Refusal):
                raise self.refused(actions)
            result = await self._result_of(actions)
            if not result.is_prepared:
                raise self._error_of(result)
        self._told_prepared = self._machine.transaction
        producer_id, epoch = self._machine.identity or (-1, -1)
        return PreparedTransaction(
            self._id, producer_id, epoch, self._machine.mode.value, self.records.written(), self._machine.is_touched
        )

    def is_prepared(self, number: int) -> bool:
        """Return whether this transaction is the one at hand and is prepared, and a caller knows it."""
        return self._machine.state is State.PREPARED and number == self._machine.transaction == self._told_prepared

    # ------------------------------------------------------------------ before the id is taken
    async def _until_begun(self, early: EarlyTransaction, deadline: float) -> None:
        """Wait until the id is taken."""
        refusal = early.refusal()
        if refusal is Refusal.ABORTABLE:
            raise self._first_cause()
        if refusal is not None:
            raise self.refused(refusal)
        scope = asyncio.timeout_at(deadline)
        try:
            async with scope:
                await early.until_begun()
        except TimeoutError as over:
            if not scope.expired() or isinstance(over, AiokprodError):
                raise
            self._early_is_late()
            raise self._first_cause() from None

    async def _end_early(self, early: EarlyTransaction, verdict: Verdict, deadline: float) -> _Result:
        refusal = early.refusal()
        if verdict is Verdict.ABORT:
            if refusal is Refusal.COMMITTING:
                raise self.refused(refusal)
            self._abort_early(early, Cause(Reason.ASKED))
            return _Result(Outcome.ABORTED, Cause(Reason.ASKED))
        if refusal is Refusal.ABORTABLE:
            raise self._first_cause()
        early.commit(deadline)
        waiting = self._new_waiting()
        self._sync()
        return await self._result(waiting)

    def _early_is_late(self) -> None:
        """Refuse the commit, whose time is over: the id was not taken."""
        if self._early is not None:
            error = error_of(Cause(Reason.DEADLINE), self._id)
            error.__cause__ = self._trouble
            self._fail_early(self._early, error)

    def _fail_early(self, early: EarlyTransaction, error: AiokprodError) -> None:
        """Let the transaction be aborted only, as a record of it has failed, for example."""
        self._failure = error
        cause = Cause(Reason.RECORD_FAILED)
        was_committing = early.fail(self._why_aborted(cause))
        self._sync()
        self.records.fail_queued(self._why_aborted(cause), self._machine.mode)
        if was_committing:
            self._tell(_Result(None, cause))
            self._unseen = None  # a caller that was cancelled is told by the failure, as each next one

    def _abort_early(self, early: EarlyTransaction, cause: Cause) -> None:
        """Abort: nothing of the transaction has been sent."""
        self._early = None
        early.end(TransactionAbortedError("the transaction was aborted before it had taken the offsets"))
        if early.handle is not None:
            early.handle.outcome = TransactionOutcome.ABORTED
        self._metrics.transactions_aborted.add(1)
        self._sync()
        self.records.fail_queued(self._why_aborted(cause), self._machine.mode)

    def _begin_in_time(self, early: EarlyTransaction) -> None:
        """Begin for good what was begun before the id was taken, and do what was asked of it meanwhile."""
        early.stop()
        failure = self._failure
        self._begin(early.handle)
        early.begun()
        now = self._loop.time()
        if early.is_failed:
            self._failure = failure
            self._apply(self._machine.record_failed(self._machine.transaction, None, now))
            return
        for offsets, group, done in early.offsets:
            self._send_offsets(offsets, group, done)
        if early.is_committing:
            actions = self._machine.commit(now, early.commit_deadline)
            assert not isinstance(actions, Refusal), actions
            self._apply(actions)

    # ------------------------------------------------------------------ offsets

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        """Take offsets of a group into the transaction. See `Producer.send_offsets_to_transaction`."""
        refusal = self._may_send()
        if refusal is not None:
            raise self.refused(refusal)
        if not offsets:
            return
        done: asyncio.Future[None] = self._loop.create_future()
        # A caller that was cancelled asks for it no more; a commit tells the same error.
        done.add_done_callback(_retrieve)
        if self._early is not None:
            self._early.offsets.append((offsets, group, done))
        else:
            self._send_offsets(offsets, group, done)
        scope = asyncio.timeout(self._block_s)
        try:
            async with scope:
                await asyncio.shield(done)
        except TimeoutError as over:
            if not scope.expired() or isinstance(over, AiokprodError):
                raise
        else:
            return
        text = f"the offsets of group {group.group_id!r} were not taken within {self._block_s:g} s (max_block_ms)"
        error = TransactionTimeoutError(text)
        error.__cause__ = self._trouble
        self.failed(error)
        raise error

    def _send_offsets(self, offsets: Offsets, group: GroupMetadata, done: asyncio.Future[None]) -> None:
        taken = self._machine.send_offsets(group.group_id, self._loop.time())
        assert not isinstance(taken, Refusal), taken
        number, actions = taken
        self._offsets[number] = (offsets, group, done)
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
            self._is_open_at_close = self._early is not None or self._machine.state in OPEN
            if self._handle is not None and self._handle.outcome is None:
                self._handle.ended_by = error_of(Cause(Reason.CLOSED), self._id)
        if self._early is not None:
            self._failure = self._failure or error_of(Cause(Reason.CLOSED), self._id)
            self._abort_early(self._early, Cause(Reason.CLOSED))
            self._tell(_Result(Outcome.ABORTED, Cause(Reason.CLOSED)))
        # A caller that waits gets it. One that was cancelled has nothing to end it by, and readers would wait for its timeout.
        keeps_prepared = bool(self._waiting) or self._told_prepared == self._machine.transaction
        deadline = now + (self._end_s if timeout_s is None else timeout_s)
        self._apply(self._machine.close(now, deadline, keeps_prepared=keeps_prepared))
        await asyncio.shield(self._ended_at_close)

    def outcome_at_close(self) -> TransactionOutcome | None:
        """Return how the transaction ended that was open when the producer was closed; None: none was."""
        if not self._is_open_at_close:
            return None
        return self._outcome_left()

    def _fail_waiting(self, error: AiokprodError) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_exception(error.clone())

    def _outcome_left(self) -> TransactionOutcome:
        """Return how the transaction at hand ends if nothing more is asked for."""
        machine = self._machine
        if machine.outcome is not None:
            return TransactionOutcome(machine.outcome.value)
        # Nothing commits a transaction whose commit was not asked for; its timeout aborts it.
        is_certain = machine.state in (*UNSTARTED, State.OPEN, State.ABORTABLE)
        return TransactionOutcome.ABORTED if is_certain else TransactionOutcome.UNKNOWN

    def is_over(self, number: int) -> bool:
        """Return whether this transaction is not the one at hand any more, or has its outcome."""
        return number != self._machine.transaction or self._machine.outcome is not None

    def fail(self, error: AiokprodError) -> None:
        """Fail everything that waits: the producer has failed, or is closed."""
        early, self._early = self._early, None
        if early is not None:
            early.end(error)
        handle = self._handle
        if handle is not None and handle.outcome is None:
            handle.ended_by = handle.ended_by or error.clone()
            handle.outcome = self._outcome_left()
        self._fail_waiting(error)
        left = [done for _, _, done in self._offsets.values()]
        self._offsets.clear()
        for future in (*left, self._initialised, self._ended_at_close):
            if future is not None and not future.done():
                future.set_exception(error.clone())
                future.exception()  # retrieved: perhaps no task awaits it
        if self._timer is not None:
            self._timer.cancel()

    # ------------------------------------------------------------------ told by the pipeline
    def enter(self, partition: Partition) -> Entrance | Refusal:
        """Ask whether batches of the partition may be stamped; see `TransactionMachine.send_partition`."""
        answer = self._machine.send_partition(partition, self._loop.time())
        if answer is Entrance.WAIT or answer is Entrance.GO:
            self._end_turn_later()
        return answer

    def _end_turn_later(self) -> None:
        """Tell the machine the end of this turn of the loop: what came in one turn is added by one request."""
        if not self._turn_is_ending:
            self._turn_is_ending = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._turn_is_ending = False
        self._apply(self._machine.turn_ended(self._loop.time()))

    def failed(self, error: AiokprodError) -> None:
        """Note that a record of the transaction has failed."""
        if self._early is not None:
            if not self._early.is_failed:
                self._fail_early(self._early, error)
            return
        if self._failure is None and self._machine.state in (State.OPEN, State.COMMITTING):
            self._failure = error
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
        except Exception as bug:
            self._actions.clear()
            self._crashed(bug)
        finally:
            self._is_applying = False
        self._sync()

    def _carry_out(self, action: Action) -> None:
        match action:
            case SendInitProducerId():
                self.records.renew_identity()
                self._spawn(self._ask(action), "aiokprod-SendInitProducerId")
            case SendAddPartitions() | SendAddOffsets() | SendTxnOffsetCommit() | SendEndTxn():
                self._spawn(self._ask(action), f"aiokprod-{type(action).__name__}")
            case ForgetCoordinator():
                self._forget(action.group)
            case Flush():
                self._spawn(self._flush(action.transaction), "aiokprod-transaction-flush")
            case FailQueued():
                if not self.records.fail_queued(self._why_aborted(action.cause), self._machine.mode):
                    self._apply(self._machine.drained(action.transaction, self._loop.time()))
            case FailPartition():
                error = error_of(Cause(Reason.PARTITION_REFUSED, action.code), self._id, action.partition)
                self._failure = self._failure or error
                self.records.fail_partition(action.partition, error)
            case Release():
                self.records.release(action.partitions)
            case TakeIdentity():
                self.records.take_identity((action.producer_id, action.epoch))
            case Initialised():
                self._came_up()
            case InitialiseFailed():
                self._stayed_down(action.cause)
            case OffsetsDone():
                self._offsets_done(action)
            case CommitRefused():
                self._tell(_Result(None, action.cause))
            case Ended():
                self._ended(action)
            case Prepared():
                self._tell(_Result(None, Cause(Reason.ASKED), is_prepared=True))
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
        if machine.state is not self._told:
            before, self._told = self._told, machine.state
            level = 10 if {before, machine.state} <= ROUTINE else 20
            why = "it was asked for" if machine.cause is None else _text_of(machine.cause)
            self._log.moved(before.name, machine.state.name, why, level=level)

    def refusal(self) -> AiokprodError:
        """Return why no record is taken now."""
        return self.refused(self._may_send() or Refusal.NOT_IN_TRANSACTION)

    def _may_send(self) -> Refusal | None:
        """Return why no record can go into a transaction now; None if one can."""
        return self._machine.may_send() if self._early is None else self._early.refusal()

    def refused(self, refusal: Refusal) -> AiokprodError:
        """Return the error of a call that this refuses."""
        if refusal is Refusal.ABORTABLE:
            error = TransactionAbortedError("the transaction can only be aborted")
            error.__cause__ = self._first_cause()
            return error
        if self._fatal is not None:
            return self._fatal.clone()
        if refusal is Refusal.NOT_INITIALISED:  # of no concern to the user: a transaction may begin before that
            refusal = Refusal.NOT_IN_TRANSACTION
        return usage_error(refusal)

    def _first_cause(self) -> AiokprodError:
        """Return why the transaction can only be aborted."""
        cause = self._machine.cause
        if self._failure is not None and (cause is None or cause.reason in OF_RECORDS):
            return self._failure.clone()
        return error_of(Cause(Reason.ASKED) if cause is None else cause, self._id)

    def _why_aborted(self, cause: Cause) -> AiokprodError:
        """Return the error of the records that fail with their transaction."""
        error = TransactionAbortedError("the transaction was aborted")
        if cause.reason in OF_RECORDS and self._failure is not None:
            error.__cause__ = self._failure.clone()
        elif cause.reason not in (Reason.ASKED, Reason.CLOSED):
            error.__cause__ = error_of(cause, self._id)
        return error

    # ------------------------------------------------------------------ requests
    async def _ask(
        self, action: SendInitProducerId | SendAddPartitions | SendAddOffsets | SendTxnOffsetCommit | SendEndTxn
    ) -> None:
        """Send one request and tell the machine its answer, or that there is none."""
        kind, key = CoordinatorKind.TRANSACTION, self._id
        versions = SECOND_VERSION if self._machine.mode is Mode.VERSION_2 else FIRST_VERSION
        message: Any
        match action:
            case SendInitProducerId():
                message = InitProducerIdRequest(self._id, self._timeout_ms, action.producer_id, action.epoch)
            case SendAddPartitions():
                message = self._add_partitions(action)
            case SendAddOffsets():
                message = AddOffsetsToTxnRequest(self._id, action.producer_id, action.epoch, action.group)
            case SendTxnOffsetCommit():
                if action.number not in self._offsets:
                    return
                kind, key = CoordinatorKind.GROUP, action.group
                message = self._offset_commit(action)
            case SendEndTxn():
                is_commit = action.verdict is Verdict.COMMIT
                message = EndTxnRequest(self._id, action.producer_id, action.epoch, is_commit)
        answer = await self._coordinators.ask(kind, key, message, versions[type(message)])
        if isinstance(answer, NoAnswer):
            self._trouble = answer.error
            if answer.code is None:
                self._apply(self._machine.lost(action.ticket, answer.is_written, self._loop.time()))
            else:
                self._apply(self._refused_answer(action, answer.code))
            return
        self._apply(self._answered(action, answer))

    def _answered(self, action: Any, answer: Any) -> list[Action]:
        machine, now = self._machine, self._loop.time()
        match action:
            case SendInitProducerId():
                return machine.init_answered(
                    action.ticket, answer.error_code, answer.producer_id, answer.producer_epoch, now
                )
            case SendAddPartitions():
                added = {
                    (topic.name, result.partition_index): result.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for result in topic.results_by_partition
                }
                return machine.partitions_added(action.ticket, added, now)
            case SendAddOffsets():
                return machine.offsets_added(action.ticket, answer.error_code, now)
            case SendTxnOffsetCommit():
                asked = self._offsets_asked(action)
                codes = dict.fromkeys(asked, NO_ANSWER)
                for topic in answer.topics:
                    for partition in topic.partitions:
                        if (topic.name, partition.partition_index) in codes:
                            codes[topic.name, partition.partition_index] = partition.error_code
                return machine.offsets_committed(action.ticket, codes, now)
            case _:
                return machine.end_answered(
                    action.ticket, answer.error_code, answer.producer_id, answer.producer_epoch, now
                )

    def _refused_answer(self, action: Any, code: int) -> list[Action]:
        """Take a refusal for good of the look-up, or a version that the coordinator does not have, as the answer."""
        machine, now = self._machine, self._loop.time()
        match action:
            case SendInitProducerId():
                return machine.init_answered(action.ticket, code, -1, -1, now)
            case SendAddPartitions():
                return machine.partitions_added(action.ticket, dict.fromkeys(action.partitions, code), now)
            case SendAddOffsets():
                return machine.offsets_added(action.ticket, code, now)
            case SendTxnOffsetCommit():
                return machine.offsets_committed(action.ticket, dict.fromkeys(self._offsets_asked(action), code), now)
            case _:
                return machine.end_answered(action.ticket, code, -1, -1, now)

    def _offsets_asked(self, action: SendTxnOffsetCommit) -> list[Partition]:
        known = self._offsets.get(action.number)
        return [] if known is None else list(known[0])

    def _add_partitions(self, action: SendAddPartitions) -> AddPartitionsToTxnRequest:
        topics: dict[str, list[int]] = {}
        for name, partition in action.partitions:
            topics.setdefault(name, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=action.producer_id,
            v3_and_below_producer_epoch=action.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, numbers) for name, numbers in topics.items()],
        )

    def _offset_commit(self, action: SendTxnOffsetCommit) -> TxnOffsetCommitRequest:
        offsets, group, _ = self._offsets[action.number]
        return TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=action.producer_id,
            producer_epoch=action.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=offset_topics(offsets),
        )

    def _forget(self, group: str | None) -> None:
        if group is None:
            self._coordinators.forget(CoordinatorKind.TRANSACTION, self._id)
        else:
            self._coordinators.forget(CoordinatorKind.GROUP, group)

    async def _flush(self, transaction: int) -> None:
        await self.flush()
        self._apply(self._machine.flushed(transaction, self._loop.time()))

    def _wake_at(self, at: float) -> None:
        # The newest time is the one that counts: the machine says it when it has changed, and not again.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at != inf:
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        # Not by the loop's clock alone: a loop may call a little early, and the machine would wait for a time that was told.
        self._apply(self._machine.tick(max(self._timer_at, self._loop.time())))

    # ------------------------------------------------------------------ news
    def _came_up(self) -> None:
        self._trouble = None
        if self._initialised is not None and not self._initialised.done():
            self._initialised.set_result(None)
        early, self._early = self._early, None
        if early is not None:
            self._begin_in_time(early)

    def _stayed_down(self, cause: Cause) -> None:
        if cause.reason is Reason.DEADLINE:
            error = not_in_time(self._id, self._trouble)
        else:
            error = error_of(cause, self._id)
        if self._initialised is not None and not self._initialised.done():
            self._initialised.set_exception(error)
            self._initialised.exception()
        self._fail_waiting(error)  # for an early commit

    def _lost_id(self, cause: Cause) -> None:
        error = self._fatal = error_of(cause, self._id)
        if self._machine.outcome is Outcome.UNKNOWN:
            error.persistence = TransactionOutcomeUnknownError.default_persistence
        if not self._is_starting:
            self._crashed(error)

    def _offsets_done(self, action: OffsetsDone) -> None:
        _, _, done = self._offsets.pop(action.number)
        if done.done():
            return
        if action.cause is None:
            done.set_result(None)
        elif action.cause.reason in (Reason.ASKED, Reason.CLOSED):
            done.set_exception(TransactionAbortedError("the transaction was aborted before it had taken the offsets"))
        elif action.cause.reason is Reason.RECORD_FAILED:
            done.set_exception(self._why_aborted(action.cause))
        else:
            done.set_exception(error_of(action.cause, self._id))

    def _ended(self, action: Ended) -> None:
        if action.outcome is Outcome.COMMITTED:
            self._metrics.transactions_committed.add(1)
        elif action.outcome is Outcome.ABORTED:
            self._metrics.transactions_aborted.add(1)
        self._tell(_Result(action.outcome, action.cause))

    def _tell(self, result: _Result) -> None:
        waiting, self._waiting = self._waiting, []
        is_seen = False
        for future in waiting:
            if not future.done():
                future.set_result(result)
                is_seen = True
        if not is_seen:
            self._unseen = result

    def _error_of(self, result: _Result) -> AiokprodError:
        """Return the error of a commit that was refused, or of an end that is not what was asked for."""
        if self._fatal is not None:
            return self._fatal.clone()
        if result.outcome is None:
            return self._first_cause()
        if result.outcome is Outcome.UNKNOWN:
            error: AiokprodError = TransactionOutcomeUnknownError(
                f"the coordinator has not said in time how the transaction of {self._id!r} ended"
            )
            error.__cause__ = self._trouble
            return error
        error = TransactionAbortedError("the transaction was aborted")
        if result.cause.reason is not Reason.ASKED:
            error.__cause__ = self._first_cause()
        return error

    def _warn_of_timeout(self, action: TimeoutNear) -> None:
        left_s = self._timeout_ms / 1000 - action.open_s
        waits = (
            "the commit is on its way"
            if self._machine.state is State.COMMITTING
            else "commit or abort was not called yet"
        )
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
        return f"<Transactor {self._id!r} {self._machine.state.value}, transaction {self._machine.transaction}>"


def _text_of(cause: Cause) -> str:
    return cause.reason.value if cause.code is None else f"{cause.reason.value} (code {cause.code})"


def _retrieve(done: asyncio.Future[None]) -> None:
    """Mark the exception of a future as seen."""
    if not done.cancelled():
        done.exception()
