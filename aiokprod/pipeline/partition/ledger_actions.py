"""The requests of a `Ledger`: its actions, and the outcome and the reason of records that settle.

Values, no rules. `PartitionQueue.apply` is the owner of every action; `PartitionErrors` makes the error of a reason.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TypeAlias

from aiokprod.pipeline.partition.batch import ProducerBatch, Range
from aiokprod.pipeline.partition.ledger_entry import Entry
from aiokprod.pipeline.partition.verdicts import Refusal


class Outcome(IntEnum):
    """The outcome that the caller is told."""

    DELIVERED = 0
    NOT = 1
    """Certainly not persisted."""
    POSSIBLY = 2


class Reason(Enum):
    """Why records settle. docs/ledger.md lists them with their outcomes; a test compares."""

    ANSWER = "answer"
    """The broker confirmed the batch (R1.1)."""
    PROOF = "proof"
    """A later batch of the same identity is ACKED (R3)."""
    DEADLINE = "deadline"
    RETRIES = "retries"
    """More attempts failed retriably than `retries` allows (R8.4)."""
    PURGE = "purge"
    """The producer closes or has failed, or the partition is gone (R8.3)."""
    ABORT = "abort"
    """Transactional: another batch failed (R10)."""
    REJECTED = "rejected"
    """The broker refused the batch or named the record, and no attempt is ambiguous (R4.1)."""
    FATAL = "fatal"
    """The broker refused an ambiguous batch (R4.6)."""
    OVERTAKEN = "overtaken"
    """A later batch is in the log, and this one is not (R3.3)."""
    OLD = "old"
    """Ambiguous, with timestamps so old that a resend could be written twice (R5.4)."""
    BUMP = "bump"
    """Ambiguous, and the partition takes another identity (R2.1)."""


class Settle:
    """These records have their outcome."""

    __slots__ = ("attempts", "base_offset", "batch", "code", "flying", "named", "outcome", "ranges", "refusal", "why")

    def __init__(
        self,
        batch: ProducerBatch,
        ranges: list[Range],
        outcome: Outcome,
        base_offset: int | None,
        why: Reason,
        code: int | None,
        attempts: int,
        refusal: Refusal | None = None,
        named: tuple[int, ...] = (),
        flying: Entry | None = None,
    ) -> None:
        self.batch = batch
        # Of the batch, not of the entry: the parts of a split batch share it. The list may be the entry's own, and the entry
        # is not cut again before the caller has settled it.
        self.ranges = ranges
        self.outcome = outcome
        # Of the first record; the others follow without gaps. None: a proof, 46, or an answer that tells none (faults: H12).
        self.base_offset = base_offset
        self.why = why
        self.code = code  # that of the last attempt of this round; a deadline that comes later has none
        self.attempts = attempts
        self.refusal = refusal  # the broker's last words about the batch
        self.flying = flying  # the batch, if an attempt of it has no answer yet: for the story of the failure
        self.named = named  # by position: one for each of the ranges, which are single records; (): none was named

    def __repr__(self) -> str:
        return f"<Settle {self.ranges} {self.outcome.name} offset {self.base_offset} {self.why.value}>"


class Chase:
    """Put a chaser behind everything in flight to the old leader; answer with `returned`."""

    __slots__ = ("node",)

    def __init__(self, node: int) -> None:
        self.node = node  # the leader at the time of the error: when the chaser leaves, another may be known already


class NeedIdentity:
    """Answer with `granted`: the epoch after `used`, or a fresh producer id."""

    __slots__ = ("fresh", "used")

    def __init__(self, used: tuple[int, int] | None, fresh: bool) -> None:
        self.used = used  # None: the partition had none yet
        self.fresh = (
            fresh  # the broker does not accept the producer id any more, or its epochs are used up (faults: I18)
        )


class Abort:
    """Transactional: everything has failed; `granted` follows when the coordinator has ended the transaction."""

    __slots__ = ()


class WantMetadata:
    """The answer says that our picture of the cluster is out of date."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


Action: TypeAlias = Settle | Chase | NeedIdentity | Abort | WantMetadata
