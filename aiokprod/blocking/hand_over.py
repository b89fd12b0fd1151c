"""`HandOver`: records on their way from threads to the loop, and their outcomes on the way back. One per loop thread.

    thread: put -> list  ->  loop: drain, once for many records -> send  ->  batch settled -> Outcome -> thread

The loop is woken once for all records that are handed over before it looks. While `buffer_memory` is full, the loop takes none.
While it takes none, or many wait, `put` blocks its thread. At the close, and at the end of the program, the loop takes all.

Invariants: the records of a thread are taken in the order of its calls. Each record that `put` returned an Outcome for is
settled: by its Delivery, by a refusal, or by `fail`. The lock is never held while code of the user runs; it can be taken again
by its thread, for a signal handler or a finalizer that sends. A mark is set behind the call that makes it true: an interrupt
between the two costs one more look.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context, copy_context
from time import monotonic
from typing import Any, Final

from aiokprod.blocking.outcome import Outcome
from aiokprod.delivery_type import Delivery
from aiokprod.errors import AiokprodError, BufferFullError, ProducerClosedError, advise
from aiokprod.model import Persistence
from aiokprod.producer import Producer, room_of
from aiokprod.record_metadata import RecordMetadata
from aiokprod.thread_sends import copied, frozen

MOST_RECORDS: Final = 1_000  # handed over and not taken: the loop takes them in one go
MOST_BYTES: Final = 1024 * 1024  # or half of what may wait for room: at the close all of it has to
OVERHEAD_BYTES: Final = 100
Handed = tuple[Outcome, Any, object, object, "dict[str, Any] | None", "Context | None"]


class HandOver:
    """The records that threads hand over to the loop of one producer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, producer: Producer) -> None:
        self._loop = loop
        self._producer = producer
        config = producer.config
        self._max_block_s = config.max_block_ms / 1000
        # Code of the user that sees each record runs in the context of its call: a span is the child of the caller's.
        self._keeps_context = bool(config.interceptors or config.key_serializer or config.value_serializer)
        self._lock = threading.RLock()
        self._room = threading.Condition(self._lock)
        self._handed: list[Handed] = []
        self._bytes = 0
        self._is_woken = False
        self._is_full = False  # buffer_memory is
        self._refusal: Callable[[], AiokprodError] | None = None
        self._context = Context()  # of the loop's work: none of a caller
        self._untaken: set[Future[RecordMetadata]] = set()
        waiting_bytes = config.buffer_memory if config.max_waiting_bytes is None else config.max_waiting_bytes
        self._most_bytes = min(MOST_BYTES, waiting_bytes // 2)
        # On the loop only.
        self._left: deque[Handed] = deque()  # taken from the threads, and not sent yet
        self._outcomes: dict[Delivery, Outcome] = {}
        self._watch: asyncio.Task[None] | None = None
        self._settled: Callable[[Delivery], None] = self._settle  # one object: batches share what is called with each

    def count_in(self, untaken: set[Future[RecordMetadata]]) -> None:
        """Keep the Outcomes of records that the loop has not taken in this set, which is counted at exit."""
        self._untaken = untaken

    # ------------------------------------------------------------------ threads
    def put(
        self,
        topic: object,
        value: object,
        key: object,
        partition: object,
        headers: Any,
        timestamp_ms: object,
        timeout: object,
    ) -> Outcome:
        """Hand over one record; wait for room, for `max_block_ms` at most.

        Raises:
            BufferFullError: there was no room in time; the record was not taken.
            AiokprodError: the refusal.
        """
        outcome = Outcome()
        size_bytes = OVERHEAD_BYTES
        if type(value) is bytes:
            size_bytes += len(value)
        elif value is not None:
            value = frozen(value)
            size_bytes += len(value) if isinstance(value, bytes | str) else OVERHEAD_BYTES
        if key is not None:
            key = frozen(key)
        options: dict[str, Any] | None = None
        if partition is not None or headers or timestamp_ms is not None or timeout is not None:
            options = {
                "partition": partition,
                "headers": copied(headers),
                "timestamp_ms": timestamp_ms,
                "timeout": timeout,
            }
        handed = (outcome, topic, value, key, options, copy_context() if self._keeps_context else None)
        with self._lock:
            waiting = len(self._handed)
            if self._is_full or waiting >= MOST_RECORDS or self._bytes >= self._most_bytes:
                self._wait_for_room(topic, timeout)
            if self._refusal is not None:
                raise self._refusal()
            if not self._is_woken:
                self._loop.call_soon_threadsafe(self.drain, context=self._context)
                self._is_woken = True
            self._handed.append(handed)  # the loop takes the lock first, and so finds it
            self._bytes += size_bytes
            self._untaken.add(outcome)
        return outcome

    @property
    def _is_long(self) -> bool:
        return len(self._handed) >= MOST_RECORDS or self._bytes >= self._most_bytes

    def _wait_for_room(self, topic: object, timeout: object) -> None:
        longest_s = self._max_block_s
        if isinstance(timeout, int | float) and 0 < timeout < longest_s:
            longest_s = timeout
        deadline = monotonic() + longest_s
        while (self._is_full or self._is_long) and self._refusal is None:
            left_s = deadline - monotonic()
            if left_s <= 0:
                what = "buffer_memory is full" if self._is_full else "the producer's thread takes no records"
                error = BufferFullError(
                    f"{what}: no room for the record within {longest_s:g} s (max_block_ms, or the timeout of the call)",
                    topic=topic if isinstance(topic, str) else None,
                    persistence=Persistence.NOT_PERSISTED,
                )
                advise(error, "Ask for outcomes before you submit more, use send_many, or raise buffer_memory.")
                raise error
            self._room.wait(left_s)

    def refuse(self, refusal: Callable[[], AiokprodError]) -> None:
        """Refuse records from now on; what was handed over before is still taken. The first refusal counts."""
        with self._lock:
            if self._refusal is None:
                self._refusal = refusal
            self._room.notify_all()

    # ------------------------------------------------------------------ the loop
    def drain(self) -> None:
        """Send what was handed over, as far as there is room; the rest when there is."""
        self._take(room_of(self._producer))

    def drain_all(self) -> None:
        """Send all that was handed over: what has no room waits for it inside the producer."""
        self._take(None)

    def _take(self, has_room: Callable[[], bool] | None) -> None:
        with self._lock:
            taken, self._handed = self._handed, []
            self._bytes = 0
            self._is_woken = False
        left = self._left
        left.extend(taken)
        send, settled, outcomes = self._producer.send, self._settled, self._outcomes
        done: list[Outcome] = []
        while left and (has_room is None or has_room()):
            outcome, topic, value, key, options, context = left.popleft()
            done.append(outcome)
            if not outcome.is_taken():
                continue
            try:
                if context is not None:
                    delivery = context.run(send, topic, value, key, **(options or {}))
                elif options is not None:
                    delivery = send(topic, value, key, **options)
                else:
                    delivery = send(topic, value, key)
                outcomes[delivery] = outcome
                delivery.add_done_callback(settled)
            except BaseException as refused:  # also SystemExit of a serializer: it is the caller's
                ours = self._refusal if type(refused) is ProducerClosedError else None
                outcome.set_exception(refused if ours is None else ours())
        is_full = not room_of(self._producer)()
        if is_full and self._watch is None:
            self._watch = self._loop.create_task(self._until_room(), name="aiokprod-room")
        with self._lock:
            self._is_full = is_full
            self._untaken.difference_update(done)
            if not is_full:
                self._room.notify_all()

    async def _until_room(self) -> None:
        try:
            await self._producer.ready()
        except AiokprodError:  # closed or failed: the records get the reason
            pass
        finally:
            self._watch = None
        self.drain()

    def _settle(self, delivery: Delivery) -> None:
        outcome = self._outcomes.pop(delivery, None)
        if outcome is None:  # its callback was added in vain: see `_take`
            return
        try:
            metadata = delivery.result()
        except AiokprodError:
            outcome.set_exception(delivery.exception())  # the same without a traceback
        else:
            outcome.deliver(metadata)

    def fail(self, error: Callable[[], AiokprodError]) -> None:
        """Fail what has no outcome: the loop has ended. Called behind `refuse`."""
        with self._lock:
            taken, self._handed = self._handed, []
            self._untaken.difference_update([each[0] for each in taken])
        left = [each[0] for each in (*self._left, *taken)]
        for outcome in (*left, *self._outcomes.values()):
            if not outcome.done():
                outcome.set_exception(error())
        self._outcomes.clear()
        self._left.clear()
