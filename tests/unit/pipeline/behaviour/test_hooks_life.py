"""Serializers and interceptors in a running producer: configured, closed, awaited in order, and never in its way."""

from __future__ import annotations

import asyncio
import gc
import warnings
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from rig import run, run_in_virtual_time, started, until, values

from aiokprod import Producer, ProducerConfig, Record
from aiokprod.errors import ConfigError, ProducerClosedError, SerializationError
from aiokprod.hooks import ProducerInterceptor, RecordOutcome
from aiokprod.model import ProducerState
from aiokprod.records.columns import BytesColumn
from aiokprod.serializers import HeaderList, JsonSerializer
from aiokprod.testing import MockCluster


class Life:
    """A serializer that notes what it is told."""

    def __init__(self, *, is_async: bool = False) -> None:
        self.told: list[object] = []
        self._is_async = is_async

    def configure(self, config: ProducerConfig, is_key: bool) -> None:
        self.told.append((config.client_id, is_key))

    def __call__(self, topic: str, headers: HeaderList, data: Any) -> bytes:
        headers.append(("by", topic.encode()))
        return str(data).encode()

    def close(self) -> Any:
        if self._is_async:
            return self._close()
        self.told.append("closed")
        return None

    async def _close(self) -> None:
        await asyncio.sleep(0)
        self.told.append("closed later")


def test_serializers_are_configured_at_each_start_and_closed_at_each_end() -> None:
    async def scenario() -> None:
        key, value = Life(), Life(is_async=True)
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers, client_id="me", key_serializer=key, value_serializer=value)
            for number in range(2):
                async with producer:
                    await producer.send("t", number, key="k")
            assert key.told == [("me", True), "closed"] * 2
            assert value.told == [("me", False), "closed later"] * 2
            record = cluster.records("t")[1]
            assert (record.key, record.value) == (b"k", b"1")
            assert list(record.headers) == [("by", b"t"), ("by", b"t")]

    run(scenario())


def test_a_configure_that_raises_fails_the_start_and_nothing_else() -> None:
    class Broken(Life):
        def configure(self, config: ProducerConfig, is_key: bool) -> None:
            raise ValueError("no registry")

    async def scenario() -> None:
        async with MockCluster() as cluster:
            producer = Producer(cluster.bootstrap_servers, value_serializer=Broken())
            with pytest.raises(ConfigError, match=r"value_serializer: configure raised ValueError: no registry"):
                await producer.start()
            assert producer.health().state is ProducerState.NEW

    run(scenario())


def test_a_close_that_raises_or_hangs_does_not_keep_the_producer(caplog: pytest.LogCaptureFixture) -> None:
    class Hanging(Life):
        async def _close(self) -> None:
            await asyncio.sleep(3600)

    class Raising(Life):
        def close(self) -> None:
            raise ValueError("no")

    async def scenario() -> None:
        async with started("t", key_serializer=Raising(), value_serializer=Hanging(is_async=True)) as (_, producer):
            await producer.send("t", 1)
            loop = asyncio.get_running_loop()
            began = loop.time()
            assert (await producer.close(timeout=0.1)).is_clean
            assert loop.time() - began < 1.1

    run_in_virtual_time(scenario())
    told = [(line.getMessage().partition(": ")[2], bool(line.exc_info)) for line in caplog.records]
    assert ("key_serializer.close raised", True) in told
    assert ("value_serializer.close did not end in time, and was cancelled", False) in told


def test_awaitable_serializers_keep_the_order_of_the_calls_and_fail_one_record_each() -> None:
    def serialize(topic: str, headers: HeaderList, data: Any) -> Any:
        async def slow() -> bytes:
            await asyncio.sleep(0.001 * (10 - data))
            if data == 3:
                raise ValueError("not this one")
            return b"%d" % data

        return slow() if data % 2 else b"%d" % data

    async def scenario() -> None:
        async with started("t", value_serializer=serialize) as (cluster, producer):
            deliveries = [producer.send("t", number) for number in range(10)]
            outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
            assert [type(o) for o in outcomes if isinstance(o, Exception)] == [SerializationError]
            assert isinstance(outcomes[3], SerializationError)
            assert values(cluster, "t") == [b"%d" % n for n in range(10) if n != 3]
            assert producer.health().buffered_bytes == 0

    run_in_virtual_time(scenario())


def test_interceptors_see_each_record_once_and_each_outcome_once() -> None:
    class Seen(ProducerInterceptor):
        def __init__(self) -> None:
            self.sent: list[Any] = []
            self.outcomes: list[Any] = []

        def on_send(self, record: Record) -> Record:
            self.sent.append(record.value)
            record.headers = [("seen", b"1")]
            return record

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            self.outcomes.append(metadata.offset if metadata is not None else type(error).__name__)

    class Broken(ProducerInterceptor):
        def on_send(self, record: Record) -> Record:
            raise ValueError("broken")

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            raise ValueError("broken")

    async def scenario() -> None:
        seen = Seen()
        async with started("t", interceptors=[Broken(), seen], value_serializer=JsonSerializer()) as (
            cluster,
            producer,
        ):
            await producer.send("t", {"a": 1})
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS")  # a retry is not another send
            await producer.send("t", {"a": 2})
            with pytest.raises(SerializationError):
                producer.send("t", object())
            await until(lambda: len(seen.outcomes) == 3)  # they hear of a delivery a turn after its waiter
            assert seen.sent[:2] == [{"a": 1}, {"a": 2}]
            assert set(seen.outcomes) == {0, 1, "SerializationError"}
            assert values(cluster, "t") == [b'{"a":1}', b'{"a":2}']
            assert list(cluster.records("t")[0].headers) == [("seen", b"1")]

    run(scenario())


class WantsNothing(ProducerInterceptor):
    """Lets all records of a second pass by, again and again."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self.settled: list[object] = []

    def skip(self) -> int | None:
        return None

    def on_send(self, record: Record) -> Record:
        self.seen.append(record.value)
        return record

    def on_record_settled(self, record: Record, outcome: RecordOutcome) -> None:
        self.settled.append(record.value)


@pytest.mark.parametrize("way", ["send", "try_send", "send_many", "send_many of an iterator"])
def test_an_interceptor_that_wants_nothing_sees_a_record_per_second(way: str) -> None:
    async def scenario() -> None:
        hook = WantsNothing()
        async with started("t", interceptors=[hook]) as (cluster, producer):

            async def burst(number: int) -> None:
                some = [b"%d-%d" % (number, each) for each in range(10)]
                if way == "send_many":
                    await producer.send_many("t", some)
                elif way == "send_many of an iterator":
                    await producer.send_many("t", iter(some))
                else:
                    for value in some:
                        await (producer.send if way == "send" else producer.try_send)("t", value)

            await burst(0)
            assert hook.seen == []
            for number in range(1, 6):
                await asyncio.sleep(1.1)
                await burst(number)
            assert len(values(cluster, "t")) == 60
        if way == "send_many":  # a run is taken at once
            assert hook.seen == [b"2-0", b"4-0"]
        else:  # the record before finds that a second is over
            assert hook.seen == [b"%d-1" % number for number in range(1, 6)]
        assert hook.settled == hook.seen

    run_in_virtual_time(scenario())


def test_a_record_that_is_seen_begins_a_second_in_which_none_is() -> None:
    async def scenario() -> None:
        hook = WantsNothing()
        async with started("t", interceptors=[hook]) as (_, producer):
            for number in range(2):
                await asyncio.sleep(10)
                producer.send("t", b"%d" % number)
            for _ in range(400):
                producer.send("t", b"later")
                await asyncio.sleep(0.002)
        assert hook.seen == [b"1"]

    run_in_virtual_time(scenario())


@pytest.mark.parametrize("way", ["list", "iterator", "with a record"])
def test_an_interceptor_that_wants_all_again_sees_the_rest_of_a_call(way: str) -> None:
    class Wants(WantsNothing):
        wants_all = False

        def skip(self) -> int | None:
            return 0 if self.wants_all else None

    async def scenario() -> None:
        hook = Wants()
        async with started("t", interceptors=[hook]) as (cluster, producer):
            await producer.send("t", b"first")
            hook.wants_all = True
            await asyncio.sleep(5)
            some: list[Any] = [b"%d" % number for number in range(1_200)]
            if way == "with a record":
                some[1] = Record(value=b"1")
            await producer.send_many("t", some if way == "list" else iter(some))
            assert values(cluster, "t") == [b"first", *[b"%d" % number for number in range(1_200)]]
        if way == "list":  # a run is taken at once
            assert hook.seen and hook.seen[-1] == b"1199" and len(hook.seen) >= 600
        else:
            assert len(hook.seen) == 1_199

    run_in_virtual_time(scenario())


@pytest.mark.parametrize("interceptors", [1, 2])
def test_rows_of_columns_reach_no_hook_of_records(interceptors: int) -> None:
    class Misses(ProducerInterceptor):
        may_miss_columns = True

        def __init__(self) -> None:
            self.heard: list[object] = []

        def on_send(self, record: Record) -> Record:
            self.heard.append(record)
            return record

        def on_acknowledgement(self, metadata: Any, error: Any) -> None:
            self.heard.append(metadata)

    async def scenario() -> None:
        hooks = [Misses() for _ in range(interceptors)]
        async with started("t", interceptors=hooks) as (cluster, producer):
            await producer.send_columns("t", BytesColumn(array("i", [0, 1, 2]), b"ab"))
            await asyncio.sleep(1)
            assert values(cluster, "t") == [b"a", b"b"]
        assert [hook.heard for hook in hooks] == [[]] * interceptors

    run_in_virtual_time(scenario())


class Reads(ProducerInterceptor):
    """Reads the headers of each record, and notes its outcome."""

    def __init__(self, act: Callable[[], None] = lambda: None) -> None:
        self.act = act
        self.headers: list[Any] = []
        self.outcomes: list[str] = []

    def on_send(self, record: Record) -> Record:
        self.headers.append(list(record.headers))
        self.act()
        return record

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        self.outcomes.append("delivered" if error is None else type(error).__name__)


def test_headers_of_a_generator_may_be_read_by_each_interceptor() -> None:
    async def scenario() -> None:
        first, second = Reads(), Reads()
        async with started("t", interceptors=[first, second]) as (cluster, producer):
            given: Any = (pair for pair in [("a", b"1"), ("b", b"2")])
            await producer.send("t", b"v", headers=given)
            there = [("a", b"1"), ("b", b"2")]
            assert first.headers == second.headers == [list(cluster.records("t")[0].headers)] == [there]

    run_in_virtual_time(scenario())


def test_the_outcome_of_a_record_is_told_that_is_refused_after_an_interceptor_saw_it() -> None:
    async def scenario() -> None:
        reads = Reads()
        async with started("t", interceptors=[reads]) as (_, producer):
            pipeline: Any = producer._pipeline
            reads.act = lambda: pipeline.parking.close(pipeline.closed_error)  # as an eager task of `close` does
            with pytest.raises(ProducerClosedError):
                producer.send("t", b"v")
            assert reads.outcomes == ["ProducerClosedError"]

    run_in_virtual_time(scenario())


def test_interceptors_keep_no_record_that_was_lost_with_its_loop() -> None:
    class Keeps(ProducerInterceptor):
        def on_outcome(self, record: Record, metadata: Any, error: Any) -> None:
            values.append(record.value)

    values: list[Any] = []
    with MockCluster() as cluster, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # that it was not closed
        cluster.create_topic("t")
        producer = Producer(cluster.bootstrap_servers, interceptors=[Keeps()], linger_ms=100_000)

        async def lose() -> None:
            await producer.start()
            await producer.partitions_for("t")
            producer.send("t", b"lost")

        async def again() -> None:
            async with producer:
                await producer.send("t", b"kept")

        loop = asyncio.new_event_loop()
        loop.run_until_complete(lose())
        loop.close()
        asyncio.run(again())
        del loop
        gc.collect()  # here, and not in a later test, where the warnings of what was not closed are errors
    assert values == [b"kept"] and not producer._checks.interceptors._open
