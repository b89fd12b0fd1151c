"""`RecordBatch`: what `append` takes, and what it says of a batch that is full or closed."""

from __future__ import annotations

from typing import Any

import pytest

from aiokprod import ProducerConfig, RecordBatch
from aiokprod.errors import (
    InvalidTimestampError,
    RecordTooLargeError,
    RecordTypeError,
    SerializationError,
    UsageError,
)
from aiokprod.logs import StateLog
from aiokprod.pipeline.sending.record_batch import filled_of, is_made_by
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.records.headers import encode_headers


def new_batch(size: int = 1_000, **options: Any) -> RecordBatch:
    config = ProducerConfig.of(bootstrap_servers="kafka", **options)
    checks = RecordChecks(config, StateLog("producer", client_id="c"))
    return RecordBatch(checks, "t", 3, size, config.buffer_memory)


def test_records_are_checked_and_kept_as_they_are_written() -> None:
    batch = new_batch()
    assert batch.append(b"v", b"k", headers={"h": b"1"}, timestamp_ms=7) and batch.append(bytearray(b"w"))
    filled = filled_of(batch)
    assert (filled.values, filled.keys) == ([b"v", b"w"], [b"k", None])
    assert filled.headers == [encode_headers([("h", b"1")]), None] and filled.times_ms[0] == 7 < filled.times_ms[1]
    assert (batch.topic, batch.partition, len(batch), batch.size_bytes) == ("t", 3, 2, filled.size_bytes)
    assert "t-3, 2 records" in repr(batch)


def test_a_full_batch_and_a_closed_one_take_nothing() -> None:
    batch = new_batch(200)
    taken = 0
    while batch.append(b"x" * 20):
        taken += 1
    assert 1 < taken == len(batch) and batch.size_bytes <= 200 and not batch.closed
    assert not batch.append(b"x" * 20)
    batch.close()
    assert batch.closed and not batch.append(b"") and len(batch) == taken


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"value": "text"}, RecordTypeError),
        ({"key": 5}, RecordTypeError),
        ({"headers": {"h": "text"}}, RecordTypeError),
        ({"timestamp_ms": -1}, InvalidTimestampError),
        ({"value": b"x" * 5_000}, RecordTooLargeError),
    ],
)
def test_what_is_wrong_is_refused_and_the_batch_stays_as_it_was(
    arguments: dict[str, Any], expected: type[Exception]
) -> None:
    batch = new_batch(max_request_size=2_000, batch_size=1_000)
    with pytest.raises(expected):
        batch.append(**arguments)
    assert not len(batch) and batch.append(b"v")


def test_serializers_are_called_and_may_not_be_awaited() -> None:
    def serialize(topic: str, headers: list[tuple[str, bytes | None]], data: Any) -> Any:
        if data == "raises":
            raise ValueError("no")
        headers.append(("by", topic.encode()))
        return later() if data == "later" else data.encode()

    async def later() -> bytes:
        return b"never"

    batch = new_batch(value_serializer=serialize)
    assert batch.append("text")
    assert (filled_of(batch).values, filled_of(batch).headers) == ([b"text"], [encode_headers([("by", b"t")])])
    with pytest.raises(UsageError, match="await a serializer"):
        batch.append("later")
    with pytest.raises(SerializationError):
        batch.append("raises")
    assert len(batch) == 1


def test_a_batch_is_known_by_the_producer_that_made_it() -> None:
    one, other = new_batch(), new_batch()
    assert is_made_by(one, one._checks) and not is_made_by(one, other._checks)
