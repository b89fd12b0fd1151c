"""Logging in one grammar: who: OLD -> NEW because. Rate-limited; nothing of record content, no secrets.

`StateLog` writes the lines of one thing (a producer, a broker connection). A line that repeats within `QUIET_S` is
counted, and the count is told with the next one that is let through. Counts of lost records are exact: what is held back
is told by `tell_held`, at the latest when the producer closes.

There is no NullHandler: it would turn off Python's handler of last resort, which writes warnings and errors to stderr
where an application has not configured logging. A failure that is not awaited shows there.
"""

from __future__ import annotations

import logging
from math import inf
from time import monotonic
from typing import NamedTuple

from aiokprod.errors import AiokprodError

QUIET_S = 5.0
TEXT_LIMIT = 300
KINDS_LIMIT = 256  # kinds of lines that are remembered; those beyond share one


def printable(text: object, limit: int = TEXT_LIMIT) -> str:
    """A text from outside, safe in a log line: control characters escaped, at most `limit` characters (faults: H14)."""
    try:
        raw = str(text)
    except Exception as broken:  # an exception of the user's, say
        raw = f"<{type(text).__name__} whose text raises {type(broken).__name__}>"
    cut = raw[:limit]
    shown = cut
    if not cut.isprintable():
        shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return shown + ("..." if len(raw) > limit else "")


class RateLimiter:
    """Lets the first line of a kind through, then one each `quiet_s`, and counts the others.

    However many kinds there are, `KINDS_LIMIT` lines in `quiet_s` are let through, and one for all the other kinds: kinds
    may be as many as brokers that an answer names (`# faults: H16`).
    """

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._kinds: dict[str, tuple[float, int]] = {}  # the kind of the oldest line first
        self._others: tuple[float, int] = (-inf, 0)

    def pass_on(self, kind: str, now: float, count: int = 1) -> str | None:
        """What to append to the line; None: say nothing now."""
        known = self._kinds.get(kind)
        if known is None and len(self._kinds) >= KINDS_LIMIT:
            oldest = next(iter(self._kinds))
            if now - self._kinds[oldest][0] < self._quiet_s:
                return self._pass_on_other(now, count)
            del self._kinds[oldest]
        last, held = known or (-inf, 0)
        if now - last < self._quiet_s:
            self._kinds[kind] = (last, held + count)
            return None
        self._kinds.pop(kind, None)
        self._kinds[kind] = (now, 0)
        return f" (repeated {held} times in {now - last:.0f} s)" if held else ""

    def _pass_on_other(self, now: float, count: int) -> str | None:
        last, held = self._others
        if now - last < self._quiet_s:
            self._others = (last, held + count)
            return None
        self._others = (now, 0)
        return f" (and {held} others like it in {now - last:.0f} s)" if held else ""


class Loss(NamedTuple):
    """Records that failed, as a log line tells of them."""

    error: str
    topic: str | None
    partition: int | None
    text: str


class StateLog:
    """The lines of one thing."""

    def __init__(
        self, who: str, *, client_id: str | None = None, broker: int | str | None = None, name: str = "aiokprod"
    ) -> None:
        self.who = printable(who)  # an address as Metadata has it
        self.last_error: str | None = None
        self.last_error_at = 0.0  # monotonic seconds
        self._logger = logging.getLogger(name)
        self._limiter = RateLimiter()
        self._losses: dict[
            tuple[str, str | None], tuple[float, int, Loss]
        ] = {}  # told at, held back since, the first of these
        self.holds_losses = False
        self._extra = {
            "kafka_client_id": client_id, "kafka_broker": printable(broker) if isinstance(broker, str) else broker,
            "kafka_topic": None, "kafka_partition": None,
            "kafka_error": None,
        }  # fmt: skip

    def _remember(self, text: str) -> None:
        self.last_error = text
        self.last_error_at = monotonic()

    def moved(self, old: str, new: str, because: object, *, level: int = logging.INFO) -> None:
        """who: OLD -> NEW because"""
        self._write(level, f"{old}>{new}", f"{self.who}: {old} -> {new} because {printable(because)}", {})

    def warned(self, kind: str, text: object, **facts: object) -> None:
        """Something the user should know; lines of one kind are rate-limited together."""
        self._remember(printable(text))
        self._write(logging.WARNING, kind, f"{self.who}: {printable(text)}", facts)

    def failed(self, cause: BaseException) -> None:
        """The thing failed for good."""
        self._remember(f"{type(cause).__name__}: {printable(cause)}")
        self._logger.error("%s: FAILED because %s", self.who, self.last_error, extra=self._extra, exc_info=cause)

    def records_lost(self, error: AiokprodError, count: int) -> None:
        """Records failed that no caller awaited. The counts of all lines add up, once `tell_held` was called."""
        now = monotonic()
        kind = self._kind_of_loss(error, now)
        last_at, held, first = self._losses.get(kind, (-inf, 0, None))
        is_quiet = now - last_at < QUIET_S
        if is_quiet and held and first is not None:
            # The text of the first is told with the count: thousands may fail in one turn, and a text costs more than a count.
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

    def _kind_of_loss(self, error: AiokprodError, now: float) -> tuple[str, str | None]:
        """By error and topic; topics beyond `KINDS_LIMIT` share the kind of their error."""
        kind = (type(error).__name__, error.topic)
        if kind in self._losses or len(self._losses) < KINDS_LIMIT:
            return kind
        oldest, (last_at, held, loss) = next(iter(self._losses.items()))
        if now - last_at < QUIET_S:
            return (kind[0], None)
        del self._losses[oldest]
        if held and loss is not None:
            self._tell_loss(loss, held)
        return kind

    def tell_held(self) -> None:
        """Write the counts of lost records that were held back."""
        self.holds_losses = False
        now = monotonic()
        for kind, (_, held, loss) in list(self._losses.items()):
            if held and loss is not None:
                self._losses.pop(kind, None)
                self._losses[kind] = (now, 0, loss)  # the oldest first
                self._tell_loss(loss, held)

    def _tell_loss(self, loss: Loss, count: int) -> None:
        extra = {
            **self._extra, "kafka_topic": loss.topic, "kafka_partition": loss.partition, "kafka_error": loss.error,
        }  # fmt: skip
        self._logger.error("%s: %d records failed that no caller awaited: %s", self.who, count, loss.text, extra=extra)

    def lost_with_loop(self, text: str) -> None:
        """A producer was not closed."""
        self._remember(printable(text))
        self._logger.error("%s: %s", self.who, self.last_error, extra=self._extra)

    def hook_failed(self, hook: str, error: BaseException) -> None:
        """A hook of the user raised; it cannot raise into the pipeline."""
        told = self._limiter.pass_on(f"hook {hook}", monotonic())
        if told is not None:
            self._logger.error("%s: %s raised%s", self.who, hook, told, extra=self._extra, exc_info=error)

    def _write(self, level: int, kind: str, line: str, facts: dict[str, object]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        told = self._limiter.pass_on(kind, monotonic())
        if told is not None:
            extra = {**self._extra, **{f"kafka_{key}": value for key, value in facts.items()}}
            self._logger.log(level, "%s%s", line, told, extra=extra)
