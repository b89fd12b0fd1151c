"""`exactly_once`: reads batches, and commits each with what was made of it. One object for one loop.

    read ──> begin ──> the loop's body ──> send offsets ──> commit ──> read ...
     │                                        (outcomes.py says what follows when one of them fails)
     └── no place, or another one: drop what was read ──> committed offsets ──> seek ──> read

Invariants: offsets are sent with the group metadata of the moment in which their records were read, so the coordinator refuses
those of a member that has lost its partitions since; after anything but a commit, and in a new place, nothing is handed over
before the consumer was put to committed offsets that no transaction is about to change; what is handed over of a partition goes
on where the last record of it ended (positions.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from aiokprod.backoff import Backoff
from aiokprod.consuming.aiokafka_source import AiokafkaSource, is_aiokafka
from aiokprod.consuming.batch import Batch
from aiokprod.consuming.confluent_source import ConfluentSource, is_confluent
from aiokprod.consuming.outcomes import TABLE, Next, Outcome, Step, outcome_of
from aiokprod.consuming.positions import Jump, Positions
from aiokprod.consuming.source import Place, Source
from aiokprod.errors import (
    AiokprodError,
    ClusterError,
    ConfigError,
    ProducerFailedError,
    RecordTypeError,
    TransactionOutcomeUnknownError,
    UsageError,
    advise,
)
from aiokprod.logs import StateLog
from aiokprod.model import TransactionOutcome
from aiokprod.pipeline.sending.owned_path import TICKET, OwnedPath, Ticket
from aiokprod.pipeline.sending.send_path import SendPath
from aiokprod.producer import Producer
from aiokprod.transactions.machine_actions import Partition
from aiokprod.transactions.offsets import GroupMetadata, Offset
from aiokprod.transactions.transaction import Transaction
from aiokprod.transactions.transactor import Transactor

MOST_SECONDS: Final = 3600.0
LONG_S: Final = 5.0
"""After so long a wait for committed offsets is told."""
GRACE_S: Final = 0.5
"""So long a task that was cancelled waits for the end of its batch, which then goes on without it."""
ENDED: Final = (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED)
PAUSE_S: Final = 0.05
"""Between two looks at a consumer that has no place in its group."""
MOST_JUMPS: Final = 5
"""After so many of a partition, one after the other, the consumer is not put back any more."""
PAUSES: Final = Backoff(0.1, 2.0, jitter=0.0)
"""Before a batch is run again after an error that can pass."""


def exactly_once(
    consumer: object, producer: Producer, *, max_records: int = 500, timeout: float = 1.0
) -> ExactlyOnceBatches:
    """Return the batches of a consumer, each in a transaction with what is made of it; see docs/exactly_once.md.

        async with exactly_once(consumer, producer) as batches:
            async for batch in batches:
                for record in batch:
                    batch.send("out", transform(record.value), key=record.key)

    A batch is a list of records; its `send` and `send_many` are those of the producer, and are refused once it is over.

    When the loop asks for the next batch, the offsets of this one are sent and the transaction is committed. If the body
    raises, the transaction is aborted, the consumer goes back to the last committed offsets, and the exception goes on. After a
    rebalance, or an error that can pass, the batch is aborted and read again, by the member that has its partitions then.
    Source: KIP-447.

    Args:
        consumer: aiokafka's AIOKafkaConsumer, started, with a `group_id`, `enable_auto_commit=False` and
            `isolation_level="read_committed"`; or confluent-kafka's Consumer or AIOConsumer, subscribed, with
            `"enable.auto.commit": False` and `"enable.auto.offset.store": False`. Nothing else may read from it meanwhile.
        producer: with a `transactional_id`, outside of a transaction.
        max_records: the most records of a batch.
        timeout: seconds that one poll waits for records; polls without records make no batch.

    Returns:
        The batches, for one `async with` and one `async for` in it.

    Raises:
        RecordTypeError: `consumer` or `producer` is something else.
        ConfigError: the consumer commits by itself, or reads what is not committed; `max_records` or `timeout` is wrong.
        UsageError: the consumer has no group, or the producer no `transactional_id`.
    """
    if not isinstance(producer, Producer):
        raise RecordTypeError(f"producer is a Producer of aiokprod, not {type(producer).__name__}")
    if producer.config.transactional_id is None:
        raise UsageError("the producer has no transactional_id: give it one to write in transactions")
    if not isinstance(max_records, int) or isinstance(max_records, bool) or max_records < 1:
        raise ConfigError(f"max_records is {max_records!r}: it must be a number of records, 1 or more")
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout <= MOST_SECONDS:
        raise ConfigError(
            f"timeout is {timeout!r}: it must be a number of seconds, above 0 and at most {MOST_SECONDS:g}"
        )
    return ExactlyOnceBatches(_source_of(consumer), producer, max_records, float(timeout))


def _source_of(consumer: object) -> Source:
    if is_confluent(consumer):
        return ConfluentSource(consumer)
    if is_aiokafka(consumer):
        return AiokafkaSource(consumer)
    raise RecordTypeError(
        f"consumer is an AIOKafkaConsumer of aiokafka, or a Consumer or AIOConsumer of confluent-kafka, not"
        f" {type(consumer).__name__}"
    )


class _OpenBatch:
    """The batch at hand."""

    def __init__(
        self, transaction: Transaction, member: GroupMetadata, offsets: dict[Partition, Offset], ticket: Ticket
    ) -> None:
        self.transaction = transaction
        self.ticket = ticket
        self.member = member  # when its records were read
        self.offsets = offsets
        self.is_committing = False


class ExactlyOnceBatches:
    """The batches of a consumer, made by `exactly_once`.

    `break` leaves the batch at hand: it is aborted, and read again later. `stop()` ends the loop after it was committed.
    """

    def __init__(self, source: Source, producer: Producer, max_records: int, timeout_s: float) -> None:
        self._source = source
        self._producer = producer
        self._max_records = max_records
        self._timeout_s = timeout_s
        self._log = StateLog("exactly_once", client_id=producer.config.client_id)
        self._is_entered = self._is_open = self._is_iterated = self._is_stopped = False
        self._is_moving = False  # a task waits for the next batch
        self._has_read = self._has_begun = False
        self._batch: _OpenBatch | None = None
        self._place: Place | None = None  # in which the consumer was put to stable offsets, and has not left them since
        self._positions = Positions()  # of the consumer in this place
        self._jumps: dict[Partition, int] = {}  # back, one after the other
        self._again = 0  # so many records are looked at a second time
        self._starts: dict[Partition, int] = {}  # the first offsets that were read and not committed
        self._runs = 0  # of batches, since the last commit
        self._path: OwnedPath | None = None  # of the producer, while the loop owns its transactions
        self._path_before: SendPath | None = None
        self._ticket_before: Ticket | None = None  # of the task that runs the block

    # ------------------------------------------------------------------ calls of the user
    async def __aenter__(self) -> Self:
        """Check the consumer and the producer; nothing is read. First waits for the end of a batch whose end was cancelled.

        Raises:
            UsageError: the producer is not started or inside a transaction; the consumer is not started, or has no member in
                the group; this object was used before.
            ConfigError: the consumer commits by itself.
            TransactionTimeoutError: the batch whose end was cancelled had no end within `max_block_ms`.

        Cancellation: nothing has changed.
        """
        if self._is_entered:
            raise UsageError("exactly_once() is used once: call it again for the next loop")
        transactor = transactor_of(self._producer)
        await transactor.ended_in_background()
        transactor.check_idle()
        try:
            await self._source.check()
        except BaseException:
            self._source.close()
            raise
        self._is_entered = self._is_open = True
        self._own()
        return self

    def __aiter__(self) -> Self:
        """Return the batches.

        Raises:
            UsageError: outside of the `async with`, or a second time.
        """
        if not self._is_open:
            raise UsageError("the batches are read inside `async with exactly_once(...) as batches:`")
        if self._is_iterated:
            raise UsageError("the batches are read by one loop: call exactly_once() again for another one")
        self._is_iterated = True
        return self

    async def __anext__(self) -> Batch:
        """Commit the batch at hand, and return the next one: a list of records, as the consumer has them.

        Raises:
            StopAsyncIteration: after `stop()`.
            ProducerFencedError: another instance has taken the `transactional_id`.
            ProducerClosedError: the producer was closed.
            DeliveryError, OffsetCommitRefusedError, TransactionTimeoutError: the batch cannot be committed, and would fail
                again.
            ClusterError, ProtocolError: the committed offsets cannot be read, or the consumer does not go on from them.
            UsageError: the body has ended the transaction, or another task waits for a batch.
            Exception: what the consumer raises.

        Cancellation: a commit goes on; the end of the `async with` waits for it. Everything else is undone there.
        """
        if not self._is_open or not self._is_iterated:
            raise UsageError("the batches are read by `async for` inside `async with exactly_once(...) as batches:`")
        if self._is_moving:
            raise UsageError("another task waits for the next batch: one loop reads them")
        self._is_moving = True
        try:
            if self._batch is not None:
                self._batch.ticket.is_over = True
                await self._finish(self._batch)
            return await self._next()
        finally:
            self._is_moving = False

    def stop(self) -> None:
        """End the loop after the batch at hand, which is committed. A plain call on the loop; a wait for records goes on for
        its `timeout`.
        """
        self._is_stopped = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abort the batch at hand, and go back from what was read and not committed; a commit that was asked for goes on.

        Raises:
            TransactionOutcomeUnknownError, ProducerFencedError, ClusterError: this was not possible; told as a note if the
                block has raised an exception.

        Cancellation: of the block: waits for half a second at most, whatever the cluster does; of this call: stops waiting at
            once. The end of the transaction goes on, and the consumer is put to the first records that were read and are not
            known to be committed. The next `exactly_once` waits for that end, and begins at committed offsets.
        """
        self._is_open = False
        # A task that is cancelled is to end now, as its time limit is over, for example; an outage would hold it for minutes.
        scope = asyncio.timeout(GRACE_S if isinstance(error, asyncio.CancelledError) else None)
        try:
            async with scope:
                await self._leave(error is not None)
        except Exception as trouble:  # also of the consumer: the exception of the body is the one that is told
            if error is None:
                raise
            if not scope.expired():
                error.add_note(f"exactly_once could not undo what was read ({type(trouble).__name__}): {trouble}")
        finally:
            self._disown()
            self._source.close()

    def _own(self) -> None:
        """Let records of the producer go the way of batches."""
        self._ticket_before = TICKET.get()
        path = path_of(self._producer)
        if path is not None:
            self._path, self._path_before = OwnedPath(path, self._producer), path
            use_path(self._producer, self._path)

    def _disown(self) -> None:
        """Undo that; not of a producer that was closed meanwhile."""
        # Tasks that this one starts from now on are of no batch.
        TICKET.set(self._ticket_before)
        path, self._path = self._path, None
        if path is not None and path_of(self._producer) is path:
            use_path(self._producer, self._path_before)

    # ------------------------------------------------------------------ the next batch
    async def _next(self) -> Batch:
        """Read until there are records of the place in which the consumer was put to stable offsets."""
        while self._is_open and not self._is_stopped:
            if self._place is None and not await self._go_back():
                await asyncio.sleep(PAUSE_S)
            place, self._place = self._place, None  # until the read is over: it may be cancelled
            self._has_read = True
            reading = await self._source.read(self._again or self._max_records, self._timeout_s)
            found = [self._source.position_of(record) for record in reading.records]
            self._note_starts(found)  # also of what is dropped below: it may be the first of its partition
            if place is None or reading.place != place:
                continue  # read before, or beside, a rebalance: another member may have these records
            offsets = self._positions.take(found, asyncio.get_running_loop().time())
            if isinstance(offsets, Jump):
                await self._after(offsets, len(found))
                continue
            self._place, self._again = place, 0
            for partition in offsets:
                self._jumps.pop(partition, None)
            if offsets and not self._is_stopped and self._is_open:
                transaction = self._producer.transaction()
                await transaction.__aenter__()
                ticket = Ticket(self._producer)
                TICKET.set(ticket)  # for the body, and for the tasks that it starts
                self._batch = _OpenBatch(transaction, place.member, offsets, ticket)
                self._runs += 1
                return Batch(reading.records, self._producer, ticket)
            if offsets:
                self._place = None  # read, and not handed over
        raise StopAsyncIteration

    def _note_starts(self, found: Iterable[tuple[Partition, Offset]]) -> None:
        for partition, offset in found:
            self._starts.setdefault(partition, offset.offset - 1)

    async def _after(self, jump: Jump, count: int) -> None:
        """Let the consumer be put back, if it was not put back too often.

        Args:
            count: the records that were read.
        """
        if not jump.is_back:
            # Mostly markers, as the same records tell. More of them, in a log that grows, would have other gaps.
            self._again = count
            return
        (topic, partition), jumps = jump.partition, self._jumps.get(jump.partition, 0) + 1
        self._jumps[jump.partition] = jumps
        told = f"reads {topic}-{partition} from offset {jump.found} on instead of {jump.expected}"
        if jumps >= MOST_JUMPS:
            error = ClusterError(
                f"the consumer of {self._source.group_id!r} {told}, and was put back {MOST_JUMPS - 1} times: perhaps the"
                " partition has lost its last records, as after an unclean election"
            )
            advise(
                error,
                "Stop all instances of the group, and set its offset of the partition to where it is to read on"
                " (kafka-consumer-groups --reset-offsets).",
            )
            raise error
        self._log.warned("jumped", f"the consumer {told}: it is put back")
        await asyncio.sleep(PAUSES.delay_s(jumps, 0.5))

    async def _go_back(self, *, fetched_only: bool = False) -> bool:
        """Put the consumer to the committed offsets; where there are none, to the first record that was read.

        Args:
            fetched_only: True leaves a partition that is not fetched yet as it is.

        Returns:
            False: it has no place now, or has moved to another one, or a partition is not fetched yet.
        """
        place = await self._source.place()
        if place is None:
            return False
        began = asyncio.get_running_loop().time()

        def waits(reason: str) -> None:
            if asyncio.get_running_loop().time() - began >= LONG_S:
                self._log.warned("offsets", f"waits for the committed offsets of {self._source.group_id!r}: {reason}")

        transactor = transactor_of(self._producer)
        committed = await transactor.committed_offsets(self._source.group_id, place.partitions, waits)
        positions = self._starts | committed
        if not await self._source.seek(place, positions, fetched_only=fetched_only):
            return False
        for partition in committed:
            self._starts.pop(partition, None)
        # A loop before this one, on the same consumer, may have committed a second ago.
        unsettled = place.partitions - committed.keys() if self._has_begun else place.partitions
        self._positions.begin(positions, unsettled, asyncio.get_running_loop().time())
        self._has_begun = True
        self._place = place
        return True

    # ------------------------------------------------------------------ the end of a batch
    async def _finish(self, batch: _OpenBatch) -> None:
        """Commit the batch, or abort it where the loop can go on after that."""
        if batch.transaction.outcome is not None:
            # A producer that is closed or has failed during the body ends its transaction too, and says why.
            raise batch.transaction.ended_by or UsageError(
                "the body has ended the transaction of its batch: leave that to exactly_once"
            )
        step, pause_s = Step.OFFSETS, 0.0
        while True:
            try:
                outcome = await self._take(step, batch)
            except Exception as error:
                outcome = outcome_of(error, self._runs, batch.transaction.outcome)
                if TABLE[step, outcome] is Next.RAISE:
                    raise
                self._log.warned(outcome.name, f"{step.value}: {outcome.value}: {type(error).__name__}: {error}")
                if outcome is Outcome.PASSING:
                    pause_s = PAUSES.delay_s(self._runs, 0.5)
                elif outcome is Outcome.GROUP_MOVED_ON:
                    self._runs -= 1
            match TABLE[step, outcome]:
                case Next.COMMIT:
                    step = Step.COMMIT
                case Next.ABORT:
                    step = Step.ABORT
                case Next.READ:
                    self._batch, self._runs = None, 0
                    for partition in batch.offsets:
                        self._starts.pop(partition, None)
                    return
                case _:
                    self._batch = self._place = None
                    await asyncio.sleep(pause_s)
                    return

    async def _take(self, step: Step, batch: _OpenBatch) -> Outcome:
        batch.is_committing = step is Step.COMMIT
        match step:
            case Step.OFFSETS:
                await batch.transaction.send_offsets(batch.offsets, batch.member)
            case Step.COMMIT:
                await self._producer.commit_transaction()
            case Step.ABORT:
                if await self._producer.abort_transaction() is TransactionOutcome.COMMITTED:
                    return Outcome.COMMITTED
        return Outcome.DONE

    # ------------------------------------------------------------------ the end of the block
    async def _leave(self, is_raising: bool) -> None:
        """Undo the batch at hand, unless its commit was asked for, and go back from what was read and not committed."""
        batch, self._batch = self._batch, None
        try:
            try:
                if batch is not None:
                    batch.ticket.is_over = True
                    self._place = None
                    if not is_raising:
                        self._log.warned(
                            "left",
                            "the loop was left inside a batch, which is read again; stop() ends it after the commit",
                        )
                    await self._end(batch)
            except Exception:
                await self._go_back_in_time()
                raise
            await self._go_back_in_time()
        except BaseException:
            # Another time, or in vain: no broker is asked any more. Committed offsets are not stable before the end of the
            # batch is done, and a group that has none would not come back to these records.
            with suppress(Exception):
                await self._rewind()
            raise

    async def _rewind(self) -> None:
        """Put the consumer to the first records that were read and not committed, as far as is known here."""
        place = await self._source.place()
        if self._has_read and place is not None:
            await self._source.seek(place, self._starts, fetched_only=True)

    async def _end(self, batch: _OpenBatch) -> None:
        try:
            await self._commit_or_abort(batch)
        except asyncio.CancelledError:
            # The task was cancelled again. The commit or abort goes on; a commit that is refused then still needs its abort.
            if batch.transaction.outcome not in ENDED:
                batch.transaction.end_in_background(commits=batch.is_committing)
            raise

    async def _commit_or_abort(self, batch: _OpenBatch) -> None:
        if batch.is_committing and batch.transaction.outcome not in ENDED:
            try:
                await self._producer.commit_transaction()  # goes on with the one that was cancelled
            except (ProducerFailedError, TransactionOutcomeUnknownError):
                raise
            except AiokprodError:
                pass  # refused: it is aborted below, or has been
        if batch.transaction.outcome not in ENDED:
            await self._producer.abort_transaction()

    async def _go_back_in_time(self) -> None:
        """Go back within `max_block_ms`; a consumer without a place begins at committed offsets when it has one again."""
        if not self._has_read or self._place is not None:
            return
        bound_s = self._producer.config.max_block_ms / 1000
        scope = asyncio.timeout(bound_s)
        try:
            async with scope:
                # A partition that is not fetched is started by polls, if at all, and there are no more of them.
                while not await self._go_back(fetched_only=True):
                    if await self._source.place() is None:
                        return
                    await asyncio.sleep(PAUSE_S)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise ClusterError(
                f"the committed offsets of {self._source.group_id!r} could not be read within {bound_s:g} s: the consumer was"
                " put to the first records that it has read and that are not known to be committed"
            ) from error

    def __repr__(self) -> str:
        state = "open" if self._is_open else "closed" if self._is_entered else "not entered"
        return f"<ExactlyOnceBatches {state}>"


def transactor_of(producer: Producer) -> Transactor:
    """Return the transactions of a producer that is started."""
    return producer._transactor()  # pyright: ignore[reportPrivateUsage] - of this package; users have no need of it


def path_of(producer: Producer) -> SendPath | None:
    """Return the way of records of a producer; None: nothing can be sent."""
    return producer._path  # pyright: ignore[reportPrivateUsage] - of this package


def use_path(producer: Producer, path: SendPath | None) -> None:
    """Let records of a producer go this way."""
    producer._use_path(path)  # pyright: ignore[reportPrivateUsage] - of this package
