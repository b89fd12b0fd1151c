"""`Batch`: the records of one batch, with a `send` that is bound to its transaction. Made by `ExactlyOnceBatches`."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from types import TracebackType
from typing import Any, Self, cast

from aiokprod.errors import AiokprodError, SendReport, TransactionAbortedError
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.sending.owned_path import TICKET, Ticket, batch_is_over
from aiokprod.producer import HeadersArgument, Producer


class Batch(list[Any]):
    """A batch of `exactly_once`: a list of records, as the consumer has them, those of a partition in order.

        async for batch in batches:
            with batch:
                for record in batch:
                    await batch.send("out", transform(record.value))

    `with batch:` is for bodies that await what they send. If the transaction can only be aborted, it lets an error of this
    package end the block and not the loop: the next step of the loop runs the batch again, or raises what would come again.
    """

    def __init__(self, records: Iterable[Any], producer: Producer, ticket: Ticket) -> None:
        super().__init__(records)
        self._producer = producer
        self._ticket = ticket

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: HeadersArgument = (),
        timestamp_ms: int | None = None,
        timeout: float | None = None,
    ) -> Delivery:
        """Send one record in the transaction of this batch, from any task; see `Producer.send`.

        Args:
            topic: topic name.
            value: bytes, or the argument of `value_serializer`; None is a tombstone.
            key: bytes, or the argument of `key_serializer`; None is no key, b"" is a key.
            partition: partition number; None lets the partitioner choose.
            headers: (str, bytes) pairs, or a mapping.
            timestamp_ms: milliseconds since 1970; None is the current time.
            timeout: bound for the delivery of this record, in seconds; `delivery_timeout_ms` applies as well.

        Returns:
            A Delivery. If the transaction can only be aborted, it fails with TransactionAbortedError: the record is dropped, as
            the batch is run again.

        Raises:
            UsageError: the batch is over.
            AiokprodError: see `Producer.send`; the record was not accepted.
        """
        self._check()
        before = TICKET.set(self._ticket)
        try:
            return self._producer.send(
                topic, value, key, partition=partition, headers=headers, timestamp_ms=timestamp_ms, timeout=timeout
            )
        finally:
            TICKET.reset(before)

    async def send_many(
        self, topic: str, values: Iterable[Any] | AsyncIterable[Any], *, timeout: float | None = None
    ) -> SendReport:
        """Send many records in the transaction of this batch, and wait for all of them; see `Producer.send_many`.

        Args:
            topic: topic name, for each value and for each `Record` without a topic.
            values: values or `Record`s, in an iterable or an async iterable; read only as fast as there is room.
            timeout: bound for the delivery of each record, in seconds from when it is read.

        Returns:
            The number of delivered records, and their offsets per partition.

        Raises:
            UsageError: the batch is over.
            SendManyError: some records failed.
            TransactionAbortedError: the transaction can only be aborted.
            AiokprodError: see `Producer.send_many`.

        Cancellation: stops reading values; the accepted records are still sent.
        """
        self._check()
        before = TICKET.set(self._ticket)
        try:
            return await self._producer.send_many(topic, values, timeout=timeout)
        finally:
            TICKET.reset(before)

    def _check(self) -> None:
        if self._ticket.is_over:
            raise batch_is_over()

    def __enter__(self) -> Self:
        """Return the batch."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Return whether the error is left to the loop: it is one of this package, and the transaction can only be aborted."""
        return error is not None and not self._ticket.is_over and _is_ours(error) and self._is_abortable()

    def _is_abortable(self) -> bool:
        try:
            transactor = self._producer._transactor()  # pyright: ignore[reportPrivateUsage] - of this package
        except AiokprodError:  # closed, or failed
            return False
        return isinstance(transactor.refusal(), TransactionAbortedError)


def _is_ours(error: BaseException) -> bool:
    """Return whether this is an error of this package, or a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_ours(each) for each in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, AiokprodError)
