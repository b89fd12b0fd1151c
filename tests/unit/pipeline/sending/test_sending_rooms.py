"""Room for columns at the `AdmissionGate`: tasks in the line of the records."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from stage_rig import GateDesk, parked

from aiokprod.errors import ProducerClosedError
from aiokprod.pipeline.partition.parked_record import ParkedRecord

LIMIT = 100


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_room_is_charged_at_once_while_nothing_waits() -> None:
    async def scenario() -> None:
        gate = GateDesk(LIMIT, 1_000).gate
        await gate.charge(LIMIT)
        assert gate.used_bytes == LIMIT

    asyncio.run(scenario())


def test_tasks_and_records_are_served_in_the_order_in_which_they_came() -> None:
    async def scenario() -> None:
        served: list[object] = []
        desk = GateDesk(LIMIT, 1_000, served.append)
        gate = desk.gate
        assert gate.try_charge(LIMIT)
        loop = asyncio.get_running_loop()
        first, last = parked(loop, charge_bytes=10), parked(loop, charge_bytes=10)

        async def columns() -> None:
            await gate.charge(90)
            served.append("columns")

        gate.wait(first)
        task = asyncio.create_task(columns())
        await turns()
        gate.wait(last)
        assert (gate.waiting_count, gate.waiting_tasks, gate.waiting_bytes) == (3, 1, 20)
        desk.free(20)
        await turns()
        assert served == [first]  # the task is next, and the small record behind it waits
        desk.free(80)
        await task
        assert served == [first, "columns"]
        desk.free(10)
        assert served == [first, "columns", last]
        assert (gate.used_bytes, gate.waiting_count, gate.waiting_tasks) == (100, 0, 0)

    asyncio.run(scenario())


def test_a_task_that_is_cancelled_in_the_line_gives_its_turn_to_the_next() -> None:
    async def scenario() -> None:
        served: list[ParkedRecord] = []
        gate = GateDesk(LIMIT, 1_000, served.append).gate
        assert gate.try_charge(60)
        task = asyncio.create_task(gate.charge(50))
        await turns()
        record = parked(asyncio.get_running_loop(), charge_bytes=40)
        gate.wait(record)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert served == [record]
        assert (gate.used_bytes, gate.waiting_count, gate.waiting_tasks) == (100, 0, 0)

    asyncio.run(scenario())


def test_a_task_that_is_cancelled_in_the_turn_of_its_grant_gives_the_room_back() -> None:
    async def scenario() -> None:
        desk = GateDesk(LIMIT, 1_000)
        gate = desk.gate
        assert gate.try_charge(LIMIT)
        task = asyncio.create_task(gate.charge(70))
        await turns()
        desk.free(LIMIT)
        assert gate.used_bytes == 70
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.used_bytes == 0

    asyncio.run(scenario())


def test_a_task_that_is_cancelled_before_its_grant_is_passed_over() -> None:
    async def scenario() -> None:
        desk = GateDesk(LIMIT, 1_000)
        gate = desk.gate
        assert gate.try_charge(LIMIT)
        task = asyncio.create_task(gate.charge(70))
        await turns()
        task.cancel()
        desk.free(LIMIT)  # in the same turn: the task has not run yet
        assert gate.used_bytes == 0
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (gate.used_bytes, gate.waiting_count, gate.waiting_tasks) == (0, 0, 0)

    asyncio.run(scenario())


def test_a_record_that_has_run_out_of_time_leaves_from_behind_a_task_that_does_not() -> None:
    async def scenario() -> None:
        desk = GateDesk(LIMIT, 1_000)
        gate = desk.gate
        assert gate.try_charge(LIMIT)
        task = asyncio.create_task(gate.charge(70))
        await turns()
        record = parked(asyncio.get_running_loop(), charge_bytes=40)
        gate.wait(record)
        assert (gate.waiting_count, gate.waiting_bytes) == (2, 40)
        desk.leave(record)
        assert (gate.waiting_count, gate.waiting_bytes) == (1, 0)
        desk.free(LIMIT)
        await task
        assert gate.used_bytes == 70

    asyncio.run(scenario())


def test_closing_ends_tasks_that_wait_and_not_records() -> None:
    async def scenario() -> None:
        desk = GateDesk(LIMIT, 1_000)
        gate = desk.gate
        assert gate.try_charge(LIMIT)
        task = asyncio.create_task(gate.charge(70))
        await turns()
        record = parked(asyncio.get_running_loop(), charge_bytes=40)
        gate.wait(record)
        desk.abandon(lambda: ProducerClosedError("closed"))
        with pytest.raises(ProducerClosedError):
            await task
        assert (gate.used_bytes, gate.waiting_count, gate.waiting_tasks, gate.waiting_bytes) == (LIMIT, 1, 0, 40)
        assert desk.admitted == []
        desk.free(LIMIT)
        assert desk.admitted == [record]
        assert (gate.used_bytes, gate.waiting_count, gate.waiting_tasks, gate.waiting_bytes) == (40, 0, 0, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", range(60))
def test_in_any_schedule_bytes_are_exact_and_each_task_has_its_turn(seed: int) -> None:
    async def scenario() -> None:
        random = Random(seed)
        loop = asyncio.get_running_loop()
        held: list[int] = []
        served: list[int] = []
        woken: list[int] = []  # a turn after their grant
        numbers: dict[ParkedRecord, int] = {}

        def admit(record: ParkedRecord) -> None:
            held.append(record.charge_bytes)
            served.append(numbers[record])

        async def columns(number: int, size: int) -> None:
            await gate.charge(size)
            held.append(size)
            woken.append(number)

        desk = GateDesk(LIMIT, 10_000, admit)
        gate = desk.gate
        tasks: list[asyncio.Task[None]] = []
        for number in range(120):
            size = random.randint(1, LIMIT)
            draw = random.random()
            if draw < 0.3:
                tasks.append(asyncio.create_task(columns(number, size)))
                await turns(1)
            elif draw < 0.6:
                if gate.try_charge(size):
                    held.append(size)
                    served.append(number)
                else:
                    record = parked(loop, charge_bytes=size)
                    numbers[record] = number
                    gate.wait(record)
            elif draw < 0.9 and held:
                desk.free(held.pop(random.randrange(len(held))))
                await turns(2)
            elif tasks:
                random.choice(tasks).cancel()
                await turns(2)
            assert gate.used_bytes == sum(held) <= LIMIT
            assert gate.waiting_count >= gate.waiting_tasks >= 0
        while held or gate.waiting_count:
            desk.free(held.pop(0))
            await turns(2)
        assert all(task.done() for task in tasks)
        assert served == sorted(served)
        assert woken == sorted(woken)
        assert served and woken
        assert (gate.used_bytes, gate.waiting_count, gate.waiting_tasks, gate.waiting_bytes) == (0, 0, 0, 0)

    asyncio.run(scenario())
