"""One partition: its replicas, leader, in-sync set and high watermark, and the order in which a batch is judged.

One `Partition` per (topic incarnation, index), owned by its `Topic`. The log is stored once; each `Replica` has its own
producer states and its own end offset, so a frozen follower, a restart and a lost leader have their real consequences.
Pure: time is an argument; code that has to wait registers a watcher.

Invariants: high watermark <= log end; every replica's end offset <= log end; refusals come before duplicate detection
(broker: 2.11, 2.12); a refused batch changes nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiokprod.testing.mock.batch_header import (
    BadBatch,
    BatchHeader,
    check_crc,
    check_fields,
    check_size,
    read_header,
    stored_bytes,
)
from aiokprod.testing.mock.first_writes import FirstWrites
from aiokprod.testing.mock.log import PartitionLog, StoredBatch, TopicSettings
from aiokprod.testing.mock.producer_state import Duplicate, OutOfOrder, ProducerStates
from aiokprod.testing.mock.record_rules import BadRecords, judge_records
from aiokprod.testing.mock.transaction_index import TransactionIndex
from aiokprod.testing.mock.transaction_markers import marker_batch
from aiokprod.wire.codes import ErrorCode

NO_LEADER: Final = -1
ALL_REPLICAS: Final = -1

_WITHOUT_LOG_START: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)
"""Refusals whose answer has log start -1; the others name the real one (broker: 4.1, 4.2, 4.4)."""


@dataclass(slots=True)
class Replica:
    """The state of the partition on one node."""

    node_id: int
    states: ProducerStates = field(default_factory=ProducerStates)
    end_offset: int = 0
    is_up: bool = True
    is_frozen: bool = False

    @property
    def follows(self) -> bool:
        """Return whether it copies what the leader appends."""
        return self.is_up and not self.is_frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The place of a batch in the leader's log, also of a duplicate. `timestamp_ms` is the answer's log append time."""

    base_offset: int
    next_offset: int
    timestamp_ms: int
    log_start_offset: int
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The refusal of a batch that was not appended."""

    code: ErrorCode
    log_start_offset: int = -1
    record_errors: tuple[tuple[int, str], ...] = ()
    message: str | None = None


AppendOutcome: TypeAlias = Appended | Refused


class Partition:
    """One partition of one incarnation of a topic."""

    __slots__ = (
        "_last_in_sync",
        "_settings",
        "first_writes",
        "high_watermark",
        "index",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "name",
        "replicas",
        "transactions",
        "validate_records",
        "waits_for_min_insync",
        "watchers",
    )

    def __init__(
        self,
        name: str,
        index: int,
        replicas: list[int],
        settings: Callable[[], TopicSettings],
        *,
        validate_records: bool = True,
        waits_for_min_insync: bool = True,
    ) -> None:
        self.name = name
        self.index = index
        self.replicas = {node: Replica(node) for node in replicas}
        self.leader = replicas[0]
        self.leader_epoch = 0
        self.isr = list(replicas)
        self._last_in_sync = NO_LEADER
        self.log = PartitionLog()
        self.transactions = TransactionIndex()
        self.first_writes = FirstWrites()
        self.high_watermark = 0
        self.validate_records = validate_records
        self.waits_for_min_insync = waits_for_min_insync
        self.watchers: set[Callable[[], None]] = set()
        """Called after every change a waiting Produce or Fetch may care about."""
        self._settings = settings

    def __repr__(self) -> str:
        return (
            f"<Partition {self.name}-{self.index} leader={self.leader} epoch={self.leader_epoch} "
            f"isr={self.isr} hw={self.high_watermark} end={self.log.end_offset}>"
        )

    # ------------------------------------------------------------------ a batch comes in

    def append(self, node: int, records: bytes | memoryview, *, acks: int, version: int, now_ms: int) -> AppendOutcome:
        """Judge and append one partition's records of a Produce request, as the leader does.

        Args:
            node: the broker that was asked.
            version: the Produce version, for codecs it may not carry.
        """
        header = read_header(records)
        if isinstance(header, BadBatch):
            return Refused(code=header.code, message=header.message)
        if node != self.leader:
            return self._refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        settings = self._settings()
        if acks == ALL_REPLICAS and not self.has_enough_in_sync:
            return self._refused(ErrorCode.NOT_ENOUGH_REPLICAS)
        bad = (
            check_size(header, settings.max_message_bytes)
            or check_crc(records, header)
            or check_fields(header, version)
        )
        if bad is not None:
            return self._refused(bad.code, bad.message)
        judged = judge_records(
            records, header, settings, now_ms, topic=self.name, partition=self.index, always=self.validate_records
        )
        if judged is not None:
            return self._refused(judged.code, judged.message, judged)
        if header.producer_id >= 0:
            known = self._sequence(header)
            if known is not None:
                return known
        append_time_ms = now_ms if settings.is_log_append_time else None
        batch = self._write(records, header, append_time_ms)
        if settings.retention_bytes >= 0:
            self.log.retain(settings.retention_bytes, self.high_watermark)
        return Appended(
            base_offset=batch.base_offset,
            next_offset=batch.next_offset,
            timestamp_ms=-1 if append_time_ms is None else append_time_ms,
            log_start_offset=self.log.start_offset,
        )

    def _sequence(self, header: BatchHeader) -> AppendOutcome | None:
        """Return the answer to an idempotent batch that is not appended; None if it is in order."""
        states = self.replicas[self.leader].states
        verdict = states.check(header.sequenced())
        if isinstance(verdict, OutOfOrder):
            return self._refused(verdict.code)
        if isinstance(verdict, Duplicate):
            stored = verdict.stored
            return Appended(
                base_offset=stored.base_offset,
                next_offset=stored.base_offset + stored.count,
                timestamp_ms=stored.max_timestamp_ms,  # broker: 2.2, on CreateTime topics too
                log_start_offset=self.log.start_offset,
                is_duplicate=True,
            )
        entry = states.entry(header.producer_id)
        is_known = entry is not None and bool(entry.batches)
        if self.first_writes.refuses(header.producer_id, header.base_sequence, is_known=is_known):
            return self._refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if not header.is_transactional and header.producer_id in self.transactions.open:
            return self._refused(ErrorCode.INVALID_TXN_STATE)  # broker: 9 - after epoch and sequence
        return None

    def _write(self, records: bytes | memoryview, header: BatchHeader, append_time_ms: int | None) -> StoredBatch:
        base_offset = self.log.end_offset
        data = stored_bytes(records, header, base_offset, self.leader_epoch, append_time_ms)
        batch = StoredBatch.of(header, data, base_offset, self.leader_epoch, append_time_ms)
        self.log.append(batch)
        self.transactions.note(batch)
        if batch.is_transactional:
            self.first_writes.appended(batch.producer_id, batch.producer_epoch, is_marker=batch.is_control)
        self._copy(self.replicas[self.leader])
        self.replicate()
        return batch

    def _refused(self, code: ErrorCode, message: str | None = None, bad: BadRecords | None = None) -> Refused:
        log_start = -1 if code in _WITHOUT_LOG_START else self.log.start_offset
        record_errors = () if bad is None else bad.record_errors
        return Refused(code=code, log_start_offset=log_start, record_errors=record_errors, message=message)

    # ------------------------------------------------------------------ transactions

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop (broker: 12.1)."""
        return self.transactions.last_stable_offset(self.high_watermark)

    def is_committed(self, batch: StoredBatch) -> bool:
        """Return whether read_committed readers see it."""
        if batch.next_offset > self.last_stable_offset:
            return False
        return not batch.is_transactional or not any(
            aborted.producer_id == batch.producer_id and aborted.first_offset <= batch.base_offset
            for aborted in self.transactions.aborted_within(batch.base_offset, batch.next_offset)
        )

    def is_fenced(self, producer_id: int, epoch: int) -> bool:
        """Return whether the leader knows a newer epoch of this producer."""
        entry = self.replicas[self.leader].states.entry(producer_id) if self.leader != NO_LEADER else None
        return entry is not None and epoch < entry.epoch

    def has_transaction_of(self, producer_id: int, epoch: int) -> bool:
        """Return whether this producer wrote here in the transaction it has open."""
        entry = self.replicas[self.leader].states.entry(producer_id) if self.leader != NO_LEADER else None
        return producer_id in self.transactions.open and entry is not None and entry.epoch == epoch

    def append_marker(self, producer_id: int, epoch: int, *, commits: bool, now_ms: int) -> int:
        """Write the marker that ends a transaction; there must be a leader. Returns the offset behind it."""
        records = marker_batch(producer_id, epoch, commits=commits, now_ms=now_ms)
        header = read_header(records)
        assert isinstance(header, BatchHeader)
        return self._write(records, header, None).next_offset

    # ------------------------------------------------------------------ replication

    @property
    def min_insync(self) -> int:
        """min.insync.replicas, never more than there are replicas."""
        return min(self._settings().min_insync_replicas, len(self.replicas))

    @property
    def has_enough_in_sync(self) -> bool:
        """Return whether writes with acks=all are accepted."""
        return len(self.isr) >= self.min_insync

    @property
    def offline_replicas(self) -> list[int]:
        """Replicas whose node is down."""
        return [replica.node_id for replica in self.replicas.values() if not replica.is_up]

    def replicate(self) -> None:
        """Let followers copy, move the high watermark, and call the watchers that wait for it."""
        if self.leader != NO_LEADER:
            for replica in self.replicas.values():
                if replica.follows:
                    self._copy(replica)
        self._advance()

    def _copy(self, replica: Replica) -> None:
        if replica.end_offset == self.log.end_offset:
            return
        for batch in self.log.since(replica.end_offset):
            if batch.is_control:
                replica.states.mark(batch.producer_id, batch.producer_epoch, batch.max_timestamp_ms)
            elif batch.producer_id >= 0:
                replica.states.record(batch.sequenced)
        replica.end_offset = self.log.end_offset

    def _advance(self) -> None:
        # An in-sync set below min.insync holds the high watermark back, acknowledged by acks=1 or not. broker: 5.7, 6.3
        enough = not self.waits_for_min_insync or self.has_enough_in_sync
        if enough and self.isr and self.leader != NO_LEADER:
            copied = min(self.replicas[node].end_offset for node in self.isr)
            if copied > self.high_watermark:
                self.high_watermark = copied
                self.wake()

    def wake(self) -> None:
        """Call the watchers."""
        for watcher in tuple(self.watchers):
            watcher()

    def freeze(self, nodes: list[int], frozen: bool) -> None:
        """Stop or restart copying at these followers; the in-sync set stays as it is (broker: 6.1)."""
        for node in nodes:
            self.replicas[node].is_frozen = frozen
        self.replicate()

    def set_isr(self, nodes: list[int]) -> None:
        """Set the in-sync replicas; those that come in have copied everything if they may copy at all."""
        unknown = [node for node in nodes if node not in self.replicas]
        if unknown or not nodes:
            raise ValueError(f"{self!r}: {nodes} is no subset of the replicas {list(self.replicas)}")
        self.isr = list(nodes)
        self.replicate()
        self.wake()

    # ------------------------------------------------------------------ leadership

    def elect(self, node: int, *, lose_uncopied: bool = False) -> None:
        """Give the leadership to `node`, or to no node (`NO_LEADER`), with a new leader epoch.

        Args:
            lose_uncopied: the new leader has only what it copied, and the log is cut to that (acks=1 loss and unclean
                elections, broker: 5.4, 5.5, 6.4c); else it is taken to have copied everything (broker: 6.4).
        """
        self.leader = node
        self.leader_epoch += 1
        self.first_writes.forget()
        if node != NO_LEADER:
            replica = self.replicas[node]
            if lose_uncopied and replica.end_offset < self.log.end_offset:
                self._cut(replica)
            else:
                self._copy(replica)
            if node not in self.isr:
                self.isr = [node]
            self._last_in_sync = NO_LEADER
        self.replicate()
        self.wake()

    def _cut(self, leader: Replica) -> None:
        self.log.truncate(leader.end_offset)
        self.transactions.rebuild(self.log.batches)
        leader.end_offset = self.log.end_offset
        self.high_watermark = min(self.high_watermark, self.log.end_offset)
        for replica in self.replicas.values():
            if replica.end_offset > self.log.end_offset:
                replica.states = copy.deepcopy(leader.states)
                replica.end_offset = self.log.end_offset

    def node_down(self, node: int, *, elect: bool = True, lose_uncopied: bool = False) -> None:
        """Stop a node: it leaves the in-sync set, and a live member leads, if there is one."""
        replica = self.replicas.get(node)
        if replica is None:
            return
        replica.is_up = False
        if self.isr != [node]:
            self.isr = [member for member in self.isr if member != node]
        elif elect:
            self.isr, self._last_in_sync = [], node  # it may lead again, and is in sync no more (KIP-966)
        if self.leader == node and elect:
            live = [member for member in self.isr if self.replicas[member].is_up]
            self.elect(live[0] if live else NO_LEADER, lose_uncopied=lose_uncopied)
        else:
            self.replicate()
        self.wake()

    def node_up(self, node: int, *, now_ms: int, expiration_ms: int) -> None:
        """Start a node: it remembers one batch per producer (broker: 2.6) and no expired producers (broker: 1.13)."""
        replica = self.replicas.get(node)
        if replica is None:
            return
        replica.is_up = True
        replica.states.restart()
        replica.states.expire(now_ms, expiration_ms, self.transactions.open)
        if self.leader == NO_LEADER and node in (*self.isr, self._last_in_sync):
            self.elect(node)
        if node not in self.isr and replica.follows:
            self._copy(replica)
            self.isr.append(node)
        self.replicate()
        self.wake()
