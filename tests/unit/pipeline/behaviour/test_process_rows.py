"""Processes that end, clocks that jump, ticks that coincide: what a producer does when its surroundings change."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest
from rig import run, run_in_virtual_time, started, until, values

from aiokprod import Persistence, RecordMetadata
from aiokprod.errors import AiokprodError
from aiokprod.pipeline import wall_clock
from aiokprod.testing import MockCluster


def test_a_cancel_in_the_tick_of_the_answer_leaves_one_outcome() -> None:  # faults: L5
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            first, second, third = (producer.send("t", b"%d" % number) for number in range(3))
            waiting = asyncio.create_task(second.wait())
            detached: list[bool] = []
            first.add_done_callback(lambda _: waiting.cancel())
            first.add_done_callback(lambda _: detached.append(third.cancel()))
            await asyncio.sleep(0.01)
            cluster.release(held)
            outcome = (await asyncio.gather(waiting, return_exceptions=True))[0]
            assert isinstance(outcome, RecordMetadata | asyncio.CancelledError)
            assert second.result().offset == 2
            assert detached == [False], "it was done already"
            assert third.result().offset == 3

    run_in_virtual_time(scenario())


ABANDONED = """
import asyncio, sys
from aiokprod import Producer

async def main():
    producer = Producer(sys.argv[1])
    await producer.start()
    print((await producer.send("t", b"awaited")).offset, flush=True)
    producer.send("t", b"never awaited")

asyncio.run(main())
"""


def test_a_loop_that_ends_without_close_does_not_keep_the_process() -> None:  # faults: L13
    with MockCluster() as cluster:
        cluster.create_topic("t")
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-c", ABANDONED, cluster.bootstrap_servers],
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
        assert "never retrieved" not in done.stderr
        assert "Task was destroyed" not in done.stderr
        assert time.monotonic() - began < 20


INTERRUPTED = """
import asyncio, signal, sys
from aiokprod import Producer

async def main():
    stop = asyncio.Event()
    if sys.argv[2] == "SIGTERM":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Producer(sys.argv[1], linger_ms=1) as producer:
        number = 0
        while not stop.is_set():
            delivery = producer.send("t", b"%d" % number)
            delivery.add_done_callback(lambda done, number=number: print(number, done.result().offset))
            number += 1
            if number % 50 == 0:
                await asyncio.sleep(0.001)
            if number == 500:
                print("running", flush=True)
        print("sent", number)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_process_in_order_and_what_it_called_delivered_is_in_the_log(name: str) -> None:
    # faults: L18
    with MockCluster() as cluster:
        cluster.create_topic("t")
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, cluster.bootstrap_servers, name],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        with child:
            assert child.stdout is not None and child.stderr is not None
            told: list[str] = []
            while "running" not in told:
                line = child.stdout.readline()
                assert line, child.stderr.read()
                told.append(line.strip())
            child.send_signal(signal.Signals[name])
            limit = threading.Timer(30, child.kill)
            limit.start()
            told += child.stdout.read().splitlines()  # not by communicate(): it forgets what was read ahead
            errors = child.stderr.read()
            child.wait()
            limit.cancel()
            assert child.returncode == (-signal.SIGINT if name == "SIGINT" else 0), errors
        in_log = {(record.value, record.offset) for record in cluster.records("t")}
        acknowledged = [line.split() for line in told if line and line[0].isdigit()]
        assert len(acknowledged) >= 400
        for number, offset in acknowledged:
            assert (number.encode(), int(offset)) in in_log
        if name == "SIGTERM":
            sent = next(int(line.split()[1]) for line in told if line.startswith("sent"))
            assert len(acknowledged) == len(in_log) == sent, "close delivered all of them"


def test_a_wall_clock_that_jumps_dates_records_and_changes_nothing_else() -> None:  # faults: L21
    async def scenario() -> None:
        async with started("t", linger_ms=5) as (cluster, producer):
            shift = 0.0
            with wall_clock.on(lambda: time.time() + shift):
                for number, shift in enumerate([0.0, 3_500.0, -3_600.0, -86_400.0, 0.0]):
                    deliveries = [producer.send("t", b"%d" % number) for _ in range(20)]
                    async with asyncio.timeout(60):
                        metadata = await asyncio.gather(*deliveries)
                    expected_ms = 1000 * (time.time() + shift)
                    assert all(abs((m.timestamp or 0) - expected_ms) < 10_000 for m in metadata)
            assert [record.value for record in cluster.records("t")] == [b"%d" % n for n in range(5) for _ in range(20)]
            assert producer.metrics()["batches_resent"] == 0

    run(scenario())


def test_a_frozen_wall_clock_freezes_nothing() -> None:  # faults: L21
    async def scenario() -> None:
        with wall_clock.on(lambda: 1_700_000_000.0):
            async with started("t", request_timeout_ms=100, delivery_timeout_ms=400) as (cluster, producer):
                await producer.send("t", b"0")
                held = cluster.hold("Produce")
                with pytest.raises(AiokprodError) as late:
                    await producer.send("t", b"1")
                assert late.value.persistence is Persistence.POSSIBLY_PERSISTED
                cluster.release(held)
                await producer.send("t", b"2")

    run_in_virtual_time(scenario())


def test_a_chaser_that_is_out_when_the_producer_closes_reaches_no_partition() -> None:  # faults: L25
    async def scenario() -> None:
        async with started("t", linger_ms=0, batch_size=100, retry_backoff_ms=5_000, retry_backoff_max_ms=5_000) as (
            cluster, producer,
        ):  # fmt: skip
            await producer.send("t", b"0")
            held = cluster.hold("Produce", times=3)
            deliveries = [producer.send("t", b"%d" % number + b"x" * 90) for number in range(5)]
            await until(lambda: held.hits >= 1)
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            cluster.release(held)
            await until(lambda: producer.metrics()["chaser_rounds"] >= 1)
            seen = cluster.requests_seen("Produce")
            report = await producer.close(timeout=0.1)
            assert report.count == sum(1 for delivery in deliveries if delivery.exception() is not None) > 0
            assert all(delivery.done() for delivery in deliveries)
            assert producer.metrics()["records_delivered"] + producer.metrics()["records_failed"] == 6
            assert cluster.requests_seen("Produce") == seen, "nothing more went out"
            assert len(values(cluster, "t")) == 6 - report.count

    run_in_virtual_time(scenario())
