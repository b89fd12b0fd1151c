"""What a soak does to the network between clients and brokers: rules for the fault proxy, one set for each kind of deed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from plan import Deed
from profiles import REQUEST_TIMEOUT_S

from aiokprod.testing.proxy import FaultProxy, ProxyFrame, ProxyRule
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.frames import decode_request_header
from aiokprod.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

HELD_S = REQUEST_TIMEOUT_S + 1.0
# Told of a batch that the broker has not seen.
BEFORE_APPEND = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.KAFKA_STORAGE_ERROR,
)  # fmt: skip
# Told of a batch that it has appended. Others would be a lie that no broker tells, and no client could see through.
AFTER_APPEND = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


def harm(proxy: FaultProxy, deed: Deed, pause: Callable[[float], object]) -> int:
    """Do the deed, wait with `pause`, undo it; how many frames, or connections, it met."""
    if deed.kind == "reset storm":
        return _reset_storm(proxy, deed, pause)
    if deed.kind == "part one broker":
        proxy.refuse(deed.node)
        before = proxy.open_connections(deed.node)
        proxy.cut(deed.node)
        pause(deed.seconds)
        proxy.allow(deed.node)
        return before
    active = proxy.add(rule_of(deed))
    pause(HELD_S if deed.kind in ("hold answer", "hold request") else deed.seconds)
    active.release()
    return active.hits


def rule_of(deed: Deed) -> ProxyRule:
    """What the proxy is told."""
    sometimes = _sometimes(deed)
    match deed.kind:
        case "cut requests":
            return ProxyRule(action="cut_before", api="Produce", keep=True, fits=sometimes)
        case "cut answers":
            return ProxyRule(action="cut_after", api="Produce", keep=True, fits=sometimes)
        case "hold answer":
            return ProxyRule(action="hold", api="Produce", direction="answer", broker=deed.node)
        case "hold request":
            return ProxyRule(action="hold", api="Produce", broker=deed.node)
        case "half request":
            return ProxyRule(action="truncate", api="Produce", size=40, keep=True, fits=sometimes)
        case "half answer":
            return ProxyRule(action="truncate", api="Produce", direction="answer", size=12, keep=True, fits=sometimes)
        case "drip":
            return ProxyRule(
                action="drip", direction="answer", broker=deed.node, bytes_per_s=500, keep=True, fits=sometimes
            )
        case "blackhole requests":
            return ProxyRule(action="blackhole", api="Produce", broker=deed.node)
        case "blackhole answers":
            return ProxyRule(action="blackhole", direction="answer", broker=deed.node)
        case "errors before append":
            return ProxyRule(action="answer", api="Produce", keep=True, fits=sometimes, body=_refusal(deed))
        case "errors after append":
            return ProxyRule(
                action="rewrite", api="Produce", direction="answer", keep=True, fits=sometimes, body=_spoilt(deed)
            )
    raise ValueError(f"no rule for {deed.kind}")


def _sometimes(deed: Deed) -> Callable[[ProxyFrame, bytes], bool]:
    draw = random.Random(deed.seed)
    return lambda frame, payload: draw.random() < deed.chance


def _refusal(deed: Deed) -> Callable[[ProxyFrame, bytes], bytes]:
    """The answer of a broker that refuses every batch of a request it has not looked at."""
    draw = random.Random(deed.seed)

    def body(frame: ProxyFrame, payload: bytes) -> bytes:
        header = decode_request_header(payload, {0: ProduceRequest.FLEXIBLE_FROM})
        request = ProduceRequest.decode(header.body, frame.version)
        code = draw.choice(BEFORE_APPEND)
        answer = ProduceResponse(
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
        return answer.encode(frame.version)

    return body


def _spoilt(deed: Deed) -> Callable[[ProxyFrame, bytes], bytes]:
    """The broker's answer with an error for every batch that it has appended."""
    draw = random.Random(deed.seed)

    def body(frame: ProxyFrame, payload: bytes) -> bytes:
        answer = ProduceResponse.decode(
            payload[5 if frame.version >= ProduceResponse.FLEXIBLE_FROM else 4 :], frame.version
        )
        code = draw.choice(AFTER_APPEND)
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code == 0:
                    each.error_code, each.base_offset = code, -1
        return answer.encode(frame.version)

    return body


def _reset_storm(proxy: FaultProxy, deed: Deed, pause: Callable[[float], object]) -> int:
    draw = random.Random(deed.seed)
    until = time.monotonic() + deed.seconds
    cut = 0
    while time.monotonic() < until:
        cut += proxy.open_connections()
        proxy.cut(reset=True)
        pause(draw.uniform(0.5, 1.5))
    return cut
