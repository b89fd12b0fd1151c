"""What is measured: each item is a list of jobs that belong into one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

AIOKPROD, CALLBACK, ASYNCIO, AIOKAFKA, KAFKA_PYTHON = (
    "aiokprod_client", "confluent_callback", "confluent_asyncio", "aiokafka_client", "kafka_python",
)  # fmt: skip
NAMES = {
    AIOKPROD: "aiokprod",
    CALLBACK: "confluent-kafka, callback",
    ASYNCIO: "confluent-kafka, AIOProducer",
    AIOKAFKA: "aiokafka",
    KAFKA_PYTHON: "kafka-python",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a table."""

    client: str
    way: str
    count: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""

    @property
    def name(self) -> str:
        return NAMES[self.client] + (f", {self.title}" if self.title else "")


@dataclass(frozen=True, slots=True)
class Item:
    """One table. `common` goes into every job; the first entry is ours."""

    title: str
    entries: tuple[Entry, ...]
    common: Mapping[str, Any]
    partitions: int = 6
    waits: bool = False
    """Latencies are what it is about."""


def firehose(size: int, scale: float = 1.0, **common: Any) -> Item:
    """As many records as a client can send; slower clients get fewer, rates and costs are per record."""

    def count(records: int) -> int:
        return max(1_000, int(records * scale))

    entries = [
        Entry(AIOKPROD, "firehose", count(1_000_000), title="send"),
        Entry(CALLBACK, "firehose", count(1_000_000)),
        Entry(AIOKAFKA, "firehose", count(200_000)),
        Entry(KAFKA_PYTHON, "firehose", count(100_000)),
    ]
    if not common.get("headers"):  # AIOProducer has none, send_many takes values
        entries.insert(1, Entry(AIOKPROD, "send_many", count(1_000_000), title="send_many"))
        entries.insert(3, Entry(ASYNCIO, "firehose", count(200_000)))
    what = f"{size} B values" + (f", {common['keys']:,} keys" if common.get("keys") else ", no keys")
    what += f", {common['headers']} headers" if common.get("headers") else ""
    what += f", {common['compression']}" if common.get("compression") else ""
    return Item(f"Firehose: {what}, 6 partitions, linger 5 ms", tuple(entries), {"size": size, **common})


ITEMS: dict[str, Callable[[], list[Item]]] = {
    "firehose": lambda: [firehose(100)],
    "sizes": lambda: [firehose(10), firehose(1_000, 0.3), firehose(10_000, 0.05), firehose(100_000, 0.01)],
    "codecs": lambda: [firehose(100, 0.3, compression=codec) for codec in ("gzip", "snappy", "lz4", "zstd")],
    "keyed": lambda: [firehose(100, keys=100_000, headers=2)],
    "one_at_a_time": lambda: [
        Item(
            "`await send`, one at a time",
            (
                Entry(AIOKPROD, "one_at_a_time", 3_000, title="its defaults"),
                Entry(AIOKAFKA, "one_at_a_time", 3_000, {"linger_ms": 0}, "linger 0"),
                Entry(ASYNCIO, "one_at_a_time", 3_000, {"linger.ms": 0}, "linger 0"),
            ),
            {},
            waits=True,
        )
    ],
    "web": lambda: [
        Item(
            "1,000 tasks, each awaiting its send",
            (
                Entry(AIOKPROD, "tasks", 200_000),
                Entry(AIOKAFKA, "tasks", 30_000, {"linger_ms": 0}, "linger 0"),
                Entry(ASYNCIO, "tasks", 30_000, {"linger.ms": 0}, "linger 0"),
            ),
            {"tasks": 1_000},
            waits=True,
        ),
        Item(
            "20,000 tasks, one send each, one partition",
            (
                Entry(AIOKPROD, "tasks", 20_000),
                Entry(AIOKPROD, "gathered", 20_000, title="gather over the deliveries"),
                Entry(AIOKAFKA, "tasks", 20_000, {"linger_ms": 0}, "linger 0"),
                Entry(ASYNCIO, "tasks", 20_000, {"linger.ms": 0}, "linger 0"),
            ),
            {"tasks": 20_000},
            partitions=1,
            waits=True,
        ),
    ],
}
