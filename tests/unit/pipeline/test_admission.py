"""`AdmissionGate`: bounded bytes, first in first out, whoever leaves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stage_rig import ManualLoop, parked

from aiokprod.errors import ProducerClosedError
from aiokprod.pipeline.admission import AdmissionGate
from aiokprod.pipeline.parked import ParkedRecord

LIMIT = 100


def gate(admitted: list[ParkedRecord], limit: int = LIMIT, waiting: int = 10_000) -> AdmissionGate:
    return AdmissionGate(limit, waiting, admitted.append)


# ---------------------------------------------------------------------- records in the line
def test_what_fits_is_charged_at_once_to_the_last_byte() -> None:
    g = gate([])
    assert g.try_charge(LIMIT)
    assert not g.try_charge(1)
    assert g.used_bytes == LIMIT
    g.give_back(LIMIT)
    assert not g.try_charge(LIMIT + 1)
    assert g.used_bytes == 0


def test_a_large_record_is_served_in_its_turn_among_a_thousand_small_ones() -> None:
    """faults: M2"""
    admitted: list[ParkedRecord] = []
    g = gate(admitted)
    loop = ManualLoop()
    assert g.try_charge(LIMIT)
    line = [parked(loop, charge_bytes=LIMIT if number == 500 else 1) for number in range(1_001)]
    for record in line:
        g.wait(record)
    assert not g.try_charge(1)  # a new one queues behind, however small
    free = LIMIT
    while g.used_bytes:
        g.give_back(free)
        assert g.used_bytes <= LIMIT
        free = 1 if g.used_bytes < LIMIT else LIMIT
    assert [line.index(record) for record in admitted] == list(range(1_001))
    assert (g.waiting_count, g.waiting_bytes) == (0, 0)


def test_a_record_that_leaves_gives_its_turn_to_the_next() -> None:
    """faults: M3, L2"""
    admitted: list[ParkedRecord] = []
    g = gate(admitted)
    loop = ManualLoop()
    assert g.try_charge(60)
    large, small, other = (parked(loop, charge_bytes=size) for size in (80, 40, 1))
    for record in (large, small, other):
        g.wait(record)
    g.leave(small)  # in the middle: nobody's turn changes
    assert admitted == []
    g.leave(large)
    assert admitted == [other]
    assert (g.used_bytes, g.waiting_bytes, g.waiting_count) == (61, 0, 0)


def test_a_record_that_fails_while_it_is_admitted_frees_its_bytes_for_the_next() -> None:
    admitted: list[ParkedRecord] = []

    def admit(record: ParkedRecord) -> None:
        admitted.append(record)
        if record.value == b"bad":
            g.give_back(record.charge_bytes)

    g = AdmissionGate(LIMIT, 10_000, admit)
    loop = ManualLoop()
    assert g.try_charge(LIMIT)
    line = [parked(loop, b"bad", charge_bytes=LIMIT) for _ in range(2_000)] + [parked(loop, charge_bytes=LIMIT)]
    g.waiting_limit_bytes = 10**9
    for record in line:
        g.wait(record)
    g.give_back(LIMIT)
    assert admitted == line  # without recursion
    assert g.used_bytes == LIMIT


def test_the_line_is_bounded_too() -> None:
    g = gate([], waiting=50)
    loop = ManualLoop()
    assert g.may_wait(50)
    assert not g.may_wait(51)
    g.wait(parked(loop, charge_bytes=30))
    assert g.may_wait(20)
    assert not g.may_wait(21)


def test_who_has_waited_long_enough_leaves_and_the_next_goes_on() -> None:
    """faults: M1"""
    admitted: list[ParkedRecord] = []
    g = gate(admitted)
    loop = ManualLoop()
    assert g.try_charge(90)
    late = [parked(loop, charge_bytes=50, block_deadline=5.0) for _ in range(2)]
    recalled = parked(loop, charge_bytes=50, block_deadline=6.0)
    next_one = parked(loop, charge_bytes=10, block_deadline=9.0)
    for record in (*late, recalled, next_one):
        g.wait(record)
    g.leave(recalled)
    assert g.next_deadline() == 5.0
    assert g.overdue(4.9) == []
    assert g.overdue(5.0) == late
    assert admitted == [next_one]
    assert g.next_deadline() is None
    assert g.overdue(100.0) == []


def test_closing_empties_the_line_and_charges_nobody() -> None:
    """faults: M5"""
    admitted: list[ParkedRecord] = []
    g = gate(admitted)
    loop = ManualLoop()
    assert g.try_charge(LIMIT)
    line = [parked(loop, charge_bytes=10) for _ in range(3)]
    for record in line:
        g.wait(record)
    g.leave(line[1])
    assert g.abandon(ProducerClosedError) == [line[0], line[2]]
    assert (g.waiting_count, g.waiting_bytes, g.used_bytes) == (0, 0, LIMIT)
    g.give_back(LIMIT)
    assert admitted == []


# ---------------------------------------------------------------------- tasks in ready()
def test_tasks_are_woken_one_at_a_time_so_that_each_may_take_its_room() -> None:
    async def scenario() -> None:
        g = gate([])
        assert g.try_charge(LIMIT)
        order: list[int] = []

        async def send(number: int) -> None:
            await g.ready()
            assert g.try_charge(LIMIT), "woken for nothing"
            order.append(number)

        tasks = [asyncio.create_task(send(number)) for number in range(20)]
        await asyncio.sleep(0)
        for number in range(20):
            g.give_back(LIMIT)
            for _ in range(4):
                await asyncio.sleep(0)
            assert order == list(range(number + 1))
            assert g.used_bytes == LIMIT
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_all_go_on_when_there_is_room_for_all() -> None:
    async def scenario() -> None:
        g = gate([])
        assert g.try_charge(LIMIT)
        tasks = [asyncio.create_task(g.ready()) for _ in range(20)]
        await asyncio.sleep(0)
        g.give_back(LIMIT)
        await asyncio.wait_for(asyncio.gather(*tasks), 5)
        await g.ready()  # and nobody is before a later one

    asyncio.run(scenario())


@pytest.mark.parametrize("turns_before_cancel", range(4))
@pytest.mark.parametrize("cancelled", range(3))
@pytest.mark.parametrize("before_room", [True, False])
def test_a_task_cancelled_around_its_turn_passes_it_on(
    turns_before_cancel: int, cancelled: int, before_room: bool
) -> None:
    """faults: M4"""

    async def scenario() -> None:
        g = gate([])
        assert g.try_charge(LIMIT)
        done: list[int] = []

        async def send(number: int) -> None:
            await g.ready()
            assert g.try_charge(10)
            done.append(number)

        tasks = [asyncio.create_task(send(number)) for number in range(3)]
        await asyncio.sleep(0)
        if before_room:
            tasks[cancelled].cancel()
        g.give_back(LIMIT)
        for _ in range(turns_before_cancel):
            await asyncio.sleep(0)
        if not before_room:
            tasks[cancelled].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert sorted(done) == done
        assert set(done) | {cancelled} == {0, 1, 2}
        assert g.used_bytes == 10 * len(done)  # the sum of bytes is exact
        await asyncio.wait_for(g.ready(), 5)

    asyncio.run(scenario())


def test_two_cancelled_and_granted_in_one_tick_leave_the_third_its_turn() -> None:
    """faults: M4"""

    async def scenario(order: tuple[int, ...]) -> None:
        g = gate([])
        assert g.try_charge(LIMIT)
        tasks = [asyncio.create_task(g.ready()) for _ in range(3)]
        await asyncio.sleep(0)
        steps: list[Callable[[], object]] = [tasks[0].cancel, tasks[1].cancel, lambda: g.give_back(LIMIT)]
        for at in order:
            steps[at]()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert results[2] is None
        assert all(isinstance(result, asyncio.CancelledError) for result in results[:2])

    for order in itertools.permutations(range(3)):
        asyncio.run(scenario(order))


def test_tasks_wait_behind_records_and_closing_tells_them_at_once() -> None:
    """faults: M5"""

    async def scenario() -> None:
        admitted: list[ParkedRecord] = []
        g = gate(admitted)
        assert g.try_charge(50)
        g.wait(parked(asyncio.get_running_loop(), charge_bytes=60))
        tasks = [asyncio.create_task(g.ready()) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        tasks[0].cancel()
        g.abandon(lambda: ProducerClosedError("closed"))
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert isinstance(results[0], asyncio.CancelledError)
        assert [type(result) for result in results[1:]] == [ProducerClosedError] * 2

    asyncio.run(scenario())


# ---------------------------------------------------------------------- any order of events
class GateMachine(RuleBasedStateMachine):
    """Any schedule, against a model that keeps the line as a list."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.admitted: list[ParkedRecord] = []
        self.gate = AdmissionGate(LIMIT, 400, self._admit)
        self.line: list[ParkedRecord] = []
        self.held: list[int] = []  # charged bytes, to be given back
        self.tasks: list[asyncio.Task[None]] = []
        self.woken: list[asyncio.Task[None]] = []
        self.now = 0.0

    def teardown(self) -> None:
        while self.held:
            self.gate.give_back(self.held.pop())
        assert self.line == []
        assert self.gate.used_bytes == 0
        self._turns(3 * len(self.tasks) + 3)
        assert all(task.done() for task in self.tasks), "somebody waits at an empty gate"
        self.loop.close()

    def _admit(self, record: ParkedRecord) -> None:
        assert record is self.line[0], "not the first of the line"
        self.line.pop(0)
        self.held.append(record.charge_bytes)

    def _turns(self, count: int) -> None:
        async def turns() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    @rule(size=st.integers(1, LIMIT))
    def send(self, size: int) -> None:
        fits = not self.line and sum(self.held) + size <= LIMIT
        assert self.gate.try_charge(size) == fits
        if fits:
            self.held.append(size)
        elif self.gate.may_wait(size):
            assert sum(record.charge_bytes for record in self.line) + size <= 400
            record = parked(self.loop, charge_bytes=size, block_deadline=self.now + 5)
            self.line.append(record)
            self.gate.wait(record)
        else:
            assert sum(record.charge_bytes for record in self.line) + size > 400

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 1000))
    def settle(self, which: int) -> None:
        self.gate.give_back(self.held.pop(which % len(self.held)))

    @precondition(lambda self: self.line)
    @rule(which=st.integers(0, 1000))
    def recall(self, which: int) -> None:
        self.gate.leave(self.line.pop(which % len(self.line)))

    @rule(seconds=st.integers(1, 4))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds
        late = [record for record in self.line if record.block_deadline <= self.now]
        self.line = [record for record in self.line if record.block_deadline > self.now]
        assert self.gate.overdue(self.now) == late

    @rule()
    def wait_until_ready(self) -> None:
        self.tasks.append(self.loop.create_task(self.gate.ready()))

    @precondition(lambda self: self.tasks)
    @rule(which=st.integers(0, 1000))
    def cancel(self, which: int) -> None:
        self.tasks[which % len(self.tasks)].cancel()

    @rule()
    def turn(self) -> None:
        self._turns(1)

    @invariant()
    def bytes_are_exact(self) -> None:
        assert self.gate.used_bytes == sum(self.held) <= LIMIT
        assert self.gate.waiting_bytes == sum(record.charge_bytes for record in self.line)
        assert self.gate.waiting_count == len(self.line)

    @invariant()
    def nobody_is_left_waiting_for_room_that_is_there(self) -> None:
        if self.line:
            assert self.gate.used_bytes + self.line[0].charge_bytes > LIMIT


GateMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyOrderOfEvents = GateMachine.TestCase


class WatchedFuture(asyncio.Future[None]):
    """It keeps what is thrown into whoever waits for it."""

    thrown: tuple[object, ...] = ()

    def __await__(self) -> Iterator[Any]:  # type: ignore[override]
        return self

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return self

    def __next__(self) -> object:
        return self

    def send(self, value: None) -> object:
        return self

    def throw(self, *thrown: object) -> None:
        self.thrown = thrown
        raise asyncio.CancelledError


class WatchedLoop(asyncio.SelectorEventLoop):
    def create_future(self) -> asyncio.Future[Any]:
        self.made = WatchedFuture(loop=self)
        return self.made


def test_what_is_thrown_into_a_wait_goes_on_as_one_exception() -> None:
    """Three arguments warn since Python 3.12, and where warnings are errors the wait would end with that."""
    loop = WatchedLoop()
    why = asyncio.CancelledError("why")

    async def scenario() -> None:
        g = gate([])
        assert g.try_charge(LIMIT)
        waiting = g.ready()
        assert waiting.send(None) is loop.made
        with pytest.raises(asyncio.CancelledError):
            waiting.throw(why)
        assert loop.made.thrown == (why,)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())
