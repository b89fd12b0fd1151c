"""What a soak does to the network between clients and brokers: rules for the fault proxy, one set for each kind of deed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from plan import Deed
from profiles import REQUEST_TIMEOUT_S

from aiokprod.testing.faults import (
    Answer,
    Blackhole,
    Delay,
    Drip,
    Drop,
    Effect,
    Fault,
    Hold,
    Rewrite,
    Throttle,
    Truncate,
)
from aiokprod.testing.proxy import FaultProxy
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

SLOW_S = 0.1  # of every answer
THROTTLED_MS = 700
HELD_S = REQUEST_TIMEOUT_S + 1.0
# Told of a batch that the broker has not seen.
BEFORE_APPEND = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.KAFKA_STORAGE_ERROR,
)  # fmt: skip
# Told of a batch that it has appended. Others would be a lie that no broker tells, and no client could see through.
AFTER_APPEND = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def harm(proxy: FaultProxy, deed: Deed, pause: Callable[[float], object]) -> int:
    """Do the deed, wait with `pause`, undo it; how many requests, or connections, it met."""
    if deed.kind == "reset storm":
        return _reset_storm(proxy, deed, pause)
    if deed.kind == "part one broker":
        proxy.refuse_connections(deed.node)
        closed = proxy.close_connections(deed.node)
        pause(deed.seconds)
        proxy.allow_connections(deed.node)
        return closed
    rule = proxy.add_fault(fault_of(deed))
    pause(HELD_S if deed.kind in ("hold answer", "hold request") else deed.seconds)
    proxy.release(rule)
    return rule.hits


def fault_of(deed: Deed) -> Fault:
    """What the proxy is told."""

    def sometimes(effect: Effect, *, before_serving: bool = False) -> Fault:
        return Fault(
            effect=effect, api="Produce", times=None, chance=deed.chance, seed=deed.seed, before_serving=before_serving
        )

    match deed.kind:
        case "cut requests":
            return sometimes(Drop(), before_serving=True)
        case "cut answers":
            return sometimes(Drop())
        case "hold answer":
            return Fault(effect=Hold(), api="Produce", broker=deed.node)
        case "hold request":
            return Fault(effect=Hold(), api="Produce", broker=deed.node, before_serving=True)
        case "half request":
            return sometimes(Truncate(40), before_serving=True)
        case "half answer":
            return sometimes(Truncate(12))
        case "drip":
            return Fault(effect=Drip(500), broker=deed.node, times=None, chance=deed.chance, seed=deed.seed)
        case "blackhole requests":
            return Fault(effect=Blackhole(), api="Produce", broker=deed.node, before_serving=True)
        case "blackhole answers":
            return Fault(effect=Blackhole(), broker=deed.node)
        case "errors before append":
            return sometimes(Answer(_refusal(deed)))
        case "errors after append":
            return sometimes(Rewrite(_spoilt(deed)))
        case "throttle":
            return sometimes(Throttle(THROTTLED_MS))
        case "slow network":
            return Fault(effect=Delay(SLOW_S), broker=deed.node, times=None)
    raise ValueError(f"no fault for {deed.kind}")


def _refusal(deed: Deed) -> Callable[[object, int], object]:
    """The answer of a broker that refuses every batch of a request it has not looked at."""
    draw = random.Random(deed.seed)

    def refusal(request: object, version: int) -> object:
        assert isinstance(request, ProduceRequest)
        code = draw.choice(BEFORE_APPEND)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=each.index, error_code=code, base_offset=-1)
                        for each in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    return refusal


def _spoilt(deed: Deed) -> Callable[[object, int], object]:
    """The broker's answer with an error for every batch that it has appended."""
    draw = random.Random(deed.seed)

    def spoilt(answer: object, version: int) -> object:
        assert isinstance(answer, ProduceResponse)
        code = draw.choice(AFTER_APPEND)
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code == 0:
                    each.error_code, each.base_offset = code, -1
        return answer

    return spoilt


def _reset_storm(proxy: FaultProxy, deed: Deed, pause: Callable[[float], object]) -> int:
    draw = random.Random(deed.seed)
    until = time.monotonic() + deed.seconds
    cut = 0
    while time.monotonic() < until:
        cut += proxy.close_connections(abort=True)
        pause(draw.uniform(0.5, 1.5))
    return cut
