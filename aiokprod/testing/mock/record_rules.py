"""The rules by which a broker refuses records inside a batch: keys on a compacted topic, timestamps, malformed records.

Called by `Partition.append` after the header's own checks; pure. Every record is looked at, as a broker does; decoded are
only those of a batch in which a rule may bite: a timestamp out of bounds, a compacted topic. A mock that was told not to
validate looks at these alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiokprod.errors import ProtocolError
from aiokprod.records.decoder import DecodedRecord
from aiokprod.testing.mock.batch_header import BatchHeader
from aiokprod.testing.mock.log import TopicSettings
from aiokprod.testing.mock.record_walk import walk_records
from aiokprod.testing.mock.stored_records import BatchTrouble, open_batch
from aiokprod.wire.codes import ErrorCode

_NAMED_IN_MESSAGE = 3
"""The broker's error_message for 87 repeats the first three records. broker: 4.10"""


@dataclass(frozen=True, slots=True)
class BadRecords:
    """The refusal of a batch because of some of its records."""

    code: ErrorCode
    message: str | None = None
    record_errors: tuple[tuple[int, str], ...] = ()


def judge_records(
    records: bytes | memoryview,
    header: BatchHeader,
    settings: TopicSettings,
    now_ms: int,
    *,
    topic: str,
    partition: int,
    always: bool = False,
) -> BadRecords | None:
    """Refuse the batch for its records, or return None. broker: 4.3, 4.10, 13.4, 13.5, 13.7"""
    earliest_ms = now_ms - settings.timestamp_before_max_ms
    latest_ms = now_ms + settings.timestamp_after_max_ms
    timed = not settings.is_log_append_time  # broker: 13.8, the client's value is free there
    out_of_bounds = timed and (header.max_timestamp_ms > latest_ms or header.base_timestamp_ms < earliest_ms)
    if not (always or settings.is_compacted or out_of_bounds):
        return None
    opened = open_batch(memoryview(records)[: header.size_bytes])
    if opened is None:
        return None
    if isinstance(opened, BatchTrouble):
        return BadRecords(ErrorCode.UNKNOWN_SERVER_ERROR if opened.is_compression else ErrorCode.INVALID_RECORD)
    batch, section = opened
    try:
        least_ms, greatest_ms = walk_records(section, header.count)
    except ProtocolError:
        return BadRecords(ErrorCode.INVALID_RECORD)
    if batch.is_log_append_time:  # the records then have the batch's time, whatever they say
        least_ms = greatest_ms = header.max_timestamp_ms
    else:
        least_ms, greatest_ms = header.base_timestamp_ms + least_ms, header.base_timestamp_ms + greatest_ms
    if not settings.is_compacted and (not timed or earliest_ms <= least_ms <= greatest_ms <= latest_ms):
        return None
    decoded = batch.records()
    where = f"{topic}-{partition}"
    if settings.is_compacted:
        bad = _without_key(decoded, where)
        if bad:
            return BadRecords(ErrorCode.INVALID_RECORD, _rejected(bad), bad)
    if timed:
        bad = tuple(
            (
                index,
                f"Timestamp {record.timestamp_ms} of message with offset {index} is out of range. "
                f"The timestamp should be within [{earliest_ms}, {latest_ms}]",
            )
            for index, record in enumerate(decoded)
            if not earliest_ms <= record.timestamp_ms <= latest_ms
        )
        if bad:
            message = "One or more records have been rejected due to invalid timestamp"
            return BadRecords(ErrorCode.INVALID_TIMESTAMP, message, bad)
    return None


def _without_key(decoded: list[DecodedRecord], where: str) -> tuple[tuple[int, str], ...]:
    text = f"Compacted topic cannot accept message without key in topic partition {where}"
    return tuple((index, text) for index, record in enumerate(decoded) if record.key is None)


def _rejected(bad: tuple[tuple[int, str], ...]) -> str:
    named = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in bad[:_NAMED_IN_MESSAGE])
    return (
        f"One or more records have been rejected due to {len(bad)} record errors in total, "
        f"and only showing the first three errors at most: [{named}]"
    )
