"""`HandOver`: one wake of the loop for many records, in the order of the calls, and an outcome for each whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextvars import ContextVar
from typing import Any

import pytest
from blocking_rig import LIMIT_S, in_thread, wait_until

from aiokprod import Producer, ProducerInterceptor, RecordMetadata
from aiokprod.blocking.hand_over import MOST_BYTES, MOST_RECORDS, HandOver
from aiokprod.errors import BufferFullError, ProducerClosedError, RecordTypeError, UndeliveredAtCloseError
from aiokprod.testing import MemoryProducer, MockCluster

Scenario = Callable[[MemoryProducer, HandOver], Coroutine[Any, Any, None]]
CALLER: ContextVar[str] = ContextVar("caller", default="no caller")


def play(scenario: Scenario, **options: Any) -> None:
    """Run a scenario on the loop of a producer in memory. Its calls of `put` stand for those of threads, and never wait."""

    async def whole() -> None:
        async with MemoryProducer(**{"max_block_ms": 0, **options}) as producer:
            await scenario(producer, HandOver(asyncio.get_running_loop(), producer))

    asyncio.run(asyncio.wait_for(whole(), LIMIT_S))


def put(hand_over: HandOver, value: Any, topic: Any = "t", **options: Any) -> Future[RecordMetadata]:
    given = {"key": None, "partition": None, "headers": (), "timestamp_ms": None, "timeout": None} | options
    return hand_over.put(topic, value, **given)


def test_the_loop_is_woken_once_for_all_records_that_come_before_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        loop, wakes = asyncio.get_running_loop(), []
        wake = loop.call_soon_threadsafe
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call, **more: wakes.append(wake(*call, **more)))
        for turn in range(3):
            outcomes = [put(hand_over, b"%d" % number) for number in range(100)]
            told = await asyncio.gather(*map(asyncio.wrap_future, outcomes))
            assert [metadata.offset for metadata in told] == list(range(100 * turn, 100 * turn + 100))
        assert [record.value for record in producer.records_of("t")] == [b"%d" % number for number in range(100)] * 3
        monkeypatch.undo()
        assert len(wakes) <= 3 * (1 + 100)  # `wrap_future` wakes the loop, too
        wakes.clear()
        monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call, **more: wakes.append(wake(*call, **more)))
        for number in range(MOST_RECORDS):
            put(hand_over, b"%d" % number)
        monkeypatch.undo()
        assert len(wakes) == 1

    play(scenario)


def test_what_could_change_is_copied_by_the_call() -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        value, header = bytearray(b"before"), bytearray(b"before")
        headers: Any = [("h", header)]
        outcome = put(hand_over, value, key=memoryview(value), headers=headers)
        value[:] = header[:] = b"after!"
        headers.clear()
        await asyncio.wrap_future(outcome)
        [record] = producer.records_of("t")
        assert (record.value, record.key, list(record.headers)) == (b"before", b"before", [("h", b"before")])

    play(scenario)


def test_one_that_is_cancelled_before_the_loop_takes_it_is_not_sent() -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        first, second = put(hand_over, b"1"), put(hand_over, b"2")
        assert first.cancel()
        await asyncio.wrap_future(second)
        assert not second.cancel()
        assert [record.value for record in producer.records_of("t")] == [b"2"]
        with pytest.raises(CancelledError):
            first.result(0)

    play(scenario)


def leave(value: object) -> bytes:
    if value is None:
        return b""
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("topic", "options", "kind"),
    [("t", {}, RecordTypeError), (None, {}, RecordTypeError), ("t", {"value_serializer": leave}, SystemExit)],
)
def test_a_refused_record_has_its_error_and_the_next_one_is_sent(
    topic: object, options: dict[str, Any], kind: type[BaseException]
) -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        await producer.send("t")
        wrong, right = put(hand_over, 7, topic), put(hand_over, None)
        assert (await asyncio.wrap_future(right)).offset == 1
        assert isinstance(wrong.exception(0), kind)

    play(scenario, **options)


@pytest.mark.parametrize(("value", "count"), [(b"", MOST_RECORDS), (bytes(MOST_BYTES // 4), 4)])
def test_a_loop_that_does_not_look_takes_no_more_than_so_many_records_and_bytes(value: bytes, count: int) -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        outcomes = [put(hand_over, value) for _ in range(count)]
        with pytest.raises(BufferFullError, match="takes no records: no room for the record within 0 s"):
            put(hand_over, value)
        waiting = in_thread(lambda: put(hand_over, b"last", timeout=None))
        await asyncio.wrap_future(outcomes[-1])
        assert isinstance(waiting.exception(LIMIT_S), BufferFullError)
        await asyncio.wrap_future(put(hand_over, b"then"))
        assert len(producer.records_of("t")) == count + 1

    play(scenario)


def test_a_thread_waits_while_the_buffer_is_full_and_goes_on_when_there_is_room() -> None:
    async def scenario() -> None:
        small = {"buffer_memory": 3_000, "max_request_size": 2_000, "batch_size": 2_000}
        async with (
            MockCluster(brokers=1) as cluster,
            Producer(cluster.bootstrap_servers, **small) as producer,  # type: ignore[arg-type]
        ):
            hand_over = HandOver(asyncio.get_running_loop(), producer)
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            waiting = in_thread(lambda: [put(hand_over, bytes(1_500)) for _ in range(5)])
            while not producer.explain().waiting_records:
                await asyncio.sleep(0)
            with pytest.raises(BufferFullError, match=r"buffer_memory is full: .* within 1e-09 s"):
                put(hand_over, b"v", timeout=1e-9)
            assert not waiting.done()
            cluster.release(held)
            outcomes = await asyncio.wrap_future(waiting)
            told = await asyncio.gather(*map(asyncio.wrap_future, outcomes))
            assert [metadata.offset for metadata in told] == [1, 2, 3, 4, 5]

    asyncio.run(asyncio.wait_for(scenario(), LIMIT_S))


def test_a_waiting_thread_is_refused_at_the_close() -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        for _ in range(MOST_RECORDS):
            put(hand_over, b"v")
        waiting = in_thread(lambda: put(hand_over, b"v"))
        hand_over.refuse(lambda: ProducerClosedError("closed"))
        assert isinstance(waiting.exception(LIMIT_S), ProducerClosedError)
        with pytest.raises(ProducerClosedError):
            put(hand_over, b"v")
        hand_over.drain_all()
        await producer.flush()
        assert len(producer.records_of("t")) == MOST_RECORDS

    play(scenario, max_block_ms=60_000)


class Asks(ProducerInterceptor):
    def __init__(self) -> None:
        self.callers: list[str] = []

    def on_send(self, record: Any) -> Any:
        self.callers.append(CALLER.get())
        return record


def test_interceptors_see_the_context_of_the_call() -> None:
    asks = Asks()

    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        outcomes = []
        for name in ("first", "second", "third"):
            CALLER.set(name)
            outcomes.append(put(hand_over, b"v"))
        await asyncio.gather(*map(asyncio.wrap_future, outcomes))

    play(scenario, interceptors=[asks])
    assert asks.callers == ["first", "second", "third"]


@pytest.mark.parametrize("is_woken", [False, True])
def test_an_interrupt_while_the_loop_is_woken_costs_one_record(is_woken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def interrupted(*call: Any, **more: Any) -> Any:
            if is_woken:
                wake(*call, **more)
            raise KeyboardInterrupt

        monkeypatch.setattr(loop, "call_soon_threadsafe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            put(hand_over, b"lost")
        monkeypatch.undo()
        assert (await asyncio.wrap_future(put(hand_over, b"v"))).offset == 0
        assert [record.value for record in producer.records_of("t")] == [b"v"]

    play(scenario)


def test_what_the_loop_has_not_taken_is_in_the_set_that_is_counted_at_exit() -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        untaken: set[Future[RecordMetadata]] = set()
        hand_over.count_in(untaken)
        outcomes = [put(hand_over, b"v") for _ in range(3)]
        assert untaken == set(outcomes)
        await asyncio.wrap_future(outcomes[-1])
        assert untaken == set()

    play(scenario)


def test_all_that_has_no_outcome_fails_with_the_loop() -> None:
    async def scenario(producer: MemoryProducer, hand_over: HandOver) -> None:
        outcomes = [put(hand_over, b"v") for _ in range(3)]
        hand_over.fail(lambda: UndeliveredAtCloseError("over"))
        assert [type(outcome.exception(0)) for outcome in outcomes] == [UndeliveredAtCloseError] * 3
        wait_until(outcomes[0].done)

    play(scenario)
