"""`TransactionCoordinator`: which producer may write under which transactional id, and how each transaction ends.

One per cluster: which broker answers for which id is the business of `CoordinatorDirectory`. Pure: time is an argument,
markers are written by the caller, which calls `complete` afterwards. Codes are the newest ones; handlers turn 90 into 47 for
clients that do not know it.

Invariants: a refused request changes nothing, except that an InitProducerId refused with 51 may have begun to abort the
open transaction, and 35 wedges the id; a verdict is never changed into the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from aiokprod.testing.mock.transactions.metadata import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NOT_STARTED,
    ProducerIdentity,
    TopicIndex,
    TransactionMetadata,
    TransactionState,
)
from aiokprod.wire.codes import ErrorCode

MAX_TIMEOUT_MS: Final = 900_000
"""transaction.max.timeout.ms. broker: 9.7, 11.7"""

SECOND_VERSION: Final = 2
"""transaction.version from which every end of a transaction bumps the epoch (KIP-890)."""

IdentityAnswer: TypeAlias = ProducerIdentity | ErrorCode

_State = TransactionState


class TransactionCoordinator:
    """All transactional ids of a cluster.

    Args:
        version: the finalized feature transaction.version, 0 to 2.
    """

    def __init__(
        self, new_producer_id: Callable[[], int], *, version: int = SECOND_VERSION, max_timeout_ms: int = MAX_TIMEOUT_MS
    ) -> None:
        self._new_producer_id = new_producer_id
        self.version = version
        self._max_timeout_ms = max_timeout_ms
        self.ids: dict[str, TransactionMetadata] = {}

    def __repr__(self) -> str:
        states = {name: one.state.value for name, one in self.ids.items()}
        return f"<TransactionCoordinator version={self.version} {states}>"

    # ------------------------------------------------------------------ the owner of an id

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, now_ms: int
    ) -> IdentityAnswer:
        """Give the id to a producer: a new one (`expected` None), which fences all before it, or one that recovers.

        Returns:
            The producer id and epoch to write with. CONCURRENT_TRANSACTIONS (51) while another transaction of the id has
            to end first, PRODUCER_FENCED (90) if another producer has taken over the id.
        """
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not 0 < timeout_ms <= self._max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        found = self.ids.get(transactional_id)
        if found is None:
            found = self.ids[transactional_id] = TransactionMetadata(
                transactional_id=transactional_id,
                producer_id=self._new_producer_id(),
                timeout_ms=timeout_ms,
                updated_ms=now_ms,
            )
        if found.is_wedged:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if expected is not None and not _may_recover(found, expected):
            return ErrorCode.PRODUCER_FENCED
        if found.is_completing:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if found.is_ongoing:
            self._fence(found, now_ms)
            return ErrorCode.CONCURRENT_TRANSACTIONS  # broker: 9.8, 9.9
        return self._give(found, timeout_ms, expected, now_ms)

    def _give(
        self, found: TransactionMetadata, timeout_ms: int, expected: ProducerIdentity | None, now_ms: int
    ) -> IdentityAnswer:
        if expected is None or found.epoch in (NO_EPOCH, expected.epoch):
            if found.is_exhausted:
                found.previous_producer_id, found.producer_id = found.producer_id, self._new_producer_id()
                found.last_epoch, found.epoch = NO_EPOCH if expected is None else found.epoch, 0  # broker: 9.10
            else:
                found.last_epoch, found.epoch = NO_EPOCH if expected is None else found.epoch, found.epoch + 1
        elif expected.epoch != found.last_epoch:
            return ErrorCode.PRODUCER_FENCED
        # else the answer to this very request was lost: the same again. broker: 9.4
        found.timeout_ms = timeout_ms
        found.started_ms = NOT_STARTED
        found.move(_State.EMPTY, now_ms)
        return found.identity

    def _fence(self, found: TransactionMetadata, now_ms: int) -> None:
        """Abort an open transaction in the coordinator's own name: its owner's epoch is over."""
        # In the second version the owner learns of it: its epoch is the last one, as after an end of its own. Before,
        # it looks the same as a fence by another instance. broker: 9.9, 10.7
        found.last_epoch = found.epoch if self.version >= SECOND_VERSION else NO_EPOCH
        found.epoch += 1
        found.move(_State.PREPARE_ABORT, now_ms)

    # ------------------------------------------------------------------ what belongs to the transaction

    def add_partitions(
        self,
        transactional_id: str,
        who: ProducerIdentity,
        partitions: Collection[TopicIndex],
        now_ms: int,
        *,
        in_second_version: bool,
    ) -> ErrorCode:
        """Open a transaction, or let it reach further.

        Args:
            in_second_version: a request that only clients of transaction.version 2 send: AddPartitionsToTxn v4+, and
                what Produce v12+ and TxnOffsetCommit v5+ do by themselves.
        """
        if transactional_id in self.ids and self.ids[transactional_id].is_wedged:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        found = self._owned(transactional_id, who)
        if isinstance(found, ErrorCode):
            return found
        if found.is_ongoing and found.partitions.issuperset(partitions):
            return ErrorCode.NONE
        if in_second_version and self._wedges(found):
            return ErrorCode.UNSUPPORTED_VERSION
        if not found.is_ongoing:
            found.started_ms = now_ms
        found.partitions.update(partitions)
        found.move(_State.ONGOING, now_ms)
        return ErrorCode.NONE

    def verify(self, transactional_id: str, who: ProducerIdentity, partition: TopicIndex) -> ErrorCode:
        """Return 0 if the partition belongs to the open transaction, TRANSACTION_ABORTABLE (120) if not. Changes nothing."""
        found = self._owned(transactional_id, who)
        if isinstance(found, ErrorCode):
            return found
        return ErrorCode.NONE if partition in found.partitions else ErrorCode.TRANSACTION_ABORTABLE

    def _owned(self, transactional_id: str, who: ProducerIdentity) -> TransactionMetadata | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        found = self.ids.get(transactional_id)
        if found is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if found.is_completing and who == found.next_identity:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if who.producer_id != found.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if who.epoch != found.epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if found.is_completing else found

    def _wedges(self, found: TransactionMetadata) -> bool:
        """Return whether the id gets stuck: transaction.version 0 cannot store the second version's fields. broker: 10.1"""
        found.is_wedged = self.version == 0
        return found.is_wedged

    # ------------------------------------------------------------------ how it ends

    def end(self, transactional_id: str, who: ProducerIdentity, *, commits: bool, now_ms: int) -> IdentityAnswer:
        """Serve EndTxn up to v4: the epoch stays, so a late copy may hit the next transaction (broker: 10.4c).

        Returns:
            The pair that goes on writing, when the verdict is written down (`is_completing`) or was before.
        """
        found = self._ending(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        if who.producer_id != found.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if who.epoch != found.epoch:
            return ErrorCode.PRODUCER_FENCED
        if found.is_wedged:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if found.is_ongoing:
            found.move(_State.PREPARE_COMMIT if commits else _State.PREPARE_ABORT, now_ms)
            return found.identity
        if found.is_completing:
            return ErrorCode.CONCURRENT_TRANSACTIONS  # broker: 10.4e
        return _repeated(found, commits)

    def end_and_bump(
        self, transactional_id: str, who: ProducerIdentity, *, commits: bool, now_ms: int
    ) -> IdentityAnswer:
        """Serve EndTxn from v5 (KIP-890): bump the epoch, or replace the producer id; a retry shows by its epoch."""
        found = self._ending(transactional_id)
        if isinstance(found, ErrorCode):
            return found
        if found.is_wedged:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        over_the_end = (
            who == ProducerIdentity(found.previous_producer_id, LAST_EPOCH)
            and found.epoch == 0
            and not found.is_ongoing
            and found.last_epoch == LAST_EPOCH
        )
        if who.producer_id != found.producer_id and not over_the_end:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        is_retry = over_the_end or found.epoch == who.epoch + 1
        if found.is_completing:
            # The owner of either epoch is told to wait, whatever verdict it asks for: its next transaction may be over before
            # the markers of this one are written. broker: 10.4e
            owns = is_retry or who == found.next_identity
            return ErrorCode.CONCURRENT_TRANSACTIONS if owns else ErrorCode.PRODUCER_FENCED
        if is_retry and found.state in (_State.COMPLETE_COMMIT, _State.COMPLETE_ABORT):
            return _repeated(found, commits)
        if who.epoch != found.epoch:
            return ErrorCode.PRODUCER_FENCED  # broker: 10.4c, 11.5
        if not found.is_ongoing and commits:
            return ErrorCode.INVALID_TXN_STATE  # broker: 10.5
        if self._wedges(found):
            return ErrorCode.UNSUPPORTED_VERSION
        if found.is_exhausted:
            found.next_producer_id = self._new_producer_id()
        found.last_epoch, found.epoch = found.epoch, found.epoch + 1
        found.move(_State.PREPARE_COMMIT if commits else _State.PREPARE_ABORT, now_ms)
        return found.next_identity

    def _ending(self, transactional_id: str) -> TransactionMetadata | ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        return self.ids.get(transactional_id, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    def complete(self, transactional_id: str, now_ms: int) -> None:
        """End a transaction whose markers are written: the id may begin its next one."""
        found = self.ids[transactional_id]
        commits = found.state is _State.PREPARE_COMMIT
        found.move(_State.COMPLETE_COMMIT if commits else _State.COMPLETE_ABORT, now_ms)
        found.partitions.clear()
        if found.next_producer_id != NO_PRODUCER_ID:
            found.previous_producer_id, found.producer_id = found.producer_id, found.next_producer_id
            found.next_producer_id, found.epoch = NO_PRODUCER_ID, 0  # the last epoch stays what its owner knows

    # ------------------------------------------------------------------ by the clock, and by fate

    def abort_timed_out(self, now_ms: int) -> list[str]:
        """Begin to abort every transaction that is open for longer than its timeout; returns their ids (broker: 10.7)."""
        late = [one for one in self.ids.values() if one.has_timed_out(now_ms) and not one.is_wedged]
        for found in late:
            self._fence(found, now_ms)
        return [found.transactional_id for found in late]

    def forget_idle(self, now_ms: int, idle_ms: int) -> list[str]:
        """Apply transactional.id.expiration.ms: forget ids that had no transaction for that long, and return them."""
        idle = [
            one
            for one in self.ids.values()
            if not (one.is_ongoing or one.is_completing or one.is_wedged) and now_ms - one.updated_ms >= idle_ms
        ]
        for found in idle:
            found.move(_State.DEAD, now_ms)
            del self.ids[found.transactional_id]
        return [found.transactional_id for found in idle]

    def reload(self, transactional_id: str) -> None:
        """Forget what is not in the log, as another coordinator that reads the log does (broker: 10.1)."""
        self.ids[transactional_id].is_wedged = False


def _may_recover(found: TransactionMetadata, expected: ProducerIdentity) -> bool:
    return (
        found.epoch == NO_EPOCH
        or expected.producer_id == found.producer_id
        or (expected.producer_id == found.previous_producer_id and expected.epoch >= LAST_EPOCH)
    )


def _repeated(found: TransactionMetadata, commits: bool) -> IdentityAnswer:
    """Return the answer if no transaction is open or ending: 0 if this verdict was carried out, else 48."""
    match found.state:
        case TransactionState.COMPLETE_COMMIT if commits:
            return found.identity
        case TransactionState.COMPLETE_ABORT if not commits:
            return found.identity
        case _:
            return ErrorCode.INVALID_TXN_STATE
