"""A producer in a process of its own, to be stopped and continued from outside; run by test_faults_on_real_brokers.

    python stopped_client.py '{"servers": ..., "topic": ..., "partitions": ..., "options": {...}}'

It prints "sending" once records flow and "failed" once one has failed, goes on until its standard input ends, and
prints what was told of each record.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import astuple
from typing import Any

from delivery_check import Told
from sending import send_numbered

from aiokprod import Delivery, Producer


async def main(job: dict[str, Any]) -> None:
    told: list[Told] = []
    failed = asyncio.Event()
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with Producer(job["servers"], **job["options"]) as producer:

        def mind(delivery: Delivery) -> None:
            if delivery.exception() is not None and not failed.is_set():
                failed.set()
                print("failed", flush=True)

        def send(count: int) -> list[Delivery]:
            deliveries = []
            for _ in range(count):
                record = Told(len(told) % job["partitions"], len(told))
                told.append(record)
                deliveries.append(send_numbered(producer, job["topic"], record))
                deliveries[-1].add_done_callback(mind)
            return deliveries

        while not ended.done():
            send(10)
            if len(told) == 500:
                print("sending", flush=True)
            await asyncio.sleep(0.01)
            await producer.ready()
        await producer.flush()
        await asyncio.gather(*send(30))  # after all that, it works as before
    await asyncio.sleep(0)  # the last callbacks
    print(json.dumps([astuple(record) for record in told]))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
