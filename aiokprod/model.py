"""Values that users see: records, states, the report of a close. Plain data; imports nothing else of the package.

The reports that hold errors are in `errors`, beside the errors that hold reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from aiokprod.values import FrozenValue, Value


class Persistence(Enum):
    """The answer to whether a failed record may be in the log."""

    NOT_PERSISTED = "not persisted"
    """The record is certainly not in the log: sending it again is safe."""
    POSSIBLY_PERSISTED = "possibly persisted"
    """Only the log itself can tell: sending the record again may write it twice."""


class InTransaction(Enum):
    """The next step with a transaction, by the error that came in it."""

    CONTINUE = "continue"
    """Nothing: the transaction is as it was, and so is the producer."""
    ABORT = "abort"
    """Abort, then run the whole transaction again, if the cause allows it. A block has aborted it; in the long form call
    `abort_transaction()`, which does no harm where it was aborted already."""
    ASK_AGAIN = "ask again"
    """It is committed, or it is not: call `commit_transaction()` or `abort_transaction()`, until one of them tells."""
    CLOSE = "close"
    """Nothing works with this producer any more: `close()` it."""


class TransactionOutcome(Enum):
    """The end of a transaction."""

    COMMITTED = "committed"
    """All its records and offsets are there for readers of committed records."""
    ABORTED = "aborted"
    """None of them is."""
    UNKNOWN = "unknown"
    """All or none: the coordinator did not say which."""


class TimestampType(Enum):
    """The clock that a record's timestamp comes from."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class Record(Value):
    """A record with every field it can have, for `send_many` and interceptors."""

    value: Any = None
    """bytes, or the argument of `value_serializer`; None is a tombstone"""
    key: Any = None
    """bytes, or the argument of `key_serializer`; None is no key"""
    topic: str | None = None
    """topic name; None is the topic of the call"""
    partition: int | None = None
    """partition number; None lets the partitioner choose"""
    headers: Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None] = ()
    """(name, value) pairs, or a mapping"""
    timestamp_ms: int | None = None
    """milliseconds since 1970; None is the current time"""
    timeout: float | None = None
    """bound for the delivery of this record, in seconds; None leaves `delivery_timeout_ms` alone"""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class CloseReport(FrozenValue):
    """The records that `close` could not deliver."""

    undelivered: dict[tuple[str, int | None, Persistence], int] = field(
        default_factory=dict[tuple[str, int | None, Persistence], int]
    )
    """(topic, partition, persistence) -> number of records that failed while closing"""
    duration_s: float = 0.0
    """how long the close took, in seconds"""
    transaction: TransactionOutcome | None = None
    """how the transaction ended that was open when `close` was called, or when the producer failed; None: none was. ABORTED
    also without an answer of its coordinator, if no commit was asked for: nothing commits it any more"""

    @property
    def is_clean(self) -> bool:
        """True if everything was delivered."""
        return not self.undelivered

    @property
    def count(self) -> int:
        """The number of records that were not delivered."""
        return sum(self.undelivered.values())

    @classmethod
    def empty(cls) -> CloseReport:
        """Return the report of a close that found nothing to do."""
        return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeReport:
    """The records that `purge` found without an outcome."""

    purged: int = 0
    """how many records it let go: they failed with `RecordPurgedError`, and are certainly not in the log"""
    in_flight: int = 0
    """how many it left: they are in a request, or were in one, and go on to their true outcome"""


class ProducerState(Enum):
    """The states of a producer."""

    NEW = "NEW"
    STARTING = "STARTING"
    READY = "READY"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Health(FrozenValue):
    """A snapshot of a producer's health, made without I/O.

    `ready` is for readiness probes, `live` for liveness probes (`live` stays True while Kafka is down). docs/health.md says
    what each field means, and after how long it changes.
    """

    state: ProducerState
    """the state of the producer"""
    ready: bool
    """True if a record that is sent now would go: READY, with room in the buffer, and brokers that answer"""
    live: bool
    """False once the producer has FAILED: only `close` and `start` help"""
    since: float
    """when the state began, in seconds since 1970"""
    brokers_connected: int
    """number of brokers with an open connection, for any purpose"""
    buffered_bytes: int
    """bytes of `buffer_memory` in use by records without an outcome"""
    oldest_record_s: float | None
    """age in seconds of the oldest record without an outcome, in a batch or waiting for one"""
    last_error: str | None
    """the error that attempts fail with now, else the last warning in the log about the producer or its cluster; None if there
    was none. `last_error_at` says how old it is: it stays when its cause is gone"""
    transaction: str | None = None
    """the state of the transactional id: "ready", "open", "committing", ...; None without one, and before the start"""
    reason: str | None = None
    """why the state is DEGRADED or FAILED, or why a producer that is READY is not `ready`; else None"""
    last_error_at: float | None = None
    """when `last_error` happened last, in seconds since 1970; None if there is none"""
