"""`Flushes`: a flush waits for what was sent before it, also where a finalizer sends between two lines of the counts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from source_points import Point

from aiokprod.pipeline.partition.flushes import Flushes

PURE = pytest.mark.pure("points are lines of the sources")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_a_flush_waits_for_all_before_it_and_for_nothing_behind_it(loop: asyncio.AbstractEventLoop) -> None:
    flushes = Flushes(loop)
    assert flushes.end_generation() is None
    for _ in range(2):
        flushes.began(flushes.generation)
    first, of_first = flushes.end_generation(), flushes.generation - 1
    flushes.began(flushes.generation)
    second, of_second = flushes.end_generation(), flushes.generation - 1
    assert first is not None and second is not None
    flushes.began(flushes.generation)
    flushes.finished(of_first)
    flushes.finished(of_second)
    assert not first.done() and not second.done()
    flushes.finished(of_first)
    assert first.done() and second.done()
    flushes.finished(flushes.generation)
    assert flushes.end_generation() is None


def test_places_for_work_that_is_over_are_let_go(loop: asyncio.AbstractEventLoop) -> None:
    flushes = Flushes(loop)
    for _ in range(100):
        flushes.began(flushes.generation)
        flushes.finished(flushes.generation)
        assert flushes.end_generation() is None
    assert len(flushes.prepare(flushes.generation)) == 1


@PURE
@pytest.mark.parametrize("step", ["Flushes.finished", "Flushes.end_generation"])
@pytest.mark.parametrize("waits", [False, True])
def test_what_a_finalizer_sends_at_any_line_is_counted(step: str, waits: bool, loop: asyncio.AbstractEventLoop) -> None:
    for at in range(1_000):
        flushes = Flushes(loop)
        began: list[int] = []

        def send(flushes: Flushes = flushes, began: list[int] = began) -> None:
            began.append(flushes.generation)
            flushes.began(flushes.generation)

        send()
        future = flushes.end_generation() if waits else None
        point = Point(at, send, None, step)
        point.arm()
        try:
            if step == "Flushes.finished":
                flushes.finished(began.pop(0))
            else:
                flushes.end_generation()
        finally:
            point.disarm()
        last = flushes.end_generation()
        assert (last is None) == (not began), point
        for generation in began:
            flushes.finished(generation)
        assert (future is None or future.done()) and (last is None or last.done()), point
        assert flushes.end_generation() is None, point
        if not point.has_struck:
            break
    assert at > 5
