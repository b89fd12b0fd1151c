"""Requests of a client: to any broker or to one, sent once, ended in time."""

from __future__ import annotations

import time
from typing import Any

import pytest
from both_loops import Run, both_loops
from client_rig import rig
from scripted_broker import eventually

from aiokprod.errors import (
    AiokprodError,
    ConfigError,
    ConnectionLostError,
    RequestTimeoutError,
)
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@both_loops
def test_a_request_goes_to_any_broker_or_to_the_one_named(run: Run) -> None:
    async def scenario() -> None:
        async with rig(3) as r:
            answer: InitProducerIdResponse = await r.client.request(
                InitProducerIdRequest(transactional_id=None), timeout_s=5
            )
            assert answer.producer_id == 1001
            await r.client.request(InitProducerIdRequest(transactional_id=None), node_id=2, timeout_s=5)
            assert len(r.cluster.brokers[2].asked(InitProducerIdRequest)) >= 1

    run(scenario())


@both_loops
def test_a_request_is_sent_once_and_its_failure_raised(run: Run) -> None:
    async def scenario() -> None:
        async with rig(1) as r:
            broker = r.cluster.brokers[1]
            broker.answers[InitProducerIdRequest] = lambda broker, request: ConnectionError()
            with pytest.raises(ConnectionLostError):
                await r.client.request(InitProducerIdRequest(transactional_id=None), timeout_s=5)
            assert len(broker.asked(InitProducerIdRequest)) == 1

    run(scenario())


@both_loops
def test_a_request_without_an_answer_ends_in_time(run: Run) -> None:
    async def scenario() -> None:
        async with rig(1) as r:
            r.cluster.brokers[1].answers[InitProducerIdRequest] = lambda broker, request: None
            began = time.monotonic()
            with pytest.raises(RequestTimeoutError):
                await r.client.request(InitProducerIdRequest(transactional_id=None), timeout_s=0.1)
            assert time.monotonic() - began < 20

    run(scenario())


@both_loops
@pytest.mark.parametrize("node_id", [1, 55])
def test_a_request_to_a_broker_that_cannot_be_reached_fails(run: Run, node_id: int) -> None:
    async def scenario() -> None:
        async with rig(2) as r:
            await r.cluster.brokers[1].stop()
            with pytest.raises(AiokprodError):
                await r.client.request(InitProducerIdRequest(transactional_id=None), node_id=node_id, timeout_s=1.0)

    run(scenario())


@both_loops
@pytest.mark.parametrize("is_new", [True, False], ids=["joined", "moved"])
def test_a_broker_that_cannot_be_dialled_is_looked_for(run: Run, is_new: bool) -> None:  # faults: B12, B13
    """Another answer may name a broker before the cache's does: one that has come back, or has a new address."""

    async def scenario() -> None:
        async with rig(2) as r:
            request = InitProducerIdRequest(transactional_id=None)
            await r.client.request(request, node_id=1, timeout_s=5)  # stays open: no loss asks for metadata
            if is_new:
                await r.cluster.add(3)
            else:
                await r.cluster.remove(2)
                await r.cluster.add(2)
            node_id = 3 if is_new else 2
            with pytest.raises(ConnectionLostError):
                await r.client.request(request, node_id=node_id, timeout_s=5)
            port = r.cluster.brokers[node_id].port
            await eventually(lambda: (node := r.client.snapshot.brokers.get(node_id)) is not None and node.port == port)
            await r.client.request(request, node_id=node_id, timeout_s=5)

    run(scenario())


@both_loops
def test_a_broker_that_does_not_answer_is_looked_for(run: Run) -> None:  # faults: B12
    async def scenario() -> None:
        async with rig(2) as r:
            r.cluster.brokers[2].answers[InitProducerIdRequest] = lambda broker, request: None
            begun = r.client.next_request
            with pytest.raises(RequestTimeoutError):
                await r.client.request(InitProducerIdRequest(transactional_id=None), node_id=2, timeout_s=0.1)
            await eventually(lambda: r.client.next_request > begun)

    run(scenario())


NO_TIMEOUT: list[tuple[Any, type[Exception]]] = [
    (None, TypeError), ("5", TypeError), (True, TypeError), (b"", TypeError), ([], TypeError), (1j, TypeError),
    (float("nan"), ConfigError), (float("inf"), ConfigError), (float("-inf"), ConfigError), (10**12, ConfigError),
]  # fmt: skip


@pytest.mark.parametrize(("timeout", "error"), NO_TIMEOUT, ids=[repr(timeout) for timeout, _ in NO_TIMEOUT])
@both_loops
def test_what_is_no_timeout_is_refused_before_anything_changes(
    run: Run, timeout: Any, error: type[Exception]
) -> None:  # faults: M17
    """The clock of a connection added it to its own time, and the whole producer failed."""

    async def scenario() -> None:
        async with rig(1) as r:
            broker = r.cluster.brokers[1]
            request = InitProducerIdRequest(transactional_id=None)
            connection = await r.client._running().route.connection([1])
            for node_id in (None, 1):
                with pytest.raises(error, match="a timeout"):
                    await r.client.request(request, node_id=node_id, timeout_s=timeout)
            with pytest.raises(error, match="a timeout"):
                await connection.request(request, timeout_s=timeout)
            with pytest.raises(error, match="a timeout"):
                await r.client.refreshed(timeout)
            assert connection.in_flight == 0
            assert not broker.asked(InitProducerIdRequest)
            await r.client.request(request, timeout_s=5)
            assert len(broker.asked(InitProducerIdRequest)) == 1

    run(scenario())


@both_loops
def test_a_start_without_a_timeout_of_its_own_can_begin_again(run: Run) -> None:  # faults: M17
    async def scenario() -> None:
        async with rig(1, start=False) as r:
            with pytest.raises(TypeError):
                await r.client.start("5")  # type: ignore[arg-type]
            await r.client.start(5)

    run(scenario())


@both_loops
def test_a_throttle_in_an_answer_mutes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with rig(1) as r:
            r.cluster.brokers[1].answers[InitProducerIdRequest] = lambda broker, request: InitProducerIdResponse(
                throttle_time_ms=200, producer_id=1, producer_epoch=0
            )
            request = InitProducerIdRequest(transactional_id=None)
            await r.client.request(request, timeout_s=5)
            began = time.monotonic()
            await r.client.request(request, timeout_s=5)
            assert time.monotonic() - began > 0.15

    run(scenario())
