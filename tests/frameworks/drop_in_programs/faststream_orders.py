"""A service of FastStream: what one handler gets is published to another topic; a batch, a keyed record, a publisher.

Run as `python faststream_orders.py SERVERS GROUP`; it knows nothing of aiokprod.
"""

import asyncio
import json
import sys

from faststream import FastStream
from faststream.kafka import KafkaBroker

SERVERS, GROUP = sys.argv[1:]
COUNT = 20
broker = KafkaBroker(SERVERS, enable_idempotence=True)
app = FastStream(broker)
seen: list[int] = []
confirmed: list[str] = []
is_done = asyncio.Event()


@broker.subscriber(f"{GROUP}-orders", group_id=GROUP, auto_offset_reset="earliest")
@broker.publisher(f"{GROUP}-confirmed")
async def order(number: int) -> str:
    seen.append(number)
    return f"confirmed {number}"


@broker.subscriber(f"{GROUP}-confirmed", group_id=f"{GROUP}-2", auto_offset_reset="earliest")
async def confirmation(text: str) -> None:
    confirmed.append(text)
    if len(confirmed) == COUNT + 3:
        is_done.set()


async def main() -> None:
    async with broker:
        await broker.start()
        for number in range(COUNT):
            await broker.publish(number, f"{GROUP}-orders", key=b"%d" % number, headers={"source": "test"})
        placed = await broker.publish_batch(100, 101, 102, topic=f"{GROUP}-orders", partition=0)
        producer = broker.config.broker_config.producer._producer.producer
        await is_done.wait()
        is_reached = await broker.ping(timeout=10)
    told = {
        "producer": type(producer).__module__,
        "seen": sorted(seen),
        "confirmed": sorted(confirmed),
        "batch": placed.partition,
        "ping": is_reached,
    }
    print(json.dumps(told))


asyncio.run(asyncio.wait_for(main(), 100))
