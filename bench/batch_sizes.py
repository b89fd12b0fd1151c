"""The requests, batches and bytes that records take with each codec: `python bench/batch_sizes.py`. Half a minute.

Counted, not timed, so every machine gets the same figures for the same versions of the codecs.
Log lines and JSON go through a producer to a MockCluster, both in virtual time. The row of codec `none` shows how many
requests and batches it takes if a batch is full at `batch_size` before compression.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from random import Random
from typing import Any, Final
from uuid import UUID

from aiokprod import Producer
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork, run_virtual
from aiokprod.wire.messages.produce import ProduceRequest

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TOTAL_BYTES: Final = 12_000_000
RECORDS_OF_A_MS: Final = 100
PATHS: Final = ("/", "/login", "/api/v1/orders", "/api/v1/orders/search", "/static/app.js", "/health")
STATES: Final = ("created", "paid", "packed", "shipped", "delivered", "returned")


@dataclass(frozen=True, slots=True)
class Counted:
    """The cost of sending the records once."""

    records: int
    plain_bytes: int
    """Of record sections, before compression."""
    requests: int
    batches: int
    packed_bytes: int
    """Of record sections, as sent."""


def log_lines(total_bytes: int, seed: int = 1) -> list[bytes]:
    """Return lines of a web server's log."""
    random = Random(seed)
    lines: list[bytes] = []
    size = 0
    while size < total_bytes:
        at = 1_700_000_000_000 + 7 * len(lines)
        line = (
            f"{at} INFO  [worker-{random.randrange(8)}] shop.web.access - 10.0.{random.randrange(4)}.{random.randrange(256)} "
            f'"GET {random.choice(PATHS)} HTTP/1.1" {random.choice((200, 200, 200, 304, 404))} {random.randrange(20_000)} '
            f"{random.randrange(900)}ms"
        ).encode()
        lines.append(line)
        size += len(line)
    return lines


def json_orders(total_bytes: int, seed: int = 1) -> list[bytes]:
    """Return JSON documents of nested orders, each with a random id."""
    random = Random(seed)
    orders: list[bytes] = []
    size = 0
    while size < total_bytes:
        items = [
            {
                "sku": f"SKU-{random.randrange(2_000):06}",
                "quantity": random.randrange(1, 5),
                "price": random.randrange(9_900),
            }
            for _ in range(random.randrange(1, 4))
        ]
        order: dict[str, Any] = {
            "order_id": str(UUID(int=random.getrandbits(128))),
            "customer_id": random.randrange(100_000),
            "created_at": f"2024-03-07T{random.randrange(24):02}:{random.randrange(60):02}:00Z",
            "state": random.choice(STATES),
            "currency": "EUR",
            "items": items,
        }
        orders.append(json.dumps(order).encode())
        size += len(orders[-1])
    return orders


def measurements(total_bytes: int, seed: int = 1) -> list[bytes]:
    """Return JSON documents that differ in their times and values."""
    random = Random(seed)
    found: list[bytes] = []
    size = 0
    while size < total_bytes:
        labels = {"service": "checkout", "region": "eu-central-1", "instance": f"checkout-{random.randrange(20)}"}
        name = random.choice(("http_request_duration_seconds", "process_resident_memory_bytes"))
        value = {
            "metric": name,
            "labels": labels,
            "time": 1_700_000_000 + len(found) // 40,
            "value": random.randrange(10_000),
        }
        found.append(json.dumps(value).encode())
        size += len(found[-1])
    return found


def random_bytes(total_bytes: int, seed: int = 1) -> list[bytes]:
    """Return values that do not pack."""
    random = Random(seed)
    return [random.randbytes(500) for _ in range(total_bytes // 500)]


KINDS: Final = {"log lines": log_lines, "JSON": json_orders, "metrics": measurements, "random": random_bytes}


def counted(codec: str, values: list[bytes], *, partitions: int = 3, **options: Any) -> Counted:
    """Send the values, `RECORDS_OF_A_MS` in each millisecond, and count."""

    async def scenario(network: VirtualNetwork, random: Random) -> Counted:
        async with MockCluster(1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=partitions)
            usual = {"dialer": network.dial, "linger_ms": 1_000, "compression_type": codec}
            async with Producer(cluster.bootstrap_servers, **(usual | options)) as producer:
                await producer.partitions_for("t")
                for number, value in enumerate(values):
                    if number % RECORDS_OF_A_MS == 0:
                        await asyncio.sleep(0.001)
                    producer.send("t", value)
                await producer.flush()
                metrics = producer.metrics()
            assert cluster.counters.records_appended == len(values)
            requests, batches = cluster.counters.seen(ProduceRequest.API_KEY), cluster.counters.batches_appended
        plain, packed = metrics["batch_uncompressed_bytes"], metrics["batch_compressed_bytes"]
        assert isinstance(plain, int) and isinstance(packed, int)
        return Counted(len(values), plain, requests, batches, packed)

    return run_virtual(scenario, seed=1, shuffled=False)


def main() -> None:
    print(
        f"{'values':<11}{'codec':<8}{'requests':>9}{'batches':>9}{'packed, MB':>12}{'of a batch, KB':>16}{'ratio':>8}"
    )
    for name, make in KINDS.items():
        values = make(TOTAL_BYTES)
        for codec in CODECS:
            found = counted(codec, values)
            print(
                f"{name:<11}{codec:<8}{found.requests:>9}{found.batches:>9}{found.packed_bytes / 1e6:>12.2f}"
                f"{found.packed_bytes / found.batches / 1e3:>16.1f}{found.plain_bytes / found.packed_bytes:>8.1f}"
            )


if __name__ == "__main__":
    main()
