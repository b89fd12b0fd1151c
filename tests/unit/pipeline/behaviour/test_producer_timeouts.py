"""The timeouts of `start`, `close`, `ping` and `partitions_for`: what is wrong is refused before anything changes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from rig import mock_cluster, producer_of, run, run_in_virtual_time, started, until

from aiokprod import Producer, ProducerConfig, Reader
from aiokprod.errors import AiokprodError, BootstrapError, ConfigError, RecordTypeError
from aiokprod.model import ProducerState
from aiokprod.testing import MockCluster
from aiokprod.transactions.admin import TransactionAdmin

WRONG: list[Any] = ["5", True, float("nan"), float("inf"), 10**400, 10**5000]


def test_a_wrong_timeout_of_any_call_is_refused_and_the_producer_goes_on() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            for timeout in WRONG:
                for call in (producer.start, producer.close, producer.ping):
                    with pytest.raises(ConfigError, match=rf"^timeout of {call.__name__}\(\) is "):
                        await call(timeout=timeout)
                with pytest.raises(ConfigError, match=r"^timeout of partitions_for\(\) is "):
                    await producer.partitions_for("t", timeout=timeout)
                assert producer.health().state is ProducerState.READY
                assert (await producer.send("t", b"v")).topic == "t"
            assert (await producer.close()).is_clean

    run(scenario())


def test_a_wrong_timeout_starts_nothing() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            producer = Producer(cluster.bootstrap_servers)
            for wait in (True, False):
                with pytest.raises(ConfigError, match="timeout of start"):
                    await producer.start("30", wait=wait)  # type: ignore[arg-type]
            assert producer.health().state is ProducerState.NEW
            assert cluster.requests_seen("ApiVersions") == 0

    run(scenario())


def test_a_wrong_timeout_of_send_many_takes_nothing() -> None:
    async def scenario() -> None:
        async with started("t") as (_, producer):
            taken: list[bytes] = []
            values = (taken.append(b"v") or b"v" for _ in range(3))
            for timeout in ("5", True, float("nan"), 0):
                with pytest.raises(RecordTypeError, match="timeout"):
                    await producer.send_many("t", values, timeout=timeout)  # type: ignore[arg-type]
            assert not taken

    run(scenario())


def test_close_without_a_bound_waits_for_the_last_record() -> None:
    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"0")
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"1")
            closing = asyncio.create_task(producer.close(timeout=None))
            await until(lambda: producer.health().state is ProducerState.CLOSING)
            await asyncio.sleep(0.05)
            assert not closing.done()
            cluster.release(held)
            assert (await closing).is_clean
            assert delivery.result().offset == 1
            assert not [task for task in asyncio.all_tasks() if task.get_name().startswith(("aiokprod", "metadata"))]

    run_in_virtual_time(scenario())


def test_ping_without_a_timeout_is_bounded_by_the_request_timeout() -> None:
    async def scenario() -> None:
        async with started("t", request_timeout_ms=100) as (cluster, producer):
            assert await producer.ping(timeout=None) > 0
            held = cluster.hold("Metadata")
            with pytest.raises(AiokprodError):
                await producer.ping(timeout=None)
            cluster.release(held)
            assert (await producer.send("t", b"v")).offset == 0
            assert producer.health().live

    run_in_virtual_time(scenario())


# ---------------------------------------------------------------------- async with
def test_async_with_is_bounded_by_options_and_warns_of_what_it_could_not_deliver(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=8)
            with pytest.raises(ZeroDivisionError):
                async with Producer(cluster.bootstrap_servers, close_timeout_ms=50) as producer:
                    await producer.send("t", b"0")
                    held = cluster.hold("Produce")
                    for number in range(16):
                        producer.send("t", b"1", partition=number % 8)
                    began = loop.time()
                    raise ZeroDivisionError
            assert loop.time() - began < 5
            cluster.release(held)
        [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert re.search(r"close\(\) could not deliver 16 records \(t-\d: 2 \w+ persisted, .*, and 3 more\)", warning)
        caplog.clear()
        async with MockCluster(brokers=1) as cluster:
            cluster.create_topic("t", partitions=1)
            async with Producer(cluster.bootstrap_servers) as producer:
                producer.send("t", b"0")
        assert not [record for record in caplog.records if record.levelname == "WARNING"]

    run(scenario())


def test_async_with_gives_up_connecting_after_its_option() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with MockCluster(brokers=1) as cluster:
            servers = cluster.bootstrap_servers
        began = loop.time()
        with pytest.raises(BootstrapError, match=r"within 0\.05 s"):
            async with Producer(servers, start_timeout_ms=50):
                pass
        assert loop.time() - began < 5

    run(scenario())


def test_start_and_close_without_a_timeout_are_bounded_by_options() -> None:
    """They took 30 s, whatever the options said."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with mock_cluster(brokers=1) as cluster:
            cluster.create_topic("t")
            options = {"start_timeout_ms": 50, "close_timeout_ms": 70}
            producer = producer_of(cluster, **options)
            held = cluster.hold("ApiVersions")
            for start in (producer.start, Reader(producer.config).start, TransactionAdmin(producer.config).start):
                began = loop.time()
                with pytest.raises(BootstrapError, match=r"within 0\.05 s"):
                    await start()
                assert loop.time() - began < 1
                with pytest.raises(BootstrapError, match=r"within 2 s"):
                    await start(2)
            cluster.release(held)
            for timeout in (None, 5.0):
                await producer.start(timeout)
                held = cluster.hold("Produce")
                producer.send("t", b"v")
                await asyncio.sleep(0.01)
                began = loop.time()
                report = await producer.close()
                assert report.count == 1 and loop.time() - began == pytest.approx(0.07, abs=0.05)
                cluster.release(held)

    run_in_virtual_time(scenario())


def test_no_bound_is_an_option_too() -> None:
    config = ProducerConfig(bootstrap_servers="kafka", start_timeout_ms=-1, close_timeout_ms=-1)
    assert (config.start_timeout, config.close_timeout) == (None, None)
    config = ProducerConfig(bootstrap_servers="kafka")
    assert (config.start_timeout, config.close_timeout) == (30.0, 30.0)
