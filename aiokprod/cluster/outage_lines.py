"""`OutageLines`: the log lines about brokers that cannot be used, and about the end of that. One per start of a client.

When all brokers are away, there is one line, about the metadata: its error names every address. The dials that fail meanwhile
have no lines. While other brokers are connected, a broker that cannot be used has a line of its own. Each line is repeated
after 5, 10, 20 and 40 seconds, and then each minute; another line says when the trouble is over.

One attempt that fails for less than a second has no line, if another one may succeed: a broker that has just been restarted
refuses a dial or two.
"""

from __future__ import annotations

from math import inf
from typing import Final

from aiokprod.errors import AiokprodError, BootstrapError, ConnectionLostError
from aiokprod.logs import Pace, StateLog

MOST: Final = 256
"""Brokers whose failures are kept apart: an answer may name thousands (`# faults: H16`). Later ones share a pace."""
NAMED: Final = 3
"""Lines about brokers that the same answer may lead to; the other brokers share one line."""
SECOND: Final = 2
"""Failures in a row that lead to a line."""
LASTS_S: Final = 1.0
"""Seconds since the beginning of the first attempt after which one failure leads to a line."""
TOGETHER_S: Final = 0.02
"""Failures so close to each other are those of several connections to one broker, and count as one."""
FORGOTTEN_S: Final = 60.0
"""Seconds after a failure without a line in which it counts."""
OTHERS: Final = -(2**40)
"""The key of all brokers beyond `MOST`."""


class Failures:
    """The failures of one broker, or of the metadata."""

    __slots__ = ("count", "has_line", "last_at", "pace", "since")

    def __init__(self) -> None:
        self.pace = Pace()  # kept when a dial succeeds: a broker that comes and goes has no line each time
        self.since: float | None = (
            None  # when the first attempt that failed since the last success began; None: there was none
        )
        self.count = 0  # since then
        self.last_at = -inf
        self.has_line = False  # the log has one about the failures since then

    def again(self, began: float, now: float) -> None:
        """Note one more, of an attempt that began then."""
        is_old = not self.has_line and now - self.last_at >= FORGOTTEN_S
        if self.since is None or is_old:
            self.since, self.count = began, 0
        if now - self.last_at >= TOGETHER_S:
            self.count += 1
        self.last_at = now

    def is_due(self, now: float) -> bool:
        """Return whether it is more than one attempt that failed for a moment."""
        return self.count >= SECOND or (self.since is not None and now - self.since >= LASTS_S)

    def ended(self, now: float) -> float | None:
        """Note a success. Return when the failures began, if the log has a line about them; else None."""
        since = self.since if self.has_line else None
        self.pace.ended(now)
        self.since, self.has_line, self.count = None, False, 0
        return since

    def __repr__(self) -> str:
        return f"<Failures since {self.since}, {self.pace}>"


class OutageLines:
    """The lines of one client; `log`: of its cluster. Times are those of the loop."""

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._metadata: dict[str, Failures] = {}  # by the name of the error
        self._dials: dict[int, Failures] = {}
        self._without_line: dict[
            int, tuple[str, AiokprodError]
        ] = {}  # dials that have failed while no broker was connected

    # ------------------------------------------------------------------ metadata
    def metadata_failed(self, error: AiokprodError, began: float, now: float) -> None:
        """Write that the metadata could not be refreshed, by an attempt that began then."""
        self._without_line.clear()  # the error names them
        name = type(error).__name__
        failures = self._metadata.get(name)
        if failures is None:
            failures = self._metadata[name] = Failures()
        text = f"metadata could not be refreshed: {error}"
        failures.again(began, now)
        self._tell(failures, text, now, None, may_pass=_may_pass(error))

    def metadata_came(self, now: float) -> None:
        """Write that the cluster answers again, if the log has a line that it did not."""
        since: list[float] = []
        for failures in self._metadata.values():
            began = failures.ended(now) if failures.since is not None else None
            if began is not None:
                since.append(began)
        if since:
            self._log.announced(f"metadata can be refreshed again, after {now - min(since):.1f} s")
        without_line, self._without_line = list(self._without_line.items()), {}
        for node, (text, error) in without_line[:NAMED]:
            self._tell(self._failures(node), text, now, node, may_pass=node >= 0 and _may_pass(error))
        if len(without_line) > NAMED:
            last, error = without_line[-1][1]
            text = f"{len(without_line) - NAMED} more brokers cannot be used; {last}"
            others = self._failures(OTHERS)
            others.again(now, now)
            self._tell(others, text, now, OTHERS, may_pass=False)

    # ------------------------------------------------------------------ dials
    def dial_failed(self, node: int, error: AiokprodError, began: float, now: float, *, is_alone: bool) -> None:
        """Write that a broker cannot be used.

        Args:
            node: its id; negative: a bootstrap server, which has no id yet, and whose address the error names.
            error: why.
            began: when the attempt began.
            now: the time.
            is_alone: no other broker is connected.
        """
        text = f"{_name(node)} cannot be used: {error}"
        if is_alone:
            self._log.remembered(text)
            if len(self._without_line) < MOST:
                self._without_line[node] = text, error
        failures = self._failures(node)
        failures.again(began, now)
        if not is_alone:
            # A bootstrap server is dialed once, if another one answers.
            self._tell(failures, text, now, node, may_pass=node >= 0 and _may_pass(error))

    def _failures(self, node: int) -> Failures:
        if node not in self._dials and len(self._dials) >= MOST:
            node = OTHERS
        failures = self._dials.get(node)
        if failures is None:
            failures = self._dials[node] = Failures()
        return failures

    def dial_succeeded(self, node: int, now: float) -> None:
        """Write that a broker can be used again, if the log has a line that it could not."""
        self._without_line.pop(node, None)
        failures = self._dials.get(node)
        if failures is not None and failures.since is not None:
            since = failures.ended(now)
            if since is not None:
                self._log.announced(f"{_name(node)} can be used again, after {now - since:.1f} s", broker=node)

    def _tell(self, failures: Failures, text: str, now: float, node: int | None, *, may_pass: bool) -> None:
        held = None if may_pass and not failures.is_due(now) else failures.pace.passes(now)
        if held is None:
            self._log.remembered(text)
        else:
            failures.has_line = True
            self._log.warned_now(text + held, broker=node)

    def __repr__(self) -> str:
        return f"<OutageLines {len(self._metadata)} of metadata, {len(self._dials)} of brokers>"


def _may_pass(error: AiokprodError) -> bool:
    """Return whether the next attempt may succeed without a change: nothing answers, or it hangs up."""
    if isinstance(error, BootstrapError):
        return all(isinstance(cause, ConnectionLostError) for _, _, cause in error.tried)
    return isinstance(error, ConnectionLostError)


def _name(node: int) -> str:
    return f"broker {node}" if node >= 0 else "a bootstrap server"
