"""The measurements: each item is a list of tables, each table a list of jobs that belong together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

AIOKPROD, OUTCOMES, CALLBACK, ASYNCIO, AIOKAFKA, KAFKA_PYTHON, JAVA, BARE = (
    "aiokprod_client", "aiokprod_outcomes", "confluent_callback", "confluent_asyncio", "aiokafka_client", "kafka_python",
    "java_producer", "bare_asyncio",
)  # fmt: skip
NAMES = {
    AIOKPROD: "aiokprod",
    OUTCOMES: "aiokprod",
    CALLBACK: "confluent-kafka",
    ASYNCIO: "confluent-kafka, AIOProducer",
    AIOKAFKA: "aiokafka",
    KAFKA_PYTHON: "kafka-python",
    JAVA: "Java, ProducerPerformance",
    BARE: "asyncio alone",
}
TRANSACTIONAL_ID = "bench"
COMPILED, PURE = "compiled", "pure"
FAST = (
    "not_read",
    "awaited_by_window",
    "awaited_after_flush",
    "result_after_flush",
    "exception_after_flush",
    "called_back",
)
"""Ways of `outcomes` that get a million records."""
FORMS = (COMPILED, PURE)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a table. `form` is set for aiokprod only: compiled or pure."""

    client: str
    way: str
    count: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    form: str = ""
    own: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its job that differ from the table's."""

    @property
    def name(self) -> str:
        return ", ".join(part for part in (NAMES[self.client], self.form, self.title) if part)


@dataclass(frozen=True, slots=True)
class Item:
    """One table. `common` goes into every job; the first two entries are ours: compiled, and pure."""

    title: str
    entries: tuple[Entry, ...]
    common: Mapping[str, Any]
    partitions: int = 6
    brokers: int = 1
    round_trip_ms: float = 0.0
    rounds: int = 3
    kind: str = "rates"
    """The columns: `rates`, `outcomes` (rates, and ways beside the peer's same way), `waits` (latencies), `growth` (one client,
    from few to many), `commits` (of transactions)."""
    transaction_version: int | None = None
    """The finalized feature of the brokers; None: that of a new cluster."""


def ours(way: str, count: int, title: str = "", settings: Mapping[str, Any] | None = None) -> list[Entry]:
    """Return an entry for each form."""
    return [Entry(AIOKPROD, way, count, settings or {}, title, form) for form in FORMS]


def firehose(size: int, scale: float = 1.0, rounds: int = 3, **common: Any) -> Item:
    """Return the table of sends at full speed; slower clients get fewer records, as rates and costs are per record."""

    def count(records: int) -> int:
        return max(1_000, int(records * scale))

    is_plain = not any(common.get(each) for each in ("keys", "headers", "compression"))
    entries = [
        *ours("firehose", count(1_000_000), "send"),
        Entry(CALLBACK, "firehose", count(1_000_000), title="no callback"),
        Entry(CALLBACK, "called_back", count(1_000_000), title="callback"),
    ]
    if is_plain:  # send_many takes values only; compressed, the codec decides
        entries += ours("send_many", count(1_000_000), "send_many")
    if not common.get("headers"):  # AIOProducer has none
        entries.append(Entry(ASYNCIO, "firehose", count(150_000)))
    entries += [Entry(AIOKAFKA, "firehose", count(150_000)), Entry(KAFKA_PYTHON, "firehose", count(60_000))]
    if not common.get("keys"):  # Java's tool knows none
        entries.append(Entry(JAVA, "firehose", count(1_000_000)))
    what = f"{size:,} B values" + (f", {common['keys']:,} keys" if common.get("keys") else ", no keys")
    what += f", {common['headers']} headers" if common.get("headers") else ""
    what += f", {common['compression']}" if common.get("compression") else ""
    title = f"Firehose: {what}, 6 partitions, linger 5 ms"
    return Item(title, tuple(entries), {"size": size, **common}, rounds=rounds)


def outcomes(rounds: int = 5) -> Item:
    """Return the table of firehoses by how a program reads the outcomes of its records."""
    ways = {
        "not read": "not_read",
        "each awaited, 20,000 at a time": "awaited_by_window",
        "each awaited after flush": "awaited_after_flush",
        "`result()` after flush": "result_after_flush",
        "`exception()` after flush": "exception_after_flush",
        "a done callback each": "called_back",
        "`gather` of 20,000": "gathered",
        "`as_completed` of 20,000": "as_completed",
        "`wait` of 20,000": "waited",
        "`TaskGroup` of 20,000 `wait()`": "task_group",
    }
    entries: list[Entry] = []
    for title, way in ways.items():
        count = 1_000_000 if way in FAST else 200_000
        entries += [
            Entry(OUTCOMES, way, count, title=title, form=COMPILED),
            Entry(OUTCOMES, way, count // 2, title=title, form=PURE),
        ]
    entries += [
        Entry(CALLBACK, "firehose", 1_000_000, title="no callback"),
        Entry(CALLBACK, "called_back", 1_000_000, title="callback that counts"),
        Entry(CALLBACK, "offset_read", 1_000_000, title="callback that reads the offset"),
        Entry(ASYNCIO, "firehose", 150_000, title="awaited"),
        Entry(AIOKAFKA, "firehose", 150_000, title="not read"),
        Entry(AIOKAFKA, "awaited", 150_000, title="awaited"),
        Entry(KAFKA_PYTHON, "firehose", 60_000, title="not read"),
        Entry(JAVA, "firehose", 1_000_000),
        Entry(BARE, "gathered", 1_000_000, title="`gather` of 20,000 futures"),
    ]
    title = "Outcomes: 100 B values, 6 partitions of a new topic, linger 5 ms"
    return Item(title, tuple(entries), {}, rounds=rounds, kind="outcomes")


def columns(size: int, scale: float = 1.0, **common: Any) -> Item:
    """Return the table of sends from an Arrow table, whose records are no Python objects before."""
    count = int(1_000_000 * scale)
    entries = [
        *ours("columns", count, "send_columns"),
        *ours("columns_plain", count, "send_columns without numpy and pyarrow"),
        *ours("columns_by_row", count // 4, "send_many of to_pylist()"),
        Entry(CALLBACK, "columns", count // 4, title="callback, produce of to_pylist()"),
    ]
    if not common.get("headers"):  # AIOProducer has none
        entries.append(Entry(ASYNCIO, "columns", count // 20, title="produce of to_pylist()"))
    entries += [
        Entry(AIOKAFKA, "columns", count // 20, title="send of to_pylist()"),
        Entry(KAFKA_PYTHON, "columns", count // 30, title="send of to_pylist()"),
    ]
    what = f"{size:,} B values" + (f", {common['keys']:,} keys" if common.get("keys") else ", no keys")
    what += f", {common['headers']} headers" if common.get("headers") else ""
    return Item(f"Columns: an Arrow table, {what}, 6 partitions", tuple(entries), {"size": size, **common})


def tuned() -> Item:
    """Return the table of clients with options set for throughput."""
    batches = {"batch_size": 524_288, "buffer_memory": 134_217_728}
    of_librdkafka = {"batch.size": 524_288, "queue.buffering.max.messages": 1_000_000}
    entries = [
        *ours("firehose", 1_000_000, "send", batches),
        Entry(CALLBACK, "firehose", 1_000_000, of_librdkafka, "no callback"),
        Entry(ASYNCIO, "firehose", 150_000, of_librdkafka),
        Entry(AIOKAFKA, "firehose", 150_000, {"max_batch_size": 524_288}),
        Entry(KAFKA_PYTHON, "firehose", 60_000, {"batch_size": 524_288}),  # its buffer has no limit
        Entry(JAVA, "firehose", 1_000_000, {name.replace("_", "."): value for name, value in batches.items()}),
    ]
    return Item("Firehose, tuned: 100 B values, batches of 512 KiB, linger 20 ms", tuple(entries), {"linger_ms": 20})


def waiting(title: str, way: str, counts: tuple[int, int, int, int, int, int], **options: Any) -> Item:
    """Return the table of awaited sends: ours with default options, the others without linger; Java's tool cannot wait."""
    compiled, pure, callback, asyncio, aiokafka, kafka_python = counts
    entries = [
        Entry(AIOKPROD, way, compiled, title="its defaults", form=COMPILED),
        Entry(AIOKPROD, way, pure, title="its defaults", form=PURE),
        Entry(CALLBACK, way, callback, {"linger.ms": 0}, "linger 0"),
        Entry(ASYNCIO, way, asyncio, {"linger.ms": 0}, "linger 0"),
        Entry(AIOKAFKA, way, aiokafka, {"linger_ms": 0}, "linger 0"),
        Entry(KAFKA_PYTHON, way, kafka_python, {"linger_ms": 0}, "linger 0"),
    ]
    return Item(title, tuple(entries), kind="waits", **options)


def crowd() -> Item:
    """Return the table of 20,000 concurrent sends."""
    item = waiting(
        "20,000 tasks, one send each, one partition", "tasks", (20_000,) * 6, common={"tasks": 20_000}, partitions=1
    )
    gathered = ours("gathered", 20_000, "gather over the deliveries") + ours("send_many", 20_000, "send_many")
    return Item(
        item.title, (*item.entries[:2], *gathered, *item.entries[2:]), item.common, partitions=1, rounds=2, kind="waits"
    )


def open_loop() -> Item:
    """Return the open loop's table: each client at half of its own rate.

    Without Java's tool, which counts latency from the send (coordinated omission).
    """
    peers = (CALLBACK, ASYNCIO, AIOKAFKA, KAFKA_PYTHON)
    entries = [*ours("open_loop", 1), *(Entry(client, "open_loop", 1) for client in peers)]
    title = "Open loop: each client at half of its own rate, latency from when a record was due"
    return Item(title, tuple(entries), {}, kind="waits")


def far_away() -> Item:
    entries = [
        *ours("firehose", 400_000),
        Entry(CALLBACK, "firehose", 400_000, title="no callback"),
        Entry(ASYNCIO, "firehose", 60_000),
        Entry(AIOKAFKA, "firehose", 60_000),
        Entry(KAFKA_PYTHON, "firehose", 30_000),
        Entry(JAVA, "firehose", 400_000),
    ]
    return Item("20 ms round trip: 100 B values, defaults", tuple(entries), {"linger_ms": None}, round_trip_ms=20.0)


def grown(title: str, way: str, points: dict[str, dict[str, Any]], java: bool = False, **options: Any) -> list[Item]:
    """Return a table for each point."""
    entries = [
        *ours(way, 200_000),
        Entry(CALLBACK, way, 200_000, title="no callback"),
        Entry(ASYNCIO, way, 30_000),
        Entry(AIOKAFKA, way, 50_000),
        Entry(KAFKA_PYTHON, way, 20_000),
    ]
    if java:
        entries.append(Entry(JAVA, way, 100_000))
    return [
        Item(
            f"{title}: {point}",
            tuple(entries),
            of.get("common", {}),
            kind="growth",
            **{name: value for name, value in of.items() if name != "common"},
            **options,
        )
        for point, of in points.items()
    ]


def transactions(version: int, per_transaction: int, counts: tuple[int, int, int]) -> Item:
    """Return the table of transactions of so many records; 0: of 100 ms at full load.

    Java's tool ends transactions by time alone, and tells no latency of commits.
    """
    ours_count, callback, aiokafka = counts
    by_time = per_transaction == 0
    common = {"transaction_ms": 100} if by_time else {"per_transaction": per_transaction}
    ids, dotted = {"transactional_id": TRANSACTIONAL_ID}, {"transactional.id": TRANSACTIONAL_ID}
    entries = [
        *ours("transactions", ours_count, settings=ids),
        Entry(CALLBACK, "transactions", callback, dotted),
        Entry(AIOKAFKA, "transactions", aiokafka, ids),
    ]
    if per_transaction == 1 and version == 2:
        entries.append(Entry(BARE, "transactions", ours_count, ids, title="three requests"))
    if by_time:
        entries.append(Entry(JAVA, "transactions", ours_count, dotted))
    if by_time or per_transaction >= 10_000:
        no_transactions = {"per_transaction": 0, "transaction_ms": 0}
        entries += [
            Entry(AIOKPROD, "firehose", ours_count, title="no transactions", form=form, own=no_transactions)
            for form in FORMS
        ]
    of = "of 100 ms at full load" if by_time else f"of {per_transaction:,} record{'s' * (per_transaction > 1)}"
    title = f"Transactions {of}: 100 B values, 6 partitions, transaction.version {version}"
    return Item(title, tuple(entries), common, kind="commits", transaction_version=version)


def all_transactions() -> list[Item]:
    return [
        transactions(version, size, counts)
        for version in (2, 1)
        for size, counts in {
            1: (2_000, 2_000, 1_000),
            100: (100_000, 100_000, 30_000),
            10_000: (1_000_000, 1_000_000, 150_000),
            0: (1_000_000, 1_000_000, 150_000),
        }.items()
    ]


MANY = (1, 10, 100, 1_000)


def growth() -> list[Item]:
    return [
        *grown("Growth, partitions, no keys", "firehose", {f"{n:,}": {"partitions": n} for n in MANY}, java=True),
        *grown(
            "Growth, partitions, 10,000 keys",
            "firehose",
            {f"{n:,}": {"partitions": n, "common": {"keys": 10_000}} for n in MANY},
        ),
        *grown("Growth, topics", "many_topics", {f"{n:,}": {"common": {"topics": n}} for n in MANY}, partitions=1),
        *grown("Growth, brokers", "firehose", {str(n): {"brokers": n} for n in (1, 2, 3)}, java=True),
    ]


ITEMS: dict[str, Callable[[], list[Item]]] = {
    "firehose": lambda: [firehose(100, rounds=5), tuned()],
    "outcomes": lambda: [outcomes()],
    "sizes": lambda: [
        firehose(10, 0.5, 2),
        firehose(1_000, 0.15, 2),
        firehose(10_000, 0.02, 2),
        firehose(100_000, 0.003, 2),
    ],
    "codecs": lambda: [firehose(100, 0.3, 2, compression=codec) for codec in ("gzip", "snappy", "lz4", "zstd")],
    "keyed": lambda: [firehose(100, rounds=5, keys=100_000, headers=2), firehose(100, keys=100_000)],
    "columns": lambda: [
        columns(100),
        columns(100, keys=100_000),
        columns(100, keys=100_000, headers=2),
        columns(1_000, 0.2),
        columns(1_000, 0.2, keys=100_000),
    ],
    "one_at_a_time": lambda: [waiting("`await send`, one at a time", "one_at_a_time", (3_000,) * 6, common={})],
    "web": lambda: [
        waiting(
            "1,000 tasks, each awaiting its send",
            "tasks",
            (200_000, 100_000, 60_000, 30_000, 30_000, 30_000),
            common={"tasks": 1_000},
        ),
        crowd(),
    ],
    "open_loop": lambda: [open_loop()],
    "round_trip": lambda: [far_away()],
    "growth": growth,
    "transactions": all_transactions,
}
