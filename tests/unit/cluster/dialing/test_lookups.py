"""The limit of look-ups at a time, with look-ups that the test ends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import pytest
from virtual_time import run_virtual

from aiokprod.cluster.dialing.dns import Address
from aiokprod.cluster.dialing.lookups import Lookups
from aiokprod.cluster.owned_tasks import OwnedTasks


def found(number: int) -> list[Address]:
    return [Address(socket.AF_INET, ("127.0.0.1", number))]


class Names:
    """Look-ups that begin in order and end when the test says so."""

    def __init__(self, count: int) -> None:
        self.crashes: list[BaseException] = []
        self.tasks = OwnedTasks(self.crashes.append)
        self.lookups = Lookups(count, self.tasks.spawn)
        self.begun: list[asyncio.Future[Sequence[Address]]] = []

    async def _look_up(self) -> Sequence[Address]:
        self.begun.append(asyncio.get_running_loop().create_future())
        return await self.begun[-1]

    def ask(self) -> asyncio.Task[Sequence[Address]]:
        return asyncio.create_task(self.lookups.run(self._look_up, "lookup"))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_so_many_run_at_a_time_and_each_has_its_own_outcome() -> None:
    async def scenario() -> None:
        names = Names(2)
        asked = [names.ask() for _ in range(4)]
        await turns()
        assert len(names.begun) == 2
        names.begun[1].set_result(found(1))
        await turns()
        assert len(names.begun) == 3
        names.begun[0].set_exception(OSError("no such name"))
        await turns()
        names.begun[2].set_result(found(2))
        names.begun[3].set_result(found(3))
        with pytest.raises(OSError, match="no such name"):
            await asked[0]
        assert [await each for each in asked[1:]] == [found(1), found(2), found(3)]
        assert names.crashes == []

    run_virtual(scenario())


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_was_given_up_counts_until_it_ends(fails: bool) -> None:  # faults: N17
    async def scenario() -> None:
        names = Names(1)
        given_up, queued, last = names.ask(), names.ask(), names.ask()
        await turns()
        given_up.cancel()
        queued.cancel()
        await asyncio.wait([given_up, queued])
        await asyncio.sleep(100)
        assert len(names.begun) == 1
        if fails:
            names.begun[0].set_exception(OSError("nothing waits for it"))
        else:
            names.begun[0].set_result(found(0))
        await turns()
        assert len(names.begun) == 2
        names.begun[1].set_result(found(1))
        assert await last == found(1)
        assert names.crashes == []

    run_virtual(scenario())


def test_their_owner_ends_them() -> None:
    async def scenario() -> None:
        names = Names(1)
        asked = names.ask()
        await turns()
        asked.cancel()
        await names.tasks.close()
        assert names.begun[0].cancelled()
        assert names.crashes == []
        await asyncio.wait([asked])

    run_virtual(scenario())
