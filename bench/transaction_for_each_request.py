"""The cost of a transaction for each request: `python bench/transaction_for_each_request.py`. About a minute.

A request sends two records to two topics. Played are requests with one plain idempotent producer, and requests with a pool of
transactional producers, one transaction each (docs/exactly_once.md). For each: requests per second, latency, and the ratio to
the plain producer. No web framework is in between.

`--bootstrap HOST:PORT` uses a cluster that is there, on which it makes two topics; without it a real one of three brokers is
started.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext

from aiokprod import Producer
from aiokprod.testing import KafkaCluster

TOPICS = ("requests-orders", "requests-invoices")
POOLS = (1, 4, 16)
VALUE = b"v" * 200
Request = Callable[[int], Awaitable[object]]


@asynccontextmanager
async def plain(servers: str) -> AsyncIterator[Request]:
    """Yield a request that sends and waits for both acknowledgements."""
    async with Producer(servers, linger_ms=0) as producer:

        async def request(number: int) -> None:
            key = b"%d" % number
            await asyncio.gather(*(producer.send(topic, VALUE, key=key) for topic in TOPICS))

        yield request


@asynccontextmanager
async def pooled(servers: str, size: int) -> AsyncIterator[Request]:
    """Yield a request that borrows a producer for one transaction."""
    free: asyncio.Queue[Producer] = asyncio.Queue()
    async with AsyncExitStack() as stack:
        for number in range(size):
            producer = Producer(servers, transactional_id=f"requests-{size}-{number}", linger_ms=0)
            free.put_nowait(await stack.enter_async_context(producer))

        async def request(number: int) -> None:
            producer = await free.get()
            try:
                async with producer.transaction():
                    for topic in TOPICS:
                        producer.send(topic, VALUE, key=b"%d" % number)
            finally:
                free.put_nowait(producer)

        yield request


async def play(request: Request, clients: int, seconds: float) -> tuple[float, float, float]:
    """Let so many clients make one request after the other; return requests per second, p50 and p99 in milliseconds."""
    taken: list[float] = []

    async def client(number: int, until: float, times: list[float]) -> None:
        while (began := time.perf_counter()) < until:
            await request(number)
            times.append(time.perf_counter() - began)

    for bound_s, times in ((seconds / 5, []), (seconds, taken)):  # the first one is not counted
        began = time.perf_counter()
        await asyncio.gather(*(client(number, began + bound_s, times) for number in range(clients)))
        elapsed_s = time.perf_counter() - began
    cuts = statistics.quantiles(taken, n=100)
    return len(taken) / elapsed_s, cuts[49] * 1000, cuts[98] * 1000


async def measure(servers: str, clients: int, seconds: float) -> None:
    kinds = [("plain", plain(servers)), *((f"pool of {size}", pooled(servers, size)) for size in POOLS)]
    print(f"{clients} clients, {seconds:g} s each, two records of {len(VALUE)} bytes for a request\n")
    print("| requests | per second | ratio to plain | p50 ms | p99 ms |\n|---|---|---|---|---|")
    base = None
    for name, kind in kinds:
        async with kind as request:
            rate, p50, p99 = await play(request, clients, seconds)
        base = base or rate
        print(f"| {name} | {rate:,.0f} | {rate / base:.3f} | {p50:.1f} | {p99:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="a cluster that is there")
    parser.add_argument("--clients", type=int, default=64, help="requests that are made at the same time")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each kind")
    chosen = parser.parse_args()
    with nullcontext() if chosen.bootstrap else KafkaCluster(brokers=3) as cluster:
        if cluster is not None:
            for topic in TOPICS:
                cluster.create_topic(topic, partitions=6)
        servers = chosen.bootstrap or cluster.bootstrap_servers
        asyncio.run(measure(servers, chosen.clients, chosen.seconds))


if __name__ == "__main__":
    main()
