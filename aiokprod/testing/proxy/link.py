"""`Link`: one client connection through the proxy to one broker, and what rules do to its frames.

Two pumps, one per direction, each strictly in order. One per client connection, on the proxy's loop.

Invariants: what is read is passed on in order or the connection ends; a client that leaves does not take a request with
it that the proxy still holds (that is how a request arrives late); when the link ends both sockets are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import Counter

from aiokprod.testing.proxy.frames import answer_frame, api_name, damaged, expects_answer, request_header
from aiokprod.testing.proxy.rules import Action, ActiveRule, Direction, ProxyFrame, ProxyRule

MAX_FRAME_BYTES = 128 * 1024 * 1024  # more is no Kafka frame: another protocol, passed through as it comes
CHUNK_BYTES = 64 * 1024
LATE_ANSWER_S = 30.0  # how long a broker may take to answer a request whose client has gone


Address = tuple[str, int]


class LinkOwner(ABC):
    """What a link needs of its proxy."""

    @abstractmethod
    def noticed(self, frame: ProxyFrame, payload: bytes) -> ActiveRule | None:
        """Count the frame; the rule that acts on it, if one does."""


class _LinkEnded(Exception):  # noqa: N818 - not an error: a rule asked for it
    """The link ends here, by a rule."""


class Link:
    """A client's connection and the broker's, joined."""

    def __init__(self, owner: LinkOwner, broker: int, number: int, framed: bool) -> None:
        self._owner = owner
        self._broker = broker
        self._number = number
        self._client: asyncio.StreamWriter | None = None
        self._upstream: asyncio.StreamWriter | None = None
        self._pending: dict[int, ProxyFrame] = {}  # requests without an answer yet, in order
        self._answered: dict[int, bytes] = {}  # our own answers, waiting for the requests before theirs
        self._has_answer_in_hand = False  # one of the broker's, held, delayed or trickled: ours wait behind it
        self._cut_at: set[int] = set()  # correlation ids whose answer ends the link
        self._surplus: Counter[int] = Counter()  # answers to drop, of requests passed on twice
        self._black: set[Direction] = set()  # ways on which nothing passes any more
        self._raw: set[Direction] = set() if framed else {Direction.REQUEST, Direction.ANSWER}  # no frames to be seen
        self._client_has_gone = False

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: Address) -> None:
        """Join client and broker until either ends, or a rule ends it."""
        self._client = writer
        try:
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
            await self._handle(direction, payload)

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

    async def _handle(self, direction: Direction, payload: bytes) -> None:
        if direction is Direction.ANSWER:
            self._has_answer_in_hand = True
            await self._handle_frame(direction, payload)
            self._has_answer_in_hand = False
            await self._pass_own_answers()
        else:
            await self._handle_frame(direction, payload)

    async def _handle_frame(self, direction: Direction, payload: bytes) -> None:
        frame = self._identify(direction, payload)
        active = self._owner.noticed(frame, payload)
        if direction in self._black:
            return
        if direction is Direction.ANSWER and self._surplus[frame.correlation_id]:
            self._surplus[frame.correlation_id] -= 1
            return
        if direction is Direction.ANSWER and frame.correlation_id in self._cut_at:
            raise self._cut()
        if active is None:
            await self._pass(direction, payload)
        else:
            await self._act(active, frame, payload)

    def _identify(self, direction: Direction, payload: bytes) -> ProxyFrame:
        """Read the header; of an answer, by the request that waits for it."""
        key, version, correlation_id = -1, -1, -1
        if direction not in self._raw:
            if direction is Direction.REQUEST:
                key, version, correlation_id = request_header(payload)
            else:
                (correlation_id,) = struct.unpack_from(">i", payload)
                if (request := self._pending.get(correlation_id)) is not None:
                    key, version = request.api_key, request.version
                    if not self._surplus[correlation_id]:
                        del self._pending[correlation_id]
        frame = ProxyFrame(
            broker=self._broker,
            connection=self._number,
            direction=direction,
            api=api_name(key),
            api_key=key,
            version=version,
            correlation_id=correlation_id,
            size=len(payload),
            at_s=time.monotonic(),
        )
        if direction is Direction.REQUEST and key >= 0 and expects_answer(key, version, payload):
            self._pending[correlation_id] = frame
        return frame

    async def _act(self, active: ActiveRule, frame: ProxyFrame, payload: bytes) -> None:
        """Do to this frame what the rule says."""
        rule, direction = active.rule, frame.direction
        match Action(rule.action):
            case Action.HOLD:
                await active.released()
            case Action.DELAY:
                await asyncio.sleep(rule.delay_s)
            case Action.WRONG_CORRELATION | Action.FLIP:
                payload = damaged(rule, frame, payload)
            case Action.DUPLICATE:
                self._surplus[frame.correlation_id] += 1
                await self._pass(direction, payload)
            case Action.DROP | Action.BLACKHOLE:
                self._pending.pop(frame.correlation_id, None)  # no answer will come to it
                if rule.action == Action.BLACKHOLE:
                    self._black.add(direction)
                return
            case Action.DRIP | Action.RECHUNK:
                await self._trickle(rule, direction, payload)
                return
            case Action.ANSWER | Action.REWRITE:
                await self._answer(rule, frame, payload)
                return
            case Action.TRUNCATE | Action.CUT_BEFORE | Action.RESET:
                if rule.action == Action.TRUNCATE:
                    await self._write(direction, self._wire(direction, payload)[: rule.size])
                raise self._cut(reset=rule.action == Action.RESET)
            case Action.CUT_AFTER:
                await self._cut_after(frame, payload)
                return
            case Action.REFUSE:
                raise AssertionError("a rule for connections fits no frame")
        await self._pass(direction, payload)

    def _cut(self, *, reset: bool = False) -> _LinkEnded:
        self.end(reset=reset)
        return _LinkEnded()

    async def _cut_after(self, frame: ProxyFrame, payload: bytes) -> None:
        """Pass it on, then end the link; after a request only when the broker has answered, and so has acted on it."""
        if frame.correlation_id in self._pending:
            self._cut_at.add(frame.correlation_id)
            await self._pass(frame.direction, payload)
            return
        await self._pass(frame.direction, payload)
        raise self._cut()

    async def _answer(self, rule: ProxyRule, frame: ProxyFrame, payload: bytes) -> None:
        """Answer in the broker's place."""
        assert rule.body is not None
        answer = answer_frame(frame, rule.body(frame, payload))
        if frame.direction is Direction.REQUEST:
            self._answered[frame.correlation_id] = answer
            await self._pass_own_answers()
        else:
            await self._write(Direction.ANSWER, answer)

    async def _pass_own_answers(self) -> None:
        """Our own answers go out in their turn: a client takes answers in the order of its requests."""
        if self._has_answer_in_hand:
            return
        while self._pending and (first := next(iter(self._pending))) in self._answered:
            del self._pending[first]
            await self._write(Direction.ANSWER, self._answered.pop(first))

    async def _trickle(self, rule: ProxyRule, direction: Direction, payload: bytes) -> None:
        """In small writes: byte by byte, or at a rate (ten writes a second where one byte each is not slow enough)."""
        is_drip = rule.action == Action.DRIP
        size = max(1, int(rule.bytes_per_s / 10)) if is_drip else 1
        data = self._wire(direction, payload)
        for start in range(0, len(data), size):
            part = data[start : start + size]
            await self._write(direction, part)
            await asyncio.sleep(len(part) / rule.bytes_per_s if is_drip else 0)

    async def _pass(self, direction: Direction, payload: bytes) -> None:
        await self._write(direction, self._wire(direction, payload))

    def _wire(self, direction: Direction, payload: bytes) -> bytes:
        return payload if direction in self._raw else struct.pack(">i", len(payload)) + payload

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
