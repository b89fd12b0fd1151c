"""`SerializingLine`: awaitable serializers keep the order of the calls and fail one record each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from stage_rig import parked

from aiokprod.errors import AiokprodError, BufferFullError, RecordRecalledError, SerializationError
from aiokprod.model import Record
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.sending.serializing import SerializingLine


class Desk:
    """A line of records; each is finished when the test says so."""

    def __init__(self, count: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.resumed: list[bytes | None] = []
        self.failed: list[tuple[bytes | None, AiokprodError]] = []
        self.gates: dict[int, asyncio.Future[None]] = {n: self.loop.create_future() for n in range(count)}
        self.begun: list[int] = []
        self.refuse: Callable[[ParkedRecord], None] = lambda record: None
        self.line = SerializingLine(self._finish, self._resume, self._fail, self._too_late)
        self.records = [self.join(number) for number in range(count)]

    def join(self, number: int) -> ParkedRecord:
        record = parked(self.loop, b"%d" % number)
        record.draft = Record(topic="t", value=number)
        self.line.waiting.append(record)
        return record

    async def _finish(self, record: Record) -> None:
        self.begun.append(record.value)
        await self.gates[record.value]

    def _resume(self, record: ParkedRecord, data: Record) -> None:
        self.refuse(record)
        self.resumed.append(record.value)

    def _fail(self, record: ParkedRecord, error: AiokprodError) -> None:
        self.failed.append((record.value, error))

    def _too_late(self, record: ParkedRecord) -> AiokprodError:
        return SerializationError("too late")


def test_records_go_on_in_the_order_of_the_calls_whichever_is_done_first() -> None:
    async def scenario() -> None:
        desk = Desk(4)
        task = asyncio.create_task(desk.line.run())
        for number in (3, 1, 2):
            desk.gates[number].set_result(None)
        for _ in range(10):
            await asyncio.sleep(0)
        assert desk.resumed == []
        assert desk.begun == [0]  # one after the other
        desk.gates[0].set_result(None)
        await task
        assert desk.resumed == [b"0", b"1", b"2", b"3"]
        assert not desk.line.waiting

    asyncio.run(scenario())


def test_a_failing_serializer_costs_its_record_alone() -> None:
    """faults: M12"""

    async def scenario() -> None:
        desk = Desk(3)
        task = asyncio.create_task(desk.line.run())
        desk.gates[1].set_exception(SerializationError("no"))
        for number in (0, 2):
            desk.gates[number].set_result(None)
        await task
        assert desk.resumed == [b"0", b"2"]
        assert [(value, type(error)) for value, error in desk.failed] == [(b"1", SerializationError)]

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [BufferFullError("full"), SerializationError("not bytes")])
def test_a_record_refused_after_its_serializer_fails_and_the_line_goes_on(error: AiokprodError) -> None:
    async def scenario() -> None:
        desk = Desk(3)

        def refuse(record: ParkedRecord) -> None:
            if record.value == b"0":
                raise error

        desk.refuse = refuse
        for gate in desk.gates.values():
            gate.set_result(None)
        await desk.line.run()
        assert desk.failed == [(b"0", error)]
        assert desk.resumed == [b"1", b"2"]

    asyncio.run(scenario())


def test_a_record_recalled_in_the_line_is_not_sent() -> None:
    """faults: L3"""

    async def scenario() -> None:
        desk = Desk(3)
        desk.records[1].failure = RecordRecalledError("recalled")
        for gate in desk.gates.values():
            gate.set_result(None)
        await desk.line.run()
        assert desk.resumed == [b"0", b"2"]
        assert desk.failed == []

    asyncio.run(scenario())


def test_a_record_that_joins_while_others_wait_is_taken_by_the_same_task() -> None:
    async def scenario() -> None:
        desk = Desk(1)
        task = asyncio.create_task(desk.line.run())
        await asyncio.sleep(0)
        desk.gates[1] = desk.loop.create_future()
        desk.join(1)
        desk.gates[0].set_result(None)
        desk.gates[1].set_result(None)
        await task
        assert desk.resumed == [b"0", b"1"]

    asyncio.run(scenario())


def test_a_cancelled_line_keeps_its_records() -> None:
    """They stand in the queue of their topic besides, where the end of the producer finds them."""

    async def scenario() -> None:
        desk = Desk(3)
        task = asyncio.create_task(desk.line.run())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert list(desk.line.waiting) == desk.records
        assert desk.resumed == [] and desk.failed == []

    asyncio.run(scenario())


def test_a_line_whose_records_all_have_failed_while_it_waits_ends_without_a_crash() -> None:
    async def scenario() -> None:
        desk = Desk(2)
        task = asyncio.create_task(desk.line.run())
        await asyncio.sleep(0)
        for record in desk.records:  # as `Parking.fail_parked` leaves them
            record.failure = AiokprodError("closed")
            record.draft = None
        desk.gates[0].set_result(None)
        await task
        assert desk.resumed == [] and desk.failed == []
        assert not desk.line.waiting

    asyncio.run(scenario())
