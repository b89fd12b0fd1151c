"""Clients that call back on a thread, in the way asyncio programs use them: a future for each record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # one may be installed without the other
    from confluent_kafka import Message, Producer
    from kafka import KafkaProducer

Send = Callable[[str, bytes, bytes | None], Awaitable[object]]
"""Sends a record (topic, value, key) and returns when it is acknowledged."""


@asynccontextmanager
async def of_callbacks(client: Producer) -> AsyncIterator[Send]:
    """Yield a send after confluent-kafka's own recipe: a thread polls."""
    from confluent_kafka import KafkaException

    loop, is_over = asyncio.get_running_loop(), Event()

    def poll() -> None:
        while not is_over.is_set():
            client.poll(0.1)

    def send(topic: str, value: bytes, key: bytes | None) -> asyncio.Future[object]:
        acknowledged: asyncio.Future[object] = loop.create_future()

        def told(error: object, message: Message) -> None:
            if error is None:
                loop.call_soon_threadsafe(acknowledged.set_result, message)
            else:
                loop.call_soon_threadsafe(acknowledged.set_exception, KafkaException(error))

        client.produce(topic, value, key, on_delivery=told)
        return acknowledged

    polling = Thread(target=poll)
    polling.start()
    try:
        yield send
    finally:
        is_over.set()
        await asyncio.to_thread(polling.join)
        client.flush()


@asynccontextmanager
async def of_kafka_python(client: KafkaProducer) -> AsyncIterator[Send]:
    """Yield a send for a client whose futures call back on its sender thread."""
    loop = asyncio.get_running_loop()

    def send(topic: str, value: bytes, key: bytes | None) -> asyncio.Future[object]:
        acknowledged: asyncio.Future[object] = loop.create_future()
        sent = client.send(topic, value, key)
        sent.add_callback(loop.call_soon_threadsafe, acknowledged.set_result)
        sent.add_errback(loop.call_soon_threadsafe, acknowledged.set_exception)
        return acknowledged

    try:
        yield send
    finally:
        await asyncio.to_thread(client.close)
