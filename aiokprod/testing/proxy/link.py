"""`Link`: one client connection through the proxy to one broker, and the effects of faults on its frames.

Two pumps, one per direction, each strictly in order. One per client connection, on the proxy's loop.

Invariants: what is read is passed on in order or the connection ends; answers go out in the order of their requests,
ours among them; a client that leaves does not take a request with it that the proxy still holds (that is how a request
arrives late); when the link ends both sockets are closed.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from aiokprod.testing.faults import (
    Answer,
    Blackhole,
    Close,
    Corrupt,
    Delay,
    Drip,
    Drop,
    Duplicate,
    Hold,
    HugeLength,
    Rechunk,
    Rule,
    Run,
    Swallow,
    Throttle,
    Truncate,
    WrongCorrelation,
)
from aiokprod.testing.faults.apis import api_name_of
from aiokprod.testing.faults.effects import damage_of
from aiokprod.testing.faults.passage import passage_of
from aiokprod.testing.proxy.edits import Edits
from aiokprod.testing.proxy.frames import Direction, ProxyFrame, expects_answer, request_header, with_length
from aiokprod.testing.proxy.script import Script, TakenUp
from aiokprod.testing.proxy.sides import Address, LinkEndedError, Sides

LATE_ANSWER_S = 30.0  # how long a broker may take to answer a request whose client has gone


@dataclass(frozen=True, slots=True)
class LinkOwner:
    """The proxy as its links see it."""

    script: Script
    noticed: Callable[[ProxyFrame], None]
    """Count the frame."""
    crashed: Callable[[ExceptionGroup[Exception]], None]
    """Report that a callable of a test raised, or the proxy has a bug; the link has ended."""
    thawed: Callable[[int], Awaitable[None]]
    """Wait until this broker is not frozen."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request whose answer is to come."""

    frame: ProxyFrame
    rule: Rule | None = None
    """The rule that applies to the answer."""
    edits: Edits | None = None
    own_answer: bytes | None = None
    is_copy: bool = False
    """Its answer is dropped: the client has sent it once."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    def is_for(self, correlation_id: int) -> bool:
        """Return whether the broker's answer with this id is its answer."""
        return self.own_answer is None and self.frame.correlation_id == correlation_id


class Link:
    """A client's connection and the broker's, joined."""

    def __init__(self, owner: LinkOwner, broker: int, number: int, sides: Sides) -> None:
        self.sides = sides
        self._owner = owner
        self._broker = broker
        self._number = number
        self._asked: list[Asked] = []  # requests without an answer yet, in order
        self._answering = asyncio.Lock()  # one answer at a time: one that is held keeps the others behind it
        self._black: set[Direction] = set()  # ways on which nothing passes any more

    # ------------------------------------------------------------------ life

    async def run(self, reader: asyncio.StreamReader, address: Address) -> None:
        """Join client and broker until either ends, or a fault ends it."""
        sides = self.sides
        try:
            await self._owner.thawed(self._broker)
            upstream_reader = await sides.dial(address)
            async with asyncio.TaskGroup() as group:
                requests = group.create_task(self._pump(Direction.REQUEST, reader))
                answers = group.create_task(self._pump(Direction.ANSWER, upstream_reader))
                await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
                if not answers.done():
                    # The client has gone. The broker must still take what was passed on last, a held request too.
                    sides.end_requests()
                    await asyncio.wait({answers}, timeout=LATE_ANSWER_S)
                requests.cancel()  # the broker has gone: no further request will be answered
                answers.cancel()
        except* LinkEndedError:
            pass
        except* OSError:
            sides.end(reset=True)  # the broker is not there, or went with a reset
        except* Exception as crashes:
            self._owner.crashed(crashes)
        finally:
            sides.end()
            await sides.closed()

    # ------------------------------------------------------------------ both ways

    async def _pump(self, direction: Direction, reader: asyncio.StreamReader) -> None:
        """Pass on what comes this way until its sender ends."""
        while payload := await self.sides.read(direction, reader):
            await self._owner.thawed(self._broker)
            if self.sides.is_raw(direction):
                await self._chunk(direction, payload)
            elif direction is Direction.REQUEST:
                await self._request(payload)
            else:
                await self._answer(payload)

    def _frame(self, direction: Direction, header: tuple[int, int, int], size: int) -> ProxyFrame:
        key, version, correlation_id = header
        frame = ProxyFrame(
            broker=self._broker,
            connection=self._number,
            direction=direction,
            api=api_name_of(key) if key >= 0 else None,
            api_key=key,
            version=version,
            correlation_id=correlation_id,
            size=size,
            at_s=time.monotonic(),
        )
        self._owner.noticed(frame)
        return frame

    async def _chunk(self, direction: Direction, data: bytes) -> None:
        """Pass on bytes without frames: TLS, or not Kafka at all."""
        self._frame(direction, (-1, -1, -1), len(data))
        if direction in self._black:
            return
        rule = self._owner.script.for_chunk(self._broker, is_request=direction is Direction.REQUEST)
        if rule is not None and not await self._passes(rule, direction):
            return
        await self.sides.write(direction, data, rule)
        if rule is not None and isinstance(rule.fault.effect, Close):
            raise self.sides.cut()

    async def _passes(self, rule: Rule, direction: Direction) -> bool:
        """Apply delay or loss to a frame or chunk, and return whether it goes on."""
        match rule.fault.effect:
            case Drop(reset):
                raise self.sides.cut(reset=reset)
            case Swallow():
                return False
            case Blackhole():
                self._black.add(direction)
                return False
            case Delay(seconds):
                await asyncio.sleep(seconds)
            case Hold():
                await rule.released()
            case _:
                pass
        return True

    # ------------------------------------------------------------------ requests

    async def _request(self, payload: bytes) -> None:
        frame = self._frame(Direction.REQUEST, request_header(payload), len(payload))
        if Direction.REQUEST in self._black:
            return
        taken = self._owner.script.take_up(frame, payload)
        rule = taken.rule
        if rule is None:
            await self._carry_out(taken)
        elif rule.fault.before_serving:
            if await self._passes(rule, Direction.REQUEST):
                await self._damaged(taken, rule)
        else:
            await self._pass_with_rule(taken, rule)

    async def _pass_with_rule(self, taken: TakenUp, rule: Rule) -> None:
        """Pass on a request to whose answer a rule applies."""
        match rule.fault.effect:
            case Answer() as effect:
                own = self._owner.script.made_answer(effect, taken)
                if own is not None:
                    await self._answer_here(Asked(taken.frame, own_answer=own))
            case Run(call):
                call()
                await self._carry_out(taken)
            case Throttle(milliseconds):
                asked = await self._carry_out(taken, answer_rule=rule)
                # The next request is left unread until the throttle is over. broker: 14.1, 14.2
                await asked.answered.wait()
                await asyncio.sleep(milliseconds / 1000)
            case _:
                await self._carry_out(taken, answer_rule=rule)

    async def _damaged(self, taken: TakenUp, rule: Rule) -> None:
        """Pass on a request in a damaged form, which the broker serves like any other."""
        damage = damage_of(rule.fault.effect)
        match damage:
            case None:
                await self._carry_out(taken)
            case Corrupt() | WrongCorrelation():
                data = passage_of(damage, with_length(taken.payload), is_request=True, random=rule.random).data[4:]
                await self._carry_out(TakenUp(_seen_as(taken.frame, data), data, rule))
            case Duplicate():
                await self._carry_out(taken)
                await self._carry_out(taken, is_copy=True)
            case Rechunk() | Drip():
                await self._carry_out(taken, pieces_by=rule)
            case Truncate() | HugeLength():
                await self.sides.write(Direction.REQUEST, with_length(taken.payload), rule)

    async def _carry_out(
        self, taken: TakenUp, *, answer_rule: Rule | None = None, pieces_by: Rule | None = None, is_copy: bool = False
    ) -> Asked:
        """Pass it on, less what faults take out of it, or answer it here if nothing is left."""
        edited = self._owner.script.edit(taken)
        asked = Asked(taken.frame, answer_rule, edited.edits, edited.own_answer, is_copy)
        if asked.own_answer is not None:
            await self._answer_here(asked)
            return asked
        is_answered = expects_answer(taken.frame.api_key, taken.frame.version, edited.payload)
        if is_answered:
            self._asked.append(asked)
        await self.sides.write(Direction.REQUEST, with_length(edited.payload), pieces_by)
        if not is_answered:
            await self._settle_unanswered(asked)
        return asked

    async def _answer_here(self, asked: Asked) -> None:
        self._asked.append(asked)
        async with self._answering:
            await self._pass_own_answers()

    async def _settle_unanswered(self, asked: Asked) -> None:
        """Apply the effects on the answer of an acks=0 request, which has none, to the connection now."""
        asked.answered.set()
        if asked.edits is not None and asked.edits.closes:
            raise self.sides.cut()
        if asked.rule is not None:
            await self._passes(asked.rule, Direction.ANSWER)
            if isinstance(asked.rule.fault.effect, Close):
                raise self.sides.cut()

    # ------------------------------------------------------------------ answers

    async def _answer(self, payload: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", payload)
        asked = next((one for one in self._asked if one.is_for(correlation_id)), None)
        key, version = (-1, -1) if asked is None else (asked.frame.api_key, asked.frame.version)
        self._frame(Direction.ANSWER, (key, version, correlation_id), len(payload))
        async with self._answering:
            if asked is not None:
                self._asked.remove(asked)
                await self._deliver(asked, payload)
            elif Direction.ANSWER not in self._black:
                await self.sides.write(Direction.ANSWER, with_length(payload))
            await self._pass_own_answers()

    async def _pass_own_answers(self) -> None:
        """Write the proxy's own answers in their turn: a client takes answers in the order of its requests."""
        while self._asked and (own := self._asked[0].own_answer) is not None:
            await self._deliver(self._asked.pop(0), own)

    async def _deliver(self, asked: Asked, payload: bytes) -> None:
        rule = asked.rule
        answer = self._owner.script.answer(asked.frame, rule, asked.edits, payload)
        if asked.is_copy:
            return
        if (
            answer is not None
            and Direction.ANSWER not in self._black
            and (rule is None or await self._passes(rule, Direction.ANSWER))
        ):
            await self.sides.write(Direction.ANSWER, with_length(answer), rule)
        asked.answered.set()
        if rule is not None and isinstance(rule.fault.effect, Close):
            raise self.sides.cut()


def _seen_as(frame: ProxyFrame, payload: bytes) -> ProxyFrame:
    """Return the description of a frame whose bytes have changed, as the broker will read it."""
    key, version, correlation_id = request_header(payload)
    api = api_name_of(key) if key >= 0 else None
    return replace(frame, api=api, api_key=key, version=version, correlation_id=correlation_id)
