"""`TransactionMetadata`: the coordinator's data of one transactional id, and its states.

One per transactional id, changed by `TransactionCoordinator` alone. Pure.

Invariants: only a move that TRANSITIONS lists is made; there are partitions while a transaction is open or completing
and none otherwise; the epoch never goes down under one producer id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NOT_STARTED: Final = -1

LAST_EPOCH: Final = 32766
"""Clients never hold a higher one: the next end or init gives a new producer id. broker: 9.10"""

TopicIndex: TypeAlias = tuple[str, int]


class TransactionState(Enum):
    """The state of a transaction, by the names that ListTransactions gives."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


_AT_REST: Final = frozenset(
    {TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.PREPARE_ABORT, TransactionState.DEAD}
)

TRANSITIONS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: _AT_REST,
    TransactionState.ONGOING: frozenset(
        {TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT}
    ),
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.COMPLETE_COMMIT}),
    TransactionState.PREPARE_ABORT: frozenset({TransactionState.COMPLETE_ABORT}),
    TransactionState.COMPLETE_COMMIT: _AT_REST,
    TransactionState.COMPLETE_ABORT: _AT_REST,
    TransactionState.DEAD: frozenset(),
}
"""Where each state may go. A transaction that nothing was written in may be aborted (KIP-890, broker: 10.5b)."""


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class TransactionMetadata:
    """The state of one transactional id."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    updated_ms: int
    epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    """The epoch before, while its owner may not have heard of the bump: a retry with it is answered, not fenced."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The id that replaces an exhausted one when the markers are written."""
    state: TransactionState = TransactionState.EMPTY
    partitions: set[TopicIndex] = field(default_factory=set[TopicIndex])
    started_ms: int = NOT_STARTED
    is_wedged: bool = False
    """A write of this id to the coordinator's log failed: 51 until the coordinator is another one. broker: 10.1"""

    @property
    def identity(self) -> ProducerIdentity:
        """The pair that may write."""
        return ProducerIdentity(self.producer_id, self.epoch)

    @property
    def next_identity(self) -> ProducerIdentity:
        """The pair that may write when the transaction is completed; EndTxn v5 answers it (broker: 9.10)."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return self.identity

    @property
    def is_ongoing(self) -> bool:
        """Return whether a transaction is open."""
        return self.state is TransactionState.ONGOING

    @property
    def is_completing(self) -> bool:
        """Return whether the verdict is there and markers are being written."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_exhausted(self) -> bool:
        """Return whether this producer id has no epoch left to give."""
        return self.epoch >= LAST_EPOCH

    def has_timed_out(self, now_ms: int) -> bool:
        """Return whether the transaction is open for longer than its timeout."""
        return self.is_ongoing and now_ms - self.started_ms > self.timeout_ms

    def move(self, state: TransactionState, now_ms: int) -> None:
        """Go to another state, or stay in it where that is a move."""
        assert state in TRANSITIONS[self.state], f"{self.transactional_id}: {self.state.value} -> {state.value}"
        self.state = state
        self.updated_ms = now_ms
