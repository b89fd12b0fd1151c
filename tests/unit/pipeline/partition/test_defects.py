"""A defect in a step that only observes (log lines, metrics, explanations) is told once and counted, and fails no record."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from virtual_rig import Told, kinds, outcomes, run, started

from aiokprod import Producer
from aiokprod.errors import SendTimeoutError
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.model import ProducerState
from aiokprod.pipeline import inspection
from aiokprod.pipeline import pipeline as pipeline_module
from aiokprod.pipeline.outages import Outages
from aiokprod.pipeline.partition.data_losses import DataLosses
from aiokprod.pipeline.partition.defects import Defects
from aiokprod.pipeline.partition.explained_queue import ExplainedQueue
from aiokprod.pipeline.partition.failing import FailingBatches
from aiokprod.pipeline.partition.parked_record import ParkedRecord
from aiokprod.telemetry.pusher import PushSession
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

PLANTED = pytest.mark.pure("a step of the sources is replaced by one that raises")

LOOKS: dict[str, tuple[Any, str]] = {
    "the look at the event loop": (Outages, "_look_at_loop"),
    "the look at batches that fail": (FailingBatches, "tell"),
    "the look at the buffer": (Outages, "_look_at_room"),
    "the look at serializers": (Outages, "_look_at_serializers"),
    "the look at the topics of the metrics": (Metrics, "look_at_topics"),
    "the look at the state": (Outages, "look_at_state"),
    "the look for lost records": (DataLosses, "look"),
    "the upkeep of the topics": (pipeline_module, "keep_house"),
    "the note of a failed attempt": (FailingBatches, "note"),
    "the search for the last error": (FailingBatches, "refusals"),
    "the search for the reason of DEGRADED": (inspection, "_why_late"),
    "the measurement of the gauges": (pipeline_module, "measure"),
    "the story of a record": (ExplainedQueue, "_story"),
}
"""A step, and where a defect is planted that raises each time. Some are only reached in an outage."""


def raises(*_: object, **__: object) -> Any:
    raise ZeroDivisionError("planted")


def lines(caplog: pytest.LogCaptureFixture, words: str = "aiokprod has a defect") -> list[logging.LogRecord]:
    return [record for record in caplog.records if words in record.getMessage()]


def test_the_first_of_a_kind_is_told_with_its_traceback_and_all_are_counted(
    caplog: pytest.LogCaptureFixture, defects: list[str]
) -> None:
    metrics = Metrics()
    caught = Defects(metrics, StateLog("producer", client_id="shop"))
    for bug in (ValueError("a"), ValueError("b"), KeyError("c")):
        try:
            raise bug
        except Exception as raised:
            caught.caught("the look at the buffer", raised)
    first, second = caplog.records
    assert first.levelno == logging.ERROR and first.exc_info is not None and first.exc_info[2] is not None
    assert "the look at the buffer raised" in first.getMessage() and "(client_id shop)" in first.getMessage()
    assert second.exc_info is not None and second.exc_info[0] is KeyError
    assert metrics.defects_caught.value == len(defects) == 3
    assert "KeyError" in repr(caught)


@PLANTED
@pytest.mark.parametrize("step", list(LOOKS))
def test_records_are_delivered_whatever_observer_raises(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, defects: list[str]
) -> None:
    owner, name = LOOKS[step]
    monkeypatch.setattr(owner, name, raises)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            sent = producer.send("t", b"w")
            await asyncio.sleep(15)
            assert producer.health().state is ProducerState.DEGRADED
            producer.metrics()
            refusing.cancel()
            assert (await sent).offset == 1
            await asyncio.sleep(2)
            assert producer.health().live and producer.health().state is ProducerState.READY
            assert (await producer.send("t", b"x")).offset == 2
            assert float(str(producer.metrics()["defects_caught"])) >= 1

    run(scenario)
    told = lines(caplog)
    assert any(f"{step} raised" in record.getMessage() for record in told), [each.getMessage() for each in told]
    assert len(told) == len(set(defects)) and {kind.rpartition(": ")[2] for kind in defects} == {"ZeroDivisionError"}
    assert all(record.exc_info is not None for record in told)


@PLANTED
def test_the_lines_of_other_outages_go_on_beside_a_defect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, defects: list[str]
) -> None:
    monkeypatch.setattr(Outages, "_look_at_loop", raises)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            sent = producer.send("t", b"w")
            await asyncio.sleep(15)
            refusing.cancel()
            await sent
            await asyncio.sleep(2)

    run(scenario)
    assert lines(caplog, "a batch has failed") and lines(caplog, "batches do not fail with")
    assert lines(caplog, "READY -> DEGRADED") and lines(caplog, "DEGRADED -> READY")


@PLANTED
def test_a_reason_that_cannot_be_found_does_not_hide_that_the_producer_is_degraded(
    monkeypatch: pytest.MonkeyPatch, defects: list[str]
) -> None:
    monkeypatch.setattr(ExplainedQueue, "explain_oldest", raises)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            held = cluster.hold("Produce")
            sent = producer.send("t", b"w")
            await asyncio.sleep(15)
            assert (producer.health().state, producer.health().reason) == (ProducerState.DEGRADED, "records are late")
            cluster.release(held)
            await sent

    run(scenario)


@PLANTED
@pytest.mark.parametrize(
    ("owner", "name"), [(ExplainedQueue, "_story"), (ParkedRecord, "error"), (ExplainedQueue, "_add_note")]
)
def test_a_record_whose_story_cannot_be_told_fails_with_its_own_error(
    owner: Any, name: str, monkeypatch: pytest.MonkeyPatch, defects: list[str]
) -> None:
    told = Told()

    async def scenario(network: VirtualNetwork) -> None:
        options: dict[str, Any] = {"linger_ms": 0, "on_delivery_error": told, "max_block_ms": 2_000}
        async with started(network, **options) as (cluster, producer):
            await producer.send("t", b"v")
            monkeypatch.setattr(owner, name, raises)
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=3)
            timed_out = producer.send("t", b"w", timeout=0.05)
            assert kinds(await outcomes([timed_out])) == [SendTimeoutError.__name__]
            await asyncio.sleep(5)
            cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1)
            producer.send("t", b"x")
            producer.send("not-there", b"y")
            await asyncio.sleep(10)
            assert sorted(told.kinds) == ["TopicAuthorizationError", "UnknownTopicError"]
            assert (await producer.send("t", b"z")).partition == 0

    run(scenario)
    assert defects and set(defects) == {"the story of a record: ZeroDivisionError"}


@PLANTED
def test_a_search_for_losses_that_raises_fails_a_producer_that_has_to_notice_them(
    monkeypatch: pytest.MonkeyPatch, defects: list[str]
) -> None:
    monkeypatch.setattr(DataLosses, "look", raises)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, fail_on_data_loss=True) as (_, producer):
            await asyncio.sleep(1)
            assert producer.health().state is ProducerState.FAILED

    run(scenario)
    assert not defects


@pytest.mark.parametrize("name", ["_packed", "_told"])
def test_telemetry_ends_with_its_defect_and_the_producer_goes_on(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, defects: list[str]
) -> None:
    monkeypatch.setattr(PushSession, name, raises)

    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            cluster.ask_for_telemetry(push_interval_ms=1_000)
            async with Producer(cluster.bootstrap_servers, dialer=network.dial) as producer:
                await asyncio.sleep(5)
                assert (await producer.send("t", b"v")).offset == 0

    run(scenario)
    assert defects and set(defects) == {"telemetry: ZeroDivisionError"}
    assert len(lines(caplog)) == 1
