"""One task of a batch that is written exactly once: its rows and its marker in one transaction, whose end is the driver's.

order: WRITE    take a transactional id, send the rows, add the marker, wait for all of it, leave it prepared
       SKIP     count the rows to their end
       COMPARE  read them, and compare them with the marker that is committed
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from aiokprod.errors import AiokprodError
from aiokprod.producer import Producer, go_on_as
from aiokprod.spark.engine import Engine, Lease, current_engine
from aiokprod.spark.errors import SinkUsageError, root_of
from aiokprod.spark.exactly_once.errors import missing_right, refusal_error
from aiokprod.spark.exactly_once.facts import Names, marker_text, name_of_query
from aiokprod.spark.exactly_once.protocol import (
    PROTOCOL,
    Attempt,
    BatchName,
    Marker,
    Order,
    Refusal,
    Report,
)
from aiokprod.spark.fingerprint import total
from aiokprod.spark.messages import ExactlyOnceReport, Opened, TaskIdentity, TaskMessage, is_continuous
from aiokprod.spark.rows import pieces
from aiokprod.spark.task import HandOver, Outcome, topic_weight
from aiokprod.transactions.offsets import Offset

if TYPE_CHECKING:
    from aiokprod.config import ProducerConfig
    from aiokprod.spark.exactly_once.settings import ExactlyOnce
    from aiokprod.spark.options import SinkOptions
    from aiokprod.spark.schema import ColumnPlan
    from aiokprod.transactions.prepared import PreparedTransaction

ABORT_S: Final = 5.0
"""The time that an abort may take where a task fails: what it leaves open is aborted by the next batch."""
UNTOUCHED_S: Final = 0.2
"""The time that the take-over of a task without rows may take: ids come again eight batches later, or in the next attempt
of the stage, and one that is taken over then aborts what another task has prepared."""
PIECE_BYTES: Final = 16_777_216


def write_exactly_once(
    batches: Iterator[Any], options: SinkOptions, plan: ColumnPlan, settings: ExactlyOnce, opened: Opened | None
) -> TaskMessage:
    """Write the rows of a task in a transaction, and leave it prepared.

    Raises:
        ExactlyOnceError: the batch is refused; nothing was sent.
        RowError, AiokprodError: as `write_rows`; nothing of it becomes visible.
    """
    if is_continuous() or opened is None:
        raise SinkUsageError("trigger(continuous=...) is not supported: use processingTime or availableNow")
    identity = TaskIdentity.current(options.batch_id)
    batch = settings.job or _batch_of_stream(identity)
    is_stream = settings.job is None
    stream = None if is_stream or identity.query_id is None else name_of_query(identity.query_id)
    order = PROTOCOL.order(
        opened.opening,
        batch,
        identity.partition_id,
        is_stream=is_stream,
        stream=stream,
        needs_facts=settings.needs_facts,
    )
    if order in (Refusal.NO_FACTS, Refusal.UNFINISHED) and settings.may_lack_facts:
        order = Order.WRITE
    if isinstance(order, Refusal):
        where = f"task {identity.partition_id}"
        raise refusal_error(order, opened.opening, batch, where, is_job=not is_stream and stream is None)
    task = _Task(options, plan, settings, opened, batch, identity, order)
    began_s, began = time.time(), time.monotonic()
    report, version = task.run(batches)
    told = ExactlyOnceReport(opened, batch, report, version, stream)
    return task.outcome.message(options.batch_id, began_s, time.monotonic() - began, told)


def _batch_of_stream(identity: TaskIdentity) -> BatchName:
    if identity.query_id is None or identity.batch_id is None:
        raise SinkUsageError(
            "Spark does not name the query and the batch to this task: delivery=exactly_once needs both"
        )
    return BatchName(name_of_query(identity.query_id), identity.batch_id)


class _Task:
    """The work of one task."""

    def __init__(
        self,
        options: SinkOptions,
        plan: ColumnPlan,
        settings: ExactlyOnce,
        opened: Opened,
        batch: BatchName,
        identity: TaskIdentity,
        order: Order,
    ) -> None:
        self.outcome = Outcome()
        self._options = options
        self._plan = plan
        self._names = Names(settings.sink, settings.topic, opened.slots)
        self._settings = settings
        self._opened = opened
        self._batch = batch
        self._identity = identity
        self._order = order

    def run(self, batches: Iterator[Any]) -> tuple[Report, int]:
        """Carry the order out; return the report, and the version of the transaction's protocol."""
        filled = (batch for batch in batches if batch.num_rows)
        if self._order is Order.SKIP:
            return Report(self._order, None, sum(batch.num_rows for batch in filled)), 0
        if self._order is Order.COMPARE and not self._settings.may_duplicate:
            count, fingerprint = self._summed(filled)
            self._compare(count, fingerprint)
            return Report(self._order, None, count), 0
        session = self._session()
        session.take_early()
        first = None
        try:
            first = next(filled, None)
        finally:
            session.note_first(first is not None, self._options.idle_timeout_s)
        if first is None:  # nothing to write; also where other rows may be written again
            return Report(self._order, None, 0), 0
        return self._written(session, chain((first,), filled))

    # ------------------------------------------------------------------ compare
    def _summed(self, filled: Iterator[Any]) -> tuple[int, int]:
        """Return number and fingerprint of the rows, without sending them."""
        sums: dict[str, int] = defaultdict(int)
        count = 0
        for batch in filled:
            for rows in pieces(batch, self._plan, self._options.topic, count, PIECE_BYTES):
                sums[rows.topic] += total(rows.fingerprints())
            count += batch.num_rows
        return count, sum(each * topic_weight(topic) for topic, each in sums.items()) % 2**64

    def _is_same(self, rows: int, fingerprint: int) -> bool:
        return PROTOCOL.is_same(self._opened.opening.markers[self._identity.partition_id], rows, fingerprint)

    def _compare(self, rows: int, fingerprint: int) -> None:
        if not self._is_same(rows, fingerprint):
            where = f"task {self._identity.partition_id}"
            is_job = self._settings.job is not None and self._identity.query_id is None
            raise refusal_error(Refusal.OTHER_ROWS, self._opened.opening, self._batch, where, is_job=is_job)

    # ------------------------------------------------------------------ write
    def _session(self) -> Session:
        identity = self._identity
        name = self._names.task(self._opened.opening.token.generation, identity.partition_id, identity.attempt)
        config = self._options.config
        return Session(current_engine(), config, config.replace(transactional_id=name))

    def _written(self, session: Session, filled: Iterator[Any]) -> tuple[Report, int]:
        identity = self._identity
        session.begin()
        hand = HandOver(Lease(session.engine, session.producer), self._options, self._plan, self.outcome)
        try:
            for batch in filled:
                hand.over(batch)
            hand.finish()
            if self._order is Order.COMPARE and self._is_same(self.outcome.rows, self.outcome.fingerprint):
                session.give_up()
                count, self.outcome = self.outcome.rows, Outcome()
                return Report(self._order, None, count), 0
            marker = Marker(self._batch, self.outcome.rows, self.outcome.fingerprint)
            prepared = session.prepare(self._names, identity.partition_id, marker)
        except BaseException as error:
            hand.give_up()
            session.give_up()
            right = missing_right(root_of(error).code, self._names) if isinstance(error, AiokprodError) else None
            if right is not None:
                error.add_note(right)
            raise
        session.keep(self._options.idle_timeout_s)
        generation = self._opened.opening.token.generation
        attempt = Attempt(generation, identity.partition_id, identity.attempt, prepared.producer_id, prepared.epoch)
        return Report(self._order, attempt, self.outcome.rows), prepared.version


@contextmanager
def _listed_in(tasks: set[asyncio.Task[Any]]) -> Generator[None]:
    task = asyncio.current_task()
    assert task is not None
    tasks.add(task)
    try:
        yield
    finally:
        tasks.discard(task)


class Session:
    """The transaction of one task, on a producer that the process keeps for its tasks, one after the other.

    Args:
        engine: of this process.
        kept_as: the options without the id of the task: the key of the producer.
        config: the options with it.
    """

    producer: Producer

    def __init__(self, engine: Engine, kept_as: ProducerConfig, config: ProducerConfig) -> None:
        self.engine = engine
        self._kept_as = kept_as
        self._config = config
        self._taking: Future[Producer] | None = None

    def take_early(self) -> None:
        """Begin to take the id over while the first rows are made, unless the last task of this process had none.

        So a stream of which most tasks are empty does not take an id over for each of them.
        """
        if self.engine.last_task_had_rows:
            self._taking = self.engine.submit(self._take_early())

    def note_first(self, has_rows: bool, idle_s: float) -> None:
        """Note whether the task has rows. If it has none, the producer is kept for the next task; nothing is waited for."""
        self.engine.last_task_had_rows = has_rows
        if not has_rows and self._taking is not None:
            self.engine.submit(self._keep_untouched(self._taking, idle_s))

    async def _take_early(self) -> Producer:
        with _listed_in(self.engine.early):
            return await self._take()

    async def _keep_untouched(self, taking: Future[Producer], idle_s: float) -> None:
        with _listed_in(self.engine.kept_later), suppress(AiokprodError, TimeoutError):
            async with asyncio.timeout(UNTOUCHED_S):
                producer = await asyncio.wrap_future(taking)
            self.engine.give_back(self._kept_as, producer, idle_s)

    def begin(self) -> None:
        """Take the id over, and begin a transaction.

        Raises:
            AiokprodError: the cluster cannot be reached, or refuses the id.
        """
        self.producer = self.engine.submit(self._begin()).result()

    async def _take(self) -> Producer:
        timeout_s = self._config.max_block_ms / 1000
        producer: Producer | None = self.engine.take(self._kept_as)
        if producer is not None and not producer.health().live:
            await producer.close(0)
            producer = None
        try:
            if producer is None:
                producer = Producer(self._config)
                await producer.start(timeout_s)
            else:
                assert self._config.transactional_id is not None
                await go_on_as(producer, self._config.transactional_id, timeout_s)
        except BaseException:
            if producer is not None:
                await producer.close(0)
            raise
        return producer

    async def _begin(self) -> Producer:
        producer = await self._taken()
        try:
            producer.begin_transaction()
        except BaseException:
            await producer.close(0)
            raise
        return producer

    async def _taken(self) -> Producer:
        taking = self._taking
        if taking is None or (taking.done() and taking.exception() is not None):  # the first row may come minutes later
            return await self._take()
        return await asyncio.wrap_future(taking)

    def prepare(self, names: Names, partition: int, marker: Marker) -> PreparedTransaction:
        """Add the marker, and wait until everything is in the log."""
        return self.engine.submit(self._prepare(names, partition, marker)).result()

    async def _prepare(self, names: Names, partition: int, marker: Marker) -> PreparedTransaction:
        # Behind the rows: beside them the coordinator would take one change at a time, and answer the other one with
        # CONCURRENT_TRANSACTIONS, whose repetition costs more than this wait.
        group, slot = names.marker(partition)
        fact = marker_text(marker)
        await self.producer.send_offsets_to_transaction({(names.topic, slot): Offset(fact.offset, fact.text)}, group)
        return await self.producer.prepare_transaction()

    def keep(self, idle_s: float) -> None:
        """Keep the producer for the next task. The prepared transaction stays as it is."""
        self.engine.submit(self._keep(idle_s)).result()

    async def _keep(self, idle_s: float) -> None:
        self.engine.give_back(self._kept_as, self.producer, idle_s)

    def give_up(self) -> None:
        """Abort the transaction, if that goes quickly, and close the producer. Never raises an error of its own."""
        with suppress(AiokprodError, TimeoutError):
            self.engine.submit(self._give_up()).result()

    async def _give_up(self) -> None:
        with suppress(AiokprodError):
            await self.producer.abort_transaction(ABORT_S)
        await self.producer.close(0)
