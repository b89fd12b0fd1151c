"""Requests of a client: to any broker or to one, sent once, ended in time."""

from __future__ import annotations

import time

import pytest
from both_loops import Run, both_loops
from client_rig import rig

from aiokprod.errors import (
    AiokprodError,
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
            assert time.monotonic() - began < 2

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
