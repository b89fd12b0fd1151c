"""Counters of a cluster: requests by broker and API, records and bytes appended, refusals by code.

One `Counters` per cluster, written by its brokers on the loop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiokprod.testing.mock.partition import Appended, AppendOutcome

REQUESTS_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """One request as it was taken from its connection."""

    broker: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    size_bytes: int
    connection: int
    """Which connection of the broker, counted from 1."""


class Counters:
    """Totals since the cluster was made."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[int, int]] = Counter()
        """By (broker, API key)."""
        self.recent: deque[RequestSeen] = deque(maxlen=REQUESTS_KEPT)
        self.refusals: Counter[int] = Counter()
        self.connections: Counter[int] = Counter()
        """Accepted, by broker."""
        self.records_appended = 0
        self.batches_appended = 0
        self.bytes_appended = 0
        self.duplicates = 0
        self.crashes: list[Exception] = []
        """What handlers and callables of tests raised; a sound test leaves it empty."""
        self.watchers: set[Callable[[], None]] = set()

    def saw(self, request: RequestSeen) -> None:
        """Count a request that is about to be served."""
        self.requests[request.broker, request.api_key] += 1
        self.recent.append(request)
        for watcher in tuple(self.watchers):
            watcher()

    def appended(self, outcome: AppendOutcome, size_bytes: int) -> None:
        """Count a batch that was accepted or refused."""
        if not isinstance(outcome, Appended):
            self.refusals[int(outcome.code)] += 1
        elif outcome.is_duplicate:
            self.duplicates += 1
        else:
            self.batches_appended += 1
            self.records_appended += outcome.next_offset - outcome.base_offset
            self.bytes_appended += size_bytes

    def seen(self, api_key: int, broker: int | None = None) -> int:
        """Return the number of requests of this API, at one broker or all."""
        if broker is not None:
            return self.requests[broker, api_key]
        return sum(count for (_, key), count in self.requests.items() if key == api_key)
