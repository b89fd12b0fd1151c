"""Values the user sees: records, reports, states. No behaviour, no imports of ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from aiokprod.errors import AiokprodError


class Persistence(Enum):
    """May a failed record be in the log?"""

    NOT_PERSISTED = "not persisted"
    """Certainly not: it is safe to send it again."""
    POSSIBLY_PERSISTED = "possibly persisted"
    """Only the log itself can tell: sending it again may write it twice."""


class TimestampType(Enum):
    """Whose clock dated the record."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(slots=True, kw_only=True)
class Record:
    """A record with all it may have, for `send_many` and interceptors."""

    value: Any = None
    key: Any = None
    topic: str | None = None
    partition: int | None = None
    headers: Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None] = ()
    timestamp_ms: int | None = None
    timeout: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport:
    """What became of one `send_many`."""

    delivered: int
    failures: list[tuple[int, AiokprodError]] = field(default_factory=list)
    """(number of the record in the call, error), ascending"""
    offsets: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """(topic, partition) -> first and last offset; others may have written between"""


@dataclass(slots=True, kw_only=True)
class ColumnsPartition:
    """What became of the records of one `send_columns` in one partition."""

    count: int = 0
    """records that were delivered"""
    bytes: int = 0
    """of the delivered ones, as records, before compression"""
    first_offset: int | None = None
    """None: nothing was delivered, or no broker told (acks=0)"""
    last_offset: int | None = None
    """others may have written between"""
    failed: int = 0
    first_error: AiokprodError | None = None
    """of the failed record with the lowest row"""
    first_failed_row: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsPlacement:
    """Where some rows of one `send_columns` are, one behind the other in the log."""

    topic: str
    partition: int
    base_offset: int | None
    """of the first of them; None: nobody told (acks=0)"""
    rows: Sequence[int]
    """ascending; `rows[n]` has offset `base_offset + n`"""


@dataclass(slots=True, kw_only=True)
class ColumnsReport:
    """What became of one `send_columns`."""

    delivered: int = 0
    failed: int = 0
    untaken: int = 0
    """records that were not taken any more: certainly not in the log"""
    partitions: dict[tuple[str, int], ColumnsPartition] = field(default_factory=dict)
    """(topic, partition) -> what became of the records there"""
    untaken_error: AiokprodError | None = None
    """why taking ended"""
    placements: list[ColumnsPlacement] = field(default_factory=list)
    """of the delivered rows, in no order; empty unless they were asked for"""

    @property
    def first_error(self) -> AiokprodError | None:
        """Of the failed record with the lowest row; if none failed, why taking ended."""
        failed = [partition for partition in self.partitions.values() if partition.first_failed_row is not None]
        if not failed:
            return self.untaken_error
        return min(failed, key=lambda partition: partition.first_failed_row or 0).first_error


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseReport:
    """What `close` could not deliver."""

    undelivered: dict[tuple[str, int | None, Persistence], int] = field(default_factory=dict)
    """(topic, partition, persistence) -> records that failed while closing"""
    duration_s: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Was everything delivered?"""
        return not self.undelivered

    @property
    def count(self) -> int:
        """Records that were not delivered."""
        return sum(self.undelivered.values())

    @classmethod
    def empty(cls) -> CloseReport:
        """There was nothing to close."""
        return cls()


class ProducerState(Enum):
    """The life of a producer."""

    NEW = "NEW"
    STARTING = "STARTING"
    READY = "READY"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    CLOSING = "CLOSING"
    CLOSED = "CLOSED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """An answer without I/O: `ready` is for readiness probes, `live` for liveness (a Kafka that is down is not our death).

    docs/health.md says what each means, and after how long.
    """

    state: ProducerState
    ready: bool
    live: bool
    since: float
    """seconds since 1970, when the state began"""
    brokers_connected: int
    """brokers there is an open connection to, whatever it is for"""
    buffered_bytes: int
    """of `buffer_memory`: all records without an outcome"""
    oldest_record_s: float | None
    """age in seconds of the oldest record without an outcome, in a batch or on its way to one"""
    last_error: str | None
