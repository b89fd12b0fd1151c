"""`running_loop`: asyncio's loop, or an error that says what runs instead."""

from __future__ import annotations

import asyncio

from aiokprod.errors import UsageError


def running_loop() -> asyncio.AbstractEventLoop:
    """The event loop that runs.

    Raises:
        UsageError: none of asyncio runs here: another library's does (trio), or none at all.
    """
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "no asyncio event loop runs here: aiokprod works on asyncio and uvloop, not on trio; under anyio choose the"
            " backend 'asyncio'"
        ) from None
