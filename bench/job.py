"""One run of one client, and what it measured: values that travel as JSON between `run.py` and `child.py`."""

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
    """The work of a client.

    Attributes:
        client: a module of `bench/peers`.
        way: how the client sends: a key of its module's `WAYS`.
        count: number of records, of `size` bytes each.
        keys: number of distinct keys; 0: records have no key.
        headers: headers on each record.
        linger_ms: None leaves the client its default.
        tasks: tasks that await sends at the same time, where the way has tasks.
        topics: if more than one, records go round robin over `TOPIC-0`, `TOPIC-1`, ...
        per_transaction: records of a transaction, where the way has transactions; 0: by time.
        transaction_ms: duration of a transaction at full load, if they are by time.
        seconds: duration of an open loop; its rate is a share of the client's maximum, which is measured first.
        core: the processor the client stays on; None: any.
        settings: options of the client besides those that every client gets.
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
    per_transaction: int = 0
    transaction_ms: int = 0
    seconds: float = 4.0
    core: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))

    def value(self) -> bytes:
        """Return bytes that a codec cannot shrink to almost nothing."""
        return Random(self.size).randbytes(self.size).hex().encode()[: self.size]

    def topic_list(self) -> list[str]:
        """Return the topics, in the order they are used."""
        return [self.topic] if self.topics == 1 else [f"{self.topic}-{number}" for number in range(self.topics)]

    def key_list(self) -> list[bytes]:
        """Return the distinct keys, in the order they are used."""
        return [b"%0*d" % (KEY_BYTES, number) for number in range(self.keys)]

    def header_list(self) -> list[tuple[str, bytes]]:
        return [(f"header-{number}", b"0123456789abcdef") for number in range(self.headers)]

    def transaction_sizes(self) -> Iterator[int]:
        """Yield the number of records of each transaction."""
        left = self.count
        while left > 0:
            yield min(left, self.per_transaction)
            left -= self.per_transaction

    def rows(self) -> Iterator[Row]:
        """Yield the records; the keys are used in turn."""
        keys = cycle(self.key_list()) if self.keys else repeat(None)
        return zip(repeat(self.value(), self.count), keys, repeat(self.header_list() or None), strict=False)


@dataclass(slots=True)
class Measured:
    """The result. CPU is that of all threads of the process; times of single records are in milliseconds."""

    seconds: float
    cpu_s: float
    records: int
    p50_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    worst_ms: float | None = None
    stall_ms: float | None = None
    """The longest time in which the event loop did not run a callback."""
    offered: float | None = None
    """The target rate of an open loop, in records per second."""
    broker_cpu_s: float = 0.0
    proxy_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Return records per second."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """Return microseconds of the client's processor time per record."""
        return self.cpu_s / self.records * 1e6


def quantile_ms(ordered: Sequence[float], share: float) -> float:
    """Return percentiles of times in seconds, which must be sorted."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3
