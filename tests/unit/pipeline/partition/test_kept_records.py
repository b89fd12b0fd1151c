"""`keep_failed_records`: `on_delivery_error` gets the record itself, wherever it was when it failed, and as it was sent."""

from __future__ import annotations

import asyncio
from array import array
from random import Random
from typing import Any

import pytest
from column_rig import column
from virtual_rig import Told, log, outcomes, run, started

from aiokprod import Record
from aiokprod.errors import (
    AiokprodError,
    DeliveryTimeoutError,
    InvalidRecordError,
    RecordTooLargeError,
    SendManyError,
    SendTimeoutError,
    SerializationError,
    UndeliveredAtCloseError,
)
from aiokprod.pipeline.delivery.unasked_failures import GRACE_S
from aiokprod.testing.virtual import VirtualNetwork

KEEPS: dict[str, Any] = {"keep_failed_records": True}
QUICK: dict[str, Any] = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 2_000}
NOW = 1_700_000_000_000
LARGE = Random(1).randbytes(1_000)  # and not smaller when it is compressed


def records(told: Told) -> list[Record | None]:
    return [error.record for error in told.errors]


def a_record(number: int) -> dict[str, Any]:
    """Return the arguments of `send`; every second one has a key and headers."""
    if number % 2:
        return {"value": b"v%d" % number, "timestamp_ms": NOW + number}
    headers = (("h", b"%d" % number), ("none", None))
    return {"value": None, "key": b"k%d" % number, "headers": headers, "timestamp_ms": NOW + number}


def as_kept(number: int, partition: int | None = 0, topic: str = "t") -> Record:
    return Record(topic=topic, partition=partition, **a_record(number))


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_that_was_sent_and_fails_as_a_whole_gives_its_records(codec: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        options = KEEPS | QUICK | {"compression_type": codec}
        async with started(network, on_delivery_error=told, **options) as (cluster, producer):
            cluster.fail_next("Produce", 19, times=None)
            for number in range(20):
                producer.send("t", **a_record(number))
            await asyncio.sleep(5 + GRACE_S)
            assert {type(error) for error in told.errors} == {DeliveryTimeoutError}
            assert records(told) == [as_kept(number) for number in range(20)]

    run(scenario)


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_batch_that_fails_bit_by_bit_gives_its_records(codec: str) -> None:
    """A split, and then records refused by name."""

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        options = KEEPS | {"compression_type": codec, "linger_ms": 1_000}
        async with started(network, on_delivery_error=told, **options) as (cluster, producer):
            cluster.create_topic("c", cleanup_policy="compact")
            for number in range(20):
                producer.send("c", **a_record(number))
            await producer.flush()
            await asyncio.sleep(GRACE_S + 1)
            assert {type(error) for error in told.errors} == {InvalidRecordError}
            assert records(told) == [as_kept(number, topic="c") for number in range(1, 20, 2)]
            cluster.alter_topic("t", max_message_bytes=300)
            producer.send("t", b"before")
            producer.send("t", LARGE, key=b"k")
            producer.send("t", b"behind")
            await producer.flush()
            await asyncio.sleep(GRACE_S + 1)
            assert type(told.errors[-1]) is RecordTooLargeError
            kept = told.errors[-1].record
            assert kept is not None and (kept.key, kept.value) == (b"k", LARGE)
            assert log(cluster) == [b"before", b"behind"]

    run(scenario)


def test_records_that_were_never_sent_are_given_too() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **KEEPS) as (cluster, producer):
            cluster.refuse_connections(1)
            for number in range(4):
                producer.send("t", **a_record(number), timeout=1.0)
                producer.send("unknown", **a_record(number), timeout=1.0)
            await asyncio.sleep(2 + GRACE_S)
            assert {type(error) for error in told.errors} == {SendTimeoutError}
            of_topic = [[kept for kept in records(told) if kept and kept.topic == name] for name in ("t", "unknown")]
            assert of_topic[0] == [as_kept(number) for number in range(4)]
            assert of_topic[1] == [as_kept(number, None, "unknown") for number in range(4)]

    run(scenario)


def test_a_send_timeout_of_a_record_in_flight_gives_it_and_the_record_goes_on() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **KEEPS) as (cluster, producer):
            held = cluster.hold("Produce")
            for number in range(6):
                producer.send("t", **a_record(number), timeout=None if number % 3 else 1.0)
            await asyncio.sleep(2 + GRACE_S)
            assert records(told) == [as_kept(0), as_kept(3)]
            cluster.release(held)
            await producer.flush()
            assert len(log(cluster)) == 6

    run(scenario)


def test_what_close_gives_up_is_given_after_it() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **KEEPS) as (cluster, producer):
            held = cluster.hold("Produce")
            for number in range(6):
                producer.send("t", **a_record(number))
                if number == 3:
                    await asyncio.sleep(1)  # the first four are in flight, the others in a batch that is open
            await producer.close(timeout=0)
            await asyncio.sleep(0)
            assert {type(error) for error in told.errors} == {UndeliveredAtCloseError}
            assert records(told) == [as_kept(number) for number in range(6)]
            cluster.release(held)

    run(scenario)


def test_rows_of_a_cancelled_send_columns_are_given() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **KEEPS, **QUICK) as (cluster, producer):
            cluster.fail_next("Produce", 19, times=None)
            task = asyncio.create_task(
                producer.send_columns("t", column([b"a", b"b"]), timestamps_ms=array("q", [NOW, NOW + 1]))
            )
            await asyncio.sleep(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(5)
            wanted = [
                Record(value=value, topic="t", partition=0, timestamp_ms=NOW + at)
                for at, value in enumerate((b"a", b"b"))
            ]
            assert records(told) == wanted

    run(scenario)


def test_a_record_whose_serializer_has_not_answered_has_no_bytes_to_give() -> None:
    async def never(data: bytes) -> bytes:
        await asyncio.sleep(1_000)
        return data

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        options = KEEPS | {"max_block_ms": 1_000, "value_serializer": never}
        async with started(network, on_delivery_error=told, **options) as (_, producer):
            producer.send("t", b"v")
            await asyncio.sleep(2 + GRACE_S)
            assert [type(error) for error in told.errors] == [SerializationError]
            assert records(told) == [None]

    run(scenario)


def test_a_record_whose_serializer_has_answered_is_given_though_it_waits_for_another_one() -> None:
    """Such a record had its bytes all the time, and its error had no record."""

    def cached(data: bytes) -> Any:
        return never(data) if data == b"missed" else bytearray(data)

    async def never(data: bytes) -> bytes:
        await asyncio.sleep(1_000)
        return data

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        options = KEEPS | {"max_block_ms": 1_000, "value_serializer": cached}
        async with started(network, on_delivery_error=told, **options) as (_, producer):
            producer.send("t", b"missed")
            producer.send("t", b"hit", key=b"k", headers={"h": bytearray(b"1")}, timestamp_ms=NOW)
            await producer.close(timeout=0)
            await asyncio.sleep(0)
            hit = Record(topic="t", value=b"hit", key=b"k", headers=(("h", b"1"),), timestamp_ms=NOW)
            assert records(told) == [None, hit]

    run(scenario)


@pytest.mark.parametrize("answered", [LARGE * 2_000, 5])
def test_what_an_awaited_serializer_answered_is_given_if_it_is_bytes(answered: Any) -> None:
    async def dressed(data: bytes) -> Any:
        return answered

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **KEEPS, value_serializer=dressed) as (_, producer):
            producer.send("t", b"v", timestamp_ms=NOW)
            await asyncio.sleep(1 + GRACE_S)
            is_large = isinstance(answered, bytes)
            assert [type(error) for error in told.errors] == [RecordTooLargeError if is_large else SerializationError]
            given = Record(topic="t", value=answered, headers=(), timestamp_ms=NOW)
            assert records(told) == [given if is_large else None]

    run(scenario)


def test_without_the_option_and_for_awaiting_callers_errors_have_no_record() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **QUICK) as (cluster, producer):
            cluster.fail_next("Produce", 19, times=None)
            producer.send("t", b"v")
            await asyncio.sleep(5 + GRACE_S)
            assert records(told) == [None]
        async with started(network, on_delivery_error=told, **KEEPS, **QUICK) as (cluster, producer):
            cluster.fail_next("Produce", 19, times=None)
            [error] = await outcomes([producer.send("t", b"v")])
            assert isinstance(error, AiokprodError) and error.record is None
            with pytest.raises(SendManyError) as caught:
                await producer.send_many("t", [b"v"])
            assert caught.value.report.failures[0][1].record is None
            assert len(told.errors) == 1

    run(scenario)


def test_the_content_of_a_record_is_in_no_text_of_its_error(caplog: pytest.LogCaptureFixture) -> None:
    """The log tells of the failure, and of nothing that was in the record."""

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with started(network, on_delivery_error=told, **KEEPS, **QUICK) as (cluster, producer):
            cluster.fail_next("Produce", 19, times=None)
            producer.send("t", b"PRIVATE", key=b"PRIVATE")
            await asyncio.sleep(5 + GRACE_S)
            [error] = told.errors
            assert error.record is not None
            assert "PRIVATE" not in f"{error} {error!r} {caplog.text}"
            assert caplog.text

    run(scenario)
