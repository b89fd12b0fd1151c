"""The start of one client: import and first record. `python bench/startup_child.py CLIENT SERVERS TOPIC` prints JSON.

import_ms      in an interpreter that has imported nothing else
first_ack_ms   from the construction of the producer to the acknowledgement of its first record
idle_mb        resident size then, after a garbage collection
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter


def aiokprod(servers: str, topic: str) -> float:
    import asyncio

    from aiokprod import Producer

    imported = perf_counter()

    async def first() -> None:
        async with Producer(servers) as producer:
            await producer.send(topic, b"first")
            told(imported)

    asyncio.run(first())
    return imported


def aiokafka(servers: str, topic: str) -> float:
    import asyncio

    from aiokafka import AIOKafkaProducer

    imported = perf_counter()

    async def first() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all") as producer:
            await producer.send_and_wait(topic, b"first")
            told(imported)

    asyncio.run(first())
    return imported


def confluent_callback(servers: str, topic: str) -> float:
    from confluent_kafka import Producer

    imported = perf_counter()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    producer.produce(topic, b"first")
    producer.flush()
    told(imported)
    return imported


def confluent_asyncio(servers: str, topic: str) -> float:
    import asyncio

    from confluent_kafka.aio import AIOProducer

    imported = perf_counter()

    async def first() -> None:
        producer = AIOProducer({"bootstrap.servers": servers, "enable.idempotence": True})
        acknowledged = await producer.produce(topic, b"first")
        await producer.flush()
        await acknowledged
        told(imported)
        await producer.close()

    asyncio.run(first())
    return imported


def kafka_python(servers: str, topic: str) -> float:
    from kafka import KafkaProducer

    imported = perf_counter()
    producer = KafkaProducer(bootstrap_servers=servers, enable_idempotence=True, acks="all")
    producer.send(topic, b"first").get(30)
    told(imported)
    producer.close()
    return imported


def told(imported: float) -> None:
    """Print the figures; called when the first record is acknowledged."""
    now = perf_counter()
    gc.collect()
    figures = {
        "import_ms": (imported - BEGAN) * 1e3,
        "first_ack_ms": (now - imported) * 1e3,
        "idle_mb": resident_mb(),
    }
    print(json.dumps(figures), flush=True)


def resident_mb() -> float:
    """Return the memory of this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("Linux tells VmRSS")


CLIENTS: dict[str, Callable[[str, str], float]] = {
    "aiokprod": aiokprod,
    "aiokafka": aiokafka,
    "confluent_callback": confluent_callback,
    "confluent_asyncio": confluent_asyncio,
    "kafka_python": kafka_python,
}

if __name__ == "__main__":
    BEGAN = perf_counter()
    CLIENTS[sys.argv[1]](sys.argv[2], sys.argv[3])
