"""Batches that a program fills: `create_batch` and `send_batch`.

The records of a batch are sent to its partition as one batch (`Producer.send_batch`): aiokafka's builder counts the bytes, ours
encodes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokprod.compat.aiokafka.errors import be_theirs_too
from aiokprod.compat.aiokafka.sent_record import NO_OFFSET, metadata_of
from aiokprod.compat.aiokafka.theirs import BatchBuilder, RecordMetadata
from aiokprod.delivery_type import Delivery
from aiokprod.errors import AiokprodError
from aiokprod.model import TimestampType

UNCOMPRESSED = 0
Headers = Sequence[tuple[str, bytes | None]]


class FilledBatch(BatchBuilder):
    """aiokafka's builder of a batch, which also keeps its records: they are encoded again when they are sent.

    Args:
        batch_size: bytes after which `append` returns None.
        key_serializer: makes bytes of a key; None takes bytes.
        value_serializer: makes bytes of a value; None takes bytes.
    """

    def __init__(self, batch_size: int, key_serializer: Any, value_serializer: Any) -> None:
        super().__init__(batch_size, UNCOMPRESSED, key_serializer=key_serializer, value_serializer=value_serializer)
        self.records: list[tuple[bytes | None, bytes | None, int, Headers]] = []
        self._last: tuple[Any, Any] = (None, None)

    def _serialize(self, key: Any, value: Any) -> tuple[Any, Any]:
        self._last = super()._serialize(key, value)
        return self._last

    def append(self, *, timestamp: int | None, key: Any, value: Any, headers: Any = ()) -> Any:
        """Add a record.

        Args:
            timestamp: milliseconds since 1970; None is the current time.
            key: bytes, or the argument of the key serializer.
            value: bytes, or the argument of the value serializer.
            headers: pairs of a name and bytes.

        Returns:
            An object with offset, size and timestamp of the record in the batch; None if the batch is full, or closed.
        """
        pairs = list(headers or ())
        added = super().append(timestamp=timestamp, key=key, value=value, headers=pairs)
        if added is not None:
            self.records.append((*self._last, added.timestamp, pairs))
        self._last = (None, None)
        return added


async def outcome_of(deliveries: Sequence[Delivery], acks: int) -> RecordMetadata | None:
    """Wait for the records of a batch.

    Args:
        deliveries: one for each record, in their order.
        acks: of the producer; with 0 nothing is told.

    Returns:
        The place of the first record, as aiokafka tells it of a batch: with timestamp -1, unless the broker set it.

    Raises:
        AiokprodError: the error of the first record that failed; it is aiokafka's too.

    Cancellation: stops waiting; the records are still sent.
    """
    outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, AiokprodError):
            raise be_theirs_too(outcome)
        if isinstance(outcome, BaseException):
            raise outcome
    first = outcomes[0]
    assert not isinstance(first, BaseException)
    if acks == 0:
        return None
    told = metadata_of(first)
    return told._replace(timestamp=NO_OFFSET) if first.timestamp_type is TimestampType.CREATE_TIME else told
