"""Operations on a producer as a whole: start, close, flush, ready, partitions_for, ping, and what third parties do to it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from typing import Any

from aiokprod.errors import AiokprodError, TopicAuthorizationError
from aiokprod.model import CloseReport, ProducerState

from .books import Account, Call
from .scene import Life, Scene
from .world_values import Step

SLACK_S = 1.0
HOOK_CLOSE_S = 0.5


class Lives:
    """The starts, closes and waits of producers."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.books = scene.books

    def life(self, step: Step) -> Life:
        """Return the producer that the step is about."""
        return self.scene.lives[int(step.args.get("producer", 0)) % len(self.scene.lives)]

    # ------------------------------------------------------------------ start and close
    def start(self, step: Step) -> None:
        """Call start(), perhaps cancelled."""
        args = step.args
        self._cancelled_after(
            self._start(self.life(step), args.get("wait", True), args.get("timeout", 30.0)), args, "start"
        )

    async def _start(self, life: Life, wait: bool, timeout: float | None) -> None:
        call = self.books.call("start", life.key, wait=wait, timeout=timeout)
        if not life.starting and life.producer.health().state in (ProducerState.NEW, ProducerState.CLOSED):
            life.number += 1
            call.life = life.key
        life.starting += 1
        try:
            await life.producer.start(timeout, wait=wait)
            self._opened(life, call)
        except asyncio.CancelledError:
            call.cancelled = True
        except AiokprodError as failed:
            call.error = failed
        finally:
            life.starting -= 1
            call.ended = self.scene.now()
        self.scene.tell(str(call))

    def _opened(self, life: Life, call: Call) -> None:
        # One with an error was refused: a timeout that is none.
        closes = [c for c in self.books.calls if c.kind == "close" and c.life[0] == life.index and c.error is None]
        if any(c.began > call.began and c.ended is not None for c in closes):
            last = max((c.ended or 0.0) for c in closes)
            if life.producer.health().state is ProducerState.READY and not self._was_started_since(life, last, call):
                text = f"{call}; close() was called and had ended meanwhile, and the producer is READY"
                self.books.wrong("close while starting does nothing", text)
        is_closing = any(c.ended is None for c in closes)
        if not is_closing and life.producer.health().state in (ProducerState.READY, ProducerState.DEGRADED):
            life.is_open = True

    def _was_started_since(self, life: Life, since: float, call: Call | None = None) -> bool:
        """Return whether another call than this one has started it since."""
        starts = (c for c in self.books.calls if c.kind == "start" and c.life[0] == life.index and c is not call)
        return any(start.began >= since for start in starts)

    def close(self, step: Step) -> None:
        """Call close(), perhaps cancelled, perhaps twice at once."""
        args = step.args
        for _ in range(2 if args.get("twice") else 1):
            self._cancelled_after(self.closed(self.life(step), args.get("timeout", 30.0)), args, "close")
        if args.get("again"):
            other = Step(step.at, "close", {**args, "timeout": args["again"][1], "again": None, "twice": False})
            self.scene.later(args["again"][0], self.close, other)

    def restart(self, step: Step) -> None:
        """Call close() and then start()."""

        async def both() -> None:
            await self.closed(self.life(step), step.args.get("timeout", 30.0))
            if not self.scene.is_ending:
                await self._start(self.life(step), True, 30.0)

        self.scene.spawn(both(), "restart")

    async def left(self, life: Life, error: BaseException | None) -> Call:
        """Leave an `async with`, with an exception of its body or without."""
        return await self.closed(
            life, 30.0, life.producer.__aexit__(None if error is None else type(error), error, None)
        )

    async def closed(self, life: Life, timeout: Any, leaving: Awaitable[None] | None = None) -> Call:
        """Close once, and judge it."""
        call = self.books.call("close", life.key, timeout=timeout)
        producer = life.producer
        is_first = producer.health().state in (ProducerState.READY, ProducerState.DEGRADED)
        failed_before = life.failed_count
        if isinstance(timeout, int | float):
            call.late_after = call.began + max(0.0, timeout) + SLACK_S + HOOK_CLOSE_S
        closing_other = any(
            c.kind == "close" and c.life == life.key and c.ended is None and c is not call for c in self.books.calls
        )
        try:
            life.is_open = False
            if leaving is None:
                report = await producer.close(timeout)
            else:
                await leaving
                report = None
            call.result = report
        except asyncio.CancelledError:
            call.cancelled = True
        except Exception as error:
            call.error = error
            if not isinstance(error, AiokprodError | TypeError | ValueError) or isinstance(timeout, int | float):
                self.books.wrong(f"close raises {type(error).__name__}", str(call))
            if producer.health().state in (ProducerState.READY, ProducerState.DEGRADED):
                life.is_open = True
        else:
            self._judge_closed(life, call, report, is_first and not closing_other, failed_before)
        call.ended = self.scene.now()
        self.scene.tell(str(call))
        return call

    def _judge_closed(
        self, life: Life, call: Call, report: CloseReport | None, is_first: bool, failed_before: int
    ) -> None:
        now, state = self.scene.now(), life.producer.health().state
        call.ended = now
        if call.late_after is not None and now > call.late_after:
            self.books.wrong("close takes too long", str(call))
        is_started_again = life.starting or self._was_started_since(life, call.began)
        if state not in (ProducerState.CLOSED, ProducerState.NEW) and not is_started_again:
            self.books.wrong("close ends too early", f"{call}: the producer is {state.name}")
        unsettled = [
            a for a in self.books.accounts if a.life == call.life and a.delivery is not None and not a.delivery.done()
        ]
        if unsettled and not life.starting:
            self.books.wrong("unsettled after close", f"{call}: {unsettled[0]} and {len(unsettled) - 1} more")
        if is_first and report is not None:
            failed = life.failed_count - failed_before
            call.facts["failed"] = failed
            at_once = sum(  # before the closing had its first turn
                abs((account.settled_at() or -1.0) - call.began) < 0.002 or not account.is_known
                for account in self.books.accounts
            )  # fmt: skip
            if not failed - at_once <= report.count <= failed:
                self.books.wrong("close report", f"{call}: {report.count} are told, {failed} failed")
            self._judge_report(call, report)
        if is_first:
            self._judge_calm(call)

    def _judge_report(self, call: Call, report: CloseReport) -> None:
        known = 0
        for account in self.books.accounts:
            at = account.settled_at()
            if account.life == call.life and at is not None and at > call.began + 0.002:
                known += isinstance(account.record_outcome(), AiokprodError)
        if report.count < known:
            self.books.wrong(
                "close report", f"{call}: {report.count} are told, {known} are known to have failed meanwhile"
            )

    def _judge_calm(self, call: Call) -> None:
        """Check that a close with enough time and no fault delivers all."""
        if not self.scene.is_calm or self._until(call) < call.began + 5.0 or self.scene.hooks_are_slow:
            return
        for account in self.books.accounts:
            outcome = account.record_outcome()
            if account.life == call.life and (account.settled_at() or 0.0) > call.began - 1e-6:
                if type(outcome).__name__ in ("ProducerClosedError", "UndeliveredAtCloseError"):
                    self.books.wrong("close gives up in calm", f"{call}: {account}")
                    return

    def _until(self, call: Call) -> float:
        """Return the deadline of this life's closing: that of its most impatient call."""
        calls = [c for c in self.books.calls if c.kind == "close" and c.life == call.life and c.error is None]
        given = [(c.began, c.facts["timeout"]) for c in calls]
        return min((began + timeout for began, timeout in given if isinstance(timeout, int | float)), default=math.inf)

    # ------------------------------------------------------------------ waiting
    def flush(self, step: Step) -> None:
        """Call flush(), perhaps cancelled."""
        self._cancelled_after(self.flushed(self.life(step)), step.args, "flush")

    async def flushed(self, life: Life) -> None:
        """Flush once, and judge it."""
        call = self.books.call("flush", life.key)
        call.waits_for = [a for a in self.books.accounts if _is_open(a) and a.life == life.key]
        try:
            await life.producer.flush()
        except asyncio.CancelledError:
            call.cancelled = True
        except AiokprodError as refused:
            call.error = refused
        call.ended = self.scene.now()
        self.scene.tell(str(call))
        if call.error is None and not call.cancelled:
            left = [account for account in call.waits_for if _is_open(account)]
            if left:
                self.books.wrong("flush returns early", f"{call}: {left[0]}")
            took_s = call.ended - call.began
            is_late = took_s > 3.0 + self.scene.round_trips_s(life, call.waits_for)
            is_calm = self.scene.is_calm and not self.scene.hooks_are_slow and not self.scene.is_slow(life)
            if is_late and is_calm and self._topics_are_there(call):
                self.books.wrong("flush lingers in calm", f"{call} took {took_s:.3f} s")

    def _topics_are_there(self, call: Call) -> bool:
        made = self.scene.topic_events
        return all(a.topic in made and (a.partition or 0) < made[a.topic][0][2] for a in call.waits_for)

    def ready(self, step: Step) -> None:
        """Call ready(), perhaps cancelled."""
        life = self.life(step)
        self._cancelled_after(self._called("ready", life, life.producer.ready()), step.args, "ready")

    def partitions_for(self, step: Step) -> None:
        """Call partitions_for(), perhaps cancelled."""
        life, topic = self.life(step), step.args["topic"]
        work = self._called(
            "partitions_for", life, life.producer.partitions_for(topic, step.args.get("timeout")), topic=topic
        )
        self._cancelled_after(work, step.args, "partitions_for")

    def ping(self, step: Step) -> None:
        """Call ping(), also with an invalid timeout."""
        life = self.life(step)
        work = self._called("ping", life, life.producer.ping(timeout=step.args.get("timeout", 10.0)), **step.args)
        self._cancelled_after(work, step.args, "ping")

    async def _called(self, kind: str, life: Life, work: Awaitable[object], **facts: Any) -> None:
        call = self.books.call(kind, life.key, **facts)
        try:
            call.result = await work
        except asyncio.CancelledError:
            call.cancelled = True
        except AiokprodError as error:
            call.error = error
            if isinstance(error, TopicAuthorizationError) and not self.scene.was_refused_since(call.began):
                self.books.wrong("stale refusal", str(call))
        except (TypeError, ValueError) as bare:
            call.error = bare
            if isinstance(facts.get("timeout"), int | float):
                self.books.wrong(f"bare {type(bare).__name__}", str(call))
        call.ended = self.scene.now()

    def _cancelled_after(self, work: Any, args: dict[str, Any], name: str) -> None:
        task = self.scene.spawn(work, name)
        if args.get("after") is not None:
            self.scene.later(args["after"], task.cancel)

    # ------------------------------------------------------------------ third parties
    def sabotage(self, step: Step) -> None:
        """Cancel tasks of the producer as a third party: one by name, or all of them."""
        which = step.args["which"]
        ours = set(self.scene.tasks)
        every = sorted(asyncio.all_tasks(self.scene.loop), key=lambda task: task.get_name())
        for task in every:
            name = task.get_name()
            if task in ours or not name.startswith(("aiokprod", "metadata")) or name == "aiokprod-close":
                continue
            if which in ("all", name) or (which == "serialize" and name.startswith("aiokprod-serialize")):
                self.scene.tell(f"task {name} is cancelled")
                for life in self.scene.lives:  # whose it is, its name does not tell
                    life.was_sabotaged = True
                task.cancel()


def _is_open(account: Account) -> bool:
    return account.delivery is not None and not account.delivery.done()
