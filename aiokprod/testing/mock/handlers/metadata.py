"""Metadata (v0 to v13) and DescribeCluster: the cluster as its brokers see it, all of them alike."""

from __future__ import annotations

from typing import Final

from aiokprod.testing.faults import Fail, Omit
from aiokprod.testing.mock.cluster_state import ClusterState, RefusalError, Topic
from aiokprod.testing.mock.handlers.api import Call, Items
from aiokprod.testing.mock.partition import NO_LEADER, Partition
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from aiokprod.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from aiokprod.wire.reader import ZERO_UUID

EVERY_TOPIC_IS_NULL: Final = 1
"""In v0 an empty list asks for every topic; from v1 null does, and an empty list for none."""


def metadata_items(_call: Call, request: MetadataRequest) -> Items:
    """Return the topics a request names, for fault rules."""
    return [(asked.name or "", -1) for asked in request.topics or ()]


def metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Return brokers and topics; an unknown topic may be created, but this answer still says 3 (broker: 8.4)."""
    state = call.broker.state
    response = MetadataResponse(cluster_id=state.cluster_id, controller_id=state.controller_id)
    response.brokers = [
        MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in state.live_nodes
    ]
    for topic in _asked(call, request):
        action = call.item_action(topic.name or "")
        if isinstance(action, Fail):
            response.topics.append(MetadataResponseTopic(name=topic.name, error_code=action.code))
        elif not isinstance(action, Omit):
            response.topics.append(topic)
    return response


def _asked(call: Call, request: MetadataRequest) -> list[MetadataResponseTopic]:
    state = call.broker.state
    if request.topics is None or (call.version < EVERY_TOPIC_IS_NULL and not request.topics):
        return [_describe(call, topic) for topic in state.topics.values()]
    answers: dict[tuple[str | None, bytes], MetadataResponseTopic] = {}
    for asked in request.topics:
        key = (asked.name, asked.topic_id)
        if key not in answers:  # broker: 8.7
            answers[key] = _one(call, state, request, asked)
    return list(answers.values())


def _one(
    call: Call, state: ClusterState, request: MetadataRequest, asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    if asked.name is None:
        topic = state.topics_by_id.get(asked.topic_id)
        if topic is not None:
            return _describe(call, topic)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if asked.topic_id == ZERO_UUID else ErrorCode.UNKNOWN_TOPIC_ID
        return MetadataResponseTopic(topic_id=asked.topic_id, name=None, error_code=int(code))  # broker: 7.6
    topic = state.topics.get(asked.name)
    if topic is not None:
        return _describe(call, topic)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        state.check_name(asked.name)
        if request.allow_auto_topic_creation and state.auto_create_topics:
            state.create_topic(asked.name)
    except RefusalError as refusal:
        code = ErrorCode(refusal.code)
    return MetadataResponseTopic(name=asked.name, error_code=int(code))


def _describe(call: Call, topic: Topic) -> MetadataResponseTopic:
    answer = MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id)
    for partition in topic.partitions:
        action = call.item_action(topic.name, partition.index) if call.broker.faults.names_partitions else None
        if not isinstance(action, Omit):
            answer.partitions.append(_describe_partition(partition, action.code if action else None))
    return answer


def _describe_partition(partition: Partition, code: int | None) -> MetadataResponsePartition:
    if code is None:
        has_leader = partition.leader != NO_LEADER
        code = int(ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE)  # broker: 8.1b
    return MetadataResponsePartition(
        error_code=code,
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=partition.offline_replicas,
    )


def describe_cluster(call: Call, _request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Return the brokers that are up."""
    state = call.broker.state
    response = DescribeClusterResponse(cluster_id=state.cluster_id, controller_id=state.controller_id)
    try:
        call.refuse_by_script()
    except RefusalError as refusal:
        response.error_code, response.error_message = int(refusal.code), refusal.message
        return response
    response.brokers = [
        DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
        for node in state.live_nodes
    ]
    return response
