"""The mock cluster over real sockets, spoken to in raw codecs."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from typing import Any

import pytest
from mock_batches import batch, idempotent
from mock_client import RawClient, produce_request

from aiokprod.testing import MockCluster
from aiokprod.testing.mock import RefusalError
from aiokprod.testing.mock.handlers import APIS
from aiokprod.wire.frames import encode_request_header
from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
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
from aiokprod.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokprod.wire.messages.produce import ProduceRequest, ProduceResponse

NOW_MS = 1_700_000_000_000
ZERO_ID = bytes(16)


def mock(brokers: int = 1, **options: Any) -> MockCluster:
    return MockCluster(brokers, now_ms=lambda: NOW_MS, seed=1, **options)


def values(cluster: MockCluster, topic: str = "t", partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, partition)]


# ---- every version of every API


def fetch_request(version: int, cluster: MockCluster, offset: int = 0, **options: Any) -> FetchRequest:
    where: dict[str, Any] = {"topic_id": cluster.topic_id("t")} if version >= 13 else {"topic": "t"}
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6)
    return FetchRequest(topics=[FetchTopic(partitions=[asked], **where)], **options)


def requests_of(key: int, version: int, cluster: MockCluster) -> tuple[Any, Any]:
    match key:
        case 0:
            topic: str | bytes = cluster.topic_id("t") if version >= 13 else "t"
            return produce_request({(topic, 0): batch(b"v")}), ProduceResponse
        case 1:
            return fetch_request(version, cluster), FetchResponse
        case 2:
            asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
            return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])]), ListOffsetsResponse
        case 3:
            return MetadataRequest(topics=[MetadataRequestTopic(name="t")]), MetadataResponse
        case 10:
            batched = version >= 4
            return (
                FindCoordinatorRequest(key="" if batched else "k", coordinator_keys=["k"] if batched else []),
                FindCoordinatorResponse,
            )
        case 18:
            return ApiVersionsRequest(), ApiVersionsResponse
        case 19:
            return CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=2, replication_factor=1)]), (
                CreateTopicsResponse
            )
        case 20:
            if version >= 6:
                return DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), DeleteTopicsResponse
            return DeleteTopicsRequest(topic_names=["t"]), DeleteTopicsResponse
        case 22:
            return InitProducerIdRequest(transactional_id=None), InitProducerIdResponse
        case 37:
            return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)]), CreatePartitionsResponse
        case _:
            return DescribeClusterRequest(), DescribeClusterResponse


EVERY = [
    pytest.param(api.key, version, id=f"{api.key}-v{version}")
    for api in APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    if api.key not in (17, 36)
]


@pytest.mark.parametrize(("key", "version"), EVERY)
def test_every_version_of_every_api_is_answered(key: int, version: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            request, response = requests_of(key, version, cluster)
            answer = await client.ask(request, response, version)
            code = getattr(answer, "error_code", 0)
            assert code == (15 if key == 10 and version < 4 else 0)
            assert not cluster.counters.crashes and cluster.requests_seen(key) == 1

    asyncio.run(scenario())


def test_api_versions_too_new_is_answered_in_the_oldest_layout() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            client.send_frame(encode_request_header(18, 99, 5, "raw", True) + b"\0\0\0")
            answer = await client.receive(ApiVersionsResponse, 0, 5)
            assert answer.error_code == 35
            assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]
            assert (await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 4)).error_code == 0

    asyncio.run(scenario())


def test_advertised_ranges_can_be_capped_and_hold() -> None:
    async def scenario() -> None:
        async with mock(api_versions={"Produce": (3, 9), "DescribeCluster": None}, features={"transaction.version": 2}) as c:
            c.create_topic("t")
            async with RawClient(c) as client:
                answer = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 4)
                ranges = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
                assert ranges[0] == (3, 9) and 60 not in ranges and 17 not in ranges
                assert [(f.name, f.max_version_level) for f in answer.finalized_features] == [("transaction.version", 2)]
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
            answer = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
            assert next(k.min_version for k in answer.api_keys if k.api_key == 0) == 0
            client.send_frame(encode_request_header(0, version, 1, None, version >= 9) + b"\0\0")
            assert await client.is_closed()

    asyncio.run(scenario())


# ---- produce


def test_what_is_produced_can_be_read_back() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            assert (await client.produce("t", batch(b"a", b"b", keys=[b"k", None]))).base_offset == 0
            answer = await client.produce("t", batch(None))
            assert (answer.base_offset, answer.log_append_time_ms, answer.log_start_offset) == (2, -1, 0)
            assert [(r.offset, r.key, r.value) for r in cluster.records("t")] == [
                (0, b"k", b"a"),
                (1, None, b"b"),
                (2, None, None),
            ]
            fetched = await client.ask(fetch_request(12, cluster, 2), FetchResponse, 12)
            partition = fetched.responses[0].partitions[0]
            assert partition.records == cluster.log("t")[1].data and partition.high_watermark == 3
            assert cluster.counters.records_appended == 3 and cluster.counters.batches_appended == 2

    asyncio.run(scenario())


def test_sequences_and_duplicates_over_the_wire() -> None:  # broker: 2.1, 2.2, 2.6, 3.1
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            for n in range(3):
                assert (await client.produce("t", idempotent(n, timestamp_ms=NOW_MS))).base_offset == n
            again = await client.produce("t", idempotent(1, timestamp_ms=NOW_MS))
            assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 1, NOW_MS)
            assert (await client.produce("t", idempotent(9))).error_code == 45
            assert (await client.produce("t", idempotent(0, epoch=1))).error_code == 0
            late = await client.produce("t", idempotent(3))
            assert (late.error_code, late.base_offset) == (47, -1)
            assert cluster.counters.duplicates == 1 and cluster.counters.refusals == {45: 1, 47: 1}
            cluster.kill_broker(1)
            assert await client.is_closed()
            cluster.start_broker(1)
            async with RawClient(cluster) as later:
                assert (await later.produce("t", idempotent(0, epoch=1))).base_offset == 3
                assert (await later.produce("t", idempotent(1, epoch=1))).base_offset == 4

    asyncio.run(scenario())


def test_answers_list_topics_in_an_order_of_their_own() -> None:  # broker: 4.9
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            names = ["a", "b", "c", "d"]
            for name in names:
                cluster.create_topic(name)
            orders = []
            for asked in (names, names[::-1], ["c", "a", "d", "b"]):
                client.send_produce({(name, 0): batch(b"v") for name in asked})
                orders.append([name for name, _ in await client.produced()])
            assert orders[0] == orders[1] == orders[2] != names

    asyncio.run(scenario())


def test_each_partition_of_a_request_has_its_own_code() -> None:  # broker: 4.9
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", partitions=2)
            broken = bytearray(batch(b"x"))
            broken[-1] ^= 1
            asked = {("t", 0): batch(b"ok"), ("t", 1): bytes(broken), ("t", 2): batch(b"v"), ("none", 0): batch(b"v")}
            client.send_produce(asked)
            codes = {where: answer.error_code for where, answer in (await client.produced()).items()}
            assert codes == {("t", 0): 0, ("t", 1): 2, ("t", 2): 3, ("none", 0): 3}
            assert values(cluster) == [b"ok"] and "none" not in (t.name for t in (await all_topics(client)))  # 8.5

    asyncio.run(scenario())


async def all_topics(client: RawClient) -> Any:
    return (await client.ask(MetadataRequest(topics=None), MetadataResponse, 12)).topics


def test_topic_ids_find_the_incarnation_and_names_the_name() -> None:  # broker: 7.1, 7.2, 7.4, 7.5
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            old = cluster.create_topic("t")
            assert (await client.produce(old, idempotent(3), version=13)).error_code == 0
            assert (await client.produce(old, batch(b"v"), version=13, partition=5)).error_code == 3
            assert (await client.produce(b"\x01" * 16, batch(b"v"), version=13)).error_code == 100
            new = cluster.recreate_topic("t")
            assert new != old
            assert (await client.produce(old, idempotent(4), version=13)).error_code == 100
            assert (await client.produce("t", idempotent(4), version=12)).base_offset == 0
            cluster.delete_topic("t")
            assert (await client.produce("t", batch(b"v"))).error_code == 3

    asyncio.run(scenario())


@pytest.mark.parametrize(("version", "hinted"), [(3, False), (9, False), (10, True), (12, True)])  # broker: 7.7
def test_a_follower_names_the_leader_from_version_10_on(version: int, hinted: bool) -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster, 3) as client:
            cluster.create_topic("t")
            cluster.move_leader("t", 0, 2)
            client.send_produce({("t", 0): batch(b"v")}, version=version)
            response = await client.receive(ProduceResponse, version)
            answer = response.responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (6, -1)
            leader = (answer.current_leader.leader_id, answer.current_leader.leader_epoch)
            assert leader == ((2, 1) if hinted else (-1, -1))
            ports = [(node.node_id, node.port) for node in response.node_endpoints]
            assert ports == ([(2, cluster.broker(2).port)] if hinted else [])

    asyncio.run(scenario())


def test_a_partition_without_leader_hints_at_nobody() -> None:  # broker: 7.8
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.move_leader("t", 0, None)
            answer = await client.produce("t", batch(b"v"))
            leader = answer.current_leader
            assert (answer.error_code, leader.leader_id, leader.leader_epoch) == (6, -1, 1)
            assert cluster.leader("t") is None

    asyncio.run(scenario())


@pytest.mark.parametrize(("version", "told"), [(7, False), (8, True), (12, True)])  # broker: 4.10
def test_record_errors_come_with_version_8(version: int, told: bool) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", cleanup_policy="compact")
            answer = await client.produce("t", batch(b"a", b"b", b"c", keys=[b"k", None, None]), version=version)
            assert answer.error_code == 87
            assert [bad.batch_index for bad in answer.record_errors] == ([1, 2] if told else [])
            assert (answer.error_message is not None) is told

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [2, -2])  # broker: 5.3
def test_other_acks_are_refused(acks: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            assert (await client.produce("t", batch(b"v"), acks=acks)).error_code == 21

    asyncio.run(scenario())


def test_acks_zero_is_silent_until_an_error_closes_the_connection() -> None:  # broker: 5.1, 5.2
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            client.send_produce({("t", 0): idempotent(0, b"good")}, acks=0)
            client.send_produce({("t", 0): idempotent(0, b"again")}, acks=0)
            assert (await client.ask(MetadataRequest(topics=[]), MetadataResponse, 12)).topics == []
            client.send_produce({("t", 0): idempotent(7, b"gap")}, acks=0)
            client.send_produce({("t", 0): idempotent(1, b"behind it")}, acks=0)
            assert await client.is_closed()
            assert values(cluster) == [b"good"]

    asyncio.run(scenario())


def test_null_records_are_never_answered_and_the_connection_is_dead_but_open() -> None:  # broker: 13.5b
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            client.send_produce({("t", 0): None})
            client.send(MetadataRequest(), 12)
            assert await client.is_silent()
            assert cluster.requests_seen("Metadata") == 0 and not cluster.counters.crashes

    asyncio.run(scenario())


def test_log_append_time_is_the_brokers() -> None:  # broker: 13.8
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", message_timestamp_type="LogAppendTime")
            assert (await client.produce("t", batch(b"v", timestamp_ms=5))).log_append_time_ms == NOW_MS
            assert [record.timestamp_ms for record in cluster.records("t")] == [NOW_MS]

    asyncio.run(scenario())


# ---- waiting answers


def test_frozen_followers_give_7_with_the_base_offset_and_the_next_request_waits_its_turn() -> None:  # broker: 4.5, 6.1
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.freeze_replicas("t", 0)
            client.send_produce({("t", 0): idempotent(0)}, timeout_ms=30)
            client.send_produce({("t", 0): idempotent(1)}, timeout_ms=30)
            await cluster.until_seen("Produce", 1)
            assert len(cluster.log("t")) == 1 and cluster.requests_seen("Produce") == 1
            first, second = [(await client.produced())["t", 0] for _ in range(2)]
            assert [(a.error_code, a.base_offset) for a in (first, second)] == [(7, 0), (7, 1)]
            cluster.thaw_replicas("t", 0)
            again = await client.produce("t", idempotent(0))
            assert (again.error_code, again.base_offset) == (0, 0) and len(cluster.log("t")) == 2

    asyncio.run(scenario())


def test_a_stuck_partition_holds_up_the_others_of_its_request_and_connection_only() -> None:  # broker: 4.6, 4.7
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as stuck, RawClient(cluster) as other:
            cluster.create_topic("t")
            cluster.create_topic("free", replication_factor=1)
            cluster.freeze_replicas("t", 0)
            stuck.send_produce({("t", 0): batch(b"v"), ("free", 0): batch(b"v")}, timeout_ms=60_000)
            stuck.send(MetadataRequest(), 12)
            await cluster.until_seen("Produce")
            assert (await other.produce("free", batch(b"v"))).error_code == 0
            assert await stuck.is_silent()
            cluster.thaw_replicas("t", 0)
            assert {answer.error_code for answer in (await stuck.produced()).values()} == {0}
            await stuck.receive(MetadataResponse, 12)

    asyncio.run(scenario())


def test_a_leader_that_moves_while_a_batch_waits_gives_6_with_its_base_offset() -> None:  # broker: 6.4
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client, RawClient(cluster, 2) as new:
            cluster.create_topic("t")
            await client.produce("t", idempotent(0))
            cluster.freeze_replicas("t", 0)
            for n in (1, 2, 3):
                client.send_produce({("t", 0): idempotent(n)}, timeout_ms=60_000)
            await cluster.until_seen("Produce", 2)
            cluster.move_leader("t", 0, 2)
            answers = [(await client.produced())["t", 0] for _ in range(3)]
            assert [(a.error_code, a.base_offset) for a in answers] == [(6, 1), (6, -1), (6, -1)]
            assert {(a.current_leader.leader_id, a.current_leader.leader_epoch) for a in answers} == {(2, 1)}
            cluster.thaw_replicas("t", 0)
            assert [(await new.produce("t", idempotent(n))).base_offset for n in (1, 2, 3)] == [1, 2, 3]

    asyncio.run(scenario())


def test_too_few_replicas_are_19_for_all_and_nothing_for_one() -> None:  # broker: 4.4, 5.7
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", min_insync_replicas=2)
            cluster.set_isr("t", 0, [1])
            refused = await client.produce("t", batch(b"v"))
            assert (refused.error_code, refused.base_offset, refused.log_start_offset) == (19, -1, 0)
            assert (await client.produce("t", batch(b"v"), acks=1)).error_code == 0
            assert cluster.records("t", committed=True) == [] and len(cluster.records("t")) == 1

    asyncio.run(scenario())


def test_a_topic_deleted_while_a_batch_waits_answers_it() -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.freeze_replicas("t", 0)
            client.send_produce({("t", 0): batch(b"v")}, timeout_ms=60_000)
            await cluster.until_seen("Produce")
            cluster.delete_topic("t")
            assert (await client.produced())["t", 0].error_code == 6

    asyncio.run(scenario())


# ---- metadata, topics, producer ids


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
        ({"transactional_id": "id"}, 15),
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


# ---- reading


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


# ---- scripted faults


def test_fail_next_refuses_untouched_or_after_the_append() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            rule = cluster.fail_next("Produce", 999, topic="t", partition=0, message="text", times=2)
            first = await client.produce("t", batch(b"a"))
            assert (first.error_code, first.base_offset, first.error_message) == (999, -1, "text")
            assert (await client.produce("t", batch(b"a"))).error_code == 999
            assert rule.hits == 2 and values(cluster) == []
            cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", after_append=True, with_hint=True)
            answer = await client.produce("t", batch(b"b"))
            assert (answer.error_code, answer.base_offset, answer.current_leader.leader_id) == (6, 0, 1)
            assert (await client.produce("t", batch(b"c"))).base_offset == 1
            assert values(cluster) == [b"b", b"c"]

    asyncio.run(scenario())


FAILED = [
    (InitProducerIdRequest(transactional_id=None), InitProducerIdResponse, 4, lambda a: a.error_code),
    (ApiVersionsRequest(), ApiVersionsResponse, 3, lambda a: a.error_code),
    (DescribeClusterRequest(), DescribeClusterResponse, 1, lambda a: a.error_code),
    (FindCoordinatorRequest(coordinator_keys=["k"]), FindCoordinatorResponse, 4, lambda a: a.coordinators[0].error_code),
    (MetadataRequest(topics=None), MetadataResponse, 12, lambda a: a.topics[0].error_code),
    (
        CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=1, replication_factor=1)]),
        CreateTopicsResponse,
        7,
        lambda a: a.topics[0].error_code,
    ),
    (
        DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
        DeleteTopicsResponse,
        6,
        lambda a: a.responses[0].error_code,
    ),
    (
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=9)]),
        CreatePartitionsResponse,
        3,
        lambda a: a.results[0].error_code,
    ),
]


@pytest.mark.parametrize(("request_", "response", "version", "code"), FAILED, ids=lambda v: type(v).__name__)
def test_every_api_can_be_failed_once(request_: Any, response: Any, version: int, code: Any) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.fail_next(request_.API_KEY, 14)
            assert code(await client.ask(request_, response, version)) == 14
            assert code(await client.ask(request_, response, version)) in (0, 15)

    asyncio.run(scenario())


def test_metadata_can_fail_or_leave_out_one_partition() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", partitions=3)
            cluster.fail_next("Metadata", 5, topic="t", partition=1)
            partitions = (await all_topics(client))[0].partitions
            assert [p.error_code for p in partitions] == [0, 5, 0]
            cluster.omit_partition("Metadata", "t", 1)
            assert [p.partition_index for p in (await all_topics(client))[0].partitions] == [0, 2]

    asyncio.run(scenario())


def test_an_omitted_partition_is_missing_and_appended_or_not() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", partitions=2)
            for appended in (True, False):
                cluster.omit_partition("Produce", "t", 1, after_append=appended)
                client.send_produce({("t", 0): batch(b"a"), ("t", 1): batch(b"b")})
                assert list(await client.produced()) == [("t", 0)]
            assert values(cluster, partition=1) == [b"b"] and values(cluster, partition=0) == [b"a", b"a"]

    asyncio.run(scenario())


@pytest.mark.parametrize("appended", [True, False])
def test_a_dropped_answer_closes_the_connection(appended: bool) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.drop_answer("Produce", after_append=appended, topic="t", skip=1)
            assert (await client.produce("t", batch(b"a"))).error_code == 0
            client.send_produce({("t", 0): batch(b"b")})
            assert await client.is_closed()
            assert values(cluster) == ([b"a", b"b"] if appended else [b"a"])

    asyncio.run(scenario())


@pytest.mark.parametrize("before", [True, False])
def test_held_requests_wait_in_order_until_released(before: bool) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            rule = cluster.hold("Produce", before_serving=before)
            client.send_produce({("t", 0): batch(b"a")})
            client.send(MetadataRequest(), 12)
            await cluster.until_seen("Produce")
            assert await client.is_silent()
            assert len(cluster.log("t")) == (0 if before else 1)
            cluster.release(rule)
            assert (await client.produced())["t", 0].error_code == 0
            await client.receive(MetadataResponse, 12)
            assert (await client.produce("t", batch(b"b"))).error_code == 0

    asyncio.run(scenario())


def test_a_delay_holds_up_its_own_connection_only() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client, RawClient(cluster) as other:
            cluster.delay_next("Metadata", 0.05, before_serving=True)
            started = asyncio.get_running_loop().time()
            client.send(MetadataRequest(), 12)
            await cluster.until_seen("Metadata")
            await other.ask(MetadataRequest(), MetadataResponse, 12)
            assert asyncio.get_running_loop().time() - started < 0.05
            await client.receive(MetadataResponse, 12)
            assert asyncio.get_running_loop().time() - started >= 0.05

    asyncio.run(scenario())


@pytest.mark.parametrize("acks", [-1, 0])  # broker: 14.1, 14.2, 14.4
def test_a_throttle_answers_at_once_and_mutes_the_channel(acks: int) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.throttle_next("Produce", 60)
            client.send_produce({("t", 0): batch(b"a")}, acks=acks)
            client.send(MetadataRequest(), 12)
            await cluster.until_seen("Produce")
            started = asyncio.get_running_loop().time()
            if acks:
                response = await client.receive(ProduceResponse, 12)
                assert response.throttle_time_ms == 60 and cluster.requests_seen("Metadata") == 0
            await client.receive(MetadataResponse, 12)
            assert asyncio.get_running_loop().time() - started >= 0.05
            assert values(cluster) == [b"a"]

    asyncio.run(scenario())


def test_a_callable_may_answer_with_a_message_with_bytes_or_not_at_all() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            seen: list[object] = []

            def answer(request: object, version: int) -> object:
                seen.append((type(request), version))
                return InitProducerIdResponse(producer_id=5, producer_epoch=6)

            cluster.answer_with("InitProducerId", answer)
            request = InitProducerIdRequest(transactional_id=None)
            assert (await client.ask(request, InitProducerIdResponse, 4)).producer_epoch == 6
            assert seen == [(InitProducerIdRequest, 4)]
            cluster.answer_with("InitProducerId", lambda request, version: b"nonsense")
            cluster.answer_with("InitProducerId", lambda request, version: None)
            client.send(request, 4)
            assert (await client.frame()).endswith(b"nonsense")
            client.send(request, 4)
            await client.ask(MetadataRequest(), MetadataResponse, 12)  # the one before it was not answered

    asyncio.run(scenario())


def test_a_callable_that_raises_is_recorded_and_closes_one_connection_only() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client, RawClient(cluster) as other:

            def answer(request: object, version: int) -> object:
                raise LookupError("a mistake of the test")

            cluster.answer_with("Metadata", answer)
            client.send(MetadataRequest(), 12)
            assert await client.is_closed()
            assert [type(crash) for crash in cluster.counters.crashes] == [LookupError]
            await other.ask(MetadataRequest(), MetadataResponse, 12)

    asyncio.run(scenario())


def test_something_can_happen_just_before_the_nth_request() -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            cluster.on_request("Produce", lambda: cluster.move_leader("t", 0, 2), nth=3)
            answers = [await client.produce("t", batch(b"v")) for _ in range(4)]
            assert [answer.error_code for answer in answers] == [0, 0, 6, 6]
            cluster.fail_next(None, 14, times=None)
            assert (await client.produce("t", batch(b"v"))).error_code == 14
            cluster.clear_faults()
            assert (await client.produce("t", batch(b"v"))).error_code == 6

    asyncio.run(scenario())


# ---- brokers


def test_a_stopped_broker_refuses_and_comes_back_on_its_port() -> None:
    async def scenario() -> None:
        async with mock(2) as cluster, RawClient(cluster, 2) as other:
            cluster.create_topic("t")
            port = cluster.broker(1).port
            async with RawClient(cluster) as client:
                await client.produce("t", batch(b"a"))
                cluster.stop_broker(1)
                assert await client.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            assert cluster.leader("t") == 2
            assert (await other.produce("t", batch(b"b"))).base_offset == 1
            cluster.start_broker(1)
            async with RawClient(cluster) as client:
                assert cluster.broker(1).port == port
                cluster.move_leader("t", 0, 1)
                assert (await client.produce("t", batch(b"c"))).base_offset == 2
            assert values(cluster) == [b"a", b"b", b"c"]

    asyncio.run(scenario())


def test_a_killed_broker_resets_and_takes_what_only_it_had() -> None:  # broker: 15.5
    async def scenario() -> None:
        async with mock(2) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            await client.produce("t", batch(b"kept"))
            cluster.freeze_replicas("t", 0)
            await client.produce("t", batch(b"lost"), acks=1)
            cluster.kill_broker(1)
            with pytest.raises(ConnectionResetError):
                await client.reader.readexactly(1)
            assert values(cluster) == [b"kept"] and cluster.leader("t") == 2

    asyncio.run(scenario())


def test_stopping_and_starting_within_one_turn_of_the_loop() -> None:
    async def scenario() -> None:
        async with mock() as cluster:
            cluster.stop_broker(1)
            cluster.start_broker(1)
            cluster.kill_broker(1)
            cluster.start_broker(1)
            async with RawClient(cluster) as client:
                await client.ask(MetadataRequest(), MetadataResponse, 12)

    asyncio.run(scenario())


def test_a_broker_can_be_added_advertised_elsewhere_and_rid_of_its_clients() -> None:
    async def scenario() -> None:
        async with mock(racks=["a"]) as cluster, RawClient(cluster) as client:
            assert cluster.add_broker(rack="b") == 2
            cluster.advertise(2, "proxy.example", 1234)
            answer = await client.ask(MetadataRequest(), MetadataResponse, 12)
            assert [(n.node_id, n.host, n.rack) for n in answer.brokers] == [(1, "127.0.0.1", "a"), (2, "proxy.example", "b")]
            assert cluster.bootstrap_servers.count(",") == 1 and "proxy" not in cluster.bootstrap_servers
            assert cluster.close_connections() == 1
            assert await client.is_closed()

    asyncio.run(scenario())


# ---- hostile clients


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x04\x00\x00\x00\x0c",
        b"\x00\x00\x00\x0a\x00\x63\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x0a\x00\x00\x00\x0c\x00\x00\x00\x01\xff\xff",
    ],
    ids=["zero", "minus one", "huge", "http", "tls", "cut header", "unknown api", "no body"],
)  # broker: 13.2, 13.6
def test_bytes_that_are_no_request_close_the_connection(data: bytes) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            client.writer.write(data)
            assert await client.is_closed()
            assert not cluster.counters.crashes

    asyncio.run(scenario())


def test_a_request_over_the_limit_is_refused_after_those_before_it() -> None:  # broker: 13.2
    async def scenario() -> None:
        async with mock(max_request_bytes=1000) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            client.send_produce({("t", 0): batch(b"small")})
            await client.produced()
            client.send_produce({("t", 0): batch(b"x" * 2000)})
            assert await client.is_closed()
            assert values(cluster) == [b"small"]

    asyncio.run(scenario())


def test_random_and_mutated_requests_never_crash_a_handler() -> None:
    chance = random.Random(7)

    async def scenario() -> None:
        async with mock() as cluster:
            cluster.create_topic("t")
            for _ in range(150):
                key = chance.choice(list(APIS))
                version = chance.randrange(APIS[key].min_version, APIS[key].max_version + 1)
                flexible = version >= APIS[key].flexible_from
                frame = bytearray(encode_request_header(key, version, 1, "x", flexible))
                if key in (17, 36) or chance.random() < 0.3:
                    frame += chance.randbytes(chance.randrange(60))
                else:
                    frame += requests_of(key, version, cluster)[0].encode(version)
                    for _ in range(chance.randrange(1, 4)):
                        frame[chance.randrange(len(frame))] = chance.randrange(256)
                async with RawClient(cluster) as client:
                    client.send_frame(bytes(frame))
                    client.writer.write_eof()
                    await client.reader.read()
                if "t" not in {topic.name for topic in cluster._state.topics.values()}:
                    cluster.create_topic("t")
            assert cluster.counters.crashes == []

    asyncio.run(scenario())


def test_requests_one_byte_at_a_time_are_put_together() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            body = encode_request_header(3, 12, 9, "x", True) + MetadataRequest(topics=[]).encode(12)
            for byte in len(body).to_bytes(4, "big") + body:
                client.writer.write(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0)
            assert (await client.receive(MetadataResponse, 12, 9)).cluster_id == cluster.cluster_id

    asyncio.run(scenario())


def test_a_client_that_does_not_read_is_not_served_for_ever() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.answer_with("Metadata", lambda request, version: b"x" * 1_000_000, times=None)
            for _ in range(40):
                client.send(MetadataRequest(topics=None), 12)
            served = -1
            while served != cluster.requests_seen("Metadata"):  # until it stands still
                served = cluster.requests_seen("Metadata")
                await asyncio.sleep(0.05)
            assert 0 < served < 40
            for _ in range(40):
                assert len(await client.frame()) > 1_000_000

    asyncio.run(scenario())


# ---- life


def test_nothing_is_left_behind_on_the_loop() -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as waiting, RawClient(cluster) as muted:
            cluster.create_topic("t")
            cluster.freeze_replicas("t", 0)
            cluster.throttle_next("Metadata", 60_000)
            waiting.send_produce({("t", 0): batch(b"v")}, timeout_ms=60_000)
            await muted.ask(MetadataRequest(), MetadataResponse, 12)
            await cluster.until_seen("Produce")
            brokers = [cluster.broker(node) for node in cluster.broker_ids]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert all(broker.connections == () for broker in brokers)
        assert cluster.records("t")[0].value == b"v"  # what was written can still be read

    asyncio.run(scenario())


def test_a_cluster_on_its_own_thread_is_driven_from_this_one() -> None:
    with mock(2) as cluster:
        cluster.create_topic("t", partitions=2)
        assert cluster.broker(1).port in [int(a.rpartition(":")[2]) for a in cluster.bootstrap_servers.split(",")]

        async def talk() -> None:
            async with RawClient(cluster) as client:
                assert (await client.produce("t", batch(b"v"))).error_code == 0

        asyncio.run(talk())
        cluster.wait_until_seen("Produce", 1, timeout_s=5)
        assert values(cluster) == [b"v"]
        cluster.kill_broker(1)
        assert cluster.leader("t") == 2
        cluster.start_broker(1)
        with pytest.raises(TimeoutError, match=r"9 of Fetch not seen in 0.01 s; seen: .*Produce@1"):
            cluster.wait_until_seen("Fetch", 9, timeout_s=0.01)
        with pytest.raises(RefusalError):
            cluster.create_topic("t")
    assert not [thread for thread in threading.enumerate() if thread.name == "mock-cluster"]
    assert values(cluster) == [b"v"]


def test_topics_can_be_made_before_the_cluster_runs_and_the_blocking_wait_refuses_its_own_loop() -> None:
    async def scenario() -> None:
        cluster = mock(3)
        cluster.create_topic("t", partitions=3)
        async with cluster:
            async with RawClient(cluster, 3) as client:
                assert (await client.produce("t", batch(b"v"), partition=2)).error_code == 0
            with pytest.raises(RuntimeError, match="await it instead"):
                cluster.wait_until_seen("Produce")

    asyncio.run(scenario())


def test_fixed_ports_are_taken_as_given() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with mock(ports=[port]) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"


@pytest.mark.parametrize("arguments", [{"brokers": 0}, {"ports": [1, 2]}, {"sasl_mechanisms": ["GSSAPI"]}])
def test_clusters_that_cannot_be(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least one broker|unknown SASL"):
        mock(**arguments)


def test_verbs_name_what_is_not_there() -> None:
    cluster = mock(2)
    cluster.create_topic("t", replication_factor=1)
    with pytest.raises(KeyError, match="no topic 'x' among"):
        cluster.log("x")
    with pytest.raises(KeyError, match="has no partition 3"):
        cluster.log("t", 3)
    with pytest.raises(ValueError, match="2 is no replica"):
        cluster.move_leader("t", 0, 2)


def test_settings_and_state_can_be_changed_under_way() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            for n in range(3):
                await client.produce("t", idempotent(n, timestamp_ms=NOW_MS))
            cluster.delete_records("t", 0, 2)
            assert (await client.produce("t", idempotent(0))).base_offset == 0  # broker: 1.8
            cluster.forget_producers("t")
            assert (await client.produce("t", idempotent(2))).base_offset == 3  # broker: 1.6
            cluster.alter_topic("t", max_message_bytes=10)
            assert (await client.produce("t", idempotent(3))).error_code == 10
            cluster.add_partitions("t", 2)
            assert cluster.partition("t", 1).leader == 1
            assert cluster.expire_producers() == 0
            assert [seen.version for seen in cluster.requests("Produce")] == [12] * 6

    asyncio.run(scenario())


def test_a_small_retention_keeps_a_long_run_small() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", retention_bytes=1000)
            for _ in range(50):
                await client.produce("t", batch(b"x" * 100))
            assert sum(len(one.data) for one in cluster.log("t")) <= 1000
            assert cluster.partition("t").log.end_offset == 50

    asyncio.run(scenario())


