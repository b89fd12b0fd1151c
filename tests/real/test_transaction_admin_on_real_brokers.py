"""`TransactionAdmin` on a real Apache Kafka, with a transaction that really hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from aiokprod import Producer, Reader, TransactionOutcome
from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, ProducerFencedError, UsageError
from aiokprod.metrics import Metrics
from aiokprod.records.batch import batch_header, encode_records
from aiokprod.testing import KafkaCluster
from aiokprod.transactions.admin import TransactionAdmin
from aiokprod.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

pytestmark = pytest.mark.real

TRANSACTIONAL = 0x10
CLUSTERS = [
    pytest.param(2, id="TV2"),
    pytest.param(1, id="TV1", marks=pytest.mark.slow),
    pytest.param(0, id="TV0", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    # Without this verification a late batch opens a transaction that its coordinator does not know, as before Kafka 3.6.
    config = {"transaction.partition.verification.enable": "false"}
    with KafkaCluster(brokers=1, config=config, features={"transaction.version": request.param}) as started:
        yield started


async def write_late(cluster: KafkaCluster, topic: str, transactional_id: str, pid: int, epoch: int) -> None:
    """Write a transactional batch without adding its partition."""
    now_ms = int(time.time() * 1000)
    body = bytes(encode_records([b"late"], [None], None, [0]))
    header = batch_header(
        body,
        count=1,
        attributes=TRANSACTIONAL,
        base_timestamp_ms=now_ms,
        max_timestamp_ms=now_ms,
        producer_id=pid,
        producer_epoch=epoch,
        base_sequence=0,
    )
    data = [TopicProduceData(topic, partition_data=[PartitionProduceData(0, bytes(header) + body)])]
    request = ProduceRequest(transactional_id, -1, 5000, data)
    config = ProducerConfig.of(bootstrap_servers=cluster.bootstrap_servers)
    client = ClusterClient(config, Metrics(), SilentListener())
    await client.start(30)
    try:
        connection = await client.control_connection(1)
        answer: ProduceResponse = await connection.request(request, timeout_s=10, version=11)
    finally:
        await client.close()
    assert answer.responses[0].partition_responses[0].error_code == 0


def test_what_hangs_is_found_and_ended(cluster: KafkaCluster, kafka_name: str) -> None:
    topic = kafka_name
    cluster.create_topic(topic)

    async def scenario() -> None:
        async with (
            Producer(cluster.bootstrap_servers, transactional_id=topic) as producer,
            TransactionAdmin(cluster.bootstrap_servers) as admin,
            Reader(cluster.bootstrap_servers) as reader,
        ):
            idle = await admin.describe(topic)
            assert (idle.state, idle.is_open, idle.started_ms) == ("Empty", False, None)
            await write_late(cluster, topic, topic, idle.producer_id, idle.epoch)
            async with Producer(cluster.bootstrap_servers) as plain:
                await plain.send(topic, b"behind")
            assert await reader.latest(topic, 0, read_committed=True) == 0, "readers wait"
            assert await admin.find_hanging([topic]) == [], "it is young"
            (hanging,) = await admin.find_hanging([topic], older_than=0)
            assert (hanging.open.start_offset, hanging.open.producer_id) == (0, idle.producer_id)
            assert hanging.transactional_id == topic
            with pytest.raises(UsageError, match="Empty"):
                await admin.abort(topic)
            await admin.abort_hanging(hanging)
            assert await admin.find_hanging(older_than=0) == []
            values = [record.value async for record in reader.read(topic, 0, read_committed=True)]
            assert values == [b"behind"]
            with pytest.raises(UsageError, match="not open any more"):
                await admin.abort_hanging(hanging)
            assert producer.health().transaction == "ready"

    asyncio.run(scenario())


def test_an_open_transaction_is_listed_described_and_aborted(
    cluster: KafkaCluster, kafka_name: str, request: pytest.FixtureRequest
) -> None:
    topic = kafka_name
    is_fenced = request.node.callspec.params["cluster"] < 2
    cluster.create_topic(topic)

    async def scenario() -> None:
        async with (
            Producer(cluster.bootstrap_servers, transactional_id=topic) as producer,
            TransactionAdmin(cluster.bootstrap_servers) as admin,
        ):
            producer.begin_transaction()
            await producer.send(topic, b"v")
            (listed,) = await admin.transactional_ids(topic, states=["Ongoing"])
            found = await admin.describe(topic)
            assert listed.producer_id == found.producer_id
            assert found.is_open and found.partitions == ((topic, 0),) and found.started_ms is not None
            assert await admin.find_hanging([topic], older_than=0) == [], "its coordinator knows it"
            assert await admin.abort(topic) is TransactionOutcome.ABORTED
            with pytest.raises(AiokprodError):
                await producer.commit_transaction()
            if is_fenced:  # below version 2 an abort from outside takes the id: in its epoch the producer would go on
                with pytest.raises(ProducerFencedError):
                    await producer.abort_transaction()
                await producer.close()
                await producer.start()
            else:
                await producer.abort_transaction()
            async with producer.transaction():
                producer.send(topic, b"next")
            async with Reader(cluster.bootstrap_servers) as reader:
                for _ in range(100):
                    if await reader.latest(topic, 0, read_committed=True) >= 4:
                        break
                    await asyncio.sleep(0.1)
                values = [record.value async for record in reader.read(topic, 0, read_committed=True)]
            assert values == [b"next"]

    asyncio.run(scenario())
