"""The start of a producer that fails as soon as no bootstrap server can be reached, as aiokafka's does.

`Producer.start` goes on trying until its timeout. Programs that are written for aiokafka try again by themselves.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from aiokprod.errors import AiokprodError
from aiokprod.producer import Producer, unreachable

LOOK_EVERY_S: Final = 0.01


async def start_or_fail(producer: Producer, timeout_s: float) -> None:
    """Start a producer; fail at once when each server was tried and none has a connection.

    Args:
        producer: the producer.
        timeout_s: seconds, for servers that neither answer nor refuse.

    Raises:
        AiokprodError: as of `Producer.start`.

    Cancellation: undoes the start.
    """
    start = asyncio.get_running_loop().create_task(producer.start(timeout_s), name="aiokprod-compat-start")
    try:
        while not start.done():
            await asyncio.wait({start}, timeout=LOOK_EVERY_S)
            error = unreachable(producer)
            if error is not None and not start.done():
                raise error
        await start
    finally:
        if not start.done():
            start.cancel()
            with suppress(asyncio.CancelledError, AiokprodError):
                await start
