"""From a seed to a world: first a part of all features is drawn, then only from these, so that rare ones meet."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Any

from .draw_faults import FAULTS, draw_fault
from .draw_operations import OPERATIONS, draw_operation
from .draw_process import draw_process, is_process
from .themes import EXPIRING, THEMES, WILD, Theme
from .themes_narrow import draw_narrow, draw_transactional, is_narrow, is_transactional
from .themes_narrow import theme_of as narrow_theme_of
from .world_values import Args, Step, World

OPTIONS = (
    "small_buffer", "long_linger", "small_batches", "compression", "small_waiting", "large_waiting", "small_block",
    "not_idempotent", "acks_1", "acks_0", "few_retries", "short_delivery", "short_requests", "young_metadata",
    "partitioner_option", "one_in_flight", "auto_create", "large_limits", "errors_are_heard",
)  # fmt: skip
HOOKS = ("serializer", "partitioner", "interceptor", "reaction")
WEATHER = ("lockstep", "turn_cost", "far")
PLACES = (
    "late_topic",
    "log_append_time",
    "small_messages",
    "old_brokers",
    "one_broker",
    "validate",
    "many_partitions",
    "two_topics",
)
LIVES = ("two_producers", "slow_start", "sudden_end", "heal_late", "closed_twice", "left", "second_loop")

LENGTHS = (5, 5, 5, 20, 20, 60)
"""How many operations: small worlds find more per second (measured: docs of this folder's __main__)."""


class Draw:
    """The random source and the features of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"swarm {seed}")
        random = self.random
        self.theme = random.choice(list(THEMES)) if random.random() < 0.8 else ""
        theme = THEMES[self.theme] if self.theme else Theme(others=random.choice([0.1, 0.2, 0.35, 0.5]))
        self.paces, self.troubles = theme.paces, theme.troubles
        every = (*OPTIONS, *HOOKS, *WEATHER, *PLACES, *LIVES)
        self.features = {name for name in every if self._has(name, theme, theme.features)}
        is_wild = random.random() < 0.25
        operations = [name for name in OPERATIONS if is_wild or name not in WILD or name in theme.operations]
        self.operations = [name for name in operations if self._has(name, theme, theme.operations)]
        self.operations += [name for name in theme.operations if random.random() < 0.5]
        if not self.operations:
            self.operations = [random.choice(theme.operations or ("drop", "await"))]
        if theme.is_calm or (not self.theme and random.random() < 0.25):
            self.faults = []
        else:
            self.faults = [name for name in FAULTS if self._has(name, theme, theme.faults)]
            self.faults += [name for name in theme.faults if random.random() < 0.5]
        self.topics: list[Args] = []
        self.nodes = 0
        self.options: Args = {}
        self.weather: Args = {}

    def _has(self, name: str, theme: Theme, meant: tuple[str, ...]) -> bool:
        """Return whether the feature is drawn; one that the theme is meant to have, with a high chance."""
        draw = self.random.random()
        return name not in theme.without and draw < (0.7 if name in meant else theme.others)

    def has(self, feature: str) -> bool:
        """Return whether this seed has the feature."""
        return feature in self.features

    def pick(self, *choices: Any) -> Any:
        """Draw one of the choices."""
        return self.random.choice(choices)

    def topic(self) -> str:
        """Return one of the world's topics, or a name that no topic has."""
        if self.random.random() < 0.04 and self.theme != "calm":
            return "nowhere"
        name: str = self.random.choice(self.topics)["name"]
        return name

    def partition(self) -> int:
        """Return a partition of the largest topic."""
        return self.random.randrange(max(topic["partitions"] for topic in self.topics))


def theme_of(seed: int) -> str:
    """Return the theme of a seed, narrow or wide; an empty text if it has none."""
    if is_process(seed):
        return "process"
    if is_transactional(seed):
        return "transactions"
    return narrow_theme_of(seed) if is_narrow(seed) else Draw(seed).theme


def draw_world(seed: int, operations: int | None = None) -> World:
    """Draw the world of this seed. `operations`: their number, instead of a drawn one; a narrow theme ignores it."""
    if is_process(seed):
        world = draw_process(seed, [partial(draw_wide, seed, operations), partial(draw_narrow, seed),
                                    partial(draw_transactional, seed)])  # fmt: skip
    else:
        world = _drawn(seed, operations)
    # Whether its producers are looked at before their last close, or started again behind it: else none would close at work.
    world.end["alive"] = Random(f"alive {seed}").random() < 0.5
    return world


def _drawn(seed: int, operations: int | None) -> World:
    if is_transactional(seed):
        return draw_transactional(seed)
    if is_narrow(seed):
        return draw_narrow(seed)
    return draw_wide(seed, operations)


def draw_wide(seed: int, operations: int | None = None) -> World:
    """Draw a world of all features, around a wide theme as a rule."""
    draw = Draw(seed)
    random = draw.random
    world = World(seed, shuffled=random.random() < 0.75)
    _draw_place(draw, world)
    world.options = draw.options = _options(draw)
    world.hooks = _hooks(draw)
    world.weather = draw.weather = _weather(draw)
    world.producers = 2 if draw.has("two_producers") else 1
    count = random.choice(LENGTHS) if operations is None else operations
    pace_s = random.choice(draw.paces)
    at = _start(draw, world)
    for _ in range(count):
        world.operations.append(draw_operation(draw, world, at))
        if random.random() < 0.6:
            at = round(at + random.choice([0.0, random.uniform(0.0, pace_s), random.uniform(0.0, 4 * pace_s)]), 6)
    if draw.faults:
        for _ in range(random.choice(draw.troubles)):
            when = random.choice(world.operations).at if random.random() < 0.5 else random.uniform(0.0, at)
            if draw.theme in EXPIRING and random.random() < 0.3:
                # Something is away when the first records come.
                when = min((step.at for step in world.operations if step.kind != "start"), default=0.0)
            world.faults.append(draw_fault(draw, round(when, 6)))
    world.end = _end(draw, world)
    return world


def _draw_place(draw: Draw, world: World) -> None:
    random = draw.random
    draw.nodes = 1 if draw.has("one_broker") else random.choice([1, 2, 3, 3, 5])
    world.cluster = {
        "brokers": draw.nodes,
        "auto_create_topics": draw.has("auto_create"),
        "validate_records": draw.has("validate") or random.random() < 0.3,
    }
    if draw.has("old_brokers"):
        world.cluster["kafka_version"] = random.choice(["2.1", "2.8", "3.9"])
    for name in ("a", "b", "c")[: random.choice([2, 3]) if draw.has("two_topics") else 1]:
        partitions = random.choice([8, 20]) if draw.has("many_partitions") else random.choice([1, 1, 2, 3])
        config: Args = {}
        if draw.has("log_append_time") and random.random() < 0.7:
            config["message_timestamp_type"] = "LogAppendTime"
        if draw.has("small_messages") and random.random() < 0.7:
            config["max_message_bytes"] = random.choice([300, 700, 2_000])
        topic: Args = {"name": name, "partitions": partitions, "config": config}
        if draw.has("late_topic") and random.random() < 0.6:
            topic["late"] = True
        world.topics.append(topic)
        draw.topics.append(topic)
    for topic in world.topics:
        if topic.get("late") and random.random() < 0.8:
            args = {"topic": topic["name"], "partitions": topic["partitions"]}
            world.faults.append(Step(round(random.choice([0.01, 0.1, 1.0, 5.0]) * random.random(), 6), "create", args))


def _options(draw: Draw) -> Args:
    random, has = draw.random, draw.has
    buffer = (
        int(3_000 * 10 ** random.uniform(0.0, 1.0))
        if has("small_buffer")
        else random.choice([100_000, 2_000_000, 32_000_000])
    )
    largest = min(buffer, random.choice([3_000, 20_000, 1_000_000]) if not has("large_limits") else buffer)
    largest = max(largest, 200)
    batch = (
        random.choice([0, 100, 300, 1_000])
        if has("small_batches")
        else random.choice([65_536, 1_000_000] if draw.theme == "press" else [1_000, 16_384, 65_536, 1_000_000])
    )
    request_ms = random.choice([100, 500]) if has("short_requests") else random.choice([1_000, 5_000, 30_000])
    linger_ms = random.choice([300, 3_000, 20_000]) if has("long_linger") else random.choice([0, 0, 1, 5, 50])
    least_ms = request_ms + linger_ms
    delivery_ms = (
        least_ms + random.choice([0, 0, 500, 2_000])
        if has("short_delivery")
        else max(least_ms, random.choice([10_000, 120_000]))
    )
    options: Args = {
        "buffer_memory": buffer,
        "max_request_size": largest,
        "batch_size": min(batch, largest),
        "linger_ms": linger_ms,
        "request_timeout_ms": request_ms,
        "delivery_timeout_ms": delivery_ms,
        "max_block_ms": random.choice([0, 50, 500, 3_000]) if has("small_block") else random.choice([10_000, 60_000]),
        "max_in_flight_requests_per_connection": 1 if has("one_in_flight") else random.choice([1, 2, 5]),
        "retry_backoff_ms": random.choice([1, 20, 100]),
        "retry_backoff_max_ms": random.choice([100, 200, 1_000]),
        "reconnect_backoff_ms": random.choice([1, 10, 50]),
        "reconnect_backoff_max_ms": random.choice([50, 200, 1_000]),
        "metadata_max_age_ms": random.choice([200, 500, 2_000]) if has("young_metadata") else 300_000,
        "allow_auto_create_topics": has("auto_create") and random.random() < 0.7,
    }
    if "tenants" in draw.operations:
        options["metadata_max_idle_ms"] = 5_000
        options["max_block_ms"] = min(options["max_block_ms"], 3_000)
    if has("small_waiting"):
        options["max_waiting_bytes"] = random.choice([0, 500, 5_000, 1_000_000])
    if has("large_waiting"):
        options["max_waiting_bytes"] = 10_000_000
    if has("compression"):
        options["compression_type"] = random.choice(["gzip", "snappy", "lz4", "zstd"])
        if options["compression_type"] != "snappy" and random.random() < 0.5:
            options["compression_level"] = random.choice([1, 3])
    if has("partitioner_option"):
        names = [
            "sticky",
            "round_robin",
            "random",
            "murmur2",
            "murmur2_random",
            "crc32",
            "consistent",
            "fnv1a",
            "uniform_sticky",
        ]
        options["partitioner"] = random.choice(names)
        if options["partitioner"] == "uniform_sticky":
            options["partitioner_adaptive_partitioning_enable"] = random.random() < 0.5
            options["partitioner_availability_timeout_ms"] = random.choice([0, 100, 1_000])
    if has("acks_0"):
        options["acks"] = 0
    elif has("acks_1"):
        options["acks"] = 1
    elif has("not_idempotent"):
        options["enable_idempotence"] = False
    if has("few_retries"):
        options["retries"] = (
            random.choice([0, 1, 4])
            if ("acks" in options or "enable_idempotence" in options)
            else random.choice([1, 4])
        )
    return options


def _hooks(draw: Draw) -> Args:
    random, hooks = draw.random, Args()
    if draw.has("serializer"):
        plan: Args = {
            "mode": random.choice(["sync", "async", "async", "mixed"]),
            "seconds": random.choice([0.0, 0.0, 0.01, 0.5]),
        }
        for name in ("raise_every", "hang_every", "cancel_every", "raise_late_every"):
            if random.random() < 0.25:
                plan[name] = random.choice([3, 7])
        hooks["serializer"] = plan
    if draw.has("partitioner"):
        plan = {}
        for name in ("raise_every", "stray_every", "reenter_every"):
            if random.random() < 0.4:
                plan[name] = random.choice([2, 5, 9])
        hooks["partitioner"] = plan
    if draw.has("interceptor"):
        plan = {"close": random.choice(["none", "slow", "raise"])}
        if random.random() < 0.3:
            plan["raise_every"] = 3
        if random.random() < 0.3:
            plan["raise_late_every"] = 3
        hooks["interceptor"] = plan
    if draw.has("errors_are_heard") or random.random() < 0.7:
        action = random.choice(["send", "raise", "recall", "close", "cancel"]) if draw.has("reaction") else None
        hooks["on_delivery_error"] = {"action": action, "every": random.choice([1, 3]) if action else None}
    return hooks


def _weather(draw: Draw) -> Args:
    weather: Args = {}
    if draw.has("lockstep"):
        latency_s = draw.pick(0.0, 0.0005, 0.001)
        weather["latency_s"] = [latency_s, latency_s]
    elif draw.has("far"):
        weather["latency_s"] = [0.02, draw.pick(0.02, 0.1)]
    if draw.has("turn_cost"):
        weather["turn_cost_s"] = draw.pick(1e-6, 1e-5, 1e-4)
    return weather


def _start(draw: Draw, world: World) -> float:
    """Start the first producers; return when the next operation may begin."""
    random = draw.random
    for producer in range(world.producers):
        args: Args = {"producer": producer}
        if draw.has("slow_start"):
            args["wait"] = random.random() < 0.5
            if random.random() < 0.3:
                args["after"] = random.choice([0.0, 0.001, 0.01])  # cancelled, and tried again
                world.operations.append(Step(0.0, "start", args))
                args = {"producer": producer}
        world.operations.append(
            Step(0.05 if "after" in (world.operations or [Step(0, "")])[-1].args else 0.0, "start", args)
        )
        if draw.has("slow_start") and random.random() < 0.2:
            close = {"producer": producer, "timeout": random.choice([0, 1])}
            world.operations.append(Step(random.choice([0.0, 0.001, 0.003]), "close", close, hops=random.randrange(3)))
    return random.choice([0.0, 0.02, 0.3, 1.0])


def _end(draw: Draw, world: World) -> Args:
    random = draw.random
    delivery_s = world.options["delivery_timeout_ms"] / 1000
    end: Args = {
        "settle_s": random.choice([0.0, 0.0, 0.05, 2.0, min(delivery_s + 1.0, 40.0)]),
        "flush": random.random() < 0.5,
        "close_timeout": random.choice([0.0, 0.5]) if draw.has("sudden_end") else random.choice([30.0, 300.0]),
        "how": "twice" if draw.has("closed_twice") else "left" if draw.has("left") else "close",
    }
    if "tenants" in draw.operations and random.random() < 0.7:
        end["settle_s"] = 40.0
    if draw.theme in EXPIRING and random.random() < 0.7:
        end["settle_s"] = min(delivery_s + 1.0, 40.0)  # all is well again at the end: before, records are to expire
    if draw.has("second_loop"):
        end["second_loop"] = True
    if draw.has("heal_late"):
        end["heal"] = False
        end["heal_while_closing"] = random.choice([0.0, 0.01, 0.3, 3.0])
    return end
