"""`AdmissionGate`: stage 0, the only bound on memory. One per producer.

Bytes of accepted records are charged here and given back when their outcome is known. A record that finds no room waits
its turn, first in first out; while any record waits, every new one queues behind, so a big record is never starved by
small ones. Nothing inside the pipeline is bounded: bounded queues in a loop deadlock.

Invariants: charged bytes never exceed the limit; a grant goes to the head of the line only; what is charged is given
back exactly once; who leaves the line costs nobody else their turn; tasks in `ready` are woken one at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from aiokprod.pipeline.parked import ParkedRecord


class AdmissionGate:
    """Bounded bytes, first in first out."""

    def __init__(self, limit_bytes: int, waiting_limit_bytes: int, admit: Callable[[ParkedRecord], None]) -> None:
        self.limit_bytes = limit_bytes
        self.waiting_limit_bytes = waiting_limit_bytes
        self.used_bytes = 0
        self.waiting_bytes = 0
        self.waiting_count = 0  # records in the line, without those that left it
        self._admit = admit  # takes the record that has just been given room
        self._line: deque[ParkedRecord] = deque()  # a record that left stays in it, marked, until it comes to the front
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

    def overdue(self, now: float) -> list[ParkedRecord]:
        """Take the records out of the line that have waited for as long as they may.

        All wait equally long, so these are at the front.
        """
        late: list[ParkedRecord] = []
        while self._line and (not self._line[0].in_line or self._line[0].block_deadline <= now):
            record = self._line.popleft()
            if record.in_line:
                self._forget(record)
                late.append(record)
        self._grant()
        return late

    def next_deadline(self) -> float | None:
        """When the first in the line has waited for as long as it may; None: nobody waits."""
        return self._line[0].block_deadline if self._line else None

    def abandon(self, error: Callable[[], BaseException]) -> list[ParkedRecord]:
        """Closing: everybody leaves. The records are returned, tasks in `ready` get the error."""
        records = [record for record in self._line if record.in_line]
        self._line.clear()
        for record in records:
            self._forget(record)
        while self._ready:
            future = self._ready.popleft()
            if not future.done():
                future.set_exception(error())
        return records

    def _forget(self, record: ParkedRecord) -> None:
        record.in_line = False
        self.waiting_bytes -= record.charge_bytes
        self.waiting_count -= 1

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
                if head.in_line:
                    if self.used_bytes + head.charge_bytes > self.limit_bytes:
                        return
                    self._forget(head)
                    self.used_bytes += head.charge_bytes
                    self._line.popleft()
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
