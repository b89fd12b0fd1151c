"""`Effects`: what state changes lead to, done after them, in one place. One per pipeline.

    begin -> a state change finishes its books; what it leads to is noted (`later`, `room_is_free`) -> end -> effects

A state change (a ledger's actions carried out, an answer judged, metadata learnt, a parked record failed) stands between
`begin` and `end`. The outermost `end` runs the effects, first in, first out: chasers are sent, identities are asked for,
failures are logged and reported, and last of all the gate grants the bytes that came free. An effect may change state
itself; what that leads to goes to the end of the same line. So nothing happens inside a loop over our own state: bytes that
come free while a ledger's actions are carried out cannot admit a record into the batch that these actions settle.

What may be called at once, inside a state change: whatever only schedules (`loop.call_soon`, a timer queue, the ready set of an
aggregator, a future's result). What may not: a grant of the gate, an append of a waiting record, another event of a ledger, a
write to a connection, a log line or a hook of the user (a log handler may call `send`). Where `is_guarded` is on, as in our
tests, `check_outside` fails on such a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import ClassVar

from aiokprod.forms import mypyc_attr
from aiokprod.liveness import Stall


@mypyc_attr(native_class=False)
class Guard:
    """The switch of the search for re-entry. On in our tests, off in production: it costs a few calls for each batch."""

    is_on: ClassVar[bool] = False


@mypyc_attr(native_class=False)
class ReentryError(AssertionError):
    """A state change inside another one: a defect of ours."""


class Effects:
    """One phase after each state change."""

    def __init__(self, grant: Callable[[], None], crashed: Callable[[BaseException], None]) -> None:
        """Make the effects; `grant` gives free bytes to what waits for them, `crashed` takes what an effect raises."""
        self.is_guarded = Guard.is_on
        self.room_is_due = False  # bytes came free, or a place in the line: `grant` is called
        self._grant = grant
        self.crashed = crashed  # a bug of ours: everything fails, nothing hangs
        self._line: deque[Callable[[], object]] = deque()
        # State changes under way, one inside the other. Taking a record is one, too, and writes this itself: it has no effects.
        # Above 0 our code is at work: what sends then (a finalizer, a log handler, a hook) interrupts it.
        self.depth = 0
        self._is_running = False
        self._changing = ""  # only while guarded

    def begin(self) -> None:
        """Begin a state change; they may stand inside each other. `end` is called in any case."""
        self.depth += 1

    def end(self) -> None:
        """End a state change; the outermost one is followed by its effects."""
        if self.depth:  # else `recover` has closed all books
            self.depth -= 1
        if not self.depth and not self._is_running and (self.room_is_due or self._line):
            self._run()

    def begin_turn(self) -> None:
        """Take in that the loop calls us, so that nothing of ours is at work: an exception can have left a mark behind.

        KeyboardInterrupt comes between any two lines, also between `begin` and the `try` whose end would be `end`.
        """
        if self.depth and not self._is_running:
            self.depth = 1
            self.end()

    def later(self, effect: Callable[[], object]) -> None:
        """Call this once the state change is over. Only between `begin` and `end`."""
        if self.is_guarded and not self.depth and not self._is_running:
            raise ReentryError("an effect outside of a state change would wait for the next one")
        self._line.append(effect)

    def after(self, effect: Callable[[], object]) -> None:
        """Call this once the state change under way is over; at once if there is none."""
        self.begin()
        self.later(effect)
        self.end()

    def _run(self) -> None:
        try:
            self._is_running = True
            while True:
                if self._line:
                    effect = self._line.popleft()
                elif self.room_is_due:
                    self.room_is_due = False
                    effect = self._grant
                else:
                    return
                try:
                    effect()
                except BaseException as bug:
                    self.crashed(bug)
                    if not isinstance(bug, Exception):
                        raise
        finally:
            self._is_running = False

    def stall(self) -> Stall | None:
        """Return a stall if effects are left in the line between two turns of the loop. Ask from outside of them."""
        if not self._line and not self.room_is_due and not self.depth:
            return None
        what = "what a state change leads to was not carried out"
        return Stall(what, self, self._line[0] if self._line else None, self._catch_up)

    def _catch_up(self) -> None:
        # An exception between `begin` and the `try` behind it (KeyboardInterrupt comes anywhere) leaves the mark of a state
        # change that is over, and all effects would wait for its end.
        self.depth = 0
        if not self._is_running and (self.room_is_due or self._line):
            self._run()

    def recover(self) -> None:
        """Run what is in the line, wherever a step of ours has ended: after a crash no state change is under way any more."""
        self.depth = 0
        self._is_running = False
        self._changing = ""
        if self.room_is_due or self._line:
            self._run()

    # ------------------------------------------------------------------ the guard of the tests
    def entered(self, what: str) -> None:
        """Note that the books of `what` are open; only while guarded."""
        self.check_outside(what)
        self._changing = what

    def left(self) -> None:
        """Note that the books are closed again."""
        self._changing = ""

    def check_outside(self, what: str) -> None:
        """Fail if the books of something are open, where `what` must not happen."""
        if self._changing:
            raise ReentryError(f"{what} inside {self._changing}")

    def __repr__(self) -> str:
        return f"<Effects depth {self.depth}, {len(self._line)} in line, {'room due' if self.room_is_due else 'no room due'}>"
