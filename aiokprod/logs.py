"""Logging in one grammar: who: OLD -> NEW because. Rate-limited; nothing of record content, no secrets.

`StateLog` writes the lines of one thing (a producer, a broker connection). A line that repeats within `QUIET_S` is
counted, and the count is told with the next one that is let through.
"""

from __future__ import annotations

import logging
from time import monotonic

from aiokprod.errors import AiokprodError

QUIET_S = 5.0
TEXT_LIMIT = 300
KINDS_LIMIT = 256  # kinds of lines that are remembered

logging.getLogger("aiokprod").addHandler(logging.NullHandler())


def printable(text: object, limit: int = TEXT_LIMIT) -> str:
    """A text from outside, safe in a log line: control characters escaped, at most `limit` characters (faults: H14)."""
    raw = str(text)
    cut = raw[:limit]
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)
    return shown + ("..." if len(raw) > limit else "")


class RateLimiter:
    """Lets the first line of a kind through, then one each `quiet_s`, and counts the others."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._kinds: dict[str, tuple[float, int]] = {}

    def pass_on(self, kind: str, now: float, count: int = 1) -> str | None:
        """What to append to the line; None: say nothing now."""
        last, held = self._kinds.get(kind, (float("-inf"), 0))
        if now - last < self._quiet_s:
            self._kinds[kind] = (last, held + count)
            return None
        if len(self._kinds) >= KINDS_LIMIT:
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        return f" (repeated {held} times in {now - last:.0f} s)" if held else ""


class StateLog:
    """The lines of one thing."""

    def __init__(
        self, who: str, *, client_id: str | None = None, broker: int | str | None = None, name: str = "aiokprod"
    ) -> None:
        self.who = who
        self.last_error: str | None = None
        self.last_error_at = 0.0  # monotonic seconds
        self._logger = logging.getLogger(name)
        self._limiter = RateLimiter()
        self._extra = {
            "kafka_client_id": client_id, "kafka_broker": broker, "kafka_topic": None, "kafka_partition": None,
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
        """Records failed and nobody waited for them."""
        kind = f"{type(error).__name__} {error.topic}"
        self._remember(f"{type(error).__name__}: {printable(error)}")
        told = self._limiter.pass_on(kind, monotonic(), count)
        if told is not None:
            extra = {
                **self._extra, "kafka_topic": error.topic, "kafka_partition": error.partition,
                "kafka_error": type(error).__name__,
            }  # fmt: skip
            self._logger.error(
                "%s: %d records failed that nobody waited for: %s%s",
                self.who,
                count,
                self.last_error,
                told,
                extra=extra,
            )

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
