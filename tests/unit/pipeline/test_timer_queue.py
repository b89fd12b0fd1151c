"""`TimerQueue`: many things to look at, one timer."""

from __future__ import annotations

from heapq import heappop

import pytest
from stage_rig import ManualLoop

from aiokprod.pipeline.timer_queue import TimerQueue


def timer_queue() -> tuple[ManualLoop, list[str], TimerQueue[str]]:
    loop = ManualLoop()
    called: list[str] = []
    return loop, called, TimerQueue(loop, called.append)


def test_each_item_is_called_once_its_time_has_come_and_not_before() -> None:
    loop, called, timers = timer_queue()
    timers.set(loop.now + 2, "two")
    timers.set(loop.now + 1, "one")
    timers.set(loop.now + 3, "three")
    loop.advance(0.999)
    assert called == []
    loop.advance(0.002)
    assert called == ["one"]
    loop.advance(5)
    assert called == ["one", "two", "three"]
    loop.advance(100)
    assert len(called) == 3


def test_there_is_one_timer_and_it_is_the_earliest() -> None:
    loop, _, timers = timer_queue()
    for at in (5, 3, 4, 1, 2):
        timers.set(loop.now + at, str(at))
        assert len(loop.armed) == 1
    assert loop.armed == [loop.now + 1]
    assert len(timers) == 5


def test_items_of_one_moment_are_called_in_the_order_they_were_set() -> None:
    loop, called, timers = timer_queue()
    for name in "abc":
        timers.set(loop.now + 1, name)
    loop.advance(1)
    assert called == ["a", "b", "c"]


def test_an_item_whose_time_has_passed_is_called_on_the_next_turn() -> None:
    loop, called, timers = timer_queue()
    timers.set(loop.now - 10, "late")
    loop.advance(0)
    assert called == ["late"]


def test_the_same_item_may_be_set_many_times() -> None:
    loop, called, timers = timer_queue()
    timers.set(loop.now + 1, "x")
    timers.set(loop.now + 2, "x")
    loop.advance(1.5)
    loop.advance(1.5)
    assert called == ["x", "x"]


def test_what_ctrl_c_has_stopped_is_called_in_the_next_turn() -> None:
    loop = ManualLoop()
    called: list[str] = []

    def due(item: str) -> None:
        called.append(item)
        if called == ["first"]:
            raise KeyboardInterrupt

    timers = TimerQueue(loop, due)
    timers.set(loop.now + 1, "first")
    timers.set(loop.now + 1, "second")
    with pytest.raises(KeyboardInterrupt):
        loop.advance(1)
    loop.advance(0)
    assert called == ["first", "first", "second"]


def test_what_is_set_during_a_call_is_not_lost() -> None:
    loop = ManualLoop()
    called: list[str] = []

    def due(item: str) -> None:
        called.append(item)
        if item == "first":
            timers.set(loop.now, "at once")
            timers.set(loop.now + 1, "later")

    timers = TimerQueue(loop, due)
    timers.set(loop.now + 1, "first")
    timers.set(loop.now + 5, "last")
    loop.advance(1)
    assert called == ["first", "at once"]
    assert loop.armed == [loop.now + 1]
    loop.advance(1)
    loop.advance(10)
    assert called == ["first", "at once", "later", "last"]


def test_one_that_raises_costs_the_others_nothing() -> None:
    loop = ManualLoop()
    called: list[str] = []

    def due(item: str) -> None:
        if item == "bad":
            raise RuntimeError(item)
        called.append(item)

    timers = TimerQueue(loop, due)
    for name in ("bad", "good"):
        timers.set(loop.now + 1, name)
    with pytest.raises(RuntimeError):
        loop.advance(1)
    loop.advance(0)
    assert called == ["good"]


def test_a_stopped_queue_has_no_timer_and_may_be_set_again() -> None:
    loop, called, timers = timer_queue()
    timers.set(loop.now + 1, "x")
    timers.stop()
    assert loop.armed == []
    assert len(timers) == 0
    loop.advance(5)
    assert called == []
    timers.set(loop.now + 1, "y")
    loop.advance(1)
    assert called == ["y"]


def test_of_many_that_are_due_together_so_many_are_called_in_one_turn_of_the_loop() -> None:
    loop = ManualLoop()
    called: list[str] = []
    timers: TimerQueue[str] = TimerQueue(loop, called.append, 2)
    for name in "abcde":
        timers.set(loop.now + 1, name)
    loop.now += 1
    for expected in ("ab", "abcd", "abcde"):
        assert len(loop.armed) == 1
        heappop(loop.timers)[2]._run()
        assert "".join(called) == expected
    assert not loop.armed


def test_what_an_item_sets_for_the_same_moment_comes_in_a_later_turn_behind_the_others() -> None:
    loop = ManualLoop()
    called: list[str] = []

    def due(name: str) -> None:
        called.append(name)
        if len(called) < 4:
            timers.set(loop.now, name)

    timers: TimerQueue[str] = TimerQueue(loop, due, 1)
    timers.set(loop.now, "a")
    timers.set(loop.now, "b")
    loop.advance(0)
    assert called == ["a", "b", "a", "b", "a"]
