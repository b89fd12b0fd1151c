"""Records from stored batches, for tests to compare and for the record rules to check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aiokprod.errors import CodecUnavailableError, ProtocolError
from aiokprod.records.decoder import DecodedBatch, DecodedRecord, HeaderPairs, decode_batches
from aiokprod.testing.mock.batch_header import CODEC_MASK, HEADER_BYTES
from aiokprod.testing.mock.log import StoredBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record of a log, with its place and its producer."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: HeaderPairs
    timestamp_ms: int
    producer_id: int
    producer_epoch: int
    sequence: int
    """-1 for a plain producer."""


@dataclass(frozen=True, slots=True)
class BatchTrouble:
    """An error of a batch whose records cannot be read."""

    reason: str
    is_compression: bool


def open_batch(batch: bytes | memoryview) -> tuple[DecodedBatch, bytes] | BatchTrouble | None:
    """Return one batch, with checked CRC, and its unpacked records; None if the codec is not installed."""
    view = memoryview(batch)
    codec = view[22] & CODEC_MASK if len(view) >= HEADER_BYTES else 0
    try:
        for decoded in decode_batches(view, check_crc=False):
            try:
                return decoded, decoded.section()
            except ProtocolError as broken:
                return BatchTrouble(str(broken), is_compression=codec != 0)
    except ProtocolError as broken:
        return BatchTrouble(str(broken), is_compression=False)
    except CodecUnavailableError:
        return None  # a broker without the codec cannot judge: taken as it is
    return BatchTrouble("no whole batch", is_compression=False)


def decode_records(batch: bytes | memoryview) -> list[DecodedRecord] | BatchTrouble:
    """Return the records of one batch whose CRC was checked; an empty list if the codec is not installed here."""
    opened = open_batch(batch)
    if opened is None or isinstance(opened, BatchTrouble):
        return opened or []
    try:
        return opened[0].records()
    except ProtocolError as broken:
        return BatchTrouble(str(broken), is_compression=False)


def stored_records(topic: str, partition: int, batches: list[StoredBatch]) -> Iterator[StoredRecord]:
    """Decode batches of a log. Raises ProtocolError for a batch whose records are nonsense."""
    for batch in batches:
        if batch.is_control:
            continue  # a marker holds no record of a client
        for decoded in decode_batches(batch.data, check_crc=False):
            for index, record in enumerate(decoded.records()):
                yield StoredRecord(
                    topic=topic,
                    partition=partition,
                    offset=batch.base_offset + index,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                    timestamp_ms=record.timestamp_ms,
                    producer_id=batch.producer_id,
                    producer_epoch=batch.producer_epoch,
                    sequence=-1 if batch.base_sequence < 0 else (batch.base_sequence + index) % 2**31,
                )
