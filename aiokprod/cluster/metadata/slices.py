"""Long computations on the loop's thread, cut into slices: `in_slices` lets the loop run between them. Stateless."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeVar

ResultT = TypeVar("ResultT")


async def in_slices(work: Generator[None, None, ResultT]) -> ResultT:
    """Run a generator to its end and return its result; the loop runs at each of its pauses.

    Cancellation: the rest of the work is not done.
    """
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return result
        await asyncio.sleep(0)


def at_once(work: Generator[None, None, ResultT]) -> ResultT:
    """Run a generator to its end without a pause, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: ResultT = end.value
            return result
