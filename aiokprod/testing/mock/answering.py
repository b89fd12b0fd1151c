"""The way from a handler's result to the bytes of the answer. Called by `service` and `scripted`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias, cast, runtime_checkable

from aiokprod.testing.faults.apis import PRODUCE
from aiokprod.testing.mock.handlers import APIS
from aiokprod.testing.mock.handlers.api import AnyApi, BoundRequest, Call, Message, Outcome, Waits
from aiokprod.wire.broker_frames import RequestHeader, encode_response
from aiokprod.wire.frames import API_VERSIONS

FLEXIBLE_FROM: Final = {api.key: api.flexible_from for api in APIS.values()}

Change: TypeAlias = Callable[[object, int], object]
"""A test's callable: from an answer and its version to another answer, body bytes, or None for silence."""


@runtime_checkable
class Throttled(Protocol):
    """An answer that can name a throttle; nearly all can."""

    throttle_time_ms: int


class Then(Enum):
    """The further life of the connection after an answer."""

    GO_ON = "go on"
    CLOSE = "close"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class Reply:
    """The bytes to write, if any, how long the channel is muted afterwards, and whether it goes on."""

    frame: bytes | None
    mute_s: float = 0.0
    then: Then = Then.GO_ON


@dataclass(frozen=True, slots=True)
class Pause:
    """An answer that is not there yet."""

    wait: Callable[[], Awaitable[Step]]


Step: TypeAlias = Reply | Pause


@dataclass(frozen=True, slots=True)
class Served:
    """A request in the hands of its API."""

    call: Call
    header: RequestHeader
    api: AnyApi
    bound: BoundRequest
    size_bytes: int
    """Of the frame; what quotas count."""


def answer(served: Served, *, mute_ms: int = 0, change: Change | None = None) -> Step:
    """Carry the request out and answer it."""
    outcome: Outcome = served.bound.handle()
    if isinstance(outcome, Waits):
        begin = outcome.begin

        async def wait() -> Step:
            return encoded(served, await begin(), mute_ms=mute_ms, change=change)

        return Pause(wait)
    return encoded(served, outcome, mute_ms=mute_ms, change=change)


def encoded(served: Served, message: object, *, mute_ms: int = 0, change: Change | None = None) -> Reply:
    """Return a message, body bytes, or None for silence, as a frame."""
    version = served.header.version
    if served.api.key == PRODUCE:
        broker = served.call.broker
        quota_ms = broker.quotas.charge(served.call.client_id, served.size_bytes, broker.monotonic())
        mute_ms = max(mute_ms, quota_ms)
    if message is not None and change is not None:
        message = change(message, version)
    if message is None:
        return Reply(None, mute_ms / 1000)
    if isinstance(message, bytes):
        body = message
    else:
        if mute_ms and isinstance(message, Throttled):
            message.throttle_time_ms = mute_ms
        # The door where a test's callable comes in: what is no message has no encode, and is recorded as a crash.
        body = cast("Message", message).encode(version)
    flexible = served.api.key != API_VERSIONS and version >= served.api.flexible_from
    return Reply(encode_response(served.header.correlation_id, flexible, body), mute_ms / 1000)


async def settled(step: Step) -> Reply:
    """Wait for the reply and return it."""
    while isinstance(step, Pause):
        step = await step.wait()
    return step
