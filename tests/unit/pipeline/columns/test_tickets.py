"""`Tickets`: first come, first served, even if some leave early."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.pipeline.columns.tickets import Tickets


def test_names_do_not_wait_for_each_other() -> None:
    async def scenario() -> None:
        tickets = Tickets()
        first, other = tickets.join("a"), tickets.join("b")
        await first.wait()
        await other.wait()
        first.end()
        other.end()
        assert len(tickets) == 0

    asyncio.run(scenario())


def test_many_that_left_early_are_passed_at_once() -> None:
    async def scenario() -> None:
        tickets = Tickets()
        first = tickets.join("a")
        for ticket in [tickets.join("a") for _ in range(5_000)]:
            ticket.end()
        last = tickets.join("a")
        first.end()
        await last.wait()
        last.end()
        assert len(tickets) == 0

    asyncio.run(scenario())


@given(st.data())
def test_whatever_happens_those_before_have_ended_and_all_come(data: st.DataObject) -> None:
    """Each of them comes, ends early, or is cancelled while it waits, at a drawn moment."""
    count = data.draw(st.integers(1, 6), "count")
    fates = data.draw(st.lists(st.sampled_from(["comes", "leaves", "is cancelled"]), min_size=count, max_size=count))
    pauses = data.draw(st.lists(st.integers(0, 4), min_size=2 * count, max_size=2 * count))

    async def scenario() -> None:
        tickets = Tickets()
        came: list[int] = []
        at_work: list[int] = []

        async def one(number: int) -> None:
            ticket = tickets.join("a")
            try:
                for _ in range(pauses[2 * number]):
                    await asyncio.sleep(0)
                if fates[number] == "leaves":
                    return
                await ticket.wait()
                assert not at_work
                at_work.append(number)
                came.append(number)
                for _ in range(pauses[2 * number + 1]):
                    await asyncio.sleep(0)
                at_work.remove(number)
            finally:
                if number in at_work:
                    at_work.remove(number)
                ticket.end()

        tasks = [asyncio.ensure_future(one(number)) for number in range(count)]
        await asyncio.sleep(0)
        for task, fate in zip(tasks, fates, strict=True):
            if fate == "is cancelled":
                task.cancel()
        outcomes = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)
        assert came == sorted(came)
        assert {number for number, fate in enumerate(fates) if fate == "comes"} <= set(came)
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, asyncio.CancelledError):
                raise outcome
        assert len(tickets) == 0

    asyncio.run(scenario())


def test_a_turn_cancelled_while_it_waits_keeps_the_place_until_it_ends() -> None:
    async def scenario() -> None:
        tickets = Tickets()
        first, second, third = (tickets.join("a") for _ in range(3))
        waiting = asyncio.ensure_future(second.wait())
        last = asyncio.ensure_future(third.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        second.end()
        await asyncio.sleep(0)
        assert not last.done(), "the first is still there"
        first.end()
        await last
        third.end()
        assert len(tickets) == 0

    asyncio.run(scenario())
