"""A FastAPI application that sends one record per request: `python bench/web_app.py JSON`. A child of `web_app_bench`.

Under uvicorn with uvloop, one worker. `client` is one of CLIENTS; the request is answered when the record is acknowledged,
or, for `aiokprod_later`, as soon as it is accepted; for `none` nothing is sent.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI, Request

Send = Callable[[bytes], Awaitable[object]]
SERVERS, TOPIC = "", ""


@asynccontextmanager
async def none() -> AsyncIterator[Send]:
    async def nothing(_: bytes) -> None:
        pass

    yield nothing


@asynccontextmanager
async def aiokprod() -> AsyncIterator[Send]:
    from aiokprod import Producer

    async with Producer(SERVERS) as producer:
        yield lambda value: producer.send(TOPIC, value)


@asynccontextmanager
async def aiokprod_later() -> AsyncIterator[Send]:
    from aiokprod import Producer

    async with Producer(SERVERS) as producer:

        async def accept(value: bytes) -> None:
            producer.send(TOPIC, value)

        yield accept


@asynccontextmanager
async def aiokafka() -> AsyncIterator[Send]:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True, acks="all") as producer:
        yield lambda value: producer.send_and_wait(TOPIC, value)


@asynccontextmanager
async def confluent_callback() -> AsyncIterator[Send]:
    from confluent_kafka import Producer
    from peers.bridges import of_callbacks

    settings = {"bootstrap.servers": SERVERS, "enable.idempotence": True, "linger.ms": 0}
    async with of_callbacks(Producer(settings)) as send:
        yield lambda value: send(TOPIC, value, None)


@asynccontextmanager
async def kafka_python() -> AsyncIterator[Send]:
    from kafka import KafkaProducer
    from peers.bridges import of_kafka_python

    async with of_kafka_python(KafkaProducer(bootstrap_servers=SERVERS, enable_idempotence=True, acks="all")) as send:
        yield lambda value: send(TOPIC, value, None)


@asynccontextmanager
async def confluent_asyncio() -> AsyncIterator[Send]:
    from confluent_kafka.aio import AIOProducer

    settings = {"bootstrap.servers": SERVERS, "enable.idempotence": True, "linger.ms": 0}
    # AIOProducer's own buffer would hold a single record back for a second.
    producer = AIOProducer(settings, batch_size=1, buffer_timeout=0.1)

    async def send(value: bytes) -> None:
        await (await producer.produce(TOPIC, value))

    yield send
    await producer.close()


CLIENTS: dict[str, Any] = {
    "none": none,
    "aiokprod": aiokprod,
    "aiokprod_later": aiokprod_later,
    "aiokafka": aiokafka,
    "confluent_callback": confluent_callback,
    "confluent_asyncio": confluent_asyncio,
    "kafka_python": kafka_python,
}


def application(client: str) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with CLIENTS[client]() as send:
            app.state.send = send
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders")
    async def order(request: Request) -> dict[str, str]:
        await app.state.send(await request.body())
        return {"state": "taken"}

    return app


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    SERVERS, TOPIC = given["servers"], given["topic"]
    if given["core"] is not None:
        os.sched_setaffinity(0, {given["core"]})
    uvicorn.run(application(given["client"]), port=given["port"], loop="uvloop", log_level="warning", access_log=False)
