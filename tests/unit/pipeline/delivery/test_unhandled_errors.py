"""Failures that no caller awaits: every one is counted in the log, and told to `on_delivery_error`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rig import run, started, until
from virtual_rig import lost

from aiokprod.errors import AiokprodError, UndeliveredAtCloseError
from aiokprod.logs import StateLog
from aiokprod.pipeline.delivery.unhandled_errors import UnhandledErrors
from aiokprod.testing.virtual import run_virtual


def test_the_counts_in_the_log_are_those_of_the_close_report(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with started("t", "u", partitions=8, linger_ms=0, batch_size=200) as (cluster, producer):
            await producer.partitions_for("t")
            held = cluster.hold("Produce")
            for number in range(1_000):
                producer.send("t" if number % 3 else "u", b"v" * 50, partition=number % 8)
                if number % 50 == 0:
                    await asyncio.sleep(0)
            for _ in range(20):
                producer.send("unknown", b"v")
            report = await producer.close(timeout=0)
            assert report.count == lost(caplog) == 1_020
            cluster.release(held)

    run(scenario())


def test_the_counts_in_the_log_are_complete_after_a_crash(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        heard: list[AiokprodError] = []
        async with started("t", partitions=4, on_delivery_error=heard.append) as (cluster, producer):
            await producer.partitions_for("t")
            held = cluster.hold("Produce")
            for number in range(300):
                producer.send("t", b"v", partition=number % 4)
            [supervisor] = [task for task in asyncio.all_tasks() if task.get_name() == "aiokprod-supervisor"]
            supervisor.cancel()
            await until(lambda: len(heard) == 300)
            assert lost(caplog) == 300
            cluster.release(held)

    run(scenario())


def test_a_burst_is_counted_in_full_a_while_later(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: Any, random: Any) -> None:
        failures = UnhandledErrors(None, StateLog("producer"))
        for _ in range(50):
            failures.report(UndeliveredAtCloseError("closed", topic="t"), 2)
        assert lost(caplog) == 2
        await asyncio.sleep(10)
        assert lost(caplog) == 100
        failures.report(UndeliveredAtCloseError("closed", topic="t"), 1)
        failures.tell_held()
        assert lost(caplog) == 101

    run_virtual(scenario, seed=1)


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_failures_behind_one_whose_hook_ends_the_program_are_told_if_the_loop_goes_on(
    ends: type[BaseException],
) -> None:
    """A notebook's loop goes on after Ctrl-C: all further failures of the batch were told to nothing."""
    heard: list[AiokprodError] = []

    def hook(error: AiokprodError) -> None:
        heard.append(error)
        if len(heard) == 1:
            raise ends

    async def scenario() -> None:
        failures = UnhandledErrors(hook, StateLog("producer"))
        with pytest.raises(ends):
            failures._tell(UndeliveredAtCloseError("lost", topic="t"), 3, None, None)
        assert len(heard) == 1
        await asyncio.sleep(0)
        assert len(heard) == 3

    run(scenario())


def test_what_is_reported_at_once_calls_the_hook_without_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    """After the end of the loop: what the hook raises keeps none of the others from being told."""
    heard: list[AiokprodError] = []

    def hook(error: AiokprodError) -> None:
        heard.append(error)
        raise SystemExit

    failures = UnhandledErrors(hook, StateLog("producer"))
    failures.report_at_once(UndeliveredAtCloseError("lost", topic="t"), 3)
    assert len(heard) == 3 and all(error.reported for error in heard)
    assert lost(caplog) == 3
    assert any("on_delivery_error" in record.getMessage() for record in caplog.records)
