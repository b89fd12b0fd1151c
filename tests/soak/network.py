"""Faults of the network between clients and brokers: rules for the fault proxies, one set for each kind of fault.

There is a proxy for each listener. Before that of TLS there are no frames to be seen: faults of requests of one kind
do not reach its clients; faults of bytes, connections and ways do.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence

from plan import Injection
from profiles import REQUEST_TIMEOUT_S

from aiokprod.testing.faults import (
    Answer,
    Blackhole,
    Drip,
    Drop,
    Effect,
    Fault,
    Hold,
    Rewrite,
    Throttle,
    Truncate,
)
from aiokprod.testing.proxy import Distance, FaultProxy
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

FAR_S, NARROW_BYTES_PER_S, LOSS = 0.1, 3e6 / 8, 0.01  # 100 ms each way, 3 Mbit/s, one segment in a hundred
THROTTLED_MS = 700
LOOK_S = 0.3
HELD_S = REQUEST_TIMEOUT_S + 1.0
# Told of a batch that the broker has not seen.
BEFORE_APPEND = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.KAFKA_STORAGE_ERROR,
)  # fmt: skip
# Told of a batch that it has appended: by its timer, by what is left of the replicas, by a leader that is one no more, or
# whose disk is gone. The answer names the offset then. Other codes would be a lie that no broker tells, and no client
# could see through.
AFTER_APPEND = (
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)  # fmt: skip


def harm(proxies: Sequence[FaultProxy], injection: Injection, pause: Callable[[float], object]) -> tuple[int, str]:
    """Inject the fault, wait with `pause`, undo it; return how much it met, and of what."""
    if injection.kind == "reset storm":
        return _reset_storm(proxies, injection, pause), "connections"
    if injection.kind == "part one broker":
        for proxy in proxies:
            proxy.refuse_connections(injection.node)
        closed = sum(proxy.close_connections(injection.node) for proxy in proxies)
        pause(injection.seconds)
        for proxy in proxies:
            proxy.allow_connections(injection.node)
        return closed, "connections"
    if injection.kind == "far away":
        distance = Distance(delay_s=FAR_S, bytes_per_s=NARROW_BYTES_PER_S, loss=LOSS, seed=injection.seed)
        for proxy in proxies:
            proxy.set_distance(injection.node, distance)
        pause(injection.seconds)
        for proxy in proxies:
            proxy.set_distance(injection.node, None)
        counts = [proxy.segments(injection.node) for proxy in proxies]
        return sum(some for some, _ in counts), f"segments, {sum(lost for _, lost in counts)} of them lost"
    fault = fault_of(injection)
    rules = [(proxy, proxy.add_fault(fault)) for proxy in proxies]
    pause(HELD_S if injection.kind in ("hold answer", "hold request") else injection.seconds)
    for proxy, rule in rules:
        proxy.release(rule)
    return sum(rule.hits for _, rule in rules), "requests or answers"


def busy_node(
    proxies: Sequence[FaultProxy], wanted: int, nodes: Iterable[int], pause: Callable[[float], object]
) -> int:
    """Return the wanted broker if records go to it, else that to which most go: one that has just come back leads
    nothing, and a fault there is not noticed."""

    def counted() -> dict[int, int]:
        return {node: sum(proxy.requests_seen("Produce", node) for proxy in proxies) for node in nodes}

    before = counted()
    pause(LOOK_S)
    seen = {node: count - before[node] for node, count in counted().items()}
    return wanted if seen[wanted] else max(seen, key=lambda node: (seen[node], node == wanted))


def fault_of(injection: Injection) -> Fault:
    """Return the rule for the proxy."""

    def sometimes(effect: Effect, *, before_serving: bool = False) -> Fault:
        return Fault(
            effect=effect,
            api="Produce",
            times=None,
            chance=injection.chance,
            seed=injection.seed,
            before_serving=before_serving,
        )

    match injection.kind:
        case "cut requests":
            return sometimes(Drop(), before_serving=True)
        case "cut answers":
            return sometimes(Drop())
        case "hold answer":
            return Fault(effect=Hold(), api="Produce", broker=injection.node)
        case "hold request":
            return Fault(effect=Hold(), api="Produce", broker=injection.node, before_serving=True)
        case "half request":
            return sometimes(Truncate(40), before_serving=True)
        case "half answer":
            return sometimes(Truncate(12))
        case "drip":
            return Fault(
                effect=Drip(500), broker=injection.node, times=None, chance=injection.chance, seed=injection.seed
            )
        case "blackhole requests":
            return Fault(effect=Blackhole(), api="Produce", broker=injection.node, before_serving=True)
        case "blackhole answers":
            return Fault(effect=Blackhole(), broker=injection.node)
        case "errors before append":
            return sometimes(Answer(_refusal(injection)))
        case "errors after append":
            return sometimes(Rewrite(_spoilt(injection)))
        case "throttle":
            return sometimes(Throttle(THROTTLED_MS))
    raise ValueError(f"no fault for {injection.kind}")


def _refusal(injection: Injection) -> Callable[[object, int], object]:
    """Return the answer of a broker that refuses every batch of a request that it has not looked at."""
    draw = random.Random(injection.seed)

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


def _spoilt(injection: Injection) -> Callable[[object, int], object]:
    """Return the broker's answer with an error for every batch that it has appended."""
    draw = random.Random(injection.seed)

    def spoilt(answer: object, version: int) -> object:
        assert isinstance(answer, ProduceResponse)
        code = draw.choice(AFTER_APPEND)
        for topic in answer.responses:
            for each in topic.partition_responses:
                if each.error_code == 0:
                    each.error_code = code  # and the offset at which it is (broker: 6.1, 6.4)
        return answer

    return spoilt


def _reset_storm(proxies: Sequence[FaultProxy], injection: Injection, pause: Callable[[float], object]) -> int:
    draw = random.Random(injection.seed)
    until = time.monotonic() + injection.seconds
    cut = 0
    while time.monotonic() < until:
        cut += sum(proxy.close_connections(abort=True) for proxy in proxies)
        pause(draw.uniform(0.5, 1.5))
    return cut
