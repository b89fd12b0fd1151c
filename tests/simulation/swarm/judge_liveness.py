"""The check that a producer is alive when all faults are over: nothing waits for ever, and it goes on working.

    before its last close, or started again after it: each seed has one of both

Within a bound of virtual time all that was pending has settled and each call has ended, a fresh record is delivered, a
fresh transaction is committed (by `Transacts.finish`), and `health()` is READY, ready and live. `judge` adds that no watch
has healed.
"""

from __future__ import annotations

import asyncio

from aiokprod.errors import ProducerClosedError
from aiokprod.model import ProducerState
from aiokprod.pipeline.partition.failing import QUIET_S
from aiokprod.record_metadata import RecordMetadata

from .books import Account, Call
from .lives import Lives
from .scene import Life, Scene
from .sends import Sends
from .transacts import Transacts
from .world_values import Step

PATIENCE_S = 30.0  # beside a request that was lost before all was well: it takes its timeout
LATE_S = 1.0
ONE_S = 5.0  # a probe may meet a hook that raises, or hangs: another one is sent beside it
HEALTH_S = 2.0 + QUIET_S  # an attempt that has failed a moment ago holds DEGRADED
BULK_RECORD_BYTES = 1_600  # the largest of `send_many` and `send_columns`, with its overhead
ENDS_BY_ITSELF = ("flush", "ready", "partitions_for", "ping", "start", "close", "send_many", "send_columns")


class Liveness:
    """The verdict on the producers of a world that is well."""

    def __init__(self, scene: Scene, sends: Sends, lives: Lives, transacts: Transacts) -> None:
        self.scene = scene
        self.books = scene.books
        self.sends = sends
        self.lives = lives
        self.transacts = transacts
        self._since = 0.0

    async def judge(self, life: Life) -> None:
        """Judge a producer that was not closed, if it is open."""
        self._since = max(self.scene.now(), self.scene.healed_at or 0.0)
        if life.is_transactional:
            await self._healthy(life)  # `finish` has committed a fresh transaction
            return
        if self._is_up(life):
            await self._settled(life)
            await self._delivers(life)
            await self._healthy(life)

    async def judge_again(self, life: Life) -> None:
        """Start a producer that was closed, and judge it; whatever its life before was, it has another one."""
        if life.producer.health().state not in (ProducerState.NEW, ProducerState.CLOSED):
            return  # judged by those that closed it
        self._since = max(self.scene.now(), self.scene.healed_at or 0.0)
        self.lives.start(Step(0.0, "start", {"producer": life.index, "timeout": PATIENCE_S + 2 * life.request_s}))
        for _ in range(400):
            await asyncio.sleep(0.5)
            if not life.starting:
                break
        if not life.is_open:
            last = [call for call in self.books.calls if call.kind == "start" and call.life[0] == life.index][-1]
            was_closed = last.ended is not None and isinstance(last.error, ProducerClosedError | None)  # by a late step
            if not self.scene.is_slow(life) and not was_closed:
                self.books.wrong("does not start again", f"{last}")
            return
        if life.is_transactional:
            await self.transacts.finish(life)
            await self._healthy(life)
        else:
            await self._delivers(life)
            await self._healthy(life)
        await self.lives.closed(life, 30.0)

    def _waits_for_a_lost_partition(self, life: Life) -> bool:
        """Return whether a record waits for a partition that its topic, which was made again, does not have any more."""
        for account in self.books.accounts:
            if account.life == life.key and account.delivery is not None and account.settled_at() is None:
                partition = account.delivery.explain().partition
                if partition is not None and partition >= self.scene.partitions_of(account.topic) > 0:
                    return True
        return False

    def _is_up(self, life: Life) -> bool:
        return life.is_open and not life.has_failed and self.scene.healed_at is not None

    # ------------------------------------------------------------------ what was pending
    async def _settled(self, life: Life) -> None:
        accounts = [a for a in self.books.accounts if a.life == life.key and a.delivery is not None]
        calls = [c for c in self.books.calls if c.life == life.key and c.kind in ENDS_BY_ITSELF]
        pause_s = 0.01
        while True:
            accounts = [account for account in accounts if account.settled_at() is None]
            calls = [call for call in calls if call.ended is None]
            if (not accounts and not calls) or not self._is_up(life):
                return
            overdue = [f"{a}: {a.delivery and a.delivery.explain()}" for a in accounts if self._is_overdue(life, a)]
            overdue += [f"{call}" for call in calls if not accounts and self._is_late(life, call)]
            if overdue:
                text = (
                    f"{overdue[0]} and {len(overdue) - 1} more, {self.scene.now() - self._since:.1f} s after the faults"
                )
                self.books.wrong("pending for ever", text)
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 1.0)

    def _is_overdue(self, life: Life, account: Account) -> bool:
        now = self.scene.now()
        if account.due_at is not None and now > account.due_at + LATE_S:
            return True
        if self.scene.hooks_are_slow or self.scene.is_slow(life):
            return False
        within_s = PATIENCE_S + life.request_s + life.linger_s + min(life.block_s, life.delivery_s)
        return now > self._since + within_s and now > self._since + within_s + self.scene.ahead_s(account)

    def _is_late(self, life: Life, call: Call) -> bool:
        """Return whether a call waits though no record does: longer than it may for a topic, for room or for metadata."""
        if call.facts.get("source", "").startswith("async") or self.scene.hooks_are_slow or self.scene.is_slow(life):
            return False
        longest_s = PATIENCE_S + life.request_s + life.linger_s + life.block_s + life.delivery_s + self._bulk_s(life)
        return self.scene.now() > max(self._since, call.began) + longest_s

    def _bulk_s(self, life: Life) -> float:
        """Return how long the round trips of all bulks may take, one after another, each filling the buffer."""
        counts = (int(call.facts.get("count") or 0) for call in self.books.calls if call.life == life.key)
        fills = sum(counts) * BULK_RECORD_BYTES / life.producer.config.buffer_memory
        _, latency_s = self.scene.world.weather.get("latency_s", (0.0, 0.002))
        return float(fills * 3 * latency_s)

    # ------------------------------------------------------------------ a fresh record
    async def _delivers(self, life: Life) -> None:
        scene = self.scene
        if scene.is_slow(life) or scene.hooks_are_slow or self._always_fails():
            return
        topic = next((t["name"] for t in scene.world.topics if scene.partitions_of(t["name"])), None)
        if topic is None:
            return
        until = self._until(life)
        account: Account | None = None
        while self._is_up(life):
            account = self.sends.one(life, topic, 20)
            if account.delivery is not None:
                waiting = scene.spawn(self.sends.wait(account), f"await of {account}")
                await asyncio.wait({waiting}, timeout=ONE_S)
                if isinstance(account.record_outcome(), RecordMetadata):
                    return
            if scene.now() > until:
                break
            await asyncio.sleep(0.2)
        if self._is_up(life) and account is not None:
            why = account.refused or account.record_outcome() or (account.delivery and account.delivery.explain())
            self.books.wrong(
                "delivers nothing", f"{account}, {scene.now() - self._since:.1f} s after the faults: {why}"
            )

    def _always_fails(self) -> bool:
        """Return whether a hook raises for every record."""
        plans = [plan for plan in self.scene.world.hooks.values() if plan is not None]
        return any(plan.get(name) == 1 for plan in plans for name in ("raise_every", "stray_every", "raise_late_every"))

    def _until(self, life: Life) -> float:
        return max(self.scene.now(), self._since) + PATIENCE_S + life.request_s + min(life.block_s, life.delivery_s)

    # ------------------------------------------------------------------ health
    async def _healthy(self, life: Life) -> None:
        health = life.producer.health()
        for _ in range(20):
            if not self._is_up(life) or self.scene.is_slow(life) or self.scene.hooks_are_slow:
                return
            health = life.producer.health()
            if health.state is ProducerState.READY and health.ready and health.live:
                return
            if self._waits_for_a_lost_partition(life):
                return  # until its delivery timeout: brokers with old metadata leave out partitions for a while
            await asyncio.sleep(HEALTH_S / 20)
        self.books.wrong("not ready though all is well", f"producer {life.index}: {health}")
