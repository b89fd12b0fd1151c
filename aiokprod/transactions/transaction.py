"""`Transaction`: one transaction of a producer, as an `async with` block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from aiokprod.errors import (
    AiokprodError,
    ProducerFailedError,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    UsageError,
)
from aiokprod.model import TransactionOutcome
from aiokprod.wire.codes import ErrorCode

if TYPE_CHECKING:  # a plain producer starts without it
    from aiokprod.transactions.transactor import Transactor

UNCONFIRMED: Final = (
    "the transaction is not committed, but its coordinator has not confirmed the abort in time; the producer goes on asking,"
    " and the next transaction begins behind that"
)


SIGNS: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED}
)
"""Codes of a request with an identity that is not the newest one of the id."""


class Transaction:
    """A transaction of a producer: made by `producer.transaction()`, begun and ended by `async with`.

    Its normal end commits. An exception of the block, cancellation included, aborts and is raised. A commit that is refused is
    aborted too, and `TransactionAbortedError` says why; so nothing is left to do after the block, unless it raises
    `TransactionOutcomeUnknownError`. A transaction that the block has prepared is left as it is (`prepare_transaction`).

    Args:
        transactor: returns the transactions of the producer, which makes this object.
    """

    def __init__(self, transactor: Callable[[], Transactor]) -> None:
        self.number = 0
        self.outcome: TransactionOutcome | None = None
        """COMMITTED, ABORTED or UNKNOWN; None while the transaction is open. The truth about all its records and offsets."""
        self.ended_by: AiokprodError | None = None
        self._transactor = transactor
        self._is_begun = False

    async def __aenter__(self) -> Self:
        """Begin the transaction; nothing is sent.

        First waits for the last one, where that needs no call: a block that was cancelled, an abort without an answer.

        Raises:
            TransactionTimeoutError: the last one had no end within `max_block_ms`; nothing has begun.
            UsageError: another one is open, it is not known whether it was committed, or this one was used before.

        Cancellation: nothing has begun.
        """
        if self._is_begun:
            raise UsageError("a transaction is used once: call producer.transaction() for the next one")
        transactor = self._transactor()
        await transactor.ended_in_background()
        transactor.begin(self)
        self._is_begun = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.outcome is not None:  # the block has ended it in the long form, or the producer has
            if error is None and self.ended_by is not None and self.outcome is not TransactionOutcome.COMMITTED:
                raise self.ended_by
            return
        try:
            transactor = self._transactor()
        except AiokprodError as unusable:
            if error is None:
                raise
            _note(error, unusable)
            return
        if transactor.is_prepared(self.number):
            if error is not None:  # the block may have given it away: perhaps it is committed by now
                error.add_note("the transaction is prepared, and was not aborted: end_transaction() ends it")
            return
        try:
            if error is None:
                await _commit_or_abort(transactor)
            elif isinstance(error, asyncio.CancelledError):
                # The task is to end now, a time limit is over for example; an outage would hold it for minutes.
                if not transactor.abort_in_background():
                    self.end_in_background(commits=True)
            else:
                await _abort_after(transactor, error)
        except asyncio.CancelledError:
            # The commit or abort goes on. A commit that is refused then still needs its abort, and the task that would have
            # called it is gone: without this the next block would be refused.
            if self.outcome is None:
                self.end_in_background(commits=error is None)
            raise

    def end_in_background(self, *, commits: bool) -> None:
        """Go on with an end whose task was cancelled; `Transaction.__aenter__` of the next one waits for it.

        Args:
            commits: False aborts; True commits, and aborts if that is refused. Its error is told by `outcome` alone.
        """
        with suppress(AiokprodError):  # closed or failed: that ends it
            self._transactor().end_in_background(_commit_or_abort if commits else _abort)

    async def send_offsets(self, offsets: object, group: object) -> None:
        """Take offsets of a consumer group into the transaction; see `Producer.send_offsets_to_transaction`.

        Args:
            offsets: mapping from (topic, partition) to the next offset, or what consumers give.
            group: id of the group, its GroupMetadata, or a consumer.

        Raises:
            OffsetCommitRefusedError: the group has moved on, or may not be written; or a partition does not exist.
            TransactionAbortedError: the transaction can only be aborted.
            TransactionTimeoutError: they were not taken within `max_block_ms`; the transaction can only be aborted.
            UsageError: the transaction is not open.

        Cancellation: stops waiting; the offsets may become part of the transaction.
        """
        from aiokprod.transactions.offsets import GroupMetadata, offsets_of

        taken, metadata = offsets_of(offsets), GroupMetadata.of(group)
        if not self._is_begun or self.outcome is not None:
            raise UsageError("the transaction is not open: send its offsets inside its block")
        await self._transactor().send_offsets(taken, metadata)

    def __repr__(self) -> str:
        outcome = "open" if self._is_begun else "not begun"
        return f"<Transaction {outcome if self.outcome is None else self.outcome.value}>"


async def _commit_or_abort(transactor: Transactor) -> None:
    """Commit; abort if that is refused."""
    refused: AiokprodError
    try:
        await transactor.commit(None)
    except (ProducerFailedError, TransactionOutcomeUnknownError, UsageError):
        raise
    except AiokprodError as cause:
        refused = cause
    else:
        return
    aborted = TransactionAbortedError("the transaction was aborted, as it could not be committed")
    try:
        await transactor.abort(None)
    except TransactionOutcomeUnknownError:
        if transactor.may_be_committed:
            raise
        aborted.add_note(UNCONFIRMED)
    raise aborted from refused


async def _abort(transactor: Transactor) -> None:
    await transactor.abort(None)


async def _abort_after(transactor: Transactor, error: BaseException) -> None:
    """Abort, as the block has raised; its exception is the one that is told.

    Raises:
        ProducerFencedError: of that the exception was the first sign.
    """
    try:
        await transactor.abort(None)
    except ProducerFencedError as fence:
        if isinstance(error, ProducerFencedError):
            return
        if _is_sign_of_a_fence(error):
            raise fence from error
        _note(error, fence)
    except TransactionOutcomeUnknownError as trouble:
        if transactor.may_be_committed:
            _note(error, trouble)
        else:
            error.add_note(UNCONFIRMED)
    except AiokprodError as trouble:
        _note(error, trouble)


def _is_sign_of_a_fence(error: BaseException | None) -> bool:
    """Return whether a broker has refused the identity; on version 2 that may also be the coordinator's timeout."""
    while isinstance(error, AiokprodError):
        if error.code in SIGNS:
            return True
        error = error.__cause__
    return False


def _note(error: BaseException, trouble: AiokprodError) -> None:
    error.add_note(f"the transaction could not be aborted ({type(trouble).__name__}): {trouble}")
