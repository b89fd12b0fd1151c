"""`AdmissionGate` in any order of events: bytes are exact, the line is served in its order, and no room lies idle."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stage_rig import GateDesk, parked

from aiokprod.pipeline.partition.parked_record import ParkedRecord

LIMIT = 100
WAITING_LIMIT = 400


class GateMachine(RuleBasedStateMachine):
    """A random schedule, against a model that keeps the line as a list.

    After each rule all tasks have run as far as they can. What falls into one turn of the loop is one rule.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.desk = GateDesk(LIMIT, WAITING_LIMIT, self._admit)
        self.gate = self.desk.gate
        self.line: list[ParkedRecord | asyncio.Task[None]] = []  # in the order in which they came
        self.sizes: dict[asyncio.Task[None], int] = {}  # of columns
        self.passed: list[asyncio.Task[None]] = []  # columns that a record behind them has overtaken in the line
        self.held: list[int] = []  # charged bytes, to be freed
        self.reserved: list[ParkedRecord] = []  # at their serializers, with room in the buffer
        self.estimated: list[ParkedRecord] = []  # at their serializers, without
        self.ready: list[asyncio.Task[None]] = []

    def teardown(self) -> None:
        for record in self.reserved + self.estimated:
            self.desk.release(record)
        self.reserved, self.estimated = [], []
        self._rest()
        while self.held:
            self.desk.free(self.held.pop(0))
            self._rest()
        assert not self.line, "something waits at an empty gate"
        assert all(task.done() for task in self.ready)
        gate = self.gate
        assert (gate.used_bytes, gate.waiting_bytes, gate.waiting_count, gate.waiting_tasks) == (0, 0, 0, 0)
        assert gate.reserved_bytes == 0
        self.loop.close()

    def _admit(self, record: ParkedRecord) -> None:
        while self.line and isinstance(self.line[0], asyncio.Task):
            self.passed.append(self.line.pop(0))  # has its room too, or has been cancelled
        assert record is self.line.pop(0), "not the first of the line"
        self.held.append(record.charge_bytes)

    def _rest(self) -> None:
        """Turn the loop until no task can go on."""

        async def turns() -> None:
            for _ in range(2 * len(self.ready) + 4):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())
        assert all(task.done() for task in self.passed), "a record has overtaken columns"
        self.line = [each for each in self.line if isinstance(each, ParkedRecord) or not each.done()]
        self.ready = [task for task in self.ready if not task.done()]

    def _waiting_bytes(self) -> int:
        """Return the bytes of records in the line, and of those whose estimate waits."""
        records = [each for each in self.line if isinstance(each, ParkedRecord)]
        return sum(record.charge_bytes for record in records + self.estimated)

    def _reserved_bytes(self) -> int:
        return sum(record.charge_bytes for record in self.reserved)

    # ------------------------------------------------------------------ records
    @rule(size=st.integers(1, LIMIT))
    def send(self, size: int) -> None:
        fits = not self.line and sum(self.held) + self._reserved_bytes() + size <= LIMIT
        assert self.gate.try_charge(size) == fits
        if fits:
            self.held.append(size)
        elif self.gate.may_wait(size):
            assert self._waiting_bytes() + size <= WAITING_LIMIT
            self._line_up(parked(self.loop, charge_bytes=size))
        else:
            assert self._waiting_bytes() + size > WAITING_LIMIT

    def _line_up(self, record: ParkedRecord) -> None:
        self.line.append(record)
        self.gate.wait(record)

    @rule(size=st.integers(1, LIMIT), must_wait=st.booleans(), may_wait=st.booleans())
    def send_to_be_serialized(self, size: int, must_wait: bool, may_wait: bool) -> None:
        fits = not self.line and sum(self.held) + self._reserved_bytes() + size <= LIMIT
        waits = may_wait and (must_wait or self._waiting_bytes() + size <= WAITING_LIMIT)
        record, gate = parked(self.loop, charge_bytes=size), self.gate
        # As `Parking` does, which changes the numbers itself, on one line with its own.
        assert (not gate.waiting_count and gate.used_bytes + size <= gate.open_bytes) == fits
        if fits:
            gate.open_bytes, record.is_reserved = gate.open_bytes - size, True
            self.reserved.append(record)
        elif waits:
            assert must_wait or gate.may_wait(size)
            gate.waiting_bytes, record.is_waiting = gate.waiting_bytes + size, True
            self.estimated.append(record)

    def _taken_out(self, which: int) -> ParkedRecord:
        number = which % (len(self.reserved) + len(self.estimated))
        if number < len(self.reserved):
            return self.reserved.pop(number)
        return self.estimated.pop(number - len(self.reserved))

    @precondition(lambda self: self.reserved or self.estimated)
    @rule(which=st.integers(0, 1000), size=st.integers(1, LIMIT))
    def serialized(self, which: int, size: int) -> None:
        """Set the real size of a record, which may be any: the record was accepted."""
        record = self._taken_out(which)
        self.desk.effects.begin()
        self.gate.release(record)
        record.charge_bytes = size
        fits = not self.line and sum(self.held) + size <= LIMIT
        assert self.gate.try_charge_serialized(size) == fits
        if fits:
            self.held.append(size)
        else:
            self._line_up(record)
        self.desk.effects.end()
        self._rest()

    @precondition(lambda self: self.reserved or self.estimated)
    @rule(which=st.integers(0, 1000))
    def recall_while_serialized(self, which: int) -> None:
        record = self._taken_out(which)
        self.desk.release(record)
        assert not record.is_reserved and not record.is_waiting
        self._rest()

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 1000), count=st.integers(1, 3), cancelled=st.integers(-1, 1000), first=st.booleans())
    def settle(self, which: int, count: int, cancelled: int, first: bool) -> None:
        """Settle some records in one state change; in the same turn cancel one task, or none."""
        tasks = [each for each in self.line if isinstance(each, asyncio.Task)] + self.ready
        task = tasks[cancelled % len(tasks)] if tasks and cancelled >= 0 else None
        if task is not None and first:
            task.cancel()
        line = list(self.line)
        self.desk.effects.begin()
        for _ in range(min(count, len(self.held))):
            self.gate.free(self.held.pop(which % len(self.held)))
        assert self.line == line, "a record was admitted inside a state change"
        self.desk.effects.end()
        if task is not None and not first:
            task.cancel()
        self._rest()
        assert task is None or task.done()

    @precondition(lambda self: any(isinstance(each, ParkedRecord) for each in self.line))
    @rule(which=st.integers(0, 1000))
    def recall(self, which: int) -> None:
        records = [each for each in self.line if isinstance(each, ParkedRecord)]
        record = records[which % len(records)]
        self.line.remove(record)
        self.desk.leave(record)
        assert not record.in_line and not record.is_waiting
        self._rest()

    # ------------------------------------------------------------------ tasks
    @rule()
    def wait_until_ready(self) -> None:
        self.ready.append(self.loop.create_task(self.gate.ready()))
        self._rest()

    @rule(size=st.integers(1, LIMIT))
    def wait_for_columns(self, size: int) -> None:
        async def columns() -> None:
            await self.gate.charge(size)
            self.held.append(size)

        fits = not self.line and sum(self.held) + self._reserved_bytes() + size <= LIMIT
        task = self.loop.create_task(columns())
        self.sizes[task] = size
        self.line.append(task)
        self._rest()
        assert task.done() == fits

    @precondition(lambda self: self.ready or any(isinstance(each, asyncio.Task) for each in self.line))
    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        tasks = [each for each in self.line if isinstance(each, asyncio.Task)] + self.ready
        tasks[which % len(tasks)].cancel()
        self._rest()
        assert tasks[which % len(tasks)].cancelled()

    # ------------------------------------------------------------------ what holds after each rule
    @invariant()
    def bytes_are_exact(self) -> None:
        gate = self.gate
        assert gate.used_bytes == sum(self.held) <= LIMIT
        assert gate.waiting_bytes == self._waiting_bytes()
        assert gate.reserved_bytes == self._reserved_bytes()
        assert gate.waiting_count == len(self.line)
        assert gate.waiting_tasks == sum(1 for each in self.line if isinstance(each, asyncio.Task))

    @invariant()
    def nothing_waits_for_room_that_is_there(self) -> None:
        taken = self.gate.used_bytes + self.gate.reserved_bytes
        if self.line:
            first = self.line[0]
            size = first.charge_bytes if isinstance(first, ParkedRecord) else self.sizes[first]
            assert taken + size > LIMIT
        elif self.ready:
            assert taken >= LIMIT or self.estimated


GateMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestAnyOrderOfEvents = GateMachine.TestCase
