"""Worlds with faults of the process: any other world, with exceptions, finalizers, threads and log handlers in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from .world_values import Args, Step, World

KINDS_OF_HOOKS = ("memory", "recursion", "outcome", "interrupt", "exit")
BETWEEN_LINES = ("interrupt", "memory", "recursion")
STEPS = (
    "BrokerFlusher._answered",
    "BrokerFlusher._answered",
    "BrokerFlusher._lost",
    "BrokerFlusher._pump",
    "PartitionQueue.look",
)
"""Functions that deal with what has happened: half done, they would leave the truth behind."""
OF_A_DELIVERY = ("callback", "recall", "cancel")


def is_process(seed: int) -> bool:
    """Return whether the seed has faults of the process: one in twenty."""
    return seed % 20 == 6


def draw_process(seed: int, others: Sequence[Callable[[], World]]) -> World:
    """Draw a world, and faults of the process into it. `others` draw a wide world, a narrow one, one of transactions."""
    random = Random(f"process {seed}")
    world = random.choices(others, weights=[5, 4, 2])[0]()
    world.end.pop("second_loop", None)  # its loop ends with whatever is in the middle of it
    features = [name for name in FEATURES if random.random() < 0.35] or [random.choice(list(FEATURES))]
    for name in features:
        FEATURES[name](random, world)
    return world


def _moment(random: Random, world: World) -> float:
    """Draw a time at which something else happens, or any."""
    if world.operations and random.random() < 0.6:
        return random.choice(world.operations).at
    return round(random.uniform(0.0, world.length_s), 6)


def _add(random: Random, world: World, kind: str, args: Args) -> None:
    args["producer"] = random.randrange(world.producers)
    step = Step(_moment(random, world), kind, args, hops=random.choice([0, 0, 1, 2, 5]))
    world.operations.insert(random.randint(0, len(world.operations)), step)  # of one moment, they come in this order


def _record(random: Random, world: World) -> Args:
    return {
        "topic": random.choice(world.topics)["name"],
        "size": random.choice([1, 100, 400]),
        "call": random.choice(["send", "send", "try_send"]),
        "partition": random.choice([None, None, 0]),
        "key": random.choice([None, None, 1]),
        "timeout": random.choice([None, None, None, 0.2, 5.0]),
    }


def _strikes(random: Random, world: World) -> None:
    for _ in range(random.choice([1, 2, 4, 8])):
        args = _record(random, world) | {"at": random.randrange(200), "kind": random.choice(BETWEEN_LINES)}
        if random.random() < 0.2:
            args |= {"call": random.choice(OF_A_DELIVERY), "at": random.randrange(40)}
        _add(random, world, "strike", args)


def _deep(random: Random, world: World) -> None:
    for _ in range(random.choice([2, 4, 10])):
        _add(random, world, "deep", _record(random, world) | {"frames": random.randrange(1, 40)})


def _point(random: Random) -> int:
    """Draw the number of a point: near ones as often as far ones."""
    return int(10 ** random.uniform(0.0, 3.7))


def _interrupts(random: Random, world: World) -> None:
    where = random.choice(["loop", "loop", "bulk", "step", "step", "step"])
    args = {"act": "raise", "kind": random.choice(BETWEEN_LINES), "where": where, "at": _point(random)}
    if where == "step":
        args |= {"inside": random.choice(STEPS), "at": random.randrange(250)}
    _add(random, world, "interrupt", args)


def _finalizers(random: Random, world: World) -> None:
    for _ in range(random.choice([1, 3, 6])):
        _add(
            random,
            world,
            "interrupt",
            {"act": random.choice(["finalizer", "finalizer", "garbage"]), "at": _point(random)},
        )


def _threads(random: Random, world: World) -> None:
    if world.is_transactional:
        return  # which transaction is open when the loop takes the record, its thread does not know
    for _ in range(random.choice([1, 3])):
        args: dict[str, Any] = {"topic": random.choice(world.topics)["name"], "count": random.choice([1, 3, 10])}
        args["cancelled"] = random.choice([0, 0, 1])
        _add(random, world, "threads", args)
    closes = [step for step in world.operations if step.kind in ("close", "restart")]
    for step in closes[:2]:  # while a producer closes
        args = {"topic": world.topics[0]["name"], "count": 3, "producer": step.args.get("producer", 0)}
        world.operations.append(Step(step.at, "threads", args, hops=step.hops + random.choice([0, 1, 2, 3])))
    if random.random() < 0.5:
        _add(random, world, "interrupt", {"act": "thread", "at": _point(random)})


def _hooks(random: Random, world: World) -> None:
    """Let the hooks that there are raise something worse, and add some that raise."""
    kinds, hooks = KINDS_OF_HOOKS, world.hooks
    name = random.choice(["serializer", "partitioner", "interceptor", "on_delivery_error"])
    if name == "serializer" and "send_columns" not in {step.kind for step in world.operations}:
        mode = random.choice(["sync", "mixed", "async"])
        hooks.setdefault("serializer", {"mode": mode, "seconds": random.choice([0.0, 0.01])})
        hooks["serializer"].setdefault(random.choice(["raise_every", "raise_late_every"]), random.choice([3, 7]))
    elif name == "partitioner" and "partitioner" not in world.options:
        hooks.setdefault("partitioner", {}).setdefault("raise_every", random.choice([2, 5, 9]))
    elif name == "interceptor":
        plan = hooks.setdefault("interceptor", {"close": "none"})
        plan.setdefault(random.choice(["raise_every", "raise_late_every"]), 3)
    else:
        hooks["on_delivery_error"] = {"action": "raise", "every": random.choice([1, 3])}
    for plan in hooks.values():
        if plan is not None and random.random() < 0.7:
            plan["kind"] = random.choice(kinds)
    for step in world.operations:
        if step.kind == "send" and step.args.get("watch") == "callback" and random.random() < 0.5:
            step.args |= {"action": "raise", "kind": random.choice(kinds)}


def _logs(random: Random, world: World) -> None:
    world.hooks["log"] = {
        "level": random.choice(["DEBUG", "INFO", "WARNING"]),
        "raise_every": random.choice([1, 2, 3, 7]),
        "kind": random.choice(["error", "memory", "recursion", "outcome"]),
        "is_filter": random.random() < 0.4,
    }


FEATURES: dict[str, Callable[[Random, World], None]] = {
    "strikes": _strikes,
    "deep": _deep,
    "interrupts": _interrupts,
    "finalizers": _finalizers,
    "threads": _threads,
    "hooks": _hooks,
    "logs": _logs,
}
"""Each world has some of them."""
