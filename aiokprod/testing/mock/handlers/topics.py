"""CreateTopics, DeleteTopics, CreatePartitions: each item is done or refused by itself."""

from __future__ import annotations

from collections import Counter
from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError, Topic
from aiokprod.testing.mock.handlers.api import Call, Items
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from aiokprod.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokprod.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from aiokprod.wire.reader import ZERO_UUID

WITH_CONFIGS: Final = 5
"""From CreateTopics v5 on the answer describes what was created."""


def create_topics_items(_call: Call, request: CreateTopicsRequest) -> Items:
    """Return the topics a request names, for fault rules."""
    return [(topic.name, -1) for topic in request.topics]


def create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each topic."""
    response = CreateTopicsResponse()
    named = Counter(topic.name for topic in request.topics)
    for asked in {topic.name: topic for topic in request.topics}.values():
        result = CreatableTopicResult(name=asked.name, error_message=None)
        try:
            call.refuse_by_script(asked.name)
            if named[asked.name] > 1:
                raise RefusalError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            _fill(call, result, _create(call, asked, request.validate_only))
        except RefusalError as refusal:
            result.error_code, result.error_message = int(refusal.code), refusal.message
        response.topics.append(result)
    return response


def _create(call: Call, asked: CreatableTopic, validate_only: bool) -> Topic:
    if asked.assignments and (asked.num_partitions, asked.replication_factor) != (-1, -1):
        raise RefusalError(ErrorCode.INVALID_REQUEST, "A manual assignment comes without number of partitions.")
    return call.broker.state.create_topic(
        asked.name,
        partitions=asked.num_partitions,
        replication_factor=asked.replication_factor,
        assignment={one.partition_index: list(one.broker_ids) for one in asked.assignments},
        options={config.name: config.value for config in asked.configs if config.value is not None},
        validate_only=validate_only,
    )


def _fill(call: Call, result: CreatableTopicResult, topic: Topic) -> None:
    if call.version < WITH_CONFIGS:
        return
    result.topic_id = topic.topic_id
    result.num_partitions = len(topic.partitions)
    result.replication_factor = len(topic.partitions[0].replicas)
    result.configs = [
        CreatableTopicConfigs(name=name, value=value, config_source=1) for name, value in topic.settings.options.items()
    ]


def delete_topics_items(_call: Call, request: DeleteTopicsRequest) -> Items:
    """Return the topics a request names, for fault rules."""
    return [(asked.name or "", -1) for asked in _to_delete(request)]


def delete_topics(call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Delete each topic, by name or (v6) by id."""
    state = call.broker.state
    response = DeleteTopicsResponse()
    for asked in _to_delete(request):
        result = DeletableTopicResult(name=asked.name, topic_id=asked.topic_id)
        try:
            call.refuse_by_script(asked.name or "")
            by_id = asked.name is None
            topic = state.topics_by_id.get(asked.topic_id) if asked.name is None else state.topics.get(asked.name)
            if topic is None:
                raise RefusalError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            result.name, result.topic_id = topic.name, topic.topic_id
            state.delete_topic(topic)
        except RefusalError as refusal:
            result.error_code, result.error_message = int(refusal.code), refusal.message
        response.responses.append(result)
    return response


def _to_delete(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return [*request.topics, *(DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names)]


def create_partitions_items(_call: Call, request: CreatePartitionsRequest) -> Items:
    """Return the topics a request names, for fault rules."""
    return [(topic.name, -1) for topic in request.topics]


def create_partitions(call: Call, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Grow each topic; assignments of the request are not looked at."""
    state = call.broker.state
    response = CreatePartitionsResponse()
    for asked in request.topics:
        result = CreatePartitionsTopicResult(name=asked.name)
        try:
            call.refuse_by_script(asked.name)
            topic = state.topics.get(asked.name)
            if topic is None:
                raise RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if request.validate_only:
                continue
            state.add_partitions(topic, asked.count)
        except RefusalError as refusal:
            result.error_code, result.error_message = int(refusal.code), refusal.message
        finally:
            response.results.append(result)
    return response
