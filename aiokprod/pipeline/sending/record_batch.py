"""`RecordBatch`: a batch that the program fills, and that is sent to one partition as it is. Made by `create_batch`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokprod.errors import UsageError
from aiokprod.model import Persistence, Record
from aiokprod.pipeline.partition.filled_batch import FilledBatch
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.pipeline.sending.serializing import let_go


class RecordBatch:
    """Records for one partition that are written together, or not at all. Made by `Producer.create_batch`.

        batch = producer.create_batch("orders", 0)
        while lines and batch.append(lines[0]):
            lines.pop(0)
        deliveries = await producer.send_batch(batch)

    `len()` of it is the number of its records. It holds no room in `buffer_memory` before `send_batch`.

    Args:
        checks: of the producer.
        topic: topic name.
        partition: partition number.
        size: bytes of the batch before compression, at most.
        buffer_memory: of the producer.
    """

    def __init__(self, checks: RecordChecks, topic: str, partition: int, size: int, buffer_memory: int) -> None:
        self.topic = topic
        self.partition = partition
        self._checks = checks
        self._filled = FilledBatch(size, buffer_memory)
        self._is_closed = False

    @property
    def size_bytes(self) -> int:
        """Size of the batch in bytes before compression: an upper bound."""
        return self._filled.size_bytes

    @property
    def closed(self) -> bool:
        """True if it takes no more records: `close` was called, or it was given to `send_batch`."""
        return self._is_closed

    def append(
        self,
        value: Any = None,
        key: Any = None,
        *,
        headers: Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None] = (),
        timestamp_ms: int | None = None,
    ) -> bool:
        """Add a record, if there is room for it.

        Args:
            value: bytes, or the argument of `value_serializer`; None is a tombstone.
            key: bytes, or the argument of `key_serializer`; None is no key, b"" is a key.
            headers: (str, bytes) pairs, or a mapping.
            timestamp_ms: milliseconds since 1970; None is the current time.

        Returns:
            True if the record is in the batch; False if the batch is full, or closed. The first record always has room.

        Raises:
            RecordTypeError, InvalidTimestampError: an argument is wrong; the record is not in the batch.
            RecordTooLargeError: the record is larger than `max_request_size` or `buffer_memory`.
            SerializationError: a serializer raised.
            UsageError: a serializer returned an awaitable, which this call cannot await.
        """
        if self._is_closed:
            return False
        checks, topic = self._checks, self.topic
        record = Record(topic=topic, value=value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        checks.checked_options(record)
        if checks.serialize(record):
            let_go(record)
            raise UsageError(
                "append() cannot await a serializer: serialize before, or send the record with send()",
                topic=topic,
                persistence=Persistence.NOT_PERSISTED,
            )
        plain_key, plain_value, encoded, sent_ms, size_bytes = checks.frozen(record)
        return self._filled.add(plain_value, plain_key, encoded, sent_ms, size_bytes)

    def close(self) -> None:
        """Take no more records. `send_batch` does so by itself."""
        self._is_closed = True

    def __len__(self) -> int:
        return len(self._filled.values)

    def __repr__(self) -> str:
        return f"<RecordBatch {self.topic}-{self.partition}, {len(self)} records, {self.size_bytes} bytes>"


def filled_of(batch: RecordBatch) -> FilledBatch:
    """Return the records of a batch.

    Args:
        batch: in any state.
    """
    return batch._filled  # pyright: ignore[reportPrivateUsage] - of this module


def is_made_by(batch: RecordBatch, checks: RecordChecks) -> bool:
    """Return whether the producer with these checks has made the batch.

    Args:
        batch: in any state.
        checks: of the producer.
    """
    return batch._checks is checks  # pyright: ignore[reportPrivateUsage] - of this module
