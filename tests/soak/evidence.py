"""The evidence that a soak leaves, for the verdict and the report. Values only."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from book import Book
from plan import CLASS

from aiokprod.testing.checker import LogRecord


@dataclass(slots=True, kw_only=True)
class Done:
    """A fault that was injected. Times are of the monotonic clock."""

    kind: str
    text: str
    began: float
    healed: float = 0.0  # what we did is undone: the broker starts, the rule is gone
    settled: float = 0.0  # and the cluster is whole again
    met: int | None = None  # how many requests, connections or hosts it met; None: not counted
    client: str = ""  # to which workload it was done
    failure: str | None = None
    is_bug: bool = False  # of the soak itself

    @property
    def is_client(self) -> bool:
        """Return whether a client was hurt, and not the cluster."""
        return CLASS[self.kind] == "client"

    @property
    def hurts_majority(self) -> bool:
        """Return whether a partition may lack a leader that can acknowledge, or all clients a way to any."""
        return self.kind.endswith((" two", " all"))


@dataclass(slots=True, kw_only=True)
class Life:
    """One life of a workload process."""

    name: str
    client: str
    book: Book
    log: str  # what it wrote to standard error
    killed_at: float | None = None  # by the nemesis
    status: int | None = 0  # None: it did not end by itself
    away: list[tuple[float, float]] = field(default_factory=list)  # when we kept its loop from turning

    def away_s(self, begin: float, end: float) -> float:
        """Return for how long of this span we kept its loop from turning."""
        return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in self.away)

    def others_s(self, begin: float, end: float) -> float:
        """Return for how long of this span its loop did not turn, without what it computed itself."""
        return sum(max(0.0, min(end, at) - max(begin, at - late_s) - cpu_s) for at, late_s, cpu_s in self.book.stalls)


@dataclass(slots=True, kw_only=True)
class Evidence:
    """The evidence of a soak."""

    began: float
    ended: float  # of the faults; the drain follows
    lives: list[Life]
    injections: list[Done]
    log: list[LogRecord]
    dials: list[tuple[float, dict[int, int]]] = field(default_factory=list)  # connections taken so far, by broker
    volatile: frozenset[str] = frozenset()
    authentications: int = 0  # of clients that log in
    session_s: float | None = None  # how long a client may stay without logging in again
    uncommitted: int = 0  # records that a reader of committed ones does not get


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong."""

    check: str
    text: str
    place: tuple[str, int] | None = None  # topic and partition

    def __str__(self) -> str:
        return f"{self.check}: {self.text}"


@dataclass(slots=True)
class Verdict:
    """The complaints, and figures that are no judgement."""

    complaints: list[Complaint]
    figures: dict[str, float | str]

    @property
    def is_good(self) -> bool:
        return not self.complaints

    def counts(self) -> Counter[str]:
        """Return how many complaints each check has."""
        return Counter(each.check for each in self.complaints)
