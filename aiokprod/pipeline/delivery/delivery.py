"""`Delivery`: the awaitable outcome of one record, and the interface of the object that holds the record.

`send` makes one for each accepted record. A Delivery does not store the outcome: it asks its holder (the batch with the record,
or the parked record while there is no batch), so a record costs one small object and a batch settles all at once. The first
listener (the waiter of a task, or a done callback) is in the Delivery itself. The things that few deliveries need (more
listeners, a detached handle) are in a `Watch`, made when it is first needed.

Invariants: a Delivery settles exactly once; each waiting task has a waiter of its own, so cancelling one does not affect the
others; cancelling the handle detaches it and never takes the record back; after it has settled, no object that a Delivery
references refers back to it.

In the compiled form Deliveries are not tracked by the garbage collector, so keeping a million of them does not slow down a
collection. So no reference cycle may go through a settled Delivery: it keeps no exception that was raised (the traceback
refers to the awaiting frames), and finished waiters and callbacks drop their reference to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from aiokprod.errors import AiokprodError
from aiokprod.forms import mypyc_attr
from aiokprod.late import Late
from aiokprod.pipeline.delivery.unasked import Unasked
from aiokprod.pipeline.delivery.waiter import DoneCallback, Listener, SharedCallback, Waiter, Wakeable, wake
from aiokprod.record_metadata import RecordMetadata

if TYPE_CHECKING:  # loaded when an explanation is asked for
    from aiokprod import explanation
    from aiokprod.hooks import Server
# For `typing.get_type_hints`. Not in an `else`, which the compiler takes for a line that is never reached.
globals()["explanation"] = Late("aiokprod.explanation")


class RecordHolder:
    """The holder of a Delivery's record: a batch, or a parked record. Only classes of the hot path derive from it."""

    __slots__ = ()

    def is_settled(self, index: int) -> bool:
        """Return True if the outcome of the record is known."""
        raise AssertionError("abstract")

    def is_delivered(self, index: int) -> bool:
        """Return True if the record is known to be delivered, where that can be seen at a glance."""
        return False

    def metadata(self, index: int) -> RecordMetadata | None:
        """Return the metadata of a delivered record; None for one that failed or has no outcome yet."""
        raise AssertionError("abstract")

    def error(self, index: int) -> AiokprodError | None:
        """Return a new exception for a failed record; None for a delivered one. Only after `is_settled`."""
        raise AssertionError("abstract")

    def ask(self, index: int) -> bool:
        """Note that the caller asks for the failure of the record; return whether it has been reported before. As `error`."""
        raise AssertionError("abstract")

    def disown(self, index: int) -> None:
        """Note that no code can ask for the failure of the record. A holder of one record asks its Delivery (`is_disowned`)."""

    def attempts(self, index: int) -> int:
        """Return how often the record was written to a broker. Only after `is_settled`."""
        raise AssertionError("abstract")

    def batch_number(self) -> int:
        """Return the number of the batch, which it has if an interceptor follows batches; else 0."""
        return 0

    def has_shown_records(self) -> bool:
        """Return False if no interceptor sees records of this holder, whatever it wants."""
        return True

    def written_to(self) -> Server | None:
        """Return the broker that the batch was last written to; None: to none."""
        return None

    def size_of(self, index: int) -> int:
        """Return an upper bound of the record's bytes in a batch, before compression."""
        raise AssertionError("abstract")

    def latency_s(self, index: int) -> float:
        """Return the seconds from `send` to the outcome. Only after `is_settled`."""
        raise AssertionError("abstract")

    def watch(self, delivery: Delivery) -> None:
        """Notify this delivery when its record settles; a batch then does not linger further."""
        raise AssertionError("abstract")

    def recall(self, index: int) -> bool:
        """Take the record back; False once it has been stamped into a batch, or settled."""
        raise AssertionError("abstract")

    def withdraw(self, index: int, error: AiokprodError) -> bool:
        """Fail the record with this error if it has not been stamped; False: it has been, or has its outcome."""
        raise AssertionError("abstract")

    def explain(self, index: int) -> explanation.Explanation:
        """Return where the record is, what it waits for, and what happened to it. From any thread."""
        raise AssertionError("abstract")

    def event_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer."""
        raise AssertionError("abstract")

    def listen(self, delivery: Delivery, function: Callable[[Any], object]) -> DoneCallback | None:
        """Watch this delivery, its first listener; the done callback for it, in the current context. None: it is settled."""
        if self.is_settled(delivery._index):  # pyright: ignore[reportPrivateUsage] - of this module
            return None
        self.watch(delivery)
        return SharedCallback().of(function, self.event_loop())


class NotTaken(RecordHolder):
    """The holder of a Delivery whose record is being taken. If that fails, nothing waits for it and nothing looks at it."""

    __slots__ = ()

    def is_settled(self, index: int) -> bool:
        return True


NOT_TAKEN: Final = NotTaken()


class Watch:
    """The rare parts of a Delivery: listeners after the first one, and an outcome of the handle alone."""

    __slots__ = (
        "callbacks", "cancel_message", "detached", "error", "is_disowned", "is_registered", "others", "shown", "unasked"
    )  # fmt: skip

    def __init__(self) -> None:
        self.others: dict[Waiter, None] | None = None  # first in, first out
        self.is_registered = False  # True: the holder still has this handle, although all waiters have left
        self.callbacks: list[DoneCallback] | None = None
        self.detached = False
        self.cancel_message: object = None
        self.error: AiokprodError | None = (
            None  # of this handle alone: its per-send timeout passed; never raised itself
        )
        self.unasked: Unasked | None = None  # of `error`, if nothing waited for the handle
        self.is_disowned = False  # it was that of a `send_many` which has ended early: no other code has it
        self.shown: ref[AiokprodError] | None = None  # while the program keeps it, each reader gets the same object


@mypyc_attr(acyclic=True, free_list_len=1)  # one that is dropped at once leaves its memory to the next
class Delivery:
    """The outcome of one record. Awaiting it returns `RecordMetadata`, or raises an `AiokprodError` that says what happened.

    A Delivery satisfies `asyncio.isfuture`, so `gather`, `wait`, `as_completed`, `shield` and `wait_for` accept it without a
    task. `create_task` and `TaskGroup` need a coroutine: give them `wait()`.

    Cancellation: cancelling a task that awaits a Delivery affects neither the Delivery nor the record. Cancelling a Delivery
    through `gather`, `wait_for` or `cancel` detaches it; the record is still sent.
    """

    __slots__ = ("_first", "_holder", "_index", "_watch")

    _asyncio_future_blocking = False  # asyncio.isfuture looks for it; never True, as the handle itself is never yielded

    def __init__(self, holder: RecordHolder, index: int) -> None:
        self._holder = holder
        self._index = index
        self._first: Listener | None = None  # there is hardly ever a second one
        self._watch: Watch | None = None

    # ------------------------------------------------------------------ reading
    def done(self) -> bool:
        """Return True if the outcome is known, or the handle is detached."""
        watch = self._watch
        if watch is not None and (watch.detached or watch.error is not None):
            return True
        return self._holder.is_settled(self._index)

    def cancelled(self) -> bool:
        """Return True if `cancel` has detached this handle. The record itself is still sent."""
        return self._watch is not None and self._watch.detached

    def result(self) -> RecordMetadata:
        """Return the metadata of the delivered record.

        Raises:
            AiokprodError: the record failed; `persistence` says whether it may be in the log.
            asyncio.CancelledError: the handle was detached.
            asyncio.InvalidStateError: the outcome is not known yet.
        """
        watch = self._watch
        if watch is None or not (watch.detached or watch.error is not None):
            metadata = self._holder.metadata(self._index)
            if metadata is not None:
                return metadata
        error = self.exception()
        assert error is not None  # `exception` raises for the other states
        try:
            raise error
        finally:
            del error  # its traceback has this frame: a reference cycle until the garbage collector runs

    def exception(self) -> AiokprodError | None:
        """Return the error of a failed record; None for a delivered one.

        Raises:
            asyncio.CancelledError: the handle was detached.
            asyncio.InvalidStateError: the outcome is not known yet.
        """
        watch = self._watch
        if watch is None:
            if self._holder.is_delivered(self._index):
                return None
        else:
            if watch.detached:
                raise self._make_cancelled_error()
            if watch.error is not None:
                return self._shown() or self._show(watch.error.clone(), self._ask())
        if not self._holder.is_settled(self._index):
            raise asyncio.InvalidStateError("the delivery is not settled yet: await it")
        shown = self._shown()
        if shown is not None:
            return shown
        error = self._holder.error(self._index)
        return None if error is None else self._show(error, self._ask())

    def _shown(self) -> AiokprodError | None:
        """Return the exception that was returned before, if the program still has it."""
        watch = self._watch
        return None if watch is None or watch.shown is None else watch.shown()

    def _show(self, error: AiokprodError, is_reported: bool) -> AiokprodError:
        if is_reported:
            error.reported = True
        self._watched().shown = ref(error)
        return error

    def _ask(self) -> bool:
        """Note that the caller asks for the outcome, which is known; return whether it is a failure that was reported."""
        watch = self._watch
        if watch is None or watch.error is None:
            return self._holder.ask(self._index)
        return watch.unasked is not None and watch.unasked.ask(self._index)

    def explain(self) -> explanation.Explanation:
        """Return where the record is, what it waits for, since when, and what happened to it; see docs/explain.md.

        Computed from the state of the producer when it is called; nothing is sent. It may be called in any state, also after
        `close`, and from any thread. A failed record's exception has the same story as a note.
        In a forked child a Delivery says what it was at the fork.

        Returns:
            The explanation; `str()` of it is a few lines of plain English.
        """
        explained = self._holder.explain(self._index)
        watch = self._watch
        if watch is None or explained.is_settled or not (watch.detached or watch.error is not None):
            return explained
        return replace(explained, handle="detached" if watch.detached else "timed out")

    @property
    def attempts(self) -> int | None:
        """Number of times that the record was written to a broker, 0 for never; None while the outcome is not known."""
        return self._holder.attempts(self._index) if self._holder.is_settled(self._index) else None

    @property
    def latency(self) -> float | None:
        """Seconds from `send` to the outcome, to 10 ms (records of a batch share a clock); None while it is not known."""
        return self._holder.latency_s(self._index) if self._holder.is_settled(self._index) else None

    @property
    def size_bytes(self) -> int:
        """Size of the record in a batch, in bytes before compression: an upper bound, at most a few bytes too large."""
        return self._holder.size_of(self._index)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer that accepted the record."""
        return self._holder.event_loop()

    # ------------------------------------------------------------------ waiting
    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait for the outcome: return the metadata, or raise the error of the record, as `wait` does."""
        if self._watch is None:
            metadata = self._holder.metadata(self._index)
            if metadata is not None:  # delivered before it is awaited, as most records of a window are
                return metadata
        if not self.done():
            waiter = Waiter(self._holder.event_loop())
            try:
                self._add(waiter)
                yield waiter
            except BaseException:
                self._forget(waiter)
                raise
            if not waiter.is_over:
                raise RuntimeError("a Delivery is awaited by something that is no asyncio task")
        return self.result()

    async def wait(self) -> RecordMetadata:
        """Wait for the outcome in a coroutine, for `create_task`, `TaskGroup.create_task` and anyio's `start_soon`.

        Returns:
            The metadata of the delivered record.

        Raises:
            AiokprodError: the record failed; `persistence` says whether it may be in the log.

        Cancellation: stops waiting; the record is still sent.
        """
        return await self

    def add_done_callback(self, fn: Callable[[Delivery], object], *, context: Context | None = None) -> None:
        """Call `fn(delivery)` from the event loop once the outcome is known, or soon if it is known already.

        Args:
            fn: a function of one argument, this Delivery.
            context: the context to call it in; None is a copy of the current one.
        """
        if context is None and self._first is None and self._watch is None:  # mostly: one listener, and nothing rare
            listener = self._holder.listen(self, fn)
            if listener is not None:
                self._first = listener
                return
        if self.done():
            if not self.cancelled():
                self._ask()
            if context is None:
                self.get_loop().call_soon(fn, self)
            else:
                self.get_loop().call_soon(fn, self, context=context)
            return
        loop = self.get_loop()
        callback = SharedCallback().of(fn, loop) if context is None else DoneCallback(fn, loop, context, False)
        self._register()
        if self._first is None and self._watch is None:
            self._first = callback
            return
        watch = self._watched()
        if watch.callbacks is None:
            watch.callbacks = [callback]
        else:
            watch.callbacks.append(callback)

    def remove_done_callback(self, fn: Callable[[Delivery], object]) -> int:
        """Remove a callback.

        Args:
            fn: a function given to `add_done_callback`.

        Returns:
            The number of registrations that were removed.
        """
        removed = 0
        first = self._first
        if isinstance(first, DoneCallback) and first.function == fn:
            self._first = None
            removed = 1
        watch = self._watch
        if watch is not None and watch.callbacks is not None:
            kept = [callback for callback in watch.callbacks if callback.function != fn]
            removed += len(watch.callbacks) - len(kept)
            watch.callbacks = kept
        if removed:
            self._watched().is_registered = True
        return removed

    # ------------------------------------------------------------------ letting go
    def cancel(self, msg: object = None) -> bool:
        """Detach this handle. The record is still sent; a failure of it goes to `on_delivery_error`.

        Tasks that await the handle get `CancelledError`, and done callbacks run. To take the record back use `recall`.

        Args:
            msg: message of the `CancelledError`.

        Returns:
            False if the handle was done already.
        """
        if self.done():
            return False
        watch = self._watched()
        woken = self._to_wake()
        waiters = self._taken()
        watch.detached = True
        watch.cancel_message = msg
        for waiter in waiters:
            waiter.join_cancelled(msg, woken)
        self._fire(woken)
        return True

    def recall(self) -> bool:
        """Take the record back, if it has not been stamped into a batch (given a sequence number) yet.

        The Delivery then fails with `RecordRecalledError` (NOT_PERSISTED), and the record's bytes in `buffer_memory` are freed.

        Returns:
            True if the record was taken back; False if it is too late.
        """
        if self._holder.is_settled(self._index):
            return False
        return self._holder.recall(self._index)

    # ------------------------------------------------------------------ the pipeline's side
    def _move_to(self, holder: RecordHolder, index: int) -> None:
        """Point at the batch that took the parked record."""
        self._holder = holder
        self._index = index
        if self._watch is not None:
            self._watch.is_registered = False
            if self._watch.is_disowned:
                holder.disown(index)
        if self._is_watched:
            holder.watch(self)

    def _position(self) -> tuple[RecordHolder, int]:
        """Return the holder of the record and the record's index there."""
        return self._holder, self._index

    @property
    def _is_watched(self) -> bool:
        """True if a task or a callback waits for it. (A failure without either goes to `on_delivery_error`.)"""
        watch = self._watch
        return self._first is not None or (watch is not None and (bool(watch.others) or bool(watch.callbacks)))

    def _settle_here(self, error: AiokprodError) -> None:
        """Fail this handle alone, while the record's outcome stays open (a per-send timeout after the stamp)."""
        if not self.done():
            self._watched().error = error
            self._fire()

    def _fire(self, woken: list[Wakeable] | None = None) -> None:
        """Wake the waiters and run the callbacks soon, as the outcome is known; the caller does it if it passes `woken`."""
        # Each is dropped once it is among those that are woken: one that is in neither place would wait for ever.
        together = self._to_wake() if woken is None else woken
        first = self._first
        if first is not None:
            first.settle(self, together)
            self._first = None
        watch = self._watch
        if watch is not None:
            others = watch.others
            if others is not None:
                for other in others:
                    other.settle(self, together)
                watch.others = None
            callbacks = watch.callbacks
            if callbacks is not None:
                joined = 0
                try:
                    for callback in callbacks:
                        callback.settle(self, together)
                        joined += 1
                finally:
                    watch.callbacks = callbacks[joined:] if joined < len(callbacks) else None

    def _to_wake(self) -> list[Wakeable]:
        """Return a list whose members are woken on the next turn: asked of the loop while nothing has changed yet."""
        woken: list[Wakeable] = []
        if self._is_watched:
            self._holder.event_loop().call_soon(wake, woken)
        return woken

    def _watched(self) -> Watch:
        if self._watch is None:
            self._watch = Watch()
        return self._watch

    def _register(self) -> None:
        """Register this handle with the holder, once: `asyncio.wait` with a timeout may poll it any number of times."""
        watch = self._watch
        if not self._is_watched and (watch is None or not watch.is_registered):
            self._holder.watch(self)

    def _add(self, waiter: Waiter) -> None:
        self._register()
        if self._first is None and (self._watch is None or not self._watch.others):
            self._first = waiter
            return
        watch = self._watched()
        first = self._first
        if isinstance(first, DoneCallback):  # tasks are woken before the callbacks run
            callbacks = [first] if watch.callbacks is None else [first, *watch.callbacks]
            self._first, watch.callbacks = waiter, callbacks
        elif watch.others is None:
            watch.others = {waiter: None}
        else:
            watch.others[waiter] = None

    def _forget(self, waiter: Waiter) -> None:
        """Remove a waiter whose task was cancelled; it may have been woken before."""
        watch = self._watch
        if self._first is waiter:
            self._first = None
            self._watched().is_registered = True
        elif watch is not None and watch.others is not None and waiter in watch.others:
            del watch.others[waiter]
            watch.is_registered = True

    def _taken(self) -> list[Waiter]:
        """Remove and return all waiters, first in, first out."""
        first, watch = self._first, self._watch
        taken = [first] if isinstance(first, Waiter) else []
        if watch is not None and watch.others is not None:
            taken += watch.others
            watch.others = None
        if isinstance(first, Waiter):
            self._first = None
        return taken

    # asyncio's gather and shield use these two of the duck type; without them gather().cancel() hangs.
    @property
    def _cancel_message(self) -> object:
        return None if self._watch is None else self._watch.cancel_message

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        message = self._cancel_message
        return asyncio.CancelledError() if message is None else asyncio.CancelledError(message)

    def __repr__(self) -> str:
        if self.cancelled():
            return "<Delivery cancelled>"
        told = self.explain()
        waits = f"why={told.why!r}" if told.waits_for is None else f"waits for {told.waits_for.value}"
        return f"<Delivery {told.topic!r} {told.place.value}, {waits}>"


# ---------------------------------------------------------------------- what else the pipeline asks of Deliveries
# Functions, and not public methods: users are shown what Deliveries have.
def position_of(delivery: Delivery) -> tuple[RecordHolder, int]:
    """Return the holder of the record and the record's index there."""
    return delivery._position()  # pyright: ignore[reportPrivateUsage] - of this module


def is_watched(delivery: Delivery) -> bool:
    """Return whether a task or a callback waits for it."""
    return delivery._is_watched  # pyright: ignore[reportPrivateUsage] - of this module


def watched_of(deliveries: list[Delivery]) -> list[int]:
    """Return the records' indices of those that a task or a callback waits for."""
    return [each._index for each in deliveries if each._is_watched]  # pyright: ignore[reportPrivateUsage] - of this module


def disown(delivery: Delivery) -> None:
    """Note that no code has this Delivery any more, so that its failure is reported at once."""
    delivery._watched().is_disowned = True  # pyright: ignore[reportPrivateUsage] - of this module
    holder, index = delivery._position()  # pyright: ignore[reportPrivateUsage] - of this module
    holder.disown(index)


def is_disowned(delivery: Delivery) -> bool:
    """Return whether no code has this Delivery."""
    watch = delivery._watch  # pyright: ignore[reportPrivateUsage] - of this module
    return watch is not None and watch.is_disowned


def keep_unasked(delivery: Delivery, unasked: Unasked | None) -> None:
    """Let this handle, which has failed alone, say when it is asked."""
    watch = delivery._watch  # pyright: ignore[reportPrivateUsage] - of this module
    if watch is not None:
        watch.unasked = unasked


def fire(delivery: Delivery) -> None:
    """Wake what waits for this record soon, as its outcome is known."""
    delivery._fire()  # pyright: ignore[reportPrivateUsage] - of this module


def fire_all(deliveries: list[Delivery], woken: list[Wakeable]) -> None:
    """Add what waits for these records to those that are woken next, as their outcomes are known."""
    shared: DoneCallback | None = None
    called: list[object] = []  # one after another, each with `shared` as its only listener: they are added together
    try:
        for delivery in deliveries:
            first = delivery._first  # pyright: ignore[reportPrivateUsage] - of this module
            is_alone = first is not None and delivery._watch is None  # pyright: ignore[reportPrivateUsage]
            if is_alone and first is shared:
                called.append(delivery)
                delivery._first = None  # pyright: ignore[reportPrivateUsage]
                continue
            if shared is not None:
                shared.settle_all(called, woken)
                shared = None
            if not is_alone or first is None:
                delivery._fire(woken)  # pyright: ignore[reportPrivateUsage]
            elif isinstance(first, DoneCallback):
                shared, called = first, [delivery]
                delivery._first = None  # pyright: ignore[reportPrivateUsage]
            else:
                first.settle(delivery, woken)
                delivery._first = None  # pyright: ignore[reportPrivateUsage]
        if shared is not None:
            shared.settle_all(called, woken)
    except BaseException:
        # A crash of ours: what was taken from a Delivery and joined no list goes back, for `BatchOutcomes._wake_all`.
        if shared is not None and not shared.is_last_of(called[-1], woken):
            for each in called:
                assert isinstance(each, Delivery)
                each._first = shared  # pyright: ignore[reportPrivateUsage] - of this module
        raise
