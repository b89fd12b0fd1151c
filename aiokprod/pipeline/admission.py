"""`AdmissionGate`: stage 0, the only bound on memory. One per producer.

Bytes of accepted records are charged here and given back when their outcome is known. A record that finds no room waits
its turn, first in first out; while any record waits, every new one queues behind, so a big record is never starved by
small ones. Columns wait in the same line, for the room of many records at once. Nothing inside the pipeline is bounded:
bounded queues in a loop deadlock.

Invariants: charged bytes never exceed the limit; a grant goes to the head of the line only; what is charged is given
back exactly once; who leaves the line costs nobody else their turn; tasks in `ready` are woken one at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiokprod.pipeline.parked import ParkedRecord


class RoomWaiter:
    """A task in the line that wants room for something it has not made yet."""

    __slots__ = ("charge_bytes", "future", "in_line")

    def __init__(self, charge_bytes: int, future: asyncio.Future[None]) -> None:
        self.charge_bytes = charge_bytes
        self.future = future
        self.in_line = True


class AdmissionGate:
    """Bounded bytes, first in first out."""

    def __init__(self, limit_bytes: int, waiting_limit_bytes: int, admit: Callable[[ParkedRecord], None]) -> None:
        self.limit_bytes = limit_bytes
        self.waiting_limit_bytes = waiting_limit_bytes
        self.used_bytes = 0
        self.waiting_bytes = 0
        self.waiting_count = 0  # in the line, without those that left it
        self.waiting_rooms = 0  # tasks among them
        self._admit = admit  # takes the record that has just been given room
        # Who left stays in it, marked, until he comes to the front.
        self._line: deque[ParkedRecord | RoomWaiter] = deque()
        self._ready: deque[asyncio.Future[None]] = deque()
        self._granting = False

    def try_charge(self, charge_bytes: int) -> bool:
        """Charge at once if there is room and no record waits. The hot path of `send`."""
        if self.waiting_count or self.used_bytes + charge_bytes > self.limit_bytes:
            return False
        self.used_bytes += charge_bytes
        return True

    def may_wait(self, charge_bytes: int) -> bool:
        """Is there room in the waiting line for so many bytes more?"""
        return self.waiting_bytes + charge_bytes <= self.waiting_limit_bytes

    def wait(self, record: ParkedRecord) -> None:
        """Put the record at the end of the line."""
        record.in_line = True
        self.waiting_bytes += record.charge_bytes
        self.waiting_count += 1
        self._line.append(record)

    def leave(self, record: ParkedRecord) -> None:
        """The record leaves the line (recalled, timed out); its place goes to who is next."""
        self._forget(record)
        self._grant()

    def give_back(self, charge_bytes: int) -> None:
        """These bytes are free; whoever is next in line and fits goes on."""
        self.used_bytes -= charge_bytes
        if self._line or self._ready:
            self._grant()

    async def ready(self) -> None:
        """Wait until there is room and no record waits for it; first in, first out.

        Cancellation: gives up its place, and its turn goes to the next.
        """
        if not self._ready and self.has_room_now():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ready.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._wake_next()
            raise
        # The next one is woken a turn later, when the send this one makes has taken its room.
        asyncio.get_running_loop().call_soon(self._wake_next)

    async def charge(self, charge_bytes: int) -> None:
        """Wait in the line until so many bytes are free; they are charged when this returns. At most the limit.

        Cancellation: leaves the line; nothing is charged.
        """
        if self.try_charge(charge_bytes):
            return
        waiter = RoomWaiter(charge_bytes, asyncio.get_running_loop().create_future())
        self.waiting_count += 1
        self.waiting_rooms += 1
        self._line.append(waiter)
        try:
            await waiter.future
        except asyncio.CancelledError:
            if waiter.in_line:
                self._forget(waiter)
                self._grant()
            elif waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None:
                self.give_back(charge_bytes)  # granted in the same turn
            raise

    def overdue(self, now: float) -> list[ParkedRecord]:
        """Take the records out of the line that have waited for as long as they may.

        All records wait equally long, so these are in front of the others.
        """
        late: list[ParkedRecord] = []
        for waiting in self._line:
            if isinstance(waiting, ParkedRecord) and waiting.in_line:
                if waiting.block_deadline > now:
                    break
                late.append(waiting)
        for record in late:
            self._forget(record)
        self._grant()
        return late

    def next_deadline(self) -> float | None:
        """When the first record in the line has waited for as long as it may; None: none waits."""
        for waiting in self._line:
            if isinstance(waiting, ParkedRecord) and waiting.in_line:
                return waiting.block_deadline
        return None

    def waiting_records(self) -> list[ParkedRecord]:
        """The records in the line."""
        return [waiting for waiting in list(self._line) if isinstance(waiting, ParkedRecord) and waiting.in_line]

    def abandon(self, error: Callable[[], BaseException]) -> list[ParkedRecord]:
        """Closing: everybody leaves. The records are returned, tasks in `ready` get the error."""
        line = [waiting for waiting in self._line if waiting.in_line]
        self._line.clear()
        for waiting in line:
            self._forget(waiting)
            if isinstance(waiting, RoomWaiter) and not waiting.future.done():
                waiting.future.set_exception(error())
        while self._ready:
            future = self._ready.popleft()
            if not future.done():
                future.set_exception(error())
        return [waiting for waiting in line if isinstance(waiting, ParkedRecord)]

    def _forget(self, waiting: ParkedRecord | RoomWaiter) -> None:
        waiting.in_line = False
        self.waiting_count -= 1
        if isinstance(waiting, RoomWaiter):
            self.waiting_rooms -= 1
        else:
            self.waiting_bytes -= waiting.charge_bytes

    def has_room_now(self) -> bool:
        """Is there room, and does no record wait for it?"""
        return not self.waiting_count and self.used_bytes < self.limit_bytes

    def _grant(self) -> None:
        if self._granting:
            return  # admitting a record may fail it and give its bytes back: the loop below goes on by itself
        self._granting = True
        try:
            while self._line:
                head = self._line[0]
                if isinstance(head, RoomWaiter) and head.in_line and head.future.done():
                    self._forget(head)  # cancelled, and its task does not run before we do
                if head.in_line:
                    if self.used_bytes + head.charge_bytes > self.limit_bytes:
                        return
                    self._forget(head)
                    self.used_bytes += head.charge_bytes
                    self._line.popleft()
                    if isinstance(head, RoomWaiter):
                        head.future.set_result(None)
                    else:
                        self._admit(head)
                else:
                    self._line.popleft()
        finally:
            self._granting = False
        self._wake_next()

    def _wake_next(self) -> None:
        while self._ready and self.has_room_now():
            future = self._ready.popleft()
            if not future.done():
                future.set_result(None)
                return

    def __repr__(self) -> str:
        return f"<AdmissionGate {self.used_bytes}/{self.limit_bytes} bytes, {self.waiting_count} waiting>"
