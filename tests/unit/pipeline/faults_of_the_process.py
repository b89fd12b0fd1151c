"""Faults that come from the process and not from a broker: an exception between any two lines of the library, the end of the
stack, and the garbage collector at work in the middle of a call.

    for fault in each_fault(KeyboardInterrupt):       every line of what runs inside, one after the other
        with fault:
            producer.send("t", b"v")
        ...                                            what must hold after it

`OneFault` raises at one point of the pure sources: when a function is entered, before a line, or when it returns. The compiled
form has no such points. `with_frames_left` comes to the end of the stack, which also lets the handlers of the exception fail;
`collecting` lets finalizers run wherever the interpreter lets the collector run. `Books` says what must hold afterwards.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

import aiokprod
from aiokprod import Delivery, Producer, ProducerState
from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster

SOURCES: Final = str(Path(aiokprod.__file__).parent)
OF_THE_TESTS: Final = str(Path(aiokprod.__file__).parent / "testing")
KINDS: Final[tuple[type[BaseException], ...]] = (KeyboardInterrupt, RecursionError, MemoryError)
"""What comes between any two lines: a signal handler's, the end of the stack, the end of the memory."""
MOST_POINTS: Final = 5_000
SUSPENDS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class OneFault:
    """Raises one exception at one point of the library's sources, inside `with`, and swallows it where it comes out."""

    def __init__(self, at: int, kind: type[BaseException], inside: str = "") -> None:
        """Make it.

        Args:
            at: the number of the point, from 0.
            kind: of the exception.
            inside: the name of a function, with its class: points are counted while it is being called. Empty: all are.
        """
        self.at = at
        self.place = ""
        """Where it struck: file, line and event; empty before."""
        self.came_out = False
        """The exception left the block."""
        self._kind = kind
        self._inside = inside
        self._entered: FrameType | None = None
        self._seen = 0
        self._before: Any = None

    @property
    def has_struck(self) -> bool:
        return bool(self.place)

    def __enter__(self) -> OneFault:
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        sys.settrace(self._before)
        self.came_out = self.has_struck and kind is not None
        return self.came_out

    def _called(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(SOURCES) or name.startswith(OF_THE_TESTS):
            return None
        if self._inside and self._entered is None:
            if frame.f_code.co_qualname != self._inside:
                return self._stepped
            self._entered = frame
        self._point(frame, event)
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, argument: object) -> Any:
        if event != "exception" and (not self._inside or self._entered is not None):
            if event == "return" and frame.f_code.co_flags & SUSPENDS:
                return (
                    self._stepped
                )  # mostly it waits, where nothing can come between; raised there, its handlers do not run
            if event == "return" and frame is self._entered:
                self._entered = None
            self._point(frame, event)
        return self._stepped

    def _point(self, frame: FrameType, event: str) -> None:
        seen, self._seen = self._seen, self._seen + 1
        if seen == self.at:
            # Python takes the trace function away when it raises, so there is no second one.
            self.place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {event}"
            raise self._kind(f"at {self.place}")

    def __repr__(self) -> str:
        return f"<{self._kind.__name__} {self.at} at {self.place}>"


def each_fault(kind: type[BaseException], inside: str = "") -> Iterator[OneFault]:
    """Yield a fault for each point of what runs inside it, until one does not strike any more: then all were played."""
    for at in range(MOST_POINTS):
        fault = OneFault(at, kind, inside)
        yield fault
        if not fault.has_struck:
            assert at, "nothing of the library has run"
            return
    raise AssertionError("what runs inside does not come to an end")


def with_frames_left(frames: int, call: Callable[[], object]) -> None:
    """Call it so deep in the stack that so many frames are left, of Python or of C."""

    def down(left: int) -> None:
        if left <= 0:
            call()
        else:
            down(left - 1)

    here, frame = 0, sys._getframe()
    walked: FrameType | None = frame
    while walked is not None:
        here, walked = here + 1, walked.f_back
    down(sys.getrecursionlimit() - here - frames)


@contextmanager
def collecting(every: int = 1) -> Iterator[None]:
    """Let the collector run after so many new objects, wherever it may."""
    before, was_on = gc.get_threshold(), gc.isenabled()
    gc.collect()
    gc.enable()
    gc.set_threshold(every, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not was_on:
            gc.disable()


class Collected:
    """Garbage that only the collector finds, and that calls something when it does."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.me = self

    def __del__(self) -> None:
        self.call()


class Books:
    """The records that a producer was given, and the promises that hold whatever came between two lines."""

    def __init__(self, cluster: MockCluster, producer: Producer, topic: str = "t") -> None:
        self.cluster = cluster
        self.producer = producer
        self.topic = topic
        self.sent: dict[bytes, Delivery] = {}
        self.refused: set[bytes] = set()
        """Values whose `send` raised: taken or not, they are in the log once at most."""
        self.taken = 0
        """How many records were sent."""
        self._number = 0

    def value(self) -> bytes:
        """Return a value that no other record has."""
        self._number += 1
        return b"%d" % self._number

    def send(self, **options: Any) -> Delivery:
        """Send a record that must be taken."""
        value = self.value()
        delivery = self.sent[value] = self.producer.send(self.topic, value, **options)
        self.taken += 1
        return delivery

    async def check(self, why: object = "", within_s: float = 300.0) -> None:
        """Flush, and check every promise.

        Each record is acknowledged, and in the log once, at its offset; what was refused is there once at most. No byte, no
        flush, no parked record and no mark is left, and the producer works.
        """
        note = f"after {why}"
        try:
            async with asyncio.timeout(within_s):
                await self.producer.flush()
        except TimeoutError:
            raise AssertionError(f"flush() hangs {note}") from None
        log = self.cluster.records(self.topic)
        values = [record.value for record in log]
        places = {(record.partition, record.offset): record.value for record in log}
        for value, delivery in self.sent.items():
            assert delivery.done(), f"{value!r} has no outcome {note}: {delivery.explain()}"
            error = delivery.exception()
            if error is None:
                metadata = delivery.result()
                assert metadata.offset is not None
                there = places.get((metadata.partition, metadata.offset))
                assert there == value, f"{value!r} is acknowledged at {metadata.offset}, where {there!r} is, {note}"
                assert values.count(value) == 1, f"{value!r} is in the log {values.count(value)} times {note}"
            else:
                assert isinstance(error, AiokprodError)
                raise AssertionError(f"{value!r} failed {note}: {error!r}") from error
        for value in self.refused:
            assert values.count(value) <= 1, f"{value!r} is in the log {values.count(value)} times {note}"
        self.sent.clear()
        self._check_state(note)

    def _check_state(self, note: str) -> None:
        pipeline = self.producer._pipeline
        assert pipeline is not None
        assert pipeline.failure is None, f"the producer has failed {note}: {pipeline.failure!r}"
        parking, gate = pipeline.parking, pipeline.parking.gate
        state = self.producer.health().state
        assert state is ProducerState.READY, f"{state} {note}"
        assert gate.used_bytes == 0, f"{gate.used_bytes} bytes are charged {note}"
        assert (gate.waiting_bytes, gate.waiting_count, gate.reserved_bytes) == (0, 0, 0), f"{gate} {note}"
        pending = pipeline.context.flushes._pending
        assert not any(pending.values()), f"{pending} {note}"
        assert parking.parked_for_topics == 0 and not parking.parked_counts(), f"parked records {note}"
        assert pipeline.context.effects.depth == 0, f"a mark was left {note}"
