"""`Alarm`: many things to look at, one timer."""

from __future__ import annotations

import pytest
from stage_rig import ManualLoop

from aiokprod.pipeline.alarm import Alarm


def alarm() -> tuple[ManualLoop, list[str], Alarm[str]]:
    loop = ManualLoop()
    rung: list[str] = []
    return loop, rung, Alarm(loop, rung.append)


def test_each_item_rings_once_its_time_has_come_and_not_before() -> None:
    loop, rung, bell = alarm()
    bell.set(loop.now + 2, "two")
    bell.set(loop.now + 1, "one")
    bell.set(loop.now + 3, "three")
    loop.advance(0.999)
    assert rung == []
    loop.advance(0.002)
    assert rung == ["one"]
    loop.advance(5)
    assert rung == ["one", "two", "three"]
    loop.advance(100)
    assert len(rung) == 3


def test_there_is_one_timer_and_it_is_the_earliest() -> None:
    loop, _, bell = alarm()
    for at in (5, 3, 4, 1, 2):
        bell.set(loop.now + at, str(at))
        assert len(loop.armed) == 1
    assert loop.armed == [loop.now + 1]
    assert len(bell) == 5


def test_items_of_one_moment_ring_in_the_order_they_were_set() -> None:
    loop, rung, bell = alarm()
    for name in "abc":
        bell.set(loop.now + 1, name)
    loop.advance(1)
    assert rung == ["a", "b", "c"]


def test_an_item_whose_time_has_passed_rings_on_the_next_turn() -> None:
    loop, rung, bell = alarm()
    bell.set(loop.now - 10, "late")
    loop.advance(0)
    assert rung == ["late"]


def test_the_same_item_may_be_set_many_times() -> None:
    loop, rung, bell = alarm()
    bell.set(loop.now + 1, "x")
    bell.set(loop.now + 2, "x")
    loop.advance(1.5)
    loop.advance(1.5)
    assert rung == ["x", "x"]


def test_what_is_set_while_it_rings_is_not_lost() -> None:
    loop = ManualLoop()
    rung: list[str] = []

    def ring(item: str) -> None:
        rung.append(item)
        if item == "first":
            bell.set(loop.now, "at once")
            bell.set(loop.now + 1, "later")

    bell = Alarm(loop, ring)
    bell.set(loop.now + 1, "first")
    bell.set(loop.now + 5, "last")
    loop.advance(1)
    assert rung == ["first", "at once"]
    assert loop.armed == [loop.now + 1]
    loop.advance(1)
    loop.advance(10)
    assert rung == ["first", "at once", "later", "last"]


def test_one_that_raises_costs_the_others_nothing() -> None:
    loop = ManualLoop()
    rung: list[str] = []

    def ring(item: str) -> None:
        if item == "bad":
            raise RuntimeError(item)
        rung.append(item)

    bell = Alarm(loop, ring)
    for name in ("bad", "good"):
        bell.set(loop.now + 1, name)
    with pytest.raises(RuntimeError):
        loop.advance(1)
    loop.advance(0)
    assert rung == ["good"]


def test_a_stopped_alarm_has_no_timer_and_may_be_set_again() -> None:
    loop, rung, bell = alarm()
    bell.set(loop.now + 1, "x")
    bell.stop()
    assert loop.armed == []
    assert len(bell) == 0
    loop.advance(5)
    assert rung == []
    bell.set(loop.now + 1, "y")
    loop.advance(1)
    assert rung == ["y"]
