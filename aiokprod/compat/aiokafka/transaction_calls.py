"""`TransactionCalls`: the part of `AIOKafkaProducer` with transactions."""

from __future__ import annotations

from typing import Any

from aiokprod.compat.aiokafka.errors import theirs_too
from aiokprod.compat.aiokafka.producer_life import ProducerLife
from aiokprod.compat.aiokafka.theirs import commit_structure_validate
from aiokprod.compat.aiokafka.transaction_context import TransactionContext


class TransactionCalls(ProducerLife):
    """The transactions of a producer with a `transactional_id`."""

    def _ensure_transactional(self) -> None:
        with theirs_too():
            self._producer.transaction()

    async def begin_transaction(self) -> None:
        """Open a transaction.

        Raises:
            UsageError: another one is open, or there is no `transactional_id`; it is an `IllegalOperation`.
            ProducerFencedError: another instance has taken the `transactional_id`; it is aiokafka's `ProducerFenced`.

        Cancellation: it does not wait.
        """
        with theirs_too():
            self._producer.begin_transaction()

    async def commit_transaction(self) -> None:
        """Deliver what was sent in the transaction, and commit it.

        Raises:
            UsageError: no transaction is open; it is an `IllegalOperation`.
            AiokprodError: not committed, call `abort_transaction`; as of `aiokprod.Producer.commit_transaction`.

        Cancellation: stops waiting; the commit goes on.
        """
        with theirs_too():
            await self._producer.commit_transaction()

    async def abort_transaction(self) -> None:
        """Abort the transaction.

        Raises:
            UsageError: no transaction is open; it is an `IllegalOperation`.
            AiokprodError: as of `aiokprod.Producer.abort_transaction`.

        Cancellation: stops waiting; the abort goes on.
        """
        with theirs_too():
            await self._producer.abort_transaction()

    def transaction(self) -> TransactionContext:
        """Return a context for a transaction: `async with producer.transaction(): ...`.

        Its normal end commits; an exception aborts. So does a commit that is refused, whose error is raised.

        Returns:
            The context; it may be used again.
        """
        return TransactionContext(self._producer)

    async def send_offsets_to_transaction(self, offsets: Any, group_id: str) -> None:
        """Take offsets of a consumer group into the transaction.

        Args:
            offsets: mapping from `TopicPartition` to the offset that is read next, alone or with metadata.
            group_id: id of the group.

        Raises:
            ValueError, TypeError: an argument is not that; nothing was sent.
            UsageError: no transaction is open; it is an `IllegalOperation`.
            AiokprodError: as of `aiokprod.Producer.send_offsets_to_transaction`.

        Cancellation: stops waiting; the offsets may become part of the transaction.
        """
        if not group_id or not isinstance(group_id, str):
            raise ValueError(group_id)
        taken = commit_structure_validate(offsets)
        with theirs_too():
            await self._producer.send_offsets_to_transaction(taken, group_id)
