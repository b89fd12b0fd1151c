"""Awaitable serializers in a whole producer: their records have a deadline, a place, a size, and an end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from virtual_rig import Told, kinds, log, outcomes, room, run, started, waits_for

from aiokprod import Producer, Record
from aiokprod.errors import AiokprodError, BufferFullError, RecordTypeError, SerializationError
from aiokprod.explanation import WaitsFor
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

Headers = list[tuple[str, bytes | None]]


async def slow(topic: str, headers: Headers, data: Any) -> bytes:
    """Serialize in 0.3 s; a number becomes as many bytes."""
    await asyncio.sleep(0.3)
    return bytes(data) if isinstance(data, int) else data


class Hanging:
    """The first record hangs until the test lets it go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def __call__(self, topic: str, headers: Headers, data: bytes) -> bytes:
        if data == b"0":
            await self.gate.wait()
        return data


# ---------------------------------------------------------------------- the end
@pytest.mark.parametrize("how", ["all tasks are cancelled", "a bug"])
def test_records_at_their_serializers_fail_with_the_producer(how: str) -> None:
    """They were in no place any more, and never settled, not even by `close`."""

    async def scenario(network: VirtualNetwork) -> None:
        told = Told()
        async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            options: dict[str, Any] = {"value_serializer": slow, "on_delivery_error": told, "dialer": network.dial}
            producer = Producer(cluster.bootstrap_servers, **options)
            await producer.start()
            deliveries = [producer.send("t", b"%d" % number) for number in range(5)]
            await asyncio.sleep(0.05)
            tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("aiokprod-")]
            if how == "a bug":
                tasks = [task for task in tasks if task.get_name() == "aiokprod-serialize-t"]
                assert len(tasks) == 1
            for task in tasks:
                task.cancel()
            await asyncio.sleep(0.5)
            assert producer.health().state is ProducerState.FAILED
            assert kinds(await outcomes(deliveries)) == ["ProducerFailedError"] * 5
            assert told.kinds == ["ProducerFailedError"] * 5
            assert producer.health().buffered_bytes == 0
            assert (await producer.close(timeout=2)).count == 5  # a report counts what the crash lost, too

    run(scenario)


def test_records_at_their_serializers_that_close_cannot_wait_for_are_in_its_report() -> None:
    """A coroutine that was never awaited does not warn of it."""

    async def scenario(network: VirtualNetwork) -> None:
        serializer = Hanging()
        async with started(network, value_serializer=serializer) as (cluster, producer):
            deliveries = [producer.send("t", b"%d" % number) for number in range(3)]
            await asyncio.sleep(0.05)
            report = await producer.close(timeout=1)
            assert report.count == 3
            assert kinds(await outcomes(deliveries)) == ["UndeliveredAtCloseError"] * 3
            assert log(cluster) == []

    run(scenario)


# ---------------------------------------------------------------------- the deadline
def test_a_serializer_that_hangs_costs_its_record_max_block_ms_and_the_line_goes_on() -> None:
    """It, and every later record of the topic, waited for ever, and health said nothing of it."""

    async def scenario(network: VirtualNetwork) -> None:
        serializer = Hanging()
        loop = asyncio.get_running_loop()
        async with started(network, value_serializer=serializer, max_block_ms=60_000) as (cluster, producer):
            began = loop.time()
            first = producer.send("t", b"0")
            await asyncio.sleep(30)
            second = producer.send("t", b"1")
            assert producer.health().oldest_record_s == pytest.approx(30, abs=0.1)
            assert waits_for(second) is WaitsFor.SERIALIZER
            assert kinds(await outcomes([first])) == ["SerializationError"]
            assert loop.time() - began == pytest.approx(60, abs=0.1)
            assert "max_block_ms" in str(first.exception())
            assert kinds(await outcomes([second])) == ["RecordMetadata"]
            assert loop.time() - began == pytest.approx(60, abs=1)
            assert log(cluster) == [b"1"]
            assert producer.health().oldest_record_s is None

    run(scenario)


def test_each_record_behind_a_serializer_that_hangs_has_its_own_deadline() -> None:
    """All of them hang, and each fails when its own time is over."""

    async def scenario(network: VirtualNetwork) -> None:
        async def never(topic: str, headers: Headers, data: bytes) -> bytes:
            await asyncio.Event().wait()
            return data

        loop = asyncio.get_running_loop()
        async with started(network, value_serializer=never, max_block_ms=10_000) as (_, producer):
            began = loop.time()
            deliveries = []
            for number in range(5):
                deliveries.append(producer.send("t", b"%d" % number))
                await asyncio.sleep(1)
            for number, delivery in enumerate(deliveries):
                assert kinds(await outcomes([delivery])) == ["SerializationError"]
                assert loop.time() - began == pytest.approx(10 + number, abs=0.1)
            assert producer.health().buffered_bytes == 0

    run(scenario)


class Away:
    """A serializer whose service is away: each call fails after 7 s, as that of a client that tries again."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def __call__(self, topic: str, headers: Headers, data: bytes) -> bytes:
        await asyncio.sleep(7)
        raise self.error


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError("nothing listens"), TimeoutError("no answer"), SerializationError("away")]
)
def test_records_behind_serializers_whose_service_is_away_have_its_error_and_are_worth_another_try(
    error: Exception,
) -> None:
    """They had "the serializer has not answered", which was not theirs, and was not retriable."""

    async def scenario(network: VirtualNetwork) -> None:
        if isinstance(error, SerializationError):
            error.may_help_again = True
        async with started(network, value_serializer=Away(error), max_block_ms=20_000) as (_, producer):
            sent = [producer.send("t", b"%d" % number) for number in range(6)]
            ended = asyncio.ensure_future(outcomes(sent))
            await asyncio.sleep(12)
            reason = producer.health().reason
            assert reason is not None and "has not answered; the last that ended failed: " in reason
            assert "has not answered; the last that ended failed: " in str(sent[4].explain())
            failures = await ended
            assert reason.endswith(getattr(failures[0], "message", "?"))
            assert kinds(failures) == ["SerializationError"] * 6
            assert all(isinstance(each, SerializationError) and each.retriable for each in failures)
            own, at_work, behind = failures[0], failures[2], failures[3:]
            assert isinstance(own, SerializationError) and own.__cause__ is (None if own.message == "away" else error)
            assert isinstance(at_work, SerializationError) and isinstance(at_work.__cause__, SerializationError)
            assert at_work.message == (
                "the serializer has not answered within 20.0 s (max_block_ms); that of the record before it failed: "
                + own.message
            )
            for each in behind:
                assert isinstance(each, SerializationError) and isinstance(each.__cause__, SerializationError)
                assert each.message == (
                    "the record has waited 20.0 s (max_block_ms) for serializers of records before it in the topic; the last"
                    " that ended failed: " + own.message
                )
                assert each.__cause__.message == own.message
                assert "Nothing of this record was sent" in each.advice and each.__notes__[0] == each.advice

    run(scenario)


def test_the_error_of_a_wait_for_a_serializer_names_the_option_that_bounded_it() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options: dict[str, Any] = {"max_block_ms": 60_000, "delivery_timeout_ms": 9_000, "request_timeout_ms": 5_000}
        async with started(network, value_serializer=Hanging(), **options) as (_, producer):
            first, second = await outcomes([producer.send("t", b"0"), producer.send("t", b"0")])
            assert isinstance(first, SerializationError) and isinstance(second, SerializationError)
            assert first.message == "the serializer has not answered within 9.0 s (delivery_timeout_ms)"
            assert second.message == (
                "the record has waited 9.0 s (delivery_timeout_ms) for serializers of records before it in the topic"
            )
            assert first.retriable and second.retriable and first.__cause__ is None

    run(scenario)


def test_a_service_that_is_back_and_a_record_that_does_not_fit_are_no_cause_of_a_later_wait() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async def answer(topic: str, headers: Headers, data: bytes) -> bytes:
            if data == b"away":
                raise ConnectionResetError
            if data == b"unfit":
                raise ValueError
            if data == b"hangs":
                await asyncio.Event().wait()
            return data

        async with started(network, value_serializer=answer, max_block_ms=5_000) as (_, producer):
            for before in (b"good", b"unfit"):
                sent = [producer.send("t", each) for each in (b"away", before, b"hangs")]
                failures = await outcomes(sent)
                late = failures[2]
                assert isinstance(late, SerializationError)
                assert (late.__cause__ is None) is (before == b"good")
                assert isinstance(failures[0], SerializationError) and failures[0].retriable
                if before == b"unfit":
                    assert isinstance(failures[1], SerializationError) and not failures[1].retriable

    run(scenario)


# ---------------------------------------------------------------------- the size
def test_records_at_their_serializers_are_bounded_by_bytes() -> None:
    """300 MB were accepted into a buffer of 2 MB."""

    async def scenario(network: VirtualNetwork) -> None:
        options = room(100_000, max_waiting_bytes=50_000, value_serializer=slow)
        async with started(network, **options) as (cluster, producer):
            deliveries = []
            with pytest.raises(BufferFullError):
                for _ in range(100):
                    deliveries.append(producer.send("t", bytes(10_000)))
            assert 9 <= len(deliveries) <= 15  # those that fit, and those that may wait
            assert 80_000 < producer.health().buffered_bytes <= 100_000
            assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}
            assert producer.health().buffered_bytes == 0
            assert len(log(cluster)) == len(deliveries)

    run(scenario)


def test_records_that_become_larger_than_they_seemed_wait_for_room_and_keep_their_order() -> None:
    """An estimate may be wrong; the bound is not."""

    async def scenario(network: VirtualNetwork) -> None:
        options = room(10_000, max_waiting_bytes=100_000, value_serializer=slow, linger_ms=0, batch_size=1_000)
        async with started(network, **options) as (cluster, producer):
            sizes = [5_000, 1, 9_000, 4_000, 4_000, 4_000, 100, 9_000]
            deliveries = [producer.send("t", size) for size in sizes]
            while not all(delivery.done() for delivery in deliveries):
                assert 0 <= producer.metrics()["buffer_used_bytes"] <= 10_000
                await asyncio.sleep(0.01)
            assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}
            assert [len(value or b"") for value in log(cluster)] == sizes
            assert producer.health().buffered_bytes == 0

    run(scenario)


def test_a_record_recalled_at_its_serializer_gives_its_room_to_the_next() -> None:
    """The estimate is given back once."""

    async def scenario(network: VirtualNetwork) -> None:
        options = room(10_000, max_waiting_bytes=0, value_serializer=slow)
        async with started(network, **options) as (cluster, producer):
            first = producer.send("t", bytes(8_000))
            with pytest.raises(BufferFullError):
                producer.send("t", bytes(8_000))
            assert first.recall()
            assert not first.recall()
            assert producer.health().buffered_bytes == 0
            second = producer.send("t", bytes(8_000))
            assert kinds(await outcomes([first, second])) == ["RecordRecalledError", "RecordMetadata"]
            assert producer.health().buffered_bytes == 0
            assert len(log(cluster)) == 1

    run(scenario)


def test_a_send_many_takes_no_more_than_has_room_at_the_serializers() -> None:
    """One record after the other was taken, as each may wait, to the end of the source."""

    async def scenario(network: VirtualNetwork) -> None:
        options = room(10_000, max_waiting_bytes=2_000, value_serializer=slow)
        async with started(network, **options) as (cluster, producer):
            most = taken = 0

            def source() -> Iterator[bytes]:
                nonlocal most, taken
                for number in range(200):
                    taken += 1
                    yield b"%03d" % number + b"x" * 3_000
                    assert pipeline is not None
                    gate = pipeline.parking.gate
                    most = max(most, gate.used_bytes + gate.reserved_bytes + gate.waiting_bytes)

            pipeline = producer._pipeline
            report = await producer.send_many("t", source())
            assert (report.delivered, taken) == (200, 200)
            assert most <= 10_000 + 4_000  # one record more than has room
            assert [(value or b"")[:3] for value in log(cluster)] == [b"%03d" % number for number in range(200)]
            assert producer.health().buffered_bytes == 0

    run(scenario)


# ---------------------------------------------------------------------- what is checked before
@pytest.mark.parametrize(
    "wrong", [{"timeout": "5"}, {"timeout": 0}, {"timeout": 10**400}, {"partition": "1"}, {"timestamp_ms": 1.5}]
)
def test_a_wrong_argument_is_refused_before_anything_is_taken_or_serialized(wrong: dict[str, Any]) -> None:
    """A TypeError out of `send` after the flush was told of the record; `flush` hung for ever."""
    calls: list[object] = []

    async def serializer(topic: str, headers: Headers, data: bytes) -> bytes:
        return data

    def counted(topic: str, headers: Headers, data: bytes) -> object:
        calls.append(data)
        return serializer(topic, headers, data)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, value_serializer=counted) as (cluster, producer):
            with pytest.raises(RecordTypeError):
                producer.send("t", b"x", **wrong)
            assert calls == []
            assert producer.health().buffered_bytes == 0
            delivery = producer.send("t", b"y", timeout=5)
            await asyncio.wait_for(producer.flush(), 60)
            assert kinds(await outcomes([delivery])) == ["RecordMetadata"]
            assert log(cluster) == [b"y"]

    run(scenario)


def test_a_send_many_with_a_wrong_timeout_takes_nothing() -> None:
    """The timeouts of each `Record`, and of the whole call."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, value_serializer=slow) as (cluster, producer):
            with pytest.raises(AiokprodError):
                await producer.send_many("t", [b"x"], timeout="5")  # type: ignore[arg-type]
            with pytest.raises(AiokprodError):
                await producer.send_many("t", [Record(value=b"x", timeout=-1)])
            await asyncio.wait_for(producer.flush(), 60)
            assert log(cluster) == []

    run(scenario)
