"""Tasks of taskiq: they are kicked, and run by a worker in the same process.

Run as `python taskiq_sums.py SERVERS GROUP`; it knows nothing of aiokprod.
"""

import asyncio
import json
import sys

from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.partitioner import DefaultPartitioner
from taskiq.api import run_receiver_task
from taskiq_aio_kafka import AioKafkaBroker

SERVERS, GROUP = sys.argv[1:]
COUNT = 10
sums: list[int] = []


async def main() -> None:
    broker = AioKafkaBroker(SERVERS, kafka_topic=GROUP)
    # By default taskiq-aio-kafka takes these two from kafka-python, whose classes aiokafka cannot use from kafka-python 3 on.
    broker.configure_consumer(
        group_id=GROUP, auto_offset_reset="earliest", partition_assignment_strategy=(RoundRobinPartitionAssignor,)
    )
    broker.configure_producer(acks="all", enable_idempotence=True, partitioner=DefaultPartitioner())
    is_done = asyncio.Event()

    @broker.task(task_name="add")
    async def add(one: int, other: int) -> None:
        sums.append(one + other)
        if len(sums) == COUNT:
            is_done.set()

    broker.is_worker_process = True
    await broker.startup()
    receiver = asyncio.create_task(run_receiver_task(broker))
    for number in range(COUNT):
        await add.kiq(number, 1)
    await is_done.wait()
    receiver.cancel()
    await asyncio.gather(receiver, return_exceptions=True)
    producer = broker._aiokafka_producer
    await broker.shutdown()
    print(json.dumps({"producer": type(producer).__module__, "sums": sorted(sums)}))


asyncio.run(asyncio.wait_for(main(), 100))
