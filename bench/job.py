"""One run of one client, and what it measured. Values that travel as JSON between `run.py` and `child.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import cycle, repeat
from random import Random
from typing import Any

KEY_BYTES = 12
Row = tuple[bytes, bytes | None, list[tuple[str, bytes]] | None]
"""Value, key and headers of a record."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a client is to do.

    Attributes:
        client: a module of `bench/peers`.
        way: how it sends; each client tells its own (`WAYS`).
        count: records; of `size` bytes each.
        keys: so many distinct keys; 0: none.
        headers: so many headers on each record.
        linger_ms: None leaves the client its default.
        tasks: how many wait for their sends at the same time, where the way has tasks.
        topics: more than one: records go round over so many topics, `TOPIC-0` and up.
        seconds: how long an open loop runs; its rate is a share of what the client can do, found out first.
        core: the processor the client stays on; None: any.
        settings: options of the client beside those every client gets.
    """

    client: str
    way: str
    servers: str
    topic: str
    count: int
    size: int = 100
    keys: int = 0
    headers: int = 0
    compression: str = "none"
    linger_ms: int | None = 5
    tasks: int = 1
    topics: int = 1
    seconds: float = 4.0
    core: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))

    def value(self) -> bytes:
        """Bytes that do not compress to nothing."""
        return Random(self.size).randbytes(self.size).hex().encode()[: self.size]

    def topic_list(self) -> list[str]:
        """The topics, in the order they are used."""
        return [self.topic] if self.topics == 1 else [f"{self.topic}-{number}" for number in range(self.topics)]

    def key_list(self) -> list[bytes]:
        """The distinct keys, in the order they are used."""
        return [b"%0*d" % (KEY_BYTES, number) for number in range(self.keys)]

    def header_list(self) -> list[tuple[str, bytes]]:
        return [(f"header-{number}", b"0123456789abcdef") for number in range(self.headers)]

    def rows(self) -> Iterator[Row]:
        """The records; the keys go round."""
        keys = cycle(self.key_list()) if self.keys else repeat(None)
        return zip(repeat(self.value(), self.count), keys, repeat(self.header_list() or None), strict=False)


@dataclass(slots=True)
class Measured:
    """What came of it. CPU is that of the whole process, all its threads; times of single records in milliseconds."""

    seconds: float
    cpu_s: float
    records: int
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    worst_ms: float | None = None
    stall_ms: float | None = None
    """The longest time in which the event loop did not turn."""
    offered: float | None = None
    """Records per second that an open loop was to send."""
    broker_cpu_s: float = 0.0
    proxy_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of the client's processor per record."""
        return self.cpu_s / self.records * 1e6


def quantile_ms(ordered: Sequence[float], share: float) -> float:
    """Of times in seconds, in order."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3
