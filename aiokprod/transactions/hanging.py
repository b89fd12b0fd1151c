"""Answers of brokers about transactions, as values; and which of the transactions open in a log hang there (KIP-664). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aiokprod.transactions.machine_actions import Partition

ONGOING: Final = "Ongoing"
STATES: Final = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead",
)  # fmt: skip
"""The states of a transactional id, as coordinators name them."""


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id, as its coordinator lists it."""

    transactional_id: str
    """of the producer"""
    producer_id: int
    """the last one that was given to it"""
    state: str
    """"Ongoing" while a transaction is open; "CompleteCommit", "Empty", ..."""
    coordinator: int
    """node id of the broker that listed it"""


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its transaction, as its coordinator describes it."""

    transactional_id: str
    """of the producer"""
    state: str
    """"Ongoing" while a transaction is open; "CompleteCommit", "Empty", ..."""
    producer_id: int
    """the last one that was given to it"""
    epoch: int
    """of the producer"""
    timeout_ms: int
    """after this time, in milliseconds, the coordinator aborts an open transaction"""
    started_ms: int | None
    """when the transaction, or the last one, began, in milliseconds since 1970; None: there was none since the last start"""
    partitions: tuple[Partition, ...]
    """(topic, partition) pairs in the transaction; offsets of groups are in partitions of `__consumer_offsets`"""

    @property
    def is_open(self) -> bool:
        """True while the transaction takes records."""
        return self.state == ONGOING


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in the log of a partition, as the leader says."""

    topic: str
    """topic name"""
    partition: int
    """partition number"""
    producer_id: int
    """of the producer that wrote it"""
    epoch: int
    """of that producer"""
    coordinator_epoch: int
    """of the last marker of that producer; -1: there was none"""
    start_offset: int
    """offset of its first record, where readers of committed records wait"""
    last_ms: int
    """timestamp of the producer's last record, in milliseconds since 1970"""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a log and that no coordinator will end: it holds readers up for ever."""

    open: OpenTransaction
    """the transaction in the log"""
    transactional_id: str | None
    """the id that has its producer id now; None: none has"""

    def __str__(self) -> str:
        found = self.open
        return f"{found.topic}-{found.partition} from offset {found.start_offset} (producer id {found.producer_id})"


def hanging_of(
    candidates: Iterable[OpenTransaction],
    ids: Mapping[int, str],
    descriptions: Mapping[str, TransactionDescription],
    still_open: Iterable[OpenTransaction],
) -> list[HangingTransaction]:
    """Return which of the candidates hang.

    Args:
        candidates: what was open in the logs.
        ids: transactional ids by producer id, asked for after that.
        descriptions: of those ids, asked for after that; an id may have none, as it is gone.
        still_open: what was open in the logs after that: a transaction that was ended meanwhile does not hang.
    """
    places = {(each.topic, each.partition, each.producer_id, each.start_offset) for each in still_open}
    found: list[HangingTransaction] = []
    for each in candidates:
        if (each.topic, each.partition, each.producer_id, each.start_offset) not in places:
            continue
        name = ids.get(each.producer_id)
        known = None if name is None else descriptions.get(name)
        # While markers are written the coordinator keeps the partitions: what it still names, it ends.
        is_known = (
            known is not None
            and known.producer_id == each.producer_id
            and (each.topic, each.partition) in known.partitions
        )
        if not is_known:
            found.append(HangingTransaction(each, name))
    return found
