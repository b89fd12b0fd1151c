"""Faults as they are drawn: one function for each kind, each gives the arguments of the method of `Trouble` that it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .themes import EXPIRING
from .world_values import Args, Step

if TYPE_CHECKING:
    from .draw import Draw

Maker = Callable[["Draw"], Args]

RETRIABLE = (
    "CORRUPT_MESSAGE", "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NETWORK_EXCEPTION",
    "KAFKA_STORAGE_ERROR", "FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_ID",
)  # fmt: skip
APPENDED = ("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER")
OF_TOPIC = (
    "LEADER_NOT_AVAILABLE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "TOPIC_AUTHORIZATION_FAILED",
    "INVALID_REPLICATION_FACTOR",
)
FOR_GOOD = ("INVALID_RECORD", "POLICY_VIOLATION", "TOPIC_AUTHORIZATION_FAILED")


def draw_fault(draw: Draw, at: float) -> Step:
    """Draw one of the seed's kinds of faults."""
    kind, make = FAULTS[draw.random.choice(draw.faults)]
    step = Step(at, kind, make(draw))
    if draw.random.random() < 0.15:
        step.on = draw.pick("Metadata", "Metadata", "Produce", "ApiVersions", "InitProducerId")
        low, high = draw.pick((0.0, 0.0), (0.0005, 0.0005), (0.001, 0.001), (0.0, 0.003))
        step.lag = round(draw.random.uniform(low, high), 6)
    if kind == "move_and_reset" and draw.random.random() < 0.7:
        step.on, step.lag = "Metadata", 0.0
    elif draw.random.random() < 0.3:
        step.hops = draw.random.randrange(7)
    return step


def outage_s(draw: Draw) -> float:
    """Draw the duration of an outage."""
    request_s, delivery_s = draw.options["request_timeout_ms"] / 1000, draw.options["delivery_timeout_ms"] / 1000
    if draw.theme in EXPIRING and draw.random.random() < 0.7:
        away_s: float = delivery_s * draw.pick(1.0, 1.1, 1.5) + draw.pick(0.0, 0.001, 0.01, 0.1)
        return round(away_s, 6)
    seconds: float = draw.pick(0.003, 0.05, 0.5, 2.0, request_s, min(delivery_s, 30.0) + 0.01)
    return seconds


def _node(draw: Draw) -> int:
    return draw.random.randint(1, draw.nodes)


def _place(draw: Draw) -> Args:
    return {"topic": draw.random.choice(draw.topics)["name"], "partition": draw.partition()}


def _fail(draw: Draw) -> Args:
    return {"code": draw.pick(*RETRIABLE), "times": draw.pick(1, 1, 2, 4)}


def _appended(draw: Draw) -> Args:
    return {"code": draw.pick(*APPENDED), "after_append": True, "times": draw.pick(1, 2)}


def _hinted(draw: Draw) -> Args:
    return {"code": "NOT_LEADER_OR_FOLLOWER", "with_hint": True, "times": draw.pick(1, 2)}


def _for_good(draw: Draw) -> Args:
    return {"code": draw.pick(*FOR_GOOD), "times": 1}


def _identity(draw: Draw) -> Args:
    if "acks" in draw.options or "enable_idempotence" in draw.options or draw.options.get("retries") == 0:
        return _fail(draw)  # a producer without numbers is never told that they are wrong
    return {
        "code": draw.pick("UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
        **_place(draw),
    }


def _of_topic(draw: Draw) -> Args:
    return {
        "api": "Metadata",
        "code": draw.pick(*OF_TOPIC),
        "topic": _place(draw)["topic"],
        "times": draw.pick(1, 1, 2, 3),
    }


def _no_identity(draw: Draw) -> Args:
    return {
        "api": "InitProducerId",
        "code": draw.pick("COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"),
        "times": draw.pick(1, 3),
    }


def _api(draw: Draw) -> str:
    if draw.theme == "timeouts" and draw.random.random() < 0.6:
        return "Produce"  # for records that are on their way
    api: str = draw.pick("Produce", "Produce", "Produce", "Metadata", "ApiVersions", "InitProducerId")
    return api


def _drop(draw: Draw) -> Args:
    return {
        "api": _api(draw),
        "after_append": draw.random.random() < 0.7,
        "reset": draw.random.random() < 0.4,
        "times": draw.pick(1, 1, 3),
    }


def _damage(draw: Draw) -> Args:
    verb, given = draw.pick(
        ("truncate_next", [draw.pick(1, 4, 10, 30)]), ("huge_length_next", []), ("wrong_correlation_next", []),
        ("duplicate_next", []), ("close_after", []), ("rechunk_next", []), ("drip_next", [draw.pick(300, 5_000)]),
    )  # fmt: skip
    return {"verb": verb, "api": _api(draw), "given": given, "times": draw.pick(1, 1, 2)}


def _swallow(draw: Draw) -> Args:
    return {
        "verb": draw.pick("swallow_next", "blackhole_next"),
        "api": _api(draw),
        "given": [],
        "before_serving": draw.random.random() < 0.5,
    }


def _delay(draw: Draw) -> Args:
    return {
        "verb": "delay_next",
        "api": _api(draw),
        "given": [draw.pick(0.01, 0.3, 3.0)],
        "before_serving": draw.random.random() < 0.5,
        "times": draw.pick(1, 3),
    }


def _throttle(draw: Draw) -> Args:
    return {"verb": "throttle_next", "api": _api(draw), "given": [draw.pick(10, 500, 3_000)]}


def _hold(draw: Draw) -> Args:
    return {"api": _api(draw), "seconds": outage_s(draw), "before_serving": draw.random.random() < 0.5}


def _refuse_next(draw: Draw) -> Args:
    return {"times": draw.pick(1, 3)}


def _away(draw: Draw) -> Args:
    return {"node": _node(draw), "seconds": outage_s(draw)}


def _kill(draw: Draw) -> Args:
    return {**_away(draw), "elect": draw.random.random() < 0.8}


def _reset(draw: Draw) -> Args:
    return {"node": draw.pick(None, _node(draw))}


def _close_connections(draw: Draw) -> Args:
    return {"node": draw.pick(None, _node(draw)), "abort": draw.random.random() < 0.5}


def _move(draw: Draw) -> Args:
    return {**_place(draw), "by": draw.pick(0, 1, 1, 2)}


def _move_and_reset(draw: Draw) -> Args:
    latency_s = draw.weather.get("latency_s", [0.0, 0.002])
    lag = latency_s[0] if draw.random.random() < 0.7 else draw.random.uniform(0.0, 2 * latency_s[1])
    return {
        **_move(draw),
        "by": 1,
        "lag": round(lag, 6),
        "turns": draw.random.randrange(5),
        "late_s": draw.pick(None, 0.5, 1.0),
    }


def _late_and_moved(draw: Draw) -> Args:
    return {
        **_move(draw),
        "seconds": draw.pick(0.02, 0.2),
        "share": round(draw.random.random(), 3),
        "times": draw.pick(1, 3),
    }


def _placed_outage(draw: Draw) -> Args:
    return {**_place(draw), "seconds": outage_s(draw)}


def _create(draw: Draw) -> Args:
    topic = draw.random.choice(draw.topics)
    return {"topic": topic["name"], "partitions": topic["partitions"]}


def _grow(draw: Draw) -> Args:
    args: Args = {"topic": _place(draw)["topic"], "more": draw.pick(1, 2)}
    if draw.theme == "learn" and draw.random.random() < 0.4:
        args["unseen"] = draw.pick(1, 2, 3)
    return args


def _delete(draw: Draw) -> Args:
    return {
        "topic": _place(draw)["topic"],
        "seconds": draw.pick(0.0, 0.05, 1.0, 8.0),
        "partitions": draw.pick(None, None, 1, 4),
    }


def _recreate(draw: Draw) -> Args:
    return {"topic": _place(draw)["topic"], "partitions": draw.pick(None, None, 1, 4)}


def _alter(draw: Draw) -> Args:
    return {"topic": _place(draw)["topic"], "config": {"max_message_bytes": draw.pick(250, 700, 100_000)}}


FAULTS: dict[str, tuple[str, Maker]] = {
    "fail": ("fail", _fail),
    "appended": ("fail", _appended),
    "hinted": ("fail", _hinted),
    "for_good": ("fail", _for_good),
    "identity": ("fail", _identity),
    "of_topic": ("fail", _of_topic),
    "no_identity": ("fail", _no_identity),
    "drop": ("drop", _drop),
    "damage": ("damage", _damage),
    "swallow": ("damage", _swallow),
    "delay": ("damage", _delay),
    "throttle": ("damage", _throttle),
    "hold": ("hold", _hold),
    "omit": ("omit", _place),
    "refuse_next": ("refuse_next", _refuse_next),
    "refuse": ("refuse", _away),
    "freeze": ("freeze", _away),
    "silence": ("silence", _away),
    "reset": ("reset", _reset),
    "close_connections": ("close_connections", _close_connections),
    "kill": ("kill", _kill),
    "stop": ("stop", _away),
    "move": ("move", _move),
    "late_and_moved": ("late_and_moved", _late_and_moved),
    "leaderless": ("leaderless", _placed_outage),
    "move_and_reset": ("move_and_reset", _move_and_reset),
    "shrink": ("shrink", _placed_outage),
    "create": ("create", _create),
    "grow": ("grow", _grow),
    "delete": ("delete", _delete),
    "recreate": ("recreate", _recreate),
    "alter": ("alter", _alter),
}
"""The features of faults: a seed has some of them."""
