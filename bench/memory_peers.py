"""The memory that a pending record takes in the peers: `python bench/memory_peers.py CLIENT JSON`. A child of `memory.py`.

Speaks to it as `memory_child.py` does. Each client runs in a process that imports no other.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pending import Pending

Result = tuple[int, dict[str, float]]
PARTITIONS = 24


def confluent_callback(servers: str, topic: str, count: int) -> Result:
    """Send with one callback for all records, so that only the client itself keeps something for each."""
    from confluent_kafka import Producer

    acknowledged = 0

    def told(error: object, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    client = Producer(librdkafka(servers, count))
    client.produce(topic, b"first", on_delivery=told)
    client.flush()
    with Pending() as pending:
        for _ in range(count):
            client.produce(topic, os.urandom(100), on_delivery=told)
    client.flush()
    return acknowledged, pending.figures(count)


def confluent_asyncio(servers: str, topic: str, count: int) -> Result:
    from confluent_kafka.aio import AIOProducer

    async def run() -> Result:
        client = AIOProducer(librdkafka(servers, count))
        first = await client.produce(topic, b"first")
        await client.flush()
        with Pending() as pending:
            futures = [first] + [await client.produce(topic, os.urandom(100)) for _ in range(count)]
        await client.flush()
        await asyncio.gather(*futures)
        figures = pending.figures(count)
        await client.close()
        return len(futures), figures

    return asyncio.run(run())


def librdkafka(servers: str, count: int) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "enable.idempotence": True, "queue.buffering.max.messages": 2 * count}


def aiokafka(servers: str, topic: str, count: int) -> Result:
    """Send round robin over many partitions with large batches, as `send` waits once one batch of its partition is full."""
    from aiokafka import AIOKafkaProducer

    options: dict[str, Any] = {"enable_idempotence": True, "acks": "all", "max_batch_size": 900_000}

    async def run() -> Result:
        async with AIOKafkaProducer(bootstrap_servers=servers, **options) as client:
            first = await client.send(topic, b"first")
            await client.flush()
            with Pending() as pending:
                futures = [first]
                for number in range(count):
                    futures.append(await client.send(topic, os.urandom(100), partition=number % PARTITIONS))
            await client.flush()
            await asyncio.gather(*futures)
            return len(futures), pending.figures(count)

    return asyncio.run(run())


def kafka_python(servers: str, topic: str, count: int) -> Result:
    from kafka import KafkaProducer

    client = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all")
    first = client.send(topic, b"first")
    client.flush()
    with Pending() as pending:
        futures = [first] + [client.send(topic, os.urandom(100)) for _ in range(count)]
    client.flush()
    figures = pending.figures(count)
    client.close()
    return sum(future.succeeded() for future in futures), figures


CLIENTS: dict[str, Callable[..., Result]] = {
    "confluent_callback": confluent_callback,
    "confluent_asyncio": confluent_asyncio,
    "aiokafka": aiokafka,
    "kafka_python": kafka_python,
}

if __name__ == "__main__":
    arguments = json.loads(sys.argv[2])
    if (core := arguments.pop("core")) is not None:
        os.sched_setaffinity(0, {core})
    print(json.dumps(CLIENTS[sys.argv[1]](**arguments)), flush=True)
