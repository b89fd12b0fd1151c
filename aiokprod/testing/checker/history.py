"""The two histories that are compared: the records sent with their outcomes, and the records in the log. Values only.

A record is known by its identity: the part of the value (or key, or a header) that a test can find again in the log.
Sends are kept in the order of the calls; that order is what a partition's log must show.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Outcome(StrEnum):
    """The outcome of a record as the producer reported it."""

    DELIVERED = "delivered"
    NOT_PERSISTED = "not persisted"
    POSSIBLY_PERSISTED = "possibly persisted"


@dataclass(slots=True, eq=False)
class Sent:
    """One call of `send`, and its outcome.

    Attributes:
        identity: finds the record in the log; one for each send.
        partition: where it was sent or acknowledged; None as long as it is unknown.
        session: the producer, if a test has several; order is guaranteed within one.
        outcome: the last one reported; None: none yet.
        offset: the acknowledged offset; None also for a record delivered at an offset that no broker named.
        settled: how often an outcome was reported.
        sent_at, settled_at, due_at: seconds by one clock; due_at None: whenever.
    """

    identity: Hashable
    topic: str
    partition: int | None = None
    session: Hashable = 0
    outcome: Outcome | None = None
    offset: int | None = None
    settled: int = 0
    sent_at: float = 0.0
    settled_at: float = 0.0
    due_at: float | None = None
    error: str = ""

    def __str__(self) -> str:
        place = "" if self.offset is None else f" at offset {self.offset}"
        why = f" ({self.error})" if self.error else ""
        told = "unsettled" if self.outcome is None else f"{self.outcome}{place}"
        where = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        return f"record {self.identity!r} to {where}, {told}{why}"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record in the log."""

    topic: str
    partition: int
    offset: int
    identity: Hashable


class Kind(StrEnum):
    """The kinds of findings."""

    LOST = "lost"  # reported as delivered, not in the log
    GHOST = "ghost"  # in the log, never sent
    DUPLICATE = "duplicate"  # in the log more than once
    REORDERED = "reordered"  # in the log before a record that was sent earlier
    WRONG_OFFSET = "wrong offset"  # in the log at another offset than reported
    WRONG_PERSISTENCE = "wrong persistence"  # told certainly not there, is there
    UNRESOLVED = "unresolved"  # nothing was told
    SETTLED_TWICE = "settled twice"
    LATE = "late"
    LEAKED_MEMORY = "leaked memory"
    LEAKED_TASKS = "leaked tasks"
    LEAKED_THREADS = "leaked threads"
    LEAKED_SOCKETS = "leaked sockets"
    STORM = "storm"  # too many requests or connections at once
    STALL = "stall"  # the event loop did not turn
    ABORTED_READ = "aborted record read"  # read as committed, and its transaction was told aborted
    TORN = "torn transaction"  # some of its records are read as committed, and others are not
    COMMITTED_WITH_FAILURE = "committed with a failure"  # a record of it failed, and it was told committed
    DIRTY_OFFSET = "dirty offset"  # a committed offset of a transaction that was not committed
    LOST_OFFSET = "lost offset"  # a transaction was told committed, and its offset is not there


@dataclass(frozen=True, slots=True)
class Finding:
    """One error that a check has found."""

    kind: Kind
    text: str
    identity: Hashable = None
    topic: str | None = None
    partition: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class _Stored(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def value(self) -> bytes | None: ...


def first_word(value: bytes | None) -> Hashable:
    """Return the value up to its first space."""
    return None if value is None else value.split(b" ", 1)[0]


def log_of(records: Iterable[_Stored], identity_of: Callable[[bytes | None], Hashable] = first_word) -> list[LogRecord]:
    """Return the log of a `MockCluster` (`cluster.records()`) or of a `Reader`, each record by its identity.

    `identity_of` gets the value. Within a partition the order is the log's.
    """
    return [LogRecord(record.topic, record.partition, record.offset, identity_of(record.value)) for record in records]
