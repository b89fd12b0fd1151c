"""`SentRecord`: what `send` returns, a view of the Delivery that behaves as the `asyncio.Future` of aiokafka.

One small object per record. It has no callback and no task of its own: its outcome is that of the Delivery, told with the
metadata and the errors of aiokafka when it is asked for.

Done callbacks are given the view, not the Delivery. A Delivery shares one `DoneCallback` among the records of a batch that
were given the same function; so all views of a producer register the same one, `Callbacks.run`, which finds the view and
calls its function. Only a second callback of one record, or one with a context, is an object of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Final

from aiokprod.compat.aiokafka.errors import be_theirs_too
from aiokprod.compat.aiokafka.theirs import RecordMetadata, TopicPartition
from aiokprod.delivery_type import Delivery
from aiokprod.errors import AiokprodError
from aiokprod.model import TimestampType
from aiokprod.record_metadata import RecordMetadata as OurMetadata

_make: Final[Any] = vars(tuple)["__new__"]  # a named tuple's own `__new__` costs as much again
NO_OFFSET: Final = -1


def metadata_of(known: OurMetadata) -> RecordMetadata:
    """Return the metadata of a delivered record in the form of aiokafka; an offset that no broker told is -1."""
    topic, partition, offset = known.topic, known.partition, known.offset
    place = _make(TopicPartition, (topic, partition))
    made: RecordMetadata = _make(
        RecordMetadata,
        (
            topic,
            partition,
            place,
            NO_OFFSET if offset is None else offset,
            known.timestamp,
            0 if known.timestamp_type is TimestampType.CREATE_TIME else 1,
            None,
        ),
    )
    return made


def _future_class(_view: object) -> type[asyncio.Future[Any]]:
    return asyncio.Future


class Callbacks:
    """The views of one producer that wait to call their first done callback."""

    __slots__ = ("run", "views")

    def __init__(self) -> None:
        self.views: dict[Delivery, SentRecord] = {}
        self.run = self._run  # one object: a Delivery compares what it is given

    def _run(self, delivery: Delivery) -> None:
        view = self.views.pop(delivery, None)
        if view is not None:
            view.call_back()


class OneCallback:
    """A done callback that a Delivery holds itself: of a record that has several, or with a context."""

    __slots__ = ("function", "view")

    def __init__(self, function: Callable[[Any], object], view: SentRecord) -> None:
        self.function = function
        self.view = view

    def __call__(self, delivery: object) -> None:
        self.function(self.view)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneCallback) and other.view is self.view and other.function == self.function

    def __hash__(self) -> int:
        return hash((self.function, id(self.view)))


class SentRecord:
    """The outcome of one record: awaiting it returns aiokafka's `RecordMetadata`.

    `isinstance(sent, asyncio.Future)` and `asyncio.isfuture` hold. `sent.delivery` is aiokprod's `Delivery`.

    Cancellation: cancelling it detaches it, as in aiokafka; the record is still sent.
    """

    __slots__ = ("__weakref__", "_callbacks", "_function", "delivery")

    __class__ = property(_future_class)  # pyright: ignore[reportIncompatibleMethodOverride] - what isinstance() asks for; type() is this class
    _asyncio_future_blocking = False  # asyncio.isfuture looks for it; never True, as the view itself is never yielded

    def __init__(self, delivery: Delivery, callbacks: Callbacks) -> None:
        self.delivery = delivery
        self._callbacks = callbacks
        self._function: Callable[[Any], object] | None = None  # the first done callback

    def _told(self, known: OurMetadata) -> RecordMetadata | None:
        return metadata_of(known)

    def __await__(self) -> Generator[Any, None, RecordMetadata | None]:
        """Wait for the outcome."""
        try:
            known = yield from self.delivery.__await__()
        except AiokprodError as error:
            be_theirs_too(error)
            raise
        return self._told(known)

    __iter__ = __await__

    def result(self) -> RecordMetadata | None:
        """Return the metadata; raise the error of a record that failed, or `asyncio.InvalidStateError` before the outcome."""
        try:
            return self._told(self.delivery.result())
        except AiokprodError as error:
            be_theirs_too(error)
            raise

    def exception(self) -> AiokprodError | None:
        """Return the error of a record that failed; None for a delivered one."""
        error = self.delivery.exception()
        return None if error is None else be_theirs_too(error)

    def done(self) -> bool:
        """Return True if the outcome is known, or the view was cancelled."""
        return self.delivery.done()

    def cancelled(self) -> bool:
        """Return True if `cancel` has detached the view."""
        return self.delivery.cancelled()

    def cancel(self, msg: Any = None) -> bool:
        """Detach the view; the record is still sent. Return False if it was done already."""
        return self.delivery.cancel(msg)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer."""
        return self.delivery.get_loop()

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Context | None = None) -> None:
        """Call `fn(view)` from the loop once the outcome is known, or soon if it is known already."""
        callbacks = self._callbacks
        if context is None and self._function is None and self.delivery not in callbacks.views:
            self._function = fn
            callbacks.views[self.delivery] = self
            self.delivery.add_done_callback(callbacks.run)
        else:
            self.delivery.add_done_callback(OneCallback(fn, self), context=context)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove a callback; return how often it was there."""
        removed = self.delivery.remove_done_callback(OneCallback(fn, self))
        if self._function is not None and self._function == fn:
            self._function = None
            self._callbacks.views.pop(self.delivery, None)
            removed += self.delivery.remove_done_callback(self._callbacks.run)
        return removed

    def call_back(self) -> None:
        """Call the first done callback."""
        function, self._function = self._function, None
        if function is not None:
            function(self)

    # asyncio's gather and shield use these two.
    @property
    def _cancel_message(self) -> object:
        return self.delivery._cancel_message  # pyright: ignore[reportPrivateUsage] - as asyncio reads it of a future

    def _make_cancelled_error(self) -> asyncio.CancelledError:
        return self.delivery._make_cancelled_error()  # pyright: ignore[reportPrivateUsage] - as asyncio calls it

    def __repr__(self) -> str:
        return f"<SentRecord {self.delivery!r}>"


class UnacknowledgedRecord(SentRecord):
    """The outcome of a record with acks=0, which aiokafka tells by None: no broker answers."""

    __slots__ = ()

    def _told(self, known: OurMetadata) -> None:
        return None
