"""Producer ids: what is asked again, what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    BootstrapError,
    BrokerAnswerError,
    ClusterAuthorizationError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    UnsupportedVersionError,
)
from aiokprod.transactions.identity import ProducerIdKeeper
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

Outcome = InitProducerIdResponse | AiokprodError


def error(code: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code)


def granted(producer_id: int, epoch: int = 0) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


class FakeClient:
    """A cluster that answers one after the other, and the last for ever."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = list(outcomes)
        self.requests: list[InitProducerIdRequest] = []
        self.in_flight = 0

    async def request(self, message: InitProducerIdRequest, *, timeout_s: float, node_id: int | None = None) -> Any:
        assert node_id is None
        assert timeout_s == 30.0
        self.requests.append(message)
        self.in_flight += 1
        assert self.in_flight == 1, "two requests in flight"
        await asyncio.sleep(0)
        self.in_flight -= 1
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, AiokprodError):
            raise outcome
        return outcome


class Rig:
    def __init__(self, *outcomes: Outcome, on_sleep: Callable[[], None] = lambda: None) -> None:
        self.client = FakeClient(*outcomes)
        self.slept: list[float] = []
        self.on_sleep = on_sleep
        self.keeper = ProducerIdKeeper(
            self.client,  # type: ignore[arg-type]
            ProducerConfig(bootstrap_servers="b:1"),
            random=Random(1),
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()
        await asyncio.sleep(0)


def test_a_fresh_id_is_asked_for_without_a_transactional_id() -> None:
    async def scenario() -> None:
        rig = Rig(granted(7))
        assert await rig.keeper.fresh() == (7, 0)
        request = rig.client.requests[0]
        assert (request.transactional_id, request.producer_id, request.producer_epoch) == (None, -1, -1)
        assert rig.slept == []

    asyncio.run(scenario())


def test_every_call_brings_an_id_of_its_own_one_request_at_a_time() -> None:
    async def scenario() -> None:
        rig = Rig(granted(1), granted(2), granted(3))
        assert sorted(await asyncio.gather(*(rig.keeper.fresh() for _ in range(3)))) == [(1, 0), (2, 0), (3, 0)]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "later",
    [
        *(error(code) for code in (14, 15, 16, 51, 7, 13, -1, 89)),
        ConnectionLostError("EOF"),
        RequestTimeoutError("no answer"),
        BootstrapError("no broker"),
        AuthenticationError("not now"),
        ProtocolError("gibberish"),
    ],
    ids=str,
)
def test_what_may_pass_is_asked_again(later: Outcome) -> None:  # faults: I22
    async def scenario() -> None:
        rig = Rig(later, later, granted(7))
        assert await rig.keeper.fresh() == (7, 0)
        assert len(rig.client.requests) == 3
        assert rig.keeper.last_error is None

    asyncio.run(scenario())


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (-1, -1), (5, -1), (-9, 3)])
def test_an_id_that_is_none_is_a_protocol_error_and_asked_again(producer_id: int, epoch: int) -> None:  # faults: H19
    async def scenario() -> None:
        seen: list[object] = []
        rig = Rig(granted(producer_id, epoch), granted(7))
        rig.on_sleep = lambda: seen.append(rig.keeper.last_error)
        assert await rig.keeper.fresh() == (7, 0)
        assert isinstance(seen[0], ProtocolError)

    asyncio.run(scenario())


def test_repetition_moves_apart_and_ends_when_told_to() -> None:  # faults: I22
    async def scenario() -> None:
        rig = Rig(error(14))
        asking = asyncio.create_task(rig.keeper.fresh())
        rig.on_sleep = lambda: asking.cancel() if len(rig.slept) == 10 else None
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert len(rig.client.requests) == 10
        for slept, plain in zip(rig.slept, (0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1, 1, 1), strict=True):
            assert 0.8 * plain <= slept <= 1.2 * plain
        assert isinstance(rig.keeper.last_error, BrokerAnswerError)
        assert rig.keeper.last_error.code == 14

    asyncio.run(scenario())


def test_after_a_cancelled_call_the_next_one_asks() -> None:
    async def scenario() -> None:
        rig = Rig(granted(1), granted(2))
        first = asyncio.create_task(rig.keeper.fresh())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        rig.client.in_flight = 0  # the fake's count, which a cancel does not take back
        assert (await rig.keeper.fresh())[1] == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("never", "kind"),
    [
        (error(31), ClusterAuthorizationError),
        (error(53), ClusterAuthorizationError),
        (error(35), UnsupportedVersionError),
        (UnsupportedVersionError("too old"), UnsupportedVersionError),
        (error(42), BrokerAnswerError),
        (error(999), BrokerAnswerError),
    ],
    ids=str,
)
def test_what_cannot_pass_ends_it_at_once(never: Outcome, kind: type[AiokprodError]) -> None:  # faults: I23
    async def scenario() -> None:
        rig = Rig(never, granted(7))
        with pytest.raises(kind) as caught:
            await rig.keeper.fresh()
        assert len(rig.client.requests) == 1
        assert rig.slept == []
        if isinstance(never, InitProducerIdResponse):
            assert caught.value.code == never.error_code

    asyncio.run(scenario())
