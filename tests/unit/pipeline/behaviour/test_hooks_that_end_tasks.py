"""Errors of a user's hook end no task of the producer, even those that are no `Exception`: a CancelledError, say."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from rig import run, run_in_virtual_time, started

from aiokprod import Producer, Record, RecordMetadata
from aiokprod.errors import AiokprodError, PartitionerError, SendManyError, SerializationError
from aiokprod.hooks import ProducerInterceptor
from aiokprod.pipeline.delivery.unasked_failures import GRACE_S
from aiokprod.testing import MockCluster


class TestHasFailed(BaseException):
    """An exception like the one that `pytest.fail` raises."""

    __test__ = False


RAISED = pytest.mark.parametrize("raised", [asyncio.CancelledError, TestHasFailed])


class Third:
    """Every third call of a hook raises."""

    def __init__(self, raised: type[BaseException]) -> None:
        self.raised = raised
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls % 3 == 0:
            raise self.raised


def held_bytes(producer: Producer) -> int:
    return producer.health().buffered_bytes


@RAISED
@pytest.mark.parametrize("closes", [False, True])
def test_every_failure_of_a_batch_is_told(raised: type[BaseException], closes: bool) -> None:
    async def scenario() -> None:
        hook = Third(raised)
        async with started("t", linger_ms=20, on_delivery_error=lambda error: hook()) as (cluster, producer):
            cluster.fail_next("Produce", "POLICY_VIOLATION")
            for number in range(5):
                producer.send("t", b"%d" % number)
            await producer.flush()
            assert hook.calls == 0
            await (producer.close() if closes else asyncio.sleep(GRACE_S + 1))
            assert hook.calls == 5

    run_in_virtual_time(scenario())


@RAISED
def test_every_interceptor_hears_of_every_record(raised: type[BaseException]) -> None:
    class Listener(ProducerInterceptor):
        def __init__(self) -> None:
            self.acknowledged = Third(raised)
            self.outcomes: list[object] = []

        def on_acknowledgement(self, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            self.acknowledged()

        def on_outcome(self, record: Record, metadata: RecordMetadata | None, error: AiokprodError | None) -> None:
            self.outcomes.append(record.value)
            raise raised

    async def scenario() -> None:
        first, second = Listener(), Listener()
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, linger_ms=20, interceptors=[first, second]) as producer:
                for number in range(5):
                    producer.send("t", b"%d" % number)
                await producer.flush()
                await asyncio.sleep(0)
        for listener in (first, second):
            assert listener.acknowledged.calls == 5
            assert listener.outcomes == [b"%d" % number for number in range(5)]

    run(scenario())


@RAISED
@pytest.mark.parametrize("way", ["send", "parked", "send_many"])
def test_a_partitioner_fails_its_record_alone(way: str, raised: type[BaseException]) -> None:
    async def scenario() -> None:
        third = Third(raised)

        def choose(key: bytes | None, every: Sequence[int], available: Sequence[int]) -> int:
            third()
            return 0

        async with MockCluster() as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, partitioner=choose) as producer:
                failures: list[object] = []
                if way != "parked":
                    await producer.partitions_for("t")
                if way == "send_many":
                    with pytest.raises(SendManyError) as failed:
                        await producer.send_many("t", [b"%d" % number for number in range(9)])
                    failures = [error for _, error in failed.value.report.failures]
                else:
                    for number in range(9):
                        try:
                            delivery = producer.send("t", b"%d" % number)
                            delivery.add_done_callback(lambda done: failures.append(done.exception()))
                        except PartitionerError as error:
                            failures.append(error)
                    await producer.flush()
                    await asyncio.sleep(0)
                told = [error for error in failures if error is not None]
                assert len(told) == 3
                assert all(isinstance(error, PartitionerError) for error in told)
                assert held_bytes(producer) == 0
            assert [record.value for record in cluster.records("t")] == [b"0", b"1", b"3", b"4", b"6", b"7"]

    run(scenario())


@RAISED
@pytest.mark.parametrize("is_async", [False, True])
def test_a_serializer_fails_its_record_alone(is_async: bool, raised: type[BaseException]) -> None:
    async def later(value: bytes) -> bytes:
        await asyncio.sleep(0)
        if value == b"2":
            raise raised
        return value

    def at_once(value: bytes) -> bytes:
        if value == b"2":
            raise raised
        return value

    async def scenario() -> None:
        serializer = later if is_async else at_once
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, value_serializer=serializer) as producer:
                failed: list[AiokprodError] = []
                deliveries = []
                for number in range(5):
                    try:
                        deliveries.append(producer.send("t", b"%d" % number))
                    except SerializationError as error:
                        failed.append(error)
                done = await asyncio.gather(*deliveries, return_exceptions=True)
                failed += [error for error in done if isinstance(error, SerializationError)]
                assert len(failed) == 1
                assert held_bytes(producer) == 0
            assert [record.value for record in cluster.records("t")] == [b"0", b"1", b"3", b"4"]

    run(scenario())


@RAISED
def test_closing_goes_on_behind_a_hook(raised: type[BaseException]) -> None:
    closed: list[str] = []

    class Careless(ProducerInterceptor):
        def __init__(self, name: str, *, is_async: bool) -> None:
            self.name = name
            self.is_async = is_async

        def close(self):  # type: ignore[no-untyped-def]
            closed.append(self.name)
            if not self.is_async:
                raise raised
            return self.later()

        async def later(self) -> None:
            await asyncio.sleep(0)
            raise raised

    async def scenario() -> None:
        hooks = [Careless("a", is_async=True), Careless("b", is_async=False), Careless("c", is_async=True)]
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, interceptors=hooks) as producer:
                await producer.send("t", b"v")
        assert closed == ["a", "b", "c"]

    run(scenario())
