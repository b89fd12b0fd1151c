"""`UnaskedFailures`: how long failures are kept for their callers, how many, and that none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from rig import run_in_virtual_time

from aiokprod import Record
from aiokprod.errors import AiokprodError, DeliveryTimeoutError
from aiokprod.logs import StateLog
from aiokprod.pipeline.delivery.unasked import Unasked
from aiokprod.pipeline.delivery.unasked_failures import (
    GRACE_S,
    MOST_AT_ONCE,
    MOST_BYTES,
    MOST_RECORDS,
    UnaskedFailures,
)
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors


class Desk:
    """A line of failures, and the reports of them. Needs a running loop."""

    def __init__(self, hook: Callable[[AiokprodError], object] | None = None) -> None:
        self.told: list[str] = []
        self.hook = hook
        self.log = StateLog("producer")
        self.unhandled = UnhandledErrors(self.hear, self.log)
        self.line = UnaskedFailures(asyncio.get_running_loop(), self.unhandled)

    def hear(self, error: AiokprodError) -> None:
        self.told.append(error.message)
        if self.hook is not None:
            self.hook(error)

    def fail(self, text: str, count: int = 1, size_bytes: int = 0) -> Unasked:
        kept: list[Record] | None = [Record(value=b"v")] * count if size_bytes else None
        unasked = Unasked(DeliveryTimeoutError(text), range(count), kept, None, size_bytes, self.line.tally)
        self.line.keep(unasked)
        return unasked


def test_each_has_its_own_time() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.fail("first")
        await asyncio.sleep(2)
        desk.fail("second")
        await asyncio.sleep(GRACE_S - 2.1)
        assert desk.told == []
        await asyncio.sleep(0.2)
        assert desk.told == ["first"]
        await asyncio.sleep(2)
        assert desk.told == ["first", "second"]
        desk.fail("third")
        await asyncio.sleep(GRACE_S + 0.1)
        assert desk.told[2:] == ["third"]
        assert desk.line.tally.records == 0

    run_in_virtual_time(scenario())


def test_what_is_asked_for_before_it_is_in_the_line_never_comes_there() -> None:
    async def scenario() -> None:
        desk = Desk()
        unasked = Unasked(DeliveryTimeoutError("late"), (0,), None, None, 0, desk.line.tally)
        unasked.ask(0)
        desk.line.keep(unasked)
        await asyncio.sleep(2 * GRACE_S)
        assert desk.told == []

    run_in_virtual_time(scenario())


def test_beyond_the_limit_the_oldest_are_reported_at_once() -> None:
    async def scenario() -> None:
        desk = Desk()
        asked = desk.fail("asked", 10)
        for index in range(10):
            asked.ask(index)
        oldest = desk.fail("oldest", 2)
        desk.fail("older", MOST_RECORDS - 2)
        await asyncio.sleep(0)
        assert desk.told == []
        desk.fail("newest", 1)
        await asyncio.sleep(0)
        assert desk.told == ["oldest"] * 2
        assert not asked.ask(0) and oldest.ask(0)
        desk.line.end()
        await asyncio.sleep(0)
        assert len(desk.told) == MOST_RECORDS + 1

    run_in_virtual_time(scenario())


def test_records_that_are_kept_with_their_failures_have_a_limit_in_bytes() -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.fail("oldest", size_bytes=10)
        desk.fail("older", size_bytes=MOST_BYTES - 10)
        await asyncio.sleep(0)
        assert desk.told == []
        desk.fail("newest", size_bytes=1)
        await asyncio.sleep(0)
        assert desk.told == ["oldest"]
        desk.line.end()

    run_in_virtual_time(scenario())


def test_many_that_are_due_at_one_time_are_reported_in_several_turns() -> None:
    async def scenario() -> None:
        desk = Desk()
        for number in range(3 * MOST_AT_ONCE):
            desk.fail(str(number))
        await asyncio.sleep(GRACE_S)
        await asyncio.sleep(0)
        assert 0 < len(desk.told) <= MOST_AT_ONCE
        await asyncio.sleep(1)
        assert desk.told == [str(number) for number in range(3 * MOST_AT_ONCE)]

    run_in_virtual_time(scenario())


@pytest.mark.parametrize("at_once", [False, True])
def test_the_end_reports_all_and_keeps_nothing_behind_it(at_once: bool) -> None:
    async def scenario() -> None:
        desk = Desk()
        desk.fail("first")
        desk.fail("second")
        desk.line.end(at_once=at_once)
        assert desk.told == (["first", "second"] if at_once else [])
        desk.fail("third")
        desk.line.end(at_once=at_once)
        await asyncio.sleep(0)
        assert desk.told == ["first", "second", "third"]
        await asyncio.sleep(2 * GRACE_S)
        assert len(desk.told) == 3

    run_in_virtual_time(scenario())


def test_a_log_handler_that_raises_keeps_none_of_the_others_from_being_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        desk = Desk()
        calls: list[int] = []

        def raises(error: Any, count: int) -> None:
            calls.append(count)
            if len(calls) == 1:
                raise KeyboardInterrupt

        monkeypatch.setattr(desk.log, "records_lost", raises)
        for number in range(3):
            desk.fail(str(number))
        timer = desk.line._timer
        assert timer is not None
        timer.cancel()  # the loop would end with the exception, so the test plays the timer
        await asyncio.sleep(GRACE_S)
        with pytest.raises(KeyboardInterrupt):
            desk.line._look()
        await asyncio.sleep(1)
        assert desk.told == ["1", "2"]

    run_in_virtual_time(scenario())
