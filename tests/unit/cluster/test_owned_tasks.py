"""Tasks and their owner."""

from __future__ import annotations

import asyncio

from virtual_time import run_virtual

from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.errors import ClusterError


async def forever() -> None:
    await asyncio.Event().wait()


def test_a_task_that_ends_is_forgotten() -> None:
    async def scenario() -> None:
        crashes: list[BaseException] = []
        tasks = OwnedTasks(crashes.append)
        tasks.spawn(asyncio.sleep(1), "nap")
        assert len(tasks) == 1
        await asyncio.sleep(2)
        assert len(tasks) == 0
        assert crashes == []

    run_virtual(scenario())


def test_a_bug_is_told() -> None:  # faults: L15
    async def scenario() -> None:
        async def bug() -> None:
            raise ZeroDivisionError

        crashes: list[BaseException] = []
        tasks = OwnedTasks(crashes.append)
        tasks.spawn(bug(), "bug")
        await asyncio.sleep(1)
        assert [type(crash) for crash in crashes] == [ZeroDivisionError]
        await tasks.close()

    run_virtual(scenario())


def test_a_cancel_from_outside_is_told_and_our_own_is_not() -> None:  # faults: L14
    async def scenario() -> None:
        crashes: list[BaseException] = []
        tasks = OwnedTasks(crashes.append)
        ours, theirs = tasks.spawn(forever(), "ours"), tasks.spawn(forever(), "theirs")
        tasks.cancel(ours)
        theirs.cancel()
        await asyncio.sleep(1)
        (crash,) = crashes
        assert isinstance(crash, ClusterError)
        assert str(crash).startswith(
            "the task theirs was cancelled from outside, by other code: asyncio.run(), for example, "
        )
        assert crash.__notes__ == [crash.advice] and "before its event loop ends" in crash.advice

    run_virtual(scenario())


def test_close_ends_all_even_those_that_resist_or_make_others() -> None:  # faults: L12, L19
    async def scenario() -> None:
        crashes: list[BaseException] = []
        tasks = OwnedTasks(crashes.append)

        async def resists() -> None:
            try:
                await forever()
            finally:
                await asyncio.sleep(1)
                tasks.spawn(forever(), "late")

        tasks.spawn(resists(), "resists")
        await asyncio.sleep(1)
        first = asyncio.create_task(tasks.close())
        await asyncio.sleep(0.5)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await tasks.close()
        assert len(tasks) == 0
        assert crashes == []

    run_virtual(scenario())


def test_a_bug_that_its_owner_could_not_hear_of_is_told_again() -> None:
    async def scenario() -> None:
        crashes: list[BaseException] = []
        interrupts = [MemoryError()]

        def crashed(bug: BaseException) -> None:
            if interrupts:
                raise interrupts.pop()
            crashes.append(bug)

        told: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
        tasks = OwnedTasks(crashed)
        tasks.spawn(forever(), "theirs").cancel()
        await asyncio.sleep(1)
        assert len(crashes) == 1 and told == [""]

    run_virtual(scenario())
