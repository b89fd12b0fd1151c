"""`BrokerFlusher` on a real connection: requests that expect no answer, and a connection that is closing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from rig import backend_of
from virtual_rig import kinds, log, outcomes, run, started

from aiokprod import Producer
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.model import ProducerState
from aiokprod.pipeline.broker.flusher import PRODUCE
from aiokprod.pipeline.partition.partition_queue import PartitionQueue
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork
from aiokprod.wire.versions import ApiVersions


# ---------------------------------------------------------------------- acks=0
def test_a_backlog_of_requests_without_answers_is_written_in_a_loop() -> None:
    """Each request was written from within the one before it, until the stack ended."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, acks=0, batch_size=0, linger_ms=0) as (cluster, producer):
            deliveries = [producer.send("t", b"%d" % number) for number in range(1_000)]
            await asyncio.wait_for(producer.flush(), 60)
            assert producer.health().state is ProducerState.READY
            assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}
            await asyncio.sleep(1)
            assert log(cluster) == [b"%d" % number for number in range(1_000)]
            assert producer.health().buffered_bytes == 0

    run(scenario)


@pytest.mark.pure("it replaces a method of the connection")
def test_no_request_is_written_from_within_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a handful."""
    depths: list[int] = []
    depth = 0
    send = BrokerConnection.send

    def counted(self: BrokerConnection, api_key: int, *arguments: Any, **options: Any) -> None:
        nonlocal depth
        depth += 1
        if api_key == PRODUCE:
            depths.append(depth)
        send(self, api_key, *arguments, **options)
        depth -= 1

    monkeypatch.setattr(BrokerConnection, "send", counted)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, acks=0, batch_size=0, linger_ms=0) as (_, producer):
            deliveries = [producer.send("t", b"%d" % number) for number in range(5)]
            await outcomes(deliveries)
            assert depths == [1] * 5

    run(scenario)


def test_room_that_an_unanswered_request_frees_is_given_to_what_waits_for_it() -> None:
    """Effects come after each of its requests, too."""

    async def scenario(network: VirtualNetwork) -> None:
        options = {"buffer_memory": 2_000, "max_request_size": 2_000, "batch_size": 200, "max_waiting_bytes": 1_000_000}
        async with started(network, acks=0, linger_ms=0, **options) as (cluster, producer):
            deliveries = [producer.send("t", b"%03d" % number) for number in range(300)]
            assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}
            await asyncio.sleep(1)
            assert log(cluster) == [b"%03d" % number for number in range(300)]
            assert producer.health().buffered_bytes == 0

    run(scenario)


# ---------------------------------------------------------------------- a broker that lies about its versions
def test_versions_that_do_not_fit_a_request_end_the_connection_and_not_the_producer() -> None:
    """The handshake lets "Produce: 13 alone" pass; a topic whose id is not known cannot be sent by it."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            await producer.send("t", b"0")
            connection = next(iter(backend_of(producer).brokers.flushers.values())).connection
            assert connection is not None
            connection.versions = ApiVersions({**connection.versions.ranges, PRODUCE: (14, 20)})
            delivery = producer.send("t", b"1")
            assert (await delivery).offset == 1
            assert delivery.attempts == 2  # one of them was not written
            assert not connection.is_open
            assert producer.health().state is ProducerState.READY
            assert log(cluster) == [b"0", b"1"]

    run(scenario)


# ---------------------------------------------------------------------- a connection that is closing
def queue_of(producer: Producer) -> PartitionQueue:
    (queue,) = backend_of(producer).partitions
    return queue


async def flying(cluster: MockCluster, producer: Producer) -> list[Any]:
    """Send records that broker 1 holds unanswered, and more behind them; the topic's next leader is broker 2."""
    cluster.move_leader("t", 0, 1)
    await producer.send("t", b"0")
    held = cluster.hold("Produce")
    deliveries = [producer.send("t", b"1")]
    while not held.hits:
        await asyncio.sleep(0.001)
    deliveries += [producer.send("t", b"%d" % number) for number in range(2, 5)]
    cluster.move_leader("t", 0, 2)
    asyncio.get_running_loop().call_later(3, cluster.release, held)
    return deliveries


def reset(producer: Producer) -> None:
    """Abort the transport, as asyncio and uvloop do on a reset: it is closing now, and reports that in the loop's next turn."""
    connection = backend_of(producer).brokers.flushers[1].connection
    assert connection is not None and connection._transport is not None
    connection._transport.abort()
    assert not connection.is_open


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_leader_learnt_while_the_connection_is_closing_waits_for_its_end(rounds: int) -> None:
    """Nothing is in flight any more, said the connection; the ledger knew better, and the producer failed."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=2, linger_ms=0, retry_backoff_ms=5) as (cluster, producer):
            deliveries = await flying(cluster, producer)
            queue = queue_of(producer)
            ledger = queue.ledger
            epoch = ledger.leader_epoch
            reset(producer)
            for number in range(rounds):
                queue.led_by(2, epoch + 1 + number, ledger.topic_id)
            assert not ledger.flowing
            assert ledger.node == 1  # nothing is decided while batches are in flight
            assert producer.health().state is ProducerState.READY
            assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}
            assert ledger.node == 2
            assert log(cluster) == [b"%d" % number for number in range(5)]

    run(scenario)


def test_a_leader_learnt_after_the_end_of_the_connection_is_taken_at_once() -> None:
    """The order of the two events makes no difference to the records."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=2, linger_ms=0, retry_backoff_ms=5) as (cluster, producer):
            deliveries = await flying(cluster, producer)
            queue = queue_of(producer)
            reset(producer)
            await asyncio.sleep(0)
            while queue.ledger.is_flying:
                await asyncio.sleep(0)
            queue.led_by(2, queue.ledger.leader_epoch + 1, queue.ledger.topic_id)
            assert queue.node == queue.ledger.node == 2
            assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}
            assert log(cluster) == [b"%d" % number for number in range(5)]

    run(scenario)


def test_a_connection_that_ends_is_told_for_all_requests_of_a_partition_at_once() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=2, linger_ms=0, retry_backoff_ms=5) as (cluster, producer):
            deliveries = await flying(cluster, producer)
            for number in range(5, 7):
                await asyncio.sleep(0.01)
                deliveries.append(producer.send("t", b"%d" % number))
            await asyncio.sleep(0.01)
            ledger = queue_of(producer).ledger
            assert sum(entry.is_flying for entry in ledger.entries) >= 3
            reset(producer)
            for _ in range(3):
                await asyncio.sleep(0)
            assert not ledger.is_flying
            assert set(kinds(await outcomes(deliveries))) == {"RecordMetadata"}
            assert log(cluster) == [b"%d" % number for number in range(7)]

    run(scenario)
