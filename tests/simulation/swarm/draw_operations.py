"""Operations as they are drawn: one function for each kind, each gives one step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .world_values import Args, Step, World

if TYPE_CHECKING:
    from .draw import Draw

Maker = Callable[["Draw", World], Args]

BAD: list[tuple[str, object]] = [
    ("timeout", "5"), ("timeout", 10**400), ("timeout", float("nan")), ("timeout", -1), ("timeout", 0), ("timeout", True),
    ("partition", -1), ("partition", 2**31), ("partition", "0"), ("partition", 1.0), ("timestamp_ms", -5),
    ("timestamp_ms", 2**63), ("timestamp_ms", "now"), ("value", 5), ("key", 5), ("topic", ""), ("topic", "a b"), ("topic", 5),
    ("headers", [("a", 5)]), ("headers", 7), ("headers", [("a",)]),
]  # fmt: skip
TIMEOUTS_THAT_ARE_NONE = [bad for bad in BAD if bad[0] == "timeout"]


def draw_operation(draw: Draw, world: World, at: float) -> Step:
    """Draw one of the seed's kinds of operations."""
    name = draw.random.choice(draw.operations)
    kind, make = OPERATIONS[name]
    args = make(draw, world)
    if world.producers > 1:
        args["producer"] = draw.random.randrange(world.producers)
    hops = draw.pick(0, 0, 0, 1, 2, 5) if world.weather.get("latency_s") else draw.pick(0, 0, 0, 0, 1, 2)
    return Step(at, kind, args, hops=hops)


def size_of(draw: Draw) -> int:
    """Draw a size that means something to the options."""
    options, random = draw.options, draw.random
    limit = min(options["buffer_memory"], options["max_request_size"])
    choices = [1, 10, 100, 100, 400, options["batch_size"], limit // 3]
    if random.random() < 0.06:
        choices = [limit - 61 - random.randrange(140)]
    return min(int(random.choice(choices)), 200_000)


def after_of(draw: Draw) -> float:
    """Return the time after which a caller loses patience."""
    after: float = draw.pick(0.0, 0.0005, 0.003, 0.05, 0.5, 3.0)
    return after


def _send(draw: Draw, watch: str, **more: object) -> Args:
    random = draw.random
    args: Args = {
        "topic": draw.topic(),
        "size": size_of(draw),
        "count": random.choice([1, 1, 2, 5, 12, 40]),
        "watch": watch,
    }
    if args["size"] * args["count"] > 600_000:
        args["count"] = max(1, 600_000 // args["size"])
    if random.random() < 0.5:
        args["partition"] = draw.partition()
        if random.random() < 0.3:
            args["spread"] = max(topic["partitions"] for topic in draw.topics)
    elif random.random() < 0.3:
        args["key"] = random.randrange(5)
    return args | more


def _drop(draw: Draw, _: World) -> Args:
    return _send(draw, "drop")


def _release(draw: Draw, _: World) -> Args:
    return _send(draw, "release")


def _await(draw: Draw, _: World) -> Args:
    return _send(draw, "await", after=draw.pick(None, None, after_of(draw)))


def _wait_for(draw: Draw, _: World) -> Args:
    return _send(draw, draw.pick("wait_for", "task", "shield"), after=after_of(draw))


def _poll(draw: Draw, _: World) -> Args:
    return _send(draw, "poll", after=draw.pick(0.001, 0.05, 0.5))


def _gather(draw: Draw, _: World) -> Args:
    return _send(draw, draw.pick("gather", "gather_all"), after=draw.pick(None, after_of(draw)))


def _callback(draw: Draw, _: World) -> Args:
    action = draw.pick("send", "raise", "recall", "close", "cancel") if draw.has("reaction") else None
    return _send(draw, "callback", action=action, after=draw.pick(None, None, None, after_of(draw)))


def _cancel_handle(draw: Draw, _: World) -> Args:
    return _send(draw, "cancel", after=after_of(draw), awaited=draw.random.random() < 0.5)


def _try_send(draw: Draw, _: World) -> Args:
    return _send(draw, draw.pick("drop", "await", "callback"), via="try_send")


def _timeouts(draw: Draw, _: World) -> Args:
    return _send(
        draw,
        draw.pick("drop", "drop", "await", "callback", "release", "cancel"),
        timeout=draw.pick(0.001, 0.02, 0.2, 1.0, 5.0),
    )


def _timeouts_distinct(draw: Draw, _: World) -> Args:
    return _send(draw, draw.pick("drop", "await"), timeout=draw.pick(0.01, 0.2, 1.0, 60.0), timeout_step=0.0137)


def _burst(draw: Draw, _: World) -> Args:
    args = _send(draw, draw.pick("drop", "drop", "await"))
    return args | {"count": draw.pick(150, 300) if args["size"] <= 1_000 else 20}


def _press(draw: Draw, _: World) -> Args:
    """Return sends to one partition, more bytes than the loop compresses itself; mostly with a recall."""
    args = _send(draw, draw.pick("drop", "await", "gather"))
    args |= {"count": draw.pick(40, 80), "size": draw.pick(500, 1_000, 2_000), "partition": 0, "spread": None}
    if draw.random.random() < 0.8:  # in the turn before the thread begins, as a rule
        args["recalled"] = [draw.pick(0, 1, 1, 1, 2, 2, 3), draw.random.randrange(80)]
    return args


def _spread(draw: Draw, _: World) -> Args:
    """Return sends to every partition, for which nothing waits."""
    topic = draw.random.choice(draw.topics)
    args = _send(draw, "drop") | {"topic": topic["name"], "partition": 0, "spread": topic["partitions"]}
    return args | {"size": draw.pick(10, 100, 400), "count": draw.pick(20, 60, 150)}


def _trickle(draw: Draw, _: World) -> Args:
    """Return one or two small sends to one partition, so that a batch has records of several moments."""
    args = _send(draw, draw.pick("drop", "await"))
    return args | {"size": draw.pick(10, 100, 300, 700), "count": draw.pick(1, 1, 2), "partition": 0}


def _fill(draw: Draw, _: World) -> Args:
    """Return sends that fill nearly all of the buffer at once."""
    size = min(draw.options["buffer_memory"], draw.options["max_request_size"]) // 3
    count = max(1, min(40, draw.options["buffer_memory"] // (size + 1)))
    return _send(draw, "drop") | {"size": min(size, 100_000), "count": count, "partition": draw.partition()}


def _wrong_first(draw: Draw, _: World) -> Args:
    """Return sends of which the first is for a partition that does not exist."""
    args = _send(draw, draw.pick("drop", "await")) | {"first_partition": 90, "count": draw.pick(20, 60, 150)}
    return args | {"size": draw.pick(1, 100, 400)}


def _missing_partition(draw: Draw, _: World) -> Args:
    topic = draw.random.choice(draw.topics)
    place: Args = {"topic": topic["name"], "partition": topic["partitions"] + draw.pick(0, 0, 1)}
    if draw.random.random() < 0.25:  # it exists, but is not known yet, and the current request is for something else
        place |= {"grown": True, "beside": draw.pick(None, f"elsewhere-{draw.random.randrange(100)}")}
    return _send(draw, draw.pick("drop", "await")) | place | {"count": draw.pick(1, 2)}


def _nowhere(draw: Draw, _: World) -> Args:
    return _send(draw, draw.pick("drop", "await")) | {"topic": draw.pick("nowhere", "elsewhere")}


def _tenants(draw: Draw, _: World) -> Args:
    return {"count": 15, "first": draw.random.randrange(1_000)}


def _recall(draw: Draw, _: World) -> Args:
    return {"count": draw.pick(1, 1, 3, 30), "skip": draw.pick(1, 1, 2, 5), "oldest": draw.random.random() < 0.5}


def _cancel(draw: Draw, _: World) -> Args:
    return {"count": draw.pick(1, 3, 30), "skip": draw.pick(1, 2)}


def _misuse(draw: Draw, _: World) -> Args:
    what, bad = draw.random.choice(TIMEOUTS_THAT_ARE_NONE if draw.theme == "dressed" else BAD)
    return {"topic": draw.topic(), "what": what, "bad": bad}


def _many(draw: Draw, _: World) -> Args:
    random = draw.random
    args: Args = {
        "topic": draw.topic(),
        "size": min(size_of(draw), 20_000),
        "count": draw.pick(1, 5, 40, 150, 400),
        "source": draw.pick("list", "generator", "generator", "async"),
    }
    if args["size"] * args["count"] > 600_000:
        args["count"] = max(1, 600_000 // args["size"])
    if args["source"] == "async":
        args["pause"] = draw.pick(None, 0.0, 0.001, 0.1)
    if random.random() < 0.25:
        args["raise_at"] = random.randrange(args["count"])
    if random.random() < 0.3:
        args["timeout"] = draw.pick(0.01, 0.3, 1.0)
    if random.random() < 0.3:
        args["after"] = after_of(draw)
    if random.random() < 0.25:
        args["partitions"] = [draw.partition() for _ in range(3)]
        if random.random() < 0.2 and draw.theme != "calm":
            args["partitions"].append(40)
    if random.random() < 0.15:
        args["timeouts"] = draw.pick([None, 0.2], [0.01, 5.0, None])
    if random.random() < 0.1:
        args["bad_every"] = 4
    return args


def _many_endless(draw: Draw, _: World) -> Args:
    return {"topic": draw.topic(), "size": 100, "count": 1_300, "source": "generator"}


def _columns(draw: Draw, _: World) -> Args:
    args: Args = {"topic": draw.topic(), "size": draw.pick(10, 100, 400), "count": draw.pick(1, 7, 60, 300)}
    if draw.random.random() < 0.3:
        args["partitions"] = [draw.partition() for _ in range(3)]
    if draw.random.random() < 0.3:
        args["after"] = after_of(draw)
    return args


def _flush(draw: Draw, _: World) -> Args:
    return {"after": draw.pick(None, None, None, after_of(draw))}


def _ready(draw: Draw, _: World) -> Args:
    return {"after": draw.pick(None, after_of(draw))}


def _partitions_for(draw: Draw, _: World) -> Args:
    return {
        "topic": draw.topic(),
        "timeout": draw.pick(None, 0.0, 0.5, 5.0),
        "after": draw.pick(None, None, after_of(draw)),
    }


def _ask_elsewhere(draw: Draw, _: World) -> Args:
    return {"topic": f"elsewhere-{draw.random.randrange(100)}", "timeout": draw.pick(0.1, 1.0)}


def _ping(draw: Draw, _: World) -> Args:
    return {"timeout": draw.pick(10.0, 0.001, 1.0)}


def _wrong_ping(draw: Draw, _: World) -> Args:
    return {"timeout": draw.pick(None, 0, 0)}


def _close(draw: Draw, _: World) -> Args:
    args: Args = {"timeout": draw.pick(0, 0.2, 5.0, 30.0), "after": draw.pick(None, None, after_of(draw))}
    if draw.random.random() < (0.3 if draw.theme == "lives" else 0.15):
        args["timeout"] = draw.pick(None, "5", 0)
    if draw.random.random() < 0.4:
        args["twice"] = True
    if draw.random.random() < 0.4:
        args["again"] = [draw.pick(0.0, 0.01, 0.3), draw.pick(0, 0.2, 30.0)]
    return args


def _restart(draw: Draw, _: World) -> Args:
    return {"timeout": draw.pick(0, 0.2, 5.0, 30.0)}


def _start(draw: Draw, _: World) -> Args:
    return {"wait": draw.pick(True, True, False), "after": draw.pick(None, None, after_of(draw))}


def _sabotage(draw: Draw, _: World) -> Args:
    return {"which": draw.pick("all", "metadata", "serialize", "all")}


OPERATIONS: dict[str, tuple[str, Maker]] = {
    "drop": ("send", _drop),
    "release": ("send", _release),
    "await": ("send", _await),
    "wait_for": ("send", _wait_for),
    "poll": ("send", _poll),
    "gather": ("send", _gather),
    "callback": ("send", _callback),
    "cancel_handle": ("send", _cancel_handle),
    "try_send": ("send", _try_send),
    "timeouts": ("send", _timeouts),
    "timeouts_distinct": ("send", _timeouts_distinct),
    "burst": ("send", _burst),
    "spread": ("send", _spread),
    "trickle": ("send", _trickle),
    "fill": ("send", _fill),
    "wrong_first": ("send", _wrong_first),
    "press": ("send", _press),
    "missing_partition": ("send", _missing_partition),
    "nowhere": ("send", _nowhere),
    "tenants": ("tenants", _tenants),
    "recall": ("recall", _recall),
    "cancel": ("cancel", _cancel),
    "misuse": ("misuse", _misuse),
    "many": ("many", _many),
    "many_endless": ("many", _many_endless),
    "columns": ("columns", _columns),
    "flush": ("flush", _flush),
    "ready": ("ready", _ready),
    "partitions_for": ("partitions_for", _partitions_for),
    "ask_elsewhere": ("partitions_for", _ask_elsewhere),
    "ping": ("ping", _ping),
    "wrong_ping": ("ping", _wrong_ping),
    "close": ("close", _close),
    "restart": ("restart", _restart),
    "start": ("start", _start),
    "sabotage": ("sabotage", _sabotage),
}
"""The features of operations: a seed has some of them."""
