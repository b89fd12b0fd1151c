"""The tests' log has no word about slow steps: they are the machine's, and tests that count warnings would meet them."""

from __future__ import annotations

import asyncio
import logging

import pytest


def test_a_slow_step_of_the_loop_is_no_warning_in_a_test(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().slow_callback_duration = 0
        await asyncio.sleep(0)
        logging.getLogger("asyncio").warning("another warning")

    asyncio.run(scenario(), debug=True)
    assert [record.getMessage() for record in caplog.records] == ["another warning"]
