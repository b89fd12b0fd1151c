"""How one frame becomes one answer: header, version, authentication, fault script, handler, encoding.

Called by a connection for each frame. `serve` returns the `Reply` if it is there at once, else a `Pause`: something to
wait for, which ends in a `Reply` or another `Pause`. What makes the broker close or fall silent is raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast, runtime_checkable

from aiokprod.wire.frames import API_VERSIONS, RequestHeader, decode_request_header, encode_response

from .counters import RequestSeen
from .faults import Answer, Delay, Drop, Hold, RequestAction, Run, Throttle
from .handlers import APIS
from .handlers.api import AnyApi, BoundRequest, Call, HangUpError, Message, Outcome, Waits
from .handlers.api_versions import version_unknown
from .handlers.sasl import raw_token

if TYPE_CHECKING:
    from .connection import MockConnection

FLEXIBLE_FROM: Final = {api.key: api.flexible_from for api in APIS.values()}


@runtime_checkable
class Throttled(Protocol):
    """An answer that can name a throttle; nearly all can."""

    throttle_time_ms: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The bytes to write, if any, and how long the channel is muted afterwards."""

    frame: bytes | None
    mute_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """The answer is not there yet."""

    wait: Callable[[], Awaitable[Step]]


Step: TypeAlias = Reply | Pause


@dataclass(frozen=True, slots=True)
class _Served:
    """A request in the hands of its API."""

    call: Call
    header: RequestHeader
    api: AnyApi
    bound: BoundRequest


def serve(connection: MockConnection, frame: bytes) -> Step:
    """Serve one frame. Raises HangUpError, SilenceError, ProtocolError."""
    broker = connection.broker
    if connection.gate.wants_raw_token:
        call = Call(broker, connection, -1, 0, None)
        token = raw_token(call, frame)
        return Reply(len(token).to_bytes(4, "big") + token)
    header = decode_request_header(frame, FLEXIBLE_FROM)
    broker.counters.saw(
        RequestSeen(
            broker.node_id,
            header.api_key,
            header.version,
            header.correlation_id,
            header.client_id,
            len(frame),
            connection.number,
        )
    )
    api = APIS.get(header.api_key)
    offered = broker.advertised.get(header.api_key)
    if api is None or offered is None:
        raise HangUpError(f"API {header.api_key} is not offered")
    lowest, highest = offered
    if not lowest <= header.version <= highest and header.api_key == API_VERSIONS:
        return Reply(encode_response(header.correlation_id, False, version_unknown(lowest, highest).encode(0)))
    if not max(lowest, api.min_version) <= header.version <= min(highest, api.max_version):
        raise HangUpError(f"version {header.version} of API {header.api_key} is not offered")  # broker: 13.6
    if not connection.gate.lets(header.api_key, broker.monotonic()):
        raise HangUpError(f"API {header.api_key} before authentication")
    call = Call(broker, connection, header.api_key, header.version, header.client_id)
    served = _Served(call, header, api, api.bind(call, header.body))
    faults = broker.faults
    if faults and faults.has_request_rules(api.key):
        action = faults.for_request(api.key, broker.node_id, served.bound.items())
        if action is not None:
            return _scripted(served, action)
    return _finish(served, served.bound.handle())


def _finish(served: _Served, outcome: Outcome, mute_ms: int = 0) -> Step:
    if isinstance(outcome, Waits):
        begin = outcome.begin

        async def wait() -> Step:
            return _encode(served, await begin(), mute_ms)

        return Pause(wait)
    return _encode(served, outcome, mute_ms)


def _encode(served: _Served, message: Message | bytes | None, mute_ms: int = 0) -> Reply:
    if message is None:
        return Reply(None, mute_ms / 1000)
    version = served.header.version
    if isinstance(message, bytes):
        body = message
    else:
        if mute_ms and isinstance(message, Throttled):
            message.throttle_time_ms = mute_ms
        body = message.encode(version)
    flexible = served.api.key != API_VERSIONS and version >= served.api.flexible_from
    return Reply(encode_response(served.header.correlation_id, flexible, body), mute_ms / 1000)


def _scripted(served: _Served, action: RequestAction) -> Step:
    bound = served.bound
    match action:
        case Run(call):
            call()
            return _finish(served, bound.handle())
        case Throttle(milliseconds):
            return _finish(served, bound.handle(), milliseconds)
        case Answer(make):
            # The door where a test's callable comes in: it may return a message, body bytes, or None for silence.
            return _encode(served, cast("Message | bytes | None", make(bound.request, served.header.version)))
        case Drop(after_append):
            if after_append:
                bound.handle()
            raise HangUpError("the fault script drops the answer")
        case Delay(seconds, before_serving):
            return _held_back(served, lambda: asyncio.sleep(seconds), before_serving)
        case Hold(before_serving, released):
            return _held_back(served, released.wait, before_serving)


def _held_back(served: _Served, until: Callable[[], Awaitable[object]], before_serving: bool) -> Step:
    if before_serving:

        async def serve_later() -> Step:
            await until()
            return _finish(served, served.bound.handle())

        return Pause(serve_later)
    step = _finish(served, served.bound.handle())

    async def answer_later() -> Step:
        nonlocal step
        while isinstance(step, Pause):
            step = await step.wait()
        await until()
        return step

    return Pause(answer_later)
