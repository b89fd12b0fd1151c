"""One transactional producer of a transactional world: what it does, drawn, and what it is told."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Coroutine, Iterator
from itertools import accumulate, count
from random import Random
from typing import Any

from transactional_faults import group_of
from world import TOPIC

from aiokprod import BytesColumn, Producer, Record, TransactionOutcome
from aiokprod.errors import (
    AiokprodError,
    ProducerFailedError,
    ProducerFencedError,
    SendColumnsError,
    SendManyError,
    TransactionOutcomeUnknownError,
    UsageError,
)
from aiokprod.model import ProducerState
from aiokprod.pipeline.partition.failing import QUIET_S
from aiokprod.testing.checker import Outcome, SendBook, Sent, TransactionRun
from aiokprod.transactions.transaction import Transaction

UNKNOWN = (None, TransactionOutcome.UNKNOWN)
ENDS = ("block", "block", "block", "raise", "cancel", "commit", "commit", "abort", "close")


class OfTheBlockError(Exception):
    """The error of a block."""


class Journal:
    """The books of all producers of a world."""

    def __init__(self, book: SendBook) -> None:
        self.book = book
        self.runs: list[TransactionRun] = []
        self.groups: set[str] = set()
        self.wrongs: list[str] = []
        self.numbers = count()


class Instance:
    """A producer, restarted when it was closed or, on brokers that cannot tell, fenced by a timeout."""

    def __init__(
        self, journal: Journal, servers: str, options: dict[str, Any], name: str, partitions: int, random: Random
    ) -> None:
        self.name = name
        self.fences: list[str] = []
        self.failures: list[str] = []  # for good, and no fences
        self.aborts: list[str] = []  # of transactions that were to be committed
        self.leaked_bytes = 0
        self._id = options["transactional_id"]
        self._journal = journal
        self._producer = Producer(servers, **options)
        self._delivery_s = options["delivery_timeout_ms"] / 1000
        self._partitions = partitions
        self._random = random
        self._is_up = False
        self._is_over = False  # its id is another one's
        self._is_ending = False
        self._has_begun = False
        self._current: TransactionRun | None = None
        self._end = ""
        self._is_unknown = False  # the last block said that its outcome is not known
        self._asides: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------ a life
    async def run(self, transactions: int) -> None:
        """Run some transactions under faults."""
        for _ in range(transactions):
            if self._is_over or not await self._up():
                continue
            await self._one(self._random.choice(ENDS))
            if self._random.random() < 0.3:
                await asyncio.sleep(self._random.choice([0.0, 0.01, 0.5]))

    async def finish(self, deadline: float) -> None:
        """Commit one more transaction, as everything is well again, and close."""
        loop = asyncio.get_running_loop()
        while not self._is_over:
            if loop.time() > deadline:
                self._journal.wrongs.append(f"stuck: {self.name} commits nothing in a healthy cluster")
                break
            if await self._up():
                run = await self._one("block", is_plain=True)
                if run.outcome is TransactionOutcome.COMMITTED:
                    until = loop.time() + QUIET_S + 1.0  # an attempt that has failed a moment ago holds DEGRADED
                    while not self._producer.health().ready and self._producer.health().live and loop.time() < until:
                        await asyncio.sleep(0.25)
                    health = self._producer.health()
                    if health.state is not ProducerState.READY or not (health.ready and health.live):
                        self._journal.wrongs.append(f"not ready: {self.name} behind a commit: {health}")
                    break
            await asyncio.sleep(1.0)
        await self._close()

    async def _up(self) -> bool:
        if self._is_up:
            return True
        try:
            await self._producer.start(timeout=self._random.choice([1.0, 30.0]))
        except AiokprodError:
            await asyncio.sleep(0.5)
            return False
        self._is_up = True
        return True

    async def _close(self, bound_s: float = 30.0) -> None:
        self._is_up = False
        await self._producer.close(timeout=bound_s)
        if self._asides:
            await asyncio.wait(self._asides)
            self._asides.clear()
        self.leaked_bytes = self.leaked_bytes or self._producer.metrics()["buffer_used_bytes"]
        if self._producer.metrics()["stalls_healed"]:
            self._journal.wrongs.append(f"stood still and was healed: {self.name}")

    # ------------------------------------------------------------------ one transaction
    async def _one(self, end: str, *, is_plain: bool = False) -> TransactionRun:
        number = next(self._journal.numbers)
        run = self._current = TransactionRun(f"{self.name}:{number}", session=self._id)
        self._journal.runs.append(run)
        self._is_ending = self._has_begun = self._is_unknown = False
        self._end = end
        transaction = self._producer.transaction()
        block = asyncio.ensure_future(self._block(transaction, run, number, end, is_plain=is_plain))
        if end == "cancel":
            asyncio.get_running_loop().call_later(self._random.choice([0.0, 0.01, 0.3]), block.cancel)
        try:
            await block
        except (asyncio.CancelledError, OfTheBlockError):
            pass
        except ProducerFailedError as error:
            self._ended_for_good(error)
        except AiokprodError as error:
            self._is_unknown = isinstance(error, TransactionOutcomeUnknownError)
            if end == "block" and not self._is_unknown:
                self.aborts.append(f"{error!r}, because of {error.__cause__!r}")
        self._is_ending = True
        if end == "close":
            await self._close_inside(transaction, run)
        else:
            await self._until_known(transaction, run)
        run.outcome = transaction.outcome if run.outcome is None else run.outcome
        if self._asides:
            await asyncio.wait(self._asides)
            self._asides.clear()
        if not self._is_up and not self._is_over:
            await self._close()  # lost, perhaps by a timeout: it takes the id again
        self._current = None
        return run

    async def _block(
        self, transaction: Transaction, run: TransactionRun, number: int, end: str, *, is_plain: bool
    ) -> None:
        random = self._random
        async with transaction:
            self._has_begun = True
            if not is_plain:
                for _ in range(random.choice([0, 1, 3, 10])):
                    await self._step(run)
            self._send(run)
            if random.random() < 0.4:
                await self._offsets(transaction, run, number)
            if random.random() < 0.4 and not is_plain:
                self._aside(self._intrude(run))
            if random.random() < 0.1:
                await asyncio.sleep(random.choice([0.1, 1.0, 7.0]))
            self._is_ending = True  # from here to the call that ends it nothing waits
            if end == "raise":
                raise OfTheBlockError
            if end == "commit":
                await self._producer.commit_transaction(random.choice([None, 0.001, 0.3, 3.0]))
            elif end == "abort":
                await self._producer.abort_transaction(random.choice([None, 0.001, 3.0]))
            elif end == "close":
                self._is_ending = False
                await self._close(random.choice([0.0, 0.5, 30.0]))

    async def _close_inside(self, transaction: Transaction, run: TransactionRun) -> None:
        if self._is_up:  # the block has ended before its close
            await self._close()
        if transaction.outcome is TransactionOutcome.UNKNOWN:
            run.outcome = TransactionOutcome.UNKNOWN

    async def _until_known(self, transaction: Transaction, run: TransactionRun) -> None:
        """Ask until the outcome is known, as the documentation says."""
        if not self._has_begun:
            return  # cancelled while it waited for the end of the block before it
        for attempt in range(400):
            if transaction.outcome not in UNKNOWN or not self._is_up:
                return
            if transaction.outcome is TransactionOutcome.UNKNOWN and attempt == 0:
                self._begin_too_early(run)
            try:
                if self._random.random() < 0.5:
                    await self._producer.commit_transaction(self._random.choice([None, 1.0]))
                else:
                    await self._producer.abort_transaction(self._random.choice([None, 1.0]))
            except ProducerFailedError as error:
                self._ended_for_good(error)
                return
            except AiokprodError:
                await asyncio.sleep(0.05)
        self._journal.wrongs.append(f"stuck: the outcome of {run.name} is not known after 400 calls")
        self._is_over = True

    def _begin_too_early(self, run: TransactionRun) -> None:
        try:
            self._producer.begin_transaction()
        except (UsageError, ProducerFailedError):
            return
        self._journal.wrongs.append(f"begun before the end was known: behind {run.name}")
        self._is_up = False

    def _ended_for_good(self, error: ProducerFailedError) -> None:
        self._is_up = False
        if isinstance(error, ProducerFencedError) or isinstance(error.__cause__, ProducerFencedError):
            self.fences.append(f"{error!r:.200}")
            # A timeout cannot be told from a successor below version 2: it may take the id again, once.
            self._is_over = len(self.fences) > 2
        else:
            self.failures.append(f"{error!r:.200}, because of {error.__cause__!r:.200}")

    # ------------------------------------------------------------------ inside
    async def _step(self, run: TransactionRun) -> None:
        random = self._random
        draw = random.random()
        if draw < 0.55:
            self._send(run)
        elif draw < 0.7:
            await self._aside_or_await(self._many(run))
        elif draw < 0.82:
            await self._aside_or_await(self._columns(run))
        elif draw < 0.9:
            await asyncio.sleep(random.choice([0.0, 0.001, 0.05, 0.5]))
        elif draw < 0.94:
            await self._producer.flush()
        else:
            self._recall(run)

    async def _aside_or_await(self, work: Coroutine[Any, Any, None]) -> None:
        if self._random.random() < 0.5:
            await work
        else:
            self._aside(work)

    def _aside(self, work: Coroutine[Any, Any, None]) -> None:
        self._asides.append(asyncio.ensure_future(work))

    def _value(self) -> tuple[bytes, bytes]:
        identity = b"%d" % next(self._journal.numbers)
        return identity, identity + b" " + b"x" * self._random.choice([0, 10, 80, 400])

    def _send(self, run: TransactionRun) -> None:
        partition = self._random.randrange(self._partitions)
        identity, value = self._value()
        delivery = self._producer.send(TOPIC, value, partition=partition)
        book = self._journal.book
        sent = book.watch(delivery, identity, TOPIC, partition=partition, within_s=self._delivery_s, session=self.name)
        run.sends.append(sent)
        if self._random.random() < 0.1:
            self._last = (delivery, sent)

    def _recall(self, run: TransactionRun) -> None:
        last = getattr(self, "_last", None)
        if last is not None and last[1] in run.sends and last[0].recall():
            run.left_out.add(last[1].identity)

    async def _intrude(self, run: TransactionRun) -> None:
        """Send from another task until it is refused: not one record may get in behind the call that ends it."""
        for _ in range(40):
            if self._current is not run:
                return
            was_ending = self._is_ending
            try:
                self._send(run)
            except AiokprodError:
                return
            if was_ending:
                self._journal.wrongs.append(f"let in while ending: a record of {run.name}")
                return
            await asyncio.sleep(self._random.choice([0.0, 0.0, 0.01]))

    async def _offsets(self, transaction: Transaction, run: TransactionRun, number: int) -> None:
        group = group_of(self._id)
        self._journal.groups.add(group)
        run.offsets[group, "in", 0] = number
        await transaction.send_offsets({("in", 0): number}, group)

    def _rows(self, run: TransactionRun) -> Iterator[tuple[Sent, bytes, int]]:
        session = (
            f"{self.name} bulk {next(self._journal.numbers)}"  # its rows may be taken behind what is sent meanwhile
        )
        for _ in range(self._random.choice([1, 5, 40])):
            identity, value = self._value()
            partition = self._random.randrange(self._partitions)
            sent = Sent(identity, TOPIC, partition, session, sent_at=asyncio.get_running_loop().time())
            yield sent, value, partition

    async def _many(self, run: TransactionRun) -> None:
        rows = list(self._rows(run))
        read: list[Sent] = []

        def records() -> Iterator[Record]:
            for sent, value, partition in rows:
                read.append(sent)
                run.sends.append(sent)
                yield Record(value=value, partition=partition)

        failed: dict[int, AiokprodError] = {}
        try:
            await self._producer.send_many(TOPIC, records())
        except SendManyError as error:
            failed = dict(error.report.failures)
        except (AiokprodError, asyncio.CancelledError) as error:
            run.left_out |= {sent.identity for sent in read}  # it does not say which of them
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for index, sent in enumerate(read):
            sent.settled = 1
            sent.outcome = Outcome.NOT_PERSISTED if index in failed else Outcome.DELIVERED
            if isinstance(failed.get(index), UsageError):
                run.left_out.add(sent.identity)  # it was not taken

    async def _columns(self, run: TransactionRun) -> None:
        rows = list(self._rows(run))
        run.sends += [sent for sent, _, _ in rows]
        values = [value for _, value, _ in rows]
        column = BytesColumn(array("i", accumulate(map(len, values), initial=0)), b"".join(values))
        try:
            await self._producer.send_columns(TOPIC, column, partitions=array("i", [place for _, _, place in rows]))
        except SendColumnsError as error:
            report = error.report
            if report.untaken or self._was_refused(report.first_error):
                run.left_out |= {sent.identity for sent, _, _ in rows}
            elif report.failed:
                rows[0][0].settled, rows[0][0].outcome = 1, Outcome.NOT_PERSISTED
            return
        except (AiokprodError, asyncio.CancelledError) as error:
            run.left_out |= {sent.identity for sent, _, _ in rows}
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        for sent, _, _ in rows:
            sent.settled, sent.outcome = 1, Outcome.DELIVERED

    @staticmethod
    def _was_refused(error: AiokprodError | None) -> bool:
        return isinstance(error, UsageError)
