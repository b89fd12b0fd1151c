"""A bug inside, wherever it strikes: every Delivery fails with its cause, sends raise, close returns. (faults: L15)"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, cast

import pytest
from rig import backend_of, run, run_in_virtual_time, started, until

from aiokprod import Producer
from aiokprod.errors import AiokprodError, ProducerFailedError
from aiokprod.metrics import Metrics
from aiokprod.model import Persistence, ProducerState
from aiokprod.pipeline import broker_backend
from aiokprod.pipeline.broker import compressing, flusher
from aiokprod.pipeline.delivery.delivery_reports import DeliveryReports
from aiokprod.pipeline.partition.ledger import Abort, Action
from aiokprod.pipeline.partition.partition_errors import PartitionErrors
from aiokprod.testing import MockCluster

REPLACES = pytest.mark.pure("replaces what compiled modules call without looking it up")


class Bug(Exception):
    """A planted bug."""


def raising(*_: Any, **__: Any) -> Any:
    raise Bug("planted")


def aborting(*_: Any, **__: Any) -> list[Action]:
    return [Abort()]


def plant_in_the_compressor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressing, "compress", raising)


def plant_in_the_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "encode_produce", raising)


def plant_in_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "decode_produce", raising)


def plant_in_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_backend.ProducerIdKeeper, "fresh", raising)


def plant_in_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_backend.Ledger, "answer", raising)


@pytest.mark.parametrize(
    "plant",
    [
        plant_in_the_compressor,
        pytest.param(plant_in_the_encoder, marks=REPLACES),
        pytest.param(plant_in_the_judge, marks=REPLACES),
        plant_in_the_identity,
        pytest.param(plant_in_the_ledger, marks=REPLACES),
    ],
)
def test_a_bug_fails_every_delivery_with_its_cause_and_close_returns(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:  # faults: L15
    async def scenario() -> None:
        plant(monkeypatch)
        async with started("t", partitions=2, compression_type="gzip") as (_, producer):
            deliveries = [producer.send("t", b"x" * 60_000, partition=number % 2) for number in range(8)]
            deliveries.append(producer.send("not-there-yet", b"v"))
            outcomes = await asyncio.wait_for(asyncio.gather(*deliveries, return_exceptions=True), 60)
            assert {type(outcome) for outcome in outcomes} == {ProducerFailedError}
            assert all("planted" in str(outcome) for outcome in outcomes)
            assert producer.health().state is ProducerState.FAILED
            with pytest.raises(ProducerFailedError) as refused:
                producer.send("t", b"v")
            assert isinstance(refused.value.__cause__, Bug)
            await asyncio.wait_for(producer.close(timeout=1), 60)
            assert producer.health().buffered_bytes == 0
            monkeypatch.undo()
            await producer.start()
            assert (await producer.send("t", b"v", partition=0)).offset is not None

    run(scenario())


@REPLACES
@pytest.mark.parametrize("place", ["PartitionErrors.error_of", "DeliveryReports.undelivered", "Metrics.topic"])
def test_a_bug_that_strikes_each_time_a_record_fails_leaves_no_delivery_open(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # faults: L15
    """The crash has a way to end records that needs nothing of what tells about them."""
    owners: dict[str, type] = {
        "PartitionErrors": PartitionErrors,
        "DeliveryReports": DeliveryReports,
        "Metrics": Metrics,
    }

    async def scenario() -> None:
        async with started("t", partitions=2) as (cluster, producer):
            await producer.send("t", b"0", partition=0)
            cluster.freeze_broker(cluster.leader("t", 0))
            deliveries = [producer.send("t", b"v", partition=0), producer.send("t", b"w", partition=0)]
            flush = asyncio.ensure_future(producer.flush())
            await asyncio.sleep(0.1)  # until it is written
            owner, name = place.split(".")
            monkeypatch.setattr(owners[owner], name, raising)
            backend_of(producer).crashed(Bug("the first"))
            outcomes = await asyncio.wait_for(asyncio.gather(*deliveries, return_exceptions=True), 60)
            await asyncio.wait_for(flush, 60)
            for outcome in outcomes:
                assert isinstance(outcome, ProducerFailedError)
                assert outcome.persistence is Persistence.POSSIBLY_PERSISTED
            assert producer.health().buffered_bytes == 0
            monkeypatch.undo()
            await asyncio.wait_for(producer.close(timeout=1), 60)

    run_in_virtual_time(scenario())


@REPLACES
def test_an_exception_that_nothing_catches_within_a_step_is_found_by_the_housekeeping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # faults: L15
    async def scenario() -> None:
        async with started("t") as (_, producer):
            await producer.send("t", b"0")
            queue = backend_of(producer).partitions[0]
            with monkeypatch.context() as broken, pytest.raises(Bug):
                broken.setattr(broker_backend.Ledger, "tick", raising)
                queue.expire()
            delivery = producer.send("t", b"1", partition=0)
            await asyncio.sleep(1)
            assert producer.health().state is ProducerState.FAILED
            assert delivery.done()
            assert "a step of t-0 has ended half done" in str(
                producer._life.pipeline and producer._life.pipeline.failure
            )

    run_in_virtual_time(scenario())


@REPLACES
def test_a_ledger_that_aborts_without_a_transaction_fails_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(broker_backend.Ledger, "answer", aborting)
        async with started("t") as (_, producer):
            with pytest.raises(ProducerFailedError, match="there is no transaction"):
                await asyncio.wait_for(producer.send("t", b"v").wait(), 60)
            await asyncio.wait_for(producer.close(timeout=1), 60)

    run(scenario())


def test_a_bug_that_strikes_while_closing_ends_the_close_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # faults: L15
    async def scenario() -> None:
        async with started("t", compression_type="gzip", linger_ms=1_000) as (_, producer):
            await producer.send("t", b"0")
            plant_in_the_compressor(monkeypatch)
            delivery = producer.send("t", b"x" * 60_000)
            loop = asyncio.get_running_loop()
            began = loop.time()
            report = await producer.close(timeout=20)
            assert loop.time() - began < 10
            assert isinstance(delivery.exception(), ProducerFailedError)
            assert report.count == 1
            assert producer.health().state is ProducerState.CLOSED

    run(scenario())


def test_an_error_of_a_dialer_is_named_and_passes_when_the_dialer_can_connect_again() -> None:
    """Libraries for proxies have errors of their own, for outages that pass: such an error is no crash."""

    async def dialer(host: str, port: int, context: ssl.SSLContext | None, factory: Any) -> asyncio.Transport:
        if is_broken:
            raise Bug("planted")
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port)
        return cast(asyncio.Transport, transport)  # uvloop's is not one by descent

    async def scenario() -> None:
        nonlocal is_broken
        async with MockCluster() as cluster:
            cluster.create_topic("t")
            producer = Producer(
                cluster.bootstrap_servers, dialer=dialer, reconnect_backoff_ms=5, reconnect_backoff_max_ms=10
            )
            with pytest.raises(AiokprodError, match="planted"):
                await producer.start(timeout=2)
            is_broken = False
            async with producer:
                await producer.send("t", b"0")
                is_broken = True
                cluster.close_connections()
                delivery = producer.send("t", b"1")
                await until(lambda: "planted" in (producer.health().last_error or ""))
                assert producer.health().live and not delivery.done()
                is_broken = False
                assert (await delivery).offset == 1

    is_broken = True
    run(scenario())


class Outcome(BaseException):
    """An outcome that a test framework raises in a log handler."""


@pytest.mark.parametrize("kind", [IndexError, Outcome])
def test_a_log_handler_that_raises_on_every_line_fails_no_producer(kind: type[BaseException]) -> None:
    class Broken(logging.Handler):
        lines = 0

        def handle(self, record: logging.LogRecord) -> bool:
            self.lines += 1
            raise kind("broken")

    async def scenario() -> None:
        async with started("t", partitions=2) as (cluster, producer):
            await producer.send("t", b"0", partition=0)
            for node in (1, 2, 3):
                cluster.kill_broker(node)
            delivery = producer.send("t", b"1", partition=0)
            await asyncio.sleep(1)
            for node in (1, 2, 3):
                cluster.start_broker(node)
            assert (await delivery).offset == 1
            assert producer.health().state is ProducerState.READY

    handler, logger = Broken(), logging.getLogger("aiokprod")
    level, propagates, raises = logger.level, logger.propagate, logging.raiseExceptions
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = logging.raiseExceptions = False
    try:
        run_in_virtual_time(scenario())
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate, logging.raiseExceptions = propagates, raises
    assert handler.lines > 5
