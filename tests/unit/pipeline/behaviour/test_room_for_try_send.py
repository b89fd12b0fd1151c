"""`ready` waits for the room that `try_send` did not find; and `try_send` does not wait, whatever its arguments do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from virtual_rig import run

from aiokprod import Delivery, Producer
from aiokprod.errors import BufferFullError
from aiokprod.explanation import Place
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

SMALL = {"buffer_memory": 3000, "batch_size": 1000, "max_request_size": 2000}


@pytest.mark.parametrize("linger_ms", [0, 3000, 20_000])
@pytest.mark.parametrize("tasks", [1, 3])
def test_ready_and_try_send_in_a_loop_send_all(tasks: int, linger_ms: int) -> None:
    async def fill(producer: Producer, size: int) -> int:
        refused = 0
        for _ in range(40):
            while True:
                await producer.ready()
                try:
                    producer.try_send("t", b"y" * size)
                    break
                except BufferFullError:
                    refused += 1
        return refused

    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=3)
            async with Producer(
                cluster.bootstrap_servers, dialer=network.dial, linger_ms=linger_ms, **SMALL
            ) as producer:
                loop = asyncio.get_running_loop()
                began = loop.time()
                refused = await asyncio.gather(*(fill(producer, 200 + 700 * n) for n in range(tasks)))
                assert sum(refused) <= 40 * tasks * (tasks + 1)
                assert loop.time() - began < 5.0  # nothing lingers while `ready` waits for room
                await producer.flush()
                assert producer.health().buffered_bytes == 0
            assert sum(len(cluster.records("t", partition)) for partition in range(3)) == 40 * tasks

    run(scenario)


def test_a_refusal_while_a_task_waits_for_any_room_ends_the_linger_of_what_holds_it() -> None:
    """The task had come when less was wanted, and its wait alone hurried nothing; the batch stood until its linger ended."""

    async def scenario(network: VirtualNetwork) -> None:
        going = asyncio.Event()

        async def later(data: bytes) -> bytes:
            await going.wait()
            return data

        def serialize(topic: str, headers: object, data: bytes) -> object:
            return later(data) if topic == "later" else data

        async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t", partitions=1)
            cluster.create_topic("later", partitions=1)
            options = SMALL | {"linger_ms": 60_000, "value_serializer": serialize, "batch_size": 2_000}
            async with Producer(cluster.bootstrap_servers, dialer=network.dial, **options) as producer:  # type: ignore[arg-type]
                await producer.partitions_for("t")
                lingering = producer.send("t", b"x" * 1_600)
                serialized = producer.send("later", b"y" * 1_600)  # no room: it counts as waiting, and holds up nothing
                ready = asyncio.create_task(producer.ready())
                await asyncio.sleep(0)
                assert not ready.done() and not lingering.done()
                with pytest.raises(BufferFullError):
                    producer.try_send("t", b"z" * 1_600)
                await asyncio.sleep(1)
                assert lingering.done()
                going.set()
                await serialized
                await ready

    run(scenario)


def test_headers_that_send_do_not_make_try_send_wait() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1, auto_create_topics=False) as cluster:
            cluster.create_topic("t")
            async with Producer(cluster.bootstrap_servers, dialer=network.dial, **SMALL) as producer:
                await producer.partitions_for("t")
                held = cluster.hold("Produce")
                with pytest.raises(BufferFullError):
                    while True:
                        producer.try_send("t", b"x" * 300)
                inner: list[Delivery] = []

                def headers() -> Iterator[tuple[str, bytes]]:
                    inner.append(producer.send("t", b"y" * 300))  # type: ignore[arg-type]
                    yield "name", b"value"

                with pytest.raises(BufferFullError):
                    producer.try_send("t", b"z" * 300, headers=headers())  # type: ignore[arg-type]
                assert inner[0].explain().place is Place.PARKED
                cluster.release(held)
                await producer.flush()
                assert inner[0].done()

    run(scenario)
