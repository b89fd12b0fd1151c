"""Hooks that users give a producer: serializers, a partitioner, interceptors, on_delivery_error; each as the world says."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from aiokprod import ProducerInterceptor, Record, RecordMetadata
from aiokprod.errors import AiokprodError

if TYPE_CHECKING:
    from .scene import Scene


class DeliberateError(Exception):
    """An error that user code raises because the world says so."""


class DeliberateMemoryError(MemoryError):
    """No memory, because the world says so."""


class DeliberateRecursionError(RecursionError):
    """The end of the stack, because the world says so."""


class DeliberateInterrupt(KeyboardInterrupt):
    """A signal, because the world says so."""


class DeliberateExit(SystemExit):
    """`sys.exit`, because the world says so."""


class DeliberateOutcome(BaseException):
    """An outcome that is no Exception, such as a test's `fail`, because the world says so."""


KINDS: dict[str, type[BaseException]] = {
    "error": DeliberateError,
    "memory": DeliberateMemoryError,
    "recursion": DeliberateRecursionError,
    "interrupt": DeliberateInterrupt,
    "exit": DeliberateExit,
    "outcome": DeliberateOutcome,
}
ENDS_THE_LOOP = (KeyboardInterrupt, SystemExit)
OURS = str(Path(__file__).parent)
TURN = "_run_once"
AWAITS = "Delivery.wait"


def is_deliberate(error: BaseException) -> bool:
    """Return whether the world says so."""
    return isinstance(error, tuple(KINDS.values()))


def user_function(frame: FrameType | None) -> str:
    """Return the function of the world that has called the library, above this frame; empty: the loop runs it."""
    while frame is not None and frame.f_code.co_name != TURN:
        code = frame.f_code
        if code.co_filename.startswith(OURS) or code.co_qualname == AWAITS:  # in a task that asyncio's `wait_for` makes
            return code.co_name
        frame = frame.f_back
    return ""


def raise_planned(scene: Scene, index: int, plan: dict[str, Any], text: str) -> NoReturn:
    """Raise what the plan of a hook says. What ends the loop fails a producer whose code the loop runs."""
    kind = KINDS[plan.get("kind") or "error"]
    if issubclass(kind, ENDS_THE_LOOP):
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_filename.startswith(OURS):
            frame = frame.f_back
        if not user_function(frame):
            scene.lives[index].was_sabotaged = True
    raise kind(f"Deliberate: {text}")


def number_of(value: object) -> int:
    """Return the record's number, read from its value; -1: it has none."""
    if not isinstance(value, bytes | bytearray):
        return -1
    word = bytes(value).split(b" ", 1)[0]
    return int(word) if word.isdigit() else -1


def each(number: int, every: int | None) -> bool:
    """Return whether it is the turn of this one."""
    return bool(every) and number % int(every or 1) == int(every or 1) - 1


class Serializer:
    """A serializer of bytes to the same bytes, in various ways."""

    def __init__(self, scene: Scene, index: int, plan: dict[str, Any]) -> None:
        self._scene = scene
        self._index = index
        self._plan = plan

    def __call__(self, topic: str, headers: list[Any], data: Any) -> Any:
        number = number_of(data)
        if each(number, self._plan.get("raise_every")):
            raise_planned(self._scene, self._index, self._plan, "the serializer raises")
        if self._plan["mode"] == "sync" or (self._plan["mode"] == "mixed" and number % 2):
            return data
        return self._later(number, data)

    async def _later(self, number: int, data: Any) -> Any:
        loop, plan = self._scene.loop, self._plan
        if each(number, plan.get("hang_every")):
            await loop.create_future()
        if each(number, plan.get("cancel_every")):
            future = loop.create_future()
            loop.call_later(plan.get("seconds") or 0.001, future.cancel)
            await future
        if plan.get("seconds"):
            await asyncio.sleep(plan["seconds"])
        if each(number, plan.get("raise_late_every")):
            raise_planned(self._scene, self._index, self._plan, "the serializer raises late")
        return data


class Partitioner:
    """A round-robin partitioner that raises, strays and sends as the world says."""

    def __init__(self, scene: Scene, index: int, plan: dict[str, Any]) -> None:
        self._scene = scene
        self._index = index
        self._plan = plan
        self._calls = 0
        self._is_inside = False

    def choose(self, key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
        """Choose a partition, unless the plan raises or strays."""
        self._calls += 1
        if each(self._calls, self._plan.get("raise_every")):
            raise_planned(self._scene, self._index, self._plan, "the partitioner raises")
        if each(self._calls, self._plan.get("stray_every")):
            return 77
        if each(self._calls, self._plan.get("reenter_every")) and not self._is_inside:
            books = self._scene.books
            self._is_inside = books.nested = True
            try:
                self._scene.lives[self._index].hooks.send_again()
            finally:
                self._is_inside = books.nested = False
        return every[self._calls % len(every)]


class Interceptor(ProducerInterceptor):
    """An interceptor that keeps every outcome, and raises as the world says."""

    def __init__(self, scene: Scene, index: int, plan: dict[str, Any]) -> None:
        self._scene = scene
        self._index = index
        self._plan = plan
        self._calls = 0
        self.configured = 0
        self.closed = 0
        self._numbers: dict[int, tuple[Record, int]] = {}  # a serializer may have put something else into the record

    def configure(self, config: object) -> None:
        self.configured += 1

    def on_send(self, record: Record) -> Record:
        self._calls += 1
        number = number_of(record.value)
        self._numbers[id(record)] = (record, self._scene.books.misused if number < 0 else number)
        if each(self._calls, self._plan.get("raise_every")):
            raise_planned(self._scene, self._index, self._plan, "the interceptor raises")
        return record

    def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
        number = self._numbers.pop(id(record), (record, -1))[1]
        self._scene.books.outcomes.setdefault(self._index, []).append((number, error or metadata))
        if each(number, self._plan.get("raise_late_every")):
            raise_planned(self._scene, self._index, self._plan, "the interceptor raises late")

    def close(self) -> Awaitable[None] | None:
        self.closed += 1
        how = self._plan.get("close")
        if how == "raise":
            raise DeliberateError("the interceptor's close raises")
        return asyncio.sleep(self._plan.get("close_s") or 0.3) if how == "slow" else None


class Hooks:
    """The hooks of one producer."""

    def __init__(self, scene: Scene, index: int) -> None:
        self._scene = scene
        self._index = index
        self._plan = scene.world.hooks
        self.interceptor: Interceptor | None = None
        self._depth = 0
        self._errors = 0

    def options(self) -> dict[str, Any]:
        """Return the options of the producer."""
        scene, plan, options = self._scene, self._plan, dict[str, Any]()
        if "serializer" in plan:
            options["value_serializer"] = Serializer(scene, self._index, plan["serializer"])
        if "partitioner" in plan:
            options["partitioner"] = Partitioner(scene, self._index, plan["partitioner"]).choose
        if "interceptor" in plan:
            self.interceptor = Interceptor(scene, self._index, plan["interceptor"])
            options["interceptors"] = [self.interceptor]
        if plan.get("on_delivery_error") is not None:
            options["on_delivery_error"] = self._on_delivery_error
        return options

    def _on_delivery_error(self, error: AiokprodError) -> None:
        books = self._scene.books
        books.reports.setdefault(self._index, []).append((books.clock(), error))
        self._errors += 1
        plan = self._plan["on_delivery_error"]
        if each(self._errors, plan.get("every")):
            self.react(plan["action"], plan)

    def react(self, action: str, plan: dict[str, Any]) -> None:
        """Play what user code may call in the middle of a hook."""
        scene = self._scene
        if action == "send":
            self.send_again()
        elif action == "raise":
            raise_planned(scene, self._index, plan, "user code raises")
        elif action == "recall":
            for account in reversed(scene.books.accounts[-20:]):
                if account.delivery is not None and account.delivery.recall():
                    break
        elif action == "cancel":
            for account in reversed(scene.books.accounts[-20:]):
                if account.delivery is not None and account.delivery.cancel():
                    account.detached_at = scene.now()
                    break
        elif action == "close" and not scene.is_over:
            scene.close_soon(self._index)

    def send_again(self) -> None:
        """Send one record in the middle of another call."""
        if self._depth < 3 and not self._scene.is_over and len(self._scene.books.accounts) < 3_000:
            self._depth += 1
            try:
                self._scene.send_again(self._index)
            finally:
                self._depth -= 1
