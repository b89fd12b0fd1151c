"""When `send_many` ends: a source without end and nothing to send to, a full buffer and records that have timed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

import pytest
from virtual_rig import run, started

from aiokprod import Delivery, Producer, Record
from aiokprod.errors import (
    AiokprodError,
    ProducerClosedError,
    ProducerFailedError,
    RecordTypeError,
    SendManyError,
    SendTimeoutError,
)
from aiokprod.model import Persistence, ProducerState
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

ENDS_AT = 1_000
"""values that are taken before the producer ends"""
FAR_BEHIND = 200_000
"""values after which the test gives up"""


class Source:
    """An endless source of values. It ends the producer itself, as a virtual loop has no moment between two of them."""

    def __init__(self, producer: Producer, end: Callable[[], object], *, makes_records: bool) -> None:
        self.producer = producer
        self.end = end
        self.makes_records = makes_records
        self.taken = 0
        self.taken_since = 0  # values that are taken of it once the producer has ended

    def values(self) -> Iterator[object]:
        while self.taken < FAR_BEHIND:
            self.taken += 1
            self.taken_since += self.producer.health().state is not ProducerState.READY
            if self.taken == ENDS_AT:
                self.end()
            yield Record(value=b"x") if self.makes_records else b"x"

    async def one_by_one(self) -> AsyncGenerator[object]:
        for value in self.values():
            yield value
            await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["bytes", "records", "async"])
@pytest.mark.parametrize(("how", "expected"), [("fails", ProducerFailedError), ("closes", ProducerClosedError)])
def test_a_producer_that_ends_meanwhile_ends_the_taking(how: str, kind: str, expected: type[AiokprodError]) -> None:
    """All of the source was read, and one error kept for each of its values."""

    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial)
            await producer.start()
            closing: list[asyncio.Task[object]] = []

            def end() -> None:
                if how == "fails":
                    (metadata,) = [each for each in asyncio.all_tasks() if each.get_name() == "metadata"]
                    metadata.cancel()
                else:
                    closing.append(asyncio.create_task(producer.close()))

            source = Source(producer, end, makes_records=kind == "records")
            values = source.one_by_one() if kind == "async" else source.values()
            with pytest.raises(expected) as ended:
                await producer.send_many("t", values)
            assert ended.value.persistence is Persistence.POSSIBLY_PERSISTED  # of the records that were taken before
            assert f"{source.taken - 1} records of this send_many were taken before, and go on" in ended.value.__notes__
            assert source.taken_since == 1  # the one that met the refusal
            assert ENDS_AT <= source.taken < ENDS_AT + 10_000
            if isinstance(values, AsyncGenerator):
                await values.aclose()
            await producer.close()
            await asyncio.gather(*closing)
            assert producer.health().state is ProducerState.CLOSED

    run(scenario)


@pytest.mark.parametrize("kind", ["list", "generator", "async"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_timeout_ends_the_call_though_the_buffer_stays_full(count: int, kind: str) -> None:
    """The source was asked for more only when there was room, and the end of it was seen that late (swarm: seed 2222)."""

    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            producer = Producer(
                cluster.bootstrap_servers,
                dialer=network.dial,
                allow_auto_create_topics=False,
                buffer_memory=8_000,
                max_request_size=3_000,
                batch_size=3_000,
            )
            await producer.start()
            await producer.partitions_for("t")
            stuck = [producer.send("nowhere", b"x" * 2_500) for _ in range(3)]
            values = (b"x" * 2_500 for _ in range(count))

            async def one_by_one() -> AsyncGenerator[bytes]:
                for value in values:
                    yield value

            loop = asyncio.get_running_loop()
            began = loop.time()
            source = one_by_one() if kind == "async" else list(values) if kind == "list" else values
            call = asyncio.create_task(producer.send_many("t", source, timeout=0.5))
            await asyncio.sleep(0.1)
            stuck.append(producer.send("nowhere", b"x" * 2_500))
            assert producer.metrics()["buffer_waiting_records"] == 2
            with pytest.raises(SendManyError) as failed:
                await call
            assert loop.time() - began == pytest.approx(0.5 * count, abs=0.1)  # one record of the call waits at a time
            failures = failed.value.report.failures
            assert [number for number, _ in failures] == list(range(count))
            assert all(isinstance(error, SendTimeoutError) for _, error in failures)
            assert not any(delivery.done() for delivery in stuck)
            assert producer.metrics()["buffer_waiting_records"] == 1
            await producer.close(timeout=0)
            for delivery in stuck:
                assert isinstance(delivery.exception(), AiokprodError)

    run(scenario)


def test_a_value_that_an_async_source_gave_is_sent_though_the_call_is_cancelled_while_there_is_no_room() -> None:
    """The value was in hand until there was room, and lost: "what was taken goes on"."""

    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            producer = Producer(
                cluster.bootstrap_servers,
                dialer=network.dial,
                allow_auto_create_topics=False,
                buffer_memory=8_000,
                max_request_size=3_000,
                batch_size=3_000,
            )
            await producer.start()
            await producer.partitions_for("t")
            stuck: list[Delivery] = []

            async def source() -> AsyncGenerator[bytes]:
                await asyncio.sleep(0.1)
                stuck.extend(producer.send("nowhere", b"x" * 2_500) for _ in range(4))
                yield b"in hand"

            call = asyncio.create_task(producer.send_many("t", source()))
            await asyncio.sleep(1.0)
            assert producer.metrics()["buffer_waiting_records"] == 2
            call.cancel()
            await asyncio.wait({call})
            assert call.cancelled()
            for delivery in stuck:
                assert delivery.recall()
            await producer.flush()
            assert [record.value for record in cluster.records("t")] == [b"in hand"]
            await producer.close()

    run(scenario)


def test_what_the_source_raises_says_how_many_records_were_taken() -> None:
    def values() -> Iterator[bytes]:
        yield from (b"a", b"b")
        raise ValueError("no more")

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            with pytest.raises(ValueError, match="no more") as raised:
                await producer.send_many("t", values())
            assert raised.value.__notes__ == ["2 records of this send_many were taken before, and go on"]
            await producer.flush()
            assert len(cluster.records("t")) == 2
            with pytest.raises(ZeroDivisionError) as other:
                await producer.send_many("t", (1 // 0 for _ in range(1)))
            assert not hasattr(other.value, "__notes__")

    run(scenario)


class OldSequence:
    """A sequence of the old protocol, iterated by index."""

    def __getitem__(self, number: int) -> bytes:
        return (b"a", b"b")[number]


class OneNumber:
    """As numbers of numpy: indexed, and not iterable."""

    __iter__ = None

    def __getitem__(self, number: int) -> bytes:
        raise IndexError(number)


def test_one_value_is_not_many() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            for one in (
                b"abc",
                bytearray(b"abc"),
                memoryview(b"abc"),
                "abc",
                {"a": 1},
                Record(value=b"a"),
                5,
                None,
                OneNumber(),
            ):
                with pytest.raises(RecordTypeError, match=f"not one {type(one).__name__}: use send"):
                    await producer.send_many("t", one)  # type: ignore[arg-type]
            assert not cluster.records("t")
            await producer.send_many("t", OldSequence())  # type: ignore[arg-type]
            assert len(cluster.records("t")) == 2

    run(scenario)


def test_a_value_that_is_refused_needs_no_room() -> None:
    """The end of the source was seen only when there was room again (swarm: seed 4811)."""

    async def scenario(network: VirtualNetwork) -> None:
        options = {"buffer_memory": 8_000, "max_request_size": 3_000, "batch_size": 3_000}
        async with started(network, **options) as (cluster, producer):
            held = cluster.hold("Produce")

            async def values() -> AsyncGenerator[bytes]:
                while producer.metrics()["buffer_waiting_records"] == 0:
                    producer.send("t", b"x" * 2_500)
                yield b"x" * 5_000

            loop = asyncio.get_running_loop()
            began = loop.time()
            with pytest.raises(SendManyError):
                await producer.send_many("t", values())
            assert loop.time() - began < 0.5
            cluster.release(held)

    run(scenario)
