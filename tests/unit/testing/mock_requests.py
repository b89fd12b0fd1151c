"""Helpers of the tests of the mock cluster: a small cluster, and one request of every API."""

from __future__ import annotations

from typing import Any

from mock_batches import batch
from mock_client import RawClient, produce_request
from mock_group_requests import group_requests_of
from mock_transaction_requests import transaction_requests_of

from aiokprod.testing import MockCluster
from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from aiokprod.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokprod.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from aiokprod.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from aiokprod.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from aiokprod.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokprod.wire.messages.produce import ProduceResponse

NOW_MS = 1_700_000_000_000
ZERO_ID = bytes(16)
WHO_ASKS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def mock(brokers: int = 1, **options: Any) -> MockCluster:
    return MockCluster(brokers, now_ms=lambda: NOW_MS, seed=1, **options)


def values(cluster: MockCluster, topic: str = "t", partition: int | None = None) -> list[bytes | None]:
    return [record.value for record in cluster.records(topic, partition)]


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
        case 8 | 9 | 24 | 25 | 26 | 27 | 28 | 61 | 65 | 66 | 71 | 72:
            return transaction_requests_of(key, version, cluster)
        case 11 | 12 | 13 | 14 | 15 | 16 | 42 | 47 | 68 | 69:
            return group_requests_of(key, version)
        case 10:
            batched = version >= 4
            return (
                FindCoordinatorRequest(key="" if batched else "k", coordinator_keys=["k"] if batched else []),
                FindCoordinatorResponse,
            )
        case 18:
            return WHO_ASKS, ApiVersionsResponse
        case 19:
            return CreateTopicsRequest(topics=[CreatableTopic(name="n", num_partitions=2, replication_factor=1)]), (
                CreateTopicsResponse
            )
        case 20:
            if version >= 6:
                return DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]), DeleteTopicsResponse
            return DeleteTopicsRequest(topic_names=["t"]), DeleteTopicsResponse
        case 21:
            gone = DeleteRecordsPartition(partition_index=0, offset=-1)
            return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[gone])]), DeleteRecordsResponse
        case 22:
            return InitProducerIdRequest(transactional_id=None), InitProducerIdResponse
        case 32:
            named = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)
            return DescribeConfigsRequest(resources=[named]), DescribeConfigsResponse
        case 44:
            change = AlterableConfig(name="min.insync.replicas", value="1")
            altered = AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
            return IncrementalAlterConfigsRequest(resources=[altered]), IncrementalAlterConfigsResponse
        case 37:
            return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)]), CreatePartitionsResponse
        case _:
            return DescribeClusterRequest(), DescribeClusterResponse


async def all_topics(client: RawClient) -> Any:
    return (await client.ask(MetadataRequest(topics=None), MetadataResponse, 12)).topics
