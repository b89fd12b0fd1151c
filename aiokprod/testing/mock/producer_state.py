"""The producer state of one replica of one partition: epochs, sequences and the last five batches of each producer.

One `ProducerStates` per replica, because a restarted replica remembers less than one that stayed up (broker: 2.6).
Pure: time is an argument. `check` decides and changes nothing, so that a refused batch leaves no trace (broker: 1.4,
3.1); `record` notes a batch that was appended, whether by the leader or by a follower that copies it.

Invariants: an entry holds at most five batches, all of its current epoch, in log order; a first batch of a producer may
carry any sequence (broker: 1.1), a first batch of a newer epoch must carry 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from aiokprod.wire.codes import ErrorCode

SEQUENCE_WRAP: Final = 2**31
"""Sequence numbers are non-negative int32; after 2^31-1 comes 0. broker: 1.1, 2.9"""

BATCHES_REMEMBERED: Final = 5
"""The duplicate window of a replica that was not restarted. broker: 2.1, 2.3"""

NO_SEQUENCE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequenced:
    """The producer's half of a batch header, and where the batch is (or would be) in the log."""

    producer_id: int
    epoch: int
    first_sequence: int
    count: int
    max_timestamp_ms: int
    base_offset: int = -1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; the count may carry it across the wrap (broker: 2.9)."""
        return (self.first_sequence + self.count - 1) % SEQUENCE_WRAP


@dataclass(frozen=True, slots=True)
class InOrder:
    """The batch may be appended."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is in the log already; the answer repeats where, and the stored timestamp (broker: 2.1, 2.2)."""

    stored: Sequenced


@dataclass(frozen=True, slots=True)
class OutOfOrder:
    """The batch is refused and the state stays as it was."""

    code: ErrorCode


SequenceVerdict: TypeAlias = InOrder | Duplicate | OutOfOrder

_IN_ORDER: Final = InOrder()


@dataclass(slots=True)
class ProducerEntry:
    """One producer id at one replica."""

    epoch: int
    last_sequence: int = NO_SEQUENCE
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    """Of its last marker; -1: there was none."""
    batches: deque[Sequenced] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))


class ProducerStates:
    """All producers one replica remembers."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __repr__(self) -> str:
        return f"<ProducerStates producers={len(self._entries)}>"

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    def entry(self, producer_id: int) -> ProducerEntry | None:
        """Return the state of this producer, or None."""
        return self._entries.get(producer_id)

    def check(self, batch: Sequenced) -> SequenceVerdict:
        """Judge an idempotent batch (producer id >= 0) as the leader does before it appends. Changes nothing."""
        entry = self._entries.get(batch.producer_id)
        if entry is None:
            return _IN_ORDER  # broker: 1.1, 1.2, 1.6 - any first sequence, any id, any epoch
        if batch.epoch < entry.epoch:
            return OutOfOrder(ErrorCode.INVALID_PRODUCER_EPOCH)  # broker: 1.5 - even for an exact copy
        if batch.epoch > entry.epoch:
            if batch.first_sequence != 0:
                return OutOfOrder(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)  # broker: 1.4
            return _IN_ORDER  # broker: 1.3
        last_sequence = batch.last_sequence
        for stored in entry.batches:
            # Recognised by first and last sequence alone: the bytes are not compared. broker: 2.4, 2.5
            if stored.first_sequence == batch.first_sequence and stored.last_sequence == last_sequence:
                return Duplicate(stored)
        if batch.first_sequence != (entry.last_sequence + 1) % SEQUENCE_WRAP:
            return OutOfOrder(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)  # broker: 2.3, 3.1
        return _IN_ORDER

    def record(self, batch: Sequenced) -> None:
        """Note an appended batch. A follower records what the log holds and never refuses."""
        entry = self._entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.epoch:
            coordinator_epoch = -1 if entry is None else entry.coordinator_epoch
            entry = self._entries[batch.producer_id] = ProducerEntry(batch.epoch, coordinator_epoch=coordinator_epoch)
        entry.last_sequence = batch.last_sequence
        entry.last_timestamp_ms = batch.max_timestamp_ms
        entry.batches.append(batch)

    def mark(self, producer_id: int, epoch: int, timestamp_ms: int) -> None:
        """Note a transaction's marker: its epoch holds from now on (broker: 12.4), sequences go on under an old one."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch < epoch:
            entry = self._entries[producer_id] = ProducerEntry(epoch)
        entry.last_timestamp_ms = timestamp_ms
        entry.coordinator_epoch = 0

    def restart(self) -> None:
        """Restart the replica: of each producer only the last batch is left (broker: 2.6)."""
        for entry in self._entries.values():
            while len(entry.batches) > 1:
                entry.batches.popleft()

    def expire(self, now_ms: int, expiration_ms: int, in_transaction: Container[int] = ()) -> int:
        """Forget producers by the timestamps of their records, not by when they wrote (broker: 1.6, 1.12, 1.13).

        Args:
            in_transaction: producer ids with an open transaction, which are kept.

        Returns:
            How many producers were forgotten.
        """
        old = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.last_timestamp_ms >= expiration_ms and producer_id not in in_transaction
        ]
        for producer_id in old:
            del self._entries[producer_id]
        return len(old)

    def forget(self, producer_id: int | None = None) -> None:
        """Forget one producer, or all of them (a test's shortcut to lost state)."""
        if producer_id is None:
            self._entries.clear()
        else:
            self._entries.pop(producer_id, None)
