"""`TransactionMachine`: the transactions of one producer, as a pure state machine (docs/transactions_states.md).

Events come in by methods, actions go out as a list; time is an argument (seconds of any clock that does not go back).
Nothing here waits, sends or raises for anything that a network or a broker does. A user's call in a wrong state returns a
`Refusal`, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Callable

from aiokprod.transactions.machine_actions import (
    Action,
    Cause,
    Codes,
    Entrance,
    Mode,
    Outcome,
    Partition,
    Refusal,
    State,
)


class TransactionMachine:
    """The state of a transactional id, of its identity (producer id, epoch) and of the transaction at hand.

    Args:
        retry_delay: seconds before attempt n + 1 after n failures, jitter included.
        concurrent_delay: the same after CONCURRENT_TRANSACTIONS, which passes in some 20 ms.
        transaction_timeout_s: what InitProducerId announced; only for `TimeoutNear`.
    """

    def __init__(
        self,
        *,
        retry_delay: Callable[[int], float],
        concurrent_delay: Callable[[int], float],
        transaction_timeout_s: float,
    ) -> None:
        self.state = State.UNINITIALISED
        self.identity: tuple[int, int] | None = None  # as handed out by the last TakeIdentity
        self.mode = Mode.VERSION_1  # of the transaction at hand, or the last one
        self.transaction = 0  # its number: 1 for the first one
        self.cause: Cause | None = None  # why ABORTABLE, UNKNOWN, FENCED or FAILED
        self.outcome: Outcome | None = None  # of the transaction at hand or the last one; None: not known yet

    # ------------------------------------------------------------------ user calls
    def initialise(self, now: float, deadline: float) -> list[Action] | Refusal:
        """Take the id over. `Initialised` or `InitialiseFailed` follows."""
        raise NotImplementedError

    def begin(self, mode: Mode, now: float) -> list[Action] | Refusal:
        """Open a transaction; nothing is sent. Accepted in READY only."""
        raise NotImplementedError

    def may_send(self) -> Refusal | None:
        """Return why a new record cannot go into a transaction now; None if it can (OPEN)."""
        raise NotImplementedError

    def send_offsets(self, group: str, now: float) -> tuple[int, list[Action]] | Refusal:
        """Take offsets into the transaction; return their number, which `SendTxnOffsetCommit` and `OffsetsDone` name."""
        raise NotImplementedError

    def commit(self, now: float, deadline: float) -> list[Action] | Refusal:
        """Commit, or go on asking in UNKNOWN. `Ended` or `CommitRefused` follows. In COMMITTING it joins (no actions)."""
        raise NotImplementedError

    def abort(self, now: float, deadline: float) -> list[Action] | Refusal:
        """Abort, or go on asking in UNKNOWN. `Ended` follows, also COMMITTED if a commit had been done. In ABORTING it joins."""
        raise NotImplementedError

    def close(self, now: float, deadline: float) -> list[Action]:
        """End what is open, by the deadline at the latest; `Closed` follows. All other user calls are refused from now on."""
        raise NotImplementedError

    # ------------------------------------------------------------------ the pipeline's side
    def send_partition(self, partition: Partition, now: float) -> Entrance | Refusal:
        """Ask whether batches of this partition may be stamped, before the first one of the transaction is.

        After WAIT call `turn_ended` once at the end of this turn of the event loop. Asking again does no harm. GO holds until
        the transaction ends. The records of a batch that was allowed count as written: an end is asked for at the coordinator.
        """
        raise NotImplementedError

    def turn_ended(self, now: float) -> list[Action]:
        """Add all partitions that wait, in one request (version 1)."""
        raise NotImplementedError

    def record_failed(self, transaction: int, code: int | None, now: float) -> list[Action]:
        """A ledger's Abort, or any record of the transaction that failed; `code` is the broker's, if one was the reason."""
        raise NotImplementedError

    def produce_lost(self, transaction: int) -> None:
        """An attempt of Produce with records of the transaction got no answer: a copy may come late (version 1 minds it)."""
        raise NotImplementedError

    def flushed(self, transaction: int, now: float) -> list[Action]:
        """Answer `Flush`: every record of the transaction is settled, and nothing stamped is in flight."""
        raise NotImplementedError

    def drained(self, transaction: int, now: float) -> list[Action]:
        """Answer `FailQueued`: nothing stamped of the transaction is in flight: answered, or its connection ended."""
        raise NotImplementedError

    # ------------------------------------------------------------------ answers
    def init_answered(self, ticket: int, code: int, producer_id: int, epoch: int, now: float) -> list[Action]:
        """InitProducerId was answered."""
        raise NotImplementedError

    def partitions_added(self, ticket: int, codes: Codes, now: float) -> list[Action]:
        """AddPartitionsToTxn was answered; a partition that is missing in `codes` counts as not answered."""
        raise NotImplementedError

    def offsets_added(self, ticket: int, code: int, now: float) -> list[Action]:
        """AddOffsetsToTxn was answered."""
        raise NotImplementedError

    def offsets_committed(self, ticket: int, codes: Codes, now: float) -> list[Action]:
        """TxnOffsetCommit was answered. Give every partition that was asked for: NO_ANSWER if the answer has no entry."""
        raise NotImplementedError

    def end_answered(self, ticket: int, code: int, producer_id: int, epoch: int, now: float) -> list[Action]:
        """EndTxn was answered; v4 has no identity: -1, -1."""
        raise NotImplementedError

    def lost(self, ticket: int, written: bool, now: float) -> list[Action]:
        """A request has no answer and will have none (connection ended, silence, answer not readable).

        `written` False: not one byte of it left; only then it is certain that no broker will act on it. A coordinator that
        could not be found or dialled counts as not written. Tickets that are not waited for any more are ignored everywhere.
        """
        raise NotImplementedError

    def tick(self, now: float) -> list[Action]:
        """Do what is due."""
        raise NotImplementedError
