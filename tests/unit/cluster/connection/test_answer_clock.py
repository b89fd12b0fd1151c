"""The clock of a connection: which request it blames, and when, on a loop whose time stands still."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import pytest

from aiokprod.cluster.connection.answer_clock import LATE_S, MAX_GRACE_S, QUIET_PASSES, READ_PASSES, AnswerClock
from aiokprod.wire.broker_frames import encode_response
from aiokprod.wire.exchange import Entry, Exchange

TIMEOUT_S = 30.0


class StillTimer:
    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class StillLoop:
    """The part of a loop that the clock uses; its time moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[StillTimer] = []
        self.soon: deque[Callable[[], None]] = deque()

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[..., None], *arguments: Any) -> StillTimer:
        timer = StillTimer(when, lambda: call(*arguments))
        self.timers.append(timer)
        return timer

    def call_soon(self, call: Callable[..., None], *arguments: Any) -> None:
        self.soon.append(lambda: call(*arguments))

    @property
    def armed(self) -> list[float]:
        return [timer.when for timer in self.timers if not timer.is_cancelled]

    def fire(self, late_s: float = 0.0) -> None:
        """Let the next timer fire."""
        timer = min((timer for timer in self.timers if not timer.is_cancelled), key=lambda timer: timer.when)
        self.timers.remove(timer)
        self.now = max(self.now, timer.when + late_s)
        timer.call()

    def turn(self) -> None:
        """Run one turn of the loop."""
        for _ in range(len(self.soon)):
            self.soon.popleft()()


class Rig:
    def __init__(self) -> None:
        self.loop = StillLoop()
        self.exchange = Exchange(max_frame_bytes=100, max_mute_s=TIMEOUT_S)
        self.timed_out: list[object] = []
        self.clock = AnswerClock(
            cast(asyncio.AbstractEventLoop, self.loop), self.exchange, lambda head: self.timed_out.append(head.token)
        )

    def ask(self, token: object, timeout_s: float = TIMEOUT_S) -> None:
        correlation_id = self.exchange.take_correlation_id()
        self.exchange.push(Entry(token, 0, 9, correlation_id, timeout_s, False), self.loop.now)
        self.clock.look()

    def answer_head(self) -> None:
        head = self.exchange.head
        assert head is not None
        self.clock.bytes_came()
        assert self.exchange.feed(encode_response(head.correlation_id, False, b""), self.loop.now)
        self.clock.look()

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.loop.turn()


def test_requests_and_answers_share_one_timer() -> None:
    rig = Rig()
    for token in range(100):
        rig.ask(token)
        rig.loop.now += 0.1
        rig.answer_head()
    assert len(rig.loop.timers) == 1


def test_a_timer_that_fires_early_arms_itself_again() -> None:
    rig = Rig()
    rig.ask("a")
    rig.ask("b")
    rig.loop.now += 10.0
    rig.answer_head()
    rig.loop.fire()
    assert rig.loop.armed == [1040.0]
    rig.loop.fire()
    rig.turns(QUIET_PASSES)
    assert rig.timed_out == ["b"]


def test_a_timer_that_fires_with_nothing_owed_does_not_arm_itself() -> None:
    rig = Rig()
    rig.ask("a")
    rig.answer_head()
    rig.loop.fire()
    assert rig.loop.armed == []
    rig.ask("b")
    assert rig.loop.armed == [1060.0]


def test_a_head_with_a_shorter_timeout_brings_the_timer_forward() -> None:
    rig = Rig()
    rig.ask("a")
    rig.answer_head()
    rig.ask("b", timeout_s=2.0)
    assert rig.loop.armed == [1002.0]


def test_a_timeout_is_believed_only_after_the_socket_was_looked_at() -> None:  # faults: N20
    rig = Rig()
    rig.ask("a")
    rig.loop.fire()
    rig.turns(QUIET_PASSES - 1)
    assert rig.timed_out == []
    rig.turns(1)
    assert rig.timed_out == ["a"]


def test_an_answer_found_in_the_socket_is_in_time() -> None:  # faults: N20
    rig = Rig()
    rig.ask("a")
    rig.ask("b")
    rig.loop.fire()
    rig.turns(QUIET_PASSES - 1)
    rig.answer_head()
    rig.turns(10)
    assert rig.timed_out == []
    assert rig.loop.armed == [1060.0]


def test_bytes_buy_turns_but_not_for_ever() -> None:  # faults: N6, H3
    rig = Rig()
    rig.ask("a")
    rig.loop.fire()
    for _ in range(READ_PASSES - 1):
        rig.clock.bytes_came()
        rig.turns(1)
    assert rig.timed_out == []
    rig.clock.bytes_came()
    rig.turns(1)
    assert rig.timed_out == ["a"]


def test_requests_sent_while_it_judges_do_not_put_the_verdict_off() -> None:
    rig = Rig()
    rig.ask("a")
    rig.loop.fire()
    rig.ask("b")
    rig.turns(1)
    rig.ask("c")
    rig.turns(1)
    assert rig.timed_out == ["a"]
    assert rig.loop.armed == []


@pytest.mark.parametrize(("late_s", "grace_s"), [(LATE_S + 0.5, LATE_S + 0.5), (45.0, MAX_GRACE_S)])
def test_after_we_stood_still_the_broker_gets_more_time_once(late_s: float, grace_s: float) -> None:  # faults: L22
    rig = Rig()
    rig.ask("a")
    rig.loop.fire(late_s)
    assert rig.loop.armed == [1030.0 + late_s + grace_s]
    rig.turns(10)
    assert rig.timed_out == []
    rig.loop.fire(late_s)
    rig.turns(QUIET_PASSES)
    assert rig.timed_out == ["a"]


def test_a_throttle_that_comes_while_it_judges_stops_it() -> None:
    rig = Rig()
    rig.ask("a")
    rig.loop.fire()
    rig.exchange.mute(10.0, rig.loop.now)
    rig.turns(5)
    assert rig.timed_out == []
    assert rig.loop.armed == [1040.0]


def test_a_stopped_clock_blames_no_request() -> None:
    rig = Rig()
    rig.ask("a")
    rig.loop.fire()
    rig.clock.stop()
    rig.turns(10)
    rig.ask("b")
    assert rig.timed_out == []
    assert rig.loop.armed == []


def test_a_late_callback_of_an_older_timer_does_nothing() -> None:
    rig = Rig()
    rig.ask("a")
    (old,) = rig.loop.timers
    rig.answer_head()
    rig.ask("b", timeout_s=2.0)
    rig.loop.now += 60.0
    old.call()  # cancelled too late
    rig.turns(10)
    assert rig.timed_out == []


# ---------------------------------------------------------------------- slow answers


def test_a_slow_answer_is_told_once_and_still_times_out() -> None:  # faults: T21
    rig, slow = Rig(), []
    rig.clock.tell_slow(10.0, lambda: slow.append(rig.loop.now))
    rig.ask("a")
    rig.loop.fire()
    assert slow == [1010.0]
    assert rig.timed_out == []
    rig.loop.fire()
    rig.turns(QUIET_PASSES)
    assert rig.timed_out == ["a"]
    assert slow == [1010.0]


def test_answers_in_time_are_not_slow_and_share_one_timer() -> None:
    rig, slow = Rig(), []
    rig.clock.tell_slow(10.0, lambda: slow.append(rig.loop.now))
    for token in range(100):
        rig.ask(token)
        rig.loop.now += 0.1
        rig.answer_head()
    assert len(rig.loop.timers) == 1
    rig.ask("late")
    rig.loop.fire()
    assert slow == []
    rig.loop.fire()
    assert slow == [pytest.approx(1020.0)]


def test_each_request_that_is_slow_at_the_head_is_told() -> None:
    rig, slow = Rig(), []
    rig.clock.tell_slow(10.0, lambda: slow.append(rig.loop.now))
    rig.ask("a")
    rig.ask("b")
    rig.loop.fire()
    rig.loop.now += 5.0
    rig.answer_head()  # the clock of b begins
    rig.loop.fire()
    assert slow == [1010.0, 1025.0]


def test_a_throttle_makes_no_answer_slow() -> None:
    rig, slow = Rig(), []
    rig.clock.tell_slow(10.0, lambda: slow.append(rig.loop.now))
    rig.ask("a")
    rig.exchange.mute(20.0, rig.loop.now)
    rig.loop.fire()
    assert slow == []
    rig.loop.fire()
    assert slow == [1030.0]


def test_a_request_that_waits_already_is_watched_too() -> None:
    rig, slow = Rig(), []
    rig.ask("a")
    rig.clock.tell_slow(10.0, lambda: slow.append(rig.loop.now))
    assert rig.loop.armed == [1010.0]
