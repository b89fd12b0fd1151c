"""The source of randomness for jitter and partitions; nothing of it is secret. Every user calls `new_random`.

In a virtual run (aiokprod.testing.virtual) it is seeded, so that a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random

_source: ContextVar[Random | None] = ContextVar("aiokprod-randomness", default=None)


def new_random() -> Random:
    """Return a new, independent `Random`."""
    source = _source.get()
    return Random() if source is None else Random(source.getrandbits(64))  # noqa: S311 - nothing secret


@contextmanager
def seeded(source: Random) -> Generator[None]:
    """Seed every `Random` that `new_random` makes within this context from `source`."""
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)
