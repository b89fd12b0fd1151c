"""Long work on the loop's own thread, cut into slices: `in_slices` lets the loop run between them. Stateless."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def in_slices(work: Generator[None, None, ResultT]) -> ResultT:
    """Do it all, and let the loop run wherever it pauses.

    Cancellation: the rest is not done.
    """
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return result
        await asyncio.sleep(0)


def at_once(work: Generator[None, None, ResultT]) -> ResultT:
    """Do it all now."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return result
