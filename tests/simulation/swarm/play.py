"""Plays a world: from a cluster that is made to books that are judged."""

from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections.abc import Callable
from typing import Any

from aiokprod.model import ProducerState
from aiokprod.pipeline.columns import column_encoder
from aiokprod.pipeline.effects import Guard
from aiokprod.pipeline.partition.defects import CaughtDefects
from aiokprod.pipeline.watch import Heals
from aiokprod.testing.virtual import DeadlockError, VirtualNetwork
from aiokprod.testing.virtual.run import VirtualRun

from .bulks import Bulks
from .hooks import ENDS_THE_LOOP, DeliberateError, is_deliberate
from .judge import judge
from .judge_kept import judge_kept
from .judge_liveness import Liveness
from .lives import Lives
from .process import Process, logs_of
from .scene import Life, Scene
from .second import second_loop
from .sends import Sends
from .transacts import Transacts
from .trouble import Trouble
from .world_values import Run, Step, World, Wrong

PATIENCE_S = 400.0


def play(world: World, *, with_log: bool = False) -> Run:
    """Play it and judge it. `with_log`: the producers may log."""
    run = Run(world)
    guard, heals, caught = Guard.is_on, Heals.kept, CaughtDefects.kept
    if world.has_process_faults:  # else there are other points in pytest than in a command; `judge` looks at the heals
        Guard.is_on, Heals.kept, CaughtDefects.kept = False, None, None
    before = logging.root.manager.disable
    if (
        not column_encoder.KNOWN
    ):  # it is looked for once in a process, by a thread: the first world would be another one
        column_encoder.KNOWN.append(column_encoder._find())
    logging.disable(before if with_log else logging.CRITICAL)
    try:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with logs_of(world):
                _play(world, run)
            gc.collect(2 if world.has_process_faults else 0)  # what a fault has left is told of in its own world
        ours = f"swarm-{world.seed}-"  # a producer of a world before this one may be collected only now
        texts = [
            text
            for text in map(str, (warning.message for warning in warned))
            if "Producer swarm-" not in text or ours in text
        ]
        if any(
            step.kind in ("strike", "deep", "interrupt") for step in world.operations
        ):  # a call that raised drops it
            texts = [text for text in texts if "Serializer._later' was never awaited" not in text]
        if world.end.get("second_loop"):  # what is abandoned on purpose is told
            told = ("was not closed before its event loop was", "it was never closed")  # by a call, or by the collector
            texts = [text for text in texts if not any(each in text for each in told)]
        run.wrongs += [Wrong("a warning", text) for text in texts[:3]]
    finally:
        logging.disable(before)
        Guard.is_on, Heals.kept, CaughtDefects.kept = guard, heals, caught
    return run


def _play(world: World, run: Run) -> None:
    scenes: list[Scene] = []

    async def scenario(network: VirtualNetwork) -> None:
        scene = Scene(world, network, run.events)
        scenes.append(scene)
        await Play(scene).run()

    with VirtualRun(world.seed, shuffled=world.shuffled) as virtual:
        loop = virtual.loop
        low, high = world.weather.get("latency_s", (0.0001, 0.002))
        virtual.network._latency_s = (low, high)
        if world.weather.get("turn_cost_s"):
            _time_passes(loop, world.weather["turn_cost_s"])
        try:
            _wait_for(virtual, loop.create_task(scenario(virtual.network), name="world"))
            if not world.end.get("second_loop"):
                _leftovers(virtual, run)
        except DeadlockError as hang:
            kind = "spin" if "spins" in str(hang) else "deadlock"
            open_calls = [str(call) for call in scenes[0].books.calls if call.ended is None] if scenes else []
            run.wrongs.append(Wrong(kind, f"{hang}; under way: {open_calls[:5]}"))
        run.virtual_s = loop.time()
        run.drawn_next = [chance.random() for chance in (loop._random, loop.threads.random) if chance is not None]
    if scenes and world.end.get("second_loop"):
        second_loop(scenes[0])
    if scenes:
        books = scenes[0].books
        run.wrongs = [Wrong(kind, text) for kind, text in books.wrongs] + run.wrongs
        run.records = len(books.accounts)
        run.delivered = sum(a.final == "delivered" or (a.seen() or ("",))[0] == "delivered" for a in books.accounts)
        run.outcomes.update(str(deal.run.outcome and deal.run.outcome.value) for deal in scenes[0].deals)
        scenes[0].deals.clear()
        # A settled Delivery still names its loop, whose remains name the books: compiled, nothing collects that circle.
        books.accounts.clear()
        books.calls.clear()


def _wait_for(virtual: VirtualRun, world: asyncio.Task[None]) -> None:
    """Let the loop run until the world is played; what interrupts the loop ends a cell of a notebook, which goes on."""
    while True:
        try:
            virtual.loop.run_until_complete(world)
            return
        except ENDS_THE_LOOP as ended:
            if not is_deliberate(ended):
                raise


def _time_passes(loop: Any, seconds: float) -> None:
    """Let each turn of the loop take time."""
    once = loop._run_once

    def run_once() -> None:
        loop.jump(seconds)
        once()

    loop._run_once = run_once


def _leftovers(virtual: VirtualRun, run: Run) -> None:
    virtual.wait_for(asyncio.sleep(1.0))
    left = virtual.leftovers()
    unexpected = [error for error in left.errors if "Deliberate" not in error]
    if any(step.kind == "deep" for step in run.world.operations):  # asyncio could not schedule a task that it had made
        unexpected = [error for error in unexpected if "Task was destroyed but it is pending!" not in error]
    if unexpected:
        run.wrongs.append(Wrong("the loop's exception handler was told", f"{unexpected[0]:.500}"))
    if left.tasks:
        run.wrongs.append(Wrong("tasks are left", f"{left.tasks[:8]}"))
    if left.connections:
        run.wrongs.append(Wrong("connections are left", f"{len(left.connections)} ends"))
    if left.threads:
        run.wrongs.append(Wrong("work for threads is left", f"{left.threads} calls"))
    timers = [timer for timer in left.timers if "swarm." not in timer and "aiokprod.testing." not in timer]
    if timers:
        run.wrongs.append(Wrong("timers are left", f"{timers[:3]}"))


class Play:
    """One run."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.world = scene.world
        self.sends = Sends(scene)
        self.bulks = Bulks(scene)
        self.lives = Lives(scene)
        self.transacts = Transacts(scene, self.sends)
        self.trouble = Trouble(scene)
        self.process = Process(scene, self.sends)
        self.liveness = Liveness(scene, self.sends, self.lives, self.transacts)
        scene.send_again = self.sends.again
        scene.close_soon = self._close_soon

    async def run(self) -> None:
        """Play from the first step to the verdict."""
        scene, world = self.scene, self.world
        async with scene.cluster:
            for topic in world.topics:
                if not topic.get("late"):
                    scene.create_topic(topic["name"], topic["partitions"], topic.get("config", {}))
            scene.lives += [Life(scene, index) for index in range(world.producers)]
            moments: dict[float, list[tuple[Callable[[Step], None], Step]]] = {}
            for step in world.faults:
                moments.setdefault(step.at, []).append((self.trouble.act, step))
            for step in world.operations:
                moments.setdefault(step.at, []).append((self._operate, step))
            for at, steps in moments.items():  # timers of one moment ring in no order
                scene.loop.call_at(scene.began + at, self._come, steps)
            sampler = scene.spawn(self._sample(), "sampler")
            await asyncio.sleep(world.length_s + world.end.get("settle_s", 0.0))
            await self._finish()
            sampler.cancel()
            scene.is_over = True
            await self._end_tasks()
            if not world.end.get("second_loop"):
                await asyncio.sleep(world.end.get("after_s", 15.0))  # late requests come to their broker
                judge(scene)

    def _come(self, steps: list[tuple[Callable[[Step], None], Step]]) -> None:
        for call, step in steps:
            self.scene.hop(0 if step.on else step.hops, call, step)

    def _operate(self, step: Step) -> None:
        if self.scene.is_over:
            return
        sends, bulks, lives, transacts, process = self.sends, self.bulks, self.lives, self.transacts, self.process
        if step.args.get("beside"):
            lives.partitions_for(Step(step.at, "partitions_for", {"topic": step.args["beside"], "timeout": 0.2}))
        {
            "send": sends.send, "recall": sends.recall, "cancel": sends.detach, "misuse": sends.misuse, "many": bulks.many,
            "columns": bulks.columns, "start": lives.start, "close": lives.close, "restart": lives.restart,
            "flush": lives.flush, "ready": lives.ready, "partitions_for": lives.partitions_for, "ping": lives.ping,
            "sabotage": lives.sabotage, "tenants": sends.tenants, "begin": transacts.begin, "commit": transacts.commit,
            "abort": transacts.abort, "prepare": transacts.prepare, "offsets": transacts.offsets, "block": transacts.block,
            "end_elsewhere": transacts.end_elsewhere, "strike": process.strike, "deep": process.deep,
            "interrupt": process.interrupt, "threads": process.threads,
        }[step.kind](step)  # fmt: skip
        self.scene.sample()

    async def _sample(self) -> None:
        """Look often at first, then ever more rarely."""
        pause_s = 0.001
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.3, 1.0)
            self.scene.sample()

    def _close_soon(self, index: int) -> None:
        self.scene.spawn(self.lives.closed(self.scene.lives[index], 5.0), "close by user code")

    # ------------------------------------------------------------------ the end
    async def _finish(self) -> None:
        scene, end = self.scene, self.world.end
        scene.is_ending = True
        if end.get("alive"):
            self.process.disarm()
        if end.get("heal", True):
            self.trouble.heal()
        await asyncio.sleep(0.01)  # tasks of the last steps begin
        for life in scene.lives:
            await self._started(life)
            if self.world.is_transactional:
                await self.transacts.finish(life)
            if end.get("flush") and life.is_open:
                flush = scene.spawn(self.lives.flushed(life), "last flush")
                await asyncio.wait({flush}, timeout=life.delivery_s + PATIENCE_S)
                if not flush.done():
                    scene.books.wrong("flush hangs", f"called at the end: {self._states(life)}")
                    flush.cancel()
        judge_kept(scene)
        if end.get("second_loop"):
            return
        if end.get("alive") and self.trouble.is_healed:
            for life in scene.lives:
                await self.liveness.judge(life)
        if end.get("heal_while_closing") is not None:
            scene.loop.call_later(end["heal_while_closing"], self.trouble.heal)
        closes = [scene.spawn(self._left(life), "last close") for life in scene.lives]
        await asyncio.wait(closes, timeout=PATIENCE_S)
        for close in closes:
            if not close.done():
                scene.books.wrong("close hangs", "called at the end")
                close.cancel()
        scene.sample()
        self.process.disarm()
        self.trouble.heal()
        if not end.get("alive"):
            for life in scene.lives:
                await self.liveness.judge_again(life)

    async def _started(self, life: Life) -> None:
        """Wait until no start is under way."""
        for _ in range(400):
            if not life.starting:
                return
            await asyncio.sleep(0.5)
        self.scene.books.wrong("start hangs", f"producer {life.index}")

    async def _left(self, life: Life) -> None:
        how, timeout = self.world.end.get("how", "close"), self.world.end.get("close_timeout", 30.0)
        if life.producer.health().state in (ProducerState.NEW, ProducerState.CLOSED):
            return
        if how == "twice":
            other = self.scene.spawn(self.lives.closed(life, timeout), "last close too")
            await self.lives.closed(life, timeout)
            await asyncio.wait({other})
        elif how == "left":
            await self.lives.left(life, DeliberateError("of the body") if self.world.seed % 2 else None)
        else:
            await self.lives.closed(life, timeout)

    async def _end_tasks(self) -> None:
        """Cancel the tasks that still wait: they would wait for ever."""
        await asyncio.sleep(8.0 if self.world.is_transactional else 1.0)  # another process has its own time to end one
        for task, name in [] if self.world.end.get("second_loop") else list(self.scene.tasks.items()):
            if name != "sampler" and task is not asyncio.current_task():
                kind = name.split(" ", 1)[0]
                self.scene.books.wrong(f"{kind} hangs", f"{name} still waits after close")
        for task in list(self.scene.tasks):
            task.cancel()
        await asyncio.sleep(0.1)

    def _states(self, life: Life) -> list[str]:
        return [str(a) for a in self.scene.books.accounts if a.life == life.key and a.settled_at() is None][:5]
