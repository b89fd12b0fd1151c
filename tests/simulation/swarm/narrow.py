"""The parts of narrow worlds: a place with plain options, and steps put at moments that are named, not drawn."""

from __future__ import annotations

from random import Random
from typing import Any

from .world_values import Step, World

OPTIONS: dict[str, Any] = {
    "buffer_memory": 2_000_000,
    "max_request_size": 1_000_000,
    "batch_size": 16_384,
    "linger_ms": 0,
    "request_timeout_ms": 1_000,
    "delivery_timeout_ms": 10_000,
    "max_block_ms": 10_000,
    "max_in_flight_requests_per_connection": 5,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 200,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "metadata_max_age_ms": 300_000,
    "allow_auto_create_topics": False,
}


class Narrow:
    """A world that is being made.

    Attributes:
        at: the moment of the next step; `wait` moves it.
    """

    def __init__(self, random: Random, world: World) -> None:
        self.random = random
        self.world = world
        self.at = 0.0
        world.options = dict(OPTIONS)
        world.hooks = {"on_delivery_error": {"action": None, "every": None}}
        world.cluster = {"brokers": 1, "auto_create_topics": False, "validate_records": True}
        world.end = {
            "settle_s": self.pick(0.0, 0.05, 2.0),
            "flush": self.chance(0.5),
            "close_timeout": 30.0,
            "how": "close",
        }

    def pick(self, *choices: Any) -> Any:
        """Draw one of the choices."""
        return self.random.choice(choices)

    def chance(self, share: float) -> bool:
        """Draw True with this probability."""
        return self.random.random() < share

    def between(self, low: float, high: float) -> float:
        """Draw a time, rounded to a microsecond."""
        return round(self.random.uniform(low, high), 6)

    def options(self, **more: Any) -> None:
        """Add options."""
        options = self.world.options
        options |= more
        options["max_request_size"] = min(options["max_request_size"], options["buffer_memory"])

    def topic(self, partitions: int = 1, name: str = "a", **more: Any) -> None:
        """Add a topic that exists from the beginning, or is `late`."""
        self.world.topics.append({"name": name, "partitions": partitions, "config": {}, **more})

    def brokers(self, count: int, version: str | None = None) -> None:
        """Set the number of brokers, and their version."""
        self.world.cluster["brokers"] = count
        if version is not None:
            self.world.cluster["kafka_version"] = version

    def lockstep(self) -> float:
        """Give both directions the same latency; return it."""
        latency_s: float = self.pick(0.0005, 0.001, 0.002)
        self.world.weather["latency_s"] = [latency_s, latency_s]
        return latency_s

    def wait(self, seconds: float) -> None:
        """Let the next step come later."""
        self.at = round(self.at + seconds, 6)

    def start(self) -> None:
        """Start the producer; the next step comes when it is ready."""
        self.do("start", producer=0)
        self.wait(0.3)

    def do(self, kind: str, hops: int = 0, **args: Any) -> None:
        """Add an operation."""
        self.world.operations.append(Step(self.at, kind, args, hops=hops))

    def send(self, size: int = 100, count: int = 1, watch: str = "drop", hops: int = 0, **args: Any) -> None:
        """Send records to the first topic, unless another one is named."""
        self.do("send", hops, **{"topic": "a", "size": size, "count": count, "watch": watch, **args})

    def many(self, count: int, size: int = 100, source: str = "generator", hops: int = 0, **args: Any) -> None:
        """Add a send_many."""
        self.do("many", hops, **{"topic": "a", "size": size, "count": count, "source": source, **args})

    def fault(self, kind: str, hops: int = 0, on: str = "", after: float = 0.0, **args: Any) -> None:
        """Add a fault, now or a while after."""
        self.world.faults.append(Step(round(self.at + after, 6), kind, args, hops=hops, on=on))
