"""`OutageLines`: the log lines about brokers that cannot be used, and about the end of that. One per start of a client.

When all brokers are away, there is one line, about the metadata: its error names every address. The dials that fail meanwhile
have no lines. While other brokers are connected, a broker that cannot be used has a line of its own. Each line is repeated
after 5, 10, 20 and 40 seconds, and then each minute; another line says when the trouble is over.
"""

from __future__ import annotations

from typing import Final

from aiokprod.errors import AiokprodError
from aiokprod.logs import Pace, StateLog

MOST: Final = 256
"""Brokers whose failures are kept apart: an answer may name thousands (`# faults: H16`). Later ones share a pace."""
NAMED: Final = 3
"""Lines about brokers that the same answer may lead to; the other brokers share one line."""
OTHERS: Final = -(2**40)
"""The key of all brokers beyond `MOST`."""


class Failures:
    """The failures of one broker, or of the metadata."""

    __slots__ = ("has_line", "pace", "since")

    def __init__(self) -> None:
        self.pace = Pace()  # kept when a dial succeeds: a broker that comes and goes has no line each time
        self.since: float | None = None  # when the first one since the last success came; None: there was none
        self.has_line = False  # the log has one about the failures since then

    def ended(self, now: float) -> float | None:
        """Note a success. Return when the failures began, if the log has a line about them; else None."""
        since = self.since if self.has_line else None
        self.pace.ended(now)
        self.since, self.has_line = None, False
        return since

    def __repr__(self) -> str:
        return f"<Failures since {self.since}, {self.pace}>"


class OutageLines:
    """The lines of one client; `log`: of its cluster. Times are those of the loop."""

    def __init__(self, log: StateLog) -> None:
        self._log = log
        self._metadata: dict[str, Failures] = {}  # by the name of the error
        self._dials: dict[int, Failures] = {}
        self._without_line: dict[int, str] = {}  # dials that have failed while no broker was connected

    # ------------------------------------------------------------------ metadata
    def metadata_failed(self, error: AiokprodError, now: float) -> None:
        """Write that the metadata could not be refreshed."""
        self._without_line.clear()  # the error names them
        name = type(error).__name__
        failures = self._metadata.get(name)
        if failures is None:
            failures = self._metadata[name] = Failures()
        text = f"metadata could not be refreshed: {error}"
        self._tell(failures, text, now, None)

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
        for node, text in without_line[:NAMED]:
            self._dial_failed(node, text, now)
        if len(without_line) > NAMED:
            self._dial_failed(
                OTHERS, f"{len(without_line) - NAMED} more brokers cannot be used; {without_line[-1][1]}", now
            )

    # ------------------------------------------------------------------ dials
    def dial_failed(self, node: int, error: AiokprodError, now: float, *, is_alone: bool) -> None:
        """Write that a broker cannot be used.

        Args:
            node: its id; negative: a bootstrap server, which has no id yet, and whose address the error names.
            error: why.
            now: the time.
            is_alone: no other broker is connected.
        """
        text = f"{_name(node)} cannot be used: {error}"
        if is_alone:
            self._log.remembered(text)
            if len(self._without_line) < MOST:
                self._without_line[node] = text
        else:
            self._dial_failed(node, text, now)

    def _dial_failed(self, node: int, text: str, now: float) -> None:
        if node not in self._dials and len(self._dials) >= MOST:
            node = OTHERS
        failures = self._dials.get(node)
        if failures is None:
            failures = self._dials[node] = Failures()
        self._tell(failures, text, now, node)

    def dial_succeeded(self, node: int, now: float) -> None:
        """Write that a broker can be used again, if the log has a line that it could not."""
        self._without_line.pop(node, None)
        failures = self._dials.get(node)
        if failures is not None and failures.since is not None:
            since = failures.ended(now)
            if since is not None:
                self._log.announced(f"{_name(node)} can be used again, after {now - since:.1f} s", broker=node)

    def _tell(self, failures: Failures, text: str, now: float, node: int | None) -> None:
        if failures.since is None:
            failures.since = now
        held = failures.pace.passes(now)
        if held is None:
            self._log.remembered(text)
        else:
            failures.has_line = True
            self._log.warned_now(text + held, broker=node)

    def __repr__(self) -> str:
        return f"<OutageLines {len(self._metadata)} of metadata, {len(self._dials)} of brokers>"


def _name(node: int) -> str:
    return f"broker {node}" if node >= 0 else "a bootstrap server"
