"""Logging in one grammar, `name: OLD -> NEW because reason`, rate-limited; no record content, no secrets.

`StateLog` writes the lines of one object (a producer, a broker connection). A line that repeats within `QUIET_S` is counted,
and the count is added to the next line that passes. Counts of lost records are exact: `tell_held` writes those that were
held back, at the latest when the producer closes.

There is no NullHandler: it would disable Python's handler of last resort, which writes warnings and errors to stderr
where an application has not configured logging. A failure that is not awaited appears there.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from time import monotonic, time
from typing import NamedTuple, TypeAlias

from aiokprod.errors import AiokprodError
from aiokprod.model import Persistence

QUIET_S = 5.0
AGAIN_S = 10.0  # the longest time from the end of a trouble to the first line of the next one like it
LONGEST_QUIET_S = 60.0  # between two lines of one trouble: the quiet time doubles up to it
TEXT_LIMIT = 300
LINE_LIMIT = 800  # of a line with a hint, whose parts are cut already
KINDS_LIMIT = 256  # kinds of lines that are remembered; all others share one


def printable(text: object, limit: int = TEXT_LIMIT) -> str:
    """Make a text from outside safe in a log line: control characters escaped, at most `limit` characters (faults: H14)."""
    try:
        raw = str(text)
    except Exception as broken:  # the `__str__` of a user's exception may raise
        raw = f"<{type(text).__name__} whose text raises {type(broken).__name__}>"
    cut = raw[:limit]
    shown = cut
    if not cut.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return shown + ("..." if len(raw) > limit else "")


class GuardedLogger:
    """A logger that raises nothing: a line is lost if a filter, a handler or a record factory of the application raises.

    The package logs in the middle of its work, and would fail with the line. `SystemExit` and `KeyboardInterrupt` go on, as
    they do from hooks.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def is_enabled_for(self, level: int) -> bool:
        """Return whether a line of this level would be written."""
        return self._logger.isEnabledFor(level)

    def debug(self, text: str, *arguments: object) -> None:
        self.log(logging.DEBUG, text, *arguments)

    def info(self, text: str, *arguments: object) -> None:
        self.log(logging.INFO, text, *arguments)

    def warning(self, text: str, *arguments: object) -> None:
        self.log(logging.WARNING, text, *arguments)

    def error(self, text: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        self.log(logging.ERROR, text, *arguments, exc_info=exc_info)

    def log(
        self,
        level: int,
        text: str,
        *arguments: object,
        extra: Mapping[str, object] | None = None,
        exc_info: BaseException | None = None,
    ) -> None:
        """Write a line, `%`-formatted as with `logging`."""
        try:
            # The record names the module that has something to say, not this one.
            self._logger.log(level, text, *arguments, extra=extra, exc_info=exc_info, stacklevel=3)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:  # also CancelledError, and the outcomes of a test framework
            self._tell_broken()

    @staticmethod
    def _tell_broken() -> None:
        if logging.raiseExceptions and sys.stderr is not None:  # as handlers do with their own errors
            with suppress(Exception):  # it may be closed, or a pipe that nothing reads
                traceback.print_exc()


class Pace:
    """The pace of the lines about one trouble: at once, then after 5, 10, 20, 40 and 60 seconds, and each minute."""

    __slots__ = ("held", "last_at", "next_at", "quiet_s")

    def __init__(self) -> None:
        self.held = 0  # lines since the last one that was written
        self.last_at = -inf
        self.next_at = -inf
        self.quiet_s = QUIET_S

    def passes(self, now: float) -> str | None:
        """Return the text to append to the line; None if the line must not be written now."""
        if now < self.next_at:
            self.held += 1
            return None
        held, since_s = self.held, now - self.last_at
        if since_s > 2 * LONGEST_QUIET_S:
            self.quiet_s = QUIET_S  # it was calm for long
        self.held, self.last_at, self.next_at = 0, now, now + self.quiet_s
        self.quiet_s = min(2 * self.quiet_s, LONGEST_QUIET_S)
        return f" (repeated {held} times in {since_s:.0f} s)" if held else ""

    def ended(self, now: float) -> None:
        """Note that the trouble is over: if it comes back, the next line follows within `AGAIN_S`, and not at once."""
        self.held = 0
        self.soon(now)

    def soon(self, now: float) -> None:
        """Note that there is something new: the next line follows within `AGAIN_S`."""
        self.next_at = min(self.next_at, now + AGAIN_S)

    def __repr__(self) -> str:
        return f"<Pace: {self.held} held, next line at {self.next_at:.1f} s>"


class RateLimiter:
    """A limiter that passes the first line of a kind, then one each `quiet_s`, and counts the others.

    The quiet time of a kind that goes on doubles, up to the time that its lines name. In `quiet_s` at most `KINDS_LIMIT` lines
    pass, and one for all other kinds together: there may be as many kinds as brokers that an answer names (`# faults: H16`).
    """

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._kinds: dict[
            str, tuple[float, int, float]
        ] = {}  # kind -> (time of its last line, lines held since, quiet time until the next); oldest first
        self._others: tuple[float, int] = (-inf, 0)

    def pass_on(self, kind: str, now: float, count: int = 1, longest_s: float = 0.0) -> str | None:
        """Return the text to append to the line; None if the line must not be written now.

        Args:
            kind: of the line.
            now: monotonic seconds.
            count: how many lines this one counts for, if it is held.
            longest_s: up to which the quiet time doubles; it does not if this is less.
        """
        known = self._kinds.get(kind)
        if known is None and len(self._kinds) >= KINDS_LIMIT:
            oldest = next(iter(self._kinds))
            if now - self._kinds[oldest][0] < self._quiet_s:
                return self._pass_on_other(now, count)
            del self._kinds[oldest]
        last, held, quiet_s = known or (-inf, 0, self._quiet_s)
        if now - last < quiet_s:
            self._kinds[kind] = (last, held + count, quiet_s)
            return None
        is_calm = now - last > 2 * max(longest_s, self._quiet_s)
        next_s = self._quiet_s if is_calm else max(self._quiet_s, min(2 * quiet_s, longest_s))
        self._kinds.pop(kind, None)  # inserted again, so that the oldest line stays first
        self._kinds[kind] = (now, 0, next_s)
        return f" (repeated {held} times in {now - last:.0f} s)" if held else ""

    def _pass_on_other(self, now: float, count: int) -> str | None:
        last, held = self._others
        if now - last < self._quiet_s:
            self._others = (last, held + count)
            return None
        self._others = (now, 0)
        return f" (and {held} others like it in {now - last:.0f} s)" if held else ""


class Loss(NamedTuple):
    """Records that failed with one kind of error, as a log line reports them."""

    error: str
    topic: str | None
    partition: int | None
    text: str


LossKind: TypeAlias = tuple[str, str | None, Persistence | None]
"""Losses that share a line: the name of the error, the topic (None: many), and whether the records may be in the log."""


class StateLog:
    """The log lines of one object.

    Args:
        subject: the object, as its lines call it.
        client_id: the client that it belongs to.
        broker: the broker that it belongs to.
        name: the name of the logger.
        limiter: a limiter that many objects share, which bounds their lines together; one of its own if not given.
    """

    def __init__(
        self,
        subject: str,
        *,
        client_id: str | None = None,
        broker: int | str | None = None,
        name: str = "aiokprod",
        limiter: RateLimiter | None = None,
    ) -> None:
        # May hold an address out of a Metadata answer. With the client, as a process may have several producers.
        self.subject = printable(subject if client_id is None else f"{subject} [{client_id}]")
        self.last_error: str | None = None
        self.last_error_at = 0.0  # monotonic seconds
        self.last_error_wall_s = 0.0  # the same moment in seconds since 1970
        self._logger = GuardedLogger(name)
        self._limiter = RateLimiter() if limiter is None else limiter
        self._losses: dict[
            LossKind, tuple[float, int, Loss]
        ] = {}  # time of the last line, records held back since, the first of them
        self.holds_losses = False
        self.is_gathering = False  # all losses are held until `tell_held`: a producer ends, and each has one line then
        self._extra = {
            "kafka_client_id": client_id, "kafka_broker": printable(broker) if isinstance(broker, str) else broker,
            "kafka_topic": None, "kafka_partition": None,
            "kafka_error": None,
        }  # fmt: skip

    def _remember(self, text: str) -> None:
        self.last_error = text
        self.last_error_at = monotonic()
        self.last_error_wall_s = time()

    def moved(self, old: str, new: str, because: object, *, level: int = logging.INFO) -> None:
        """Write `name: OLD -> NEW because reason`."""
        self._write(level, f"{old}>{new}", f"{self.subject}: {old} -> {new} because {printable(because)}", {})

    def warned(self, kind: str, text: object, **facts: object) -> bool:
        """Warn the user; lines of one kind are rate-limited together. Return whether this one was written."""
        self._remember(printable(text))
        return self._write(logging.WARNING, kind, f"{self.subject}: {printable(text)}", facts)

    def warned_now(self, text: object, **facts: object) -> None:
        """Warn the user without a rate limit: the caller has one, a `Pace`."""
        shown = printable(text, LINE_LIMIT)
        self._remember(shown)
        self._emit(logging.WARNING, "%s: %s", self.subject, shown, extra=self._extra_with(facts))

    def announced(self, text: object, **facts: object) -> None:
        """Write a warning that does not become the last error: a change of state, or the end of a trouble.

        The end of a trouble has the level of its beginning: a program that shows only warnings sees both.
        """
        self._emit(logging.WARNING, "%s: %s", self.subject, printable(text, LINE_LIMIT), extra=self._extra_with(facts))

    def remembered(self, text: object) -> None:
        """Keep a text as the last error without a line, as another line has it already."""
        self._remember(printable(text))

    def _extra_with(self, facts: Mapping[str, object]) -> dict[str, object]:
        return {**self._extra, **{f"kafka_{key}": value for key, value in facts.items()}}

    def failed(self, cause: BaseException) -> None:
        """Write that the object failed for good."""
        self._remember(f"{type(cause).__name__}: {printable(cause)}")
        self._emit(logging.ERROR, "%s: FAILED because %s", self.subject, self.last_error, exc_info=cause)

    def records_lost(self, error: AiokprodError, count: int) -> None:
        """Count records that failed and that no caller awaited; the counts of all lines add up once `tell_held` was called."""
        now = monotonic()
        kind = self._kind_of_loss(error, now)
        last_at, held, first = self._losses.get(kind, (-inf, 0, None))
        is_quiet = self.is_gathering or now - last_at < QUIET_S
        if is_quiet and held and first is not None:
            # Only the first error is formatted: thousands may fail in one turn, and formatting costs more than counting.
            self._losses[kind] = (last_at, held + count, first)
            return
        is_shared = kind[1] != error.topic
        text = f"{kind[0]}: {printable(error)}{' (and of other topics)' if is_shared else ''}"
        loss = Loss(kind[0], kind[1], None if is_shared else error.partition, text)
        self._remember(loss.text)
        if is_quiet:
            self._losses[kind] = (last_at, count, loss)
            self.holds_losses = True
            return
        self._losses.pop(kind, None)
        self._losses[kind] = (now, 0, loss)
        self._tell_loss(loss, held + count)

    def _kind_of_loss(self, error: AiokprodError, now: float) -> LossKind:
        """Return the kind, by error, topic and persistence; topics beyond `KINDS_LIMIT` share the kind of their error."""
        kind = (type(error).__name__, error.topic, error.persistence)
        if kind in self._losses or len(self._losses) < KINDS_LIMIT:
            return kind
        oldest, (last_at, held, loss) = next(iter(self._losses.items()))
        if now - last_at < QUIET_S:
            return (kind[0], None, error.persistence)
        del self._losses[oldest]
        if held:
            self._tell_loss(loss, held)
        return kind

    def tell_held(self) -> None:
        """Write the counts of lost records that were held back."""
        self.holds_losses = self.is_gathering = False
        now = monotonic()
        for kind, (_, held, loss) in list(self._losses.items()):
            if held:
                self._losses.pop(kind, None)
                self._losses[kind] = (now, 0, loss)  # the oldest first
                self._tell_loss(loss, held)

    def _tell_loss(self, loss: Loss, count: int) -> None:
        extra = {
            **self._extra, "kafka_topic": loss.topic, "kafka_partition": loss.partition, "kafka_error": loss.error,
        }  # fmt: skip
        text = "%s: %d %s failed that no caller awaited: %s"
        self._emit(
            logging.ERROR, text, self.subject, count, "record" if count == 1 else "records", loss.text, extra=extra
        )

    def lost_with_loop(self, text: str) -> None:
        """Write that a producer was not closed, with its lost records."""
        self._remember(printable(text))
        self._emit(logging.ERROR, "%s: %s", self.subject, self.last_error)

    def healed(self, what: str) -> None:
        """Write that the object stood still by a defect of aiokprod, and was moved on. Callers write each kind once."""
        self._remember(f"a defect of aiokprod: {what}")
        text = (
            "%s: aiokprod has a defect: %s. The producer (client_id %s) has put that right and goes on; neither your"
            " program nor your cluster is at fault. Please report this line to the project, with what happened before it"
        )
        self._emit(logging.ERROR, text, self.subject, what, self._extra["kafka_client_id"])

    def defect(self, step: str, bug: BaseException) -> None:
        """Write that a step raised on which no record depends. Callers write each kind once."""
        self._remember(f"a defect of aiokprod: {step} raised {type(bug).__name__}: {printable(bug)}")
        text = (
            "%s: aiokprod has a defect: %s raised. No record depends on that, and the producer (client_id %s) goes on;"
            " neither your program nor your cluster is at fault. Please report this line to the project, with its traceback"
        )
        self._emit(logging.ERROR, text, self.subject, step, self._extra["kafka_client_id"], exc_info=bug)

    def hook_failed(self, hook: str, error: BaseException) -> None:
        """Write that a hook of the user raised; the exception cannot reach the pipeline."""
        told = self._limiter.pass_on(f"hook {hook}", monotonic())
        if told is not None:
            self._emit(logging.ERROR, "%s: %s raised%s", self.subject, hook, told, exc_info=error)

    def _write(self, level: int, kind: str, line: str, facts: dict[str, object]) -> bool:
        if not self._logger.is_enabled_for(level):
            return False
        longest_s = LONGEST_QUIET_S if level >= logging.WARNING else 0.0
        told = self._limiter.pass_on(f"{self.subject}: {kind}", monotonic(), longest_s=longest_s)
        if told is not None:
            self._emit(level, "%s%s", line, told, extra=self._extra_with(facts))
        return told is not None

    def _emit(
        self,
        level: int,
        text: str,
        *arguments: object,
        extra: Mapping[str, object] | None = None,
        exc_info: BaseException | None = None,
    ) -> None:
        self._logger.log(level, text, *arguments, extra=self._extra if extra is None else extra, exc_info=exc_info)
