"""Every other API of the mock cluster, and every version of all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mock_batches import batch
from mock_client import RawClient
from mock_group_requests import UNKNOWN_GROUP
from mock_requests import WHO_ASKS, ZERO_ID, fetch_request, mock, requests_of

from aiokprod.testing.mock.handlers import APIS
from aiokprod.wire.frames import encode_request_header
from aiokprod.wire.messages.api_versions import ApiVersionsResponse
from aiokprod.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from aiokprod.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokprod.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

# ---------------------------------------------------------------------- every version of every API


EVERY = [
    pytest.param(api.key, version, id=f"{api.key}-v{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    if api.key not in (17, 36)
]


UNKNOWN_ID: dict[int, int | dict[int, int]] = {25: 49, 26: 49, 72: 117, **UNKNOWN_GROUP}
"""APIs that ask for an unknown transactional id or group; the others say so deeper in their answers."""


@pytest.mark.parametrize(("key", "version"), EVERY)
def test_every_version_of_every_api_is_answered(key: int, version: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.ask_for_telemetry()  # else its APIs are not offered
            request, response = requests_of(key, version, cluster)
            answer = await client.ask(request, response, version)
            code = getattr(answer, "error_code", 0)
            wanted = UNKNOWN_ID.get(key, 0)
            assert code == (wanted if isinstance(wanted, int) else wanted.get(version, 0))
            assert not cluster.counters.crashes and cluster.requests_seen(key) == 1

    asyncio.run(scenario())


def test_api_versions_too_new_is_answered_in_the_oldest_layout() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            client.send_frame(encode_request_header(18, 99, 5, "raw", True) + b"\0\0\0")
            answer = await client.receive(ApiVersionsResponse, 0, 5)
            assert answer.error_code == 35
            assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]
            assert (await client.ask(WHO_ASKS, ApiVersionsResponse, 4)).error_code == 0

    asyncio.run(scenario())


def test_advertised_ranges_can_be_capped_and_hold() -> None:
    async def scenario() -> None:
        async with mock(
            api_versions={"Produce": (3, 9), "DescribeCluster": None}, features={"transaction.version": 2}
        ) as c:
            c.create_topic("t")
            async with RawClient(c) as client:
                answer = await client.ask(WHO_ASKS, ApiVersionsResponse, 4)
                ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
                assert ranges[0] == (3, 9) and 60 not in ranges
                assert [(f.name, f.max_version_level) for f in answer.finalized_features] == [
                    ("transaction.version", 2)
                ]
                assert (await client.produce("t", batch(b"v"), version=9)).error_code == 0
                client.send_produce({("t", 0): batch(b"v")}, version=10)
                assert await client.is_closed()
            async with RawClient(c) as client:
                c.cap_versions(1, "Metadata", 0, 4)
                client.send(MetadataRequest(), 5)
                assert await client.is_closed()

    asyncio.run(scenario())


@pytest.mark.parametrize("version", [0, 1, 2, 14])  # broker: 13.6
def test_produce_versions_that_are_advertised_or_not_close_the_connection(version: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            answer = await client.ask(WHO_ASKS, ApiVersionsResponse, 0)
            assert next(k.min_version for k in answer.api_keys if k.api_key == 0) == 0
            client.send_frame(encode_request_header(0, version, 1, None, version >= 9) + b"\0\0")
            assert await client.is_closed()

    asyncio.run(scenario())


# ---------------------------------------------------------------------- metadata, topics, producer ids


def test_metadata_creates_on_request_and_says_3_first() -> None:  # broker: 8.4, 8.6, 8.7
    async def scenario() -> None:
        async with mock(2) as cluster, RawClient(cluster) as client:

            async def look(name: str, create: bool) -> Any:
                asked = [MetadataRequestTopic(name=name), MetadataRequestTopic(name=name)]
                request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
                (topic,) = (await client.ask(request, MetadataResponse, 12)).topics
                return topic

            assert (await look("t", False)).error_code == (await look("t", False)).error_code == 3
            assert (await look("t", True)).topic_id == ZERO_ID
            found = await look("t", False)
            assert found.error_code == 0 and found.topic_id == cluster.topic_id("t")
            assert (await look("a/b", True)).error_code == 17

    asyncio.run(scenario())


def test_metadata_by_id() -> None:  # broker: 7.6
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            known = cluster.create_topic("t")
            ids = [known, b"\x07" * 16, ZERO_ID]
            asked = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
            answer = await client.ask(MetadataRequest(topics=asked), MetadataResponse, 12)
            assert [(topic.name, topic.error_code) for topic in answer.topics] == [("t", 0), (None, 100), (None, -1)]

    asyncio.run(scenario())


def test_metadata_of_a_dead_broker() -> None:  # broker: 8.1b
    async def scenario() -> None:
        async with mock(2) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", partitions=2, replication_factor=1)
            cluster.kill_broker(2, elect=False)
            before = await client.ask(MetadataRequest(topics=None), MetadataResponse, 12)
            assert len(before.brokers) == 2 and before.topics[0].partitions[1].leader_id == 2
            cluster.elect_leaders(2)
            after = await client.ask(MetadataRequest(topics=None), MetadataResponse, 12)
            partition = after.topics[0].partitions[1]
            assert [node.node_id for node in after.brokers] == [1]
            assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (5, -1, 1)
            assert partition.offline_replicas == [2]

    asyncio.run(scenario())


def test_metadata_v0_takes_an_empty_list_for_every_topic() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            assert len((await client.ask(MetadataRequest(topics=[]), MetadataResponse, 0)).topics) == 1
            assert len((await client.ask(MetadataRequest(topics=[]), MetadataResponse, 1)).topics) == 0

    asyncio.run(scenario())


def test_topics_are_created_grown_and_deleted_over_the_wire() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            config = [CreatableTopicConfig(name="max.message.bytes", value="100")]
            new = CreatableTopic(name="t", num_partitions=2, replication_factor=-1, configs=config)
            request = CreateTopicsRequest(topics=[new])
            made = (await client.ask(request, CreateTopicsResponse, 7)).topics[0]
            assert (made.error_code, made.num_partitions, made.topic_id) == (0, 2, cluster.topic_id("t"))
            assert (await client.ask(request, CreateTopicsResponse, 7)).topics[0].error_code == 36
            assert (await client.produce("t", batch(b"x" * 100))).error_code == 10

            grow = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="t", count=4), CreatePartitionsTopic(name="x", count=4)]
            )
            results = (await client.ask(grow, CreatePartitionsResponse, 3)).results
            assert [result.error_code for result in results] == [0, 3]
            assert (await client.produce("t", batch(b"v"), partition=3)).error_code == 0

            gone = DeleteTopicsRequest(
                topics=[DeleteTopicState(name=None, topic_id=made.topic_id), DeleteTopicState(name="x")]
            )
            answers = (await client.ask(gone, DeleteTopicsResponse, 6)).responses
            assert [(one.name, one.error_code) for one in answers] == [("t", 0), ("x", 3)]
            assert (await client.ask(gone, DeleteTopicsResponse, 6)).responses[0].error_code == 100

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, 0),
        ({"producer_id": 1001, "producer_epoch": 3}, 0),
        ({"producer_id": 77, "producer_epoch": 32767}, 0),
        ({"producer_id": 5}, 42),
        ({"producer_epoch": 5}, 42),
        ({"transactional_id": ""}, 42),
        ({"transactional_id": "id"}, 50),
    ],
)  # broker: 9.1, 9.7
def test_producer_ids_are_always_new(arguments: dict[str, Any], code: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            request = InitProducerIdRequest(**{"transactional_id": None, **arguments})
            answers = [await client.ask(request, InitProducerIdResponse, 5) for _ in range(2)]
            assert [answer.error_code for answer in answers] == [code, code]
            if code == 0:
                assert answers[0].producer_id != answers[1].producer_id and answers[0].producer_epoch == 0
            else:
                assert answers[0].producer_id == -1

    asyncio.run(scenario())


# ---------------------------------------------------------------------- reading


def test_a_fetch_waits_for_records_and_not_longer_than_asked() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as reader, RawClient(cluster) as writer:
            cluster.create_topic("t")
            reader.send(fetch_request(12, cluster, max_wait_ms=60_000, min_bytes=1), 12)
            await cluster.until_seen("Fetch")
            assert await reader.is_silent()
            await writer.produce("t", batch(b"v"))
            assert (await reader.receive(FetchResponse, 12)).responses[0].partitions[0].records
            empty = await reader.ask(fetch_request(12, cluster, 1, max_wait_ms=5, min_bytes=1), FetchResponse, 12)
            assert empty.responses[0].partitions[0].records == b""

    asyncio.run(scenario())


def test_a_fetch_sees_nothing_above_the_high_watermark() -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.freeze_replicas("t", 0)
            await client.produce("t", batch(b"v"), acks=1)
            request = fetch_request(12, cluster, isolation_level=1)
            partition = (await client.ask(request, FetchResponse, 12)).responses[0].partitions[0]
            assert (partition.records, partition.high_watermark, partition.aborted_transactions) == (b"", 0, [])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"fetch_offset": 5}, 1),
        ({"fetch_offset": -1}, 1),
        ({"current_leader_epoch": 0}, 74),
        ({"current_leader_epoch": 9}, 75),
        ({"partition": 4}, 3),
        ({"current_leader_epoch": 1}, 0),
    ],
)
def test_fetches_that_cannot_be(change: dict[str, int], code: int) -> None:
    async def scenario() -> None:
        async with mock(2) as cluster, RawClient(cluster, 2) as client, RawClient(cluster) as follower:
            cluster.create_topic("t")
            cluster.move_leader("t", 0, 2)
            asked = FetchPartition(**{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, **change})
            request = FetchRequest(topics=[FetchTopic(topic="t", partitions=[asked])])
            assert (await client.ask(request, FetchResponse, 12)).responses[0].partitions[0].error_code == code
            if code == 0:
                assert (await follower.ask(request, FetchResponse, 12)).responses[0].partitions[0].error_code == 6
            unknown = FetchRequest(topics=[FetchTopic(topic_id=b"\x09" * 16, partitions=[FetchPartition()])])
            assert (await client.ask(unknown, FetchResponse, 16)).responses[0].partitions[0].error_code == 100

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms"),
    [(-1, 3, -1), (-2, 0, -1), (-3, 1, 300), (-4, 0, -1), (-5, -1, -1), (150, 1, 300), (0, 0, 100), (999, -1, -1)],
)
def test_offsets_are_found_by_name_and_by_time(timestamp: int, offset: int, found_ms: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            for at_ms in (100, 300, 200):
                await client.produce("t", batch(b"v", timestamp_ms=at_ms))
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])])
            answer = (await client.ask(request, ListOffsetsResponse, 9)).topics[0].partitions[0]
            assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, found_ms)
            missing = ListOffsetsRequest(topics=[ListOffsetsTopic(name="x", partitions=[asked])])
            assert (await client.ask(missing, ListOffsetsResponse, 9)).topics[0].partitions[0].error_code == 3

    asyncio.run(scenario())
