"""`AdmissionGate`: stage 0, the only bound on memory, and the one place that accounts for bytes. One per producer.

Bytes of accepted records are charged here and freed when their outcome is known. A record that finds no room waits its
turn, first in first out; while any record waits, every new one queues behind, so a big record is never starved by
small ones. Columns wait in the same line, for the room of many records at once. Nothing inside the pipeline is bounded:
bounded queues in a loop deadlock.

`free` and `leave` are bookkeeping only: the room is granted afterwards, by `grant`, which the `Effects` of the pipeline call
once the state change that freed it is over.

Records that wait for an awaitable serializer have an estimated size. It is *reserved*: new records find so much less room.
A record whose serializer is done takes its real size without regard to the reservations of others; else records behind it
in the order of its topic could hold the room that it waits for.

Invariants: charged bytes never exceed the limit; a grant goes to the head of the line only; what is charged is freed
exactly once; leaving the line takes no turn from the others; tasks in `ready` are woken one at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from aiokprod.liveness import Stall
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.ports import Room


class RoomWaiter:
    """A task in the line that wants room for something it has not made yet."""

    __slots__ = ("charge_bytes", "future", "in_line")

    def __init__(self, charge_bytes: int, future: asyncio.Future[None]) -> None:
        self.charge_bytes = charge_bytes
        self.future = future
        self.in_line = True


class AdmissionGate(Room):
    """A bound on bytes, first in, first out."""

    def __init__(
        self,
        limit_bytes: int,
        waiting_limit_bytes: int,
        admit: Callable[[ParkedRecord], None],
        room_is_free: Callable[[], None],
    ) -> None:
        """Make the gate of an empty buffer.

        Args:
            limit_bytes: of accepted records (buffer_memory).
            waiting_limit_bytes: of records that wait for room, or at their serializers for want of it.
            admit: takes the record that has just been given room.
            room_is_free: calls `grant` soon, outside of the state change under way.
        """
        self.limit_bytes = limit_bytes
        self.open_bytes = limit_bytes  # the limit less what is reserved: what new records may fill
        # A second bound: without one, a task that never awaits would fill the memory with what waits (faults: M1).
        self.waiting_limit_bytes = waiting_limit_bytes
        self.used_bytes = 0  # charged; `Parking.accept` and `SendPath.take` add to it themselves (the hot path)
        self.waiting_bytes = 0
        self.waiting_count = 0  # in the line, without those that left it
        self.waiting_tasks = 0  # tasks among them
        self.wanted_bytes = (
            1  # the room that `ready` waits for: of the largest record refused since it last let one pass
        )
        self._admit = admit
        self._room_is_free = room_is_free
        # What has left stays in it, marked, until it comes to the front: taken out of the middle of a deque, each of a
        # thousand records that time out together would cost a walk.
        self._line: deque[ParkedRecord | RoomWaiter] = deque()
        # Tasks that want to send something, and go behind all of `_line`: they hold no bytes, and lose nothing but time.
        self._ready: deque[asyncio.Future[None]] = deque()
        self._is_granting = False
        self._is_over = False

    # ------------------------------------------------------------------ bytes
    def try_charge(self, charge_bytes: int) -> bool:
        """Charge at once if there is room and no record waits."""
        # Not past the line, even if it fits: small records would take each byte that comes free, and a large one at the
        # head would wait for ever (faults: M2).
        if self.waiting_count or self.used_bytes + charge_bytes > self.open_bytes:
            return False
        self.used_bytes += charge_bytes
        return True

    def free(self, charge_bytes: int) -> None:
        """Take back bytes that were charged; they are granted after the state change under way."""
        # No grant here. The caller settles a batch, or carries out a ledger's actions: a record that is admitted now would
        # go into the open batch that the next action settles, and be neither sent nor settled.
        if self._is_over:
            return
        self.used_bytes -= charge_bytes
        if self._line or self._ready:
            self._room_is_free()

    @property
    def reserved_bytes(self) -> int:
        """The sum of the estimates of records that wait for their serializers."""
        return self.limit_bytes - self.open_bytes

    @property
    def held_bytes(self) -> int:
        """The part of the limit that is taken: charged, or reserved."""
        # Together they may exceed the limit: real sizes are charged without regard to the reservations of others.
        return min(self.limit_bytes, self.used_bytes + self.reserved_bytes)

    def release(self, record: ParkedRecord) -> None:
        """Drop the estimate: the real size is known, or the record has failed."""
        if record.is_reserved:
            record.is_reserved = False
            self.open_bytes += record.charge_bytes
            if self._line or self._ready:
                self._room_is_free()
        elif record.is_waiting and not record.in_line:
            # In the line the bytes are those of `wait`: `leave` or the grant takes them back, and twice would make room
            # for records that nothing bounds.
            record.is_waiting = False
            self.waiting_bytes -= record.charge_bytes
            if self._ready:
                self._room_is_free()

    def try_charge_serialized(self, charge_bytes: int) -> bool:
        """Charge the real size of a record that was let in by its estimate."""
        # Up to the limit, not to `open_bytes`: the estimates of records behind it in its topic would hold the room that it
        # waits for, and they go on only after it.
        if self.waiting_count or self.used_bytes + charge_bytes > self.limit_bytes:
            return False
        self.used_bytes += charge_bytes
        return True

    # ------------------------------------------------------------------ the line
    def may_wait(self, charge_bytes: int) -> bool:
        """Return whether the waiting line has room for a record of this charge."""
        return self.waiting_bytes + charge_bytes <= self.waiting_limit_bytes

    def wait(self, record: ParkedRecord) -> None:
        """Put the record at the end of the line."""
        self.prepare(record)
        record.in_line = record.is_waiting = True
        self.waiting_bytes += record.charge_bytes
        self.waiting_count += 1

    def prepare(self, record: ParkedRecord) -> None:
        """Put the record at the end of the line, where it is passed over until it waits (`in_line`)."""
        self._line.append(record)

    def leave(self, record: ParkedRecord) -> None:
        """Take the record out of the line (recalled, timed out); its place goes to what is next (faults: M3)."""
        self._forget(record)
        # No bytes came free, but the new head may be smaller than this one was, and fit.
        self._room_is_free()

    async def ready(self, unless: Delivery | None = None) -> None:
        """Wait until there is room and no record waits for it; first in, first out.

        Args:
            unless: wait no longer once this one has its outcome, room or not.

        Cancellation: gives up its place, and its turn goes to the next.
        """
        # Not past the tasks that wait: a task that asks again and again would always be served before them.
        if (not self._ready and self.has_room_now()) or (unless is not None and unless.done()):
            self.wanted_bytes = 1  # if what comes now is larger, it is refused, and says so
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready.append(future)
        try:
            if unless is None:
                await future
            else:
                await self._unless(future, unless)
        except asyncio.CancelledError:
            # Woken and cancelled in the same turn (faults: M4): it sends nothing, so nothing else would pass the turn on,
            # and those behind it would wait although there is room.
            if future.done() and not future.cancelled():
                self._wake_next()
            raise
        # The next one is woken a turn later, when the send this one makes has taken its room.
        asyncio.get_running_loop().call_soon(self._wake_next)

    async def _unless(self, future: asyncio.Future[None], unless: Delivery) -> None:
        give_up = partial(self._give_up, future)
        unless.add_done_callback(give_up)
        try:
            await future
        finally:
            unless.remove_done_callback(give_up)

    def _give_up(self, future: asyncio.Future[None], unless: Delivery) -> None:
        # A future that is done has been woken, and is not in `_ready` any more; or it was cancelled, and is passed over.
        if not future.done():
            self._ready.remove(future)
            future.set_result(None)

    async def charge(self, charge_bytes: int) -> None:
        """Wait in the line until this charge fits; it is charged when this returns. At most the limit.

        Cancellation: leaves the line; nothing is charged.
        """
        if self.try_charge(charge_bytes):
            return
        waiter = RoomWaiter(charge_bytes, asyncio.get_running_loop().create_future())
        self.waiting_count += 1
        self.waiting_tasks += 1
        self._line.append(waiter)
        try:
            await waiter.future
        except asyncio.CancelledError:
            # Three ways to get here: still in the line; granted, and cancelled before the task ran (faults: M4); told that
            # the producer closes. Only in the second were the bytes charged.
            if waiter.in_line:
                self._forget(waiter)
            elif waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None:
                self.used_bytes -= charge_bytes  # granted in the same turn
            # A task resumes outside of every state change, so the next grant may be made here.
            self.grant()
            raise

    def abandon(self, error: Callable[[], BaseException]) -> None:
        """Fail the tasks that wait: the producer closes. Records that were accepted keep their places (faults: M5)."""
        # Each leaves its line when its future is done: a crash in between finds it there.
        for waiting in self._line:
            if isinstance(waiting, RoomWaiter) and waiting.in_line:
                if not waiting.future.done():
                    waiting.future.set_exception(error())
                self._forget(waiting)
        while self._ready:
            future = self._ready[0]
            if not future.done():
                future.set_exception(error())
            self._ready.popleft()
        self._room_is_free()

    def end(self, error: Callable[[], BaseException]) -> None:
        """Hold nothing any more, after a crash: everything has its outcome, though not all of it may have been freed."""
        self._is_over = True
        self._is_granting = False
        for future in [each.future for each in self._line if isinstance(each, RoomWaiter)] + list(self._ready):
            if not future.done():
                future.set_exception(error())
        self._line.clear()
        self._ready.clear()
        self.used_bytes = self.waiting_bytes = self.waiting_count = self.waiting_tasks = 0
        self.open_bytes = self.limit_bytes

    def _forget(self, waiting: ParkedRecord | RoomWaiter) -> None:
        waiting.in_line = False
        self.waiting_count -= 1
        if isinstance(waiting, RoomWaiter):
            self.waiting_tasks -= 1
        else:
            waiting.is_waiting = False
            self.waiting_bytes -= waiting.charge_bytes

    @property
    def ready_count(self) -> int:
        """The number of tasks that wait in `ready`."""
        return len(self._ready)

    # ------------------------------------------------------------------ granting
    def has_room_now(self) -> bool:
        """Return whether there is room that nothing waits for.

        What waits at its serializer for want of room counts, too: else a `send_many` would take its whole source there.
        """
        return (
            not self.waiting_count and not self.waiting_bytes and self.used_bytes + self.wanted_bytes <= self.open_bytes
        )

    def refused(self, charge_bytes: int) -> None:
        """Note that a record of this size had no room and did not wait: `ready` waits until there is so much."""
        # At most the limit: more is never free, and `ready` would wait for ever.
        self.wanted_bytes = max(self.wanted_bytes, min(charge_bytes, self.limit_bytes))

    @property
    def is_short(self) -> bool:
        """True while anything waits for room. Then nothing lingers."""
        return self.waiting_count > 0 or (self.wanted_bytes > 1 and bool(self._ready))

    def grant(self) -> None:
        """Give free room to the head of the line, and so on; then wake the first task in `ready`.

        Only the effects of a state change and resumed tasks call it, never a state change itself.
        """
        if self._is_granting:
            return  # admitting a record may fail it: what that frees is seen by the loop below
        self._is_granting = True
        try:
            while self._line:
                head = self._line[0]
                if isinstance(head, RoomWaiter) and head.in_line and head.future.done():
                    self._forget(head)  # cancelled, and its task does not run before we do
                if not head.in_line:
                    self._line.popleft()
                    continue
                if self.used_bytes + head.charge_bytes > self.limit_bytes:
                    return  # those behind it wait, too, though they may fit (faults: M2)
                # Charged before it is admitted: a user's partitioner may send meanwhile, and would find the same room.
                self.used_bytes += head.charge_bytes
                if isinstance(head, RoomWaiter):
                    self._forget(head)
                    head.future.set_result(None)
                    self._line.popleft()
                else:
                    self._line.popleft()
                    head.in_line = head.is_waiting = False
                    try:
                        self._admit(head)
                    finally:  # until then it counts: what a partitioner of the user sends meanwhile goes behind it
                        self.waiting_count -= 1
                        self.waiting_bytes -= head.charge_bytes
        finally:
            self._is_granting = False
        self._wake_next()

    def first_waiting(self) -> object | None:
        """Return what room is given to next; None: nothing waits for room."""
        for waiting in self._line:
            if waiting.in_line:
                return waiting
        return self._ready[0] if self._ready and self.is_short else None

    def stall(self) -> Stall | None:
        """Return a stall if there is room for what is first in the line, and nothing grants it."""
        for waiting in self._line:
            if not waiting.in_line:
                continue
            if self.used_bytes + waiting.charge_bytes > self.open_bytes:
                break  # what is freed, or not reserved any more, is granted
            return Stall("there is room for a record that waits for it, and it is not given", self, waiting, self.grant)
        if self._ready and self.has_room_now():
            what = "there is room that a task waits for, and the task is not woken"
            return Stall(what, self, self._ready[0], self._wake_next)
        return None

    def _wake_next(self) -> None:
        # One task, not all: each of them would see the same room, and all but the first would be refused. It wakes the next
        # when it has sent. A future that is done was cancelled, and its task has not run yet.
        while self._ready and self.has_room_now():
            future = self._ready[0]  # it leaves the line when it is done, so that a crash in between finds it there
            if not future.done():
                self.wanted_bytes = 1
                future.set_result(None)
                self._ready.popleft()
                return
            self._ready.popleft()

    def __repr__(self) -> str:
        return f"<AdmissionGate {self.used_bytes}/{self.limit_bytes} bytes, {self.waiting_count} waiting>"
