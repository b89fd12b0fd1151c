"""`TransactionContext`: what `producer.transaction()` returns."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from aiokprod.compat.aiokafka.errors import be_theirs_too, theirs_too
from aiokprod.errors import AiokprodError, TransactionAbortedError
from aiokprod.producer import Producer
from aiokprod.transactions.transaction import Transaction


class TransactionContext:
    """A transaction of a producer, for `async with`; one after the other, as often as it is entered.

    Args:
        producer: the producer inside.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._open: Transaction | None = None

    async def __aenter__(self) -> Self:
        with theirs_too():
            transaction = self._producer.transaction()
            await transaction.__aenter__()
        self._open = transaction
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transaction, self._open = self._open, None
        assert transaction is not None
        try:
            await transaction.__aexit__(kind, error, trace)
        except TransactionAbortedError as aborted:
            cause = aborted.__cause__
            if error is None and isinstance(cause, AiokprodError):
                raise be_theirs_too(cause)  # noqa: B904 - aiokafka's commit raises this one
            be_theirs_too(aborted)
            raise
        except AiokprodError as trouble:
            be_theirs_too(trouble)
            raise
