"""Every version of every API that is offered and that we have a codec for is answered, with code 0 and no byte too many."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from conformance_targets import Target
from transactor import Transactor
from wire_batches import plain

from aiokprod.testing.kafka_cluster.blocking import Answer, Request
from aiokprod.wire.messages import add_offsets_to_txn as adding_offsets
from aiokprod.wire.messages import add_partitions_to_txn as adding
from aiokprod.wire.messages import api_versions as offering
from aiokprod.wire.messages import create_partitions as growth
from aiokprod.wire.messages import create_topics as creation
from aiokprod.wire.messages import delete_records as deletion_of_records
from aiokprod.wire.messages import delete_topics as deletion
from aiokprod.wire.messages import describe_cluster as cluster
from aiokprod.wire.messages import describe_configs as configs
from aiokprod.wire.messages import end_txn as ending
from aiokprod.wire.messages import fetch as fetching
from aiokprod.wire.messages import find_coordinator as finding
from aiokprod.wire.messages import init_producer_id as initialising
from aiokprod.wire.messages import list_offsets as offsets
from aiokprod.wire.messages import metadata
from aiokprod.wire.messages import produce as producing
from aiokprod.wire.messages import txn_offset_commit as committing

BY_ID = 13
ALSO_IN_A_TRANSACTION = 3  # AddPartitionsToTxn above is between brokers


class Scene(NamedTuple):
    """The topics and ids that requests are about."""

    target: Target
    topic: str
    topic_id: bytes


class Asked(NamedTuple):
    """A request of one version, what reads its answer, and what of the answer must be 0."""

    request: Request
    kind: type[Answer]
    codes: Callable[[Any], list[int]]


def produce(scene: Scene, version: int) -> Asked:
    data = producing.PartitionProduceData(index=0, records=plain())
    topic = producing.TopicProduceData(partition_data=[data])
    if version >= BY_ID:
        topic.topic_id = scene.topic_id
    else:
        topic.name = scene.topic
    request = producing.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5000, topic_data=[topic])
    return Asked(request, producing.ProduceResponse, lambda a: [a.responses[0].partition_responses[0].error_code])


def fetch(scene: Scene, version: int) -> Asked:
    asked = fetching.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = fetching.FetchTopic(partitions=[asked])
    if version >= BY_ID:
        topic.topic_id = scene.topic_id
    else:
        topic.topic = scene.topic
    request = fetching.FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic])
    return Asked(request, fetching.FetchResponse, lambda a: [a.error_code, a.responses[0].partitions[0].error_code])


def list_offsets(scene: Scene, version: int) -> Asked:
    asked = offsets.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    topic = offsets.ListOffsetsTopic(name=scene.topic, partitions=[asked])
    request = offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
    return Asked(request, offsets.ListOffsetsResponse, lambda a: [a.topics[0].partitions[0].error_code])


def ask_metadata(scene: Scene, version: int) -> Asked:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=scene.topic)])
    return Asked(
        request,
        metadata.MetadataResponse,
        lambda a: [a.topics[0].error_code, a.topics[0].partitions[0].error_code],
    )


def find_coordinator(scene: Scene, version: int) -> Asked:
    several = version >= 4
    request = finding.FindCoordinatorRequest(
        key="" if several else "any", coordinator_keys=["any"] if several else [], key_type=1 if version else 0
    )
    return Asked(
        request,
        finding.FindCoordinatorResponse,
        lambda a: [a.coordinators[0].error_code if several else a.error_code],
    )


def offer(scene: Scene, version: int) -> Asked:
    request = offering.ApiVersionsRequest(client_software_name="aiokprod", client_software_version="1")
    return Asked(request, offering.ApiVersionsResponse, lambda a: [a.error_code])


def create_topic(scene: Scene, version: int) -> Asked:
    topic = creation.CreatableTopic(name=f"conform-{uuid.uuid4().hex[:12]}", num_partitions=1, replication_factor=1)
    request = creation.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    return Asked(request, creation.CreateTopicsResponse, lambda a: [a.topics[0].error_code])


def delete_topic(scene: Scene, version: int) -> Asked:
    name = scene.target.new_topic()
    request = deletion.DeleteTopicsRequest(timeout_ms=10_000)
    if version >= 6:
        request.topics = [deletion.DeleteTopicState(name=name)]
    else:
        request.topic_names = [name]
    return Asked(request, deletion.DeleteTopicsResponse, lambda a: [a.responses[0].error_code])


def delete_records(scene: Scene, version: int) -> Asked:
    wanted = deletion_of_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = deletion_of_records.DeleteRecordsTopic(name=scene.topic, partitions=[wanted])
    request = deletion_of_records.DeleteRecordsRequest(topics=[topic], timeout_ms=5000)
    return Asked(request, deletion_of_records.DeleteRecordsResponse, lambda a: [a.topics[0].partitions[0].error_code])


def grow(scene: Scene, version: int) -> Asked:
    topic = growth.CreatePartitionsTopic(name=scene.target.new_topic(), count=2, assignments=None)
    request = growth.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
    return Asked(request, growth.CreatePartitionsResponse, lambda a: [a.results[0].error_code])


def init_producer_id(scene: Scene, version: int) -> Asked:
    request = initialising.InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
    return Asked(request, initialising.InitProducerIdResponse, lambda a: [a.error_code, a.producer_epoch])


def describe_cluster(scene: Scene, version: int) -> Asked:
    return Asked(
        cluster.DescribeClusterRequest(),
        cluster.DescribeClusterResponse,
        lambda a: [a.error_code, a.error_message is not None],
    )


def describe_configs(scene: Scene, version: int) -> Asked:
    wanted = configs.DescribeConfigsResource(
        resource_type=2, resource_name=scene.topic, configuration_keys=["max.message.bytes"]
    )
    return Asked(
        configs.DescribeConfigsRequest(resources=[wanted]),
        configs.DescribeConfigsResponse,
        lambda a: [a.results[0].error_code, a.results[0].configs[0].value != "1048588"],
    )


PLAIN: dict[str, tuple[type[Request], Callable[[Scene, int], Asked]]] = {
    "Produce": (producing.ProduceRequest, produce),
    "Fetch": (fetching.FetchRequest, fetch),
    "ListOffsets": (offsets.ListOffsetsRequest, list_offsets),
    "Metadata": (metadata.MetadataRequest, ask_metadata),
    "FindCoordinator": (finding.FindCoordinatorRequest, find_coordinator),
    "ApiVersions": (offering.ApiVersionsRequest, offer),
    "CreateTopics": (creation.CreateTopicsRequest, create_topic),
    "DeleteTopics": (deletion.DeleteTopicsRequest, delete_topic),
    "DeleteRecords": (deletion_of_records.DeleteRecordsRequest, delete_records),
    "CreatePartitions": (growth.CreatePartitionsRequest, grow),
    "InitProducerId": (initialising.InitProducerIdRequest, init_producer_id),
    "DescribeCluster": (cluster.DescribeClusterRequest, describe_cluster),
    "DescribeConfigs": (configs.DescribeConfigsRequest, describe_configs),
}


def versions_of(target: Target, request: type[Request]) -> range:
    """Return the versions that the broker offers and our codec knows."""
    asked = offering.ApiVersionsRequest(client_software_name="aiokprod", client_software_version="1")
    answer = target.connect().ask(asked, offering.ApiVersionsResponse, 3)
    offered = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    lowest, highest = offered.get(request.API_KEY, (0, -1))
    return range(max(lowest, request.MIN_VERSION), min(highest, request.MAX_VERSION) + 1)


@pytest.mark.parametrize("api", PLAIN)
def test_every_version_is_answered(target: Target, api: str) -> None:  # broker: 18.1
    request, make = PLAIN[api]
    topic = target.new_topic()
    Transactor(target).find("any", kind=0)  # coordinators of both kinds are there (broker: 9.2)
    wanted = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=topic)])
    (described,) = target.connect().ask(wanted, metadata.MetadataResponse, 10).topics
    scene = Scene(target, topic, described.topic_id)
    broker = target.connect_to_leader(topic)
    broker.new_producer_id()
    got = {}
    for version in versions_of(target, request):
        asked = make(scene, version)
        got[version] = asked.codes(broker.ask(asked.request, asked.kind, version))
    assert got, "no version in common"
    assert {version: codes for version, codes in got.items() if any(codes)} == {}


def test_every_version_of_a_transaction_is_answered(target: Target) -> None:  # broker: 18.1
    topic = target.new_topic()
    newest_end = versions_of(target, ending.EndTxnRequest)[-1]
    for version in versions_of(target, adding.AddPartitionsToTxnRequest)[: ALSO_IN_A_TRANSACTION + 1]:
        it = Transactor(target).begin()
        assert it.add((topic, 0), version=version) == {(topic, 0): 0}
        for offset_version in versions_of(target, adding_offsets.AddOffsetsToTxnRequest):
            assert it.add_offsets(f"group-{it.id}", version=offset_version) == 0
        for commit_version in versions_of(target, committing.TxnOffsetCommitRequest):
            assert it.commit_offset(f"group-{it.id}", topic, 1, version=commit_version) == 0
        assert it.end(True, version=min(version, newest_end)).code == 0
    for version in versions_of(target, ending.EndTxnRequest):
        it = Transactor(target).begin()
        it.add((topic, 0))
        assert it.write(topic, 0, version=9).code == 0
        assert it.end(False, version=version).code == 0
    for version in versions_of(target, initialising.InitProducerIdRequest):
        assert Transactor(target).init(version=version).code == 0
