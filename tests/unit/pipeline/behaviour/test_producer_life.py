"""A producer from start to close and again: which callers may use it, when, and what others are told."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from rig import mock_cluster, producer_of, run, run_in_virtual_time, started, until, values

from aiokprod import Persistence, Producer
from aiokprod.errors import (
    AiokprodError,
    BootstrapError,
    ClusterAuthorizationError,
    CodecUnavailableError,
    ConfigError,
    PartitionerError,
    PartitionOutOfRangeError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerNotStartedError,
    RequestTimeoutError,
    UndeliveredAtCloseError,
    UnknownTopicError,
    WrongLoopError,
)
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster


# ---------------------------------------------------------------------- start
def test_send_before_start_and_after_close_is_a_usage_error() -> None:  # faults: L9, L19
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers)
            for call in (producer.send, producer.try_send):
                with pytest.raises(ProducerNotStartedError):
                    call("t", b"v")
            for coroutine in (producer.flush(), producer.ready(), producer.partitions_for("t"), producer.ping()):
                with pytest.raises(ProducerNotStartedError):
                    await coroutine
            await producer.start()
            assert (await producer.send("t", b"v")).offset == 0
            await producer.close()
            with pytest.raises(ProducerClosedError):
                producer.send("t", b"v")
            with pytest.raises(ProducerClosedError):
                await producer.flush()
            assert values(cluster, "t") == [b"v"]

    run(scenario())


def test_a_producer_is_built_outside_a_loop_and_started_again_on_another_one() -> None:
    with MockCluster() as cluster:
        cluster.create_topic("t")
        producer = Producer(cluster.bootstrap_servers)

        async def life(value: bytes) -> int | None:
            async with producer:
                return (await producer.send("t", value)).offset

        assert asyncio.run(life(b"1")) == 0
        assert asyncio.run(life(b"2")) == 1
        assert producer.metrics()["records_delivered"] == 2
        assert values(cluster, "t") == [b"1", b"2"]


def test_starting_twice_is_starting_once_and_a_second_task_waits_for_the_first() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers)
            first, second = await asyncio.gather(producer.start(), producer.start())
            assert first is second is producer
            assert await producer.start() is producer
            await producer.send("t", b"v")
            assert cluster.requests_seen("InitProducerId") == 1
            await producer.close()

    run(scenario())


def test_a_start_beside_another_one_keeps_its_own_timeout() -> None:
    async def scenario() -> None:
        async with mock_cluster() as cluster:
            held = cluster.hold("Metadata")
            producer = producer_of(cluster)
            loop = asyncio.get_running_loop()
            first = asyncio.create_task(producer.start(60))
            await asyncio.sleep(0.05)
            began = loop.time()
            with pytest.raises(RequestTimeoutError, match="goes on"):
                await producer.start(2)
            assert loop.time() - began == pytest.approx(2)
            third = asyncio.create_task(producer.start(5))
            await asyncio.sleep(3)
            first.cancel()
            with pytest.raises(BootstrapError, match="within 2 s"):
                await third  # it has started it itself, for the rest of its time
            assert loop.time() - began == pytest.approx(7)
            cluster.release(held)
            await producer.start()
            await producer.close()

    run_in_virtual_time(scenario())


def test_a_start_that_was_cancelled_leaves_nothing_and_the_next_task_starts_it_itself() -> None:  # faults: L19
    async def scenario() -> None:
        async with mock_cluster() as cluster:
            cluster.create_topic("t")
            held = cluster.hold("Metadata")
            producer = producer_of(cluster)
            before = asyncio.all_tasks()
            first = asyncio.create_task(producer.start())
            await asyncio.sleep(0.05)
            second = asyncio.create_task(producer.start())
            await asyncio.sleep(0)
            first.cancel()
            cluster.release(held)
            with pytest.raises(asyncio.CancelledError):
                await first
            assert await second is producer
            assert (await producer.send("t", b"v")).offset == 0
            await producer.close()
            await until(lambda: {t for t in asyncio.all_tasks() if t.get_name().startswith("aiokprod")} <= before)

    run_in_virtual_time(scenario())


def test_a_start_without_a_cluster_names_host_port_and_cause_and_can_be_tried_again() -> None:  # faults: T15
    async def scenario() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]  # nothing listens there
            producer = Producer(f"127.0.0.1:{port}", reconnect_backoff_ms=5, reconnect_backoff_max_ms=10)
            for _ in range(2):
                with pytest.raises(BootstrapError, match=rf"127\.0\.0\.1:{port}.*refused"):
                    await producer.start(timeout=1.0)
                assert producer.health().state is ProducerState.NEW
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("aiokprod")] == []

    run(scenario())


def test_without_waiting_it_comes_up_before_the_cluster_does() -> None:
    async def scenario() -> None:
        cluster = MockCluster()
        async with cluster:
            servers = cluster.bootstrap_servers
        producer = Producer(servers, reconnect_backoff_ms=5, reconnect_backoff_max_ms=20, retry_backoff_ms=5)
        await producer.start(wait=False)
        assert producer.health().state is ProducerState.DEGRADED
        assert producer.health().live and not producer.health().ready
        delivery = producer.send("t", b"v")
        ports = [int(server.rsplit(":", 1)[1]) for server in servers.split(",")]
        async with MockCluster(ports=ports) as back:
            back.create_topic("t")
            assert (await delivery).offset == 0
            assert producer.health().state is ProducerState.READY
            await producer.close()

    run(scenario())


@pytest.mark.parametrize("codec", ["lz4", "snappy", "zstd"])
def test_a_codec_whose_package_is_missing_is_refused_where_the_producer_is_made(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lz4.frame", "cramjam", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(CodecUnavailableError, match=rf"pip install \"aiokprod\[{codec}\]\""):
        Producer("127.0.0.1:1", compression_type=codec)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- callers
def test_another_thread_and_another_loop_are_told_at_once() -> None:  # faults: L17
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            caught: list[BaseException] = []

            def catch(call: Callable[[], Any]) -> None:
                try:
                    call()
                except BaseException as error:
                    caught.append(error)

            async def elsewhere() -> None:
                catch(lambda: producer.send("t", b"1"))
                for coroutine in (producer.flush(), producer.close(), producer.ready()):
                    try:
                        await coroutine
                    except AiokprodError as error:
                        caught.append(error)

            def thread() -> None:
                catch(lambda: producer.send("t", b"1"))
                asyncio.run(elsewhere())

            worker = threading.Thread(target=thread)
            worker.start()
            await asyncio.to_thread(worker.join)
            assert [type(error) for error in caught] == [WrongLoopError] * 5
            await producer.send("t", b"2")
            assert values(cluster, "t") == [b"0", b"2"]

    run(scenario())


def test_a_forked_child_is_told_and_its_end_does_not_touch_the_parent() -> None:  # faults: L16
    program = """
import asyncio, os, sys
from aiokprod import Producer
from aiokprod.errors import ForkedError
from aiokprod.testing import MockCluster

async def main():
    with MockCluster() as cluster:
        cluster.create_topic("t")
        async with Producer(cluster.bootstrap_servers) as producer:
            await producer.send("t", b"0")
            child = os.fork()
            if child == 0:
                health = producer.health()
                if health.ready or health.live or "forked" not in health.last_error:
                    os._exit(2)
                told = producer.explain()
                if [each.kind.name for each in told.obstacles] != ["FORKED"] or "forked" not in str(told):
                    os._exit(3)
                try:
                    producer.send("t", b"child")
                except ForkedError:
                    os._exit(7)
                os._exit(1)
            _, status = os.waitpid(child, 0)
            assert os.waitstatus_to_exitcode(status) == 7, status
            for i in range(100):
                await producer.send("t", b"%d" % i)
        assert len(cluster.records("t")) == 101

asyncio.run(main())
print("clean")
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.returncode) == ("clean\n", 0), done.stderr


def test_health_and_metrics_are_read_from_other_threads_while_records_flow() -> None:
    async def scenario() -> None:
        async with started("t", partitions=8) as (_, producer):
            broken: list[BaseException] = []
            done = threading.Event()

            def watch() -> None:
                try:
                    while not done.is_set():
                        health, metrics = producer.health(), producer.metrics()
                        assert health.live and metrics["buffer_used_bytes"] >= 0
                except BaseException as error:
                    broken.append(error)

            watchers = [threading.Thread(target=watch) for _ in range(3)]
            for watcher in watchers:
                watcher.start()
            await producer.send_many("t", (b"%d" % i for i in range(20_000)))
            done.set()
            for watcher in watchers:
                await asyncio.to_thread(watcher.join)
            assert broken == []
            health = producer.health()
            assert (health.state, health.ready, health.oldest_record_s) == (ProducerState.READY, True, None)
            assert health.buffered_bytes == 0

    run(scenario())


def test_health_tells_the_age_of_what_waits_and_turns_degraded() -> None:
    async def scenario() -> None:
        async with started("t", request_timeout_ms=50, linger_ms=0, delivery_timeout_ms=5_000) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"1")
            await until(lambda: (producer.health().oldest_record_s or 0) > 0.06)
            assert producer.health().state is ProducerState.DEGRADED
            assert producer.health().live
            cluster.release(held)
            await delivery
            assert producer.health().state is ProducerState.READY

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- close
def test_close_delivers_what_was_sent_and_reports_nothing() -> None:
    async def scenario() -> None:
        async with started("t", linger_ms=60_000, delivery_timeout_ms=120_000) as (cluster, producer):
            deliveries = [producer.send("t", b"%d" % i) for i in range(100)]
            report = await producer.close()
            assert report.is_clean and report.count == 0
            assert [delivery.result().offset for delivery in deliveries] == list(range(100))
            assert producer.health().state is ProducerState.CLOSED
            assert len(values(cluster, "t")) == 100

    run(scenario())


def test_close_has_a_hard_bound_and_accounts_for_every_record_it_leaves() -> None:  # faults: L11, M5
    async def scenario() -> None:
        async with started("t", linger_ms=0, max_in_flight_requests_per_connection=1) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            flying = producer.send("t", b"in flight")
            await until(lambda: producer.metrics()["requests_sent"] == 2)
            queued = producer.send("t", b"queued")
            parked = producer.send("unknown", b"parked")
            loop = asyncio.get_running_loop()
            began = loop.time()
            report = await producer.close(timeout=0.1)
            assert loop.time() - began < 1.1
            outcomes = {d: d.exception() for d in (flying, queued, parked)}
            assert isinstance(outcomes[flying], UndeliveredAtCloseError)
            assert isinstance(outcomes[parked], UndeliveredAtCloseError)
            persistence = [error.persistence for error in outcomes.values() if error is not None]
            assert persistence == [
                Persistence.POSSIBLY_PERSISTED,
                Persistence.NOT_PERSISTED,
                Persistence.NOT_PERSISTED,
            ]
            assert report.undelivered == {
                ("t", 0, Persistence.POSSIBLY_PERSISTED): 1,
                ("t", 0, Persistence.NOT_PERSISTED): 1,
                ("unknown", None, Persistence.NOT_PERSISTED): 1,
            }
            cluster.release(held)

    run_in_virtual_time(scenario())


def test_close_is_idempotent_concurrent_and_survives_cancellation() -> None:  # faults: L10, L12
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"1")
            first = asyncio.create_task(producer.close())
            second = asyncio.create_task(producer.close())
            await asyncio.sleep(0.05)
            with pytest.raises(ProducerClosedError):
                producer.send("t", b"2")
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert not second.done()
            cluster.release(held)
            assert (await second).is_clean
            assert delivery.result().offset == 1
            assert (await producer.close()).is_clean

    run_in_virtual_time(scenario())


def test_close_from_a_done_callback_and_sends_from_callbacks() -> None:  # faults: L10, L20
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            closing: list[asyncio.Task[Any]] = []
            again: list[Any] = []

            def resend(_: object) -> None:
                again.append(producer.send("t", b"from a callback"))
                closing.append(asyncio.ensure_future(producer.close()))

            producer.send("t", b"0").add_done_callback(resend)
            await until(lambda: bool(closing))
            assert (await closing[0]).is_clean
            assert again[0].result().offset == 1
            assert values(cluster, "t") == [b"0", b"from a callback"]

    run(scenario())


def test_an_exception_of_the_body_wins_and_the_producer_is_closed() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(cluster.bootstrap_servers)
            with pytest.raises(ZeroDivisionError):
                async with producer:
                    producer.send("t", b"v")
                    raise ZeroDivisionError
            assert producer.health().state is ProducerState.CLOSED
            assert values(cluster, "t") == [b"v"]

    run(scenario())


# ---------------------------------------------------------------------- flush
def test_flush_covers_what_was_sent_before_it_and_ends_under_endless_sending() -> None:  # faults: L7, L8
    async def scenario() -> None:
        async with started("t", linger_ms=5_000, delivery_timeout_ms=60_000) as (_, producer):
            before = [producer.send("t", b"%d" % i) for i in range(10)]
            stop = False

            async def endless() -> None:
                while not stop:
                    producer.send("t", b"more")
                    await asyncio.sleep(0)

            sender = asyncio.create_task(endless())
            flushes = [asyncio.create_task(producer.flush()) for _ in range(100)]
            await asyncio.sleep(0)
            flushes[50].cancel()
            results = await asyncio.gather(*flushes, return_exceptions=True)
            assert [type(result) for result in results if result is not None] == [asyncio.CancelledError]
            assert all(delivery.done() for delivery in before)
            stop = True
            await sender
            await producer.flush()
            assert producer.health().buffered_bytes == 0

    run(scenario())


# ---------------------------------------------------------------------- what makes a producer fail
def test_a_cluster_that_allows_no_idempotent_writes_fails_the_producer() -> None:  # faults: P16
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            cluster.fail_next("Produce", "CLUSTER_AUTHORIZATION_FAILED")
            with pytest.raises(ClusterAuthorizationError) as refused:
                await producer.send("t", b"1")
            assert refused.value.persistence is Persistence.NOT_PERSISTED
            await until(lambda: producer.health().state is ProducerState.FAILED)
            with pytest.raises(ProducerFailedError) as failed:
                producer.send("t", b"2")
            assert isinstance(failed.value.__cause__, ClusterAuthorizationError)
            assert not producer.health().live
            with pytest.raises(ProducerFailedError):
                await producer.start()
            await producer.close()
            await producer.start()
            assert (await producer.send("t", b"3")).offset == 1

    run(scenario())


def test_a_third_party_that_cancels_every_task_fails_everything_and_close_returns() -> None:  # faults: L14
    async def scenario() -> None:
        async with started("t", linger_ms=1_000) as (_, producer):
            await producer.send("t", b"0")
            delivery = producer.send("t", b"1")
            for task in asyncio.all_tasks():
                if task.get_name().startswith("aiokprod"):
                    task.cancel()
            with pytest.raises(ProducerFailedError):
                await delivery
            with pytest.raises(ProducerFailedError):
                producer.send("t", b"2")
            await producer.close(timeout=1)
            assert producer.health().state is ProducerState.CLOSED

    run(scenario())


# ---------------------------------------------------------------------- partitions
def test_a_partitioner_that_raises_costs_its_own_record_and_no_bytes() -> None:  # faults: M12
    def choose(key: bytes | None, partitions: Any, available: Any) -> Any:
        match key:
            case b"raise":
                raise ValueError("no")
            case b"far":
                return 99
            case b"text":
                return "0"
        return 0

    async def scenario() -> None:
        async with started("t", "late", partitioner=choose) as (cluster, producer):
            await producer.send("t", b"0")
            for key in (b"raise", b"far", b"text"):
                with pytest.raises(PartitionerError):
                    await producer.send("t", b"v", key=key)
            assert producer.health().buffered_bytes == 0
            # Parked records are given to the partitioner when metadata comes.
            parked = [producer.send("late", b"v", key=key) for key in (b"good", b"raise", b"far", b"text", b"good")]
            outcomes = await asyncio.gather(*parked, return_exceptions=True)
            assert [type(o).__name__ for o in outcomes] == [
                "RecordMetadata", "PartitionerError", "PartitionerError", "PartitionerError", "RecordMetadata",
            ]  # fmt: skip
            assert producer.health().buffered_bytes == 0
            assert producer.health().state is ProducerState.READY
            assert len(values(cluster, "late")) == 2

    run(scenario())


def test_a_partition_out_of_range_waits_for_one_refresh_and_names_the_range() -> None:
    async def scenario() -> None:
        async with started("t", partitions=3) as (cluster, producer):
            await producer.send("t", b"0", partition=2)
            with pytest.raises(PartitionOutOfRangeError, match="partitions 0 to 2"):
                await producer.send("t", b"1", partition=3)
            cluster.add_partitions("t", 5)
            assert (await producer.send("t", b"2", partition=4)).partition == 4  # faults: T7
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_a_partition_out_of_range_fails_at_max_block_when_no_refresh_comes() -> None:
    async def scenario() -> None:
        async with started("t", max_block_ms=150) as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Metadata")
            with pytest.raises(UnknownTopicError):
                await producer.send("t", b"1", partition=7)
            assert producer.health().buffered_bytes == 0
            cluster.release(held)
            await producer.send("t", b"2")

    run_in_virtual_time(scenario())


def test_partitions_for_names_them_and_asks_the_cluster() -> None:
    async def scenario() -> None:
        async with started("t", partitions=4, max_block_ms=200) as (_, producer):
            assert await producer.partitions_for("t") == [0, 1, 2, 3]
            with pytest.raises(UnknownTopicError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await producer.partitions_for("nowhere")
            with pytest.raises(UnknownTopicError):
                await producer.partitions_for("nowhere", timeout=0.01)

    run_in_virtual_time(scenario())


def test_bounds_that_no_clock_takes_are_refused_at_the_call() -> None:
    async def scenario() -> None:
        async with started("t", max_block_ms=200) as (cluster, producer):
            asked = cluster.requests_seen("Metadata")
            for timeout in (1e12, -1, float("nan"), "1"):
                with pytest.raises(ConfigError, match="timeout"):
                    await producer.partitions_for("nowhere", timeout=timeout)  # type: ignore[arg-type]
                with pytest.raises(ConfigError, match="timeout"):
                    await producer.ping(timeout)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match=r"timeout of close\(\) is -1"):
                await producer.close(-1)
            assert cluster.requests_seen("Metadata") == asked
            await producer.send("t", b"v")

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- facts of a delivery
def test_a_delivery_knows_attempts_latency_and_size() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            delivery = producer.send("t", b"x" * 1000, key=b"k")
            assert delivery.attempts is None and delivery.latency is None
            assert 1000 < delivery.size_bytes < 1100
            await delivery
            assert delivery.attempts == 1
            assert delivery.latency is not None and 0 <= delivery.latency < 30
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
            retried = producer.send("t", b"v")
            await retried
            assert retried.attempts == 2
            assert delivery.size_bytes > retried.size_bytes
            parked = producer.send("unknown", b"v", timeout=0.05)
            with pytest.raises(AiokprodError):
                await parked
            assert parked.attempts == 0
            assert parked.latency is not None and parked.latency >= 0.04

    run_in_virtual_time(scenario())


def test_ping_measures_a_round_trip() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            assert 0 < await producer.ping() < 10
            held = cluster.hold("Metadata")
            with pytest.raises(AiokprodError):
                await producer.ping(timeout=0.05)
            cluster.release(held)

    run_in_virtual_time(scenario())


def test_a_topic_with_waiting_records_stays_in_the_metadata_for_as_long_as_they_wait() -> None:
    async def scenario() -> None:
        async with started("t", metadata_max_idle_ms=600, metadata_max_age_ms=100) as (cluster, producer):
            await producer.send("t", b"0")
            cluster.move_leader("t", 0, None)
            delivery = producer.send("t", b"1")
            await asyncio.sleep(1.6)
            assert not delivery.done()
            cluster.move_leader("t", 0, 2)
            assert (await delivery).offset == 1

    run_in_virtual_time(scenario())
