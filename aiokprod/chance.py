"""Where randomness comes from: jitter and partitions, nothing secret. Everybody who needs chance asks `new_random`.

In a virtual run (aiokprod.testing.virtual) it is seeded, so that a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random

_source: ContextVar[Random | None] = ContextVar("aiokprod-chance", default=None)


def new_random() -> Random:
    """A source of one's own."""
    source = _source.get()
    return Random() if source is None else Random(source.getrandbits(64))  # noqa: S311 - nothing secret


@contextmanager
def seeded(source: Random) -> Iterator[None]:
    """Whoever asks within this context gets a source drawn from this one."""
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)
