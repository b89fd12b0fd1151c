"""Operations on transactions: begin, commit, abort, prepare, offsets, a whole block, and the end by another process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from aiokprod import PreparedTransaction, TransactionOutcome, end_transaction
from aiokprod.errors import (
    AiokprodError,
    ProducerFailedError,
    ProducerFencedError,
    TransactionOutcomeUnknownError,
    UsageError,
)
from aiokprod.model import ProducerState
from aiokprod.testing.checker import TransactionRun
from aiokprod.transactions.transaction import Transaction

from .books import Call
from .hooks import DeliberateError
from .scene import Life, Scene
from .sends import Sends
from .world_values import Step

ENDED = (TransactionOutcome.COMMITTED, TransactionOutcome.ABORTED)
SLACK_S = 1.0
IN = "in"
TRIES = 300


def group_of(transactional_id: str) -> str:
    """Return the consumer group whose offsets this id commits."""
    return f"group-{transactional_id}"


@dataclass(slots=True)
class Deal:
    """One transaction: the producer's object, and what was told of it.

    Attributes:
        told: outcomes that calls and other processes have returned.
        ends: calls that end or prepare it.
        is_abort_asked: by the producer's owner, or by another process.
    """

    transaction: Transaction
    run: TransactionRun
    life: tuple[int, int]
    prepared: PreparedTransaction | None = None
    told: list[TransactionOutcome] = field(default_factory=list[TransactionOutcome])
    ends: list[Call] = field(default_factory=list[Call])
    is_abort_asked: bool = False

    @property
    def is_open(self) -> bool:
        """Return whether its end is not known."""
        return self.transaction.outcome not in ENDED


class Transacts:
    """The transactions of all producers."""

    def __init__(self, scene: Scene, sends: Sends) -> None:
        self.scene = scene
        self.books = scene.books
        self.sends = sends
        self.deals: list[Deal] = scene.deals

    # ------------------------------------------------------------------ begin
    def begin(self, step: Step) -> None:
        """Begin a transaction."""
        self._spawn(self._begin(self._life(step)), step, "begin")

    async def _begin(self, life: Life) -> Deal | None:
        call, accounts = self.books.call("begin", life.key), len(self.books.accounts)
        try:
            transaction = life.producer.transaction()
            await transaction.__aenter__()
        except asyncio.CancelledError:
            call.cancelled = True
            return None
        except AiokprodError as refused:
            call.error = refused
            self._note_fence(life, refused)
            return None
        finally:
            call.ended = self.scene.now()
            self.scene.tell(str(call))
        return self._begun(life, transaction, accounts)

    def _begun(self, life: Life, transaction: Transaction, accounts: int) -> Deal:
        """Note that it has begun; `accounts`: how many records were sent before the call."""
        last = self.deal_of(life)
        if last is not None and last.is_open and last.life == life.key:
            self.books.wrong("begun before the end was known", f"behind {last.run.name}: {last.transaction!r}")
        name = str(life.producer.config.transactional_id)
        run = TransactionRun(f"{name}:{len(self.deals)}", session=name)
        deal = Deal(transaction, run, life.key)
        self.deals.append(deal)
        self.books.runs[life.index] = run
        for account in self.books.accounts[accounts:]:
            if account.life == life.key and account.refused is None:
                account.run = run  # sent by a finalizer, or another task, as soon as it was open
        life.is_ending = False
        return deal

    def deal_of(self, life: Life) -> Deal | None:
        """Return the last transaction of the producer."""
        mine = (deal for deal in reversed(self.deals) if deal.life[0] == life.index)
        return next(mine, None)

    # ------------------------------------------------------------------ ends
    def commit(self, step: Step) -> None:
        """Call commit_transaction()."""
        life, timeout = self._life(step), step.args.get("timeout")
        self._spawn(self._committed(life, timeout), step, "commit")

    async def _committed(self, life: Life, timeout: float | None) -> None:
        deal = self.deal_of(life)
        if await self._called(life, "commit", timeout, life.producer.commit_transaction(timeout)) is not None:
            self._told(deal, TransactionOutcome.COMMITTED)

    def abort(self, step: Step) -> None:
        """Call abort_transaction()."""
        life, timeout = self._life(step), step.args.get("timeout")
        self._spawn(self._aborted(life, timeout), step, "abort")

    async def _aborted(self, life: Life, timeout: float | None) -> None:
        deal = self.deal_of(life)
        if deal is not None:
            deal.is_abort_asked = True
        call = await self._called(life, "abort", timeout, life.producer.abort_transaction(timeout))
        if call is not None:
            assert isinstance(call.result, TransactionOutcome)
            self._told(deal, call.result)

    def prepare(self, step: Step) -> None:
        """Call prepare_transaction()."""
        life, timeout = self._life(step), step.args.get("timeout")
        self._spawn(self._prepared(life, timeout), step, "prepare")

    async def _prepared(self, life: Life, timeout: float | None) -> None:
        deal = self.deal_of(life)
        call = await self._called(life, "prepare", timeout, life.producer.prepare_transaction(timeout))
        if call is not None and deal is not None:
            assert isinstance(call.result, PreparedTransaction)
            if deal.prepared is not None and deal.prepared.is_begun and deal.prepared != call.result:
                self.books.wrong("prepared is another value", f"{deal.prepared}, then {call.result}")
            deal.prepared = call.result

    async def _called(self, life: Life, kind: str, timeout: float | None, work: Awaitable[Any]) -> Call | None:
        """Make a call that ends a transaction, or prepares it; return it if it was successful."""
        call = self.books.call(kind, life.key, timeout=timeout)
        call.late_after = call.began + (life.delivery_s + life.block_s if timeout is None else timeout) + SLACK_S
        deal = self.deal_of(life)
        if deal is not None:
            deal.ends.append(call)
        if life.is_open and deal is not None and deal.is_open and deal.life == life.key:
            life.is_ending = True
        try:
            call.result = await work
        except asyncio.CancelledError:
            call.cancelled = True
        except AiokprodError as failed:
            call.error = failed
            self._note_fence(life, failed)
        call.ended = self.scene.now()
        self.scene.tell(str(call))
        if deal is not None and not call.cancelled:
            # A call joins one that is under way, also one whose task was cancelled.
            if call.ended > max(each.late_after or 0.0 for each in deal.ends):
                self.books.wrong(f"{kind} is late", str(call))
        return call if call.error is None and not call.cancelled else None

    def _told(self, deal: Deal | None, outcome: TransactionOutcome) -> None:
        if deal is not None:
            deal.told.append(outcome)

    # ------------------------------------------------------------------ offsets
    def offsets(self, step: Step) -> None:
        """Take offsets into the transaction."""
        life = self._life(step)
        self._spawn(self._offsets(life, step.args["offset"]), step, "offsets")

    async def _offsets(self, life: Life, offset: int) -> None:
        deal = self.deal_of(life)
        if deal is None or not deal.is_open or deal.life != life.key:
            return
        group = group_of(str(life.producer.config.transactional_id))
        place = (group, IN, 0)
        before = deal.run.offsets.get(place)
        deal.run.offsets[place] = offset
        call = self.books.call("offsets", life.key, offset=offset)
        try:
            await deal.transaction.send_offsets({(IN, 0): offset}, group)
        except asyncio.CancelledError:
            call.cancelled = True
        except UsageError as refused:  # nothing of it was taken
            call.error = refused
            if before is None:
                deal.run.offsets.pop(place, None)
            else:
                deal.run.offsets[place] = before
        except AiokprodError as failed:
            call.error = failed
            self._note_fence(life, failed)
        call.ended = self.scene.now()
        self.scene.tell(str(call))

    # ------------------------------------------------------------------ a block
    def block(self, step: Step) -> None:
        """Run a whole block: sends, then its end, an exception, or a cancellation."""
        self._spawn(self._block(self._life(step), step), step, "block")

    async def _block(self, life: Life, step: Step) -> None:
        args = step.args
        call, accounts = self.books.call("block", life.key), len(self.books.accounts)
        transaction = life.producer.transaction()
        try:
            async with transaction:
                deal = self._begun(life, transaction, accounts)
                sent = {"topic": args["topic"], "size": args["size"], "count": args["count"], "watch": args["watch"]}
                self.sends.send(Step(step.at, "send", sent | {"producer": life.index}))
                await asyncio.sleep(args.get("lasts", 0.0))
                if args.get("raises"):
                    raise DeliberateError("of the block")
                life.is_ending = deal is self.deal_of(life)
        except asyncio.CancelledError:
            call.cancelled = True
        except DeliberateError:
            pass
        except AiokprodError as failed:
            call.error = failed
            self._note_fence(life, failed)
        call.ended = self.scene.now()
        self.scene.tell(f"{call}: {transaction!r}")

    # ------------------------------------------------------------------ another process
    def end_elsewhere(self, step: Step) -> None:
        """Let another process end the last transaction that was prepared."""
        prepared = [deal for deal in self.deals if deal.prepared is not None]
        if prepared:
            deal = prepared[-1 - step.args.get("back", 0) % len(prepared)]
            self._spawn(self._ended(deal, step.args["commit"], step.args.get("timeout", 5.0)), step, "end_elsewhere")

    async def _ended(self, deal: Deal, commit: bool, timeout: float) -> bool:
        """Ask for the end once; return whether it was told."""
        assert deal.prepared is not None
        scene = self.scene
        deal.is_abort_asked |= not commit
        call = self.books.call("end_elsewhere", deal.life, run=deal.run.name, commit=commit)
        try:
            is_committed = await end_transaction(
                scene.cluster.bootstrap_servers, deal.prepared, commit, timeout=timeout, dialer=scene.network.dial,
                request_timeout_ms=500, retry_backoff_ms=20, client_id=f"swarm-{scene.world.seed}-elsewhere",
            )  # fmt: skip
            call.result = is_committed
            if deal.prepared.is_begun:  # of an empty one each is told what it asks for
                deal.told.append(TransactionOutcome.COMMITTED if is_committed else TransactionOutcome.ABORTED)
        except asyncio.CancelledError:
            call.cancelled = True
        except TransactionOutcomeUnknownError as unknown:
            call.error = unknown
        call.ended = scene.now()
        scene.tell(str(call))
        return call.error is None

    # ------------------------------------------------------------------ the end of the world
    async def finish(self, life: Life) -> None:
        """Find out how everything ended, and commit once more: all is well again."""
        for deal in self.deals:
            if deal.life[0] == life.index and deal.prepared is not None and deal.is_open and not deal.told:
                for _ in range(3):
                    if await self._ended(deal, True, 60.0):
                        break
        for attempt in range(TRIES):
            if not life.is_open or life.producer.health().state is ProducerState.FAILED:
                return
            if await self._finished_one(life, attempt):
                return
            await asyncio.sleep(0.5)
        self.books.wrong(
            "stuck", f"producer {life.index} commits nothing in a healthy cluster: {life.producer.health()}"
        )

    async def _finished_one(self, life: Life, attempt: int) -> bool:
        """Take one step to a further commit; return whether it was made."""
        deal = self.deal_of(life)
        if deal is not None and deal.is_open and deal.life == life.key:
            if attempt % 2 == 0:
                await self._committed(life, None)
            else:
                await self._aborted(life, None)
            return False
        deal = await self._begin(life)
        if deal is None:
            return False
        self.sends.one(life, self.scene.world.topics[0]["name"], 20)
        await self._committed(life, None)
        return deal.transaction.outcome is TransactionOutcome.COMMITTED

    # ------------------------------------------------------------------ parts
    def _note_fence(self, life: Life, error: BaseException) -> None:
        if isinstance(error, ProducerFencedError) or isinstance(error.__cause__, ProducerFencedError):
            self.scene.fences.append((life.index, f"{error!r:.300}"))
        elif isinstance(error, ProducerFailedError) and not life.was_sabotaged:
            self.books.wrong("producer failed", f"producer {life.index}: {error!r:.300}")

    def _spawn(self, work: Any, step: Step, name: str) -> None:
        task = self.scene.spawn(work, name)
        if step.args.get("after") is not None:
            self.scene.later(step.args["after"], task.cancel)

    def _life(self, step: Step) -> Life:
        return self.scene.lives[int(step.args.get("producer", 0)) % len(self.scene.lives)]
