"""Faults of the process, as operations: exceptions between any two lines, the end of the stack, finalizers, threads, logs.

strike      a call of the user that meets an exception at one of the points of the library's sources
deep        a send with so many frames left of the stack
interrupt   armed now; at one of the points that the library passes from then on, something happens: an exception in code
            that the loop runs, or in a send_many or send_columns; a finalizer that sends; a collection of garbage; a
            thread that sends
threads     a thread that calls send_threadsafe
log         (hook) a handler of the logger `aiokprod` that raises

Points are of the pure sources: compiled, what waits for one never happens. A thread runs to its end while the loop stands
still, so a seed is the same run each time.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from threading import Thread
from types import FrameType
from typing import Any

from source_points import Collected, OneFault, Point, has_begun, with_frames_left

from aiokprod import Delivery
from aiokprod.errors import AiokprodError, BufferFullError, UsageError

from .books import Account
from .hooks import KINDS, DeliberateError, is_deliberate, user_function
from .scene import Life, Scene
from .sends import Sends, value_of
from .world_values import Step, World

MAY_BE_STRUCK = ("_many", "_columns")
"""Functions of the worlds that call the library and expect anything of it."""
NOT_STRUCK = ("Waiter.get_loop", "Waiter.add_done_callback", "Waiter.run", "Calls.run", "_call_while_empty")
"""Functions that asyncio calls while it puts a task to sleep, which then sleeps for ever, and those that take a callback and
call it: between these two an exception loses that call. No signal comes there, or only within a few instructions."""
GARBAGE = 3


class Process:
    """The faults of one run."""

    def __init__(self, scene: Scene, sends: Sends) -> None:
        self.scene = scene
        self.books = scene.books
        self.sends = sends
        self._armed: Point | None = None
        self._hears = self._heard  # one object for all, which records of a batch share

    # ------------------------------------------------------------------ a call of the user
    def strike(self, step: Step) -> None:
        """Make a call that meets an exception."""
        args = step.args
        fault = OneFault(args["at"], KINDS[args["kind"]])
        self.disarm()
        self.scene.is_planting = True
        try:
            if args["call"] in ("send", "try_send"):
                self._send(args, partial(self._struck, fault))
            else:
                self._call(args, fault)
        finally:
            self.scene.is_planting = False
        self.scene.tell(f"{args['call']} meets {fault}")

    def _struck(self, fault: OneFault, call: Callable[[], Delivery]) -> Delivery:
        with fault:
            return call()
        raise DeliberateError("a fault came out of the call")

    def _send(self, args: dict[str, Any], around: Callable[[Callable[[], Delivery]], Delivery]) -> None:
        life = self._life(args)
        self.sends.one(
            life, args["topic"], args["size"], args.get("partition"), args.get("timeout"), key=args.get("key"),
            via=args["call"], around=around,
        )  # fmt: skip

    def _call(self, args: dict[str, Any], fault: OneFault) -> None:
        """Call a method of the newest Delivery that is open."""
        for account in reversed(self.books.accounts):
            if (
                account.life[0] == self._life(args).index
                and account.delivery is not None
                and not account.delivery.done()
            ):
                break
        else:
            return
        assert account.delivery is not None
        if args["call"] == "recall":
            with fault:
                account.delivery.recall()
        elif args["call"] == "cancel":
            with fault:
                account.delivery.cancel()
            account.gave_up = True  # detached or not
        else:
            # Listened to or not: the exception came before the callback was there, or behind. If it was there, the program has
            # the failure, which is not reported then; that the callback hears it tells the judge so.
            account.gave_up = True
            with fault:
                account.delivery.add_done_callback(self._hears)

    def _heard(self, delivery: Delivery) -> None:
        """Note what a callback is told that met an exception when it was added."""
        account = next(each for each in self.books.accounts if each.delivery is delivery)
        self.books.hear(account, "cancelled" if delivery.cancelled() else delivery.exception() or delivery.result())

    def deep(self, step: Step) -> None:
        """Send with so many frames left."""
        args = step.args
        self.disarm()
        found: list[Delivery] = []

        def around(call: Callable[[], Delivery]) -> Delivery:
            with_frames_left(args["frames"], lambda: found.append(call()))
            return found[0]

        self.scene.is_planting = True
        try:
            self._send(args, around)
        finally:
            self.scene.is_planting = False

    # ------------------------------------------------------------------ at a later point
    def interrupt(self, step: Step) -> None:
        """Let something happen at a point that the library passes from now on."""
        self.disarm()
        if self.scene.is_ending:
            return
        args = step.args
        act = args["act"]
        if act == "raise":
            strike, where = partial(self._raise, args["kind"], args["where"]), args["where"]
            point = Point(args["at"], strike, partial(self._may_be_struck, where), args.get("inside", ""))
        else:
            index = self._life(args).index
            call = {"finalizer": self._finalize, "garbage": gc_now, "thread": self._from_thread}[act]
            if act == "garbage":
                for _ in range(GARBAGE):
                    Collected(partial(self._send_inside, index))
                point = Point(args["at"], call)
            else:
                point = Point(args["at"], partial(call, index))
        self._armed = point
        self.scene.loop.call_soon(self._arm, point)

    def _arm(self, point: Point) -> None:
        if self._armed is point:  # else the world is at its end, and the next one would meet it
            point.arm()

    def disarm(self) -> None:
        """Let what has not happened yet never happen."""
        if self._armed is not None:
            self._armed.disarm()
            if self._armed.has_struck:
                self.scene.tell(f"the interrupt came: {self._armed}")
            self._armed = None

    def _raise(self, kind: str, where: str) -> None:
        for life in self.scene.lives if where != "bulk" else ():  # whose code it is, a point does not tell
            life.was_sabotaged = True
        raise KINDS[kind]("Deliberate, between two lines")

    def _may_be_struck(self, where: str, frame: FrameType) -> bool:
        name = frame.f_code.co_filename
        if "/pipeline/" not in name or frame.f_code.co_qualname in NOT_STRUCK:
            return False
        if not has_begun(frame) and _is_called_by_the_loop(frame):
            return False  # what the loop was to call, nothing of ours can call again
        function = user_function(frame)
        return function in MAY_BE_STRUCK if where == "bulk" else not function

    def _finalize(self, index: int) -> None:
        Finalized(partial(self._send_inside, index))

    def _send_inside(self, index: int) -> None:
        """Send as a finalizer does: in the middle of anything."""
        scene, books = self.scene, self.books
        if scene.is_over or len(books.accounts) > 3_000:
            return
        was_nested, books.nested = books.nested, True
        was_planting, scene.is_planting = scene.is_planting, False
        try:
            self.sends.one(scene.lives[index], self._topic(), 20, is_inside=True)
        finally:
            books.nested, scene.is_planting = was_nested, was_planting

    def _topic(self) -> str:
        return str(self.scene.world.topics[0]["name"])

    # ------------------------------------------------------------------ threads
    def threads(self, step: Step) -> None:
        """Send from a thread, which ends before the loop goes on."""
        args = step.args
        self._in_thread(self._life(args), args["topic"], args["count"], args.get("cancelled", 0))

    def _from_thread(self, index: int) -> None:
        if not self.scene.is_over:
            self._in_thread(self.scene.lives[index], self._topic(), 2, 0)

    def _in_thread(self, life: Life, topic: str, count: int, cancelled: int) -> None:
        accounts: list[Account] = []
        for _ in range(count):
            account = self.books.account(topic, None, life.key, "thread", 20)
            account.session = ("thread", *life.key)
            accounts.append(account)
        thread = Thread(target=self._send_all, args=(life, accounts, cancelled))
        thread.start()
        thread.join()

    def _send_all(self, life: Life, accounts: list[Account], cancelled: int) -> None:
        for number, account in enumerate(accounts):
            try:
                future = life.producer.send_threadsafe(account.topic, value_of(account.number, account.size))
            except AiokprodError as refused:
                account.refused = refused
                continue
            self.books.futures.append((account, future))
            future.add_done_callback(partial(self._told, account))
            if number < cancelled:
                future.cancel()

    def _told(self, account: Account, future: Future[Any]) -> None:
        account.final_at = self.scene.now()
        if future.cancelled():
            account.refused = DeliberateError("cancelled before it was taken")
            return
        error = future.exception()
        if error is None:
            account.final = "delivered"
        elif isinstance(error, UsageError | BufferFullError) or not isinstance(error, AiokprodError):
            account.refused = error  # by `send`, or later: the Future does not tell
            if not isinstance(error, AiokprodError) and not is_deliberate(error):
                self.books.wrong(f"bare {type(error).__name__}", f"{account}: {error!r:.300}")
        else:
            account.final = error

    def _life(self, args: dict[str, Any]) -> Life:
        return self.scene.lives[int(args.get("producer", 0)) % len(self.scene.lives)]


class Finalized:
    """An object whose finalizer calls something. It is gone at once if nothing holds it."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __del__(self) -> None:
        self._call()


def _is_called_by_the_loop(frame: FrameType) -> bool:
    return frame.f_back is None or "/aiokprod/" not in frame.f_back.f_code.co_filename


def gc_now() -> None:
    """Collect what is young: the garbage that waits for it, too."""
    gc.collect(0)


# ---------------------------------------------------------------------- logs
class RaisingHandler(logging.Handler):
    """A handler that raises at some of the lines, as a bug of its own would."""

    def __init__(self, plan: dict[str, Any]) -> None:
        super().__init__(logging.getLevelName(plan["level"]))
        self._plan = plan
        self._lines = 0

    def passes(self, record: logging.LogRecord) -> bool:
        """Be a filter of the logger that raises, too."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Count the line, and raise at each n-th."""
        record.getMessage()
        self._lines += 1
        if self._lines % self._plan["raise_every"] == 0:
            raise KINDS[self._plan["kind"]]("Deliberate, by a log handler")


@contextmanager
def logs_of(world: World) -> Iterator[None]:
    """Let the producers log to what the world says; without a plan, nothing is changed."""
    plan = world.hooks.get("log")
    if plan is None:
        yield
        return
    logger, handler = logging.getLogger("aiokprod"), RaisingHandler(plan)
    before = (logging.root.manager.disable, logger.level, logger.propagate, logging.raiseExceptions)
    logging.disable(logging.NOTSET)
    logger.setLevel(plan["level"])
    logger.propagate = logging.raiseExceptions = False
    logger.addHandler(handler)
    if plan["is_filter"]:
        logger.addFilter(handler.passes)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.removeFilter(handler.passes)
        logging.disable(before[0])
        logger.setLevel(before[1])
        logger.propagate, logging.raiseExceptions = before[2], before[3]
