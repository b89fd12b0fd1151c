"""The life of the drop-in: its start, its end, its transactions, and aiokafka's client inside it."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import IllegalOperation, KafkaConnectionError, KafkaError, ProducerClosed
from drop_in_rig import run, started

from aiokprod import Persistence, ProducerState, Reader
from aiokprod.compat.aiokafka import AIOKafkaProducer
from aiokprod.errors import AiokprodError, BootstrapError
from aiokprod.testing import MockCluster

NO_SERVER = "127.0.0.1:1"


# ---------------------------------------------------------------------- start and stop
def test_a_start_fails_once_each_server_has_refused_and_may_be_repeated() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            producer = AIOKafkaProducer(bootstrap_servers=f"{NO_SERVER},127.0.0.1:2", request_timeout_ms=3_600_000)
            with pytest.raises(KafkaConnectionError) as refused:
                await producer.start()
            assert isinstance(refused.value, BootstrapError)
            assert [(host, port) for host, port, _ in refused.value.tried] == [("127.0.0.1", 1), ("127.0.0.1", 2)]
            assert producer.aiokprod.health().state is ProducerState.NEW
            with pytest.raises(KafkaConnectionError):
                await producer.start()
            servers = f"{NO_SERVER},{cluster.bootstrap_servers}"
            other = AIOKafkaProducer(bootstrap_servers=servers, request_timeout_ms=3_600_000)
            await other.start()  # one answers
            await other.stop()

    run(scenario)


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            rule = cluster.hold("Metadata")
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            start = asyncio.create_task(producer.start())
            while not rule.hits:
                await asyncio.sleep(0)
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
            assert producer.aiokprod.health().state is ProducerState.NEW
            cluster.release(rule)
            await producer.start()
            await producer.stop()

    run(scenario)


def test_stop_delivers_what_was_sent_and_the_producer_can_be_started_again() -> None:
    async def scenario() -> None:
        async with started() as (cluster, producer):
            sent = [await producer.send("t", b"%d" % number, partition=0) for number in range(100)]
            await producer.stop()
            assert producer._closed and all(each.done() for each in sent)
            assert len(cluster.records("t", 0)) == 100
            with pytest.raises(ProducerClosed) as closed:
                await producer.flush()
            assert isinstance(closed.value, AiokprodError)
            await producer.start()
            assert not producer._closed
            await producer.send_and_wait("t", b"v")

    run(scenario)


def test_a_producer_that_is_dropped_without_stop_is_told_once() -> None:
    async def scenario() -> None:
        async with MockCluster() as cluster:
            producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
            await producer.start()
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                del producer
                gc.collect()
                await asyncio.sleep(0)
            assert len([each for each in told if each.category is ResourceWarning]) == 1

    run(scenario)


# ---------------------------------------------------------------------- transactions
async def committed(cluster: MockCluster) -> list[bytes | None]:
    """Return what readers of committed records see."""
    async with Reader(cluster.bootstrap_servers) as reader:
        return [record.value async for record in reader.read("t", 0, read_committed=True)]


def test_a_transaction_commits_aborts_and_takes_offsets() -> None:
    async def scenario() -> None:
        async with started(transactional_id="txn") as (cluster, producer):
            context = producer.transaction()
            async with context:
                await producer.send("t", b"one", partition=0)
                await producer.send_offsets_to_transaction({aiokafka.TopicPartition("t", 1): 5}, "group")
            async with context:
                await producer.send("t", b"two", partition=0)
            with pytest.raises(KeyError):
                async with producer.transaction():
                    await producer.send("t", b"three", partition=0)
                    raise KeyError
            await producer.begin_transaction()
            await producer.send("t", b"four", partition=0)
            await producer.abort_transaction()
            assert await committed(cluster) == [b"one", b"two"]

    run(scenario)


def test_a_commit_that_is_refused_raises_the_error_of_the_record_and_is_aborted() -> None:
    async def scenario() -> None:
        async with started(transactional_id="txn") as (cluster, producer):
            cluster.fail_next("Produce", "INVALID_REQUIRED_ACKS", times=1)
            with pytest.raises(KafkaError) as refused:
                async with producer.transaction():
                    await producer.send("t", b"v", partition=0)
            assert isinstance(refused.value, AiokprodError)
            assert refused.value.persistence is Persistence.NOT_PERSISTED
            async with producer.transaction():  # nothing is left to abort
                await producer.send("t", b"w", partition=0)

    run(scenario)


@pytest.mark.parametrize(("offsets", "group", "kind"), [
    ({}, "group", ValueError), ({("t", 0): 1}, "group", TypeError),
    ({aiokafka.TopicPartition("t", 0): 1}, "", ValueError), ({aiokafka.TopicPartition("t", 0): 1}, None, ValueError),
])  # fmt: skip
def test_offsets_that_aiokafka_refuses_are_refused(offsets: Any, group: Any, kind: type[Exception]) -> None:
    async def scenario() -> None:
        async with started(transactional_id="txn") as (_, producer), producer.transaction():
            with pytest.raises(kind):
                await producer.send_offsets_to_transaction(offsets, group)

    run(scenario)


def test_the_names_of_transactions_without_an_id_are_refused() -> None:
    async def scenario() -> None:
        async with started() as (_, producer):
            with pytest.raises(IllegalOperation):
                async with producer.transaction():
                    raise AssertionError("the block must not run")
            with pytest.raises(IllegalOperation):
                producer._ensure_transactional()

    run(scenario)


# ---------------------------------------------------------------------- aiokafka's client
def test_the_client_is_there_with_its_names_and_not_connected() -> None:
    async def scenario() -> None:
        async with started(client_id="name") as (cluster, producer):
            client = producer.client
            assert isinstance(client, aiokafka.AIOKafkaClient) and producer.client is client
            assert [client._bootstrap_servers, client._client_id] == [cluster.bootstrap_servers, "name"]
            assert await client._wait_on_metadata("t") == {0, 1, 2}
            assert len(client.cluster.brokers()) == 3  # as the producer knows them
            assert producer._partition("t", None, None, None, b"key", None) in range(3)
            assert client._conns == {}

    run(scenario)


def test_a_health_check_connects_and_says_whether_a_broker_has_answered() -> None:
    async def scenario() -> None:
        async with started() as (_, producer):
            assert await producer.client.force_metadata_update() is True
            assert await producer.client.force_metadata_update() is True
            assert (await producer.client.fetch_all_metadata()).topics() == {"t"}
            assert producer._partition("t", None, None, None, b"key", None) in range(3)
        producer = AIOKafkaProducer(bootstrap_servers=NO_SERVER)
        assert await producer.client.force_metadata_update() is False
        await producer.stop()

    run(scenario)


def test_requests_of_a_framework_go_through_the_client() -> None:
    from aiokafka.protocol.metadata import MetadataRequest

    async def scenario() -> None:
        async with started() as (_, producer):
            node = next(iter(producer.client.cluster.brokers())).nodeId
            answer = await producer.client.send(node, MetadataRequest([]))
            assert len(answer.brokers) == 3
            assert await producer.client.ready(node)

    run(scenario)
