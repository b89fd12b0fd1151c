"""`Link`: one client connection through the proxy to one broker, and what faults do to its frames.

Two pumps, one per direction, each strictly in order. One per client connection, on the proxy's loop.

Invariants: what is read is passed on in order or the connection ends; answers go out in the order of their requests,
ours among them; a client that leaves does not take a request with it that the proxy still holds (that is how a request
arrives late); when the link ends both sockets are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from aiokprod.testing.faults import (
    Answer,
    Blackhole,
    Close,
    Delay,
    Drop,
    Duplicate,
    Hold,
    Rule,
    Run,
    Swallow,
    Throttle,
)
from aiokprod.testing.faults.apis import api_name_of
from aiokprod.testing.faults.effects import damage_of
from aiokprod.testing.faults.passage import Passage, passage_of

from .edits import Edits
from .frames import Direction, ProxyFrame, expects_answer, request_header, with_length
from .script import Script

MAX_FRAME_BYTES = 128 * 1024 * 1024  # more is no Kafka frame: another protocol, passed through as it comes
CHUNK_BYTES = 64 * 1024
LATE_ANSWER_S = 30.0  # how long a broker may take to answer a request whose client has gone

Address = tuple[str, int]


class LinkOwner(ABC):
    """What a link needs of its proxy."""

    script: Script

    @abstractmethod
    def noticed(self, frame: ProxyFrame) -> None:
        """Count the frame."""

    @abstractmethod
    async def thawed(self, broker: int) -> None:
        """Wait until this broker is not frozen."""


class _LinkEnded(Exception):  # noqa: N818 - not an error: a fault asked for it
    """The link ends here, by a fault."""


@dataclass(slots=True, eq=False)
class Asked:
    """A request whose answer is to come."""

    frame: ProxyFrame
    rule: Rule | None = None
    """What befalls the answer."""
    edits: Edits | None = None
    own_answer: bytes | None = None
    copies: int = 0
    """Further answers will come, and are dropped."""
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class Link:
    """A client's connection and the broker's, joined."""

    def __init__(self, owner: LinkOwner, broker: int, number: int, framed: bool) -> None:
        self._owner = owner
        self._broker = broker
        self._number = number
        self._client: asyncio.StreamWriter | None = None
        self._upstream: asyncio.StreamWriter | None = None
        self._asked: dict[int, Asked] = {}  # requests without an answer yet, in order, by correlation id
        self._answering = asyncio.Lock()  # one answer at a time: one that is held keeps the others behind it
        self._black: set[Direction] = set()  # ways on which nothing passes any more
        self._raw: set[Direction] = set() if framed else {Direction.REQUEST, Direction.ANSWER}  # no frames to be seen
        self._client_has_gone = False

    # ---- life

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address) -> None:
        """Join client and broker until either ends, or a fault ends it."""
        self._client = writer
        try:
            await self._owner.thawed(self._broker)
            upstream_reader, self._upstream = await asyncio.open_connection(*address)
            for connected in (writer, self._upstream):
                connected.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.TaskGroup() as group:
                requests = group.create_task(self._pump(Direction.REQUEST, reader))
                answers = group.create_task(self._pump(Direction.ANSWER, upstream_reader))
                await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
                if not answers.done():
                    await self._finish_late_requests(answers)
                requests.cancel()  # the broker has gone: nobody is left to answer
                answers.cancel()
        except* _LinkEnded:
            pass
        except* OSError:
            self.end(reset=True)  # the broker is not there, or went with a reset
        finally:
            self.end()
            for side in (writer, self._upstream):
                if side is not None:
                    with contextlib.suppress(OSError):
                        await side.wait_closed()

    def refuse(self, writer: asyncio.StreamWriter) -> None:
        """Reset the client's connection at once; the broker hears nothing of it."""
        self._client = writer
        self.end(reset=True)

    def end(self, *, reset: bool = False) -> None:
        """Close both sides now."""
        for side in (self._client, self._upstream):
            if side is not None:
                if reset:
                    _reset_on_close(side)
                side.close()

    def abort(self) -> None:
        """Close both sides without a wait for what is still to be written."""
        for side in (self._client, self._upstream):
            if side is not None:
                side.transport.abort()

    async def _finish_late_requests(self, answers: asyncio.Task[None]) -> None:
        """The client has gone. The broker must still take what was passed on last, a held request too."""
        assert self._upstream is not None
        with contextlib.suppress(OSError):
            self._upstream.write_eof()
        await asyncio.wait({answers}, timeout=LATE_ANSWER_S)

    # ---- both ways

    async def _pump(self, direction: Direction, reader: asyncio.StreamReader) -> None:
        """Pass on what comes this way until its sender ends."""
        while True:
            try:
                payload = await self._read(direction, reader)
            except asyncio.IncompleteReadError:
                return
            except OSError:
                if direction is Direction.REQUEST:
                    return  # a client that resets its connection is a client that goes
                raise
            if not payload:
                return
            await self._owner.thawed(self._broker)
            if direction in self._raw:
                await self._chunk(direction, payload)
            elif direction is Direction.REQUEST:
                await self._request(payload)
            else:
                await self._answer(payload)

    async def _read(self, direction: Direction, reader: asyncio.StreamReader) -> bytes:
        """The next frame without its length prefix, or the next chunk; empty at the end."""
        if direction in self._raw:
            return await reader.read(CHUNK_BYTES)
        prefix = await reader.readexactly(4)
        (length,) = struct.unpack(">i", prefix)
        if 4 <= length <= MAX_FRAME_BYTES:
            return await reader.readexactly(length)
        self._raw.add(direction)
        return prefix

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
        """Bytes without frames: behind TLS, or no Kafka at all."""
        self._frame(direction, (-1, -1, -1), len(data))
        if direction in self._black:
            return
        rule = self._owner.script.for_chunk(self._broker, is_request=direction is Direction.REQUEST)
        if rule is not None and not await self._passes(rule, direction):
            return
        await self._write_damaged(rule, direction, data)
        if rule is not None and isinstance(rule.fault.effect, Close):
            raise self._cut()

    async def _passes(self, rule: Rule, direction: Direction) -> bool:
        """What time and loss do to a frame or chunk; does it go on?"""
        match rule.fault.effect:
            case Drop(reset):
                raise self._cut(reset=reset)
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

    # ---- requests

    async def _request(self, payload: bytes) -> None:
        frame = self._frame(Direction.REQUEST, request_header(payload), len(payload))
        if Direction.REQUEST in self._black:
            return
        script = self._owner.script
        taken = script.take_up(frame, payload)
        rule = taken.rule
        before = rule if rule is not None and rule.fault.before_serving else None
        if before is not None and not await self._passes(before, Direction.REQUEST):
            return
        asked = Asked(frame, None if before is not None else rule)
        effect = None if rule is None else rule.fault.effect
        if isinstance(effect, Answer):
            asked.own_answer = script.made_answer(effect, taken)
            if asked.own_answer is None:
                return
        else:
            if isinstance(effect, Run):
                effect.call()
            edited = script.edit(taken)
            payload, asked.edits, asked.own_answer = edited.payload, edited.edits, edited.own_answer
        if asked.own_answer is not None:
            self._asked[frame.correlation_id] = asked
            async with self._answering:
                await self._pass_own_answers()
        else:
            await self._pass_request(asked, before, payload)
        if isinstance(effect, Throttle):
            # The next request is left unread until the throttle is over. broker: 14.1, 14.2
            await asked.answered.wait()
            await asyncio.sleep(effect.milliseconds / 1000)

    async def _pass_request(self, asked: Asked, before: Rule | None, payload: bytes) -> None:
        damage = None if before is None else damage_of(before.fault.effect)
        wire = with_length(payload)
        arrives = payload
        passage = None
        if damage is not None and before is not None:
            passage = passage_of(damage, wire, is_request=True, random=before.random)
            arrives = passage.data[4:]
            asked.copies = 1 if isinstance(damage, Duplicate) else 0
        key, version, correlation_id = request_header(arrives)  # as the broker will answer it
        is_answered = expects_answer(key, version, arrives)
        if is_answered:
            self._asked[correlation_id] = asked
        if passage is None:
            await self._write(Direction.REQUEST, wire)
        else:
            await self._write_pieces(passage, Direction.REQUEST)
        if not is_answered:
            await self._settle_unanswered(asked)

    async def _settle_unanswered(self, asked: Asked) -> None:
        """A request with acks=0 has gone: what befalls its answer befalls the connection now."""
        asked.answered.set()
        if asked.edits is not None and asked.edits.closes:
            raise self._cut()
        if asked.rule is not None:
            await self._passes(asked.rule, Direction.ANSWER)
            if isinstance(asked.rule.fault.effect, Close):
                raise self._cut()

    # ---- answers

    async def _answer(self, payload: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", payload)
        asked = self._asked.get(correlation_id)
        key, version = (-1, -1) if asked is None else (asked.frame.api_key, asked.frame.version)
        self._frame(Direction.ANSWER, (key, version, correlation_id), len(payload))
        async with self._answering:
            if asked is None:
                if Direction.ANSWER not in self._black:
                    await self._write(Direction.ANSWER, with_length(payload))
            elif asked.answered.is_set():  # a copy
                del self._asked[correlation_id]
            else:
                if not asked.copies:
                    del self._asked[correlation_id]
                await self._deliver(asked, payload)
            await self._pass_own_answers()

    async def _pass_own_answers(self) -> None:
        """Our own answers go out in their turn: a client takes answers in the order of its requests."""
        while self._asked:
            correlation_id, asked = next(iter(self._asked.items()))
            if asked.own_answer is None:
                return
            del self._asked[correlation_id]
            await self._deliver(asked, asked.own_answer)

    async def _deliver(self, asked: Asked, payload: bytes) -> None:
        rule = asked.rule
        answer = self._owner.script.answer(asked.frame, rule, asked.edits, payload)
        if (
            answer is not None
            and Direction.ANSWER not in self._black
            and (rule is None or await self._passes(rule, Direction.ANSWER))
        ):
            await self._write_damaged(rule, Direction.ANSWER, with_length(answer))
        asked.answered.set()
        if rule is not None and isinstance(rule.fault.effect, Close):
            raise self._cut()

    # ---- writing

    async def _write_damaged(self, rule: Rule | None, direction: Direction, wire: bytes) -> None:
        """Write it, in pieces or changed if the rule says so."""
        damage = None if rule is None else damage_of(rule.fault.effect)
        if rule is None or damage is None:
            await self._write(direction, wire)
        else:
            is_request = direction is Direction.REQUEST
            await self._write_pieces(passage_of(damage, wire, is_request=is_request, random=rule.random), direction)

    async def _write_pieces(self, passage: Passage, direction: Direction) -> None:
        for piece in passage.pieces:
            await asyncio.sleep(piece.pause_s)  # a turn of the loop at least: each write goes out by itself
            await self._write(direction, piece.data)
        if passage.then_closes:
            raise self._cut()

    def _cut(self, *, reset: bool = False) -> _LinkEnded:
        self.end(reset=reset)
        return _LinkEnded()

    async def _write(self, direction: Direction, data: bytes) -> None:
        """To the broker, or to the client; a client that has gone no longer counts."""
        writer = self._upstream if direction is Direction.REQUEST else self._client
        assert writer is not None
        if direction is Direction.ANSWER and self._client_has_gone:
            return
        try:
            writer.write(data)
            await writer.drain()
        except OSError:
            if direction is Direction.REQUEST:
                raise
            self._client_has_gone = True


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Closing will send RST: linger of zero seconds."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
