"""`AdmissionGate`: bounded bytes, first in first out, whichever waiter leaves."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stage_rig import GateDesk, ManualLoop, parked

from aiokprod.errors import ProducerClosedError
from aiokprod.pipeline.partition.parked_record import ParkedRecord

LIMIT = 100


# ---------------------------------------------------------------------- records in the line
def test_what_fits_is_charged_at_once_to_the_last_byte() -> None:
    desk = GateDesk()
    g = desk.gate
    assert g.try_charge(LIMIT)
    assert not g.try_charge(1)
    assert g.used_bytes == LIMIT
    desk.free(LIMIT)
    assert not g.try_charge(LIMIT + 1)
    assert g.used_bytes == 0


def test_a_large_record_is_served_in_its_turn_among_a_thousand_small_ones() -> None:
    """faults: M2"""
    desk = GateDesk()
    g, admitted = desk.gate, desk.admitted
    loop = ManualLoop()
    assert g.try_charge(LIMIT)
    line = [parked(loop, charge_bytes=LIMIT if number == 500 else 1) for number in range(1_001)]
    for record in line:
        g.wait(record)
    assert not g.try_charge(1)  # a new one queues behind, however small
    free = LIMIT
    while g.used_bytes:
        desk.free(free)
        assert g.used_bytes <= LIMIT
        free = 1 if g.used_bytes < LIMIT else LIMIT
    assert [line.index(record) for record in admitted] == list(range(1_001))
    assert (g.waiting_count, g.waiting_bytes) == (0, 0)


def test_a_record_that_leaves_gives_its_turn_to_the_next() -> None:
    """faults: M3, L2"""
    desk = GateDesk()
    g, admitted = desk.gate, desk.admitted
    loop = ManualLoop()
    assert g.try_charge(60)
    large, small, other = (parked(loop, charge_bytes=size) for size in (80, 40, 1))
    for record in (large, small, other):
        g.wait(record)
    desk.leave(small)  # in the middle: no other turn changes
    assert admitted == []
    desk.leave(large)
    assert admitted == [other]
    assert (g.used_bytes, g.waiting_bytes, g.waiting_count) == (61, 0, 0)


def test_a_record_that_fails_while_it_is_admitted_frees_its_bytes_for_the_next() -> None:
    admitted: list[ParkedRecord] = []

    def admit(record: ParkedRecord) -> None:
        admitted.append(record)
        if record.value == b"bad":
            desk.free(record.charge_bytes)

    desk = GateDesk(admit=admit)
    g = desk.gate
    loop = ManualLoop()
    assert g.try_charge(LIMIT)
    line = [parked(loop, b"bad", charge_bytes=LIMIT) for _ in range(2_000)] + [parked(loop, charge_bytes=LIMIT)]
    g.waiting_limit_bytes = 10**9
    for record in line:
        g.wait(record)
    desk.free(LIMIT)
    assert admitted == line  # without recursion
    assert g.used_bytes == LIMIT


def test_the_line_is_bounded_too() -> None:
    g = GateDesk(waiting_bytes=50).gate
    loop = ManualLoop()
    assert g.may_wait(50)
    assert not g.may_wait(51)
    g.wait(parked(loop, charge_bytes=30))
    assert g.may_wait(20)
    assert not g.may_wait(21)


def test_what_has_waited_long_enough_leaves_and_the_next_goes_on() -> None:
    """faults: M1. Which records are overdue is what their topics know (`TopicDispatcher.overdue`)."""
    desk = GateDesk()
    g, admitted = desk.gate, desk.admitted
    loop = ManualLoop()
    assert g.try_charge(90)
    late = [parked(loop, charge_bytes=50) for _ in range(2)]
    recalled = parked(loop, charge_bytes=50)
    next_one = parked(loop, charge_bytes=10)
    for record in (*late, recalled, next_one):
        g.wait(record)
    desk.leave(recalled)
    assert admitted == []
    desk.leave(late[0])
    assert admitted == []
    desk.leave(late[1])
    assert admitted == [next_one]
    assert (g.waiting_count, g.waiting_bytes, g.used_bytes) == (0, 0, LIMIT)
    assert not any(record.in_line or record.is_waiting for record in (*late, recalled, next_one))


def test_closing_leaves_the_records_their_places_in_the_line() -> None:
    """faults: M5. `send` has accepted them, so `close` delivers them."""
    desk = GateDesk()
    g, admitted = desk.gate, desk.admitted
    loop = ManualLoop()
    assert g.try_charge(LIMIT)
    line = [parked(loop, charge_bytes=10) for _ in range(3)]
    for record in line:
        g.wait(record)
    desk.leave(line[1])
    desk.abandon(ProducerClosedError)
    assert (g.waiting_count, g.waiting_bytes, g.used_bytes) == (2, 20, LIMIT)
    assert admitted == []
    desk.free(LIMIT)
    assert admitted == [line[0], line[2]]
    assert (g.waiting_count, g.waiting_bytes, g.used_bytes) == (0, 0, 20)


# ---------------------------------------------------------------------- tasks in ready()
def test_tasks_are_woken_one_at_a_time_so_that_each_may_take_its_room() -> None:
    async def scenario() -> None:
        desk = GateDesk()
        g = desk.gate
        assert g.try_charge(LIMIT)
        order: list[int] = []

        async def send(number: int) -> None:
            await g.ready()
            assert g.try_charge(LIMIT), "woken for nothing"
            order.append(number)

        tasks = [asyncio.create_task(send(number)) for number in range(20)]
        await asyncio.sleep(0)
        for number in range(20):
            desk.free(LIMIT)
            for _ in range(4):
                await asyncio.sleep(0)
            assert order == list(range(number + 1))
            assert g.used_bytes == LIMIT
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_all_go_on_when_there_is_room_for_all() -> None:
    async def scenario() -> None:
        desk = GateDesk()
        g = desk.gate
        assert g.try_charge(LIMIT)
        tasks = [asyncio.create_task(g.ready()) for _ in range(20)]
        await asyncio.sleep(0)
        desk.free(LIMIT)
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
        await g.ready()  # and no waiter is before a later one

    asyncio.run(scenario())


@pytest.mark.parametrize("turns_before_cancel", range(4))
@pytest.mark.parametrize("cancelled", range(3))
@pytest.mark.parametrize("before_room", [True, False])
def test_a_task_cancelled_around_its_turn_passes_it_on(
    turns_before_cancel: int, cancelled: int, before_room: bool
) -> None:
    """faults: M4"""

    async def scenario() -> None:
        desk = GateDesk()
        g = desk.gate
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
        desk.free(LIMIT)
        for _ in range(turns_before_cancel):
            await asyncio.sleep(0)
        if not before_room:
            tasks[cancelled].cancel()
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert sorted(done) == done
        assert set(done) | {cancelled} == {0, 1, 2}
        assert g.used_bytes == 10 * len(done)  # the sum of bytes is exact
        await asyncio.wait_for(g.ready(), 60)

    asyncio.run(scenario())


def test_two_cancelled_and_granted_in_one_tick_leave_the_third_its_turn() -> None:
    """faults: M4"""

    async def scenario(order: tuple[int, ...]) -> None:
        desk = GateDesk()
        g = desk.gate
        assert g.try_charge(LIMIT)
        tasks = [asyncio.create_task(g.ready()) for _ in range(3)]
        await asyncio.sleep(0)
        steps: list[Callable[[], object]] = [tasks[0].cancel, tasks[1].cancel, lambda: desk.free(LIMIT)]
        for at in order:
            steps[at]()
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert results[2] is None
        assert all(isinstance(result, asyncio.CancelledError) for result in results[:2])

    for order in itertools.permutations(range(3)):
        asyncio.run(scenario(order))


@pytest.mark.parametrize("how", ["settled", "room", "cancelled", "settled and room", "settled and cancelled"])
def test_a_task_waits_for_room_until_a_record_has_its_outcome(how: str) -> None:
    async def scenario() -> None:
        desk = GateDesk()
        g = desk.gate
        assert g.try_charge(LIMIT)
        record = parked(asyncio.get_running_loop(), charge_bytes=1)
        delivery = record.delivery
        assert delivery is not None
        task = asyncio.create_task(g.ready(unless=delivery))
        other = asyncio.create_task(g.ready())
        for _ in range(3):
            await asyncio.sleep(0)
        assert not task.done()
        if "settled" in how:
            record.failure = ProducerClosedError("its outcome")
            delivery._fire()
        if "room" in how:
            desk.free(LIMIT)
        if "cancelled" in how:
            task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.cancelled() is ("cancelled" in how)
        assert not delivery._is_watched
        if "room" not in how:
            assert not other.done()
            desk.free(LIMIT)
        await asyncio.wait_for(other, 60)
        if "settled" in how:
            assert g.try_charge(LIMIT)
            await asyncio.wait_for(g.ready(unless=delivery), 60)  # known already

    asyncio.run(scenario())


def test_tasks_wait_behind_records_and_closing_tells_them_at_once() -> None:
    """faults: M5"""

    async def scenario() -> None:
        desk = GateDesk()
        g = desk.gate
        assert g.try_charge(50)
        g.wait(parked(asyncio.get_running_loop(), charge_bytes=60))
        tasks = [asyncio.create_task(g.ready()) for _ in range(3)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        tasks[0].cancel()
        desk.abandon(lambda: ProducerClosedError("closed"))
        results = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert isinstance(results[0], asyncio.CancelledError)
        assert [type(result) for result in results[1:]] == [ProducerClosedError] * 2
        assert desk.admitted == []
        desk.free(50)
        assert len(desk.admitted) == 1  # it was accepted before

    asyncio.run(scenario())


# ---------------------------------------------------------------------- cancelled with a reason
class WatchedFuture(asyncio.Future[None]):
    """A future that keeps what is thrown into the task that waits for it."""

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
        desk = GateDesk()
        g = desk.gate
        assert g.try_charge(LIMIT)
        waiting = g.ready()
        assert waiting.send(None) is loop.made
        with pytest.raises(asyncio.CancelledError):
            waiting.throw(why)
        assert loop.made.thrown == (why,)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scenario())
