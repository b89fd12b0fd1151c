"""The words of the `TransactionMachine`: its states, what it asks for (actions), and why it refuses.

Values, no rules. The owner of every action is the producer's shell around the machine; docs/transactions_states.md lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

Partition: TypeAlias = tuple[str, int]
"""A topic and a partition number."""

# Codes of our own: no broker can send them, as Kafka's codes are 16 bits long.
NO_ANSWER = 1 << 16
"""The code of an answer in which an entry that was asked for is missing."""

NO_SUCH_PARTITION = NO_ANSWER + 3
"""The code of offsets that the coordinator does not know a partition for (3), and the cluster does not have it."""


class Mode(Enum):
    """The protocol of a transaction, by the finalized feature `transaction.version`, not by what brokers offer."""

    VERSION_1 = 1
    """`transaction.version` 0, 1 or absent: AddPartitionsToTxn v3, Produce up to v11, TxnOffsetCommit v4, EndTxn v4."""
    VERSION_2 = 2
    """`transaction.version` 2 (KIP-890): no AddPartitionsToTxn, Produce v12 or later, TxnOffsetCommit v5, EndTxn v5."""


class Verdict(Enum):
    """The end that an EndTxn asks for."""

    COMMIT = "commit"
    ABORT = "abort"


class State(Enum):
    """The state of the producer's transactional id. docs/transactions_states.md has the transitions."""

    UNINITIALISED = "uninitialised"
    """Nothing was asked for yet, or taking the id took too long."""
    INITIALISING = "initialising"
    """InitProducerId is asked for, until it is answered or its deadline passes."""
    READY = "ready"
    """No transaction. The outcome of the last one is known."""
    OPEN = "open"
    """A transaction takes records and offsets."""
    ABORTABLE = "abortable"
    """The transaction can only be aborted; it is certain that it is not committed."""
    COMMITTING = "committing"
    """The end was asked for: records are flushed, then EndTxn(commit) is asked for until the deadline."""
    ABORTING = "aborting"
    """Queued records have failed; EndTxn(abort) is asked for until the deadline."""
    UNKNOWN = "unknown"
    """The deadline has passed with an EndTxn unanswered. An abort is asked for again and again; of a commit `commit` or `abort`
    goes on asking."""
    PREPARED = "prepared"
    """All is written, and no end was asked for: another process may ask for it, or `commit` or `abort`."""
    FENCED = "fenced"
    """Another instance has the id; on version 1 it may have been the coordinator's timeout. Final."""
    FAILED = "failed"
    """The coordinator refuses the id for good. Final."""


class Outcome(Enum):
    """The outcome of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Reason(Enum):
    """Why something ended as it did. The shell makes an error of it; `code` beside it is the broker's, if there is one."""

    ASKED = "asked"
    """The user asked for it."""
    RECORD_FAILED = "record failed"
    """A record of the transaction was not written, or may not have been."""
    PARTITION_REFUSED = "partition refused"
    """The coordinator does not take a partition into the transaction (AddPartitionsToTxn)."""
    OFFSETS_REFUSED = "offsets refused"
    """The coordinator of the group, or of the transaction, refuses the offsets."""
    PARTITION_MISSING = "partition missing"
    """Offsets are of a partition that the cluster does not have."""
    GROUP_MOVED_ON = "group moved on"
    """The group has another generation, member or instance than the offsets were sent with."""
    TIMED_OUT = "timed out"
    """The coordinator has aborted the transaction (EndTxn(commit) answered INVALID_TXN_STATE): by its timeout, or for an
    administrator."""
    TOLD_TO_ABORT = "told to abort"
    """The broker answered TRANSACTION_ABORTABLE: abort, and go on (KIP-1050)."""
    MAY_OPEN_AGAIN = "may open again"
    """Version 1: a request that opens the transaction had no answer; a late copy could open it again behind its end, and the
    processes that end a prepared one would be told two outcomes."""
    DEADLINE = "deadline"
    """The caller's time is up."""
    ID_GONE = "id gone"
    """The coordinator has another producer id for the id, or has forgotten it. The abort finds out which."""
    FENCED = "fenced"
    """Another instance has taken the id."""
    FENCED_OR_TIMED_OUT = "fenced or timed out"
    """Version 1: another instance has taken the id, or the coordinator aborted by its timeout (broker: 10.7)."""
    NOT_AUTHORIZED = "not authorized"
    BAD_TIMEOUT = "bad timeout"
    """`transaction_timeout_ms` is above the broker's transaction.max.timeout.ms."""
    UNUSABLE = "unusable"
    """The coordinator answered something that no repetition mends (unsupported version, lost id, invalid request)."""
    CLOSED = "closed"


class Refusal(Enum):
    """A user's call came in a state in which it means nothing. Nothing has changed."""

    NOT_INITIALISED = "not initialised"
    """`initialise` has not succeeded yet."""
    ALREADY_INITIALISED = "already initialised"
    NOT_IN_TRANSACTION = "not in a transaction"
    IN_TRANSACTION = "in a transaction"
    """`begin` while one is open."""
    ABORTABLE = "abortable"
    """A record, partition or offset has failed: only `abort` goes on. `TransactionMachine.cause` says what it was."""
    COMMITTING = "committing"
    """A commit is on its way: no records, no offsets, no begin, no abort."""
    ABORTING = "aborting"
    UNKNOWN = "unknown"
    """The end of the last transaction is not known: `commit` or `abort` first."""
    PREPARING = "preparing"
    """The transaction is being prepared: await that first."""
    PREPARED = "prepared"
    """The transaction is prepared: only its end goes on."""
    FENCED = "fenced"
    FAILED = "failed"
    CLOSED = "closed"


class Entrance(Enum):
    """The answer to `send_partition`: may batches of the partition be stamped and sent?"""

    GO = "go"
    WAIT = "wait"
    """Hold them until `Release` names the partition (or `FailPartition`, `FailQueued`)."""


class Cause(NamedTuple):
    """The first thing that went wrong with a transaction, or with the id."""

    reason: Reason
    code: int | None = None


# ---------------------------------------------------------------------- requests
class SendInitProducerId(NamedTuple):
    """Send InitProducerId to the transaction coordinator; answer with `init_answered` or `lost`."""

    ticket: int
    producer_id: int
    """-1 with epoch -1: take the id over; else the epoch after the one at hand is asked for (broker: 9.3, 9.4)."""
    epoch: int


class SendAddPartitions(NamedTuple):
    """Send AddPartitionsToTxn v3 (version 1 only) with all these; answer with `partitions_added` or `lost`."""

    ticket: int
    producer_id: int
    epoch: int
    partitions: tuple[Partition, ...]


class SendAddOffsets(NamedTuple):
    """Send AddOffsetsToTxn (version 1 only) to the transaction coordinator; answer with `offsets_added` or `lost`."""

    ticket: int
    producer_id: int
    epoch: int
    group: str


class SendTxnOffsetCommit(NamedTuple):
    """Send the offsets that `number` names to the group's coordinator; answer with `offsets_committed` or `lost`."""

    ticket: int
    mode: Mode
    """VERSION_1: at most v4. VERSION_2: v5."""
    producer_id: int
    epoch: int
    group: str
    number: int


class SendEndTxn(NamedTuple):
    """Send EndTxn to the transaction coordinator; answer with `end_answered` or `lost`."""

    ticket: int
    mode: Mode
    """VERSION_1: at most v4. VERSION_2: v5."""
    producer_id: int
    epoch: int
    verdict: Verdict


class AskMarkers(NamedTuple):
    """Send the EndTxn v5 of the last transaction once more: are its markers written? `markers_answered` or `lost`."""

    ticket: int
    producer_id: int
    epoch: int
    verdict: Verdict


class ForgetCoordinator(NamedTuple):
    """Look the coordinator up again before the next request to it."""

    group: str | None
    """None: the transaction's coordinator."""


# ---------------------------------------------------------------------- records and identity
class Flush(NamedTuple):
    """Send what is queued without linger; answer with `flushed` when every record of the transaction is settled."""

    transaction: int


class FailQueued(NamedTuple):
    """Fail all records of the transaction that are not settled; answer with `drained` when none of it is in flight."""

    transaction: int
    cause: Cause


class FailPartition(NamedTuple):
    """Fail the records that wait for this partition. `send_partition` for it is refused until the transaction's end."""

    partition: Partition
    code: int


class Release(NamedTuple):
    """Batches of these partitions may be stamped and sent now."""

    partitions: tuple[Partition, ...]


class Hold(NamedTuple):
    """Stamp nothing until `TakeIdentity`: the transaction has begun, and the markers of the last one may not be written."""


class TakeIdentity(NamedTuple):
    """Stamp from now on with this identity, sequences from 0 on, in all partitions. Nothing stamped is out."""

    producer_id: int
    epoch: int


# ---------------------------------------------------------------------- news for callers
class Initialised(NamedTuple):
    """The id is taken; `begin` is accepted."""


class InitialiseFailed(NamedTuple):
    """The id is not taken. After DEADLINE and CLOSED `initialise` may be called again."""

    cause: Cause


class OffsetsDone(NamedTuple):
    """`send_offsets` with this number has ended: taken into the transaction (None), or not."""

    number: int
    cause: Cause | None


class CommitRefused(NamedTuple):
    """The commit that was asked for is not possible and has not happened; the state is ABORTABLE."""

    transaction: int
    cause: Cause


class Ended(NamedTuple):
    """The commit or abort that was asked for has this outcome. UNKNOWN: state UNKNOWN (ask again), FENCED or FAILED."""

    transaction: int
    outcome: Outcome
    cause: Cause


class FoundOut(NamedTuple):
    """The outcome of a transaction that was told as UNKNOWN, while no call asks for it."""

    transaction: int
    outcome: Outcome
    cause: Cause


class Prepared(NamedTuple):
    """The transaction is prepared: every record and offset is settled well, and nothing ends it but a further call."""

    transaction: int


class LostId(NamedTuple):
    """The state is FENCED or FAILED now; nothing will work with this producer."""

    cause: Cause


class TimeoutNear(NamedTuple):
    """90 % of the transaction timeout have passed since the first request of the transaction."""

    transaction: int
    open_s: float
    is_ending: bool = False
    """Its EndTxn is asked for, and not answered yet."""


class WakeAt(NamedTuple):
    """Call `tick` at this time. Of several, the earliest counts; an early or superfluous tick does no harm."""

    at: float


class Closed(NamedTuple):
    """After `close`: nothing is going on any more."""


Action: TypeAlias = (
    SendInitProducerId
    | SendAddPartitions
    | SendAddOffsets
    | SendTxnOffsetCommit
    | SendEndTxn
    | AskMarkers
    | ForgetCoordinator
    | Flush
    | FailQueued
    | FailPartition
    | Release
    | Hold
    | TakeIdentity
    | Initialised
    | InitialiseFailed
    | OffsetsDone
    | CommitRefused
    | Ended
    | FoundOut
    | Prepared
    | LostId
    | TimeoutNear
    | WakeAt
    | Closed
)
Codes: TypeAlias = Mapping[Partition, int]
