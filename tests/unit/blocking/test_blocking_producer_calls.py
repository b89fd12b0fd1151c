"""`aiokprod.blocking.Producer`: what each call sends, returns and raises; several threads; where a call is refused."""

from __future__ import annotations

import asyncio
import copy
import pickle
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from blocking_rig import LIMIT_S, in_thread, started, values, wait_until
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod import ProducerConfig, ProducerState, PurgeReport, Record
from aiokprod.blocking import Producer
from aiokprod.errors import (
    AiokprodError,
    ConfigError,
    InvalidTopicError,
    ProducerClosedError,
    RecordPurgedError,
    RecordTypeError,
    SendManyError,
    SendTimeoutError,
    UnknownTopicError,
    UsageError,
)


# ---------------------------------------------------------------------- one record
def test_send_waits_and_returns_the_place_of_the_record() -> None:
    with started() as (cluster, producer):
        first = producer.send("t", b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=1_700_000_000_000)
        second = producer.send("t", partition=0, headers={"h": None}, timeout=LIMIT_S)
        assert (first.topic, first.partition, first.offset, second.offset) == ("t", 0, 0, 1)
        records = cluster.records("t")
        assert [(record.key, record.value, list(record.headers)) for record in records] == [
            (b"k", b"v", [("h", b"1")]),
            (None, None, [("h", None)]),
        ]
        assert records[0].timestamp_ms == 1_700_000_000_000


def test_send_raises_the_error_of_the_record() -> None:
    with started() as (cluster, producer):
        with pytest.raises(RecordTypeError):
            producer.send("t", "text")
        with pytest.raises(InvalidTopicError):
            producer.send("no topic", b"v")
        assert producer.send("t", b"v").offset == 0
        held = cluster.hold("Produce")
        with pytest.raises(SendTimeoutError):
            producer.send("t", b"v", timeout=0.001)
        cluster.release(held)


def test_a_topic_that_is_missing_is_told_by_each_call() -> None:
    left = numbers(10)
    with started(max_block_ms=1_000) as (_, producer):
        calls = [
            in_thread(producer.send, "missing", b"v"),
            in_thread(producer.partitions_for, "missing"),
            in_thread(producer.send_many, "missing", left),
        ]
        assert [type(call.exception(LIMIT_S)) for call in calls] == [UnknownTopicError] * 3
    assert len(list(left)) == 10  # none was read


def test_submit_returns_futures_in_the_order_of_the_calls() -> None:
    with started() as (cluster, producer):
        futures = [producer.submit("t", b"%d" % number) for number in range(3_000)]
        assert [future.result(LIMIT_S).offset for future in futures] == list(range(3_000))
        assert values(cluster) == [b"%d" % number for number in range(3_000)]


def test_purge_lets_go_of_what_was_submitted_and_is_not_written() -> None:
    with started(batch_size=0, max_in_flight_requests_per_connection=1) as (cluster, producer):
        producer.partitions_for("t")
        held = cluster.hold("Produce")
        written = producer.submit("t", b"written")
        wait_until(lambda: held.hits > 0)
        futures = [producer.submit("t", b"%d" % number) for number in range(100)]
        assert producer.purge("t", 0) == PurgeReport(purged=100, in_flight=1)
        assert {type(future.exception(LIMIT_S)) for future in futures} == {RecordPurgedError}
        cluster.release(held)
        assert written.result(LIMIT_S).offset == 0
        with pytest.raises(UsageError):
            producer.purge(partition=0)
        assert values(cluster) == [b"written"]


def test_an_interrupt_while_it_waits_leaves_the_record_under_way() -> None:
    with started() as (cluster, producer):
        producer.send("t", b"first")
        held = cluster.hold("Produce")
        me = threading.get_ident()

        def interrupt() -> None:
            wait_until(lambda: cluster.requests_seen("Produce") == 2)
            signal.pthread_kill(me, signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            producer.send("t", b"interrupted")
        thread.join()
        cluster.release(held)
        assert producer.send("t", b"last").offset == 2
        assert values(cluster) == [b"first", b"interrupted", b"last"]


# ---------------------------------------------------------------------- many
def numbers(count: int) -> Iterator[bytes]:
    for number in range(count):
        yield b"%d" % number


@pytest.mark.parametrize("kind", [list, tuple, iter])
@pytest.mark.parametrize("count", [0, 1, 1_000, 1_234])
def test_send_many_sends_all_in_their_order(kind: Any, count: int) -> None:
    with started() as (cluster, producer):
        report = producer.send_many("t", kind(numbers(count)))
        assert (report.delivered, report.failures) == (count, [])
        assert values(cluster) == list(numbers(count))


def test_send_many_reads_values_in_the_thread_of_its_caller() -> None:
    readers: set[int] = set()

    def read() -> Iterator[Record]:
        for number in range(1_000):
            readers.add(threading.get_ident())
            yield Record(topic="t", value=b"%d" % number)

    with started() as (_, producer):
        assert producer.send_many("t", read(), timeout=LIMIT_S).delivered == 1_000
    assert readers == {threading.get_ident()}


def test_send_many_reports_the_records_that_failed() -> None:
    with started() as (cluster, producer):
        with pytest.raises(SendManyError) as raised:
            producer.send_many("t", iter([b"1", "text", b"2"]))
        assert [index for index, _ in raised.value.report.failures] == [1]
        assert values(cluster) == [b"1", b"2"]


def test_an_exception_of_the_values_is_raised_behind_what_came_before() -> None:
    def broken() -> Iterator[bytes]:
        yield from numbers(700)
        raise KeyError("broken")

    with started() as (cluster, producer):
        with pytest.raises(KeyError, match="broken") as raised:
            producer.send_many("t", broken())
        assert "700 records of this send_many were taken before" in raised.value.__notes__[0]
        producer.flush()
        assert values(cluster) == list(numbers(700))


def test_an_interrupt_of_the_values_stops_the_reading() -> None:
    def interrupted() -> Iterator[bytes]:
        yield from numbers(600)
        raise KeyboardInterrupt

    with started() as (cluster, producer):
        with pytest.raises(KeyboardInterrupt):
            producer.send_many("t", interrupted())
        assert producer.send("t", b"last").offset == 500
        assert values(cluster) == [*numbers(500), b"last"]


async def unread() -> Any:
    yield b"v"


@pytest.mark.parametrize("wrong", [b"bytes", "text", 7, None, {"a": 1}, Record(value=b"v"), unread()])
def test_send_many_refuses_what_is_not_many_values(wrong: Any) -> None:
    with started() as (_, producer), pytest.raises(RecordTypeError):
        producer.send_many("t", wrong)


def test_a_close_ends_a_send_many_that_reads() -> None:
    with started() as (_, producer):
        reads, closed = threading.Event(), threading.Event()

        def slow() -> Iterator[bytes]:
            yield from numbers(500)
            reads.set()
            closed.wait(LIMIT_S)
            yield b"last"

        call = in_thread(producer.send_many, "t", slow())
        assert reads.wait(LIMIT_S)
        assert producer.close().is_clean
        closed.set()
        assert isinstance(call.exception(LIMIT_S), ProducerClosedError)


# ---------------------------------------------------------------------- waiting and asking
def test_flush_waits_for_what_was_submitted() -> None:
    with started(linger_ms=60_000) as (cluster, producer):
        futures = [producer.submit("t", b"%d" % number) for number in range(100)]
        producer.flush()
        assert all(future.done() for future in futures)
        held = cluster.hold("Produce")
        producer.submit("t", b"v")
        with pytest.raises(TimeoutError, match=r"flush\(\) took longer than 0.001 s: the records are still sent"):
            producer.flush(0.001)
        cluster.release(held)
        producer.flush(LIMIT_S)
        assert len(values(cluster)) == 101
        with pytest.raises(ConfigError):
            producer.flush(-1)


def test_the_state_can_be_asked_for_at_any_time() -> None:
    with started() as (cluster, producer):
        other = Producer(cluster.bootstrap_servers)
        assert other.health().state is ProducerState.NEW
        assert "not been started" in str(other.explain())
        assert other.metrics()["records_delivered"] == 0
        assert producer.partitions_for("t") == [0]
        producer.send("t", b"v")
        assert producer.health().ready
        assert repr(producer).endswith(" READY>")
        assert producer.metrics()["records_delivered"] == 1
    assert producer.health().state is ProducerState.CLOSED


def test_options_are_those_of_the_other_producer_without_transactions() -> None:
    config = ProducerConfig.of(bootstrap_servers="localhost:9092", linger_ms=7)
    assert Producer(config).config is config
    assert Producer(config, client_id="mine").config.client_id == "mine"
    assert Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 7}).config.linger_ms == 7
    with pytest.raises(ConfigError, match="has no transactions: leave transactional_id out"):
        Producer("localhost:9092", transactional_id="t")
    with pytest.raises(ConfigError):
        Producer("localhost:9092", linger=7)  # type: ignore[call-arg]


@pytest.mark.parametrize("copies", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_cannot_be_copied(copies: Any) -> None:
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copies(Producer("localhost:9092"))


# ---------------------------------------------------------------------- where it is called
CALLS: dict[str, Any] = {
    "send": lambda producer: producer.send("t", b"v"),
    "submit": lambda producer: producer.submit("t", b"v"),
    "send_many": lambda producer: producer.send_many("t", [b"v"]),
    "flush": lambda producer: producer.flush(),
    "partitions_for": lambda producer: producer.partitions_for("t"),
    "close": lambda producer: producer.close(),
    "with": lambda producer: producer.__enter__(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_would_block_an_event_loop_is_refused(call: str) -> None:
    with started() as (_, producer):

        async def caller() -> None:
            with pytest.raises(UsageError, match=rf"^.?{call}.* use aiokprod.Producer there"):
                CALLS[call](producer)
            await asyncio.to_thread(CALLS["send"], producer)

        asyncio.run(caller())


def test_a_hook_in_its_own_thread_is_refused_and_the_record_goes_on() -> None:
    producers: list[Producer] = []

    def serialize(value: bytes) -> bytes:
        with pytest.raises(UsageError, match="event loop runs"):
            producers[0].send("t", b"from a hook")
        return value

    with started(value_serializer=serialize) as (cluster, producer):
        producers.append(producer)
        assert producer.send("t", b"v").offset == 0
        assert values(cluster) == [b"v"]


def test_records_of_many_threads_arrive_each_in_the_order_of_its_calls() -> None:
    with started() as (cluster, producer):

        def work(number: int) -> list[int | None]:
            futures = [producer.submit("t", b"%d-%d" % (number, turn)) for turn in range(200)]
            last = producer.send("t", b"%d-200" % number)
            return [*(future.result(LIMIT_S).offset for future in futures), last.offset]

        with ThreadPoolExecutor(8) as threads:
            told = list(threads.map(work, range(8)))
        log = values(cluster)
        assert len(log) == 8 * 201
        for number, offsets in enumerate(told):
            assert [log[offset or 0] for offset in offsets] == [b"%d-%d" % (number, turn) for turn in range(201)]
            assert offsets == sorted(offsets, key=lambda offset: offset or 0)


# ---------------------------------------------------------------------- any order of calls by two threads
STEPS = st.lists(st.sampled_from(["send", "submit", "submit", "many", "flush", "ask", "close"]), max_size=8)


def play(producer: Producer, name: bytes, steps: list[str]) -> tuple[list[bytes], list[bytes]]:
    """Call one after another; return what was delivered, and what was refused."""
    delivered: list[bytes] = []
    refused: list[bytes] = []
    pending: list[tuple[bytes, Any]] = []
    for number, step in enumerate(steps):
        value = b"%s-%d" % (name, number)
        try:
            if step == "send":
                producer.send("t", value)
                delivered.append(value)
            elif step == "submit":
                pending.append((value, producer.submit("t", value)))
            elif step == "many":
                producer.send_many("t", iter([value]))
                delivered.append(value)
            elif step == "flush":
                producer.flush()
                assert all(future.done() for _, future in pending)
            elif step == "ask":
                assert producer.partitions_for("t") == [0]
            else:
                assert producer.close().is_clean
        except ProducerClosedError:
            refused.append(value)
    for value, future in pending:
        if future.exception(LIMIT_S) is None:
            delivered.append(value)
        else:
            assert isinstance(future.exception(0), AiokprodError)
            refused.append(value)
    return delivered, refused


@settings(max_examples=30, deadline=None)
@given(STEPS, STEPS)
def test_of_calls_of_two_threads_in_any_order_each_has_its_outcome(first: list[str], second: list[str]) -> None:
    with started() as (cluster, producer):
        plays = [in_thread(play, producer, b"a", first), in_thread(play, producer, b"b", second)]
        outcomes = [each.result(LIMIT_S) for each in plays]
        producer.close()
        log = values(cluster)
        assert sorted(value or b"" for value in log) == sorted(outcomes[0][0] + outcomes[1][0])
        for name in (b"a", b"b"):
            own = [int((value or b"").split(b"-")[1]) for value in log if value and value.startswith(name)]
            assert own == sorted(own)
