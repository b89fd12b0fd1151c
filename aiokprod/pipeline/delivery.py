"""`Delivery`: the awaitable answer of one record, and what it points at.

One per accepted record, made by `send`. It holds no outcome: it asks its holder (the batch the record sits in, or the
parked record while there is no batch yet), so a record costs one small object and a batch settles at once for all.
The task that awaits it has a waiter; what few deliveries need (more waiters, callbacks, a detached handle) lives in a
`Watch`, made when it is first needed.

Invariants: a delivery settles exactly once; each task that waits has a waiter of its own, so cancelling one touches nobody
else; cancelling the handle detaches it and never takes the record back; once it is settled nothing it holds holds it.

Compiled, the garbage collector does not know deliveries: a million that are kept do not cost it a look. So no cycle may
go through a settled one: it holds no exception that was raised (its traceback holds whoever awaited), and who is done
with it lets it go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import Any
from weakref import ref

from aiokprod.errors import AiokprodError
from aiokprod.forms import mypyc_attr
from aiokprod.pipeline.waiter import DoneCallback, Waiter, Wakeable, wake
from aiokprod.record_metadata import RecordMetadata


class DeliveryState:
    """Where a record is and why it waits: `str(delivery.state)` is for people, `stage` for programs."""

    __slots__ = ("stage", "why")

    def __init__(self, stage: str, why: str = "") -> None:
        self.stage = stage
        self.why = why

    def __str__(self) -> str:
        return f"{self.stage}: {self.why}" if self.why else self.stage

    def __repr__(self) -> str:
        return f"<DeliveryState {self}>"


class RecordHolder:
    """What a Delivery points at: a batch, or a parked record. Hot classes derive from it; nobody else does."""

    __slots__ = ()

    def is_settled(self, index: int) -> bool:
        """Is the outcome of this record known?"""
        raise AssertionError("abstract")

    def metadata(self, index: int) -> RecordMetadata | None:
        """The metadata of a delivered record; None for one that failed or has no outcome yet."""
        raise AssertionError("abstract")

    def error(self, index: int) -> AiokprodError | None:
        """A fresh exception for a failed record; None for a delivered one. Only after `is_settled`."""
        raise AssertionError("abstract")

    def attempts(self, index: int) -> int:
        """How often the record was written to a broker. Only after `is_settled`."""
        raise AssertionError("abstract")

    def size_of(self, index: int) -> int:
        """Upper bound of its bytes in a batch, before compression."""
        raise AssertionError("abstract")

    def latency_s(self, index: int) -> float:
        """Seconds from `send` to the outcome. Only after `is_settled`."""
        raise AssertionError("abstract")

    def watch(self, delivery: Delivery) -> None:
        """Somebody waits for this delivery: tell it when its record settles (and let the batch go early)."""
        raise AssertionError("abstract")

    def recall(self, index: int) -> bool:
        """Take the record back; False once it has been stamped into a batch, or settled."""
        raise AssertionError("abstract")

    def describe(self, index: int) -> DeliveryState:
        """Where the record is."""
        raise AssertionError("abstract")

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the producer."""
        raise AssertionError("abstract")


class Watch:
    """What few deliveries carry: the waiters behind the first one, callbacks, and an outcome of the handle alone."""

    __slots__ = ("callbacks", "cancel_message", "detached", "error", "is_registered", "others", "shown")

    def __init__(self) -> None:
        self.others: dict[Waiter, None] | None = None  # in the order in which they came
        self.is_registered = False  # the holder still has this handle, though its waiters have gone
        self.callbacks: list[DoneCallback] | None = None
        self.detached = False
        self.cancel_message: object = None
        self.error: AiokprodError | None = (
            None  # of this handle alone: its per-send timeout passed; never raised itself
        )
        self.shown: ref[AiokprodError] | None = None  # as long as somebody has it every reader sees the same


@mypyc_attr(acyclic=True)
class Delivery:
    """The answer of one record: await it for `RecordMetadata`, or for the typed error that says what became of it.

    It satisfies `asyncio.isfuture`, so `gather`, `wait`, `as_completed`, `shield` and `wait_for` take it without a task.
    `create_task` and `TaskGroup` want a coroutine: give them `wait()`.

    Cancellation: cancelling a task that awaits a delivery leaves the delivery and the record alone.
    """

    __slots__ = ("_holder", "_index", "_waiter", "_watch")

    _asyncio_future_blocking = False  # what asyncio.isfuture looks for; never True, as nobody yields the handle itself

    def __init__(self, holder: RecordHolder, index: int) -> None:
        self._holder = holder
        self._index = index
        self._waiter: Waiter | None = None  # the first; there is hardly ever a second one
        self._watch: Watch | None = None

    # ------------------------------------------------------------------ reading
    def done(self) -> bool:
        """Is the outcome known, or the handle detached?"""
        watch = self._watch
        if watch is not None and (watch.detached or watch.error is not None):
            return True
        return self._holder.is_settled(self._index)

    def cancelled(self) -> bool:
        """Was this handle detached by `cancel`? The record itself goes on and settles."""
        return self._watch is not None and self._watch.detached

    def result(self) -> RecordMetadata:
        """The metadata of the delivered record.

        Raises:
            AiokprodError: the record failed; `persistence` tells whether it may be in the log.
            asyncio.CancelledError: the handle was detached.
            asyncio.InvalidStateError: the outcome is not known yet.
        """
        watch = self._watch
        if watch is None or not (watch.detached or watch.error is not None):
            metadata = self._holder.metadata(self._index)
            if metadata is not None:
                return metadata
        error = self.exception()
        assert error is not None  # it raises where there is none
        try:
            raise error
        finally:
            del error  # its traceback has this frame: a cycle until somebody collects it

    def exception(self) -> AiokprodError | None:
        """The error of the failed record, None for a delivered one; raises as `result` does for the other states."""
        watch = self._watch
        if watch is not None:
            if watch.detached:
                raise self._make_cancelled_error()
            if watch.error is not None:
                return self._shown() or self._show(watch.error.clone())
        if not self._holder.is_settled(self._index):
            raise asyncio.InvalidStateError("the delivery is not settled yet: await it")
        shown = self._shown()
        if shown is not None:
            return shown
        error = self._holder.error(self._index)
        return None if error is None else self._show(error)

    def _shown(self) -> AiokprodError | None:
        """What was shown before, if somebody still has it."""
        watch = self._watch
        return None if watch is None or watch.shown is None else watch.shown()

    def _show(self, error: AiokprodError) -> AiokprodError:
        self._watched().shown = ref(error)
        return error

    @property
    def state(self) -> DeliveryState:
        """Where the record is now and why it waits."""
        return self._holder.describe(self._index)

    @property
    def attempts(self) -> int | None:
        """How often the record was written to a broker; 0: never. None while the outcome is open."""
        return self._holder.attempts(self._index) if self._holder.is_settled(self._index) else None

    @property
    def latency(self) -> float | None:
        """Seconds from `send` to the outcome (to 10 ms: records of a batch share their clock). None while it is open."""
        return self._holder.latency_s(self._index) if self._holder.is_settled(self._index) else None

    @property
    def size_bytes(self) -> int:
        """What the record takes in a batch, before compression: an upper bound, a few bytes above the truth."""
        return self._holder.size_of(self._index)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the producer that accepted the record."""
        return self._holder.event_loop()

    # ------------------------------------------------------------------ waiting
    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            waiter = Waiter(self._holder.event_loop())
            self._add(waiter)
            try:
                yield waiter
            except BaseException:
                self._forget(waiter)
                raise
            if not waiter.is_over:
                raise RuntimeError("a Delivery is awaited by something that is no asyncio task")
        return self.result()

    async def wait(self) -> RecordMetadata:
        """The delivery as a coroutine, for `create_task`, `TaskGroup.create_task` and anyio's `start_soon`."""
        return await self

    def add_done_callback(self, fn: Callable[[Delivery], object], *, context: Context | None = None) -> None:
        """Call `fn(delivery)` from the loop once the outcome is known (soon, if it is already)."""
        context = context or copy_context()
        if self.done():
            self.get_loop().call_soon(fn, self, context=context)
        else:
            self._register()
            watch = self._watched()
            callback = DoneCallback(fn, self, self.get_loop(), context)
            if watch.callbacks is None:
                watch.callbacks = [callback]
            else:
                watch.callbacks.append(callback)

    def remove_done_callback(self, fn: Callable[[Delivery], object]) -> int:
        """Forget `fn`; how many registrations were removed."""
        watch = self._watch
        if watch is None or watch.callbacks is None:
            return 0
        kept = [callback for callback in watch.callbacks if callback.function != fn]
        removed = len(watch.callbacks) - len(kept)
        watch.callbacks = kept
        if removed:
            watch.is_registered = True
        return removed

    # ------------------------------------------------------------------ letting go
    def cancel(self, msg: object = None) -> bool:
        """Detach this handle; the record goes on and settles, its failure still reaches `on_delivery_error`.

        Whoever awaits the handle gets `CancelledError`, done callbacks run. False if it was done already.
        To take the record itself back use `recall`.
        """
        if self.done():
            return False
        watch = self._watched()
        watch.detached = True
        watch.cancel_message = msg
        for waiter in self._taken():
            waiter.cancel(msg)
        self.fire()
        return True

    def recall(self) -> bool:
        """Take the record back: True only while it has not been stamped into a batch; its bytes and place are freed.

        The delivery then fails with `RecordRecalledError` (certainly not persisted).
        """
        if self._holder.is_settled(self._index):
            return False
        return self._holder.recall(self._index)

    # ------------------------------------------------------------------ the pipeline's side
    def move_to(self, holder: RecordHolder, index: int) -> None:
        """Point at the batch that took the parked record."""
        self._holder = holder
        self._index = index
        if self._watch is not None:
            self._watch.is_registered = False
        if self.is_watched:
            holder.watch(self)

    def place(self) -> tuple[RecordHolder, int]:
        """Where its record is now."""
        return self._holder, self._index

    @property
    def index(self) -> int:
        return self._index

    @property
    def is_watched(self) -> bool:
        """Does anybody wait for it? (A failure nobody waits for goes to `on_delivery_error`.)"""
        watch = self._watch
        return self._waiter is not None or (watch is not None and (bool(watch.others) or bool(watch.callbacks)))

    def settle_here(self, error: AiokprodError) -> None:
        """Fail this handle alone: the record's own fate stays open (a per-send timeout after the stamp)."""
        if not self.done():
            self._watched().error = error
            self.fire()

    def fire(self, woken: list[Wakeable] | None = None) -> None:
        """The outcome is known: whoever waits is woken soon, or by the caller if it gives the list of whom it wakes."""
        together: list[Wakeable] = [] if woken is None else woken
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.settle(together)
        watch = self._watch
        if watch is not None:
            others, watch.others = watch.others, None
            if others is not None:
                for other in others:
                    other.settle(together)
            callbacks, watch.callbacks = watch.callbacks, None
            if callbacks is not None:
                together.extend(callbacks)
        if woken is None and together:
            self._holder.event_loop().call_soon(wake, together)

    def _watched(self) -> Watch:
        if self._watch is None:
            self._watch = Watch()
        return self._watch

    def _register(self) -> None:
        """Make this handle known to the holder, once: it may be polled (`asyncio.wait` with a timeout) for ever."""
        watch = self._watch
        if not self.is_watched and (watch is None or not watch.is_registered):
            self._holder.watch(self)

    def _add(self, waiter: Waiter) -> None:
        self._register()
        if self._waiter is None and (self._watch is None or not self._watch.others):
            self._waiter = waiter
            return
        watch = self._watched()
        if watch.others is None:
            watch.others = {waiter: None}
        else:
            watch.others[waiter] = None

    def _forget(self, waiter: Waiter) -> None:
        """Its task was cancelled; it may have been woken before."""
        watch = self._watch
        if self._waiter is waiter:
            self._waiter = None
            self._watched().is_registered = True
        elif watch is not None and watch.others is not None and waiter in watch.others:
            del watch.others[waiter]
            watch.is_registered = True

    def _taken(self) -> list[Waiter]:
        """All waiters, in the order in which they came; nobody waits afterwards."""
        taken = [] if self._waiter is None else [self._waiter]
        self._waiter = None
        watch = self._watch
        if watch is not None and watch.others is not None:
            taken += watch.others
            watch.others = None
        return taken

    # asyncio's gather and shield use these two of the duck type; without them gather().cancel() hangs.
    @property
    def _cancel_message(self) -> object:
        return None if self._watch is None else self._watch.cancel_message

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        message = self._cancel_message
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    def __repr__(self) -> str:
        return f"<Delivery {'cancelled' if self.cancelled() else self.state}>"
