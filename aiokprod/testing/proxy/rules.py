"""`ProxyRule`: one fault, and `ActiveRule`: the same fault while it is armed in a `FaultProxy`.

A rule names the frames it is about (api, broker, direction, the n-th) and what becomes of them. It acts once unless
`keep` is set. Rules are asked in the order they were added; once one acts, later ones do not count the frame.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Direction(StrEnum):
    """Which way a frame goes."""

    REQUEST = "request"
    ANSWER = "answer"


class Action(StrEnum):
    """What becomes of a frame that a rule fits."""

    CUT_BEFORE = "cut_before"  # close the connection; the frame is not passed on
    CUT_AFTER = "cut_after"  # pass the frame on, then close; of a request: when its answer has come, which is dropped
    RESET = "reset"  # as CUT_BEFORE, but the client sees a reset (RST) and not an end (FIN)
    HOLD = "hold"  # keep it, and all that follows on this connection, until released
    DELAY = "delay"  # as HOLD, for `delay_s`
    DROP = "drop"  # swallow this frame; the connection goes on
    BLACKHOLE = "blackhole"  # swallow this frame and all that follow this way on this connection, which stays open
    TRUNCATE = "truncate"  # pass `size` bytes of it (length prefix included), then close
    DRIP = "drip"  # pass it at `bytes_per_s`
    RECHUNK = "rechunk"  # pass it one byte per write
    WRONG_CORRELATION = "wrong_correlation"  # change its correlation id
    FLIP = "flip"  # change the byte at `offset`, behind the length prefix; negative: from the end
    DUPLICATE = "duplicate"  # a request: pass it twice, drop the second answer
    ANSWER = "answer"  # a request: do not pass it on; `body` makes the answer
    REWRITE = "rewrite"  # an answer: `body` replaces it
    REFUSE = "refuse"  # a new connection: reset at once


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyFrame:
    """What the proxy knows of a frame. Behind TLS there are chunks instead, with no api."""

    broker: int
    connection: int
    direction: Direction
    api: str | None
    api_key: int
    version: int
    correlation_id: int
    size: int  # bytes, without the length prefix
    at_s: float  # time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyRule:
    """One fault.

    Attributes:
        action: see `Action`; its value as a string will do.
        api: Kafka's name of the request ("Produce"); None fits every frame.
        broker: node id; None fits every broker.
        direction: frames of which way; an answer fits by the request it answers.
        nth: the first frame to act on, counted from when the rule is added, 1 being the next one.
        keep: act on every later fitting frame too, until the rule is removed.
        fits: a further condition on frame and payload (the frame's bytes without length prefix).
        body: for ANSWER and REWRITE: from frame and payload, the answer's body (behind its header).
    """

    action: Action | str
    api: str | None = None
    broker: int | None = None
    direction: Direction | str = Direction.REQUEST
    nth: int = 1
    keep: bool = False
    delay_s: float = 0.0
    size: int = 0
    bytes_per_s: float = 1000.0
    offset: int = -1
    mask: int = 0xFF
    fits: Callable[[ProxyFrame, bytes], bool] | None = None
    body: Callable[[ProxyFrame, bytes], bytes] | None = None

    def __post_init__(self) -> None:
        action, direction = Action(self.action), Direction(self.direction)
        if self.nth < 1:
            raise ValueError(f"nth={self.nth}: the next frame is 1")
        if action in (Action.ANSWER, Action.DUPLICATE) and direction is not Direction.REQUEST:
            raise ValueError(f"{action.value} is for requests")
        if action is Action.REWRITE and direction is not Direction.ANSWER:
            raise ValueError("rewrite is for answers")
        if action in (Action.ANSWER, Action.REWRITE) and self.body is None:
            raise ValueError(f"{action.value} needs body=")
        if action is Action.DRIP and self.bytes_per_s <= 0:
            raise ValueError("drip needs bytes_per_s above 0")
        if action is Action.FLIP and not 0 < self.mask < 256:
            raise ValueError("flip needs a mask of 1 to 255: 0 changes nothing")

    def is_about(self, frame: ProxyFrame, payload: bytes) -> bool:
        """Does the frame fit, whatever its number?"""
        return (
            self.action != Action.REFUSE
            and self.direction == frame.direction
            and self.api in (None, frame.api)
            and self.broker in (None, frame.broker)
            and (self.fits is None or self.fits(frame, payload))
        )


@dataclass(eq=False, slots=True)
class ActiveRule:
    """A rule in force. Its methods may be called from any thread."""

    rule: ProxyRule
    _loop: asyncio.AbstractEventLoop
    _is_armed: bool = True
    _seen: int = 0
    _hits: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)
    _released: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def hits(self) -> int:
        """How many frames (or connections) it has acted on."""
        return self._hits

    @property
    def is_armed(self) -> bool:
        """Will it still act?"""
        return self._is_armed

    def wait_hit(self, hits: int = 1, timeout_s: float = 10.0) -> None:
        """Block this thread until it has acted so often. (On an event loop: `asyncio.to_thread(rule.wait_hit)`.)

        Raises:
            TimeoutError: it has not.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._hits >= hits, timeout_s):
                raise TimeoutError(f"{self._hits} of {hits} hits after {timeout_s} s: {self.rule}")

    def remove(self) -> None:
        """Act no more. What is held stays held until `release`."""
        with self._changed:
            self._is_armed = False

    def release(self) -> None:
        """Act no more, and let go of everything it holds, in order."""
        self.remove()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._released.set)

    async def released(self) -> None:
        """Wait for `release`. For the proxy's own loop."""
        await self._released.wait()

    def takes(self, is_about: bool) -> bool:
        """Count a frame that fits; is it this rule's turn to act?"""
        if not is_about:
            return False
        with self._changed:
            if not self._is_armed:
                return False
            self._seen += 1
            if self._seen < self.rule.nth:
                return False
            self._is_armed = self.rule.keep
            self._hits += 1
            self._changed.notify_all()
            return True
