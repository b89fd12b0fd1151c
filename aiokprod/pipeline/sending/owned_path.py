"""`OwnedPath`: the way of records while `exactly_once` owns the transactions of a producer. One per loop of batches.

It differs from `SendPath` in two things, as a batch is run again where its transaction cannot be committed:

- A record of a transaction that can only be aborted is taken and dropped: its Delivery fails. To raise would end the loop.
- A call of a task that an earlier batch has started is refused: its record would be committed with another batch. Tasks are
  known by the context that they have copied, so those that were started outside of the loop may send.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, Final

from aiokprod.errors import AiokprodError, TransactionAbortedError, UsageError, advise
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.pipeline.partition.send_many import SendMany
from aiokprod.pipeline.sending.send_path import SendPath


class Ticket:
    """The part of a batch in the contexts of its tasks; holds no records, as a task may live long."""

    __slots__ = ("is_over", "owner")

    def __init__(self, owner: object) -> None:
        """Make the ticket of a new batch; `owner`: its producer."""
        self.owner = owner
        self.is_over = False


TICKET: Final[ContextVar[Ticket | None]] = ContextVar("aiokprod_batch", default=None)


def batch_is_over() -> UsageError:
    """Return the error of a send for a batch that has ended."""
    error = UsageError("the batch of exactly_once in which this task was started, or whose send was called, is over")
    advise(
        error,
        "Await every task that the body of the loop starts before its end. A task that lives longer is started outside of the"
        " loop, or sends by the `send` of the batch that a record belongs to.",
    )
    return error


class OwnedPath(SendPath):
    """The way of records of a producer whose transactions are those of batches."""

    def __init__(self, path: SendPath, owner: object) -> None:
        """Make the path in the place of another one; `owner`: the producer."""
        super().__init__(path.parking, path._checks, path._loop, path._refusal)
        self._owner = owner
        self._is_taking_many = False

    def send(
        self,
        topic: object,
        value: object,
        key: object,
        partition: object,
        headers: Any,
        timestamp_ms: object,
        timeout: object,
    ) -> Delivery:
        """Send one record, or drop it."""
        self.check_caller()
        try:
            return super().send(topic, value, key, partition, headers, timestamp_ms, timeout)
        except TransactionAbortedError as error:
            if self._is_taking_many:  # the call is awaited, and says what has failed
                raise
            return self._dropped(topic, error)

    def take(self, bulk: SendMany, topic: str, values: Iterator[object], timeout: object, most: int) -> bool:
        """Take values, as the base does."""
        self._check_many(bulk)
        before, self._is_taking_many = self._is_taking_many, True
        try:
            return super().take(bulk, topic, values, timeout, most)
        finally:
            self._is_taking_many = before

    def take_list(self, bulk: SendMany, topic: str, values: Sequence[Any], at: int, timeout: object, most: int) -> int:
        """Take values, as the base does."""
        self._check_many(bulk)
        return super().take_list(bulk, topic, values, at, timeout, most)

    def _check_many(self, bulk: SendMany) -> None:
        try:
            self.check_caller()
        except AiokprodError as refused:
            raise bulk.end_by(refused) from None

    def check_caller(self) -> None:
        """Check that this is no task of a batch that is over."""
        ticket = TICKET.get()
        if ticket is not None and ticket.is_over and ticket.owner is self._owner:
            raise batch_is_over()

    def _dropped(self, topic: object, error: AiokprodError) -> Delivery:
        """Return the Delivery of a record that was not accepted."""
        now = self._loop.time()
        record = ParkedRecord(self._loop, topic if isinstance(topic, str) else "", now, now, 0, _ignore)
        record.settled_at, record.failure, record.is_over = now, error.clone(), True
        delivery, record.delivery = record.delivery, None
        assert delivery is not None
        return delivery


def _ignore(record: ParkedRecord, error: AiokprodError) -> None:
    """Ignore the failure: the record has its outcome."""
