"""The effect of a fault on one request at a mock broker, and on its answer.

Called by `service` when a rule has matched; `again` serves a frame as if the client had sent it again, past
the rules. A request that is damaged is damaged after it was read: for client and broker the same as on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias, assert_never

from aiokprod.testing.faults import (
    Answer,
    Blackhole,
    Close,
    Delay,
    Drop,
    Hold,
    Refuse,
    Rewrite,
    Rule,
    Run,
    Swallow,
    Throttle,
)
from aiokprod.testing.faults.effects import Damage, Duplicate, Fail, Omit
from aiokprod.testing.faults.passage import passage_of
from aiokprod.testing.mock.answering import Pause, Reply, Served, Step, Then, answer, encoded, settled
from aiokprod.testing.mock.handlers.api import SilenceError
from aiokprod.wire.frames import FrameReader

Again: TypeAlias = Callable[[bytes, bool], Step]
"""Serves a frame past the rules; the flag says whether it is counted as one more request."""


def scripted(served: Served, rule: Rule, frame: bytes, again: Again) -> Step:
    """Return the step that replaces the usual one. Raises what serving raises."""
    if rule.fault.before_serving:
        return _request(served, rule, frame, again)
    match rule.fault.effect:
        case Run(call):
            call()
            return answer(served)
        case Answer(make):
            return encoded(served, make(served.bound.request, served.header.version))
        case Throttle(milliseconds):
            return answer(served, mute_ms=milliseconds)
        case Rewrite(change):
            return answer(served, change=change)
        case Drop(reset):
            served.bound.handle()
            return Reply(None, then=Then.RESET if reset else Then.CLOSE)
        case _:
            step = answer(served)

            async def later() -> Step:
                return await _answer(served, rule, await settled(step))

            return Pause(later)


def _request(served: Served, rule: Rule, frame: bytes, again: Again) -> Step:
    match rule.fault.effect:
        case Drop(reset):
            return Reply(None, then=Then.RESET if reset else Then.CLOSE)
        case Swallow():
            return Reply(None)
        case Blackhole():
            raise SilenceError
        case Delay(seconds):

            async def after_delay() -> Step:
                await asyncio.sleep(seconds)
                return answer(served)

            return Pause(after_delay)
        case Hold():

            async def after_release() -> Step:
                await rule.released()
                return answer(served)

            return Pause(after_release)
        case Fail() | Omit() | Close() | Throttle() | Answer() | Rewrite() | Run() | Refuse() as effect:
            raise AssertionError(f"{effect} does not apply to requests")  # `Fault` refuses such a combination
        case damage:
            return Pause(lambda: _damaged_request(served, rule, damage, frame, again))


async def _damaged_request(served: Served, rule: Rule, damage: Damage, frame: bytes, again: Again) -> Step:
    """Damage the frame, wait for as long as it takes to arrive, and handle the frames that can be read from it."""
    wire = len(frame).to_bytes(4, "big") + frame
    passage = passage_of(damage, wire, is_request=True, random=rule.random)
    if passage.lasts_s > 0:
        await asyncio.sleep(passage.lasts_s)
    frames = FrameReader(served.call.broker.max_frame_bytes).feed(passage.data)  # a bad length closes. broker: 13.2
    reply = Reply(None)
    for number, one in enumerate(frames):
        got = await settled(again(one, number > 0))
        if number == 0 or not isinstance(damage, Duplicate):
            reply = got
    return Reply(None, then=Then.CLOSE) if passage.then_closes else reply


async def _answer(served: Served, rule: Rule, reply: Reply) -> Reply:
    connection = served.call.connection
    match rule.fault.effect:
        case Delay(seconds):
            await asyncio.sleep(seconds)
            return reply
        case Hold():
            await rule.released()
            return reply
        case Swallow():
            return Reply(None, reply.mute_s)
        case Blackhole():
            connection.write_no_more()
            return Reply(None)
        case Close():
            return Reply(reply.frame, then=Then.CLOSE)
        case Fail() | Omit() | Drop() | Throttle() | Answer() | Rewrite() | Run() | Refuse() as effect:
            raise AssertionError(f"{effect} is dealt with before")
        case damage:
            if reply.frame is None:
                return reply
            passage = passage_of(damage, reply.frame, is_request=False, random=rule.random)
            for piece in passage.pieces:
                await asyncio.sleep(piece.pause_s)  # a turn of the loop at least: each write goes out by itself
                connection.write(piece.data)
            return Reply(None, reply.mute_s, Then.CLOSE if passage.then_closes else Then.GO_ON)
    assert_never(rule.fault.effect)
